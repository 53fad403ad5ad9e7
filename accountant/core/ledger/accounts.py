"""A dataset's accounts (`dp`, ex-post, secret) and the decision on a job over all of them (DESIGN
section 2).

The three never turn into one another: a job may cost several and must fit each. Amounts are
integers: 10^-9 for ex-post epsilon and divergence in nats, 10^-21 for r.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from accountant.core.errors import InvalidRequest, invalid
from accountant.core.ledger.admission import (
    Account,
    Admitted,
    Decision,
    NeedsApproval,
    Refused,
    Waits,
    decide,
)
from accountant.core.ledger.caps import NO_USAGE, Usage, beyond_caps, limits
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.fitting import fit, sizes_of
from accountant.core.privacy.composition import epsilon_alone as alone
from accountant.core.privacy.events import FREE, Event, spends
from accountant.core.privacy.price import Price, Terms
from accountant.core.privacy.secrets import (
    SecretKind,
    SecretRelease,
    SecretTerms,
    best_order,
    divergence_limit,
    group_blow_up,
    group_divergence,
    group_size,
)
from accountant.core.privacy.units import (
    DELTA_UNITS,
    EPSILON_UNITS,
    exact,
    measured_down,
    measured_up,
    read_amount,
    read_fraction,
    round_allowance,
    round_price,
    to_decimal,
)


class Settlement(StrEnum):
    """The amount that a finished ex-post job leaves charged: its cap, or its realized cost."""

    PLANNED = "planned"
    REALIZED = "realized"


@dataclass(frozen=True)
class ExPostAccount:
    """The sum of ex-post jobs' caps. The allowance is 0 unless a steward raises it.

    Under `realized`, differences return or overdraw when a job ends, so `spent` may pass `limit`.
    `hidden`: replayed from a public export, which shows no realized cost; `spent` then says
    nothing.
    """

    limit: int = 0
    spent: int = 0
    reserved: int = 0
    settlement: Settlement = Settlement.PLANNED
    hidden: bool = False

    @property
    def left(self) -> int:
        return self.limit - self.spent - self.reserved

    def admits(self, cap: int) -> bool:
        return self.hidden or cap <= self.left


NO_EX_POST = ExPostAccount()


@dataclass(frozen=True)
class SecretAccount:
    """The account of a dataset's secrets. Everything but the bound r is fixed at creation.

    `spent` and `reserved` are nats (10^-9) for a `many` account, r (10^-21) for a `one` account.
    `group` is the number of neighbouring steps in a whole secret; `jobs` counts those not voided.
    """

    terms: SecretTerms
    kind: SecretKind
    neighbours: str
    order: Fraction | None
    spent: int = 0
    reserved: int = 0
    jobs: int = 0

    @property
    def group(self) -> int:
        return group_size(self.neighbours, self.terms)

    @property
    def limit(self) -> int:
        bound = exact(self.terms.bound, "bound")
        if self.kind is SecretKind.ONE:
            return math.floor(bound * DELTA_UNITS)
        assert self.order is not None
        allowed = divergence_limit(exact(self.terms.prior, "prior"), bound, self.order)
        return math.floor(measured_down(allowed) * EPSILON_UNITS)

    def cost(self, dp: Event, release: SecretRelease | None) -> int | None:
        """Return the cost of a job with these two parts, rounded up, or None if it has no price."""
        if release is not None and release.group != self.terms.group:
            raise invalid("secret", "its records, rate or neighbour are not the dataset's")
        if self.kind is SecretKind.ONE:
            return self._cost_of_one(dp, release)
        assert self.order is not None
        total = Fraction(0)
        if spends(dp):
            joint = group_divergence(dp, self.order, self.group)
            if joint is None:
                return None
            total += joint
        if release is not None:
            divergence = release.divergence(float(self.order))
            if not math.isfinite(divergence):
                return None
            total += measured_up(divergence)
        return round_price(total, EPSILON_UNITS)

    def _cost_of_one(self, dp: Event, release: SecretRelease | None) -> int | None:
        if release is not None and spends(dp):
            return None  # the joint blow-up of both has no form here
        prior = self.terms.prior
        bound = group_blow_up(dp, prior, self.group) if release is None else release.blow_up(prior)
        return round_price(measured_up(bound), DELTA_UNITS)

    def admits(self, cost: int) -> bool:
        if self.kind is SecretKind.ONE:
            return self.jobs == 0 and cost <= self.limit
        return self.spent + self.reserved + cost <= self.limit


def new_secret_account(
    terms: SecretTerms, kind: SecretKind, neighbours: str, order: Fraction | None = None
) -> SecretAccount:
    """Return a new account. `order` is that of a `many` account; None: the one that admits most
    small jobs.

    Raises InvalidRequest for an order of at most 1, or if the dataset's neighbours can't reach
    "without".
    """
    group_size(neighbours, terms)
    if kind is SecretKind.ONE:
        if order is not None:
            raise invalid("order", "an account of one exact job has none", "nothing")
        return SecretAccount(terms, kind, neighbours, None)
    if order is None:
        order = best_order(exact(terms.prior, "prior"), exact(terms.bound, "bound"))
    if not 1 < order <= 10**6:
        raise invalid("order", f"{float(order):g} is out of range", "above 1, up to 1,000,000")
    return SecretAccount(terms, kind, neighbours, order)


# --- what a job asks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Demand:
    """A job's request in each currency: an event, a cap (10^-9) and a secret release."""

    dp: Event = FREE
    ex_post: int = 0
    secret: SecretRelease | None = None


