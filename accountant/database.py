"""The connection to PostgreSQL: one engine per process, READ COMMITTED, explicit transactions.

There are two roles. Migrations run as the owner of the tables. Everything else runs as a role that can only
add and read entries, so that not even a security hole in the service lets anybody rewrite the ledger.
"""

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, make_url, text
from sqlalchemy.exc import DisconnectionError, InterfaceError, OperationalError

__all__ = [
    "MIGRATIONS",
    "UNAVAILABLE",
    "Engine",
    "connect",
    "engine_for",
    "excess_rights",
    "grant",
    "migrate",
    "reading",
    "unpooled",
]

#: What is raised where the server is away, stopping, or has closed the connection: trying again may help.
UNAVAILABLE = (OperationalError, InterfaceError)
UNAVAILABLE_DRIVER = (psycopg.OperationalError, psycopg.InterfaceError)

MIGRATIONS = Path(__file__).resolve().parent.parent / "migrations"


def connect(url: str, pool_size: int = 10, wait_seconds: float = 30.0) -> Engine:
    """An engine for `url`, with READ COMMITTED isolation: correctness rests on row locks, so it is enough.

    `wait_seconds` is how long a thread waits for a connection while the whole pool is in use.
    """
    engine = create_engine(
        url,
        isolation_level="READ COMMITTED",
        hide_parameters=True,  # errors end in logs
        pool_size=pool_size,
        pool_timeout=wait_seconds,
        max_overflow=pool_size,
        connect_args={"options": "-c timezone=UTC -c lock_timeout=60s"},
    )
    event.listen(engine, "checkin", _used)
    event.listen(engine, "checkout", _still_there)
    return engine


#: A connection that lay idle for longer is tried before it is used: the server may have been restarted.
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
def engine_for(url: str) -> Engine:
    """The engine of this process for `url`."""
    return connect(url)


def reading(engine: Engine, *, snapshot: bool = False) -> Connection:
    """A connection whose transactions are READ ONLY: PostgreSQL refuses whatever would write.

    It comes from the pool of `engine` and returns as it was; nothing more is sent to the server for it.
    `snapshot`: everything that is read is of one moment.
    """
    options: dict[str, Any] = {"isolation_level": "REPEATABLE READ"} if snapshot else {}
    return engine.connect().execution_options(postgresql_readonly=True, **options)


def unpooled(url: str) -> Engine:
    """An engine that keeps no connection open, for a process that forks: children would share it."""
    return create_engine(url, isolation_level="READ COMMITTED", hide_parameters=True, poolclass=NullPool)


def migrate(url: str, application_url: str | None = None) -> None:
    """Migrate the schema to the newest version, as its owner; `application_url`'s user gets its rights."""
    from alembic import command
    from alembic.config import Config

    config = Config(str(MIGRATIONS / "alembic.ini"))
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["url"] = url
    config.attributes["application_url"] = application_url
    command.upgrade(config, "head")


# --- rights -------------------------------------------------------------------------------------

#: What the application may do to a table; to those not named here it may add, and change rows.
_APPEND_ONLY = (
    *("entries", "fingerprints", "fingerprint_key", "artifacts", "checkpoints", "signing_keys"),
    *("activity", "sign_ins", "idempotency_keys"),
)
_RIGHTS = {
    **dict.fromkeys(_APPEND_ONLY, "SELECT, INSERT"),
    "alembic_version": "SELECT",
    "standings": "SELECT",  # a trigger of the owner's keeps them
    "sign_in_limits": "SELECT, INSERT, UPDATE, DELETE",  # what nobody tried for long is forgotten
    "job_keys": "SELECT, INSERT, DELETE",  # a job's key ends with it, and is never another
    "kept_draws": "SELECT, INSERT, DELETE",  # so do its draws, and none is changed
    "hook_deliveries": "SELECT, INSERT, UPDATE, DELETE",  # a log of messages, kept for so long
}
_OTHER_RIGHTS = "SELECT, INSERT, UPDATE"
_EXCESSIVE = ("UPDATE", "DELETE", "TRUNCATE", "TRIGGER")


def grant(connection: Connection, application_url: str) -> None:
    """Grant the application's role its rights anew; the role is created if it does not exist.

    Runs after every migration, so that a new table never lacks them. Does nothing if the URL names the
    connected user: owner and application are then one role, and `excess_rights` reports what that gives away.
    """
    address = make_url(application_url)
    role = address.username
    owner = connection.execute(text("SELECT current_user")).scalar_one()
    if role is None or role == owner:
        return
    known = text("SELECT count(*) FROM pg_roles WHERE rolname = :role")
    if not connection.execute(known, {"role": role}).scalar_one():
        _create_role(connection, role, address.password)
    name = sql.Identifier(role)
    tables = text("SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tableowner = current_user")
    for table in connection.execute(tables).scalars().all():
        rights = sql.SQL(_RIGHTS.get(table, _OTHER_RIGHTS))
        target = sql.Identifier("public", table)
        _run(connection, sql.SQL("REVOKE ALL ON {} FROM {}").format(target, name))
        _run(connection, sql.SQL("GRANT {} ON {} TO {}").format(rights, target, name))


def _create_role(connection: Connection, role: str, password: str | None) -> None:
    """Create a role. Roles belong to the whole cluster: another database's migration may create it too."""
    secret: sql.Composable = sql.SQL("")
    if password is not None:
        driver: Any = connection.connection.driver_connection
        hashed = driver.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
        secret = sql.SQL(" PASSWORD {}").format(sql.Literal(hashed.decode()))  # never the password itself
    create = sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)) + secret
    body = sql.SQL("BEGIN {}; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END").format(
        create
    )
    _run(connection, sql.SQL("DO {}").format(sql.Literal(body.as_string())))


def _run(connection: Connection, statement: sql.Composed) -> None:
    connection.exec_driver_sql(statement.as_string())


def excess_rights(engine: Engine) -> list[str]:
    """The connected role's rights on the ledger beyond adding to it and reading it.

    Empty if owner and application are two roles. An owner may disable every trigger.
    """
    query = text("SELECT has_table_privilege('entries', :right)")
    member = text("SELECT pg_has_role(relowner, 'MEMBER') FROM pg_class WHERE oid = 'entries'::regclass")
    with engine.connect() as connection:
        found = [each for each in _EXCESSIVE if connection.execute(query, {"right": each}).scalar_one()]
        return [*found, "OWNER"] if connection.execute(member).scalar_one() else found
