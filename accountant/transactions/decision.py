"""The outcome of a job: the decision of `core` on the locked account, and how it is recorded.

One path for all: a request that has just arrived, a job whose probe came back, one that a steward
approved.
"""

import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy import Connection, Engine, Table, select, update

from accountant import settings, tables
from accountant.core.errors import Conflict, ExchequerError, NotPermitted
from accountant.core.ledger import charges, entry_bodies
from accountant.core.ledger.accounts import Accounts, decide_job, entry_part
from accountant.core.ledger.admission import Admitted, NeedsApproval, Refused, Waits
from accountant.core.ledger.canonical_json import canonical
from accountant.core.ledger.caps import Usage
from accountant.core.ledger.entry_forms import EntryForm
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.reservations import Reservation, read_reservation
from accountant.core.names import is_alike
from accountant.transactions import cap_usage as usage
from accountant.transactions import hardware, job_requests, second_calculation, signed_acts
from accountant.transactions.job_requests import Candidate
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import task_of

logger = logging.getLogger(__name__)


class Model(Protocol):
    """A model's row, as far as a decision needs it."""

    @property
    def name(self) -> str: ...
    @property
    def facts(self) -> Any: ...


@dataclass(frozen=True)
class Asker:
    """The owner of a job. The entry names them, and they and their project may have a cap."""

    id: UUID
    name: str
    project: str | None


@dataclass(frozen=True)
class Untold:
    """A refusal without the largest request that would have fitted, and all that it was made on."""

    refused: Refused
    job: Candidate
    accounts: Accounts
    policy: Policy
    usage: Usage


@dataclass(frozen=True)
class Verdict:
    """The outcome of a job: columns to set, a message to send, and facts that the refusal still
    lacks.

    `parts`: the number of parts that a queued job is split into; each has a row and a message, and
    waits for workers of the class `hardware`.
    `to_reserve`: of a request that waits for a look at its model or for a release, what is reserved
    then; None: nothing yet.
    """

    columns: Mapping[str, Any]
    task: str | None = None
    untold: Untold | None = None
    parts: int = 0
    hardware: str = ""
    to_reserve: Mapping[str, Any] | None = None

    def rows(self, job_id: UUID, analyst_id: UUID) -> list[tuple[Table, list[dict[str, Any]]]]:
        """Return the rows written along with the job's own, by table."""
        numbers = range(self.parts)
        part = {"job_id": job_id, "state": "queued", "attempt": 1, "hardware": self.hardware}
        parts = [{**part, "number": number} for number in numbers]
        found = [(tables.parts, parts)] if parts else []
        if self.task is not None:
            message = {"task": self.task, "subject": job_id, "attempt": self.columns["attempt"]}
            message |= {"analyst_id": analyst_id if self.parts else None}
            found.append(
                (tables.outbox, [{**message, "part": number} for number in numbers or (0,)])
            )
        return found


@dataclass(frozen=True)
class LookedAt:
    """A job whose look at the model or whose release came, and the RESERVE that was decided on
    before.

    Who looks at models or releases decides on no price: the owner's guards let them post this entry
    and no other.
    """

    to_reserve: Mapping[str, Any] | None


#: Why a steward decides on a job that would be approved by policy.
CHANGED = "what it was priced by has changed since it was asked for"


