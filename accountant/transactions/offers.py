"""A smaller job in place of one that awaits approval: a steward offers it, its analyst consents or
declines.

    awaiting approval ── offer ──▶ refused for good, and an offer that is open
                                     ├── yes ──▶ another job, decided at once as approved by that
                                       steward
                                     └── no, or nobody answers in time ──▶ nothing happened

The old request is refused in the transaction that records the offer, so no consent can admit it.
Nothing is reserved before the consent; then policy, price and account are looked at anew, as for
every request. Where the price would by then be larger than the one offered, that is not what the
steward approved: it is not admitted.
"""

from collections.abc import Mapping
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, select

from accountant import tables
from accountant.core.errors import Conflict, NotPermitted, invalid
from accountant.core.ledger.accounts import Accounts, Demand, decide_job
from accountant.core.ledger.admission import Refused
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import releases
from accountant.core.template import templates
from accountant.identities.actor import Actor
from accountant.transactions import cap_usage, job_requests, owners, two_people
from accountant.transactions.approval import Approval, refuse, require_other, require_present
from accountant.transactions.asking import (
    OPEN_DAYS,
    Ground,
    Kind,
    Request,
    Result,
    ask,
    row_of,
    words,
)
from accountant.transactions.decision import Untold
from accountant.transactions.job_requests import Candidate, JobRequest, Priced
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.submission import admit_approved

Figure = float | Fraction

# --- offering -----------------------------------------------------------------------------------


def offer(
    engine: Engine, job_id: UUID, changes: Mapping[str, Any], actor: Actor, reason: str
) -> UUID:
    """Refuse a request and offer another in its place; returns the offer's id.

    `changes`: the parameters that differ; None takes one away. Raises as an approval does, and
    InvalidRequest where the offer would be refused now, or is not smaller in every currency and
    filter.
    """
    try:
        return _offer(engine, job_id, changes, actor, reason)
    except _NoRoom as error:  # the largest that fits is a search over prices: after the lock
        untold = error.untold
        refusal = job_requests.with_largest(
            untold.refused, untold.job, untold.accounts, untold.policy, untold.usage
        )
        fits = (
            "nothing"
            if refusal.largest is None
            else f"{refusal.size_field} up to {refusal.largest:,}"
        )
        raise invalid(
            "parameters", f"it would be refused now: {refusal.why}", f"{fits} fits"
        ) from None


class _NoRoom(Exception):
    """The offered job would be refused."""

    def __init__(self, untold: Untold) -> None:
        super().__init__(untold.refused.why)
        self.untold = untold


def _offer(
    engine: Engine, job_id: UUID, changes: Mapping[str, Any], actor: Actor, reason: str
) -> UUID:
    with writing(engine) as connection:
        ground = Ground.locked(connection, job_id, actor, words(reason), None)
        job, account, policy = ground.job(), ground.account, ground.policy
        Approval().require_seen(ground)
        ground.require_steward()
        ground.require_open()
        require_other(ground)
        # it is approved when it is accepted, and nobody is there to sign
        if "approve" in policy.signed:
            raise NotPermitted(
                "the policy asks that approvals are signed: refuse, and say what would fit"
            )
        two_people.require_approver(connection, actor, policy)
        require_present(connection, job)
        if ground.expire():
            raise Conflict("nobody approved the job in time: it is expired")  # the sweep keeps it
        terms = job_requests.terms_of(ground.dataset, account.accounts)
        priced = _smaller(account.accounts, job, changes, terms)
        _require_room(connection, account, job, priced.candidate, policy)
        refuse(ground, job)
        asked = {name: priced.columns[name] for name in _PRICE}
        days = policy.approval_days or OPEN_DAYS
        request = Request("offer", asked, ground.reason, job_id=job_id, days=days, by_two=False)
        return ask(connection, uuid4(), account.dataset_id, actor, request)


#: What an offer says of the job, and what it costs under these terms.
_PRICE = ("parameters", "terms", "epsilon_alone", "breakdown")


