"""What workers say of themselves."""

from datetime import timedelta

from sqlalchemy import Engine, func, select

from accountant import tables
from accountant.database import reading
from accountant.transactions.stopped_workers import SECONDS


def problem(engine: Engine, *, in_their_words: bool) -> str | None:
    """Return in a sentence that workers take no jobs now. None: every worker takes jobs.

    `in_their_words`: with which they are, and why. That is text that a worker wrote, which has read
    private data: it is for operators, never for a page.
    """
    stopped = tables.stopped_workers
    query = select(stopped).where(
        stopped.c.at > func.clock_timestamp() - timedelta(seconds=SECONDS)
    )
    with reading(engine) as connection:
        rows = connection.execute(query.order_by(stopped.c.worker)).all()
    if not rows:
        return None
    if not in_their_words:
        few = "a worker takes" if len(rows) == 1 else f"{len(rows)} workers take"
        return f"jobs wait: {few} none; `exchequer status` says why"
    return "jobs wait: " + "; ".join(f"worker {row.worker} takes none, {row.why}" for row in rows)
