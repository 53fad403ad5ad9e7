"""Deltas by dp-accounting's loss distributions: from below to check a price, from above to quote
one.

From below, each release is a pair of neighbours that its event allows, its losses are rounded down,
and what would be too much work is left out, which only lowers a figure. From above, only events
that dp-accounting has with the same meaning are priced. Losses are natural logarithms.
"""

import logging
import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from accountant.core.privacy.composition import epsilon_alone
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
    Sampled,
    SampledWithoutReplacement,
    SelfComposed,
    WorstOf,
    ZCDp,
)

Array = NDArray[np.floating[Any]]

logger = logging.getLogger(__name__)

#: Losses in the range of one distribution, and of a whole composition.
_FINEST, _MOST_POINTS = 16_000, 2**17
#: Copies of one Laplace or sampled release that are composed, and of one token.
_MOST_COPIES, _MOST_TOKENS = 1000, 10**6
#: Kinds of releases that are composed: those that tell most. And alternatives that are tried.
_MOST_KINDS, _MOST_CHOICES = 8, 4
#: A release that tells more is taken as one that tells this much: its unit may move less.
_MOST_LOSS = 50.0
#: Releases whose loss stays below this are left out.
_LEAST_LOSS = 1e-6
#: What Fourier transforms and cut tails may add to delta.
_ROUNDING = 1e-11
#: Half-width, in deviations, of the part of a binomial law that is kept.
_DEVIATIONS = 12.0


def counts(event: Event, choice: int = 0) -> Counter[Event]:
    """Return how often each release occurs, with alternative number `choice` or the last."""
    match event:
        case SelfComposed(inner, count):
            return Counter({leaf: n * count for leaf, n in counts(inner, choice).items()})
        case Composed(events):
            total: Counter[Event] = Counter()
            for part in events:
                total.update(counts(part, choice))
            return total
        case WorstOf(events):
            return counts(events[min(choice, len(events) - 1)], choice)
        case _:
            return Counter({event: 1})


def _choices(event: Event) -> int:
    match event:
        case SelfComposed(inner, _):
            return _choices(inner)
        case Composed(events):
            return max((_choices(part) for part in events), default=1)
        case WorstOf(events):
            return max(len(events), *(_choices(part) for part in events))
        case _:
            return 1


# --- from above
# -------------------------------------------------------------------------------------

#: Multipliers of releases that are quoted so, as sigma or as the scale of Laplace noise.
_QUOTED = (0.02, 1e4)


@lru_cache(maxsize=1024)
def quoted(event: Event, delta: float) -> tuple[float, str]:
    """As `composition.epsilon_alone`, or a hundredth less or more by dp-accounting's loss
    distribution.

    Where the library fails or is not installed, ours stands.
    """
    ours = epsilon_alone(event, delta)
    held = counts(event)
    released = sum(n for leaf, n in held.items() if not isinstance(leaf, Gaussian))
    # Else ours is exact, or the library has no event of the same meaning.
    comparable = _choices(event) == 1 and released > 1 and all(map(_is_quoted, held))
    if not comparable or not delta >= 1000 * _ROUNDING or not 1e-3 <= ours[0] <= 50:
        return ours
    try:
        theirs = _most_epsilon(held, delta, ours[0] / 1000)
    except (ArithmeticError, ValueError, ImportError):
        logger.exception("dp-accounting gives no quote")
        return ours
    return (theirs, "loss distribution") if theirs < 0.99 * ours[0] else ours


def _is_quoted(leaf: Event) -> bool:
    match leaf:
        case Gaussian(multiplier) | Laplace(multiplier):
            return bool(_QUOTED[0] <= multiplier <= _QUOTED[1])
        case PoissonSampled(_, inner):
            mu_squared = _gaussians(counts(inner))[0]
            return bool(_QUOTED[1] ** -2 <= mu_squared <= _QUOTED[0] ** -2)
        case _:
            return False


def _most_epsilon(held: Counter[Event], delta: float, interval: float) -> float:
    """Return a bound from above on epsilon; infinite where there is none, or it takes too much
    work.

    Every release is the one of that meaning in dp-accounting, with its losses rounded up.
    """
    mu_squared, rest = _gaussians(held)
    reach = sum(_reach(leaf) * n for leaf, n in rest.items())
    if 2 * reach / interval > 4 * _MOST_POINTS or max(map(_reach, rest)) / interval > _FINEST:
        return math.inf
    parts = []
    for leaf, n in rest.items():
        if isinstance(leaf, Laplace):
            one = _library().from_laplace_mechanism(
                leaf.noise_multiplier, value_discretization_interval=interval
            )
        else:
            assert isinstance(leaf, PoissonSampled)
            one = _library().from_gaussian_mechanism(
                _gaussians(counts(leaf.event))[0] ** -0.5,
                value_discretization_interval=interval,
                sampling_prob=leaf.probability,
            )
        parts.append(one.self_compose(n))
    if mu_squared:
        parts.append(
            _library().from_gaussian_mechanism(
                mu_squared**-0.5, value_discretization_interval=interval
            )
        )
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return float(total.get_epsilon_for_delta(delta - _ROUNDING)) * (1 + 1e-9)


