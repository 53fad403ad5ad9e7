"""The portfolio of privacy filters that a dataset's `dp` account holds (DESIGN section 2).

An analyst chooses each job after seeing the last result, so the parameters are adaptive. Each
filter bounds the loss of such a sequence while its own sum fits its limit, except with probability
its share of delta; outcomes are partitioned by which filter is the first to hold, so the shares add
up to delta. A job is admitted while at least one filter fits everything so far and the job.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

import scipy  # scipy.optimize is loaded at its first use: most processes never need it

from accountant.core.errors import invalid
from accountant.core.privacy import divergences, whole_jobs
from accountant.core.privacy.composition import conversion, gaussian_mu
from accountant.core.privacy.events import Event, without_deltas
from accountant.core.privacy.units import (
    DELTA_UNITS,
    EPSILON_UNITS,
    measured_down,
    round_allowance,
    round_price,
)


class Kind(StrEnum):
    """The four kinds of filters. Their names are stored and never change their meaning."""

    RENYI = "renyi"
    GAUSSIAN = "gaussian"
    RENYI_LOW = "renyi2"
    BASIC = "basic"


DEFAULT_SHARES: dict[Kind, Fraction] = {
    Kind.RENYI: Fraction(5, 10),
    Kind.GAUSSIAN: Fraction(3, 10),
    Kind.RENYI_LOW: Fraction(1, 10),
    Kind.BASIC: Fraction(1, 10),
}

MOST_ORDER = 10**12

#: Order of the first filter less 1, as a part of the best order's less 1. The divergence of a
#: sample jumps from some order on, often just below the best; standing lower costs other jobs less
#: than 1 %.
FIRST = Fraction(24, 25)

#: Order of the third filter less 1, as a part of the first's. Some divergences jump lower still;
#: much lower orders would have no limit left.
LOW = Fraction(5, 8)

SOURCES: dict[Kind, str] = {
    Kind.RENYI: "Feldman and Zrnic 2021",
    Kind.GAUSSIAN: "Smith and Thakurta 2022",
    Kind.RENYI_LOW: "Feldman and Zrnic 2021",
    Kind.BASIC: "Rogers et al. 2016",
}


@dataclass(frozen=True)
class Amount:
    """The cost of a step on one filter, or the filter's limit.

    `main` is in 10^-9 (Rényi divergence, mu^2 or epsilon, as the filter counts), `delta` in 10^-21
    and used by the basic filter alone.
    """

    main: int
    delta: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.main + other.main, self.delta + other.delta)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.main - other.main, self.delta - other.delta)

    def fits(self, limit: "Amount") -> bool:
        """Return True if both parts are within `limit`."""
        return self.main <= limit.main and self.delta <= limit.delta


ZERO = Amount(0)

#: Cost of an event per filter; None: this filter can't price it and closes.
Costs = dict[Kind, Amount | None]


@dataclass(frozen=True)
class Filter:
    """One filter of one dataset: its kind, its share of delta and, if it has one, its Rényi order.

    Fixed when the first allowance is given; a raised allowance keeps them. The basic filter alone
    has the last two fields. `step_delta` is the most delta that one job may pay, in 10^-21; if 0,
    a job that is not pure closes the filter. `whole_epsilon`, in 10^-9, is the epsilon against
    which a job's delta is chosen.
    """

    kind: Kind
    share: Fraction
    order: Fraction | None = None
    step_delta: int = 0
    whole_epsilon: int = 0

    def __hash__(self) -> int:
        # Without the fractions: hashing them costs more than all else of a look into a cache of
        # prices.
        return hash((self.kind, self.step_delta, self.whole_epsilon))

    def limit(self, epsilon: int, delta: int) -> Amount:
        """Return the filter's total limit under (`epsilon`, `delta`), in units."""
        eps, own_delta = epsilon / EPSILON_UNITS, float(self.share * delta / DELTA_UNITS)
        if self.kind is Kind.BASIC:
            return Amount(epsilon, math.floor(self.share * delta))
        if own_delta == 0 or eps == 0:
            return ZERO
        if self.order is not None:
            left = Fraction(epsilon, EPSILON_UNITS) - Fraction(conversion(self.order, own_delta))
            allowed = measured_down(max(float(left), 0.0))
        else:
            allowed = measured_down(gaussian_mu(eps, own_delta) ** 2)
        return Amount(math.floor(allowed * EPSILON_UNITS))

    def cost(self, event: Event) -> Amount | None:
        """Return the cost of `event` here, rounded up; None if this filter can't price it, which
        closes it.

        The deltas of (epsilon, delta) releases are paid once, from the basic filter's part
        (`admission.Account.charge`).
        """
        match self.kind:
            case Kind.RENYI | Kind.RENYI_LOW:
                assert self.order is not None
                price = divergences.renyi(without_deltas(event), self.order)
            case Kind.GAUSSIAN:
                price = divergences.gaussian_mu_squared(without_deltas(event))
            case Kind.BASIC:
                found = whole_jobs.whole_cost(event, self.step_delta, self.whole_epsilon)
                return None if found is None else Amount(*found)
        return None if price is None else Amount(round_price(price, EPSILON_UNITS))

    def least_share(self, event: Event) -> Fraction | None:
        """Return what tells the smaller of two jobs, where a job's delta is chosen for it."""
        if self.kind is not Kind.BASIC:
            return None
        return whole_jobs.least_share(event, self.step_delta, self.whole_epsilon)