NOTHING = Demand()


def demand(price: Price) -> Demand:
    """Return the price as a demand on the three accounts."""
    cap = 0 if price.ex_post_cap is None else round_price(price.ex_post_cap, EPSILON_UNITS)
    release = None if price.secret is None else SecretRelease.from_json(price.secret["release"])
    return Demand(FREE if price.dp is None else price.dp, cap, release)


@dataclass(frozen=True)
class Accounts:
    """The three accounts of a dataset."""

    dp: Account | None = None
    ex_post: ExPostAccount = NO_EX_POST
    secret: SecretAccount | None = None
    #: A correction or an overdraft passed an allowance, and no later one covers it yet.
    uncovered: bool = False

    @property
    def overdrawn(self) -> bool:
        """True if nothing that costs anything is admitted, until an allowance covers it."""
        return self.uncovered or self.passed

    @property
    def passed(self) -> bool:
        """True if more is charged on one of the accounts than it allows, which only a correction
        or an overdraft can cause.

        An ex-post account that settles realized costs is excepted: it may pass its allowance by
        itself.
        """
        if self.dp is not None and not self.dp.holds:
            return True
        ex_post = self.ex_post
        if ex_post.settlement is Settlement.PLANNED and ex_post.left < 0 and not ex_post.hidden:
            return True
        secret = self.secret
        return secret is not None and (
            secret.spent + secret.reserved > secret.limit
            or (secret.kind is SecretKind.ONE and secret.jobs > 1)
        )

    def fits(self, asked: Demand) -> bool:
        """Return True if every account has enough left for the job, regardless of policy."""
        if beyond_dp(self, asked, True) is not None:
            return False
        return not spends(asked.dp) or (self.dp is not None and self.dp.fits(asked.dp))


def without_realized(accounts: Accounts) -> Accounts:
    """Return the accounts by public figures: realized ex-post costs count as zero."""
    if accounts.ex_post.settlement is not Settlement.REALIZED:
        return accounts
    return replace(accounts, ex_post=replace(accounts.ex_post, spent=0, reserved=0))


def decide_job(
    accounts: Accounts,
    asked: Demand,
    epsilon_alone: float,
    policy: Policy,
    approved: bool,
    usage: Usage = NO_USAGE,
) -> Decision:
    """Decide on a job over all currencies and caps. `usage` is what its analyst and project already
    use. What only a later release admits waits for it if the policy says so.

    A job with an ex-post or secret part is never admitted automatically. The accounts are checked
    before the caps. What realized ex-post costs have left counts only once a steward has approved
    the job: otherwise anyone could recover the realized figure, digit by digit, from repeated
    requests or quotes.
    """
    refused = beyond_dp(
        accounts if approved else without_realized(accounts), asked, policy.secret_jobs
    )
    if refused is not None:
        return refused
    decision = decide(accounts.dp, asked.dp, epsilon_alone, policy, approved)
    capped = None if isinstance(decision, Refused) else beyond_caps(usage, policy, epsilon_alone)
    waits = capped is not None and capped.until is not None and policy.wait_for_release
    if capped is not None and not waits:
        return capped
    if (
        isinstance(decision, Admitted)
        and not approved
        and (asked.ex_post or asked.secret is not None)
    ):
        return NeedsApproval(decision.costs, "a job with an ex-post or secret part needs approval")
    if isinstance(decision, Admitted) and capped is not None:
        return Waits(decision.costs, capped.why)
    return decision


