"""The cost of jobs on a dataset with secrets (DESIGN section 2, paper 003).

A secret is a piece of text that up to M records carry. Its statement: an attacker who guesses it
with probability at most p beforehand is right with probability at most r afterwards. The account is
of one of two kinds, fixed at creation:

    one     one job, by its blow-up function B(p) <= r;
    many    jobs add D_alpha(with || without) at one order, and (p e^D)^((alpha - 1) / alpha) <= r.

Adding r over jobs, as paper 003's Theorem 3 does, is false: docs/accounting.md has the example.
Probabilities are in 10^-21, divergences (nats) in 10^-9.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from scipy.special import ndtr, ndtri

from accountant.core.errors import invalid
from accountant.core.privacy import divergences
from accountant.core.privacy.blowup import GroupSampling, Without, blow_up, divergence
from accountant.core.privacy.events import (
    Allocated,
    AllocatedReplaced,
    Composed,
    EpsilonDelta,
    Event,
    Exponential,
    Gaussian,
    Laplace,
    PoissonReplaced,
    PoissonSampled,
    PoissonSwapped,
    SampledWithoutReplacement,
    SelfComposed,
    ZCDp,
)
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, exact, measured_up
from accountant.core.privacy.whole_jobs import summed_cost

MOST_RECORDS = 1000
LEAST_PRIOR = 1e-8
MOST_ROUNDS = 1000


class SecretKind(StrEnum):
    """The way in which a secret account composes. The names are stored."""

    ONE = "one"
    MANY = "many"


def _probability(value: object, field: str, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise invalid(field, f"{value!r} is out of range", f"a number from {low:g} to {high:g}")


@dataclass(frozen=True)
class SecretTerms:
    """A steward's declaration of a dataset's secrets: public, and the same for every job.

    `records` is the public cap M on the records that carry one secret, `rate` the public sampling
    rate of such records, `prior` p and `bound` r as above.
    """

    prior: float
    bound: float
    records: int
    rate: float
    without: Without

    def __post_init__(self) -> None:
        _probability(self.prior, "prior", LEAST_PRIOR, 0.5)
        _probability(self.bound, "bound", LEAST_PRIOR, 0.999)
        _probability(self.rate, "sampling_rate", 1e-6, 1.0)
        if self.prior >= self.bound:
            raise invalid(
                "prior", f"{self.prior!r} is not below the bound {self.bound!r}", "prior < bound"
            )
        records = self.records
        if (
            isinstance(records, bool)
            or not isinstance(records, int)
            or not 1 <= records <= MOST_RECORDS
        ):
            raise invalid(
                "records_per_secret", f"{records!r} is out of range", f"1 to {MOST_RECORDS}"
            )

    @property
    def group(self) -> GroupSampling:
        return GroupSampling(self.records, self.rate, self.without)

    def to_json(self) -> dict[str, Any]:
        return {
            "prior": self.prior,
            "bound": self.bound,
            "records_per_secret": self.records,
            "sampling_rate": self.rate,
            "neighbour": str(self.without),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SecretTerms":
        names = ("prior", "bound", "records_per_secret", "sampling_rate", "neighbour")
        if set(value) != set(names):
            raise invalid("secret", f"fields {sorted(value)}", ", ".join(names))
        if value["neighbour"] not in tuple(Without):
            raise invalid("neighbour", f"{value['neighbour']!r} is unknown", ", ".join(Without))
        prior, bound, rate = (
            float(value[name]) if isinstance(value[name], int) else value[name]
            for name in ("prior", "bound", "sampling_rate")
        )
        return cls(prior, bound, value["records_per_secret"], rate, Without(value["neighbour"]))


@dataclass(frozen=True)
class SecretRelease:
    """The release of a `secret` job: `rounds` fresh rounds of counts and centres with noise
    `sigma`.

    `sigma` is relative to one record's move of one count, and of one centre by 2R / n_k. Its
    meaning never changes; a new meaning is a new type.
    """

    records: int
    rate: float
    without: Without
    sigma: float
    rounds: int

    def __post_init__(self) -> None:
        _probability(self.rate, "sampling_rate", 1e-6, 1.0)
        _probability(self.sigma, "sigma", 1e-3, 1e9)
        for name, value, most in (
            ("records_per_secret", self.records, MOST_RECORDS),
            ("rounds", self.rounds, MOST_ROUNDS),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise invalid(name, f"{value!r} is out of range", f"1 to {most}")

    @property
    def group(self) -> GroupSampling:
        return GroupSampling(self.records, self.rate, self.without)

    def blow_up(self, prior: float) -> float:
        return blow_up(self.group, self.sigma, self.rounds, prior)

    def divergence(self, order: float) -> float:
        return divergence(self.group, self.sigma, self.rounds, order)

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "secret_release",
            "records_per_secret": self.records,
            "sampling_rate": self.rate,
            "neighbour": str(self.without),
            "sigma": self.sigma,
            "rounds": self.rounds,
        }

    @classmethod
    def from_json(cls, value: object) -> "SecretRelease":
        names = {"type", "records_per_secret", "sampling_rate", "neighbour", "sigma", "rounds"}
        if not isinstance(value, dict) or set(value) != names or value["type"] != "secret_release":
            raise invalid("secret", "not a secret_release", ", ".join(sorted(names)))
        if value["neighbour"] not in tuple(Without):
            raise invalid("neighbour", f"{value['neighbour']!r} is unknown", ", ".join(Without))
        rate, sigma = (
            float(value[n]) if isinstance(value[n], int) else value[n]
            for n in ("sampling_rate", "sigma")
        )
        without = Without(value["neighbour"])
        return cls(value["records_per_secret"], rate, without, sigma, value["rounds"])


# --- the order and the limit of a `many` account ------------------------------------------------


def best_order(prior: Fraction, bound: Fraction) -> Fraction:
    """Return the order that maximises (alpha/(alpha-1) ln r - ln p)/alpha: 1/(1 - sqrt(ln r / ln
    p)).

    To six decimals; any order is sound. That quotient is how many steps fit whose divergence is
    proportional to the order. A job of one large step (half a PIN) may need a larger order.
    """
    ratio = math.sqrt(math.log(float(bound)) / math.log(float(prior)))
    return Fraction(round(10**6 / (1 - ratio)), 10**6)


def divergence_limit(prior: Fraction, bound: Fraction, order: Fraction) -> float:
    """Return the largest D >= 0 with (p e^D)^((alpha-1)/alpha) <= r."""
    alpha = float(order)
    return max(0.0, alpha / (alpha - 1) * math.log(float(bound)) - math.log(float(prior)))


def bound_after(prior: Fraction, order: Fraction, spent: float) -> float:
    """Return the bound r after `spent` nats: (p e^D)^((alpha-1)/alpha), at most 1."""
    alpha = float(order)
    return math.exp(min(0.0, (math.log(float(prior)) + spent) * (alpha - 1) / alpha))


# --- what a `dp` job costs there ----------------------------------------------------------------


def group_size(neighbours: str, terms: SecretTerms) -> int:
    """Return the number of neighbouring steps from a dataset with a secret to the one without it.

    Raises InvalidRequest for removal under replace-one, which no number of replacements reaches.
    """
    if neighbours == "replace-one":
        if terms.without is Without.REMOVED:
            raise invalid("neighbour", "removal can't be priced under replace-one", "redacted")
        return terms.records
    return terms.records * (2 if terms.without is Without.REDACTED else 1)


def group_divergence(event: Event, order: Fraction, size: int) -> Fraction | None:
    """Return D_order of `event` between datasets `size` neighbouring steps apart; None if
    unbounded.

    Computed release by release, so that an early stop returns exactly what was not used. Each
    release takes the least of: mu-GDP, (size mu)-GDP for the group (Dong et al. 2022, Theorem
    2.14); rho-zCDP, size^2 rho (Bun and Steinke 2016, Proposition 27); pure epsilon, size *
    epsilon; Laplace noise `size` times finer. Sampling is ignored: the same coins are tossed for
    both datasets, and divergence is quasi-convex, so the worst case is that the whole group takes
    part.
    """
    match event:
        case SelfComposed(inner, count):
            cost = group_divergence(inner, order, size)
            return None if cost is None else cost * count
        case Composed(events):
            parts = [group_divergence(part, order, size) for part in events]
            return None if None in parts else sum(filter(None, parts), Fraction(0))
        case PoissonSampled() | PoissonReplaced() | PoissonSwapped() | SampledWithoutReplacement():
            return group_divergence(event.event, order, size)
        case Allocated() | AllocatedReplaced():
            return group_divergence(event.plain, order, size)  # a group has several coins
        case _:
            return _group_leaf(event, order, size)


def _group_leaf(event: Event, order: Fraction, size: int) -> Fraction | None:
    leaves = []
    mu_squared = divergences.gaussian_mu_squared(event)
    if mu_squared is not None:
        leaves.append(order * size**2 * mu_squared / 2)
    rho = _zcdp(event)
    if rho is not None:
        leaves.append(order * size**2 * rho)
    pure = divergences.pure_epsilon(event)
    if pure is not None:
        joint = (
            divergences.renyi(EpsilonDelta(float(pure * size), 0.0), order)
            if pure < 10**6
            else None
        )
        leaves.append(pure * size if joint is None else joint)
    if isinstance(event, Laplace):
        finer = divergences.renyi(Laplace(event.noise_multiplier / size), order)
        if finer is not None:
            leaves.append(finer)
    return min(leaves, default=None)


def _zcdp(event: Event) -> Fraction | None:
    """Return the rho of the release (of alternatives: the largest), or None."""
    match event:
        case ZCDp(rho):
            return Fraction(rho)
        case Gaussian(multiplier):
            return 1 / (2 * Fraction(multiplier) ** 2)
        case Exponential(shift):
            return Fraction(shift) ** 2 / 2
        case SelfComposed(inner, count):
            once = _zcdp(inner)
            return None if once is None else once * count
    parts = getattr(event, "events", None)
    if parts is None:
        return None
    costs = [_zcdp(part) for part in parts]
    if None in costs:
        return None
    known_costs = [cost for cost in costs if cost is not None]
    return sum(known_costs, Fraction(0)) if isinstance(event, Composed) else max(known_costs)


#: Orders at which a job's blow-up is bounded where it has no exact form.
_ORDERS = tuple(1 + Fraction(2) ** step for step in range(-3, 11))


def group_blow_up(event: Event, prior: float, size: int) -> float:
    """Return B(`prior`) of a whole `dp` job for a group of `size`: the least of the applicable
    bounds.

    Gaussian: Phi(Phi^-1(p) + size mu). Pure: the least of e^E p and 1 - e^-E (1 - p), E the
    group's. Rényi: (p e^D)^((alpha - 1) / alpha) over a fixed set of orders. Stated (epsilon,
    delta): e^E p and delta (e^E - 1) / (e^epsilon - 1), the group's delta (Vadhan 2017, Lemma 2.2).
    At most 1.
    """
    factors = [1.0]
    epsilon, delta = summed_cost(event) or (0, 0)
    if delta and epsilon * size < 700 * EPSILON_UNITS:
        once = epsilon / EPSILON_UNITS
        spread = math.expm1(size * once) / math.expm1(once) if once else float(size)
        factors.append(math.exp(size * once) * prior + delta / DELTA_UNITS * spread)
    mu_squared = divergences.gaussian_mu_squared(event)
    if mu_squared is not None:
        factors.append(float(ndtr(ndtri(prior) + size * math.sqrt(mu_squared))))
    pure = divergences.pure_epsilon(event)
    if pure is not None:
        joint = min(float(pure * size), 700.0)
        factors.append(min(math.exp(joint) * prior, 1 - math.exp(-joint) * (1 - prior)))
    for order in _ORDERS:
        cost = group_divergence(event, order, size)
        if cost is None:
            break
        factors.append(bound_after(exact(prior), order, float(cost)))
    return min(1.0, float(measured_up(min(factors))))
