"""A job's price once more, by dp-accounting: the second calculation (docs/accounting.md, section
14).

What is found here is never more than a sound price: the divergence, mu^2 or epsilon of neighbours
that the event allows, by dp-accounting's accountants, walked by code of its own. So a price below
it is wrong, whatever its proof says. The other way round nothing follows: where the library has no
event of the same meaning, a weaker case stands in (`SECOND`).

dp-accounting is imported when the first figure is asked for: it is a dependency of the server
alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp, ndtri

from accountant.core.privacy import divergences, pld_bounds
from accountant.core.privacy.events import (
    FREE,
    Allocated,
    AllocatedReplaced,
    Allocation,
    Composed,
    EpsilonDelta,
    Event,
    Exponential,
    Gaussian,
    Laplace,
    PoissonReplaced,
    PoissonSampled,
    PoissonSwapped,
    Sampled,
    SampledWithoutReplacement,
    SelfComposed,
    WorstOf,
    ZCDp,
    releases,
    to_json,
    without_deltas,
)
from accountant.core.privacy.filters import Amount, Costs, Filter, Kind
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS

Array = NDArray[np.floating[Any]]

#: Relative error of both calculations together. Both are exact but for the last digits of
#: logarithms.
TOLERANCE = 1e-6
#: Absolute error of one divergence of dp-accounting: logarithms of sums that are near 1.
_ROUNDING = 1e-14
#: Whole orders only: at others dp-accounting's series for a sample adds terms whose signs
#: alternate, and its divergence is up to 30 times too large. The largest bounds its loop over an
#: order's terms.
_MOST_ORDER = 256
#: For mu^2, where every order gives a bound.
_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)
#: The same for a coin, each of whose orders needs all below it.
_ORDERS_OF_COINS = (2, 4, 8, 16, 32, 64)
#: In place of infinity, at which dp-accounting has no divergence for Laplace noise.
_PURE_ORDER = 10.0**9
#: Numbers of outcomes of randomised response: with k, a 1/k of the outcomes gets likelier.
_OUTCOMES = (2, 3, 4, 6, 10, 30, 100, 10**4, 10**7)
#: Kinds of releases that are compared: those beyond are taken to tell nothing. A check of so many
#: takes a second; one of up to `_FEW_KINDS`, each released up to `_FEW_COPIES` times, as in most
#: jobs, a twentieth.
_MOST_KINDS, _FEW_KINDS, _FEW_COPIES = 32, 6, 10_000
#: Nobody draws a token whose scores move further: beyond this, exponentials would overflow.
_MOST_SHIFT = 200.0


@dataclass(frozen=True)
class Charge:
    """A job's cost on each filter, and its epsilon alone at `delta`, before it is charged."""

    event: Event
    costs: tuple[tuple[Filter, Amount | None], ...]
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Finding:
    """A figure of ours below the second calculation of the same thing."""

    measure: str
    ours: float
    theirs: float

    def __str__(self) -> str:
        return f"{self.measure}: {self.ours:.9g} here, at least {self.theirs:.9g} by dp-accounting"


def is_long(claimed: Charge) -> bool:
    """Return True if the check takes more than a moment."""
    copies = pld_bounds.counts(claimed.event).values()
    return len(_kinds(claimed.event)) > _FEW_KINDS or max(copies, default=0) > _FEW_COPIES


def charge(
    event: Event, filters: Sequence[Filter], costs: Costs, epsilon: float, delta: float
) -> Charge:
    """Return the charge of a job with these costs on `filters`."""
    return Charge(
        event, tuple((filter_, costs[filter_.kind]) for filter_ in filters), epsilon, delta
    )


def findings(claimed: Charge) -> tuple[Finding, ...]:
    """Return the figures that are below the second calculation; none where the price holds.

    Raises what dp-accounting raises, and ArithmeticError where a figure of either is no number:
    whether the price holds can't be told then.
    """
    if not releases(claimed.event):
        return ()
    return tuple(
        Finding(measure, ours, theirs)
        for measure, ours, theirs in _figures(claimed)
        if not _number(ours, measure) >= _number(theirs, measure) * (1 - TOLERANCE)
    )