def beyond_dp(accounts: Accounts, asked: Demand, secret_jobs: bool) -> Refused | None:
    """Return the refusal of the ex-post or the secret account, or None."""
    if accounts.overdrawn and (asked.ex_post or asked.secret is not None or spends(asked.dp)):
        why = (
            "the account is overdrawn: nothing that costs anything is admitted until a new "
            "allowance covers it"
        )
        return Refused("overdrawn", "0", "-", why)
    if asked.ex_post:
        cap = to_decimal(asked.ex_post, EPSILON_UNITS)
        if accounts.secret is not None:
            return Refused(
                "secret", "0", cap, "ex-post jobs are refused while a secret statement stands"
            )
        if not accounts.ex_post.admits(asked.ex_post):
            left = to_decimal(max(accounts.ex_post.left, 0), EPSILON_UNITS)
            return Refused("ex-post", left, cap, f"its cap is ex-post ε {cap}, {left} is left")
    if asked.secret is not None and not secret_jobs:
        return Refused("policy", "0", "1", "the policy admits no jobs without record-level privacy")
    if asked.secret is not None and accounts.secret is None:
        return Refused("secret", "0", "1", "the dataset states no secrets, prior and bound")
    if accounts.secret is None or (asked.secret is None and not spends(asked.dp)):
        return None
    return _secret_refusal(accounts.secret, asked)


def _secret_refusal(account: SecretAccount, asked: Demand) -> Refused | None:
    if asked.secret is not None and asked.secret.group != account.terms.group:
        # It was priced before the dataset stated its secrets.
        return Refused("secret", "0", "1", "its records, rate or neighbour are not the dataset's")
    cost = account.cost(asked.dp, asked.secret)
    if cost is None:
        return Refused("secret", "0", "unbounded", "the job has no price on the secret account")
    if account.admits(cost):
        return None
    if account.kind is SecretKind.ONE:
        left = "0" if account.jobs else to_decimal(account.limit, DELTA_UNITS)
        asked_r = to_decimal(cost, DELTA_UNITS)
        why = (
            "its one exact job is taken"
            if account.jobs
            else f"its r is {asked_r}, {left} is allowed"
        )
        return Refused("secret", left, asked_r, why)
    left = to_decimal(max(account.limit - account.spent - account.reserved, 0), EPSILON_UNITS)
    nats = to_decimal(cost, EPSILON_UNITS)
    assert account.order is not None
    why = f"it costs {nats} nats at order {float(account.order):g}, {left} is left"
    return Refused("secret", left, nats, why)


def with_largest(
    refused: Refused,
    mechanism: Mechanism[Any],
    raw: Mapping[str, Any],
    terms: Terms,
    accounts: Accounts,
    policy: Policy | None = None,
    usage: Usage = NO_USAGE,
) -> Refused:
    """Return the refusal, completed with the largest request of this shape that every account and
    cap would admit.

    The size is the first of `sizes_of` at which any fits, or the cap if that is what does not fit;
    everything else stays as asked. Unchanged if that field does not affect the price.
    """
    sizes = sizes_of(mechanism, raw)
    if refused.cap == "ex-post" and "ex_post_cap" in mechanism.fields:
        sizes = ("ex_post_cap",)

    def affordable(price: Price) -> bool:
        if not accounts.fits(demand(price)):
            return False
        if policy is None or price.dp is None or not limits(policy):
            return True
        return beyond_caps(usage, policy, alone(price.dp, terms.delta)[0]) is None

    try:
        for size in sizes:  # where not even one fits, shorter ones may
            fitting = fit(mechanism, raw, terms, size, affordable)
            if fitting is not None:
                break
    except InvalidRequest:
        return refused
    return refused.with_largest(size, None if fitting is None else fitting.value)


# --- entries ------------------------------------------------------------------------------------


