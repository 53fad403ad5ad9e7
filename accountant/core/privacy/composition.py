"""The (epsilon, delta) of a single job, from its events.

The parameters of one job are fixed before it starts, so ordinary composition theorems apply and the
tightest accountant is used: exact profiles if the event has one (a privacy loss distribution on a
grid approaches the same figure from above, at ten times the work), and Rényi divergence otherwise.
Across jobs only the filters of `filters.py` decide.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
import scipy  # scipy.optimize is loaded at its first use: most processes never need it
from scipy.special import erfcx, ndtr

from accountant.core.errors import invalid
from accountant.core.privacy import (
    allocation_pairs,
    divergences,
    loss_distributions,
    privacy_profiles,
    replaced_samples,
)
from accountant.core.privacy.allocation import Batch
from accountant.core.privacy.events import (
    Allocated,
    Allocation,
    Event,
    Gaussian,
    Laplace,
    PoissonReplaced,
    PoissonSampled,
    PoissonSwapped,
    Sampled,
    SampledWithoutReplacement,
    from_releases,
    releases,
    stated_delta,
    without_deltas,
)
from accountant.core.privacy.units import float_up, sqrt_up

#: ln(order - 1) is searched between these: orders from 1 + 5e-5 to 1 + 9e13.
_LOG_ORDER_RANGE = (-10.0, 32.0)

#: Below this delta, integration (good to about 1e-30) gives way to Rényi divergence.
_LEAST_INTEGRATED_DELTA = 1e-24
#: Above this epsilon too: profiles of samples are cut off at 700.
_MOST_INTEGRATED = 512.0


def conversion(order: float | Fraction, delta: float) -> float:
    """Return the epsilon to add to rho to convert (order, rho)-RDP to epsilon at `delta`, rounded
    up.

    Canonne, Kamath and Steinke 2020, Proposition 12. `order` > 1, 0 < `delta` < 1.
    """
    above = float(order - 1)  # of a fraction the difference is exact
    first, log_delta, log_order = math.log1p(1 / above), math.log(delta), math.log(float(order))
    rounding = 4 * _EPSILON * (first + (1 - log_delta + log_order) / above)
    return -first - (log_delta + log_order) / above + rounding


_EPSILON = sys.float_info.epsilon


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the delta of mu-GDP at `epsilon` >= 0: Balle and Wang 2018, Theorem 8; Dong et al.
    2022, Corollary 1.

    Phi(-a) - e^epsilon Phi(-b) with a = epsilon/mu - mu/2 and b = a + mu is phi(a) (R(a) - R(b)), R
    the Mills ratio: neither a power of e nor a small difference of logarithms is left in it.
    """
    if mu == 0:
        return 0.0
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    density = math.exp(-near * near / 2) / math.sqrt(2 * math.pi)
    if mu <= 1:
        return density * float(privacy_profiles.mills_drop(np.array([near]), mu)[0])
    second = _mills(far)
    if near < _NO_DENSITY:
        return float(ndtr(-near)) - density * second
    return density * (_mills(near) - second)


#: Left of this the first term of a Gaussian's delta is near 1, and nothing cancels.
_NO_DENSITY = -5.0


def _mills(at: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(at / math.sqrt(2)))


