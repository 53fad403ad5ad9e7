"""A smaller job in place of one that awaits approval: a steward offers it, its analyst consents or declines.

    awaiting approval ── offer ──▶ refused for good, and an offer that is open
                                     ├── accept ──▶ another job, decided at once as approved by that steward
                                     ├── decline, or withdraw by a steward ──▶ nothing happened
                                     └── nobody answers in time ──▶ expired

The old request is refused in the transaction that records the offer, so no consent can admit it. Nothing is
reserved before the consent; then policy, price and account are looked at anew, as for every request. Where
the price would by then be larger than the one offered, that is not what the steward approved: it is not
admitted. The account's row is locked first, then the offer's.
"""

from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, func, insert, select

from accountant import tables
from accountant.core.errors import Conflict, NotFound, NotPermitted, invalid
from accountant.core.ledger.accounts import Accounts, Demand, decide_job
from accountant.core.ledger.admission import Refused
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import releases
from accountant.core.template import templates
from accountant.identities import credentials
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions import cap_usage, job_requests, owners, two_people
from accountant.transactions.approval import close_refused, judged, require_present
from accountant.transactions.decision import Untold, tell_largest
from accountant.transactions.expiry import expire_approvals
from accountant.transactions.job_requests import Candidate, JobRequest, Priced
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import decide
from accountant.transactions.second_calculation import admitting
from accountant.transactions.submission import admit_approved

offers, jobs = tables.offers, tables.jobs

Figure = float | Fraction

OPEN_DAYS = 14  # where the dataset's policy lets requests wait for good

# --- offering -----------------------------------------------------------------------------------


def offer(engine: Engine, job_id: UUID, changes: Mapping[str, Any], actor: Actor, reason: str) -> UUID:
    """Refuse a request and offer another in its place; returns the offer's id.

    `changes`: the parameters that differ; None takes one away. Raises as `ledger.approve` does, and
    InvalidRequest where the offer would be refused now, or is not smaller in every currency and filter.
    """
    try:
        return _offer(engine, job_id, changes, actor, reason)
    except _NoRoom as error:  # the largest that fits is a search over prices: after the lock
        found = error.untold
        told = job_requests.with_largest(found.refused, found.job, found.accounts, found.policy, found.usage)
        fits = "nothing" if told.largest is None else f"{told.size_field} up to {told.largest:,}"
        raise invalid("parameters", f"it would be refused now: {told.why}", f"{fits} fits") from None


class _NoRoom(Exception):
    """The offered job would be refused."""

    def __init__(self, untold: Untold) -> None:
        super().__init__(untold.refused.why)
        self.untold = untold


def _offer(engine: Engine, job_id: UUID, changes: Mapping[str, Any], actor: Actor, reason: str) -> UUID:
    with writing(engine) as connection:
        locked, job, policy = judged(connection, job_id, actor, reason)
        if job.analyst_id == actor.id and not policy.solo:
            raise NotPermitted("nobody offers a job to themselves, unless the dataset's policy is solo")
        if "approve" in policy.signed:  # it is approved when it is accepted, and nobody is there to sign
            raise NotPermitted("the policy asks that approvals are signed: refuse, and say what would fit")
        two_people.require_approver(connection, actor, policy)
        require_present(connection, job)
        if expire_approvals(connection, job_id):
            raise Conflict("nobody approved the job in time: it is expired")  # the sweep keeps it
        priced = _smaller(locked.accounts, job, changes, _terms(connection, job.dataset_id, locked))
        _require_room(connection, locked, job, priced.candidate, policy)
        close_refused(locked, job, actor, reason)
        offer_id, days = uuid4(), policy.approval_days or OPEN_DAYS
        kept = ("parameters", "terms", "epsilon_alone", "breakdown")
        connection.execute(
            insert(offers).values(
                id=offer_id,
                job_id=job_id,
                reason=reason,
                offered_by=actor.id,
                expires_at=func.clock_timestamp() + timedelta(days=days),
                **{name: priced.columns[name] for name in kept},
            )
        )
        return offer_id


