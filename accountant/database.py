"""The connection to PostgreSQL: one engine per process, READ COMMITTED, explicit transactions.

Migrations run as the owner of the tables, and every process as a role of its own with the rights
that `accountant.rights` states. A set-up with one role for all processes works too: that one can
only add and read entries. `excess_rights` tells what a role may do beyond its process.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import sql
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, text
from sqlalchemy.exc import DBAPIError, DisconnectionError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from accountant.addresses import database_address
from accountant.connections import (
    LIMITS,
    LOOK_SECONDS,
    BoundedConnection,
    Pulse,
    open_watched,
    set_session,
)
from accountant.core.ledger import commitments
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.signed import SignedPlaces
from accountant.readiness import server_problem
from accountant.rights import Process, rights_of

__all__ = [
    "MIGRATIONS",
    "UNAVAILABLE",
    "Engine",
    "connect",
    "engine_for",
    "excess_rights",
    "grant",
    "logging_to",
    "migrate",
    "problem",
    "process_of",
    "reading",
    "run_by_driver",
    "unpooled",
]

#: What is raised where the server is away, stopping, or has closed the connection: trying again may
#: help.
UNAVAILABLE = (OperationalError, InterfaceError, PoolTimeout)
UNAVAILABLE_DRIVER = (psycopg.OperationalError, psycopg.InterfaceError)

MIGRATIONS = Path(__file__).resolve().parent.parent / "migrations"


#: What a statement may take, in seconds; migrations, and comparing all records of new data, have no
#: limit.
STATEMENT_SECONDS = 90
#: Before an open transaction that asks for nothing loses its locks: its process may be frozen.
IDLE_TRANSACTION_SECONDS = 300
LOCK_SECONDS = 60


def connect(
    url: str, pool_size: int = 10, wait_seconds: float = 30.0, answer_seconds: float | None = None
) -> Engine:
    """Return an engine for `url`, with READ COMMITTED isolation: correctness rests on row locks, so
    it is enough.

    `wait_seconds` is how long a thread waits for a connection while the whole pool is in use.
    Whatever the server does, a statement ends: accountant.connections. `answer_seconds` ends those
    too that no limit of a server that answers does: a COMMIT that waits for a standby.
    """
    server = _server_of(url)
    engine = create_engine(
        server.address,
        isolation_level="READ COMMITTED",
        hide_parameters=True,  # errors end in logs
        pool_size=pool_size,
        pool_timeout=wait_seconds,
        max_overflow=pool_size,
        connect_args=server.limits,
    )
    _watch(engine, server, answer_seconds)
    event.listen(engine, "handle_error", _quote_nothing)
    event.listen(engine, "checkin", _used)
    event.listen(engine, "checkout", _still_there)
    return engine


#: Time limits of a session, unless the address's `options` say otherwise.
TIME_LIMITS = {
    "lock_timeout": f"{LOCK_SECONDS}s",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{IDLE_TRANSACTION_SECONDS}s",
}


class _Server(NamedTuple):
    """A server's address and a connection's limits there. `pooled`: no session there is ours."""

    address: URL
    limits: dict[str, Any]
    pooled: bool


def _server_of(url: str) -> _Server:
    """Read a server's address; a limit that the address itself states stands.

    `?pooler=transaction` is ours: a pooler gives each transaction another session, so none may be
    prepared or set.
    """
    address = database_address(url)
    pooled = address.query.get("pooler") == "transaction"
    address = address.difference_update_query(["pooler"])
    limits: dict[str, Any] = {
        key: value for key, value in LIMITS.items() if key not in address.query
    }
    if pooled:
        limits["prepare_threshold"] = None
    else:
        stated = address.query.get("options", "")
        stated = stated if isinstance(stated, str) else " ".join(stated)
        address = address.difference_update_query(["options"])
        options = [*(f"-c {name}={value}" for name, value in TIME_LIMITS.items()), stated]
        limits["options"] = " ".join(options)  # the later of two stands
    return _Server(address, limits, pooled)


_PULSES: WeakKeyDictionary[Engine, Pulse] = WeakKeyDictionary()
_SERVERS: WeakKeyDictionary[Engine, _Server] = WeakKeyDictionary()


def _watch(engine: Engine, server: _Server, answer_seconds: float | None = None) -> None:
    """Connections of the engine end their statements where its server falls silent."""
    _SERVERS[engine] = server

    pulse = _PULSES[engine] = Pulse(lambda: _look(engine))

    def opened(_: Any, __: Any, args: Any, parameters: Any) -> Any:
        connection = open_watched(pulse, answer_seconds, *args, **parameters)
        if not server.pooled:
            set_session(connection)
        return connection

    event.listen(engine, "do_connect", opened)


def _look(engine: Engine) -> BoundedConnection:
    """Return a connection beside the pool, which the server answers within LOOK_SECONDS."""
    args, parameters = engine.dialect.create_connect_args(engine.url)
    limits = {**parameters, **_SERVERS[engine].limits, "connect_timeout": round(LOOK_SECONDS)}
    return BoundedConnection.connect(*args, **limits, autocommit=True)


def problem(engine: Engine) -> str | None:
    """Return why the database can't serve, within a few seconds, or None if it can."""
    if _PULSES[engine].silent:
        return "database unreachable"
    try:
        with _look(engine) as connection:
            if not _SERVERS[engine].pooled:
                set_session(connection)
            return server_problem(connection, newest_revision(), TIME_LIMITS)
    except psycopg.errors.UndefinedTable:
        return "the database is not migrated"
    except psycopg.Error:
        return "database unreachable"


