"""Connections to PostgreSQL that never wait for a server that has fallen silent.

libpq waits for an answer for as long as the kernel keeps the socket: for ever, where a server is
stopped or its machine frozen, since its kernel goes on acknowledging. Here a statement that has no
answer after a second makes the process look, over a connection of its own: while that one is
answered, the statement may take the time that the server's `statement_timeout` gives it; when it is
not, every waiting statement of the process ends with SilentServer, and so does every new one until
the server answers again.
"""

import threading
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")

#: A statement that waits for longer makes the process look whether the server answers at all.
PATIENCE_SECONDS = 1.0
#: The look: a server that takes longer for an empty statement, or to let somebody in, is silent.
LOOK_SECONDS = 2.0
#: Between looks, while somebody waits or the server is silent.
PAUSE_SECONDS = 1.0
#: libpq's own limits: for a connection, then for one whose other end is gone without a word.
LIMITS: dict[str, int] = {
    "connect_timeout": 3,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds
}

#: What the code relies on in every session, whatever the server, the database, the role or libpq's
#: own environment variables set. Behind a pooler, whose sessions are its own, its `connect_query`
#: sets them.
RELIED_ON: dict[str, str] = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "standard_conforming_strings": "on",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "search_path": "public",
    "row_security": "on",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "synchronous_commit": "on",  # an answer is given when its commit is on the disk
}
#: Since PostgreSQL 17, a limit that no part of the code expects.
_TRANSACTION_TIMEOUT = 170_000


def set_session(connection: psycopg.Connection[Any]) -> None:
    """Set what the code relies on in a session that has just begun."""
    values = dict(RELIED_ON)
    if connection.info.server_version >= _TRANSACTION_TIMEOUT:
        values["transaction_timeout"] = "0"
    assignments = ", ".join(
        f"set_config('{name}', '{value}', false)" for name, value in values.items()
    )
    # no transaction, so one round trip
    autocommit, connection.autocommit = connection.autocommit, True
    connection.execute(f"SELECT {assignments}")
    connection.autocommit = autocommit


class SilentServer(psycopg.OperationalError):
    """The database does not answer. What it was asked to commit it may have committed."""


class Pulse:
    """Whether one server answers: a thread looks while somebody waits for it or it is silent."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wanted = 0.0  # when somebody last waited; monotonic seconds
        self.silent = False

    def want(self) -> None:
        """Somebody has waited for longer than PATIENCE_SECONDS: look, if nobody does."""
        self._wanted = time.monotonic()
        if self._thread is None or not self._thread.is_alive():  # after a fork it is not
            with self._lock:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._look, name="pulse", daemon=True)
                    self._thread.start()

    def _look(self) -> None:
        connection: psycopg.Connection[Any] | None = None
        try:
            while self.silent or time.monotonic() - self._wanted < 2 * PAUSE_SECONDS:
                connection = self._once(connection)
                time.sleep(PAUSE_SECONDS)
        finally:
            if connection is not None:
                connection.close()

    def _once(self, connection: psycopg.Connection[Any] | None) -> psycopg.Connection[Any] | None:
        """Ask once; an error is an answer too, and whoever waits meets it by themselves."""
        try:
            connection = connection or self._connect()
            connection.execute("")
            self.silent = False
        except (SilentServer, psycopg.errors.ConnectionTimeout):
            self.silent = True
            return None
        except psycopg.Error:
            self.silent = False
            return None
        return connection


class BoundedConnection(psycopg.Connection[Any]):
    """A connection whose statements end within LOOK_SECONDS, by an answer or SilentServer."""

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a step of the protocol; after SilentServer the connection is closed."""
        return super().wait(_attended(gen, self._look), *args, **kwargs)

    def _look(self, waited: float) -> None:
        if waited > LOOK_SECONDS:
            self._give_up()

    def _give_up(self) -> None:
        self.pgconn.finish()  # the answer to this statement must not be taken for the next one's
        raise SilentServer("the database does not answer")


class WatchedConnection(BoundedConnection):
    """A connection whose statements end where `pulse` finds its server silent, and not before."""

    pulse: Pulse
    answer_seconds: float | None = (
        None  # within which a statement has an answer; None: statement_timeout rules
    )

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a step of the protocol; after SilentServer the connection is closed."""
        if self.pulse.silent:
            self._give_up()
        return super().wait(gen, *args, **kwargs)

    def _look(self, waited: float) -> None:
        if waited > PATIENCE_SECONDS:
            self.pulse.want()
            if self.pulse.silent or (
                self.answer_seconds is not None and waited > self.answer_seconds
            ):
                self._give_up()


def open_watched(
    pulse: Pulse, answer_seconds: float | None, *args: Any, **parameters: Any
) -> WatchedConnection:
    """Return a new connection that watches `pulse`. Raises SilentServer while it is silent."""
    if pulse.silent:
        raise SilentServer("the database does not answer")
    try:
        connection: WatchedConnection = WatchedConnection.connect(*args, **parameters)
    except psycopg.errors.ConnectionTimeout:
        pulse.want()
        raise
    connection.pulse, connection.answer_seconds = pulse, answer_seconds
    return connection


def _attended(gen: Generator[Any, Any, T], look: Callable[[float], None]) -> Generator[Any, Any, T]:
    """Yield the same steps of the protocol; while nothing comes, `look` gets the seconds so far."""
    began = time.monotonic()
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready:  # woken by the interval
                look(time.monotonic() - began)
            state = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result
