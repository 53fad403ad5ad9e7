"""How long sessions and the two logs of people are kept. Ledgers are kept for ever."""

from datetime import timedelta

from sqlalchemy import ColumnElement, Engine, Table, delete, func, select

from accountant.settings import Settings
from accountant.tables import activity, sessions, sign_ins

#: Rows that one look takes away from a table: whoever is at work there waits for few.
AT_ONCE = 5_000
#: A trigger keeps rows of the logs for so long, whatever a setting says.
LEAST_DAYS = 90.0


def prune(engine: Engine, settings: Settings) -> dict[str, int]:
    """Take away what is older than the settings say; returns the number of rows by table."""
    ended = func.coalesce(
        sessions.c.ended_at, sessions.c.created_at + timedelta(hours=settings.session_hours)
    )
    kept = (
        (sessions, ended, settings.session_log_days),
        (sign_ins, sign_ins.c.at, _least(settings.sign_in_log_days)),
        (activity, activity.c.at, _least(settings.activity_log_days)),
    )
    return {table.name: _older(engine, table, at, days) for table, at, days in kept if days}


def _least(days: float) -> float:
    return max(days, LEAST_DAYS) if days else 0.0


def _older(engine: Engine, table: Table, at: ColumnElement[object], days: float) -> int:
    old = (
        select(table.c.id).where(at < func.clock_timestamp() - timedelta(days=days)).limit(AT_ONCE)
    )
    with engine.begin() as connection:
        return connection.execute(delete(table).where(table.c.id.in_(old))).rowcount