def entry_part(accounts: Accounts, asked: Demand) -> dict[str, Any]:
    """Return the optional keys `ex_post` and `secret` of a RESERVE, or of a COMMIT that realized
    `asked`.

    Raises InvalidRequest if the secret account has no price for the job.
    """
    part: dict[str, Any] = {}
    if asked.ex_post:
        part["ex_post"] = {"cap": str(asked.ex_post)}
    account = accounts.secret
    if account is not None and (asked.secret is not None or spends(asked.dp)):
        cost = account.cost(asked.dp, asked.secret)
        if cost is None:
            raise invalid("secret", "the job has no price on the secret account")
        release = None if asked.secret is None else asked.secret.to_json()
        part["secret"] = {"release": release, "cost": str(cost)}
    return part


def read_demand(event: Event, body: Mapping[str, Any]) -> Demand:
    """Return the demand that an entry states. Raises InvalidRequest or ValueError."""
    cap = read_amount(body["ex_post"]["cap"], "ex_post.cap") if "ex_post" in body else 0
    release = body["secret"]["release"] if "secret" in body else None
    return Demand(event, cap, None if release is None else SecretRelease.from_json(release))


def ex_post_json(limit: object, settlement: Settlement) -> dict[str, Any]:
    """Return the `ex_post` part of an ALLOW."""
    units = round_allowance(limit, EPSILON_UNITS, "ex_post")  # type: ignore[arg-type]
    return {"limit": to_decimal(units, EPSILON_UNITS), "settlement": str(settlement)}


def allow_ex_post(account: ExPostAccount, value: Mapping[str, Any]) -> ExPostAccount:
    """Return the account after an ALLOW with this `ex_post` part.

    Raises InvalidRequest if planned caps would pass it, or if figures that depend on the data would
    be shown as caps.
    """
    limit = round_allowance(value["limit"], EPSILON_UNITS, "ex_post")
    after = replace(account, limit=limit, settlement=Settlement(value["settlement"]))
    if account.hidden:  # it settles caps again only where nothing was charged
        planned = after.settlement is Settlement.PLANNED
        return replace(after, spent=0, hidden=False) if planned else after
    if (
        account.settlement is not after.settlement is Settlement.PLANNED
        and account.left != account.limit
    ):
        raise invalid("ex_post_settlement", "realized costs are charged already", "realized")
    if after.settlement is Settlement.PLANNED and after.left < 0:
        used = to_decimal(after.spent + after.reserved, EPSILON_UNITS)
        raise invalid("ex_post", f"{used} is spent or reserved already", f"at least {used}")
    return after


def secret_json(account: SecretAccount) -> dict[str, Any]:
    """Return the `secret` part of an ALLOW."""
    return {
        "terms": account.terms.to_json(),
        "kind": str(account.kind),
        "neighbours": account.neighbours,
        "order": None if account.order is None else str(account.order),
        "limit": str(account.limit),
    }


def allow_secret(
    account: SecretAccount | None, value: Mapping[str, Any], jobs: int
) -> SecretAccount:
    """Return the account after an ALLOW with this `secret` part; `jobs` were reserved before and
    not voided.

    Raises InvalidRequest if it comes after the first job (which would stand outside the statement),
    changes more than r, or states an r that is already passed.
    """
    order = None if value["order"] is None else read_fraction(value["order"], "secret.order")
    terms = SecretTerms.from_json(value["terms"])
    fresh = new_secret_account(terms, SecretKind(value["kind"]), value["neighbours"], order)
    if value["limit"] != str(fresh.limit):
        raise invalid(
            "secret.limit", f"{value['limit']} is not that of its terms", str(fresh.limit)
        )
    if account is None:
        if jobs:
            raise invalid("secret", "jobs that ran before would stand outside the statement")
        return fresh
    kept = replace(fresh, spent=account.spent, reserved=account.reserved, jobs=account.jobs)
    if replace(kept, terms=replace(terms, bound=account.terms.bound)) != account:
        raise invalid("secret", "only the bound of a secret account may change")
    if kept.spent + kept.reserved > kept.limit:
        raise invalid(
            "secret.bound", "more than that is spent or reserved already", "a larger bound"
        )
    return kept


# --- what holds now -----------------------------------------------------------------------------
