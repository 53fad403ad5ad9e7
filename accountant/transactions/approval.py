"""Decisions on a job that waits: what a worker's probe, a steward or the policy says."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, insert, select

from accountant import tables
from accountant.core.errors import (
    UNREADABLE,
    Conflict,
    ExchequerError,
    InvalidRequest,
    NotPermitted,
)
from accountant.core.ledger import lineage
from accountant.core.ledger.admission import Refused, delta_of
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.price import Terms
from accountant.faults import reached
from accountant.tables.accounts_row import read_books
from accountant.transactions import (
    artifacts,
    job_requests,
    owners,
    public_resources,
    sources,
    two_people,
)
from accountant.transactions.asking import APPROVAL, NOTHING, Ground, Kind, Result
from accountant.transactions.decision import (
    Asker,
    LookedAt,
    Untold,
    Verdict,
    consider,
    handed_back,
    refused,
    tell_largest,
)
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import (
    locked_job,
    model_of,
    policy_of,
    set_job,
)
from accountant.transactions.second_calculation import admitting, prepare
from accountant.transactions.signed_acts import Signature


def _consider(
    locked: LockedAccount,
    job: Row[Any],
    policy: Policy,
    approval: Mapping[str, Any] | None,
    signature: Signature | None = None,
    looked_at: LookedAt | None = None,
) -> Untold | None:
    """Decide on a recorded job and write the outcome. Returns what its refusal still lacks."""
    connection = locked.connection
    model = model_of(connection, job)
    person = _person(connection, job.analyst_id)
    analyst = Asker(job.analyst_id, person.name, job.project)
    excluded = _excluded(job, model, analyst, policy)
    left = owners.account_departure(person)
    if excluded is not None or (left is not None and not policy.departed_analysts):
        if approval is not None and looked_at is None:
            raise Conflict(
                f"{left}: refuse the request, or let the policy admit requests of people who left"
                if excluded is None
                else f"the policy is not the one that it was asked under: {excluded}"
            )
        why = str(excluded or left)
        _record(locked, job, refused(locked, Refused("policy", "-", "-", why), "policy", None))
        return None
    if approval is not None and left is not None:
        approval = {**approval, "departed": left}
    dp = locked.accounts.dp
    priced = job_requests.restated(job, delta_of(None if dp is None else dp.delta))
    source = _lineage(connection, job)
    verdict = consider(
        locked,
        job.id,
        analyst,
        priced.candidate,
        model,
        source,
        policy,
        approval,
        signature,
        looked_at=looked_at,
    )
    stated = {name: priced.columns[name] for name in job_requests.RESTATED}
    if looked_at is None:  # a person decides: who looks at models or releases keeps what stands
        stated["to_reserve"] = verdict.to_reserve
    return _record(locked, job, replace(verdict, columns={**stated, **verdict.columns}))


def _excluded(
    job: Row[Any], model: Row[Any] | None, asker: Asker, policy: Policy
) -> ExchequerError | None:
    """Return the error if a policy set since the request does not admit the job, or None."""
    named = None if model is None else model.name
    try:
        job_requests.check_policy(
            policy,
            JobRequest("", job.mechanism, named, job.parameters, "", job.project),
            asker.name,
        )
        public_resources.check_policy(policy, job.resources)
    except (NotPermitted, InvalidRequest) as error:
        return error
    return None


def _person(connection: Connection, user_id: UUID) -> Any:
    """Return an account's name, roles and state, read while the dataset's account is locked."""
    users = tables.users.c
    query = select(users.name, users.roles, users.active).where(users.id == user_id)
    return connection.execute(query).one()


def require_present(connection: Connection, job: Row[Any]) -> None:
    """Raise Conflict if the analyst of a waiting job could not answer an offer."""
    left = owners.account_departure(_person(connection, job.analyst_id))
    if left is not None:
        raise Conflict(f"{left}: nobody could accept the offer, so refuse the request")


def _record(locked: LockedAccount, job: Row[Any], verdict: Verdict) -> Untold | None:
    """Write what was decided of a recorded job: its columns, and what is sent with it."""
    locked.write()
    set_job(locked.connection, job, **verdict.columns)
    for table, rows in verdict.rows(job.id, job.analyst_id):
        locked.connection.execute(insert(table), rows)
    return verdict.untold


def _lineage(connection: Connection, job: Row[Any]) -> dict[str, Any]:
    """Return the lineage of the job's inputs, for its RESERVE entry."""
    candidate = job_requests.candidate_of(job)
    named = public_resources.lineage(job.resources)
    named |= sources.lineage(
        connection, job.dataset_id, job.mechanism, job.sources, candidate.resolved
    )
    if candidate.is_public:
        return named
    if job.source_job_id is not None:
        source = connection.execute(
            select(tables.jobs).where(tables.jobs.c.id == job.source_job_id)
        ).one()
        return artifacts.lineage_of(connection, source, job.mechanism) | named
    versions = tables.dataset_versions
    number = connection.execute(select(versions.c.number).where(versions.c.id == job.version_id))
    return lineage.of_version(number.scalar_one()) | named


