"""The (epsilon, delta) of a whole job on the basic filter, with a delta chosen for the job.

A job's parameters are fixed before it starts, so it is one release with an exact privacy profile,
and the basic filter adds up (epsilon_i, delta_i) of whole jobs whatever each was chosen to be
(docs/accounting.md, section 11). delta_i is one of a fixed list of parts of the filter's share: the
one at which the larger of the job's two shares, of epsilon and of delta, is least. It follows from
the event and from what was fixed with the account, so a verifier finds the same figure.

Figures are roots and minima of closed forms, moved outward and rounded up to 20 binary digits.
Nothing here uses Fourier transforms, whose last digits differ between platforms.
"""

import math
from fractions import Fraction
from functools import lru_cache

from accountant.core.privacy import composition, divergences
from accountant.core.privacy.events import (
    Allocation,
    EpsilonDelta,
    Event,
    Sampled,
    from_releases,
    releases,
    stated_delta,
)
from accountant.core.privacy.units import (
    DELTA_UNITS,
    EPSILON_UNITS,
    coarse_up,
    round_price,
    sqrt_up,
)

#: The parts of the filter's delta that a job may pay, from all of it down to a millionth.
PARTS = tuple(Fraction(4 - step % 2, 4) / 2 ** (step // 2) for step in range(41))
#: Rényi orders; where a divergence has a closed form, also those between them that matter.
_ORDERS = tuple(
    1 + Fraction(2) ** (step // 2) * Fraction(2 + step % 2, 2) for step in range(-12, 30)
)
_BETWEEN = tuple(2 ** (step / 16) for step in range(-9, 10) if step)
#: A sum of pure epsilons whose share is so many times another price's is too dear.
_DEAR = Fraction(5, 4)
#: Covers root-finding, integration and logarithms.
_SLACK = 1e-8


Cost = tuple[int, int]


def whole_cost(event: Event, most_delta: int, whole_epsilon: int) -> Cost | None:
    """(epsilon, delta) of the job in units; None if nothing prices it.

    `most_delta` and `whole_epsilon` are the filter's limits when the account was made. A pure job
    pays its sum of epsilons, of which a part that isn't used returns, unless that is beyond the
    limit or much dearer. Releases stated as (epsilon, delta) pay that besides.
    """
    summed, best = _choices(event, most_delta, whole_epsilon)
    if summed is None or best is None:
        return summed or best
    share, least = (_share(total, most_delta, whole_epsilon) for total in (summed, best))
    return best if share > max(least, min(Fraction(1), _DEAR * least)) else summed


def least_share(event: Event, most_delta: int, whole_epsilon: int) -> Fraction | None:
    """Return the smaller of the job's two shares, by its sum and by its best delta; None if nothing
    prices it.

    Of two jobs the one that releases less never has the larger one, though it may pay more epsilon
    or delta.
    """
    choices = _choices(event, most_delta, whole_epsilon)
    return min(
        (_share(choice, most_delta, whole_epsilon) for choice in choices if choice), default=None
    )


def summed_cost(event: Event) -> Cost | None:
    """Return sums of pure epsilons and stated (epsilon, delta); None with other releases."""
    return _choices(event, 0, 0)[0]


def _share(cost: Cost, most_delta: int, whole_epsilon: int) -> Fraction:
    return max(Fraction(cost[0], whole_epsilon), Fraction(cost[1], most_delta or 1))


def _choices(event: Event, most_delta: int, whole_epsilon: int) -> tuple[Cost | None, Cost | None]:
    """Return the cost by the sum of pure epsilons and at the best delta, or None of each."""
    counts = releases(event)
    stated_epsilon, own_delta = Fraction(0), stated_delta(event)
    for leaf in list(counts):
        if isinstance(leaf, EpsilonDelta) and leaf.delta > 0:
            stated_epsilon += counts.pop(leaf) * Fraction(leaf.epsilon)
    rest = from_releases(counts)

    def amount(epsilon: Fraction, part: int) -> Cost:
        delta = own_delta + Fraction(part, DELTA_UNITS)
        return round_price(stated_epsilon + epsilon, EPSILON_UNITS), round_price(delta, DELTA_UNITS)

    offers = []
    if counts and most_delta:
        offers = [
            amount(epsilon, part) for epsilon, part in _balanced(rest, most_delta, whole_epsilon)
        ]
    pure = divergences.pure_epsilon(rest)
    best = min(offers, key=lambda cost: _share(cost, most_delta, whole_epsilon), default=None)
    return None if pure is None else amount(pure, 0), best


def _balanced(event: Event, most_delta: int, whole_epsilon: int) -> list[tuple[Fraction, int]]:
    """Return the parts of delta around which the job's share of epsilon passes its share of delta.

    epsilon falls as delta grows, so they are found by bisection.
    """
    parts = [part for part in (math.floor(part * most_delta) for part in PARTS) if part]

    def at(step: int) -> Fraction | None:
        return epsilon_at(event, parts[step] / DELTA_UNITS)

    few, many = 0, len(parts) - 1  # the larger part of delta has the smaller number
    while few < many:
        middle = (few + many + 1) // 2
        epsilon = at(middle)
        if epsilon is None:
            return []
        if Fraction(parts[middle], most_delta) >= epsilon * EPSILON_UNITS / whole_epsilon:
            few = middle
        else:
            many = middle - 1
    pairs = [(at(step), parts[step]) for step in (few, few + 1) if step < len(parts)]
    return [(epsilon, part) for epsilon, part in pairs if epsilon is not None]


@lru_cache(maxsize=1024)
def epsilon_at(event: Event, delta: float) -> Fraction | None:
    """Return a bound on the least epsilon at `delta` of a job whose parameters are fixed; None if
    there is none.

    The exact profile where the event has one, or the least of Rényi divergence, mu-GDP, and the
    exact figure of what is not pure beside the sum of what is.
    """
    exact = composition.exact_epsilon(releases(event), delta)
    if exact is not None:
        return _outward(exact[0])
    epsilons = []
    curve = _curve(event)
    if curve is not None:
        epsilons.append(min(_converted(order, cost, delta) for order, cost in curve))
        # without samples and secret coins a divergence takes microseconds
        if not any(isinstance(leaf, Sampled | Allocation) for leaf in releases(event)):
            least, _ = min(curve, key=lambda each: _converted(each[0], each[1], delta))
            epsilons += [
                _near(event, Fraction(1 + (least - 1) * ratio), delta) for ratio in _BETWEEN
            ]
    mu_squared = divergences.gaussian_mu_squared(event)
    if mu_squared is not None:
        epsilons.append(composition.gaussian_epsilon(sqrt_up(mu_squared), delta))
    split = composition.pure_and_exact(releases(event), delta)
    if split is not None:
        epsilons.append(split)
    return _outward(min(epsilons)) if epsilons else None


def _outward(epsilon: float) -> Fraction:
    return coarse_up(epsilon * (1 + _SLACK) + _SLACK / 10)


def _converted(order: float, divergence: float, delta: float) -> float:
    return max(0.0, divergence + composition.conversion(order, delta))


def _near(event: Event, order: Fraction, delta: float) -> float:
    cost = divergences.renyi(event, order)
    assert cost is not None  # it has one at every order
    return _converted(float(order), float(cost), delta)


@lru_cache(maxsize=256)
def _curve(event: Event) -> tuple[tuple[float, float], ...] | None:
    """(order, Rényi divergence) over the fixed orders."""
    costs = [(order, divergences.renyi(event, order)) for order in _ORDERS]
    if any(cost is None for _, cost in costs):
        return None
    return tuple((float(order), float(cost)) for order, cost in costs if cost is not None)
