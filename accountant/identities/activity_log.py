"""The activity log: actions on people, tokens, datasets and policies, which ledger and jobs do not
record.

Append-only. An action is logged in the transaction that performs it; `detail` holds public facts
only.
"""

from typing import Any

from sqlalchemy import Connection, Engine, insert, select

from accountant.identities.actor import Actor
from accountant.tables import activity, paging

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
    """As `record`, in a transaction of its own: for actions that change no row, as a file
    download.
    """
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
    """Return the recorded actions, newest first, for auditors and administrators; `after` is
    (id,).
    """
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
