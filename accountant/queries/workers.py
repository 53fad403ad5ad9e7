"""What workers say of themselves."""

from datetime import timedelta

from sqlalchemy import Engine, func, select

from accountant import tables
from accountant.database import reading
from accountant.transactions.stopped_workers import SECONDS


def problem(engine: Engine) -> str | None:
    """Return which workers take no jobs now, and why, in a sentence. None: every worker takes jobs."""
    stopped = tables.stopped_workers
    said = select(stopped).where(stopped.c.at > func.clock_timestamp() - timedelta(seconds=SECONDS))
    with reading(engine) as connection:
        rows = connection.execute(said.order_by(stopped.c.worker)).all()
    if not rows:
        return None
    return "jobs wait: " + "; ".join(f"worker {row.worker} takes none, {row.why}" for row in rows)
