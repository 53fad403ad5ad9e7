"""The decision on a job, as a value: admitted, needs approval, or refused with a reason.

Pure. The ledger calls it inside the transaction that locks the account's row; quotes and previews
call it to show the decision in advance.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from accountant.core.ledger.policy import Policy
from accountant.core.privacy import composition
from accountant.core.privacy.events import Event, spends, stated_delta
from accountant.core.privacy.filters import ZERO, Amount, Costs, Filter, Kind, price_on
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, exact, to_decimal, up
from accountant.core.privacy.whole_jobs import whole_cost

UNIT_NAMES: Mapping[Kind, str] = {
    Kind.RENYI: "Rényi divergence",
    Kind.GAUSSIAN: "μ²",
    Kind.RENYI_LOW: "Rényi divergence",
    Kind.BASIC: "ε",
}


@dataclass(frozen=True)
class Part:
    """One part of a filter's limit, named as refusals name it, with decimals in its unit."""

    cap: str
    unit: str
    left: str
    asked: str
    limit: str


class FilterAccount(NamedTuple):
    """One filter with its balances. `closed` counts the live steps that it could not price."""

    filter: Filter
    limit: Amount
    spent: Amount = ZERO
    reserved: Amount = ZERO
    closed: int = 0

    @property
    def used(self) -> Amount:
        return self.spent + self.reserved

    @property
    def left(self) -> Amount:
        return self.limit - self.used

    @property
    def holds(self) -> bool:
        """True if the filter's guarantee covers everything charged so far."""
        return self.admits(ZERO)

    def share_with(self, cost: Amount) -> float:
        """Return the used share of the fuller part with `cost` added; a limit of 0 is full."""
        used, limit = self.used + cost, self.limit
        main = used.main / limit.main if limit.main else float(max(used.main, 1))
        return max(main, used.delta / (limit.delta or 1))

    def part_that_binds(self, cost: Amount) -> "Part":
        """Return the part of the limit that repeating `cost` exhausts first (δ or ε)."""
        short = cost.delta and self.left.delta // cost.delta < self.left.main // max(cost.main, 1)
        if short:
            amounts, units, unit, cap = (
                (self.left.delta, cost.delta, self.limit.delta),
                DELTA_UNITS,
                "δ",
                " δ",
            )
        else:
            amounts, units = (self.left.main, cost.main, self.limit.main), EPSILON_UNITS
            unit, cap = UNIT_NAMES[self.filter.kind], ""
        left, asked, limit = (to_decimal(max(amount, 0), units) for amount in amounts)
        return Part(f"{self.filter.kind}{cap}", unit, left, asked, limit)

    def number_of(self, cost: Amount) -> int:
        """Return the number of times that `cost` fits what is left, in both of its parts."""
        parts = ((self.left.main, cost.main), (self.left.delta, cost.delta))
        return min((max(left, 0) // part for left, part in parts if part > 0), default=0)

    def admits(self, cost: Amount | None) -> bool:
        """Return True if the filter would still hold with `cost` added."""
        if self.closed or cost is None:
            return False
        spent, held, limit = self.spent, self.reserved, self.limit
        return (
            spent.main + held.main + cost.main <= limit.main
            and spent.delta + held.delta + cost.delta <= limit.delta
        )


@dataclass(frozen=True)
class Account:
    """The `dp` account of a dataset: its allowance, in units, and the portfolio of filters."""

    epsilon: int
    delta: int
    filters: tuple[FilterAccount, ...]

    def costs(self, event: Event) -> Costs:
        """Return the cost of `event` on each filter of this account."""
        return price_on(tuple(filter_.filter for filter_ in self.filters), event)

    def admitting(self, costs: Costs) -> tuple[Kind, ...]:
        """Return the filters that would still hold with these costs added."""
        return tuple(e.filter.kind for e in self.filters if e.admits(costs[e.filter.kind]))

    def charge(self, event: Event, costs: Costs | None = None) -> tuple[Costs, bool]:
        """Return the costs that a job reserves, and whether it takes the account for whole jobs
        (`whole_costs`).

        `costs`: those of the event on each filter, where they are known.
        """
        costs = self._beside_deltas(event, self.costs(event) if costs is None else costs)
        if not spends(event) or self.admitting(costs):
            return costs, False
        alone = self.whole_costs(event, self.epsilon, self.delta) if self.untouched else None
        return (costs, False) if alone is None else (alone, True)

    def _beside_deltas(self, event: Event, costs: Costs) -> Costs:
        """Return the costs, once the job's delta fits the basic filter's part of delta.

        That part pays the deltas of (epsilon, delta) releases for all filters, so it is never
        passed (docs/accounting.md, 3.6). A job with such a delta that doesn't fit has no price
        elsewhere. Another job closes the basic filter where its delta would leave less than half,
        if another filter admits as many of its shape: half is kept for (epsilon, delta) releases.
        """
        basic, cost = self.filters[-1], costs[Kind.BASIC]
        stated = stated_delta(event)
        if cost is None:
            return costs if not stated else dict.fromkeys(Kind)
        after, limit = basic.used.delta + cost.delta, basic.limit.delta
        if stated:
            return costs if after <= limit else {**dict.fromkeys(Kind), Kind.BASIC: cost}
        if not cost.delta or after <= limit // 2:
            return costs
        number, others = basic.number_of(cost), {**costs, Kind.BASIC: None}
        kept = any(
            filter_.admits(other) and other is not None and filter_.number_of(other) >= number
            for filter_, other in zip(self.filters, others.values(), strict=True)
        )
        return others if kept else costs

    def overdraft_costs(self, event: Event) -> Costs:
        """Return the costs of a release that has happened and fits no filter.

        Where only its delta is beyond the basic filter's part, and another filter is open, it
        closes the basic one: a larger epsilon can then cover it.
        """
        costs, basic = self.costs(event), self.filters[-1]
        cost, stated = costs[Kind.BASIC], stated_delta(event)
        if cost is None:
            return dict.fromkeys(Kind) if stated else costs
        others = any(not e.closed and costs[e.filter.kind] is not None for e in self.filters[:-1])
        if stated or not others or basic.used.delta + cost.delta <= basic.limit.delta:
            return costs
        return {**costs, Kind.BASIC: None}

    def whole_costs(self, event: Event, epsilon: int, delta: int) -> Costs | None:
        """Return the costs of a first job that no filter admits, under this allowance; None: it
        doesn't fit either.

        It closes all filters but the basic one, whose limit becomes the whole allowance: nothing
        has been released, so which filters may ever hold is not chosen by any result
        (docs/accounting.md, 11.2).
        """
        if not epsilon or not delta:
            return None
        cost = whole_cost(event, delta, epsilon)
        if cost is None or not cost[1] or not Amount(*cost).fits(Amount(epsilon, delta)):
            return None
        return {**dict.fromkeys(Kind), Kind.BASIC: Amount(*cost)}

    @property
    def untouched(self) -> bool:
        """True if nothing that costs anything is charged."""
        return all(filter_.closed == 0 and filter_.used == ZERO for filter_ in self.filters)

    @property
    def holds(self) -> bool:
        """True if a filter's guarantee covers everything charged so far, with its deltas."""
        basic = self.filters[-1]
        paid = basic.spent.delta + basic.reserved.delta <= basic.limit.delta
        return paid and any(filter_.holds for filter_ in self.filters)

    @property
    def whole(self) -> bool:
        """True if the basic filter has all of delta, as whole jobs are all that may be charged."""
        basic = self.filters[-1]
        return basic.limit.delta > basic.filter.limit(self.epsilon, self.delta).delta

    def with_whole(self, whole: bool) -> "Account":
        """Return the account with all of delta on the basic filter, or with that filter's share."""
        limits = limits_of(
            [filter_.filter for filter_ in self.filters], self.epsilon, self.delta, whole
        )
        moved = tuple(
            old._replace(limit=limit) for old, limit in zip(self.filters, limits, strict=True)
        )
        return replace(self, filters=moved)

    def fits(self, event: Event) -> bool:
        """Return True if a job with this event would be admitted, regardless of policy."""
        costs, whole = self.charge(event)
        return not spends(event) or whole or bool(self.admitting(costs))


def limits_of(filters: Sequence[Filter], epsilon: int, delta: int, whole: bool) -> list[Amount]:
    """Return the filters' limits. `whole`: the account's basic filter has all of delta."""
    limits = [filter_.limit(epsilon, delta) for filter_ in filters]
    return [*limits[:-1], Amount(epsilon, delta)] if whole else limits


@dataclass(frozen=True)
class Admitted:
    """The job may be reserved now. `filters` are those that still hold with it."""

    costs: Costs
    filters: tuple[Kind, ...]


@dataclass(frozen=True)
class NeedsApproval:
    """The job fits, but a steward must approve it first."""

    costs: Costs
    why: str


@dataclass(frozen=True)
class Refused:
    """The job doesn't fit. `cap` names the binding limit; `left` and `asked` are decimals in its
    unit.

    `largest` is the largest value of the mechanism's size field that would fit, if there is one.
    """

    cap: str
    left: str
    asked: str
    why: str
    size_field: str | None = None
    largest: int | float | None = None
    #: The first day on which what is released then would admit the job, in words.
    until: str | None = None

    def with_largest(self, size_field: str, largest: int | float | None) -> "Refused":
        return replace(self, size_field=size_field, largest=largest)

    def to_json(self) -> dict[str, Any]:
        return {
            "cap": self.cap,
            "left": self.left,
            "asked": self.asked,
            "why": self.why,
            "size_field": self.size_field,
            "largest": self.largest,
        }


@dataclass(frozen=True)
class Waits:
    """It fits, and is admitted once enough is released (fair_use.py)."""

    costs: Costs
    why: str


Decision = Admitted | NeedsApproval | Refused | Waits


def delta_of(allowed: int | None) -> float:
    """Return the δ at which jobs are stated alone: the allowance's (in units), or else 1e-6."""
    return allowed / DELTA_UNITS if allowed else 1e-6


def overdraft_delta(event: Event, delta: float) -> float:
    """Return the δ at which an overdraft is stated alone: the allowance's, beside its own if that
    is no less (docs/accounting.md, section 3.4).
    """
    stated = stated_delta(event)
    return delta if stated < delta else float(stated) + delta


@lru_cache(maxsize=4096)
def alone(event: Event, delta: float) -> float:
    """Return the epsilon of a job by itself, as every verifier computes it."""
    return composition.epsilon_alone(event, delta)[0]


def decide(
    account: Account | None, event: Event, epsilon_alone: float, policy: Policy, approved: bool
) -> Decision:
    """Decide on a job whose whole cost is `event`. `approved` is true once a steward has approved
    it.

    A job without any release is free, and admitted even if nothing is left. `epsilon_alone` is said
    in refusals. A policy approves by what every verifier computes, which may be more.
    """
    free = not spends(event)
    if account is None:
        if free:
            return Admitted({}, ())
        return Refused(
            "allowance", "0", f"{up(epsilon_alone, 6):.6g}", "the dataset has no (ε, δ) allowance"
        )
    costs, whole = account.charge(event)
    admitting = (Kind.BASIC,) if whole else account.admitting(costs)
    if not free and not admitting:
        return _refusal(account, event, costs, epsilon_alone)
    if free or approved or policy.approves(alone(event, delta_of(account.delta))):
        return Admitted(costs, admitting)
    limit = policy.auto_approve_epsilon
    why = (
        "every job needs a steward's approval"
        if exact(limit) == 0
        else f"more than ε {limit} by itself"
    )
    return NeedsApproval(costs, why)


def _refusal(account: Account, event: Event, costs: Costs, epsilon_alone: float) -> Refused:
    """Return the refusal, naming the filter that comes nearest to admitting the job."""

    def shortfall(each: FilterAccount) -> Fraction:
        cost = costs[each.filter.kind]
        if each.closed or cost is None:
            return Fraction(10**30)
        parts = ((cost.main, each.left.main), (cost.delta, each.left.delta))
        return max(Fraction(asked - min(left, asked), asked) for asked, left in parts if asked)

    basic, whole = account.filters[-1], costs[Kind.BASIC]
    if stated_delta(event) and whole is not None and whole.delta > basic.left.delta:
        left, asked = (to_decimal(d, DELTA_UNITS) for d in (max(basic.left.delta, 0), whole.delta))
        why = f"it needs δ {asked} for what is known by (ε, δ) alone, and {left} is left for that"
        return Refused(f"{Kind.BASIC} δ", left, asked, why)
    nearest = min(account.filters, key=shortfall)
    cost = costs[nearest.filter.kind]
    kind = nearest.filter.kind
    allowance = (
        f"({to_decimal(account.epsilon, EPSILON_UNITS)}, {to_decimal(account.delta, DELTA_UNITS)})"
    )
    if cost is None or nearest.closed:
        why = f"every filter of {allowance} is closed"
        return Refused(str(kind), "0", f"{up(epsilon_alone, 6):.6g}", why)
    bound = nearest.part_that_binds(cost)
    why = (
        f"the job costs {bound.asked} of {bound.unit} on the {kind} filter, {bound.left} is left "
        f"of {bound.limit}; no other filter of {allowance} comes nearer"
    )
    return Refused(bound.cap, bound.left, bound.asked, why)
