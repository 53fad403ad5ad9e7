"""Who runs what: claims with fencing tokens, heartbeats, public progress, the reaper and the outbox.

A message is only a hint; the row in `jobs` is the queue. Every time here is the database's clock, so a
machine whose own clock is off can neither steal a lease nor keep one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Engine, Row, Select, func, insert, literal, select, update

from accountant import tables
from accountant.core.errors import LeaseLost
from accountant.ledger import Claim, give_up
from accountant.posting import LockedAccount

jobs = tables.jobs


def claim(engine: Engine, job_id: UUID, attempt: int, worker: str, lease_seconds: float) -> Claim | None:
    """Take a queued attempt, or None where it is not there to be taken: a silent no-op."""
    token = uuid4()
    with engine.begin() as connection:
        taken = connection.execute(
            update(jobs)
            .where(jobs.c.id == job_id, jobs.c.state == "queued", jobs.c.attempt == attempt)
            .values(
                state="running",
                lease_token=token,
                lease_expires=func.clock_timestamp() + timedelta(seconds=lease_seconds),
                worker=worker,
                started_at=func.clock_timestamp(),
                progress_done=0,
            )
        )
        return Claim(job_id, attempt, token) if taken.rowcount else None


def renew(engine: Engine, claim: Claim, lease_seconds: float, done: int, total: int) -> bool:
    """Extend a lease that has not expired and report public progress; returns the cancel flag.

    Raises LeaseLost where the token is no longer the job's or the lease has run out.
    """
    with engine.begin() as connection:
        row = connection.execute(
            update(jobs)
            .where(*_held(claim))
            .values(
                lease_expires=func.clock_timestamp() + timedelta(seconds=lease_seconds),
                progress_done=done,
                progress_total=total,
            )
            .returning(jobs.c.cancel_requested)
        ).one_or_none()
    if row is None:
        raise LeaseLost("the lease has ended")
    return bool(row.cancel_requested)


def begin_reading(engine: Engine, claim: Claim) -> None:
    """Commit "reading begins" before data is opened: from here on the job is charged, whatever happens."""
    with engine.begin() as connection:
        # A later attempt keeps the first time: something private was read under this reservation.
        moment = func.coalesce(jobs.c.reading_began_at, func.clock_timestamp())
        changed = connection.execute(update(jobs).where(*_held(claim)).values(reading_began_at=moment))
        if not changed.rowcount:
            raise LeaseLost("the lease has ended")


def _held(claim: Claim) -> tuple[Any, ...]:
    return (
        jobs.c.id == claim.job_id,
        jobs.c.lease_token == claim.token,
        jobs.c.lease_expires > func.clock_timestamp(),
    )


@dataclass(frozen=True)
class Work:
    """All that a worker needs to run a claimed job."""

    job: Row[Any]
    dataset: Row[Any]
    version: Row[Any]
    model: Row[Any] | None  # None: the mechanism uses none


def work(engine: Engine, job_id: UUID) -> Work:
    """The rows behind a job."""
    with engine.connect() as connection:
        job = connection.execute(select(jobs).where(jobs.c.id == job_id)).one()
        datasets, versions, models = tables.datasets, tables.dataset_versions, tables.models
        return Work(
            job,
            connection.execute(select(datasets).where(datasets.c.id == job.dataset_id)).one(),
            connection.execute(select(versions).where(versions.c.id == job.version_id)).one(),
            connection.execute(select(models).where(models.c.id == job.model_id)).one_or_none(),
        )


# --- reaper -------------------------------------------------------------------------------------


def expire(engine: Engine, max_attempts: int) -> list[tuple[UUID, UUID]]:
    """End leases that ran out: queue another attempt, or give up. Returns (job, token) of each.

    An expired lease never refunds by itself: the reservation goes on under the next attempt.
    """
    ended = []
    overdue = (jobs.c.state.in_(("running", "settling")), jobs.c.lease_expires < func.clock_timestamp())
    with engine.connect() as connection:
        found = connection.execute(select(jobs.c.id, jobs.c.dataset_id).where(*overdue)).all()
    for row in found:
        with engine.begin() as connection:
            locked = LockedAccount(connection, row.dataset_id)
            job = connection.execute(
                select(jobs).where(jobs.c.id == row.id, *overdue).with_for_update()
            ).one_or_none()
            if job is None:
                continue  # renewed, published or ended meanwhile
            ended.append((job.id, job.lease_token))
            if job.attempt >= max_attempts:
                give_up(locked, job, f"lost {max_attempts} times to its machines")
                continue
            connection.execute(
                update(jobs)
                .where(jobs.c.id == job.id)
                .values(state="queued", attempt=job.attempt + 1, lease_token=None, lease_expires=None)
            )
            connection.execute(
                insert(tables.outbox).values(task="generate", subject=job.id, attempt=job.attempt + 1)
            )
    return ended


def resend(engine: Engine, older_than_seconds: float) -> int:
    """Queue messages again whose subject still waits although the message was sent long ago."""
    outbox = tables.outbox
    last = (
        select(outbox.c.task, outbox.c.subject, outbox.c.attempt, func.max(outbox.c.created_at).label("at"))
        .group_by(outbox.c.task, outbox.c.subject, outbox.c.attempt)
        .subquery()
    )
    waiting: list[tuple[str, Select[Any]]] = [
        ("generate", select(jobs.c.id, jobs.c.attempt).where(jobs.c.state == "queued")),
        ("probe", select(jobs.c.id, jobs.c.attempt).where(jobs.c.state == "submitted")),
        (
            "check_dataset",
            select(tables.dataset_versions.c.id, literal(0)).where(
                tables.dataset_versions.c.state == "checking"
            ),
        ),
        ("check_model", select(tables.models.c.id, literal(0)).where(tables.models.c.state == "checking")),
        ("check_corpus", select(tables.corpora.c.id, literal(0)).where(tables.corpora.c.state == "checking")),
    ]
    count = 0
    limit = func.clock_timestamp() - timedelta(seconds=older_than_seconds)
    with engine.begin() as connection:
        for task, query in waiting:
            for subject, attempt in connection.execute(query).all():
                sent = connection.execute(
                    select(last.c.at).where(
                        last.c.task == task,
                        last.c.subject == subject,
                        last.c.attempt == attempt,
                        last.c.at > limit,
                    )
                ).first()
                if sent is None:
                    connection.execute(insert(outbox).values(task=task, subject=subject, attempt=attempt))
                    count += 1
    return count


def deliver(engine: Engine, send: Callable[[str, UUID, int], None], limit: int = 100) -> int:
    """Send unsent messages; two relays at once share the work. Returns how many were sent.

    A message is marked after it was sent, so it may be sent twice and never not at all.
    """
    outbox = tables.outbox
    with engine.begin() as connection:
        rows = connection.execute(
            select(outbox)
            .where(outbox.c.sent_at.is_(None))
            .order_by(outbox.c.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        ).all()
        for row in rows:
            send(row.task, row.subject, row.attempt)
        if rows:
            connection.execute(
                update(outbox)
                .where(outbox.c.id.in_([row.id for row in rows]))
                .values(sent_at=func.clock_timestamp())
            )
        return len(rows)
