"""Workers that take no jobs, as each says of itself while it lasts."""

from datetime import timedelta

from sqlalchemy import Engine, delete, func
from sqlalchemy.dialects.postgresql import insert

from accountant import tables

stopped = tables.stopped_workers

#: A worker that says nothing for so long has ended.
SECONDS = 60


def say(engine: Engine, worker: str, why: str) -> None:
    """State that a worker takes no jobs, and why, until it ends. Forgets workers that ended."""
    now = func.clock_timestamp()
    row = insert(stopped).values(worker=worker, why=why, at=now)
    with engine.begin() as connection:
        connection.execute(delete(stopped).where(stopped.c.at < now - timedelta(days=1)))
        connection.execute(
            row.on_conflict_do_update(index_elements=["worker"], set_={"why": why, "at": now})
        )


def forget(engine: Engine, worker: str) -> None:
    """State that a worker takes jobs again."""
    with engine.begin() as connection:
        connection.execute(delete(stopped).where(stopped.c.worker == worker))
