"""What the stack needs of a machine: looked at before a start, and said in a sentence with a
remedy.
"""

import os
import pwd
import resource
import shutil
import tempfile
from pathlib import Path

from accountant.settings import Settings
from web.stack import ports
from web.stack.addresses import POSTGRES, prepare
from web.stack.processes import StackError

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (POSIX shared memory has no other place)
_SHARED_BYTES = 8 * 10**6
_NEW_DATABASE_BYTES = 400 * 10**6  # a new cluster, its log of changes, and the sample
_RUNNING_BYTES = 20 * 10**6
_FILES = 64
_CAPABILITIES = {"CHOWN": 0, "SETGID": 6, "SETUID": 7}  # linux/capability.h


def require(settings: Settings, *, database: bool) -> None:
    """Raise StackError for the first condition unmet. `database`: the embedded one is wanted."""
    home = settings.home.resolve()
    prepare(home)
    _require_files()
    _require_address(settings)
    _require_shared_memory()
    _require_room(home, _RUNNING_BYTES)
    if database:
        _require_user()
        if not (home / POSTGRES).exists():
            _require_room(home, _NEW_DATABASE_BYTES)


def _unmet(reason: str, remedy: str) -> StackError:
    return StackError("the stack", f"can't start: {reason}", remedy=remedy)


def _require_room(home: Path, needed: int) -> None:
    free = shutil.disk_usage(home).free
    if free < needed:
        raise _unmet(
            f"{home} has {free / 1e6:.0f} MB of disk left and it needs {needed / 1e6:.0f} MB",
            "Make room, or set EXCHEQUER_HOME to a folder on another disk",
        )


def _require_address(settings: Settings) -> None:
    """Check that the page could be reached at one of its addresses."""
    hosts = ports.hosts(settings)
    problems = [ports.unreachable(host) for host in hosts]
    if not all(problems):
        return
    remedy = "Set EXCHEQUER_HOST to an address of this machine, such as 127.0.0.1"
    if settings.host == "127.0.0.1" and ports.unreachable("::1") is None:
        remedy = "This machine speaks IPv6 only: set EXCHEQUER_HOST=::1, or nothing"
    elif settings.host in ("127.0.0.1", "::1", "localhost"):
        remedy = "Bring the loopback network up: `ip link set lo up`"
    raise _unmet(f"it can't listen on {' or '.join(hosts)} ({problems[0]})", remedy)


def _require_shared_memory() -> None:
    """PostgreSQL and the workers share memory through files there."""
    try:
        with tempfile.TemporaryFile(dir=_SHARED_MEMORY) as file:
            os.posix_fallocate(file.fileno(), 0, _SHARED_BYTES)
    except OSError as error:
        raise _unmet(
            f"{_SHARED_MEMORY} has no {_SHARED_BYTES / 1e6:.0f} MB that it may write "
            f"({error.strerror})",
            "In a container: --shm-size=256m. Elsewhere, as root: mount -o remount,rw,size=256m "
            "/dev/shm",
        ) from None


def _require_files() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most < _FILES:
        raise _unmet(
            f"a process may open {most} files only", f"Run `ulimit -n {16 * _FILES}` first"
        )


def _require_user() -> None:
    """PostgreSQL refuses to run as root, and its maker `initdb` as a user without a name."""
    uid = os.geteuid()
    try:
        pwd.getpwuid(uid) if uid else pwd.getpwnam("nobody")
    except KeyError:
        who = f"user {uid} has no name in" if uid else "root finds no user `nobody` in"
        raise _unmet(
            f"{who} /etc/passwd, which PostgreSQL asks for", "Add it, or set DATABASE_URL"
        ) from None
    if uid:
        return
    status = Path("/proc/self/status").read_text()
    held = int(
        next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16
    )
    lacking = [name for name, bit in _CAPABILITIES.items() if not held >> bit & 1]
    if lacking:
        raise _unmet(
            "PostgreSQL refuses to run as root, and this root may not become another user",
            f"Run it as another user, add the capabilities {', '.join(lacking)}, or set "
            "DATABASE_URL",
        )
