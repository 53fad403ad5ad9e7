"""The cost of one event in each measure: Rényi divergence, mu^2, pure epsilon.

Every function returns an exact rational that is not below the true value, or None if the event has
no such price. Sums over compositions are exact; only logarithms and quantiles are floats, moved
outward by units.FLOAT_SLACK.

An event's price in a ledger never changes (decision 0023).
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

from accountant.core.privacy import allocation, privacy_profiles, replaced_samples
from accountant.core.privacy.events import (
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
)
from accountant.core.privacy.units import FLOAT_SLACK, coarse_up, float_up, measured_up

Cost = Fraction | None


def _walk(event: Event, leaf: Callable[[Event], Cost]) -> Cost:
    """Return the exact sum of `leaf` over compositions, and the largest over alternatives."""
    match event:
        case SelfComposed(inner, count):
            cost = _walk(inner, leaf)
            return None if cost is None else cost * count
        case Composed(events):
            parts = [_walk(part, leaf) for part in events]
            return None if None in parts else sum(filter(None, parts), Fraction(0))
        case WorstOf(events):
            parts = [_walk(part, leaf) for part in events]
            return None if None in parts else max(part for part in parts if part is not None)
        case _:
            return leaf(event)


def renyi(event: Event, order: Fraction) -> Cost:
    """Return the Rényi divergence of `order` > 1 between neighbours, in nats, or None."""
    return _walk(event, partial(_renyi_leaf, order))


def quoted_renyi(event: Event, order: Fraction) -> Cost:
    """Return the divergence that a quote states: `renyi`, with tokens at their zCDP.

    Papers state what their tokens cost by zCDP, and a quote is to be compared with theirs.
    """
    return _walk(event, partial(_quoted_leaf, order))


def _quoted_leaf(order: Fraction, event: Event) -> Cost:
    if isinstance(event, Exponential):
        return _renyi_zcdp(order, event.shift)
    return _renyi_leaf(order, event)


def _renyi_zcdp(order: Fraction, shift: float) -> Fraction:
    # Never more than the pure epsilon, which is less for large shifts.
    return min(order * Fraction(shift) ** 2 / 2, 2 * Fraction(shift))


def _renyi_leaf(order: Fraction, event: Event) -> Cost:
    match event:
        case Gaussian(multiplier):
            return order / (2 * Fraction(multiplier) ** 2)
        case ZCDp(rho):
            return order * Fraction(rho)
        case Exponential(shift):
            return min(_renyi_zcdp(order, shift), _renyi_token(order, shift))
        case Laplace(multiplier):
            return measured_up(_renyi_laplace(float(order), multiplier))
        case EpsilonDelta(epsilon, delta) if delta == 0:
            return measured_up(_renyi_pure(float(order), epsilon))
        case PoissonSampled() | PoissonReplaced() | PoissonSwapped() | SampledWithoutReplacement():
            return _renyi_sampled(order, event)
        case Allocated() | AllocatedReplaced():
            return _renyi_allocated(order, event)
        case _:
            return None


def _renyi_token(order: Fraction, shift: float) -> Fraction:
    """Return the divergence of a draw whose ratios span 2 * `shift` (accounting, 11.3)."""
    above_one = float(order - 1)
    # Rounding of the logarithm of a mean near 1 is at most some 1e-15, and divided by order - 1.
    moment = (allocation.token_log_moment(float(order), shift) + 1e-13) / above_one
    return coarse_up(moment * (1 + 1e-12))


def _renyi_sampled(order: Fraction, event: Sampled) -> Fraction:
    """Return the smaller of the amplified and the plain divergence."""
    mu_squared = whole_mu_squared(event)
    plain = order * mu_squared / 2
    mu = math.sqrt(float_up(mu_squared))
    if isinstance(event, PoissonSwapped):
        moment = replaced_samples.renyi(float(order), event.probability, mu)
        return plain if math.isinf(moment) else min(plain, coarse_up(moment * (1 + 1e-8)))
    by = (
        privacy_profiles.renyi_poisson
        if isinstance(event, PoissonSampled)
        else privacy_profiles.renyi_replaced
    )
    amplified = by(float(order), event.probability, mu)
    if math.isinf(amplified):
        return plain
    # the quadrature's error, tested below 1e-11
    return min(plain, measured_up(amplified * (1 + 1e-10)))


def _renyi_allocated(order: Fraction, event: Allocation) -> Fraction:
    """Return the smaller of the allocated and the plain divergence: of knowing the coin only makes
    it larger.

    The floats move outward by 1e-9 of the price, and up to a multiple of 2^-20 of it, so that a
    verifier whose logarithms differ in the last digits gets the same figure.
    """
    plain = renyi(event.plain, order)
    assert plain is not None  # tokens and Gaussians have a divergence
    batch = batch_of(event)
    by = allocation.renyi if isinstance(event, Allocated) else allocation.renyi_replaced
    if batch is None or event.batches == 1:
        return plain
    moment = by(float(order), event.batches, event.run, batch)
    if not moment < plain:
        return plain
    return min(plain, coarse_up(moment * (1 + 1e-9)))


def batch_of(event: Allocation) -> allocation.Batch | None:
    """Return what one batch draws, as floats; None if no coin is of use."""
    if isinstance(event.draw, Exponential):
        return (
            allocation.Batch(event.tokens, shift=event.draw.shift)
            if event.draw.shift < 100
            else None
        )
    assert isinstance(event.draw, Gaussian)
    if event.draw.noise_multiplier < 0.01:
        return None
    return allocation.Batch(event.tokens, mu=float_up(1 / Fraction(event.draw.noise_multiplier)))


def whole_mu_squared(event: Sampled) -> Fraction:
    """mu^2 of all Gaussians of one draw together, as if the unit always took part."""
    mu_squared = gaussian_mu_squared(event.event)
    assert mu_squared is not None  # a sampled event consists of Gaussians
    return mu_squared


def _renyi_laplace(order: float, multiplier: float) -> float:
    """Return Mironov 2017, Proposition 6, for scale / sensitivity = `multiplier`."""
    epsilon = 1 / multiplier
    first = math.log(order / (2 * order - 1)) + (order - 1) * epsilon
    second = math.log((order - 1) / (2 * order - 1)) - order * epsilon
    # The two terms nearly cancel for small epsilon; order * epsilon^2 bounds what cancellation
    # hides.
    value = _log_add(first, second) / (order - 1)
    return min(max(value, 0.0) + 1e-15 * order / (order - 1), epsilon)


def _renyi_pure(order: float, epsilon: float) -> float:
    """Return the largest divergence under pure epsilon (Balle et al. 2020)."""
    log_p = -math.log1p(math.exp(-epsilon))
    log_q = -epsilon + log_p
    first = order * log_p + (1 - order) * log_q
    second = order * log_q + (1 - order) * log_p
    value = _log_add(first, second) / (order - 1)
    return min(max(value, 0.0) + 1e-15 * order / (order - 1), epsilon)


def _log_add(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high + math.log1p(math.exp(low - high))


def gaussian_mu_squared(event: Event) -> Cost:
    """Return the mu^2 for which the event is mu-GDP; None if there is no such mu."""
    return _walk(event, _mu_squared_leaf)


def _mu_squared_leaf(event: Event) -> Cost:
    match event:
        case Gaussian(multiplier):
            return 1 / Fraction(multiplier) ** 2
        case Exponential(shift):
            return _squared_up(privacy_profiles.mu_of_pure(shift))
        case Laplace(multiplier):
            mu = privacy_profiles.mu_of_laplace(1 / multiplier)
            return coarse_up(mu * (1 + 1e-12)) ** 2
        case EpsilonDelta(epsilon, delta) if delta == 0:
            return _squared_up(privacy_profiles.mu_of_pure(epsilon))
        case PoissonSampled() | PoissonReplaced() | PoissonSwapped() | SampledWithoutReplacement():
            # Sampling never hurts, and the amplified loss is mu-GDP for no smaller mu: its tail is
            # that of the whole event (Dong et al. 2022, section 4).
            return whole_mu_squared(event)
        case Allocated() | AllocatedReplaced():
            # The tail of a mean of k ratios is that of one of them: no smaller Gaussian covers it.
            return gaussian_mu_squared(event.plain)
        case _:
            return None  # zCDP and (epsilon, delta) imply no mu


def _squared_up(mu: float) -> Fraction:
    """mu^2 as a rational, so that the square of a small float does not underflow."""
    return Fraction(mu) ** 2 * (1 + FLOAT_SLACK)


def pure_epsilon(event: Event) -> Cost:
    """Return the sum of the releases' pure-DP epsilons; None if some release is not pure."""
    return _walk(event, _pure_leaf)


def _pure_leaf(event: Event) -> Cost:
    match event:
        case Laplace(multiplier):
            return 1 / Fraction(multiplier)
        case Exponential(shift):
            return 2 * Fraction(shift)
        case EpsilonDelta(epsilon, delta) if delta == 0:
            return Fraction(epsilon)
        case Allocated() | AllocatedReplaced():
            return pure_epsilon(event.plain)  # all batches may draw what is likelier with the unit
        case _:
            return None
