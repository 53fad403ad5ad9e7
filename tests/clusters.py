"""PostgreSQL servers on ports of this machine, for tests of standbys and restores."""

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg

from web.stack import postgres
from web.stack.bundled_binaries import plain_environment, reach

#: As a production server, but that nothing waits for the disk: processes are killed here, not
#: machines.
SETTINGS = {
    "fsync": "off",
    "max_wal_senders": "5",
    "wal_keep_size": "256MB",
    "unix_socket_directories": "",
}


def free_port() -> int:
    """A port that nobody listens on, and that no connection to elsewhere is given meanwhile."""
    while True:
        port = random.randrange(20_000, 32_000)  # below those that systems hand out
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Cluster:
    """A data folder and, between `start` and `kill`, its server. Everybody on this machine is let
    in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, user: str = "postgres", database: str = "postgres") -> str:
        return f"postgresql+psycopg://{user}@127.0.0.1:{self.port}/{database}"

    def start(self, **settings: str) -> None:
        given = {**SETTINGS, "listen_addresses": "127.0.0.1", "port": str(self.port), **settings}
        flags = [part for key, value in given.items() for part in ("-c", f"{key}={value}")]
        self.process = subprocess.Popen(
            [program("postgres"), "-D", "/proc/self/cwd", *flags],
            cwd=self.folder,
            env=plain_environment(),
            preexec_fn=reach(postgres._uid()).become,  # noqa: PLW1509 (it takes no lock)
            stdout=subprocess.DEVNULL,
            stderr=(self.folder.parent / f"{self.folder.name}.log").open("ab"),
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                self.ask("SELECT 1")
                return
            except psycopg.OperationalError:
                assert self.process.poll() is None, f"see {self.folder}.log"
                time.sleep(0.05)
        raise AssertionError("the server did not start")

    def ask(self, statement: str, database: str = "postgres") -> object:
        """The first value that it answers with, as its superuser."""
        url = self.url(database=database).replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
            return None if row is None else row[0]

    def await_(self, statement: str, expected: object) -> None:
        deadline = time.monotonic() + 60
        while self.ask(statement) != expected:
            assert time.monotonic() < deadline, statement
            time.sleep(0.05)

    def backup(self, target: Path, *options: str) -> "Cluster":
        """A copy of it as it is, by pg_basebackup."""
        target.mkdir(mode=0o700)
        if (uid := postgres._uid()) is not None:
            os.chown(target, uid, uid)
        source = f"host=127.0.0.1 port={self.port} user=postgres application_name={target.name}"
        command = [
            program("pg_basebackup"),
            "-D",
            "/proc/self/cwd",
            "-c",
            "fast",
            "-d",
            source,
            *options,
        ]
        made = subprocess.run(
            command,
            cwd=target,
            env=plain_environment(),
            preexec_fn=reach(postgres._uid()).become,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert made.returncode == 0, made.stderr
        return Cluster(target)

    def kill(self) -> None:
        """Every process of it at once, as when its machine loses power."""
        if self.process is None:
            return
        postmaster = psutil.Process(self.process.pid)
        postmaster.suspend()  # first, so that nothing is started or tidied up
        for each in [*postmaster.children(recursive=True), postmaster]:
            each.send_signal(signal.SIGKILL)
        self.process.wait(20)
        self.process = None


def program(name: str) -> str:
    return str(reach(postgres._uid()).binaries / name)


@contextmanager
def new_cluster(folder: Path) -> Iterator[Cluster]:
    """A new, empty one, killed at the end."""
    postgres._initialise(folder / "postgres")
    cluster = Cluster(folder / "postgres")
    try:
        yield cluster
    finally:
        cluster.kill()