@lru_cache(maxsize=1)
def newest_revision() -> str:
    """Return the revision that the migrations of this code end in."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(MIGRATIONS)).get_current_head() or ""


def _quote_nothing(context: Any) -> None:
    """Cut an error of the server to what names no value: its text ends in logs, and may quote a
    record.

    Messages of data exceptions (class 22) quote the value, details of broken constraints the row, a
    context a line of what was copied. Other messages name tables, columns and constraints, and
    stay.
    """
    _shorten(context.original_exception, context.sqlalchemy_exception)


def _shorten(error: BaseException, wrapped: BaseException | None) -> None:
    if not isinstance(error, psycopg.Error) or error.sqlstate is None:
        return
    named = {"constraint": error.diag.constraint_name, "table": error.diag.table_name}
    facts = [f"{name} {value}" for name, value in named.items() if value]
    if not error.sqlstate.startswith("22"):
        facts.append(error.diag.message_primary or "")
    summary = f"SQLSTATE {error.sqlstate}: {', '.join(facts) or 'a value does not fit'}"
    error.args = (summary,)
    if wrapped is not None:
        wrapped.args = (f"({type(error).__module__}.{type(error).__name__}) {summary}",)


def run_by_driver(
    connection: Connection, statement: str, values: Sequence[object]
) -> tuple[Any, ...] | None:
    """Run a statement in the connection's transaction, and return its first row, if it has any.

    SQLAlchemy's own work for a statement costs more than all else of an admission. Errors are those
    that it would raise.
    """
    driver: Any = connection.connection.driver_connection
    try:
        cursor = driver.execute(statement, values)
        return cursor.fetchone() if cursor.description else None
    except psycopg.Error as error:
        wrapped = DBAPIError.instance(
            statement, None, error, psycopg.Error, True, driver.closed, connection.dialect
        )
        _shorten(error, wrapped)
        raise wrapped from error


#: A connection that lay idle for longer is tried before it is used: the server may have been
#: restarted.
IDLE_SECONDS = 1.0


def _used(_: Any, record: Any) -> None:
    record.info["used_at"] = time.monotonic()


def _still_there(connection: Any, record: Any, _: Any) -> None:
    """Ping an idle connection; the pool replaces it if there is no answer."""
    if time.monotonic() - record.info.get("used_at", time.monotonic()) > IDLE_SECONDS:
        try:
            connection.execute("")
            connection.rollback()
        except UNAVAILABLE_DRIVER:
            raise DisconnectionError("the server was restarted") from None


@lru_cache(maxsize=4)
def engine_for(
    url: str,
    ledger_log: Path | str | None = None,
    answer_seconds: float | None = None,
    signed: SignedPlaces | None = None,
    mending: bool = False,
) -> Engine:
    """Return the engine of this process for `url`, with its log as in `logging_to`."""
    engine = connect(url, answer_seconds=answer_seconds)
    return logging_to(engine, ledger_log, signed, mending=mending)


def logging_to(
    engine: Engine,
    place: Path | str | None,
    signed: SignedPlaces | None = None,
    *,
    mending: bool = False,
) -> Engine:
    """Return the engine; its entries also go to the log at `place`, if there is one.

    `signed`: the places where heads of that log were signed; it must hold what they say, unless
    somebody is `mending` it.
    """
    if place is not None:
        engine.update_execution_options(ledger_log=log_at(place, signed, mending=mending))
    return engine


P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class _Moment:
    """The snapshot that all readers of a context share (`one_moment`), with what they kept."""

    engine: Engine
    connection: Connection
    kept: dict[object, Any] = field(default_factory=dict)


_MOMENT: ContextVar[_Moment | None] = ContextVar("moment", default=None)


@contextmanager
def one_moment(engine: Engine) -> Iterator[None]:
    """Read everything within at one moment, on the one connection that `reading` returns."""
    if _MOMENT.get() is not None:
        yield
        return
    with reading(engine, snapshot=True) as connection:
        held = _MOMENT.set(_Moment(engine, connection))
        try:
            yield
        finally:
            _MOMENT.reset(held)


def kept(reader: Callable[P, R]) -> Callable[P, R]:
    """Return a reader that reads once within `one_moment`: it would read the same again.

    Its arguments are hashable, and nobody changes what it returns.
    """

    @wraps(reader)
    def read(*args: P.args, **kwargs: P.kwargs) -> R:
        moment = _MOMENT.get()
        if moment is None:
            return reader(*args, **kwargs)
        key = reader, args, tuple(sorted(kwargs.items()))
        if key not in moment.kept:
            moment.kept[key] = reader(*args, **kwargs)
        result: R = moment.kept[key]
        return result

    return read


def reading(engine: Engine, *, snapshot: bool = False) -> AbstractContextManager[Connection]:
    """Return a connection whose transactions are READ ONLY: PostgreSQL refuses whatever would
    write.

    It comes from the pool of `engine` and returns as it was; nothing more is sent to the server for
    it. `snapshot`: everything that is read is of one moment. Within `one_moment` it is the
    connection of that.
    """
    shared = _MOMENT.get()
    if shared is not None and shared.engine is engine:
        return nullcontext(shared.connection)
    options: dict[str, Any] = {"isolation_level": "REPEATABLE READ"} if snapshot else {}
    return engine.connect().execution_options(postgresql_readonly=True, **options)


def unpooled(url: str) -> Engine:
    """Return an engine that keeps no connection: a forking process's children would share it."""
    server = _server_of(url)
    engine = create_engine(
        server.address,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
        poolclass=NullPool,
        connect_args=server.limits,
    )
    _watch(engine, server)
    return engine


