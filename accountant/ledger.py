"""The only writer of the ledger: allowances, reservations, and what was really spent.

Each function is one transaction. It locks the account's row first and the job's row second, always in
that order; calls the pure decision; appends the entry; moves balances and chain head on the locked row;
and changes the job and its outbox with it. So a job never runs uncharged and nothing is overspent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, func, insert, select, update

from accountant import artifacts, requests, tables, usage
from accountant.artifacts import Stored
from accountant.core import books, lineage, mechanisms
from accountant.core.admission import Admitted, NeedsApproval, Policy, Refused
from accountant.core.allowances import Allowance, SecretDeclaration, allowance_body, raises
from accountant.core.chain import EntryKind
from accountant.core.currencies import Demand, decide_job, entry_part
from accountant.core.errors import (
    Conflict,
    LeaseLost,
    NotFound,
    NotPermitted,
    VerificationFailed,
    invalid,
)
from accountant.core.events import Event, to_json
from accountant.core.pricing import Terms
from accountant.expiry import approval_expires, expire_approvals
from accountant.posting import LockedAccount
from accountant.requests import JobRequest, terms_of

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
class Actor:
    """Who acts: the name goes into the entry, the roles were checked when they signed in."""

    id: UUID
    name: str
    roles: frozenset[str]

    def require(self, *roles: str) -> None:
        """Raise NotPermitted unless the actor has one of `roles`."""
        if not self.roles & set(roles):
            raise NotPermitted(f"this needs the role {' or '.join(roles)}")


@dataclass(frozen=True)
class Claim:
    """A worker's hold on one attempt of a job; the token fences off everybody else."""

    job_id: UUID
    attempt: int
    token: UUID


# --- allowances ---------------------------------------------------------------------------------


def allow(engine: Engine, dataset: str, allowance: Allowance, actor: Actor) -> int:
    """Set a dataset's allowance; returns the entry's number.

    Raises InvalidRequest for impossible figures, NotPermitted for anybody but a steward and for a raise
    that needs two people, and Conflict where less would be allowed than is spent and reserved.
    """
    actor.require("steward")
    with engine.begin() as connection:
        found = _dataset(connection, dataset)
        locked = LockedAccount(connection, found.id)
        body = allowance_body(allowance, locked.books, found.neighbours)
        if policy_of(found).two_people and raises(locked.books, body):
            raise NotPermitted("raising the allowance needs two people: one proposes it, another confirms")
        try:
            return locked.append(EntryKind.ALLOW, actor.name, None, body).seq
        except VerificationFailed:
            raise Conflict("more than that is already spent or reserved; nothing was changed") from None


# --- submitting ---------------------------------------------------------------------------------


def submit(engine: Engine, request: JobRequest, actor: Actor, idempotency_key: str | None = None) -> UUID:
    """Record a request and decide on it as far as it can be decided now; returns the job's id.

    The same key with the same body answers with the same job; with another body it is a Conflict. A
    request that can't be right raises InvalidRequest and leaves nothing behind.
    """
    actor.require("analyst", "steward")
    if idempotency_key is not None and not 1 <= len(idempotency_key) <= 200:
        raise invalid("idempotency_key", f"{len(idempotency_key)} characters", "1 to 200 characters")
    with engine.begin() as connection:
        dataset = _dataset(connection, request.dataset)
        policy = policy_of(dataset)
        model = _ready_model(connection, request)
        locked = LockedAccount(connection, dataset.id)
        # Looked up under the lock: of two requests with one key, the second waits and then sees it.
        earlier = _earlier(connection, actor, idempotency_key, request)
        if earlier is not None:
            return earlier
        requests.check_policy(policy, request, actor.name)
        priced = requests.priced(request, terms_of(dataset, locked.accounts))
        source = artifacts.source(connection, dataset, model, priced, actor)
        job_id = uuid4()
        connection.execute(
            insert(tables.jobs).values(
                id=job_id,
                dataset_id=dataset.id,
                version_id=_ready_version(connection, dataset).id if source is None else source.version_id,
                source_job_id=None if source is None else source.id,
                model_id=None if model is None else model.id,
                analyst_id=actor.id,
                mechanism=request.mechanism,
                parameters=priced.parameters.model_dump(mode="json"),
                terms=priced.terms.to_json(),
                event=None if priced.price.dp is None else to_json(priced.price.dp),
                epsilon_alone=priced.epsilon_alone,
                breakdown=list(priced.price.breakdown),
                purpose=request.purpose,
                project=request.project,
                idempotency_key=idempotency_key,
                request_sha256=request.sha256(),
                state="submitted",
            )
        )
        _consider(locked, _job(connection, job_id), model, policy, None)
        return job_id


