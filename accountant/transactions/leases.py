"""Leases on jobs: claims with fencing tokens, heartbeats, public progress and the reaper.

A message is only a hint; the rows in `parts` are the queue. Every time here is the database's
clock, so a machine whose own clock is off can neither steal a lease nor keep one. Rows are locked
in one order: the account's, the job's, the part's.
"""

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    Connection,
    Engine,
    Row,
    Select,
    and_,
    func,
    insert,
    or_,
    select,
    union_all,
    update,
)

from accountant import tables
from accountant.core.errors import Cancelled, LeaseLost, VerificationFailed
from accountant.core.ledger.entry_bodies import published_by
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms import charge
from accountant.core.privacy.events import Event, to_json
from accountant.core.privacy.ex_post_curves import CostCurve
from accountant.faults import reached
from accountant.transactions import job_keys, ledger_log, maintenance, orders, set_aside
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import Claim, fenced, held, part_of, show, task_of
from accountant.transactions.settlement import Output, give_up, unsaid

jobs, parts, outbox = tables.jobs, tables.parts, tables.outbox

#: Bytes of a lease's secret.
SECRET_BYTES = 32

#: A charge that nobody begins for so long is void: also in the owner's guards (is_left).
LEFT = timedelta(days=1)

#: Live states of a job: its reservation is neither settled nor void.
LIVE = ("queued", "running", "settling")

# --- an attempt ---------------------------------------------------------------------------------


def claim(
    engine: Engine,
    job_id: UUID,
    attempt: int,
    worker: str,
    lease_seconds: float,
    part: int = 0,
    units: bytes | None = None,
    secret: bytes | None = None,
    charges: bool = False,
) -> Claim | None:
    """Take a queued attempt at a part, or None where it is not there to be taken: a silent no-op.

    `units` is the worker's key of that name, by which it gets the job's own; without it the claim
    can open no data. `secret`: 32 bytes that whoever acts under the lease has to show; None: they
    are drawn here. `charges`: another program takes its own charge, which no worker may. Raises
    KeyMismatch, and takes nothing, where `units` is not what the job began with; LedgerBehind or
    LogUnusable where the entries are not those of the log outside the database; VerificationFailed
    where they make no order for this part (core.ledger.orders).
    """
    ledger_log.ensure_job(engine, job_id)
    with engine.begin() as connection:
        if charges:
            maintenance.require_open(connection)
        elif maintenance.reason(connection) is not None:
            return None  # it stays queued, and is sent again
        job = connection.execute(_live_job(job_id)).one_or_none()
        if job is None:
            return None
        order = orders.read(connection, job_id)
        if (order.mechanism == charge.ID) is not charges:
            return None  # a message to a worker about another program's charge
        if not 0 <= part < order.parts:
            raise VerificationFailed(
                f"its RESERVE has {order.parts} parts, and part {part} is none of them"
            )
        drawn = secret or secrets.token_bytes(SECRET_BYTES)
        taking = Claim(job_id, attempt, uuid4(), part, order=order, secret=drawn)
        show(connection, taking)
        taken = connection.execute(
            update(parts)
            .where(*part_of(job_id, part), parts.c.state == "queued", parts.c.attempt == attempt)
            .values(
                state="running",
                lease_token=taking.token,
                lease_secret_sha256=taking.secret_sha256,
                lease_expires=func.clock_timestamp() + timedelta(seconds=lease_seconds),
                worker=worker,
                progress_done=0,
            )
        )
        if not taken.rowcount:
            return None
        started = func.coalesce(jobs.c.started_at, func.clock_timestamp())
        connection.execute(
            update(jobs).where(jobs.c.id == job_id).values(state="running", started_at=started)
        )
        key = (
            job_keys.hold(connection, job, units)
            if units is not None and order.reads_records
            else None
        )
        return replace(taking, key=key)