def migrate(
    url: str, application_url: str | None = None, processes: Mapping[Process, str] | None = None
) -> None:
    """Migrate the schema to the newest version, as its owner; grant the users of the other URLs
    their rights.

    `application_url`: of all processes together; `processes`: of each that has a role of its own.
    """
    from alembic import command
    from alembic.config import Config

    config = Config(str(MIGRATIONS / "alembic.ini"))
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["url"] = url
    config.attributes["application_url"] = application_url
    config.attributes["processes"] = processes or {}
    command.upgrade(config, "head")


# --- rights -------------------------------------------------------------------------------------


#: What one role for all processes may do to a table; to those not named here it may add, and change
#: rows.
_APPEND_ONLY = (
    "entries",
    "fingerprints",
    "fingerprint_key",
    "key_checks",
    "corpus_fingerprints",
    "artifacts",
    "checkpoints",
    "signing_keys",
    "idempotency_keys",
    "ledger_log_marks",
    "comments",
)
_RIGHTS = {
    **dict.fromkeys(_APPEND_ONLY, "SELECT, INSERT"),
    "alembic_version": "SELECT",
    "standings": "SELECT",  # a trigger of the owner's keeps them
    **dict.fromkeys(("process_roles", "private_places"), ""),
    # a trigger keeps what is young
    **dict.fromkeys(("activity", "sign_ins"), "SELECT, INSERT, DELETE"),
    "sessions": "SELECT, INSERT, UPDATE, DELETE",  # long after their end
    "sign_in_limits": "SELECT, INSERT, UPDATE, DELETE",  # what nobody tried for long is forgotten
    "job_keys": "SELECT, INSERT, DELETE",  # a job's key ends with it, and is never another
    "kept_draws": "SELECT, INSERT, DELETE",  # so do its draws, and none is changed
    "outbox": "SELECT, INSERT, UPDATE, DELETE",  # a message that nobody waits for is taken away
    # one that works again says nothing, and one that ended is forgotten
    **dict.fromkeys(("stopped_workers", "live_workers"), "SELECT, INSERT, UPDATE, DELETE"),
    "maintenance": "SELECT, INSERT, DELETE",  # its end takes the row away
    "hooks": "SELECT, INSERT, DELETE",
    # a message ends when it is delivered or given up
    "hook_deliveries": "SELECT, INSERT, UPDATE, DELETE",
    "checkpoint_requests": "SELECT, INSERT, DELETE",
    "passkeys": "SELECT, INSERT, UPDATE (sign_count, last_used_at, removed_at)",
    "passkey_challenges": "SELECT, INSERT, DELETE",
    "logout_tokens": "SELECT, INSERT, DELETE",
}
_OTHER_RIGHTS = "SELECT, INSERT, UPDATE"
_EXCESSIVE = ("UPDATE", "DELETE", "TRUNCATE", "TRIGGER")


