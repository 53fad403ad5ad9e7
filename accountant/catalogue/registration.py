"""Models and corpora alike: a steward registers one, and a worker looks at it before any job may
use it.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID, uuid4

from sqlalchemy import Engine, Row, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from accountant import settings, tables
from accountant.core.errors import Conflict, invalid
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.transactions import idempotency
from accountant.transactions.idempotency import Once

Kind = Literal["model", "corpus"]
_TABLES = {"model": tables.models, "corpus": tables.corpora}


def register(
    engine: Engine,
    kind: Kind,
    values: Mapping[str, Any],
    actor: Actor,
    once: Once | None,
    **detail: Any,
) -> UUID:
    """Return a new row, which a worker is told to check; returns its id. `detail`: for the activity
    log.

    Raises Conflict where the name is taken.
    """
    resource_id = uuid4()
    try:
        with engine.begin() as connection:
            earlier = idempotency.claim(connection, once, resource_id)
            if earlier != resource_id:
                return earlier
            row = {**values, "id": resource_id, "state": "checking", "created_by": actor.id}
            connection.execute(insert(_TABLES[kind]).values(row))
            connection.execute(
                insert(tables.outbox).values(task=f"check_{kind}", subject=resource_id)
            )
            activity_log.record(
                connection, actor, f"{kind} registered", kind, values["name"], **detail
            )
    except IntegrityError:
        raise Conflict(f"there is a {kind} {values['name']!r} already") from None
    return resource_id


def find(engine: Engine, kind: Kind, row_id: UUID) -> Row[Any] | None:
    """Return a model or corpus by its id, in any state."""
    table = _TABLES[kind]
    with engine.connect() as connection:
        return connection.execute(select(table).where(table.c.id == row_id)).one_or_none()


def checked(
    engine: Engine,
    kind: Kind,
    row_id: UUID,
    facts: Mapping[str, Any] | None,
    error: str | None,
    shared_with: Mapping[str, float] | None = None,
) -> None:
    """Record what a worker found: ready with public facts, or an error for its stewards alone."""
    table = _TABLES[kind]
    state = "ready" if error is None else "invalid"
    values = {"state": state, "facts": None if facts is None else dict(facts), "error": error}
    if shared_with:
        values["shared_with"] = dict(shared_with)
    with engine.begin() as connection:
        waiting = update(table).where(table.c.id == row_id, table.c.state == "checking")
        connection.execute(waiting.values(values))


#: What the log calls the acts after which a worker compares data with all that there is.
ASKING = ("dataset registered", "data corrected", "data added", "corpus registered")
PERIOD = timedelta(days=1)


def require_room(engine: Engine, actor: Actor) -> None:
    """Raise InvalidRequest where this person has had all the checks of a day.

    A check of data answers a question about it: whether a text is a record, or a person is in a
    dataset. Whoever registers a corpus or data asks one such question, however many texts it holds.
    The activity log lists who asked, and whose data was met (transactions.unit_fingerprints).
    """
    most, table = settings.load().data_checks_per_day, tables.activity
    query = select(func.count()).where(
        table.c.actor_name == actor.name,
        table.c.action.in_(ASKING),
        table.c.at > func.clock_timestamp() - PERIOD,
    )
    with engine.connect() as connection:
        count = connection.execute(query).scalar_one()
    if count >= most:
        limit_text = (
            f"{count} registrations of yours were compared with all data in the last 24 hours"
        )
        raise invalid(
            "uri", limit_text, f"at most {most} (EXCHEQUER_DATA_CHECKS_PER_DAY): try again tomorrow"
        )
