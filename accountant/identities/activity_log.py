"""The activity log: actions on people, tokens, datasets and policies, which ledger and jobs do not
record.

Append-only. An action is logged in the transaction that performs it; `detail` holds public facts
only.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Table, delete, func, insert, select

from accountant.identities.actor import Actor
from accountant.settings import Settings
from accountant.tables import activity, paging, sessions, sign_ins

READERS = ("auditor", "administrator")
#: Who acts where nobody is signed in: the owner of the machine, at its command line.
OPERATOR = "operator"


def record(
    connection: Connection,
    actor: Actor | None,
    action: str,
    kind: str,
    object_id: str,
    **detail: Any,
) -> None:
    """Record that `actor` did `action` to the object that `kind` and `object_id` name.

    `action` is in the past tense, as "roles changed". `actor` is None for the operator at the
    command line.
    """
    connection.execute(
        insert(activity).values(
            actor_id=None if actor is None else actor.id,
            actor_name=OPERATOR if actor is None else actor.name,
            action=action,
            object_kind=kind,
            object_id=object_id,
            detail=detail,
        )
    )


def note(
    engine: Engine, actor: Actor, action: str, kind: str, object_id: str, **detail: Any
) -> None:
    """Like `record`, in a transaction of its own, for acts without a row, such as a download."""
    with engine.begin() as connection:
        record(connection, actor, action, kind, object_id, **detail)


def listing(
    engine: Engine,
    viewer: Actor,
    *,
    actor: str | None = None,
    action: str | None = None,
    kind: str | None = None,
    object_id: str | None = None,
    after: paging.After = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Return recorded actions, newest first (auditors, administrators); `after` is (id,)."""
    viewer.require(*READERS)
    query = paging.window(select(activity), [activity.c.id], limit, after)
    wanted = {"actor_name": actor, "action": action, "object_kind": kind, "object_id": object_id}
    for column, value in wanted.items():
        if value is not None:
            query = query.where(activity.c[column] == value)
    with engine.connect() as connection:
        rows = connection.execute(query).all()
    return [
        {
            "id": row.id,
            "at": row.at.isoformat(),
            "actor": row.actor_name,
            "action": row.action,
            "kind": row.object_kind,
            "object": row.object_id,
            "detail": row.detail,
        }
        for row in rows
    ]


# --- How long sessions and the two logs of people are kept. Ledgers are kept for ever

#: Rows that one look takes away from a table: whoever is at work there waits for few.
AT_ONCE = 5_000
#: A trigger keeps rows of the logs for so long, whatever a setting says.
LEAST_DAYS = 90.0


def prune(engine: Engine, settings: Settings) -> dict[str, int]:
    """Take away what is older than the settings say; returns the number of rows by table."""
    ended = func.coalesce(
        sessions.c.ended_at, sessions.c.created_at + timedelta(hours=settings.session_hours)
    )
    limits = (
        (sessions, ended, settings.session_log_days),
        (sign_ins, sign_ins.c.at, _least(settings.sign_in_log_days)),
        (activity, activity.c.at, _least(settings.activity_log_days)),
    )
    return {table.name: _older(engine, table, at, days) for table, at, days in limits if days}


def _least(days: float) -> float:
    return max(days, LEAST_DAYS) if days else 0.0


def _older(engine: Engine, table: Table, at: ColumnElement[object], days: float) -> int:
    old = (
        select(table.c.id).where(at < func.clock_timestamp() - timedelta(days=days)).limit(AT_ONCE)
    )
    with engine.begin() as connection:
        return connection.execute(delete(table).where(table.c.id.in_(old))).rowcount