# --- from below
# -------------------------------------------------------------------------------------


def least_deltas(event: Event, epsilons: Sequence[float]) -> list[float]:
    """Return bounds from below on the delta of the whole event at each epsilon."""
    best = [0.0] * len(epsilons)
    scale = min((epsilon for epsilon in epsilons if epsilon > 0), default=math.inf)
    for choice in range(min(_choices(event), _MOST_CHOICES)):
        losses = _composed(counts(event, choice), scale)
        if losses is not None:
            best = [
                max(least, _delta(losses, at)) for least, at in zip(best, epsilons, strict=True)
            ]
    return best


def _delta(losses: Any, epsilon: float) -> float:
    delta = float(losses.get_delta_for_epsilon(epsilon)) - _ROUNDING
    if math.isnan(delta):
        raise ArithmeticError(f"dp-accounting gives no delta at epsilon {epsilon}")
    return min(max(delta, 0.0), 1 - 1e-9)


def total_variation(release: Event) -> float:
    """Bound the total variation distance of a release from below: delta at epsilon 0."""
    losses = _composed(Counter({release: 1}), math.inf)
    return 0.0 if losses is None else _delta(losses, 0.0)


def _composed(held: Counter[Event], scale: float) -> Any:
    """Return the losses of these releases together, rounded down; None where all of them are left
    out.

    `scale`: an epsilon that the roundings together should be small against.
    """
    mu_squared, rest = _gaussians(held)
    mu = min(math.sqrt(mu_squared), math.sqrt(2 * _MOST_LOSS))
    copies = {
        leaf: min(n, _MOST_TOKENS if isinstance(leaf, Exponential) else _MOST_COPIES)
        for leaf, n in rest.items()
        if _reach(leaf) >= _LEAST_LOSS
    }
    copies = dict(sorted(copies.items(), key=lambda each: -_spread(*each))[:_MOST_KINDS])
    reaches = [_reach(leaf) for leaf in copies] + [_gaussian_reach(mu)] * (mu >= _LEAST_LOSS)
    if not reaches:
        return None
    rounded = sum(n for leaf, n in copies.items() if not isinstance(leaf, Exponential)) + 1
    whole = sum(_spread(leaf, n) for leaf, n in copies.items())
    interval = max(
        min(scale / (100 * rounded), max(reaches) / 1000),
        max(reaches) / _FINEST,
        2 * whole / _MOST_POINTS,
    )
    interval *= 1 - 1e-12  # a loss of a whole number of steps isn't rounded
    parts = [_losses(leaf, n, interval) for leaf, n in copies.items()]
    if mu >= _LEAST_LOSS:
        parts.append(_gaussian(1 / mu, interval))
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return total


def _gaussians(held: Counter[Event]) -> tuple[float, Counter[Event]]:
    """Return mu^2 of all Gaussians (rho-zCDP may be one), and the other releases."""
    mu_squared, rest = 0.0, Counter[Event]()
    for leaf, n in held.items():
        match leaf:
            case Gaussian(multiplier):
                mu_squared += n * min(multiplier**-2.0, 1e30)
            case ZCDp(rho):
                mu_squared += n * min(2 * rho, 1e30)
            case _:
                rest[leaf] = n
    return mu_squared, rest


def _spread(leaf: Event, count: int) -> float:
    """About the largest loss of so many releases of one kind."""
    reach = _reach(leaf)
    if isinstance(leaf, Exponential):  # the sum of so many tokens is one distribution
        return min(
            count * reach,
            reach * (count * math.tanh(reach / 2) + 2 * _DEVIATIONS * math.sqrt(count)),
        )
    return count * reach


def _gaussian_reach(mu: float, probability: float = 1.0) -> float:
    """Return the loss of a sampled Gaussian eight deviations out."""
    whole = mu * mu / 2 + 8 * mu
    return whole if whole > 600 else math.log1p(probability * math.expm1(whole))


def _whole_mu(event: Event) -> float:
    """mu of the Gaussians that one sample draws together."""
    return min(math.sqrt(_gaussians(counts(event))[0]), math.sqrt(2 * _MOST_LOSS))