def _earlier(connection: Connection, actor: Actor, key: str | None, request: JobRequest) -> UUID | None:
    if key is None:
        return None
    query = select(tables.jobs.c.id, tables.jobs.c.request_sha256).where(
        tables.jobs.c.analyst_id == actor.id, tables.jobs.c.idempotency_key == key
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    if row.request_sha256 != request.sha256():
        raise Conflict("this idempotency key was used for another request")
    found: UUID = row.id
    return found


# --- deciding -----------------------------------------------------------------------------------


def _consider(
    locked: LockedAccount,
    job: Row[Any],
    model: Row[Any] | None,
    policy: Policy,
    approval: dict[str, Any] | None,
) -> None:
    """Move a submitted or approved job on: probe, refuse, ask a steward, or reserve and queue."""
    connection = locked.connection
    probe = _probe(connection, job, model)
    if probe is None:
        _send(connection, "probe", job.id)  # a worker looks at the model; `probed` comes back here
        return
    problem = requests.context_problem(job, model, probe)
    if problem is not None:
        _refuse(connection, job, problem, "policy", None)
        return
    asked = requests.demand_of(job)
    used = usage.used_where_capped(connection, job, policy)
    alone, approved = job.epsilon_alone or 0.0, approval is not None
    decision = decide_job(locked.accounts, asked, alone, policy, approved, used)
    match decision:
        case Refused():
            told = requests.with_largest(decision, job, locked.accounts, policy, used)
            _refuse(connection, job, told, "account", approval)
        case NeedsApproval(why=why):
            ends = approval_expires(policy)
            _set(connection, job, state="awaiting_approval", decision_reason=why, approval_expires=ends)
        case Admitted():
            _reserve(locked, job, model, asked, approval)
            usage.reserve(connection, job, policy)


def _probe(connection: Connection, job: Row[Any], model: Row[Any] | None) -> Mapping[str, Any] | None:
    """What is known of the model with the job's template; None: nobody has looked yet."""
    key = requests.probe_key(model, job.parameters, job.terms)
    if key is None:
        return requests.NO_TEMPLATE
    query = select(tables.probes.c.facts).where(tables.probes.c.key == key)
    return connection.execute(query).scalar_one_or_none()


def _refuse(
    connection: Connection, job: Row[Any], refusal: Refused, by: str, approval: dict[str, Any] | None
) -> None:
    values = {**refusal.to_json(), "by": by}
    reason = None if approval is None else approval["reason"]
    _set(connection, job, state="refused", refusal=values, decision_reason=reason, finished_at=_now())


def _reserve(
    locked: LockedAccount,
    job: Row[Any],
    model: Row[Any] | None,
    asked: Demand,
    approval: dict[str, Any] | None,
) -> None:
    """RESERVE, the queued job and its message, in the caller's transaction."""
    body = books.reserve_body(
        locked.accounts.dp,
        job.mechanism,
        job.parameters,
        Terms.from_json(job.terms),
        asked.dp,
        model=None if model is None else {"name": model.name, "sha256": model.facts["sha256"]},
        approval=approval,
        others=entry_part(locked.accounts, asked),
        source=_source(locked.connection, job),
    )
    analyst = _user_name(locked.connection, job.analyst_id)
    locked.append(EntryKind.RESERVE, analyst, job.id, body)
    _set(locked.connection, job, state="queued", attempt=1, queued_at=_now())
    _send(locked.connection, "generate", job.id, attempt=1)


def _source(connection: Connection, job: Row[Any]) -> dict[str, Any]:
    """What the job reads, for its RESERVE."""
    if job.source_job_id is not None:
        rows = artifacts.of_job(connection, job.source_job_id)
        return lineage.of_artifacts(str(job.source_job_id), {row.name: row.sha256 for row in rows})
    versions = tables.dataset_versions
    number = connection.execute(select(versions.c.number).where(versions.c.id == job.version_id))
    return lineage.of_version(number.scalar_one())


def probed(engine: Engine, job_id: UUID, facts: Mapping[str, Any] | None, problem: str | None) -> None:
    """A worker has looked at model and template: keep the facts and decide on the waiting job."""
    with engine.begin() as connection:
        locked, job = _locked_job(connection, job_id)
        if job.state != "submitted":
            return
        model = _model_of(connection, job)
        if problem is not None or facts is None:
            refusal = Refused("model", "-", "-", problem or "the model can't be probed")
            _refuse(connection, job, refusal, "policy", None)
            return
        _keep_probe(connection, requests.probe_key(model, job.parameters, job.terms), facts)
        dataset = connection.execute(
            select(tables.datasets).where(tables.datasets.c.id == job.dataset_id)
        ).one()
        _consider(locked, job, model, policy_of(dataset), None)


def _keep_probe(connection: Connection, key: str | None, facts: Mapping[str, Any]) -> None:
    from sqlalchemy.dialects.postgresql import insert as upsert

    if key is None:
        return
    connection.execute(upsert(tables.probes).values(key=key, facts=dict(facts)).on_conflict_do_nothing())


def approve(engine: Engine, job_id: UUID, actor: Actor, reason: str) -> None:
    """A steward says yes: reserve and queue, or refuse where it no longer fits.

    Raises NotPermitted for one's own job unless the dataset's policy is `solo`, Conflict where the job
    is not awaiting approval any more, InvalidRequest without a reason.
    """
    with engine.begin() as connection:
        locked, job, policy = _judged(connection, job_id, actor, reason)
        if job.analyst_id == actor.id and not policy.solo:
            raise NotPermitted("nobody approves a job of their own, unless the dataset's policy is solo")
        expired = expire_approvals(connection, job_id)
        if not expired:
            model = _model_of(connection, job)
            _set(connection, job, decided_by=actor.id, decision_reason=reason, decided_at=_now())
            _consider(locked, job, model, policy, {"by": actor.name, "reason": reason})
    if expired:  # that it expired is kept, so it is told after the transaction
        raise Conflict("nobody approved the job in time: it is expired")


def refuse(engine: Engine, job_id: UUID, actor: Actor, reason: str) -> None:
    """A steward says no. Raises as `approve` does."""
    with engine.begin() as connection:
        _, job, _ = _judged(connection, job_id, actor, reason)
        refusal = Refused("steward", "-", "-", reason)
        _set(connection, job, decided_by=actor.id, decided_at=_now())
        _refuse(connection, job, refusal, actor.name, {"reason": reason})


def policy_of(dataset: Row[Any]) -> Policy:
    """The policy in a dataset's row."""
    return Policy.model_validate(dataset.policy)


def _judged(
    connection: Connection, job_id: UUID, actor: Actor, reason: str
) -> tuple[LockedAccount, Row[Any], Policy]:
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
    """Stop a job: at once where no worker has it, else by a flag that its worker sees at every token."""
    with engine.begin() as connection:
        locked, job = _locked_job(connection, job_id)
        if job.analyst_id != actor.id and "steward" not in actor.roles:
            raise NotFound("job", str(job_id))
        match job.state:
            case "submitted" | "awaiting_approval":
                _set(connection, job, state="cancelled", finished_at=_now())
            case "queued":
                _close(locked, job, "cancelled", actor.name, "cancelled before a worker took it")
            case "running" | "settling":
                _set(connection, job, cancel_requested=True)
            case state:
                raise Conflict(f"the job is {state} already")


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
) -> None:
    """COMMIT what was spent and publish the output, in one transaction that checks the token.

    `ex_post` is what the run really cost in that currency, in units; it counts only where the dataset
    settles realized costs, and is kept nowhere else. Raises LeaseLost where another attempt owns the
    job by now: nothing is published then.
    """
    with engine.begin() as connection:
        locked, job = _fenced(connection, claim)
        _commit(locked, job, realized, "succeeded", worker, output=output, ex_post=ex_post)
        artifacts.add(connection, job, output.artifacts)
        _set(
            connection,
            job,
            state="succeeded",
            lease_token=None,
            lease_expires=None,
            progress_done=tables.jobs.c.progress_total,
            output_uri=output.uri,
            output_sha256=output.sha256,
            finished_at=_now(),
        )