def consider(
    locked: LockedAccount,
    job_id: UUID,
    asker: Asker,
    job: Candidate,
    model: Model | None,
    source: Mapping[str, Any],
    policy: Policy,
    approval: Mapping[str, Any] | None,
    signature: signed_acts.Signature | None = None,
    looked_at: LookedAt | None = None,
) -> Verdict:
    """Move a submitted or approved job on: probe, refuse, ask a steward, or reserve and queue.

    `source`: what the job reads (ledger.lineage). Nothing is written: the RESERVE is posted and
    what people use is counted on `locked`, the rest is the caller's to write with it. Where the
    price was calculated only once it raises Unchecked before anything is posted: the caller is
    `second_calculation.admitting`. `signature`: the approver's, where the policy asks for one
    (signed_acts.by_one says what it raises). `looked_at`: of a job whose look or release came.
    """
    facts = None if model is None else model.facts
    probe = _probe(locked.connection, job_requests.probe_key(facts, job.parameters, job.terms))
    problem = None if probe is None else job_requests.context_problem(job, facts, probe)
    if problem is not None:
        return refused(locked, problem, "policy", None)
    vouched = charges.level(job.mechanism, job.parameters)
    holders, alone = usage.holders_of(asker.id, asker.project, vouched), job.epsilon_alone
    sharer = usage.sharer(policy, asker.name, asker.project)
    used = locked.usage.used_where_capped(holders, policy)
    used = used.sharing(locked.usage.shared(policy, locked.now), sharer)
    decision = decide_job(locked.accounts, job.asked, alone, policy, approval is not None, used)
    unconfirmed = to_reserve = None
    # Who looks at models takes the number of parts that was decided on: its settings may be others.
    decided = (
        None
        if looked_at is None or looked_at.to_reserve is None
        else looked_at.to_reserve.get("parts", 1)
    )
    configured = settings.load()
    waits_for = hardware.class_of(job, facts, probe, configured)
    most = decided or configured.fan_out
    parts = job_requests.parts_of(job, most or hardware.MOST_WORKERS)
    if parts > 1 and not most:
        parts = min(parts, hardware.workers(locked.connection, waits_for))
    if isinstance(decision, Admitted | Waits):
        unconfirmed = second_calculation.refusal(locked.accounts, job, decision.costs)
        later = looked_at is not None or isinstance(decision, Waits)
        if unconfirmed is None and (later or (probe is None and approval is None)):
            to_reserve = _as_kept(_reserve_body(locked, job, model, source, approval, parts))
    if probe is None:  # a worker looks at the model, and `probed` moves it on
        look = _verdict("submitted", task="probe")
        return replace(look, to_reserve=to_reserve if approval is None else None)
    if to_reserve is not None and looked_at is not None and to_reserve != looked_at.to_reserve:
        assert isinstance(decision, Admitted | Waits)
        decision = NeedsApproval(decision.costs, CHANGED)
    match decision:
        case Refused():
            verdict = refused(locked, decision, "account", approval)
            return replace(verdict, untold=Untold(decision, job, locked.accounts, policy, used))
        case NeedsApproval(why=why):
            days = policy.approval_days
            ends = None if days is None else locked.now + timedelta(days=days)
            return _verdict("awaiting_approval", reason=why, approval_expires=ends)
        case _ if unconfirmed is not None:
            return refused(locked, unconfirmed, "account", approval)
        case Waits(why=why):
            _check_kept(approval, asker.name, policy, why)
            return replace(_verdict("awaiting_release", reason=why), to_reserve=to_reserve)
        case Admitted():
            _reserve(
                locked, job_id, asker.name, job, model, source, policy, approval, signature, parts
            )
            locked.usage.reserve(holders, alone, policy, sharer)
            reason = None if approval is None else approval["reason"]
            # Nobody is sent a message about a charge: another program runs it.
            task = task_of(not job.is_free) if vouched == charges.MEASURED else None
            verdict = _verdict("queued", reason=reason, attempt=1, queued_at=locked.now, task=task)
            return replace(verdict, parts=parts, hardware=waits_for)


def refused(
    locked: LockedAccount, refusal: Refused, by: str, approval: Mapping[str, Any] | None
) -> Verdict:
    """Return a refusal as it is recorded; `by`: the account, the policy or a person."""
    reason = None if approval is None else approval["reason"]
    recorded = {**refusal.to_json(), "by": by}
    return _verdict("refused", reason=reason, refusal=recorded, finished_at=locked.now)


def handed_back(why: str) -> Verdict:
    """Return a waiting job to the stewards, as its approval stands no more."""
    return _verdict("awaiting_approval", reason=why)


def _verdict(
    state: str,
    *,
    reason: str | None = None,
    refusal: Mapping[str, Any] | None = None,
    attempt: int = 0,
    queued_at: datetime | None = None,
    finished_at: datetime | None = None,
    approval_expires: datetime | None = None,
    task: str | None = None,
) -> Verdict:
    columns = {
        "state": state,
        "decision_reason": reason,
        "refusal": refusal,
        "attempt": attempt,
        "queued_at": queued_at,
        "finished_at": finished_at,
        "approval_expires": approval_expires,
    }
    return Verdict(columns, task)


def _check_approver(approval: Mapping[str, Any], analyst: str, policy: Policy) -> None:
    if is_alike(approval["by"], analyst) and not policy.solo:
        raise NotPermitted(
            f"{analyst!r} and {approval['by']!r} look alike: nobody approves a job of their own"
        )


def _check_kept(approval: Mapping[str, Any] | None, analyst: str, policy: Policy, why: str) -> None:
    """Raise NotPermitted or Conflict if an approval can't be kept until a release."""
    if approval is None:
        return
    _check_approver(approval, analyst, policy)
    if "approve" in policy.signed:
        raise Conflict(f"an approval that is signed is not kept until then: {why}")