def _sampled_mu(leaf: Sampled) -> float:
    """Return mu of a sampled unit against nothing; a swapped one is half as far."""
    return _whole_mu(leaf.event) / (2 if isinstance(leaf, PoissonSwapped) else 1)


def _reach(leaf: Event) -> float:
    """About the largest loss of one release; 0 where it is left out."""
    match leaf:
        case Laplace(multiplier):
            return min(1 / multiplier, _MOST_LOSS)
        case Exponential(shift):
            return min(shift, _MOST_LOSS)
        case EpsilonDelta(epsilon, _):
            return min(epsilon, _MOST_LOSS)
        case PoissonSampled() | PoissonReplaced() | PoissonSwapped() | SampledWithoutReplacement():
            return _gaussian_reach(_sampled_mu(leaf), leaf.probability)
        case Allocated(batches, _, tokens, draw) | AllocatedReplaced(batches, _, tokens, draw):
            if isinstance(draw, Exponential):
                mu = min(draw.shift * math.sqrt(tokens), math.sqrt(2 * _MOST_LOSS))
            else:
                mu = _whole_mu(SelfComposed(draw, tokens))
            return _gaussian_reach(mu, 1 / batches)
        case _:
            return 0.0


def _losses(leaf: Event, count: int, interval: float) -> Any:
    """Return the losses of a release, so many times, rounded down to multiples of `interval`."""
    match leaf:
        case Laplace(multiplier):
            one = _library().from_laplace_mechanism(
                max(multiplier, 1 / _MOST_LOSS),
                pessimistic_estimate=False,
                value_discretization_interval=interval,
                use_connect_dots=False,
            )
        case Exponential(shift):
            return _two_outcomes(min(shift, _MOST_LOSS), count, 1.0, 0.0, interval)
        case EpsilonDelta(epsilon, delta):
            one = _two_outcomes(min(epsilon, _MOST_LOSS), 1, 1.0, delta, interval)
        case PoissonSampled() | PoissonReplaced() | PoissonSwapped() | SampledWithoutReplacement():
            one = _gaussian(1 / _sampled_mu(leaf), interval, leaf.probability)
        case Allocated(batches, _, tokens, draw) | AllocatedReplaced(batches, _, tokens, draw):
            # What one batch shows of the unit, which is in it with probability 1/k.
            if isinstance(draw, Exponential):
                shift, tokens = min(draw.shift, _MOST_LOSS), min(tokens, _MOST_TOKENS)
                one = _two_outcomes(shift, tokens, 1 / batches, 0.0, interval)
            else:
                one = _gaussian(1 / _whole_mu(SelfComposed(draw, tokens)), interval, 1 / batches)
        case _:
            raise ArithmeticError(f"no losses are known for {type(leaf).__name__}")
    return one.self_compose(count) if count > 1 else one


def _gaussian(deviation: float, interval: float, probability: float = 1.0) -> Any:
    return _library().from_gaussian_mechanism(
        deviation,
        pessimistic_estimate=False,
        value_discretization_interval=interval,
        sampling_prob=probability,
        use_connect_dots=False,
    )


def _two_outcomes(
    epsilon: float, count: int, probability: float, delta: float, interval: float
) -> Any:
    """Return randomised response at `epsilon`, `count` times; the unit takes part with
    `probability`.

    `delta`: what is told outright. The number of likelier outcomes tells all: its losses are exact.
    """
    share = 1 / (1 + math.exp(-epsilon))
    middle, width = count * share, _DEVIATIONS * math.sqrt(count * share * (1 - share)) + 1
    # The same numbers under both, which lie symmetric to count/2.
    low, high = max(0, math.floor(count - middle - width)), min(count, math.ceil(middle + width))
    j = np.arange(low, high + 1.0)
    ways = gammaln(count + 1) - gammaln(j + 1) - gammaln(count - j + 1)
    log_p = -math.log1p(math.exp(-epsilon))
    log_q = log_p - epsilon
    present = ways + j * log_p + (count - j) * log_q
    absent = ways + j * log_q + (count - j) * log_p
    if probability < 1:
        present = np.logaddexp(math.log(probability) + present, math.log1p(-probability) + absent)
    if delta:
        present = present + math.log1p(-delta)
        absent = absent + math.log1p(-delta)
    upper: dict[Any, float] = dict(zip(j.tolist(), present.tolist(), strict=True))
    lower: dict[Any, float] = dict(zip(j.tolist(), absent.tolist(), strict=True))
    if delta:
        upper["told"] = math.log(delta)
    return _library().from_two_probability_mass_functions(
        lower,
        upper,
        pessimistic_estimate=False,
        value_discretization_interval=interval,
        symmetric=probability == 1.0,
    )


def _library() -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution
