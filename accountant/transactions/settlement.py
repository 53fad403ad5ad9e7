"""The end of a job: it is cancelled, publishes its output, or fails, and its reservation is
settled.

Each function is one transaction. It locks the account's row first and the job's row second, always
in that order; calls the pure decision; appends the entry; moves balances and chain head on the
locked row; and changes the job and its outbox with it. So a job never runs uncharged and nothing is
overspent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, insert, select, update

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import (
    Conflict,
    NotFound,
)
from accountant.core.ledger import entry_bodies, realization, reservations
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.privacy.events import Event, from_json, from_releases, releases
from accountant.core.privacy.ex_post_curves import CostCurve
from accountant.core.privacy.secret_batches import has_secret_batches
from accountant.faults import reached
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.transactions import artifacts, cap_usage, job_keys, kept_draws, owners
from accountant.transactions.artifacts import Stored
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import (
    Claim,
    fenced,
    locked_job,
    now,
    set_job,
)

# --- ending -------------------------------------------------------------------------------------


def cancel(engine: Engine, job_id: UUID, actor: Actor) -> None:
    """Stop a job: at once without a worker, else by a flag that workers see at every token."""
    with writing(engine) as connection:
        locked, job = locked_job(connection, job_id)
        if job.analyst_id != actor.id and not owners.oversees(connection, actor, job.dataset_id):
            raise NotFound("job", str(job_id))
        match job.state:
            case "submitted" | "awaiting_approval" | "awaiting_release":
                set_job(connection, job, state="cancelled", finished_at=now())
            case "queued":
                _close(locked, job, "cancelled", actor.name, "cancelled before a worker took it")
            case "running" | "settling" if not _running(connection, job_id):
                _close(locked, job, "cancelled", actor.name, "cancelled while it waited to go on")
            case "running" | "settling":
                set_job(connection, job, cancel_requested=True)
            case state:
                raise Conflict(f"the job is {state} already")
        activity_log.record(
            connection, actor, "job cancelled", "job", str(job_id), dataset=locked.dataset
        )
    reached("cancel.committed")


def _running(connection: Connection, job_id: UUID) -> bool:
    parts = tables.parts
    query = select(parts.c.number).where(parts.c.job_id == job_id, parts.c.state == "running")
    return connection.execute(query).first() is not None


@dataclass(frozen=True)
class Output:
    """A staged output: its draft's name, its bytes' SHA-256, and the artifacts beside it."""

    draft: str
    sha256: str
    artifacts: tuple[Stored, ...] = ()


def publish(
    engine: Engine,
    claim: Claim,
    realized: Event,
    output: Output,
    worker: str,
    *,
    ex_post: int | None = None,
    curve: CostCurve | None = None,
    secret_rounds: int | None = None,
) -> None:
    """COMMIT what was spent and publish the output, in one transaction that checks the token.

    The claim is that of the last part to end; `realized` and `ex_post` (in units) are what its own
    meter recorded, and the other parts left theirs when they were done. `ex_post` is charged only
    where the dataset settles realized costs; else it goes to a table of its own, with the `curve`
    of how it grew, and changes nothing. `secret_rounds`: how many rounds of a secret release were
    taken; None: all. Raises LeaseLost where another attempt owns the part by now, and
    VerificationFailed where a job reads records and that it began to is not recorded: nothing is
    published then.
    """
    with writing(engine) as connection:
        locked, job = fenced(connection, claim)
        reached("publish.fenced")
        spent, cost, grown = _combined(connection, claim, realized, ex_post, curve)
        _commit(
            locked,
            job,
            spent,
            "succeeded",
            worker,
            output=output,
            ex_post=cost,
            rounds=secret_rounds,
        )
        reached("publish.charged")
        if cost is not None:
            figures = {"amount": cost, "curve": None if grown is None else grown.to_json()}
            connection.execute(insert(tables.realized_ex_post).values(job_id=job.id, **figures))
        artifacts.add(connection, job, output.artifacts)
        _end_parts(connection, job.id)
        set_job(
            connection,
            job,
            state="succeeded",
            output_sha256=output.sha256,
            finished_at=now(),
        )
        reached("publish.written")


def settle_charge(
    locked: LockedAccount,
    job: Row[Any],
    realized: Event,
    by: str,
    evidence: Mapping[str, Any],
) -> None:
    """COMMIT what a charge of another program spent, under the lease that the caller holds."""
    _commit(locked, job, realized, "succeeded", by, evidence=evidence)
    _end_parts(locked.connection, job.id)
    set_job(locked.connection, job, state="succeeded", finished_at=now())


def _combined(
    connection: Connection,
    claim: Claim,
    realized: Event,
    ex_post: int | None,
    curve: CostCurve | None,
) -> tuple[Event, int | None, CostCurve | None]:
    """Return the spending of all parts together: their data is disjoint, so the most of each."""
    parts = tables.parts
    query = select(parts).where(parts.c.job_id == claim.job_id, parts.c.number != claim.part)
    others = connection.execute(query).all()
    if any(each.state != "done" for each in others):
        raise Conflict("other parts of the job have not ended")
    most = releases(realized)
    for each in others:
        most |= releases(from_json(each.realized))
    costs = [
        cost for cost in (ex_post, *(each.realized_ex_post for each in others)) if cost is not None
    ]
    for each in others:
        if curve is not None and each.ex_post_curve is not None:
            curve = curve.joined(CostCurve.from_json(each.ex_post_curve))
    return from_releases(most) if others else realized, max(costs, default=None), curve


#: What is said of a job that failed after reading began: one sentence for every cause, for which of
#: them it was may depend on the data.
UNSAID = (
    "it failed, died or passed its time limit while private data was read; the cause is shown "
    "to nobody"
)

#: What is said besides of a job whose price is that of secret batches: it is so for all of them.
FIXED_PASSES = (
    "; a job whose batches are secret fails too where memory runs out, since its passes may not "
    "shrink: a smaller EXCHEQUER_DECODING_GIB makes all of them smaller from the start"
)


def unsaid(locked: LockedAccount, job: Row[Any]) -> str:
    """Return the sentence for a job that failed after reading, by its public event alone."""
    secret = has_secret_batches(from_json(locked.reservation(job.id)["event"]))
    return UNSAID + FIXED_PASSES if secret else UNSAID


def fail(engine: Engine, claim: Claim, outcome: str, public_reason: str, worker: str) -> None:
    """End a job for good (`outcome` failed or cancelled), under the token of one of its parts.

    After reading began the whole reservation is charged; before, it is void, and only then the
    reason is told. The other parts are fenced off with it and stop.
    """
    with writing(engine) as connection:
        locked, job = fenced(connection, claim)
        told = job.reading_began_at is None or outcome == "cancelled"
        _close(locked, job, outcome, worker, public_reason if told else unsaid(locked, job))


def give_up(locked: LockedAccount, job: Row[Any], outcome: str, public_reason: str) -> None:
    """End a job that no worker will end; called by the reaper, which holds both rows."""
    _close(locked, job, outcome, "reaper", public_reason)


def _close(locked: LockedAccount, job: Row[Any], outcome: str, by: str, reason: str) -> None:
    """VOID a reservation under which nothing private was read, else charge all of it."""
    if job.reading_began_at is None:
        locked.append(
            EntryKind.VOID, by, job.id, {"outcome": outcome, "reason": reason, "read": False}
        )
        cap_usage.settle(locked.connection, job, charged=False)
    else:
        _commit(locked, job, None, outcome, by)
    reached("close.charged")
    _end_parts(locked.connection, job.id)
    set_job(locked.connection, job, state=outcome, failure=reason, finished_at=now())


def _end_parts(connection: Connection, job_id: UUID) -> None:
    """Fence off every part of a job that ends; take away its key, its kept draws and what is to be
    settled.

    Where their outputs lie is in the tokens' names: the relay's sweep destroys all that the job did
    not publish.
    """
    job_keys.forget(connection, job_id)
    kept_draws.forget(connection, job_id)
    connection.execute(
        update(tables.parts)
        .where(tables.parts.c.job_id == job_id)
        .values(
            state="stopped",
            lease_token=None,
            lease_expires=None,
            draft=None,
            staged_sha256=None,
            realized=None,
            realized_ex_post=None,
            ex_post_curve=None,
        )
    )


def _commit(
    locked: LockedAccount,
    job: Row[Any],
    realized: Event | None,
    outcome: str,
    by: str,
    *,
    output: Output | None = None,
    ex_post: int | None = None,
    rounds: int | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> None:
    """Append the COMMIT of a job's reservation; `realized` None: all of it."""
    reserved = locked.reservation(job.id)
    held = reservations.read_reservation(reserved)
    released = () if output is None else output.artifacts
    event = held.event
    if realized is not None:
        event = realization.charged(reserved["mechanism"], held.event, realized)
        # None: all of them
        rounds = rounds if mechanisms.get(reserved["mechanism"]).stops_early else None
    other_costs = entry_bodies.settled_part(locked.accounts, held, event, ex_post, rounds)
    body = entry_bodies.commit_body(
        locked.accounts.dp,
        event,
        outcome,
        job.attempt,
        None if output is None else output.sha256,
        others=other_costs,
        artifacts=[artifact.to_json() for artifact in released],
        read=job.reading_began_at is not None,
        evidence=evidence,
        held=held.costs,
    )
    locked.append(EntryKind.COMMIT, by, job.id, body)
    cap_usage.settle(locked.connection, job, charged=True)
