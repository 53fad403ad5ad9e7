"""What workers say of themselves."""

from datetime import timedelta

from sqlalchemy import Engine, func, select

from accountant import tables
from accountant.database import reading
from accountant.transactions import messages
from accountant.transactions.stopped_workers import SECONDS


def problem(engine: Engine, *, in_their_words: bool) -> str | None:
    """Return in a sentence why jobs wait that workers could take, or None if none does.

    `in_their_words`: with which workers take none, and why. That is text that a worker wrote, which
    has read private data: it is for operators, never for a page.
    """
    stopped, parts = tables.stopped_workers, tables.parts
    query = select(stopped).where(
        stopped.c.at > func.clock_timestamp() - timedelta(seconds=SECONDS)
    )
    refused = select(func.count(parts.c.job_id.distinct())).where(
        parts.c.state == "queued", messages.is_refused(parts.c.job_id, parts.c.number)
    )
    with reading(engine) as connection:
        rows = connection.execute(query.order_by(stopped.c.worker)).all()
        jobs = connection.execute(refused).scalar_one()
    sentences = [f"worker {row.worker} takes none, {row.why}" for row in rows]
    if rows and not in_their_words:
        few = "a worker takes" if len(rows) == 1 else f"{len(rows)} workers take"
        sentences = [f"{few} none; `exchequer status` says why"]
    if jobs:
        many = "1 job" if jobs == 1 else f"{jobs:,} jobs"
        sentences.append(
            f"{many} can't be taken, as entries and rows disagree: see `ledger check --all`"
        )
    return f"jobs wait: {'; '.join(sentences)}" if sentences else None