def _number(value: float, measure: str) -> float:
    if math.isnan(value) or value < 0:
        raise ArithmeticError(f"{measure} is {value}")
    return value


def _figures(claimed: Charge) -> Iterator[tuple[str, float, float]]:
    """Yield each measure with our figure and theirs, of filters that can price the job."""
    event = _shortened(claimed.event)
    sure = without_deltas(event)  # their deltas are paid on the basic filter
    stated = {"the quote": (claimed.epsilon, claimed.delta)}
    for filter_, cost in claimed.costs:
        if cost is None:
            continue
        ours = cost.main / EPSILON_UNITS
        match filter_.kind:
            case Kind.RENYI | Kind.RENYI_LOW:
                assert filter_.order is not None
                yield f"order {float(filter_.order):g}", ours, renyi(sure, float(filter_.order))
                yield from _at_whole_orders(sure, filter_)
            case Kind.GAUSSIAN:
                yield "mu^2", ours, mu_squared(sure)
            case Kind.BASIC if cost.delta:
                stated["the basic filter"] = (ours, cost.delta / DELTA_UNITS)
            case Kind.BASIC:
                yield "pure epsilon", ours, pure_epsilon(event)
    deltas = pld_bounds.least_deltas(event, [epsilon for epsilon, _ in stated.values()])
    for (measure, (epsilon, ours)), theirs in zip(stated.items(), deltas, strict=True):
        yield f"delta of {measure} at epsilon {epsilon:.9g}", ours, theirs


def _at_whole_orders(event: Event, by: Filter) -> Iterator[tuple[str, float, float]]:
    """Yield our divergence at the whole orders around one: there theirs is exact."""
    assert by.order is not None
    low = math.floor(by.order)
    for whole in (low, low + 1) if by.order > low else ():
        inside = 1 < whole < _MOST_ORDER
        first = divergences.renyi(event, Fraction(whole)) if inside else None
        if first is not None:
            yield f"order {whole}", float(first), renyi(event, whole)


# --- what dp-accounting says of one release
# ---------------------------------------------------------


class Neighbour(NamedTuple):
    """An event of dp-accounting that a release may be, and the relation under which that holds."""

    event: Any
    relation: str = "REPLACE_SPECIAL"


def _library() -> Any:
    import dp_accounting

    return dp_accounting


def _gaussian(multiplier: float) -> Any:
    """Return a Gaussian; beyond 1e150 its multiplier would overflow when squared."""
    return _library().GaussianDpEvent(min(multiplier, 1e150))


def _randomised(epsilon: float) -> Neighbour:
    """Return randomised response: the worst release of pure epsilon."""
    noise = 2 / (1 + math.exp(min(epsilon, 2 * _MOST_SHIFT)))
    return Neighbour(_library().RandomizedResponseDpEvent(noise, 2), "REPLACE_ONE")


def _tokens(shift: float) -> list[Neighbour]:
    """Return draws of two outcomes whose ratios lie `2 * shift` apart, of several asymmetries."""
    spread = math.expm1(2 * min(shift, _MOST_SHIFT))
    return [Neighbour(_library().RandomizedResponseDpEvent(k / (k + spread), k)) for k in _OUTCOMES]


def _on_a_sample(event: Sampled) -> list[Neighbour]:
    """Return the unit in or out of the sample. The other unit may add nothing to a sum."""
    multiplier = max(math.fsum(_inverse_squares(event.event)), 1e-300) ** -0.5
    inner = _gaussian(2 * multiplier if isinstance(event, PoissonSwapped) else multiplier)
    return [Neighbour(_library().PoissonSampledDpEvent(event.probability, inner))]