def changed(asked: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of an offer: those asked for, with `changes`.

    A text's length that was asked for, or came by default, falls with the tokens that there are for
    it.
    """
    parameters = {name: value for name, value in {**asked, **changes}.items() if value is not None}
    tokens, longest = parameters.get("tokens_per_batch"), parameters.get("max_text_tokens")
    if "max_text_tokens" not in changes and isinstance(tokens, int) and isinstance(longest, int):
        parameters["max_text_tokens"] = min(longest, tokens)
    return parameters


def _smaller(accounts: Accounts, job: Row[Any], changes: Mapping[str, Any], terms: Any) -> Priced:
    """Return the offer's price. Raises InvalidRequest naming a field or what is larger."""
    parameters = changed(job.parameters, changes)
    request = JobRequest("", job.mechanism, None, parameters)
    priced = job_requests.priced(request, terms)
    if templates(priced.candidate.parameters) != templates(job.parameters):
        raise invalid(
            "parameters", "the text of a template differs", "other sizes of the same request"
        )
    asked = job_requests.candidate_of(job)
    larger = beyond(accounts, priced.candidate, asked)
    if larger:
        raise invalid(
            "parameters", f"it costs more than was asked: {', '.join(larger)}", "a smaller request"
        )
    if not beyond(accounts, asked, priced.candidate):
        raise invalid(
            "parameters", "it costs what was asked", "a smaller request, or approve this one"
        )
    return priced


def _require_room(
    connection: Connection, locked: LockedAccount, job: Row[Any], offered: Candidate, policy: Policy
) -> None:
    used = cap_usage.used(connection, locked.dataset_id, cap_usage.holders(job))
    sharer = cap_usage.sharer(
        policy, row_of(connection, tables.users, job.analyst_id).name, job.project
    )
    used = used.sharing(cap_usage.shared(connection, locked.dataset_id, policy, locked.now), sharer)
    decision = decide_job(locked.accounts, offered.asked, offered.epsilon_alone, policy, True, used)
    if isinstance(decision, Refused):
        raise _NoRoom(Untold(decision, offered, locked.accounts, policy, used))


def beyond(accounts: Accounts, one: Candidate, other: Candidate) -> list[str]:
    """Return the filters, caps and accounts on which `one` costs more than `other`."""
    first, second = _costs(accounts, one), _costs(accounts, other)

    def more(cost: Figure | None, than: Figure | None) -> bool:
        if cost is None:  # no price there, and the filter closes: more than every amount
            return than is not None
        return than is not None and cost > than

    return [name for name, cost in first.items() if more(cost, second.get(name, 0))]


def _costs(accounts: Accounts, job: Candidate) -> dict[str, Figure | None]:
    asked: Demand = job.asked
    figures: dict[str, Figure | None] = {"ex-post": asked.ex_post}
    if accounts.dp is not None:
        for filter_, cost in zip(
            accounts.dp.filters, accounts.dp.costs(asked.dp).values(), strict=True
        ):
            kind, share = filter_.filter.kind, filter_.filter.least_share(asked.dp)
            figures[str(kind)] = share if share is not None or cost is None else cost.main
            figures[f"{kind} (δ)"] = None if cost is None else cost.delta if share is None else 0
    else:
        figures["epsilon"] = job.epsilon_alone
    secret = accounts.secret
    if secret is not None and (asked.secret is not None or releases(asked.dp)):
        figures["secret"] = secret.cost(asked.dp, asked.secret)
    return figures


# --- answering ----------------------------------------------------------------------------------


class Offer(Kind):
    """A smaller job, which the analyst of the refused one answers; stewards may take it back."""

    name, yes = "offer", "Accept the offer"
    needs_reason = False
    is_sensitive = False

    def addressee(self, ground: Ground) -> UUID | None:
        """Return the analyst to whom it is offered."""
        return UUID(str(ground.job().analyst_id))

    def require_answerer(self, ground: Ground) -> None:
        """Raise NotPermitted unless its analyst answers, who may still ask for jobs."""
        if ground.actor.id != self.addressee(ground):
            raise NotPermitted("whoever asked for the job accepts the offer in its place")
        ground.actor.require(*owners.ASKERS)

    def state_after_no(self, ground: Ground) -> str:
        """Return "refused" for a no of its analyst, and "withdrawn" for one of a steward."""
        if ground.actor.id == self.addressee(ground):
            return "refused"
        ground.require_steward()
        return "withdrawn"

    def apply(self, ground: Ground) -> Result:
        """Make the job and decide on it; one that does not fit any more is made, and refused."""
        asked, row = _asked(ground), ground.row
        steward = _steward(ground)
        _require_price(ground, asked)
        approval = {"by": steward, "reason": row.reason, "instead_of": str(row.job_id)}
        request = JobRequest(
            ground.dataset.name,
            asked.mechanism,
            asked.model,
            row.asked["parameters"],
            asked.purpose,
            asked.project,
        )
        job_id, untold = admit_approved(
            ground.account, request, ground.actor, approval, row.asked_by
        )
        return Result(job=job_id, untold=untold)


def _steward(ground: Ground) -> str:
    """Return the name of who approves by the offer: still a steward, and of no job of their own."""
    steward = row_of(ground.connection, tables.users, ground.row.asked_by)
    left = owners.steward_departure(steward, ground.policy)
    if left is not None:
        raise Conflict(f"{left}, who offered it: ask again")
    if ground.policy.two_people and "administrator" in steward.roles:
        raise Conflict("who offered it is administrator by now: ask again")
    if ground.is_asker and not ground.policy.solo:
        raise Conflict(
            "nobody approves a job of their own, and the dataset's policy is not solo any more"
        )
    return str(steward.name)


def _require_price(ground: Ground, asked: Row[Any]) -> None:
    """Raise Conflict if the job costs more now than was offered."""
    accounts = ground.account.accounts
    request = JobRequest(ground.dataset.name, asked.mechanism, None, ground.row.asked["parameters"])
    priced = job_requests.priced(request, job_requests.terms_of(ground.dataset, accounts))
    larger = beyond(
        accounts, priced.candidate, job_requests.candidate_of(_as_job(asked.mechanism, ground.row))
    )
    if larger:
        raise Conflict(f"it costs more now than was offered ({', '.join(larger)}): ask again")


def _asked(ground: Ground) -> Row[Any]:
    """Return the job that was refused for the offer, with the name of its model."""
    jobs, models = tables.jobs, tables.models
    query = select(jobs, models.c.name.label("model")).outerjoin(
        models, models.c.id == jobs.c.model_id
    )
    return ground.connection.execute(query.where(jobs.c.id == ground.row.job_id)).one()


def _as_job(mechanism: str, row: Any) -> Any:
    """Return what was offered as a job's row, with its price of then."""
    facts = {name: row.asked[name] for name in ("parameters", "terms", "epsilon_alone")}
    return SimpleNamespace(mechanism=mechanism, **facts)