def renew(engine: Engine, claim: Claim, lease_seconds: float, done: int, total: int) -> bool:
    """Extend a lease that has not expired and report public progress; returns the cancel flag.

    Raises LeaseLost where the token is no longer the part's or the lease has run out.
    """
    with engine.begin() as connection:
        show(connection, claim)
        row = connection.execute(
            update(parts)
            .where(*held(claim), jobs.c.id == parts.c.job_id)
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
    """Commit "reading begins" before data is opened: from now on the job is charged."""
    ledger_log.ensure_job(engine, claim.job_id)
    assert claim.order is not None  # whoever claims a job has read its entries
    with engine.begin() as connection:
        job = _hold(connection, claim)
        orders.require_live(connection, job.dataset_id, claim.order)
        # A later attempt keeps the first time: something private was read under this reservation.
        moment = func.coalesce(jobs.c.reading_began_at, func.clock_timestamp())
        connection.execute(
            update(jobs).where(jobs.c.id == claim.job_id).values(reading_began_at=moment)
        )
        reached("worker.reading begins")


def finish(
    engine: Engine,
    claim: Claim,
    realized: Event,
    output: Output,
    ex_post: int | None,
    curve: CostCurve | None = None,
) -> list[Output] | None:
    """Note that a part has written its share of the output. The last one to do so goes on to settle
    the job.

    Returns None where other parts still run: this one is done then and its lease over. Else the job
    is settling, the claim is kept, and the staged outputs of all parts are returned in order; if it
    is lost now, this part runs again and settles. Raises LeaseLost, and Cancelled where that was
    asked for.
    """
    with engine.begin() as connection:
        job = _hold(connection, claim)
        if job.cancel_requested:
            raise Cancelled("cancelled")
        reached("worker.finishes")
        others = connection.execute(
            select(parts).where(parts.c.job_id == claim.job_id, parts.c.number != claim.part)
        ).all()
        if claim.order is None or len(others) + 1 != claim.order.parts:
            raise VerificationFailed("its parts are not those that its RESERVE states")
        if any(each.draft and not each.draft.startswith(f"{claim.job_id}.") for each in others):
            raise VerificationFailed("a part of it names the draft of another job")
        if all(each.state == "done" for each in others):
            connection.execute(
                update(jobs).where(jobs.c.id == claim.job_id).values(state="settling")
            )
            staged = {each.number: Output(each.draft, each.staged_sha256) for each in others}
            return [output for _, output in sorted({**staged, claim.part: output}.items())]
        connection.execute(
            update(parts)
            .where(*part_of(claim.job_id, claim.part))
            .values(
                state="done",
                lease_token=None,
                lease_expires=None,
                draft=output.draft,
                staged_sha256=output.sha256,
                realized=to_json(realized),
                realized_ex_post=ex_post,
                ex_post_curve=None if curve is None else curve.to_json(),
            )
        )
        return None


def seconds_to_slot(engine: Engine, job_id: UUID, every: int) -> float:
    """Return seconds until the next whole multiple of `every` seconds since the job was first taken
    by a worker.

    Both times are of the database's clock, as all that people see of the job.
    """
    taken = func.extract("epoch", func.clock_timestamp() - jobs.c.started_at)
    with engine.connect() as connection:
        since = float(connection.execute(select(taken).where(jobs.c.id == job_id)).scalar_one())
    return every - since % every


def _live_job(job_id: UUID) -> Select[Any]:
    return select(jobs).where(jobs.c.id == job_id, jobs.c.state.in_(LIVE)).with_for_update()


def _hold(connection: Connection, claim: Claim) -> Row[Any]:
    """Return the job's row, locked, then the part's. Raises LeaseLost if the claim has ended."""
    show(connection, claim)
    job = connection.execute(_live_job(claim.job_id)).one_or_none()
    part = connection.execute(
        select(parts.c.number).where(*held(claim)).with_for_update()
    ).one_or_none()
    if job is None or part is None:
        raise LeaseLost("the lease has ended")
    return job


# --- reaper -------------------------------------------------------------------------------------


def expire(engine: Engine, max_attempts: int) -> list[tuple[UUID, UUID]]:
    """End leases that ran out: queue another attempt, or give up. Returns (job, token) of each.

    An expired lease never refunds by itself: the reservation goes on under the next attempt.
    """
    now = func.clock_timestamp()
    # Nobody began it, so nothing is known of it.
    left = and_(
        parts.c.state == "queued", jobs.c.mechanism == charge.ID, jobs.c.queued_at < now - LEFT
    )
    ran_out = and_(parts.c.state == "running", parts.c.lease_expires < now)
    overdue = (or_(ran_out, left),)
    query = select(parts.c.job_id, parts.c.number, jobs.c.dataset_id).join(
        jobs, jobs.c.id == parts.c.job_id
    )
    # Two questions: with an OR, every part that waits would be looked at.
    either = union_all(query.where(ran_out), query.where(left, jobs.c.state == "queued"))
    with engine.connect() as connection:
        found = connection.execute(either).all()
    ended = []
    for row in found:
        if set_aside.waits("lease of job", row.job_id):
            continue
        reached("reaper.found")
        with set_aside.apart("lease of job", row.job_id):
            token = _expire_one(engine, row, overdue, max_attempts)
            if token is not None:
                ended.append((row.job_id, token))
    return ended


def _expire_one(
    engine: Engine, row: Any, overdue: tuple[Any, ...], max_attempts: int
) -> UUID | None:
    """End a lease that ran out. Returns its token, or None if it was renewed or ended."""
    with writing(engine) as connection:
        locked = LockedAccount(connection, row.dataset_id)
        job = connection.execute(_live_job(row.job_id)).one_or_none()
        part = connection.execute(
            select(parts)
            .join(jobs, jobs.c.id == parts.c.job_id)
            .where(*part_of(row.job_id, row.number), *overdue)
            .with_for_update(of=parts)
        ).one_or_none()
        if job is None or part is None:
            return None
        _end_lost(locked, job, part, max_attempts)
        token: UUID | None = part.lease_token
    return token


def _end_lost(locked: LockedAccount, job: Row[Any], part: Row[Any], max_attempts: int) -> None:
    """Run a lost part again, unless nobody wants it or its attempts are used up."""
    connection = locked.connection
    policy = Policy.model_validate(
        connection.execute(
            select(tables.datasets.c.policy).where(tables.datasets.c.id == job.dataset_id)
        ).scalar_one()
    )
    if job.mechanism == charge.ID:  # nobody knows what its program did, and nobody runs it again
        what = "no word came from it before its lease ended"
        give_up(locked, job, "failed", what if part.lease_token else "nobody began it in time")
    elif job.cancel_requested:
        give_up(locked, job, "cancelled", "cancelled while it ran")
    elif policy.charge_each_attempt and job.reading_began_at is not None:
        give_up(locked, job, "failed", "its machine was lost, and the dataset charges each attempt")
    elif part.attempt - part.handed_back >= max_attempts:
        give_up(locked, job, "failed", f"lost {max_attempts} times to its machines")
    else:
        _requeue(connection, job, part)


def hand_back(engine: Engine, claim: Claim, max_attempts: int, planned: bool) -> None:
    """End an attempt whose worker stops by itself: the part goes on in the next one.

    A `planned` end costs none of the part's attempts; else the job ends, charged, where it was the
    last. Raises LeaseLost where the lease has ended: the reaper has taken the part back then.
    """
    with writing(engine) as connection:
        locked, job = fenced(connection, claim)
        part = connection.execute(select(parts).where(*part_of(claim.job_id, claim.part))).one()
        if job.cancel_requested:
            give_up(locked, job, "cancelled", "cancelled while it ran")
        elif planned:
            _requeue(connection, job, part, planned=True)
        elif part.attempt - part.handed_back >= max_attempts:
            give_up(locked, job, "failed", unsaid(locked, job))
        else:
            _requeue(connection, job, part)


def _requeue(connection: Connection, job: Row[Any], part: Row[Any], planned: bool = False) -> None:
    attempt = part.attempt + 1
    ended = {"state": "queued", "lease_token": None, "lease_expires": None, "progress_done": 0}
    connection.execute(
        update(parts)
        .where(*part_of(job.id, part.number))
        .values(attempt=attempt, handed_back=part.handed_back + planned, **ended)
    )
    begun = select(parts.c.number).where(
        parts.c.job_id == job.id, parts.c.state.in_(("running", "done"))
    )
    state = "queued" if connection.execute(begun).first() is None else "running"
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job.id)
        .values(state=state, attempt=func.greatest(jobs.c.attempt, attempt))
    )
    task = task_of(job.reads_records)
    message = {"task": task, "subject": job.id, "attempt": attempt, "part": part.number}
    connection.execute(insert(outbox).values(message | {"analyst_id": job.analyst_id}))
    reached("reaper.requeued")