def waiting(engine: Engine, job_id: UUID) -> tuple[Row[Any], Row[Any]] | None:
    """Return a submitted job and the model that a worker must look at, or None."""
    with engine.connect() as connection:
        query = select(tables.jobs).where(
            tables.jobs.c.id == job_id, tables.jobs.c.state == "submitted"
        )
        job = connection.execute(query).one_or_none()
        model = None if job is None else model_of(connection, job)
        return None if job is None or model is None else (job, model)


@admitting
def probed(
    engine: Engine, job_id: UUID, facts: Mapping[str, Any] | None, problem: str | None
) -> None:
    """A worker has looked at model and template: keep the facts and decide on the waiting job."""
    with writing(engine) as connection:
        locked, job = locked_job(connection, job_id)
        if job.state != "submitted":
            return
        if problem is not None or facts is None:
            refusal = Refused("model", "-", "-", problem or "the model can't be probed")
            _record(locked, job, refused(locked, refusal, "policy", None))
            return
        model = model_of(connection, job)
        facts_known = None if model is None else model.facts
        key = job_requests.probe_key(facts_known, job.parameters, Terms.from_json(job.terms))
        _keep_probe(connection, key, facts)
        dataset = connection.execute(
            select(tables.datasets).where(tables.datasets.c.id == job.dataset_id)
        ).one()
        untold = _consider(
            locked, job, policy_of(dataset), None, looked_at=LookedAt(job.to_reserve)
        )
    if untold is not None:
        tell_largest(engine, job_id, untold)


def released(locked: LockedAccount, job: Row[Any], policy: Policy) -> None:
    """Decide on a job that waited for a release: as the web did, or a steward does again."""
    approval = job.to_reserve["approval"]
    if approval is not None:
        users = tables.users
        query = select(users.c.id, users.c.name, users.c.active, users.c.roles)
        person = locked.connection.execute(query.where(users.c.name == approval["by"])).one()
        why = owners.steward_departure(person, policy)
        if why is None and "approve" in policy.signed:
            why = "the policy asks by now that approvals are signed"
        if why is None and policy.two_people:
            why = two_people.lapse(locked.connection, person, job.decided_at)
        if why is not None:
            _record(locked, job, handed_back(why))
            return
    _consider(locked, job, policy, approval, looked_at=LookedAt(job.to_reserve))


def _keep_probe(connection: Connection, key: str | None, facts: Mapping[str, Any]) -> None:
    from sqlalchemy.dialects.postgresql import insert as upsert

    if key is None:
        return
    connection.execute(
        upsert(tables.probes).values(key=key, facts=dict(facts)).on_conflict_do_nothing()
    )


def price_beforehand(engine: Engine, job_id: UUID) -> None:
    """Fill the caches of a job's price before the account's row is locked. Decides nothing."""
    jobs, accounts = tables.jobs, tables.accounts
    with engine.connect() as connection:
        job = connection.execute(select(jobs).where(jobs.c.id == job_id)).one_or_none()
        if job is None or job.state not in ("awaiting_approval", "awaiting_release"):
            return
        query = select(accounts).where(accounts.c.dataset_id == job.dataset_id)
        held = read_books(connection.execute(query).one()).accounts
    try:
        delta = delta_of(None if held.dp is None else held.dp.delta)
        prepare(held, job_requests.restated(job, delta).candidate)
    except UNREADABLE:
        return  # told when the job is looked at under its lock


class Approval(Kind):
    """A job that awaits approval: a yes queues it, or refuses it if it no longer fits."""

    name, yes, is_sensitive = APPROVAL, "Approve", False

    def require_answerer(self, ground: Ground) -> None:
        """Raise NotPermitted for one's own job unless `solo`, and for anybody but a steward."""
        ground.require_steward()
        require_other(ground)
        two_people.require_approver(ground.connection, ground.actor, ground.policy)

    def state_after_no(self, ground: Ground) -> str:
        """Return "refused": whoever asked ends their request with `settlement.cancel`."""
        ground.require_steward()
        return "refused"

    def apply(self, ground: Ground) -> Result:
        """Price the job again and decide on it.

        Raises Conflict if the policy excludes it or its analyst left.
        """
        job, approval = ground.job(), {"by": ground.actor.name, "reason": ground.reason}
        set_job(ground.connection, job, decided_by=ground.actor.id, decided_at=ground.account.now)
        reached("approve.decided")
        untold = _consider(ground.account, job, ground.policy, approval, ground.signature)
        reached("approve.written")
        return Result(job=job.id, untold=untold)

    def close(self, ground: Ground, state: str, result: Result = NOTHING) -> None:  # noqa: ARG002
        """Refuse the job; what was accepted is in its row already."""
        if state == "refused":
            refuse(ground, ground.job())


def require_other(ground: Ground) -> None:
    """Raise NotPermitted for an approval of one's own job, unless the policy is `solo`."""
    if ground.is_asker and not ground.policy.solo:
        raise NotPermitted(
            "nobody approves a job of their own, unless the dataset's policy is solo"
        )


def refuse(ground: Ground, job: Row[Any]) -> None:
    """Refuse a job that awaits approval, in the name of the steward who answers."""
    set_job(ground.connection, job, decided_by=ground.actor.id, decided_at=ground.account.now)
    refusal, reason = Refused("steward", "-", "-", ground.reason), {"reason": ground.reason}
    _record(ground.account, job, refused(ground.account, refusal, ground.actor.name, reason))