def fail(engine: Engine, claim: Claim, outcome: str, public_reason: str, worker: str) -> None:
    """End an attempt for good (`outcome` failed or cancelled), under its token.

    After reading began the whole reservation is charged; before, it is void.
    """
    with engine.begin() as connection:
        locked, job = _fenced(connection, claim)
        _close(locked, job, outcome, worker, public_reason)


def give_up(locked: LockedAccount, job: Row[Any], public_reason: str) -> None:
    """End a job whose attempts are used up; called by the reaper, which holds both rows."""
    _close(locked, job, "failed", "reaper", public_reason)


def _close(locked: LockedAccount, job: Row[Any], outcome: str, by: str, reason: str) -> None:
    """VOID a reservation under which nothing private was read, else charge all of it."""
    if job.reading_began_at is None:
        locked.append(EntryKind.VOID, by, job.id, {"outcome": outcome, "reason": reason, "read": False})
        usage.settle(locked.connection, job, charged=False)
    else:
        _commit(locked, job, None, outcome, by)
    _set(
        locked.connection,
        job,
        state=outcome,
        lease_token=None,
        lease_expires=None,
        failure=reason,
        finished_at=_now(),
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
    held = books.read_reservation(locked.reservation(job.id))
    released = () if output is None else output.artifacts
    if released and held.others.ex_post:
        raise NotPermitted("an ex-post output is published whole: nothing of it may be an artifact")
    event = held.event if realized is None else realized
    others = books.settled_part(locked.accounts, held, event, ex_post)
    body = books.commit_body(
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
    usage.settle(locked.connection, job, charged=True)


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
    if job.lease_token != claim.token:
        raise LeaseLost("another attempt owns this job, or it has ended")
    return locked, job


def _dataset(connection: Connection, name: str) -> Row[Any]:
    row = connection.execute(select(tables.datasets).where(tables.datasets.c.name == name)).one_or_none()
    if row is None:
        raise invalid("dataset", f"there is no dataset {name!r}", "a name from the catalogue")
    return row


def _ready_version(connection: Connection, dataset: Row[Any]) -> Row[Any]:
    query = (
        select(tables.dataset_versions)
        .where(tables.dataset_versions.c.dataset_id == dataset.id)
        .order_by(tables.dataset_versions.c.number.desc())
    )
    for row in connection.execute(query):
        if row.state == "ready":
            return row
    raise invalid("dataset", f"{dataset.name!r} is not ready: its data has not been checked", "a ready one")


def _model_of(connection: Connection, job: Row[Any]) -> Row[Any] | None:
    """The model of a recorded job; None where its mechanism uses none."""
    query = select(tables.models).where(tables.models.c.id == job.model_id)
    return connection.execute(query).one_or_none()


def _ready_model(connection: Connection, request: JobRequest) -> Row[Any] | None:
    """The model that a request names, checked; None where its mechanism uses none."""
    name = request.model
    if not mechanisms.get(request.mechanism).uses_model:
        if name is not None:
            raise invalid("model", f"{request.mechanism} uses none", "nothing")
        return None
    row = connection.execute(select(tables.models).where(tables.models.c.name == name)).one_or_none()
    if row is None or row.state != "ready":
        query = select(tables.models.c.name).where(tables.models.c.state == "ready")
        ready = ", ".join(connection.execute(query).scalars()) or "none is registered yet"
        problem = f"there is no model {name!r}" if row is None else f"{name!r} is {row.state}"
        problem = f"none is given, and {request.mechanism} runs one" if name is None else problem
        raise invalid("model", problem, ready)
    return row


def _user_name(connection: Connection, user_id: UUID) -> str:
    name: str = connection.execute(
        select(tables.users.c.name).where(tables.users.c.id == user_id)
    ).scalar_one()
    return name