def died(
    engine: Engine, job_id: UUID, attempt: int, part: int, worker: str, secret: bytes
) -> Claim | None:
    """Return the claim of an attempt whose process was seen to die; None: it holds none.

    `worker` names machine and process, so that nobody ends an attempt that runs elsewhere; `secret`
    is that of the attempt's lease.
    """
    query = select(parts.c.lease_token).where(
        *part_of(job_id, part),
        parts.c.state == "running",
        parts.c.attempt == attempt,
        parts.c.worker == worker,
    )
    with engine.connect() as connection:
        token = connection.execute(query).scalar_one_or_none()
    return None if token is None else Claim(job_id, attempt, token, part, secret=secret)


@dataclass(frozen=True)
class Kept:
    """What must not be destroyed of the drafts of some jobs."""

    #: The jobs that exist here. One whose ledger is behind its log is unknown: it may have
    #: published more.
    known: frozenset[UUID]
    #: Tokens of leases that are held.
    tokens: frozenset[UUID]
    #: Drafts that wait for a settlement.
    drafts: frozenset[str]
    #: The SHA-256 of what each job published, as its COMMIT names them.
    committed: Mapping[UUID, Collection[str]]


def kept(engine: Engine, job_ids: set[UUID]) -> Kept:
    """Return what must not be destroyed of the drafts of these jobs."""
    entries = tables.entries
    commits = select(entries.c.job_id, entries.c.document).where(
        entries.c.kind == str(EntryKind.COMMIT)
    )
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        mine = connection.execute(
            select(jobs.c.id, jobs.c.dataset_id).where(jobs.c.id.in_(job_ids))
        ).all()
        rows = connection.execute(select(parts).where(parts.c.job_id.in_(job_ids))).all()
        ended = connection.execute(commits.where(entries.c.job_id.in_(job_ids))).all()
    whole = {
        dataset_id
        for dataset_id in {row.dataset_id for row in mine}
        if ledger_log.holds(engine, dataset_id)
    }
    return Kept(
        frozenset(row.id for row in mine if row.dataset_id in whole),
        frozenset(row.lease_token for row in rows if row.lease_token is not None),
        frozenset(row.draft for row in rows if row.draft is not None),
        {row.job_id: published_by(read_document(row.document)["body"]) for row in ended},
    )