def _reserve_body(
    locked: LockedAccount,
    job: Candidate,
    model: Model | None,
    source: Mapping[str, Any],
    approval: Mapping[str, Any] | None,
    parts: int,
) -> dict[str, Any]:
    return entry_bodies.reserve_body(
        locked.accounts.dp,
        job.mechanism,
        job.parameters,
        job.terms,
        job.asked.dp,
        model=None if model is None else {"name": model.name, "sha256": model.facts["sha256"]},
        approval=approval,
        others=entry_part(locked.accounts, job.asked),
        source=source,
        parts=parts,
    )


def _as_kept(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body as JSON gives it back."""
    kept: dict[str, Any] = json.loads(canonical(body))
    return kept


def _reserve(
    locked: LockedAccount,
    job_id: UUID,
    analyst: str,
    job: Candidate,
    model: Model | None,
    source: Mapping[str, Any],
    policy: Policy,
    approval: Mapping[str, Any] | None,
    signature: signed_acts.Signature | None,
    parts: int,
) -> None:
    account = locked.accounts.dp
    if (
        account is None
        or approval is not None
        or entry_part(locked.accounts, job.asked)
        or set(source) != {"version"}
        or account.charge(job.asked.dp)[1]
    ):
        stated = _reserve_body(locked, job, model, source, approval, parts)
        if approval is not None:
            _check_approver(approval, analyst, policy)
            asked = (
                locked.connection,
                locked.dataset_id,
                policy,
                EntryKind.RESERVE,
                job_id,
                analyst,
                stated,
            )
            signed = signed_acts.by_one(*asked, signature)
            stated["approval"] |= {} if signed is None else {"signature": signed}
        locked.post(EntryKind.RESERVE, analyst, job_id, stated)
        return
    # All that such a body depends on besides the job. Of the balances, only the costs do.
    filters = tuple(filter_.filter for filter_ in account.filters)
    costs = tuple(account.charge(job.asked.dp)[0].items())
    ran_on = None if model is None else (model.name, model.facts["sha256"])
    key = (id(job), locked.dataset, analyst, filters, costs, ran_on, source["version"], parts)
    with _kept_lock:
        known = _kept[key][1] if key in _kept else None
    if known is None:
        made = _as_kept(_reserve_body(locked, job, model, source, approval, parts))
        form = EntryForm(locked.dataset, EntryKind.RESERVE, analyst, made)
        known = made, read_reservation(made), form
        with _kept_lock:
            _kept[key] = job, known
            while len(_kept) > _MOST_KEPT:
                _kept.popitem(last=False)
    locked.post_form(EntryKind.RESERVE, analyst, job_id, *known)


#: Bodies of RESERVEs with what is made of them, the oldest first: some kilobytes each. By identity
#: of the job, which is kept along: a priced request that comes again is the same object
#: (job_requests).
_MOST_KEPT = 2048
_kept: OrderedDict[
    tuple[Any, ...], tuple[Candidate, tuple[Mapping[str, Any], Reservation, EntryForm]]
] = OrderedDict()
_kept_lock = Lock()


#: Probes are written once and never change, so a process that has read one knows it.
_probes: dict[str, Mapping[str, Any]] = {}
_MOST_PROBES = 1000


def _probe(connection: Connection, key: str | None) -> Mapping[str, Any] | None:
    """Return the facts about the model with the job's template; None: not probed yet."""
    if key is None:
        return job_requests.NO_TEMPLATE
    if key not in _probes:
        query = select(tables.probes.c.facts).where(tables.probes.c.key == key)
        facts = connection.execute(query).scalar_one_or_none()
        if facts is None:
            return None
        if len(_probes) >= _MOST_PROBES:
            _probes.clear()
        _probes[key] = facts
    return _probes.get(key)


# --- after the lock -----------------------------------------------------------------------------


def tell_largest(engine: Engine, job_id: UUID, untold: Untold) -> None:
    """Add to a recorded refusal the largest request that would fit: a search over prices."""
    try:
        told = job_requests.with_largest(
            untold.refused, untold.job, untold.accounts, untold.policy, untold.usage
        )
    except (ExchequerError, ArithmeticError, ValueError):
        logger.exception("the refusal of %s names no largest request", job_id)
        return
    if told == untold.refused:
        return
    with engine.begin() as connection:
        connection.execute(
            update(tables.jobs)
            .where(tables.jobs.c.id == job_id, tables.jobs.c.state == "refused")
            .values(refusal={**told.to_json(), "by": "account"})
        )