def portfolio(
    epsilon: int,
    delta: int,
    shares: Mapping[Kind, Fraction] | None = None,
    order: Fraction | None = None,
) -> tuple[Filter, ...]:
    """Return the filters of a new account with (`epsilon`, `delta`) in units.

    `shares` and `order` (of the first filter; the third follows) are the steward's, by default the
    standard ones. Raises InvalidRequest if a share is missing or negative, the shares together
    exceed 1, or the order is not above 1.
    """
    shares = DEFAULT_SHARES if shares is None else shares
    if set(shares) != set(Kind):
        raise invalid("shares", f"{sorted(shares)}", "one share for each of " + ", ".join(Kind))
    for kind, share in shares.items():
        if not 0 <= share <= 1:
            raise invalid(f"shares.{kind}", f"{share} is out of range", "0 to 1")
    if sum(shares.values()) > 1:
        raise invalid(
            "shares", f"they add up to {float(sum(shares.values()))}", "at most 1 together"
        )
    if order is None:
        order = 1 + FIRST * (best_order(epsilon, delta, shares[Kind.RENYI]) - 1)
    if not 1 < order <= MOST_ORDER:
        raise invalid(
            "order", f"{float(order):g} is out of range", f"above 1, up to {MOST_ORDER:,}"
        )
    orders = {Kind.RENYI: order, Kind.RENYI_LOW: 1 + LOW * (order - 1)}
    step = math.floor(shares[Kind.BASIC] * delta)
    made = [Filter(kind, shares[kind], orders.get(kind)) for kind in Kind]
    made[-1] = replace(made[-1], step_delta=step, whole_epsilon=epsilon)
    return tuple(made)


def best_order(epsilon: int, delta: int, share: Fraction) -> Fraction:
    """alpha*: the order that maximises B(alpha)/alpha, to six decimals (any order is sound)."""
    eps, own_delta = epsilon / EPSILON_UNITS, float(share * delta / DELTA_UNITS)
    if eps == 0 or own_delta == 0:
        return Fraction(2)

    def negated(log_order: float) -> float:
        order = 1 + math.exp(log_order)
        return -(eps - conversion(order, own_delta)) / order

    grid = [-6 + 0.25 * step for step in range(97)]
    start = min(grid, key=negated)
    found = scipy.optimize.minimize_scalar(
        negated, bounds=(start - 0.25, start + 0.25), method="bounded"
    )
    return Fraction(round((1 + math.exp(found.x)) * 10**6), 10**6)


def price_on(filters: tuple[Filter, ...], event: Event) -> Costs:
    """Return the cost of `event` on each filter."""
    return dict(_prices(filters, event))


@lru_cache(maxsize=4096)
def _prices(filters: tuple[Filter, ...], event: Event) -> tuple[tuple[Kind, Amount | None], ...]:
    # A decision, its entry and whoever replays it ask for the same figures, and jobs are often
    # alike.
    return tuple((filter_.kind, filter_.cost(event)) for filter_ in filters)


def granted(epsilon: object, delta: object) -> tuple[int, int]:
    """(epsilon, delta) of an allowance in units, checked and rounded down."""
    eps_units = round_allowance(epsilon, EPSILON_UNITS, "epsilon")  # type: ignore[arg-type]
    delta_units = round_allowance(delta, DELTA_UNITS, "delta")  # type: ignore[arg-type]
    if eps_units > 10**6 * EPSILON_UNITS:
        raise invalid("epsilon", f"{epsilon!r} is out of range", "0 to 1,000,000")
    if delta_units >= DELTA_UNITS:
        raise invalid("delta", f"{delta!r} is out of range", "0 <= delta < 1")
    return eps_units, delta_units
