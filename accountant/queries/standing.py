"""How a dataset stands: what is left, what a job would do to it, and how many more of its shape
fit.

    accounts ──▶ share left (of the filter with most room) ──▶ "52 % left: one more job like this …"

Pure: whoever makes a Standing has read the accounts. Each filter and each currency is computed
separately. Numbers of jobs and counts are those that admission would let in one after the other,
over all filters, currencies and caps together (core.ledger.capacity); each is for what is left now,
not for both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest
from accountant.core.ledger import capacity
from accountant.core.ledger.accounts import (
    NOTHING,
    Accounts,
    Demand,
    SecretAccount,
    Settlement,
    decide_job,
    demand,
    without_realized,
)
from accountant.core.ledger.admission import Account, Decision, FilterAccount
from accountant.core.ledger.caps import Usage, counted, limits
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.reservations import move
from accountant.core.mechanisms.base import Mechanism
from accountant.core.names import FILTER_NAMES
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import releases
from accountant.core.privacy.filters import ZERO, Amount, Kind
from accountant.core.privacy.price import Price, Terms
from accountant.core.privacy.secrets import SecretKind
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal
from accountant.schema.datasets import Remaining
from accountant.schema.jobs import Refusal
from accountant.schema.quotes import Effect, FilterStep, OtherStep, Room
from accountant.transactions.job_requests import price_of

COUNT = "noisy-count"
#: In place of a figure that follows from realized costs.
NOT_SHOWN = "not shown"
#: A number of jobs beyond which a sentence says "over".
_MANY = 1_000_000


#: Pages ask for the ε of the same few events, which follows from event and δ alone.
_alone = lru_cache(maxsize=1024)(epsilon_alone)


@dataclass(frozen=True)
class Shape:
    """What a job asks of a dataset: of its accounts, and of the caps its ε by itself."""

    asked: Demand
    epsilon_alone: float

    @classmethod
    def of(cls, price: Price, delta: float) -> "Shape":
        """Return the shape of a job at this price."""
        alone = 0.0 if price.dp is None else _alone(price.dp, delta)[0]
        return cls(demand(price), alone)


@dataclass(frozen=True)
class Standing:
    """What admission looks at: accounts, the use of caps by whoever asks, and the policy."""

    accounts: Accounts
    used: Usage
    policy: Policy

    def shown(self, realized_shown: bool) -> "Standing":
        """Return what a figure may be searched on: no realized costs where these are not shown."""
        return self if realized_shown else replace(self, accounts=without_realized(self.accounts))

    def part(self, share: Fraction) -> "Standing":
        """Return this share, from 0 to 1, of all that is left, rounded down in every unit.

        The rest is set aside as if it were reserved, so every rule of admission holds as it does of
        the whole. A secret account of one exact job can't be shared and stays whole.
        """
        accounts, set_by = self.accounts, limits(self.policy)
        ex_post = accounts.ex_post
        accounts = replace(
            accounts,
            dp=None if accounts.dp is None else _part_of_filters(accounts.dp, share),
            ex_post=replace(ex_post, reserved=ex_post.reserved + _rest(ex_post.left, share)),
            secret=None if accounts.secret is None else _part_of_secret(accounts.secret, share),
        )
        used = self.used.changed(
            lambda cap, amount: amount + _rest(set_by.get(cap, 0) - amount, share)
        )
        return replace(self, accounts=accounts, used=used)

    def after(self, job: Shape) -> "Standing":
        """Return the standing once a job that fits is reserved."""
        job_demand = job.asked
        dp, ex_post, secret = self.accounts.dp, self.accounts.ex_post, self.accounts.secret
        if dp is not None and releases(job_demand.dp):
            costs, whole = dp.charge(job_demand.dp)
            dp = move(dp.with_whole(True) if whole else dp, costs, reserved=1)
        if job_demand.ex_post:
            ex_post = replace(ex_post, reserved=ex_post.reserved + job_demand.ex_post)
        if secret is not None and (job_demand.secret is not None or releases(job_demand.dp)):
            cost = secret.cost(job_demand.dp, job_demand.secret) or 0
            one = secret.kind is SecretKind.ONE
            secret = replace(secret, reserved=secret.reserved + cost, jobs=secret.jobs + one)
        spent = counted(job.epsilon_alone)
        used = self.used.changed(lambda _, amount: amount + spent)
        accounts = replace(self.accounts, dp=dp, ex_post=ex_post, secret=secret)
        return replace(self, accounts=accounts, used=used)

    def decide(self, job: Shape, approved: bool) -> Decision:
        """Return what admission says of a job now."""
        return decide_job(
            self.accounts, job.asked, job.epsilon_alone, self.policy, approved, self.used
        )

    def room(self, job: Shape) -> capacity.Room | None:
        """Return the limit that first refuses as such jobs go on, or None if they are free."""
        return capacity.binding(self.accounts, job.asked, self.policy, self.used, job.epsilon_alone)

    def share_left(self) -> float:
        """Return the share left of the filter with most room: 0 where none holds."""
        filters = () if self.accounts.dp is None else self.accounts.dp.filters
        shares = [1 - filter_.share_with(ZERO) for filter_ in filters if filter_.holds]
        return max(0.0, max(shares, default=0.0))

    def remaining(
        self, terms: Terms, like: Shape | None = None, likeness: str = "this"
    ) -> Remaining | None:
        """Return what is left, and what it buys; None before the first allowance.

        `like`: a request, and `likeness` what a sentence calls it. A free one, and one whose number
        would tell what ex-post jobs really cost, is not counted.
        """
        if self.accounts.dp is None:
            return None
        count = count_shape(terms, self.policy)
        share = self.share_left()
        jobs = None if like is None else self._number_of(like)
        for_jobs = replace(self, used=self.used.of_a_job)
        counts = None if count is None else for_jobs._number_of(count)
        sentence = _sentence(self.accounts.overdrawn, share, jobs, counts, likeness)
        return Remaining(share=share, jobs=jobs, counts=counts, sentence=sentence)

    def _number_of(self, job: Shape) -> int | None:
        if job.asked.ex_post and self.accounts.ex_post.settlement is Settlement.REALIZED:
            return None
        room = self.room(job)
        return None if room is None else room.jobs

    def effect(
        self,
        job: Shape,
        *,
        terms: Terms | None = None,
        realized_shown: bool = True,
        refusal: Mapping[str, Any] | None = None,
    ) -> Effect:
        """Return every filter, currency and cap before and after a job.

        Figures are decimals, shares are of the limit. `filters`: a share `after` of None: it can't
        price the job and closes. `currencies`: ex-post and secret, where the job asks for them.
        `jobs_of_this_shape`: how many fit one after the other; None where the job is free, or where
        that would tell realized ex-post costs and they are not to be shown. `binding`: the limit
        that stops the next one, under the same conditions. `refusal` is told with it. `terms`: what
        is left is told in a sentence too, now and, of a request that fits, after it.
        """
        shown_refusal = None if refusal is None else Refusal(**refusal)
        if job.asked == NOTHING:
            return Effect(
                filters=[],
                currencies=[],
                jobs_of_this_shape=None,
                binding=None,
                refusal=shown_refusal,
            )
        currencies = self.accounts
        hidden = currencies.ex_post.settlement is Settlement.REALIZED and not realized_shown
        hides = hidden and job.asked.ex_post > 0
        room = self.room(job)
        now = then = closing = None
        if terms is not None:
            seen = self.shown(realized_shown)
            now = seen.remaining(terms, job)
            if shown_refusal is None and seen.accounts.fits(job.asked):
                then = seen.after(job).remaining(terms, job)
                closing = _closing(seen.accounts.dp, job.asked)
                if then is not None and closing:
                    then = then.model_copy(update={"sentence": f"{then.sentence} {closing}"})
        return Effect(
            filters=_filter_steps(currencies.dp, job.asked),
            currencies=_other_steps(currencies, job.asked, hidden),
            jobs_of_this_shape=None if hides else 0 if room is None else room.jobs,
            binding=None if hides or room is None else Room(**asdict(room)),
            refusal=shown_refusal,
            remaining=now,
            remaining_after=then,
            closes=closing or None,
        )


def _closing(account: Account | None, asked: Demand) -> str:
    """Return what a job that fits closes, and what that costs later."""
    if account is None or not releases(asked.dp):
        return ""
    costs, _ = account.charge(asked.dp)
    closed: list[str] = []
    open_ones: list[str] = []
    for filter_ in account.filters:
        if filter_.holds:
            kind = filter_.filter.kind
            (open_ones if costs[kind] is not None else closed).append(FILTER_NAMES[kind])
    if not closed:
        return ""
    closing = (
        f"It closes {_listed(closed)} for good: later jobs count on {_listed(open_ones)} alone"
    )
    whole = open_ones == [FILTER_NAMES[Kind.BASIC]]
    return f"{closing}, where the ε of every job adds up." if whole else f"{closing}."


def _listed(names: Sequence[str]) -> str:
    """Return names of filters in a sentence: "the filters Rényi and Gaussian"."""
    if len(names) == 1:
        return f"the filter {names[0]}"
    return f"the filters {', '.join(names[:-1])} and {names[-1]}"


def count_shape(terms: Terms, policy: Policy) -> Shape | None:
    """Return what a noisy count asks; None where the policy admits none, or there is no price."""
    return None if policy.mechanisms and COUNT not in policy.mechanisms else _count_shape(terms)


@lru_cache(maxsize=1024)
def _count_shape(terms: Terms) -> Shape | None:
    mechanism: Mechanism[Any] | None = mechanisms.MECHANISMS.get(COUNT)
    if mechanism is None:
        return None
    try:
        return Shape.of(price_of(mechanism, mechanism.parse({}, terms), terms), terms.delta)
    except InvalidRequest:
        return None


def refusal_shown(
    refusal: Mapping[str, Any] | None, settlement: str, realized_shown: bool
) -> dict[str, Any] | None:
    """Return a refusal as its reader may see it.

    Where realized ex-post costs are settled, the rest of their caps depends on the data. A reader
    who may not see those costs is shown the binding cap and the request, but neither the rest nor
    what would fit.
    """
    if refusal is None:
        return None
    if realized_shown or settlement != Settlement.REALIZED or refusal.get("cap") != "ex-post":
        return dict(refusal)
    why = (
        "its cap is more than what is left, which depends on the data and is for stewards and "
        "auditors"
    )
    return {**refusal, "left": NOT_SHOWN, "why": why, "size_field": None, "largest": None}


# --- a part of what is left --------------------------------------------------------------------


def _rest(left: int, share: Fraction) -> int:
    """Return the part of what is left that is set aside; nothing of what is overdrawn."""
    return left - int(left * share) if left > 0 else 0


def _part_of_filters(account: Account, share: Fraction) -> Account:
    def one(each: FilterAccount) -> FilterAccount:
        aside = Amount(_rest(each.left.main, share), _rest(each.left.delta, share))
        return each._replace(reserved=each.reserved + aside)

    return replace(account, filters=tuple(map(one, account.filters)))


def _part_of_secret(account: SecretAccount, share: Fraction) -> SecretAccount:
    if account.kind is SecretKind.ONE:
        return account
    aside = _rest(account.limit - account.spent - account.reserved, share)
    return replace(account, reserved=account.reserved + aside)


# --- steps of a job ----------------------------------------------------------------------------


def _filter_steps(account: Account | None, asked: Demand) -> list[FilterStep]:
    if account is None or not releases(asked.dp):
        return []
    costs, whole = account.charge(asked.dp)
    shown = account.with_whole(True) if whole else account
    return [_step(filter_, costs[filter_.filter.kind]) for filter_ in shown.filters]


def _other_steps(accounts: Accounts, asked: Demand, hidden: bool) -> list[OtherStep]:
    steps = []
    if asked.ex_post:
        ex_post = accounts.ex_post
        left = None if hidden else ex_post.left
        steps.append(_row("ex-post", "ε", ex_post.limit, left, asked.ex_post))
    secret = None if accounts.secret is None else _secret(accounts, asked)
    return steps if secret is None else [*steps, secret]


def _step(each: FilterAccount, cost: Amount | None) -> FilterStep:
    return FilterStep(
        kind=str(each.filter.kind),
        before=each.share_with(ZERO),
        after=None if cost is None else each.share_with(cost),
        closed=bool(each.closed),
        limit=to_decimal(each.limit.main, EPSILON_UNITS),
        cost=None if cost is None else to_decimal(cost.main, EPSILON_UNITS),
        left=to_decimal(each.left.main, EPSILON_UNITS),
        left_after=None if cost is None else to_decimal(each.left.main - cost.main, EPSILON_UNITS),
    )


def _secret(accounts: Accounts, asked: Demand) -> OtherStep | None:
    account = accounts.secret
    assert account is not None
    if asked.secret is None and not releases(asked.dp):
        return None
    if asked.secret is not None and asked.secret.group != account.terms.group:
        return None  # it was priced before the secrets were declared as they are: it is refused
    one = account.kind is SecretKind.ONE
    units, unit = (DELTA_UNITS, "r") if one else (EPSILON_UNITS, "nats")
    cost = account.cost(asked.dp, asked.secret)
    free = max(account.limit - account.spent - account.reserved, 0)
    if one and account.jobs:
        free = 0
    return _row("secret", unit, account.limit, free, cost, units)


def _row(
    name: str, unit: str, limit: int, left: int | None, cost: int | None, units: int = EPSILON_UNITS
) -> OtherStep:
    after = None if left is None or cost is None else left - cost
    stated = {"limit": limit, "left": left, "cost": cost, "left_after": after}
    shown = {
        key: None if value is None else to_decimal(value, units) for key, value in stated.items()
    }
    return OtherStep(
        name=name,
        unit=unit,
        **shown,
        before=None if left is None else (limit - left) / (limit or 1),
        after=None if after is None else (limit - after) / (limit or 1),
    )


# --- in words -----------------------------------------------------------------------------------


def _sentence(
    overdrawn: bool, share: float, jobs: int | None, counts: int | None, likeness: str
) -> str:
    if overdrawn:
        return "Overdrawn: nothing that costs anything is admitted."
    left = f"{percent(share)} left"
    more = (
        f"one more job like {likeness}"
        if jobs == 1
        else f"{_number(jobs or 0)} more jobs like {likeness}"
    )
    counted = "one count" if counts == 1 else f"{_number(counts or 0)} counts"
    if jobs and counts:
        return f"{left}: {more}, or {counted}."
    if jobs or counts:
        lacking = f"no other job like {likeness}, but " if jobs == 0 else ""
        return f"{left}: {more if jobs else lacking + counted}."
    lacking = " or ".join(
        what
        for what, number in ((f"another job like {likeness}", jobs), ("a count", counts))
        if number == 0
    )
    return f"{left}, not enough for {lacking}." if lacking else f"{left}."


def _number(count: int) -> str:
    return f"over {_MANY:,}" if count > _MANY else f"{count:,}"


def percent(share: float) -> str:
    """Return a share of what is left as per cent, rounded down, or "less than one"."""
    if 0 < share < 0.01:
        return "Less than 1 %"
    # The last digits of a float are noise: 1 - 0.07 is 93 %.
    return f"{math.floor(round(100 * share, 9))} %"