def changed(asked: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an offer: those asked for, with `changes`.

    A text's length that was asked for, or came by default, falls with the tokens that there are for it.
    """
    found = {name: value for name, value in {**asked, **changes}.items() if value is not None}
    tokens, longest = found.get("tokens_per_batch"), found.get("max_text_tokens")
    if "max_text_tokens" not in changes and isinstance(tokens, int) and isinstance(longest, int):
        found["max_text_tokens"] = min(longest, tokens)
    return found


def _smaller(accounts: Accounts, job: Row[Any], changes: Mapping[str, Any], terms: Any) -> Priced:
    """The price of what is offered. Raises InvalidRequest naming a field, or what is larger."""
    parameters = changed(job.parameters, changes)
    request = JobRequest("", job.mechanism, None, parameters)
    priced = job_requests.priced(request, terms)
    if templates(priced.candidate.parameters) != templates(job.parameters):
        raise invalid("parameters", "the text of a template differs", "other sizes of the same request")
    asked = job_requests.candidate_of(job)
    larger = beyond(accounts, priced.candidate, asked)
    if larger:
        raise invalid("parameters", f"it costs more than was asked: {', '.join(larger)}", "a smaller request")
    if not beyond(accounts, asked, priced.candidate):
        raise invalid("parameters", "it costs what was asked", "a smaller request, or approve this one")
    return priced


def _require_room(
    connection: Connection, locked: LockedAccount, job: Row[Any], offered: Candidate, policy: Policy
) -> None:
    used = cap_usage.used(connection, locked.dataset_id, job.analyst_id, job.project)
    decision = decide_job(locked.accounts, offered.asked, offered.epsilon_alone, policy, True, used)
    if isinstance(decision, Refused):
        raise _NoRoom(Untold(decision, offered, locked.accounts, policy, used))


def beyond(accounts: Accounts, one: Candidate, other: Candidate) -> list[str]:
    """The filters, caps and accounts on which `one` costs more than `other`."""
    first, second = _costs(accounts, one), _costs(accounts, other)

    def more(cost: Figure | None, than: Figure | None) -> bool:
        if cost is None:  # no price there, and the filter closes: more than every amount
            return than is not None
        return than is not None and cost > than

    return [name for name, cost in first.items() if more(cost, second.get(name, 0))]


def _costs(accounts: Accounts, job: Candidate) -> dict[str, Figure | None]:
    asked: Demand = job.asked
    found: dict[str, Figure | None] = {"ex-post": asked.ex_post}
    if accounts.dp is not None:
        for each, cost in zip(accounts.dp.filters, accounts.dp.costs(asked.dp).values(), strict=True):
            kind, share = each.filter.kind, each.filter.least_share(asked.dp)
            found[str(kind)] = share if share is not None or cost is None else cost.main
            found[f"{kind} (δ)"] = None if cost is None else cost.delta if share is None else 0
    else:
        found["epsilon"] = job.epsilon_alone
    secret = accounts.secret
    if secret is not None and (asked.secret is not None or releases(asked.dp)):
        found["secret"] = secret.cost(asked.dp, asked.secret)
    return found


# --- answering ----------------------------------------------------------------------------------


@admitting
def accept(engine: Engine, offer_id: UUID, actor: Actor) -> UUID:
    """Consent: the offered job is made and decided on now; returns its id. Accepting again answers the same.

    Raises NotFound for anybody but its analyst, NotPermitted where they may ask for no job any more, and
    Conflict where it is not open any more, costs more now than was offered, or its steward is none any more.
    A job that does not fit any more is made, and refused.
    """
    with writing(engine) as connection:
        locked, found = _locked(connection, offer_id)
        asked = _asked(connection, found)
        if asked.analyst_id != actor.id:
            raise NotFound("offer", str(offer_id))
        if found.state == "accepted":
            return UUID(str(found.accepted_job_id))
        actor.require(*owners.ASKERS)
        _require_open(connection, found)
        steward = _steward(connection, found, asked, actor)
        _require_price(connection, locked, asked, found)
        approval = {"by": steward, "reason": found.reason, "instead_of": str(found.job_id)}
        request = JobRequest(
            asked.dataset, asked.mechanism, asked.model, found.parameters, asked.purpose, asked.project
        )
        job_id, untold = admit_approved(locked, request, actor, approval, found.offered_by)
        decide(connection, offers, found, "accepted", actor, None, accepted_job_id=job_id)
    if untold is not None:
        tell_largest(engine, job_id, untold)
    return job_id


def decline(engine: Engine, offer_id: UUID, actor: Actor, reason: str = "") -> None:
    """Decline an offer, as the analyst who received it. Raises NotFound and Conflict as `accept` does."""
    with writing(engine) as connection:
        _, found = _locked(connection, offer_id)
        if _asked(connection, found).analyst_id != actor.id:
            raise NotFound("offer", str(offer_id))
        _require_open(connection, found)
        decide(connection, offers, found, "declined", actor, reason)


def withdraw(engine: Engine, offer_id: UUID, actor: Actor, reason: str) -> None:
    """Take an offer back; any steward may. The request that it answered stays refused."""
    actor.require("steward")
    if not reason.strip():
        raise invalid("reason", "empty", "a sentence that says why")
    with writing(engine) as connection:
        locked, found = _locked(connection, offer_id)
        if not owners.oversees(connection, actor, locked.dataset_id):
            raise NotFound("offer", str(offer_id))
        _require_open(connection, found)
        decide(connection, offers, found, "withdrawn", actor, reason)


def _require_open(connection: Connection, found: Row[Any]) -> None:
    if found.state != "open":
        raise Conflict(f"the offer is {found.state} already")
    if connection.execute(select(func.clock_timestamp() > found.expires_at)).scalar_one():
        raise Conflict("nobody answered the offer in time: it is expired")  # the sweep keeps it


def _steward(connection: Connection, found: Row[Any], asked: Row[Any], analyst: Actor) -> str:
    """The name of who approves by the offer: still a steward, and nobody approves a job of their own."""
    users = tables.users
    steward = connection.execute(select(users).where(users.c.id == found.offered_by)).one()
    policy, offering = Policy.model_validate(asked.policy), credentials.actor_of(steward)
    left = owners.steward_departure(steward, policy)
    if left is not None:
        raise Conflict(f"{left}, who offered it: ask again")
    if policy.two_people and "administrator" in offering.roles:
        raise Conflict("who offered it is administrator by now: ask again")
    if found.offered_by == analyst.id and not policy.solo:
        raise Conflict("nobody approves a job of their own, and the dataset's policy is not solo any more")
    return str(steward.name)


def _require_price(connection: Connection, locked: LockedAccount, asked: Row[Any], found: Row[Any]) -> None:
    offered = job_requests.candidate_of(_as_job(asked.mechanism, found))
    terms = _terms(connection, locked.dataset_id, locked)
    request = JobRequest(asked.dataset, asked.mechanism, None, found.parameters)
    larger = beyond(locked.accounts, job_requests.priced(request, terms).candidate, offered)
    if larger:
        raise Conflict(f"it costs more now than was offered ({', '.join(larger)}): ask again")


# --- rows ---------------------------------------------------------------------------------------


def _locked(connection: Connection, offer_id: UUID) -> tuple[LockedAccount, Row[Any]]:
    """The account's row, then the offer's."""
    query = select(jobs.c.dataset_id).join(offers, offers.c.job_id == jobs.c.id)
    job = one(connection, query.where(offers.c.id == offer_id), "offer", offer_id)
    locked = LockedAccount(connection, job.dataset_id)
    held = select(offers).where(offers.c.id == offer_id).with_for_update()
    return locked, connection.execute(held).one()


def _asked(connection: Connection, found: Row[Any]) -> Row[Any]:
    """The request that was refused for the offer, with the names that it goes by and its dataset's policy."""
    query = (
        select(
            jobs,
            tables.datasets.c.name.label("dataset"),
            tables.datasets.c.policy,
            tables.models.c.name.label("model"),
        )
        .join(tables.datasets, tables.datasets.c.id == jobs.c.dataset_id)
        .outerjoin(tables.models, tables.models.c.id == jobs.c.model_id)
    )
    return connection.execute(query.where(jobs.c.id == found.job_id)).one()


def _terms(connection: Connection, dataset_id: UUID, locked: LockedAccount) -> Any:
    row = connection.execute(select(tables.datasets).where(tables.datasets.c.id == dataset_id)).one()
    return job_requests.terms_of(row, locked.accounts)


def _as_job(mechanism: str, found: Row[Any]) -> Any:
    facts = {name: getattr(found, name) for name in ("parameters", "terms", "epsilon_alone")}
    return SimpleNamespace(mechanism=mechanism, **facts)
