"""Whether a PostgreSQL server can serve, by one connection: it takes writes, and its settings are
right.
"""

from collections.abc import Collection

import psycopg

from accountant.connections import RELIED_ON, BoundedConnection


def server_problem(
    connection: BoundedConnection, revision: str, limits: Collection[str]
) -> str | None:
    """Return why the server can't serve now, or None if it can.

    Args:
        connection: A session as the service's are.
        revision: The newest revision of the schema.
        limits: The settings that limit how long a session waits.
    """
    return (
        _state_problem(connection, revision)
        or _session_problem(connection, limits)
        or _write_problem(connection)
    )


def _state_problem(connection: BoundedConnection, revision: str) -> str | None:
    """Return what is wrong with the server or the database, or None."""
    row = connection.execute(_STATE).fetchone()
    assert row is not None
    standby, read_only, encoding, role = row
    if standby:
        return "the database is a standby: it takes no writes"
    if read_only:
        return (
            "the server is read-only (default_transaction_read_only is on for all of it): it may "
            "be short of room, or under maintenance"
        )
    if encoding != "UTF8":
        return f"the database's encoding is {encoding}: make one with UTF8, and move the data there"
    if role < revision:
        return f"the database is at revision {role}, this service needs {revision}"
    return None


# A default of the database or of the role is overridden; that of the whole server says what state
# it is in.
_STATE = """
SELECT pg_is_in_recovery(),
    EXISTS (SELECT FROM pg_settings WHERE name = 'default_transaction_read_only'
        AND reset_val = 'on')
    AND NOT EXISTS (
        SELECT FROM pg_db_role_setting
        WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
        AND setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user))
        AND EXISTS (
            SELECT FROM unnest(setconfig) AS each
            WHERE each LIKE 'default_transaction_read_only=%'
        )
    ),
    current_setting('server_encoding'),
    (SELECT version_num FROM public.alembic_version)
"""


def _session_problem(connection: BoundedConnection, limits: Collection[str]) -> str | None:
    """Return which setting of sessions is not what the code relies on, or None."""
    # no trigger guards the ledger in others
    relied_on = {**RELIED_ON, "session_replication_role": "origin"}
    names = [*relied_on, *limits]
    row = connection.execute(
        "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)
    ).fetchone()
    settings = dict(zip(names, row or (), strict=True))
    if any(settings[name] == "0" for name in limits):
        return (
            "sessions have no time limits: the pooler's connect_query must set them "
            "(docs/operations.md)"
        )
    wrong = [
        name for name, value in relied_on.items() if not _is_set_to(settings[name], name, value)
    ]
    if not wrong:
        return None
    differences = ", ".join(
        f"{name} is {settings[name]!r}, not {relied_on[name]!r}" for name in wrong
    )
    return (
        f"sessions are not what the service relies on: {differences} "
        "(docs/operations.md, PgBouncer)"
    )


def _is_set_to(value: str, name: str, wanted: str) -> bool:
    """Return whether a setting has a value that serves as the wanted one does."""
    if name == "DateStyle":  # in which order a date is read plays no part: the code writes ISO
        return value.startswith("ISO")
    if name == "extra_float_digits":  # any positive number writes every digit
        return int(value) >= int(wanted)
    if name == "synchronous_commit":
        return value in (wanted, "remote_apply")
    return value == wanted


def _write_problem(connection: BoundedConnection) -> str | None:
    """Return why the server can't write, or None: a sort that spills to its disk is tried.

    It leaves nothing behind. The files lie where the database does, unless temp_tablespaces says
    otherwise.
    """
    try:
        with connection.transaction():
            connection.execute("SET LOCAL work_mem = '64kB'; SET LOCAL temp_tablespaces = ''")
            connection.execute(_SPILL)
    except (psycopg.errors.DiskFull, psycopg.errors.IoError) as error:
        return f"the database can't write to its disk: {error.diag.message_primary}"
    return None


#: Some 700 kB, in some 10 ms.
_SPILL = (
    "SELECT count(*) FROM (SELECT n FROM generate_series(1, 20000) AS n ORDER BY n DESC "
    "OFFSET 1) AS spilt"
)
