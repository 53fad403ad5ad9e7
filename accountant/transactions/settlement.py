"""The only writer of the ledger: allowances, reservations, and what was really spent.

Each function is one transaction. It locks the account's row first and the job's row second, always in
that order; calls the pure decision; appends the entry; moves balances and chain head on the locked row;
and changes the job and its outbox with it. So a job never runs uncharged and nothing is overspent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, func, insert, select, update

from accountant import tables
from accountant.core.errors import (
    Conflict,
    ExchequerError,
    InvalidRequest,
    LeaseLost,
    NotFound,
    NotPermitted,
    VerificationFailed,
    invalid,
)
from accountant.core.ledger import entry_bodies, lineage, reservations
from accountant.core.ledger.admission import Policy, Refused
from accountant.core.ledger.allowances import Allowance, SecretDeclaration, allowance_body, raises
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.privacy.events import Event, from_json, from_releases, releases
from accountant.core.privacy.ex_post_curves import CostCurve
from accountant.core.privacy.price import Terms
from accountant.faults import reached
from accountant.identities import activity_log
from accountant.transactions import artifacts, cap_usage, job_requests, public_resources
from accountant.transactions.artifacts import Stored
from accountant.transactions.decision import Asker, Untold, Verdict, consider, refused, tell_largest
from accountant.transactions.expiry import expire_approvals
from accountant.transactions.job_requests import Actor, JobRequest
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.submission import submit

__all__ = [
    "Actor",
    "Allowance",
    "Claim",
    "JobRequest",
    "Output",
    "SecretDeclaration",
    "allow",
    "approve",
    "cancel",
    "fail",
    "give_up",
    "probed",
    "publish",
    "refuse",
    "submit",
]


@dataclass(frozen=True)
class Claim:
    """A worker's hold on one attempt at one part of a job; the token fences off everybody else."""

    job_id: UUID
    attempt: int
    token: UUID
    part: int = 0


# --- allowances ---------------------------------------------------------------------------------


def allow(engine: Engine, dataset: str, allowance: Allowance, actor: Actor) -> int:
    """Set a dataset's allowance; returns the entry's number.

    Raises InvalidRequest for impossible figures, NotPermitted for anybody but a steward and for a raise
    that needs two people, and Conflict where less would be allowed than is spent and reserved.
    """
    actor.require("steward")
    with engine.begin() as connection:
        locked = LockedAccount(connection, _dataset(connection, dataset).id)
        found = _dataset(connection, dataset)  # again: its policy may have changed while the row was awaited
        body = allowance_body(allowance, locked.books, found.neighbours, found.unit_column)
        if policy_of(found).two_people and raises(locked.books, body):
            raise NotPermitted("raising the allowance needs two people: one proposes it, another confirms")
        return append_allowance(locked, body, actor)


def append_allowance(locked: LockedAccount, body: Mapping[str, Any], actor: Actor) -> int:
    """The entry of an allowance that one person may set, while its account is held; `proposals` asks too."""
    try:
        return locked.append(EntryKind.ALLOW, actor.name, None, body).seq
    except VerificationFailed:
        raise Conflict("more than that is already spent or reserved; nothing was changed") from None


# --- deciding -----------------------------------------------------------------------------------


def _consider(
    locked: LockedAccount, job: Row[Any], policy: Policy, approval: Mapping[str, Any] | None
) -> Untold | None:
    """Decide on a recorded job and write what becomes of it; returns what its refusal doesn't yet say."""
    connection = locked.connection
    model = _model_of(connection, job)
    analyst = Asker(job.analyst_id, _user_name(connection, job.analyst_id), job.project)
    excluded = _excluded(job, model, analyst, policy)
    if excluded is not None:
        if approval is not None:
            raise Conflict(f"the policy is not the one that it was asked under: {excluded}")
        _record(locked, job, refused(locked, Refused("policy", "-", "-", str(excluded)), "policy", None))
        return None
    dp = locked.accounts.dp
    priced = job_requests.restated(job, job_requests.delta_of(None if dp is None else dp.delta))
    source = _source(connection, job)
    verdict = consider(locked, job.id, analyst, priced.candidate, model, source, policy, approval)
    stated = {name: priced.columns[name] for name in job_requests.RESTATED}
    return _record(locked, job, replace(verdict, columns={**stated, **verdict.columns}))


def _excluded(job: Row[Any], model: Row[Any] | None, asker: Asker, policy: Policy) -> ExchequerError | None:
    """Why a policy that was set after a job was asked for does not admit it."""
    named = None if model is None else model.name
    try:
        job_requests.check_policy(
            policy, JobRequest("", job.mechanism, named, {}, "", job.project), asker.name
        )
        public_resources.check_policy(policy, job.resources)
    except (NotPermitted, InvalidRequest) as error:
        return error
    return None


