"""Start the embedded PostgreSQL on a home's folder, made first if need be, and ask whether it
answers.
"""

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from web.stack.addresses import APPLICATION, OWNER, POSTGRES, ROLES, socket_folder
from web.stack.bundled_binaries import newest_install, plain_environment, reach
from web.stack.processes import Child, StackError, spawn

# PostgreSQL refuses to run as root. This user id has no name and needs none: it lies in a range
# that distributions leave unused (systemd.io/UIDS-GIDS), below 65536 so that user namespaces map
# it.
_UID_FOR_ROOT = 60999
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
    # A statement that failed may hold a record, and so may the message: neither reaches the
    # server's log. Whoever sent it is told. Of LOG and FATAL come starts, stops, crashes and
    # refused connections.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_lock_waits": "off",
}


def start(home: Path, death_signal: int | None) -> Child:
    """Start it on its folder, made first if need be.

    As root it runs as another user, which can't pass through a home of mode 0700, and opening the
    way would open it to everybody. It is born inside its folder instead and knows it as
    /proc/self/cwd, a name that needs no permission on the folders above. Nobody but root and it
    gets to the data.
    """
    folder = home / POSTGRES
    if not folder.exists():
        _initialise(folder)
    _check_version(folder)
    _drop_stale_locks(folder)
    flags = [part for key, value in SETTINGS.items() for part in ("-c", f"{key}={value}")]
    reached = reach(_uid())
    return spawn(
        POSTGRES,
        [str(reached.binaries / "postgres"), "-D", _data_name(folder), *flags],
        home=home,
        cwd=folder,
        environment=plain_environment(),
        death_signal=death_signal,
        become=reached.become,
    )


def touched_outside() -> str | None:
    """Return a sentence on what a start writes outside its home, if anything."""
    reached = reach(_uid())
    if not reached.copied:
        return None
    return (
        f"PostgreSQL's user can't reach its programs here; a copy of them is in {reached.binaries}"
    )


def _initialise(folder: Path) -> None:
    """Make a cluster aside and move it into place whole: interruptions leave no half."""
    draft = folder.with_name("postgres.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    maker = None
    if os.geteuid() == 0:  # initdb, unlike the server, insists on a user with a name
        maker = pwd.getpwnam("nobody").pw_uid
        os.chown(draft, maker, maker)
    reached = reach(maker)
    options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]
    completed = subprocess.run(
        [str(reached.binaries / "initdb"), "-D", _data_name(draft), *options],
        cwd=draft,
        env=plain_environment(),
        preexec_fn=reached.become,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if completed.returncode != 0:
        last = next(
            (
                line
                for line in reversed(completed.stdout.splitlines())
                if "error" in line or "FATAL" in line
            ),
            "",
        )
        raise StackError(
            POSTGRES,
            f"initdb exited with code {completed.returncode}. {last}",
            completed.stdout[-2000:],
        )
    uid = _uid()
    if uid is not None:
        for path in (draft, *draft.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)
    draft.rename(folder)


def _check_version(folder: Path) -> None:
    made_by = (folder / "PG_VERSION").read_text().strip()
    ours = newest_install().name.removeprefix("pginstall")
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


def answers(home: Path) -> bool:
    """Return True if it accepts us; makes roles and database the first time.

    None of the roles is a superuser: text injected into a query can't start programs or read files.
    """
    import psycopg

    service = (APPLICATION, *ROLES.values())

    try:
        with psycopg.connect(
            host=socket_folder(home, POSTGRES),
            user="postgres",
            dbname="postgres",
            autocommit=True,
            connect_timeout=5,
        ) as connection:
            for role, rights in ((OWNER, "LOGIN CREATEDB"), *((role, "LOGIN") for role in service)):
                row = connection.execute(
                    "SELECT count(*) FROM pg_roles WHERE rolname = %s", (role,)
                )
                if row.fetchone() == (0,):
                    connection.execute(f"CREATE ROLE {role} {rights}")
            row = connection.execute(
                "SELECT count(*) FROM pg_database WHERE datname = %s", (OWNER,)
            )
            if row.fetchone() == (0,):
                connection.execute(f"CREATE DATABASE {OWNER} OWNER {OWNER}")
    except psycopg.OperationalError:
        return False
    return True