def gaussian_delta_up(mu: float, epsilon: float) -> float:
    """Return a delta certainly not below that of mu-GDP at `epsilon`."""
    if mu == 0:
        return 0.0
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    # Rounding of a and b, of the exponential, and of 1 - t R(t), which is 1/t^2 for large t.
    rounding = 64 + 4 * abs(near) * (epsilon / mu + mu / 2) + 8 * far * far
    return gaussian_delta(mu, epsilon) * (1 + rounding * _EPSILON)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu that is (`epsilon`, `delta`)-DP, rounded down."""
    high = 1.0
    while gaussian_delta_up(high, epsilon) < delta:
        high *= 2
    low = high / 2
    while gaussian_delta_up(low, epsilon) > delta:
        low /= 2
    return _root(lambda mu: gaussian_delta_up(mu, epsilon), delta, low, high, -1)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 at which mu-GDP has `delta`, rounded up."""
    if gaussian_delta_up(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta_up(mu, high) > delta:
        high *= 2
    low = high / 2
    while gaussian_delta_up(mu, low) <= delta:
        low /= 2
    return _root(lambda epsilon: gaussian_delta_up(mu, epsilon), delta, low, high, 1)


def _root(
    of: Callable[[float], float], delta: float, low: float, high: float, outward: int
) -> float:
    """Return where a falling function is `delta`, moved `outward` so that it is less."""

    def excess(at: float) -> float:
        return math.log(max(of(at), sys.float_info.min) / delta)

    root = float(
        scipy.optimize.brentq(
            excess, low, high, xtol=low * _EPSILON, rtol=4 * _EPSILON, maxiter=500
        )
    )
    step = _EPSILON
    while of(root) > delta:
        root *= 1 + outward * step
        step *= 2
    return root


def renyi_epsilon(event: Event, delta: float) -> float | None:
    """Return epsilon at `delta` by the best real Rényi order; None if it has no bound."""
    if divergences.quoted_renyi(event, Fraction(2)) is None:
        return None

    def at(log_order: float) -> float:
        order = 1 + math.exp(log_order)
        cost = divergences.quoted_renyi(event, Fraction(order))
        assert cost is not None  # whether there is a bound does not depend on the order
        return math.nextafter(float_up(cost) + conversion(order, delta), math.inf)

    # A grid finds the valley, a bounded search its floor: any order gives a valid epsilon.
    grid = [_LOG_ORDER_RANGE[0] + 0.5 * step for step in range(85)]
    best = min(grid, key=at)
    minimum = scipy.optimize.minimize_scalar(
        at, bounds=(best - 0.5, best + 0.5), method="bounded", options={"xatol": 1e-10}
    )
    return float(max(0.0, min(minimum.fun, at(best))))


def epsilon_alone(event: Event, delta: float) -> tuple[float, str]:
    """Return the tightest epsilon of a single job at `delta`, and the name of the accountant that
    gives it.

    Raises InvalidRequest for a `delta` outside (0, 1), or if no accountant can price the event.
    """
    check_delta(delta)
    counts = releases(event)
    if not counts:
        return 0.0, "no release"
    stated = Fraction(stated_delta(event))
    if stated:
        return _beside_deltas(without_deltas(event), Fraction(delta), stated)
    exact = exact_epsilon(counts, delta)
    if exact is not None:
        return exact
    bounds: list[tuple[float, str]] = []
    renyi = renyi_epsilon(event, delta)
    if renyi is not None:
        bounds.append((renyi, "Rényi"))
    pure = divergences.pure_epsilon(event)
    if pure is not None:
        bounds.append((float_up(pure), "sum of pure epsilon"))
    split = pure_and_exact(counts, delta)
    if split is not None:
        bounds.append((split, "pure epsilon and exact Gaussian"))
    pairs = _pairs_epsilon(counts, delta)
    if pairs is not None:
        bounds.append((pairs, "dominating pair"))
    if not bounds:
        raise invalid("event", "no accountant can price this composition")
    return min(bounds)


def _beside_deltas(event: Event, delta: Fraction, stated: Fraction) -> tuple[float, str]:
    """Return the epsilon at `delta` of releases that fail with probability `stated`."""
    pure = divergences.pure_epsilon(event)
    if delta == stated and pure is not None:
        return float_up(pure), "sum of (ε, δ)"
    left = math.nextafter(float(delta - stated), 0.0) if delta > stated else 0.0
    if left == 0.0:
        raise invalid(
            "event",
            f"the δ of its (ε, δ) releases add up to {float(stated):g}, and it is priced at "
            f"{float(delta):g}",
            "a sum of δ below that",
        )
    return epsilon_alone(event, left)


def check_delta(delta: float) -> None:
    """Raise InvalidRequest for a `delta` at which no epsilon can be quoted."""
    if not 0 < delta < 1:
        raise invalid("delta", f"{delta!r} is out of range", "0 < delta < 1")


def exact_epsilon(counts: Counter[Event], delta: float) -> tuple[float, str] | None:
    """Return the exact epsilon of Gaussians, with at most one sampled event or Laplace."""
    leaves = {leaf: count for leaf, count in counts.items() if not isinstance(leaf, Gaussian)}
    mu_squared = divergences.gaussian_mu_squared(from_releases(counts - Counter(leaves)))
    assert mu_squared is not None  # only Gaussians are left
    mu = sqrt_up(mu_squared)
    if not leaves:
        return gaussian_epsilon(mu, delta), "exact Gaussian"
    ((leaf, count),) = list(leaves.items())[:1]
    if len(leaves) > 1 or count > 1 or delta < _LEAST_INTEGRATED_DELTA:
        return None
    match leaf:
        case PoissonSampled() | PoissonReplaced() | PoissonSwapped() | SampledWithoutReplacement():
            epsilon = max(_with_gaussian(*profile, mu, delta) for profile in sampled_profiles(leaf))
            return None if math.isinf(epsilon) else (epsilon, "exact sampled Gaussian")
        case Laplace(multiplier) if mu > 0:
            pure = 1 / multiplier
            epsilon = _with_gaussian(privacy_profiles.laplace(pure), (-pure, pure), mu, delta)
            return None if math.isinf(epsilon) else (epsilon, "exact integration")
        case _:
            return None


def sampled_profiles(event: Sampled) -> list[tuple[privacy_profiles.Profile, tuple[float, ...]]]:
    """Return a sampled event's profiles, one per direction, with the places of kinks."""
    q = event.probability
    mu = sqrt_up(divergences.whole_mu_squared(event))
    if isinstance(event, PoissonSwapped):
        return [(replaced_samples.profile(q, mu), (0.0,))]
    if not isinstance(event, PoissonSampled):
        return [(privacy_profiles.replaced(q, mu), (0.0,))]
    turn = math.log1p(-q) if q < 1 else 0.0
    return [
        (privacy_profiles.poisson_removed(q, mu), (0.0, turn)),
        (privacy_profiles.poisson_added(q, mu), (0.0, -turn)),
    ]


def _with_gaussian(
    profile: privacy_profiles.Profile, kinks: tuple[float, ...], mu: float, delta: float
) -> float:
    """Return the least epsilon >= 0 of a profile with a `mu`-GDP release; infinite past 512."""

    def excess(epsilon: float) -> float:
        return (
            math.log(privacy_profiles.delta_with_gaussian(profile, kinks, mu, epsilon) or 1e-300)
            - target
        )

    target = math.log(delta)
    if excess(0.0) <= 0:
        return 0.0
    high = 1.0
    while excess(high) > 0:
        high *= 2
        if high > _MOST_INTEGRATED:
            return math.inf
    # What the search and the integration, good to 1e-11 together, leave open.
    return (
        float(scipy.optimize.brentq(excess, 0.0, high, xtol=1e-11, rtol=1e-12)) * (1 + 1e-11)
        + 1e-11
    )


def _pairs_epsilon(counts: Counter[Event], delta: float) -> float | None:
    """Return coins and Gaussians together by their dominating pairs, pure releases by their sum at
    delta 0.

    None where there is no coin, or something else, or where the pairs take too much work.
    """
    coins = [leaf for leaf in counts if isinstance(leaf, Allocation)]
    gaussians: Counter[Event] = Counter(
        {e: n for e, n in counts.items() if isinstance(e, Gaussian)}
    )
    leaves: Counter[Event] = Counter(
        {e: n for e, n in counts.items() if not isinstance(e, Gaussian | Allocation)}
    )
    pure = divergences.pure_epsilon(from_releases(leaves))
    if pure is None or len({type(coin) for coin in coins}) != 1:  # none, or of two relations
        return None
    parts, beside = [], []
    for coin in coins:
        ratio = _coin_ratio(coin)
        if ratio is None:
            return None
        parts.append((ratio, counts[coin]))
    mu_squared = divergences.gaussian_mu_squared(from_releases(gaussians))
    if mu_squared:
        ratio = allocation_pairs.worst_ratio(Batch(1, mu=float_up(mu_squared) ** 0.5))
        if ratio is None:
            return None
        beside.append((ratio, 1))
    if isinstance(coins[0], Allocated):
        epsilon = float_up(pure) + loss_distributions.epsilon([*parts, *beside], delta)
    else:
        epsilon = float_up(pure) + loss_distributions.replaced_epsilon(parts, beside, delta)
    return epsilon if math.isfinite(epsilon) else None


@lru_cache(maxsize=64)
def _coin_ratio(coin: Allocation) -> loss_distributions.Ratio | None:
    batch = divergences.batch_of(coin)
    ratio = None if batch is None else allocation_pairs.worst_ratio(batch)
    return None if ratio is None else allocation_pairs.mean(ratio, coin.batches, coin.run)


def pure_and_exact(counts: Counter[Event], delta: float) -> float | None:
    """Return pure releases summed, and others exact at `delta`; None without such a split."""
    pure, leaves = Fraction(0), Counter[Event]()
    for leaf, count in counts.items():
        cost = divergences.pure_epsilon(leaf)
        if cost is None:
            leaves[leaf] = count
        else:
            pure += cost * count
    exact = exact_epsilon(leaves, delta) if leaves and pure else None
    return None if exact is None else math.nextafter(float_up(pure) + exact[0], math.inf)
