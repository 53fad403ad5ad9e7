"""Maintenance: nothing is admitted and no job begins until an administrator ends it.

on ──▶ admissions: UnderMaintenance    claims: none    the relay: sends nothing
       what runs goes on to its end; leases, settlements and all reads go on as ever
"""

from typing import Any

from sqlalchemy import Connection, Engine, delete, select
from sqlalchemy.dialects.postgresql import insert

from accountant import tables
from accountant.core.errors import UnderMaintenance, invalid
from accountant.identities import activity_log
from accountant.identities.actor import Actor

_row = tables.maintenance
MOST_CHARACTERS = 300


def standing(engine: Engine) -> dict[str, Any]:
    """Return whether maintenance is on, with its reason, by whom and since when."""
    with engine.connect() as connection:
        row = connection.execute(select(_row)).one_or_none()
        running = connection.execute(
            select(tables.parts.c.job_id).where(tables.parts.c.state == "running").distinct()
        ).all()
    facts = {"on": row is not None, "running_jobs": len(running)}
    if row is None:
        return facts
    return {**facts, "reason": row.reason, "by": row.by, "since": row.since.isoformat()}


def reason(connection: Connection) -> str | None:
    """Return why nothing is admitted now, or None while the service is open."""
    found: str | None = connection.execute(select(_row.c.reason)).scalar_one_or_none()
    return found


def require_open(connection: Connection) -> None:
    """Raise UnderMaintenance while it is on."""
    why = reason(connection)
    if why is not None:
        raise UnderMaintenance(why)


def switch(engine: Engine, actor: Actor, on: bool, why: str) -> None:
    """Begin maintenance, or end it (administrators). Twice is as once, with the last reason."""
    actor.require("administrator")
    why = " ".join(why.split())
    if not 0 < len(why) <= MOST_CHARACTERS:
        raise invalid(
            "reason", f"{len(why)} characters", f"1 to {MOST_CHARACTERS}: everybody reads it"
        )
    with engine.begin() as connection:
        connection.execute(delete(_row))
        if on:  # two who begin it at once: the first one's reason stands
            began = insert(_row).values(reason=why, by=actor.name)
            connection.execute(began.on_conflict_do_nothing())
        action = "maintenance began" if on else "maintenance ended"
        activity_log.record(connection, actor, action, "service", "maintenance", reason=why)