def _inverse_squares(event: Event) -> Iterator[float]:
    match event:
        case Gaussian(multiplier):
            yield min(multiplier, 1e150) ** -2.0
        case SelfComposed(inner, count):
            yield from (count * inverse for inverse in _inverse_squares(inner))
        case Composed(events):
            for part in events:
                yield from _inverse_squares(part)
        case _:
            raise ArithmeticError("only Gaussians are drawn on a sample")


#: From the type of a release to the events of dp-accounting that it may be. Each is the release
#: itself, or one case of it, so that no sound price is lower: equal for the first four, a weaker
#: case for the others.
SECOND: dict[type, Callable[[Any], list[Neighbour]]] = {
    Gaussian: lambda event: [Neighbour(_gaussian(event.noise_multiplier))],
    Laplace: lambda event: [Neighbour(_library().LaplaceDpEvent(event.noise_multiplier))],
    ZCDp: lambda event: [Neighbour(_library().ZCDpEvent(event.rho))],
    PoissonSampled: _on_a_sample,
    EpsilonDelta: lambda event: [_randomised(event.epsilon)],
    Exponential: lambda event: _tokens(event.shift),
    PoissonReplaced: _on_a_sample,
    PoissonSwapped: _on_a_sample,
    SampledWithoutReplacement: _on_a_sample,
}

#: Types that are walked: dp-accounting prices what stands in them.
WALKED: tuple[type, ...] = (SelfComposed, Composed, WorstOf, Allocated, AllocatedReplaced)


# --- the walk
# ---------------------------------------------------------------------------------------


def _kinds(event: Event) -> dict[Event, None]:
    """Return the kinds of releases, as a set in the order in which they occur."""
    match event:
        case SelfComposed(inner, _):
            return _kinds(inner)
        case Composed(events) | WorstOf(events):
            return {kind: None for part in events for kind in _kinds(part)}
        case _:
            return {event: None}


def _shortened(event: Event) -> Event:
    """Return the event without kinds beyond `_MOST_KINDS`: a bound from below on it."""
    kinds = list(_kinds(event))
    if len(kinds) <= _MOST_KINDS:
        return event
    heaviest = frozenset(kinds[:_MOST_KINDS])

    def keep(part: Event) -> Event:
        match part:
            case SelfComposed(inner, count):
                return SelfComposed(keep(inner), count)
            case Composed(events):
                return Composed(tuple(map(keep, events)))
            case WorstOf(events):
                return WorstOf(tuple(map(keep, events)))
            case _:
                return part if part in heaviest else FREE

    return keep(event)


def _walk(event: Event, release: Callable[[Event], float]) -> float:
    """Return the sum of costs over compositions, and the largest over alternatives."""
    match event:
        case SelfComposed(inner, count):
            return count * _walk(inner, release)
        case Composed(events):
            return math.fsum(_walk(part, release) for part in events)
        case WorstOf(events):
            return max(_walk(part, release) for part in events)
        case _:
            return release(event)


def renyi(event: Event, order: float) -> float:
    """Return a bound from below on the Rényi divergence of any `order` > 1."""
    return _walk(event, lambda release: _renyi_of_one(release, order))


def _renyi_of_one(release: Event, order: float) -> float:
    if not isinstance(release, Sampled | Allocation):
        return float(_divergences(release, (order,))[0])
    # (order - 1) D is convex and 0 at order 1, and D rises: so between whole orders it lies above
    # the line through the two below, and above that through the two above.
    if order >= _MOST_ORDER:
        return float(_divergences(release, (_MOST_ORDER,))[0])
    low = math.floor(order)
    wanted = tuple(n for n in range(low - 1, low + 3) if n > 1)
    moments: dict[int, float] = dict(
        zip(wanted, _divergences(release, wanted).tolist(), strict=True)
    )
    scaled = {1: 0.0} | {n: (n - 1) * moment for n, moment in moments.items()}
    after = scaled[low + 1] - (low + 1 - order) * (scaled[low + 2] - scaled[low + 1])
    bounds = [0.0, after / (order - 1)]
    if low > 1:
        before = scaled[low] + (order - low) * (scaled[low] - scaled[low - 1])
        bounds += [before / (order - 1), moments[low]]
    return float(max(bounds))


