"""What workers say of themselves."""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Engine, func, select

from accountant import tables
from accountant.core.mechanisms import charge
from accountant.database import reading
from accountant.transactions import hardware, messages
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
        minute_ago = func.clock_timestamp() - timedelta(seconds=hardware.SECONDS)
        unserved = _unserved(connection, tables.jobs.c.queued_at < minute_ago)
    sentences = [f"worker {row.worker} takes none, {row.why}" for row in rows]
    if rows and not in_their_words:
        few = "a worker takes" if len(rows) == 1 else f"{len(rows)} workers take"
        sentences = [f"{few} none; `exchequer stack status` says why"]
    if jobs:
        many = "1 job" if jobs == 1 else f"{jobs:,} jobs"
        sentences.append(
            f"{many} can't be taken, as entries and rows disagree: see `ledger check --all`"
        )
    sentences += [f"no worker {of_class(name)} runs" for name in unserved]
    return f"jobs wait: {'; '.join(sentences)}" if sentences else None


def missing(engine: Engine, job_id: UUID) -> str | None:
    """Return which workers a waiting job lacks, such as "of the class gpu80", or None."""
    with reading(engine) as connection:
        names = _unserved(connection, tables.jobs.c.id == job_id)
    return of_class(names[0]) if names else None


def of_class(name: str) -> str:
    """Return in words which workers take jobs of a class."""
    return f"of the class {name}" if name else "that takes jobs"


def _unserved(connection: Connection, condition: ColumnElement[bool]) -> list[str]:
    """Return the classes for which parts of such jobs wait, and no live worker serves them."""
    jobs, parts = tables.jobs, tables.parts
    served = select(tables.live_workers.c.worker).where(hardware.serves(parts.c.hardware))
    query = select(parts.c.hardware).distinct().join(jobs, jobs.c.id == parts.c.job_id)
    query = query.where(parts.c.state == "queued", jobs.c.mechanism != charge.ID, condition)
    return sorted(connection.execute(query.where(~served.exists())).scalars())