def _record(locked: LockedAccount, job: Row[Any], verdict: Verdict) -> Untold | None:
    """Write what was decided of a recorded job: its columns, and what is sent with it."""
    locked.write()
    _set(locked.connection, job, **verdict.columns)
    for table, rows in verdict.rows(job.id):
        locked.connection.execute(insert(table), rows)
    return verdict.untold


def _source(connection: Connection, job: Row[Any]) -> dict[str, Any]:
    """What the job reads, for its RESERVE."""
    named = public_resources.lineage(job.resources)
    if job.source_job_id is not None:
        source = connection.execute(select(tables.jobs).where(tables.jobs.c.id == job.source_job_id)).one()
        return artifacts.lineage_of(connection, source, job.mechanism) | named
    versions = tables.dataset_versions
    number = connection.execute(select(versions.c.number).where(versions.c.id == job.version_id))
    return lineage.of_version(number.scalar_one()) | named


def probed(engine: Engine, job_id: UUID, facts: Mapping[str, Any] | None, problem: str | None) -> None:
    """A worker has looked at model and template: keep the facts and decide on the waiting job."""
    with engine.begin() as connection:
        locked, job = _locked_job(connection, job_id)
        if job.state != "submitted":
            return
        if problem is not None or facts is None:
            refusal = Refused("model", "-", "-", problem or "the model can't be probed")
            _record(locked, job, refused(locked, refusal, "policy", None))
            return
        model = _model_of(connection, job)
        facts_known = None if model is None else model.facts
        key = job_requests.probe_key(facts_known, job.parameters, Terms.from_json(job.terms))
        _keep_probe(connection, key, facts)
        dataset = connection.execute(
            select(tables.datasets).where(tables.datasets.c.id == job.dataset_id)
        ).one()
        untold = _consider(locked, job, policy_of(dataset), None)
    if untold is not None:
        tell_largest(engine, job_id, untold)


def _keep_probe(connection: Connection, key: str | None, facts: Mapping[str, Any]) -> None:
    from sqlalchemy.dialects.postgresql import insert as upsert

    if key is None:
        return
    connection.execute(upsert(tables.probes).values(key=key, facts=dict(facts)).on_conflict_do_nothing())


def approve(engine: Engine, job_id: UUID, actor: Actor, reason: str) -> None:
    """A steward says yes: reserve and queue, or refuse where it no longer fits.

    Raises NotPermitted for one's own job unless the dataset's policy is `solo`, Conflict where the job
    is not awaiting approval any more or the policy by now excludes it, InvalidRequest without a reason.
    """
    with engine.begin() as connection:
        locked, job, policy = judged(connection, job_id, actor, reason)
        if job.analyst_id == actor.id and not policy.solo:
            raise NotPermitted("nobody approves a job of their own, unless the dataset's policy is solo")
        expired, untold = expire_approvals(connection, job_id), None
        if not expired:
            _set(connection, job, decided_by=actor.id, decided_at=_now())
            reached("approve.decided")
            untold = _consider(locked, job, policy, {"by": actor.name, "reason": reason})
            reached("approve.written")
    reached("approve.committed")
    if expired:  # that it expired is kept, so it is told after the transaction
        raise Conflict("nobody approved the job in time: it is expired")
    if untold is not None:
        tell_largest(engine, job_id, untold)


def refuse(engine: Engine, job_id: UUID, actor: Actor, reason: str) -> None:
    """A steward says no. Raises as `approve` does."""
    with engine.begin() as connection:
        locked, job, _ = judged(connection, job_id, actor, reason)
        close_refused(locked, job, actor, reason)


def close_refused(locked: LockedAccount, job: Row[Any], actor: Actor, reason: str) -> None:
    """Refuse a job that `judged` found, in the name of its steward."""
    _set(locked.connection, job, decided_by=actor.id, decided_at=_now())
    verdict = refused(locked, Refused("steward", "-", "-", reason), actor.name, {"reason": reason})
    _record(locked, job, verdict)


def policy_of(dataset: Row[Any]) -> Policy:
    """The policy in a dataset's row."""
    return Policy.model_validate(dataset.policy)


def judged(
    connection: Connection, job_id: UUID, actor: Actor, reason: str
) -> tuple[LockedAccount, Row[Any], Policy]:
    """The account's row and the job's, held, for a steward who decides on it; raises where they may not."""
    actor.require("steward")
    if not reason.strip():
        raise invalid("reason", "empty", "a sentence that says why")
    locked, job = _locked_job(connection, job_id)
    if job.state != "awaiting_approval":
        raise Conflict(f"the job is {job.state.replace('_', ' ')}, not awaiting approval")
    dataset = connection.execute(select(tables.datasets).where(tables.datasets.c.id == job.dataset_id)).one()
    return locked, job, policy_of(dataset)