def mu_squared(event: Event) -> float:
    """Return a bound from below on the sum of the mu^2 for which the releases are mu-GDP.

    mu-GDP has D_a <= a mu^2 / 2 at every order, and a total variation distance of 2 Phi(mu/2) - 1
    at most.
    """

    def of_one(release: Event) -> float:
        orders = _ORDERS_OF_COINS if isinstance(release, Allocation) else _ORDERS
        mu = float(np.max(2 * _divergences(release, orders) / np.array(orders)))
        distance = pld_bounds.total_variation(release)
        return max(mu, (2 * float(ndtri((1 + distance) / 2))) ** 2)

    return _walk(event, of_one)


def pure_epsilon(event: Event) -> float:
    """Bound the sum of pure epsilons from below; infinite where a release has none."""

    def of_one(release: Event) -> float:
        match release:
            case Laplace() | Exponential() | EpsilonDelta(delta=0):
                return float(_divergences(release, (_PURE_ORDER,))[0])
            case Allocated(batches, run, tokens, draw) | AllocatedReplaced(
                batches, run, tokens, draw
            ):
                # All batches may draw what is likelier with the unit; those that aren't run don't.
                idle = math.log1p(-run / batches) if run < batches else -math.inf
                return float(
                    np.logaddexp(idle, math.log(run / batches) + tokens * pure_epsilon(draw))
                )
            case _:
                return math.inf

    return _walk(event, of_one)


# --- one release
# ------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _divergences(release: Event, orders: tuple[float, ...]) -> Array:
    """Return bounds from below on the Rényi divergences of one release; 0 where dp-accounting has
    none.

    Orders of what is sampled or allocated are whole, from 2 to `_MOST_ORDER`.
    """
    from dp_accounting.rdp import RdpAccountant

    if isinstance(release, Allocation):
        return _of_a_coin(release, orders)
    if type(release) not in SECOND:
        raise ArithmeticError(f"no second calculation is known for {to_json(release)['type']}")
    moments = np.zeros(len(orders))
    for neighbour in SECOND[type(release)](release):
        relation = getattr(_library().NeighboringRelation, neighbour.relation)
        theirs = RdpAccountant(list(orders), relation).compose(neighbour.event).rdp
        if np.isnan(theirs).any():
            raise ArithmeticError(f"dp-accounting gives {theirs} for {neighbour.event}")
        moments = np.maximum(moments, theirs - _ROUNDING)
    return moments


def _of_a_coin(event: Allocation, orders: tuple[float, ...]) -> Array:
    """Return a secret coin puts the unit into one of k batches.

    With A = E_Q (1 - q + q L)^a of one batch, Poisson-sampled at q = 1/k, the g batches that are
    run give E_Q m^a >= 1 + g (A - 1): docs/accounting.md, 14.2. A replaced unit may be one that is
    nowhere.
    """
    j = np.arange(2, int(max(orders)) + 1)
    log_moments = (j - 1) * event.tokens * _divergences(event.draw, tuple(j.tolist()))
    log_excess = _log_expm1(log_moments) - gammaln(j + 1) - j * math.log(event.batches)
    coin_terms = []
    for order in map(int, orders):
        if event.batches == 1:
            coin_terms.append(log_moments[order - 2] / (order - 1))
            continue
        drawn = j[: order - 1]
        terms = log_excess[: order - 1] + gammaln(order + 1) - gammaln(order - drawn + 1)
        terms += (order - drawn) * math.log1p(-1 / event.batches)
        coin_terms.append(np.logaddexp(0.0, math.log(event.run) + logsumexp(terms)) / (order - 1))
    return np.array(coin_terms)


def _log_expm1(values: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(values > 30, values, np.log(np.expm1(np.minimum(values, 30.0)))))
