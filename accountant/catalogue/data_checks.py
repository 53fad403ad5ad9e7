"""Checks of data answer questions about it: whether a text is a record, or a person is in a
dataset.

Whoever registers a corpus or data asks one such question, however many texts it holds. So each
person has so many a day; the activity log lists who asked, and whose data was met
(transactions.unit_fingerprints).
"""

from datetime import timedelta

from sqlalchemy import Engine, func, select

from accountant import settings, tables
from accountant.core.errors import invalid
from accountant.identities.actor import Actor

#: What the log calls the acts after which a worker compares data with all that there is.
ASKING = ("dataset registered", "data corrected", "data added", "corpus registered")
PERIOD = timedelta(days=1)


def require_room(engine: Engine, actor: Actor) -> None:
    """Raise InvalidRequest where this person has had all the checks of a day."""
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