# --- ending -------------------------------------------------------------------------------------


def cancel(engine: Engine, job_id: UUID, actor: Actor) -> None:
    """Stop a job: at once where no worker has it, else by a flag that its workers see at every token."""
    with engine.begin() as connection:
        locked, job = _locked_job(connection, job_id)
        if job.analyst_id != actor.id and "steward" not in actor.roles:
            raise NotFound("job", str(job_id))
        match job.state:
            case "submitted" | "awaiting_approval":
                _set(connection, job, state="cancelled", finished_at=_now())
            case "queued":
                _close(locked, job, "cancelled", actor.name, "cancelled before a worker took it")
            case "running" | "settling" if not _running(connection, job_id):
                _close(locked, job, "cancelled", actor.name, "cancelled while it waited to go on")
            case "running" | "settling":
                _set(connection, job, cancel_requested=True)
            case state:
                raise Conflict(f"the job is {state} already")
        activity_log.record(connection, actor, "job cancelled", "job", str(job_id), dataset=locked.dataset)
    reached("cancel.committed")


def _running(connection: Connection, job_id: UUID) -> bool:
    parts = tables.parts
    query = select(parts.c.number).where(parts.c.job_id == job_id, parts.c.state == "running")
    return connection.execute(query).first() is not None


@dataclass(frozen=True)
class Output:
    """A staged output: where it lies, the SHA-256 of its bytes, and the artifacts beside it."""

    uri: str
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
) -> None:
    """COMMIT what was spent and publish the output, in one transaction that checks the token.

    The claim is that of the last part to end; `realized` and `ex_post` (in units) are what its own meter
    recorded, and the other parts left theirs when they were done. `ex_post` is charged only where the
    dataset settles realized costs; else it goes to a table of its own, with the `curve` of how it grew, and
    changes nothing. Raises LeaseLost where another attempt owns the part by now, and Conflict where a job
    reads records and that it began to is not recorded: nothing is published then.
    """
    with engine.begin() as connection:
        locked, job = _fenced(connection, claim)
        if job.source_job_id is None and job.reading_began_at is None:
            # Its COMMIT would say that nothing was read, and then a correction may lower the charge.
            raise Conflict("the job reads records, and that it began to read them is not recorded")
        reached("publish.fenced")
        spent, cost, grown = _combined(connection, claim, realized, ex_post, curve)
        _commit(locked, job, spent, "succeeded", worker, output=output, ex_post=cost)
        reached("publish.charged")
        if cost is not None:
            figures = {"amount": cost, "curve": None if grown is None else grown.to_json()}
            connection.execute(insert(tables.realized_ex_post).values(job_id=job.id, **figures))
        artifacts.add(connection, job, output.artifacts)
        _end_parts(connection, job.id)
        _set(
            connection,
            job,
            state="succeeded",
            output_uri=output.uri,
            output_sha256=output.sha256,
            finished_at=_now(),
        )
        reached("publish.written")


def _combined(
    connection: Connection, claim: Claim, realized: Event, ex_post: int | None, curve: CostCurve | None
) -> tuple[Event, int | None, CostCurve | None]:
    """What all parts of a job spent together: their data is disjoint, so the most of each release."""
    parts = tables.parts
    query = select(parts).where(parts.c.job_id == claim.job_id, parts.c.number != claim.part)
    others = connection.execute(query).all()
    if any(each.state != "done" for each in others):
        raise Conflict("other parts of the job have not ended")
    most = releases(realized)
    for each in others:
        most |= releases(from_json(each.realized))
    costs = [cost for cost in (ex_post, *(each.realized_ex_post for each in others)) if cost is not None]
    for each in others:
        if curve is not None and each.ex_post_curve is not None:
            curve = curve.joined(CostCurve.from_json(each.ex_post_curve))
    return from_releases(most) if others else realized, max(costs, default=None), curve


#: What is said of a job that failed after reading began: one sentence for every cause, for which of them
#: it was may depend on the data.
UNSAID = "it failed, died or passed its time limit while private data was read; the cause is shown to nobody"


def fail(engine: Engine, claim: Claim, outcome: str, public_reason: str, worker: str) -> None:
    """End a job for good (`outcome` failed or cancelled), under the token of one of its parts.

    After reading began the whole reservation is charged; before, it is void, and only then the reason is
    told. The other parts are fenced off with it and stop.
    """
    with engine.begin() as connection:
        locked, job = _fenced(connection, claim)
        told = job.reading_began_at is None or outcome == "cancelled"
        _close(locked, job, outcome, worker, public_reason if told else UNSAID)


def give_up(locked: LockedAccount, job: Row[Any], outcome: str, public_reason: str) -> None:
    """End a job that no worker will end; called by the reaper, which holds both rows."""
    _close(locked, job, outcome, "reaper", public_reason)


def _close(locked: LockedAccount, job: Row[Any], outcome: str, by: str, reason: str) -> None:
    """VOID a reservation under which nothing private was read, else charge all of it."""
    if job.reading_began_at is None:
        locked.append(EntryKind.VOID, by, job.id, {"outcome": outcome, "reason": reason, "read": False})
        cap_usage.settle(locked.connection, job, charged=False)
    else:
        _commit(locked, job, None, outcome, by)
    reached("close.charged")
    _end_parts(locked.connection, job.id)
    _set(locked.connection, job, state=outcome, failure=reason, finished_at=_now())


def _end_parts(connection: Connection, job_id: UUID) -> None:
    """Fence off every part of a job that ends, and take away what they left for its settlement.

    Where their outputs lie is in the tokens' names: the relay's sweep destroys all that the job did not
    publish.
    """
    connection.execute(
        update(tables.parts)
        .where(tables.parts.c.job_id == job_id)
        .values(
            state="stopped",
            lease_token=None,
            lease_expires=None,
            staged_uri=None,
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
) -> None:
    """Append the COMMIT of a job's reservation; `realized` None: all of it."""
    held = reservations.read_reservation(locked.reservation(job.id))
    released = () if output is None else output.artifacts
    if released and held.others.ex_post:
        raise NotPermitted("an ex-post output is published whole: nothing of it may be an artifact")
    event = held.event if realized is None else realized
    others = entry_bodies.settled_part(locked.accounts, held, event, ex_post)
    body = entry_bodies.commit_body(
        locked.accounts.dp,
        event,
        outcome,
        job.attempt,
        None if output is None else output.sha256,
        others=others,
        artifacts=[each.to_json() for each in released],
        read=job.reading_began_at is not None,
    )
    locked.append(EntryKind.COMMIT, by, job.id, body)
    cap_usage.settle(locked.connection, job, charged=True)


# --- rows ---------------------------------------------------------------------------------------


def _now() -> Any:
    return func.clock_timestamp()


def _set(connection: Connection, job: Row[Any], **values: Any) -> None:
    connection.execute(update(tables.jobs).where(tables.jobs.c.id == job.id).values(**values))


def _send(connection: Connection, task: str, subject: UUID, attempt: int = 0) -> None:
    connection.execute(insert(tables.outbox).values(task=task, subject=subject, attempt=attempt))


def _job(connection: Connection, job_id: UUID) -> Row[Any]:
    job = connection.execute(
        select(tables.jobs).where(tables.jobs.c.id == job_id).with_for_update()
    ).one_or_none()
    if job is None:
        raise NotFound("job", str(job_id))
    return job


def _locked_job(connection: Connection, job_id: UUID) -> tuple[LockedAccount, Row[Any]]:
    """The account's row, then the job's: every writer takes them in this order."""
    dataset_id = connection.execute(
        select(tables.jobs.c.dataset_id).where(tables.jobs.c.id == job_id)
    ).scalar_one_or_none()
    if dataset_id is None:
        raise NotFound("job", str(job_id))
    locked = LockedAccount(connection, dataset_id)
    return locked, _job(connection, job_id)


def _fenced(connection: Connection, claim: Claim) -> tuple[LockedAccount, Row[Any]]:
    locked, job = _locked_job(connection, claim.job_id)
    parts = tables.parts
    held = select(parts.c.number).where(
        parts.c.job_id == claim.job_id, parts.c.number == claim.part, parts.c.lease_token == claim.token
    )
    if connection.execute(held.with_for_update()).one_or_none() is None:
        raise LeaseLost("another attempt owns this job, or it has ended")
    return locked, job


def _dataset(connection: Connection, name: str) -> Row[Any]:
    row = connection.execute(select(tables.datasets).where(tables.datasets.c.name == name)).one_or_none()
    if row is None:
        raise invalid("dataset", f"there is no dataset {name!r}", "a name from the catalogue")
    return row


def _model_of(connection: Connection, job: Row[Any]) -> Row[Any] | None:
    """The model of a recorded job; None where its mechanism uses none."""
    query = select(tables.models).where(tables.models.c.id == job.model_id)
    return connection.execute(query).one_or_none()


def _user_name(connection: Connection, user_id: UUID) -> str:
    name: str = connection.execute(
        select(tables.users.c.name).where(tables.users.c.id == user_id)
    ).scalar_one()
    return name