def grant(connection: Connection, url: str, process: Process | None = None) -> None:
    """Grant the role of `url` its rights anew; the role is created if it does not exist.

    `process`: whose role it is; None: of all of them. Runs after every migration, so that a new
    table never lacks them. Does nothing if the URL names the connected user: owner and service are
    then one role, and `excess_rights` reports what that gives away.
    """
    address = database_address(url)
    role = address.username
    owner = connection.execute(text("SELECT current_user")).scalar_one()
    if role is None or role == owner:
        return
    query = text("SELECT count(*) FROM pg_roles WHERE rolname = :role")
    if not connection.execute(query, {"role": role}).scalar_one():
        _create_role(connection, role, address.password)
    name = sql.Identifier(role)
    tables = text(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tableowner = current_user"
    )
    for table in connection.execute(tables).scalars().all():
        rights = _RIGHTS.get(table, _OTHER_RIGHTS) if process is None else rights_of(process, table)
        target = sql.Identifier("public", table)
        _run(connection, sql.SQL("REVOKE ALL ON {} FROM {}").format(target, name))  # of columns too
        if rights:
            _run(connection, sql.SQL("GRANT {} ON {} TO {}").format(sql.SQL(rights), target, name))
    _tell_guards(connection, role, process)


def _tell_guards(connection: Connection, role: str, process: Process | None) -> None:
    """Tell the owner's triggers whose role it is, and where entries hold private values by now."""
    if connection.execute(text("SELECT to_regclass('process_roles')")).scalar_one() is not None:
        place = text("INSERT INTO private_places VALUES (:kind, :place) ON CONFLICT DO NOTHING")
        for kind, places in commitments.places_by_kind().items():
            connection.execute(
                place, [{"kind": kind, "place": "/".join(names)} for names in places]
            )
        noted = text(
            "INSERT INTO process_roles (role, process) VALUES (:role, :process) "
            "ON CONFLICT (role) DO UPDATE SET process = excluded.process"
        )
        connection.execute(noted, {"role": role, "process": process or "service"})


def _create_role(connection: Connection, role: str, password: str | None) -> None:
    """Create a role of the cluster, unless another database's migration did meanwhile."""
    secret: sql.Composable = sql.SQL("")
    if password is not None:
        driver: Any = connection.connection.driver_connection
        hashed = driver.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
        # never the password itself
        secret = sql.SQL(" PASSWORD {}").format(sql.Literal(hashed.decode()))
    create = sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)) + secret
    body = sql.SQL(
        "BEGIN {}; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END"
    ).format(create)
    _run(connection, sql.SQL("DO {}").format(sql.Literal(body.as_string())))


def _run(connection: Connection, statement: sql.Composed) -> None:
    connection.exec_driver_sql(statement.as_string())


def process_of(engine: Engine) -> str:
    """Return a database role's process, "service" (all of them) or "owner" (of the tables)."""
    with engine.connect() as connection:
        process: str = connection.execute(text("SELECT calling_process()")).scalar_one()
        return process


def excess_rights(engine: Engine) -> list[str]:
    """Return the connected role's rights on the ledger beyond adding to it and reading it.

    Empty if owner and application are two roles. An owner may disable every trigger.
    """
    query = text("SELECT has_table_privilege('entries', :right)")
    member = text(
        "SELECT pg_has_role(relowner, 'MEMBER') FROM pg_class WHERE oid = 'entries'::regclass"
    )
    with engine.connect() as connection:
        rights = [
            right
            for right in _EXCESSIVE
            if connection.execute(query, {"right": right}).scalar_one()
        ]
        return [*rights, "OWNER"] if connection.execute(member).scalar_one() else rights
