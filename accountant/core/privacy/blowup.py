"""The blow-up function of what `secpe` releases, and its Rényi divergence (paper 003, section 3.2).

With P the outputs with a secret and Q those without it, B(p) is the largest P(E) over events with
Q(E) <= p; an attacker whose prior guess is right with probability p is right with at most B(p)
afterwards (Hayes et al. 2023, Theorem 2). All figures are probabilities, except divergences (nats).

One round: X ~ Binomial(records, rate) of the records that carry the secret take part; counts and
centres of all clusters are one Gaussian vector of noise sigma whose mean moves by at most

    removed   sqrt(2) X: X in the counts and X in the centres;
    redacted  2 X: a record leaves one cluster and enters another, so each part moves by sqrt(2) X.

`removed`: P = E N(sqrt(2) X, sigma^2) against Q = N(0, sigma^2), X unseen, for the records are not
there in Q. `redacted`: the same records take part on both sides, so X is charged as seen: (X, N(2X,
sigma^2)) against (X, N(0, sigma^2)). Every round draws fresh coins and fresh noise (paper 003,
Algorithm 2, lines 7 and 13), so rounds compose as independent pairs. docs/accounting.md carries the
proofs.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import scipy  # scipy.optimize is loaded at its first use: most processes never need it
from scipy.special import gammaln, log_ndtr, logsumexp, ndtr, ndtri, xlog1py, xlogy

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

#: Mass of X beyond which draws count as fully revealing: added to B as it is.
TAIL = 1e-13
#: Cells of the loss grid per standard deviation of one round's loss.
CELLS_PER_DEVIATION = 30
#: What rounding in float sums can hide in a blow-up or in the mass of an event.
SLACK = 1e-12
#: A privacy loss in nats that nothing here tells from an infinite one.
MOST_LOSS = 40.0
LEAST_LOSS = -30.0
#: Finest grid of losses between the two.
MOST_CELLS = 300_000
#: Longest distribution of a sum of squares that is kept exactly.
LONGEST_SUM = 2**20


class Without(StrEnum):
    """A world without the secret: its records are absent, or present and blanked."""

    REMOVED = "removed"
    REDACTED = "redacted"


@dataclass(frozen=True)
class GroupSampling:
    """Sampling of at most `records` that carry a secret, each with probability `rate`."""

    records: int
    rate: float
    without: Without

    @property
    def shift(self) -> float:
        """The most by which one sampled record moves the joint release, before noise is scaled."""
        return math.sqrt(2) if self.without is Without.REMOVED else 2.0

    def log_weights(self) -> Floats:
        """ln Pr[X = k] for k = 0 to `records`: shape (records + 1,)."""
        counts = np.arange(self.records + 1)
        choose = (
            gammaln(self.records + 1) - gammaln(counts + 1) - gammaln(self.records - counts + 1)
        )
        logs = choose + xlogy(counts, self.rate) + xlog1py(self.records - counts, -self.rate)
        return np.asarray(logs, dtype=np.float64)


def blow_up(group: GroupSampling, sigma: float, rounds: int, prior: float) -> float:
    """Return B(`prior`) after `rounds` rounds of noise `sigma`; never below the true value by more
    than SLACK.

    removed, one round: E Phi(Phi^-1(p) + sqrt(2) X / sigma), attained by a threshold, for the
    likelihood ratio rises with the output. removed, more: the composed loss distribution on a grid.
    redacted: the rounds add up to (Y, N(2 sqrt(Y), sigma^2)), Y the sum of squares of the draws.
    """
    if group.without is Without.REDACTED:
        return _redacted(group, sigma, rounds, prior)
    if rounds == 1:
        weights = np.exp(group.log_weights())
        means = group.shift / sigma * np.arange(group.records + 1)
        return min(1.0, float(np.sum(weights * ndtr(ndtri(prior) + means))) + SLACK)
    return _removed_rounds(group, sigma, rounds, prior)


def least_sigma(
    group: GroupSampling, rounds: int, prior: float, bound: float, floor: float
) -> float:
    """Return the least sigma >= `floor` for which B(`prior`) <= `bound`: never below it, within 0.3
    %.

    The search starts at a sufficient value: the noise for all records at once, with none left out.
    """

    def excess(log_sigma: float) -> float:
        return math.log(blow_up(group, math.exp(log_sigma), rounds, prior) / bound)

    most = group.shift * group.records * math.sqrt(rounds) / float(ndtri(bound) - ndtri(prior))
    high = math.log(max(most * 1.001, floor))
    while excess(high) > 0:  # only what rounding adds can ask for more
        high += 0.001
    low = high
    while excess(low) <= 0:
        high = low
        if low <= math.log(floor):
            return floor
        low = max(low - 1.0, math.log(floor))
    root = float(scipy.optimize.brentq(excess, low, high, xtol=1e-3))
    while excess(root) > 0:
        root += 1e-3
    return math.exp(root)


# --- redacted: a Gaussian whose shift is seen ---------------------------------------------------


def _redacted(group: GroupSampling, sigma: float, rounds: int, prior: float) -> float:
    """Return the largest power over all ways to divide `prior` among the values of Y."""
    squares, weights, lost = _sum_of_squares(group, rounds)
    means = group.shift / sigma * np.sqrt(squares)
    moving = means > 0
    means, moved = means[moving], weights[moving]
    still = float(np.sum(weights[~moving]))

    def level(threshold: float) -> float:
        return float(np.sum(moved * ndtr(-threshold / means - means / 2)))

    def power(threshold: float) -> float:
        return float(np.sum(moved * ndtr(-threshold / means + means / 2)))

    # Neyman-Pearson: accept where the log likelihood ratio passes a threshold. Y = 0 has ratio 1,
    # so it is accepted in part at threshold 0.
    at_zero = level(0.0)
    if at_zero <= prior <= at_zero + still:
        return min(1.0, power(0.0) + prior - at_zero + lost + SLACK)
    rest = prior if prior < at_zero else prior - still
    low, high = (0.0, 1.0) if prior < at_zero else (-1.0, 0.0)
    while level(high) > rest:
        high *= 2
    while level(low) < rest:
        low *= 2
    root = scipy.optimize.brentq(
        lambda t: math.log(max(level(t), 1e-300)) - math.log(rest), low, high, xtol=1e-13
    )
    taken = power(float(root)) + (0.0 if prior < at_zero else still)
    return min(1.0, taken + lost + SLACK)


def _sum_of_squares(group: GroupSampling, rounds: int) -> tuple[Floats, Floats, float]:
    """(values of Y, their probabilities, omitted mass) for Y the sum of X^2 over `rounds` draws.

    Squares are rounded up to a unit if the exact sums would not fit into memory.
    """
    counts, weights, lost = _support(group, TAIL / rounds)
    unit = max(1, math.ceil(rounds * int(counts[-1]) ** 2 / LONGEST_SUM))
    places = -(-(counts**2) // unit)
    once = np.zeros(int(places[-1]) + 1)
    np.add.at(once, places, weights)
    total = _self_convolved(once, rounds)
    significant = np.flatnonzero(total > 1e-18)
    missed = max(0.0, float(np.sum(total)) - float(np.sum(total[significant])))
    return significant.astype(np.float64) * unit, total[significant], rounds * lost + missed


def _self_convolved(masses: Floats, times: int) -> Floats:
    """Return the distribution of a sum of `times` independent draws; no wrap-around."""
    size = times * (len(masses) - 1) + 1
    length = 1 << (size - 1).bit_length()
    summed = np.fft.irfft(np.fft.rfft(masses, length) ** times, length)[:size]
    return np.asarray(np.maximum(summed, 0.0))


def _support(group: GroupSampling, tail: float) -> tuple[Counts, Floats, float]:
    """(values of X, their probabilities, mass above them): all but `tail` at either end.

    Mass below the first value kept is charged at that value: more records mean more loss.
    """
    weights = np.exp(group.log_weights())
    above = np.cumsum(weights[::-1])[::-1]
    last = max(1, int(np.count_nonzero(above > tail)) - 1)
    first = min(int(np.count_nonzero(np.cumsum(weights) <= tail)), last)
    support = weights[first : last + 1].copy()
    support[0] += float(np.sum(weights[:first]))
    return np.arange(first, last + 1), support, float(np.sum(weights[last + 1 :]))


# --- removed, several rounds: the loss distribution ---------------------------------------------


@dataclass(frozen=True)
class Losses:
    """P-masses on losses `spacing` * (`first`, `first` + 1, ...), and of infinite loss."""

    first: int
    masses: Floats
    infinite: float


def _removed_rounds(group: GroupSampling, sigma: float, rounds: int, prior: float) -> float:
    """Return B(p) = inf over epsilon of e^epsilon p + delta(epsilon), from the loss distribution on
    a grid.

    Each cell of the loss of one round keeps its masses under P and under Q and is split between its
    two ends (Doroshenko et al. 2022, "connect the dots"): that pair dominates the true one, so the
    figure is an upper bound whatever the spacing, and its error is of second order in it.
    """
    counts, weights, lost = _support(group, TAIL / rounds)
    means = np.asarray(group.shift / sigma * counts, dtype=np.float64)
    once, spacing = _one_round(np.log(weights), means)
    once = Losses(once.first, once.masses, once.infinite + lost)
    composed = _composed(once, spacing, rounds)
    grid = spacing * (composed.first + np.arange(len(composed.masses)))
    # delta at every grid point: sums over the cells above of mass and of mass * e^-loss.
    mass_above = np.cumsum(composed.masses[::-1])[::-1]
    q_above = np.cumsum((composed.masses * np.exp(-grid))[::-1])[::-1]
    delta = mass_above - np.exp(grid) * q_above + composed.infinite
    figures = prior * np.exp(grid) + np.maximum(delta, 0.0)
    return min(1.0, float(np.min(figures, initial=1.0)) + SLACK)


def _composed(once: Losses, spacing: float, rounds: int) -> Losses:
    """Return the loss of `rounds` independent rounds, by squaring."""
    result, power = None, once
    while True:
        if rounds % 2:
            result = power if result is None else _added(result, power, spacing)
        rounds //= 2
        if not rounds:
            assert result is not None
            return result
        power = _added(power, power, spacing)


def _added(a: Losses, b: Losses, spacing: float) -> Losses:
    """Return the distribution of the sum of two independent losses, within LEAST_LOSS to MOST_LOSS.

    A loss above the window becomes infinite and one below it becomes the least: more loss, never
    less. P gives losses below -c at most e^-c, so hardly any mass moves up.
    """
    length = len(a.masses) + len(b.masses) - 1
    size = 1 << (length - 1).bit_length()
    masses = np.fft.irfft(np.fft.rfft(a.masses, size) * np.fft.rfft(b.masses, size), size)[:length]
    masses = np.maximum(masses, 0.0)
    first = a.first + b.first
    infinite = a.infinite + b.infinite - a.infinite * b.infinite
    low, high = math.ceil(LEAST_LOSS / spacing), math.floor(MOST_LOSS / spacing)
    if first + length - 1 > high:
        keep = max(high - first + 1, 1)
        infinite += float(np.sum(masses[keep:]))
        masses = masses[:keep]
    if first < low:
        cut = min(low - first, len(masses) - 1)
        below = float(np.sum(masses[:cut]))
        masses, first = masses[cut:], first + cut
        masses[0] += below
    return Losses(first, masses, infinite)


def _one_round(logs: Floats, means: Floats) -> tuple[Losses, float]:
    """(loss, spacing) of sum_k w_k N(mean_k, 1) against N(0, 1)."""
    reach = float(-ndtri(TAIL))
    z = np.linspace(means[0] - reach, means[-1] + reach, 4_001)
    loss = _mixture_loss(z, logs, means)
    capped = np.clip(loss, LEAST_LOSS, MOST_LOSS)
    density = np.exp(capped - z**2 / 2)
    density /= np.sum(density)
    deviation = math.sqrt(float(np.sum(density * (capped - float(np.sum(density * capped))) ** 2)))
    low, high = float(capped[0]), float(capped[-1])
    spacing = max(deviation / CELLS_PER_DEVIATION, (MOST_LOSS - LEAST_LOSS) / MOST_CELLS)
    first = math.floor(low / spacing)
    count = max(math.ceil(high / spacing) - first, 1)
    losses = np.asarray(spacing * (first + np.arange(count + 1)), dtype=np.float64)
    edges = _inverse(losses, z, loss, logs, means)
    edges[0] = -np.inf  # what lies below the grid is charged as if it were at its first point
    weights = np.exp(logs)
    p_cells = weights @ _gaussian_cells(edges[None, :] - means[:, None])
    # Both masses of a cell, P's and Q's, are kept by what goes to its upper end (in units of Q).
    excess = p_cells * np.exp(-losses[:-1]) - _gaussian_cells(edges)
    upper = np.minimum(np.maximum(excess, 0.0) / math.expm1(spacing) * np.exp(losses[1:]), p_cells)
    masses = np.zeros(count + 1)
    masses[1:] += upper
    masses[:-1] += p_cells - upper
    return Losses(first, masses, float(weights @ ndtr(means - edges[-1]))), spacing


def _mixture_loss(z: Floats, logs: Floats, means: Floats) -> Floats:
    """ln of the likelihood ratio at each `z`; it rises with z."""
    terms = (logs - means**2 / 2)[:, None] + means[:, None] * z[None, :]
    top = np.max(terms, axis=0)
    return np.asarray(top + np.log(np.sum(np.exp(terms - top), axis=0)))


def _inverse(losses: Floats, z: Floats, loss: Floats, logs: Floats, means: Floats) -> Floats:
    """Return the places where the loss takes the values `losses`: interpolation, then bracketed
    Newton steps.

    A small error here moves mass between neighbouring cells together with its true P and Q, so it
    costs accuracy of second order only.
    """
    values = np.interp(losses, loss, z)
    place = np.clip(np.searchsorted(loss, losses), 1, len(z) - 1)
    for _ in range(2):
        at = _mixture_loss(values, logs, means)
        ahead = _mixture_loss(values + 1e-6, logs, means)
        slope = np.maximum((ahead - at) / 1e-6, 1e-9)
        values = np.clip(values - (at - losses) / slope, z[place - 1], z[place])
    return np.asarray(np.maximum.accumulate(values))


def _gaussian_cells(edges: Floats) -> Floats:
    """Return normal mass between neighbouring edges, by the tail that loses no digits."""
    low, high = edges[..., :-1], edges[..., 1:]
    right = low + high > 0
    return np.asarray(np.where(right, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low)))


# --- Rényi divergence ---------------------------------------------------------------------------


def divergence(group: GroupSampling, sigma: float, rounds: int, order: float) -> float:
    """Return D_order(with || without) in nats after `rounds` rounds, from above within 1e-9
    relative.

    redacted: ln E exp(order (order - 1) (2X / sigma)^2 / 2) / (order - 1), exactly. removed: a sum
    on an even grid, which for such integrands converges geometrically, or the redacted form at
    shift sqrt(2) X, which bounds it by convexity, where the grid would grow too long.
    """
    logs = group.log_weights()
    means = np.asarray(group.shift / sigma * np.arange(group.records + 1), dtype=np.float64)
    seen = float(logsumexp(logs + order * (order - 1) * means**2 / 2)) / (order - 1)
    if group.without is Without.REMOVED:
        seen = min(seen, _mixture_divergence(logs, means, order))
    return rounds * max(seen, 0.0) * (1 + 1e-9)


def _mixture_divergence(logs: Floats, means: Floats, order: float) -> float:
    """Return D_order of sum_k w_k N(mean_k, 1) against N(0, 1); infinite if too long."""
    reach = 12.0
    top = order * float(means[-1]) + reach
    step = min(0.1, 0.2 / max(float(means[1]), 1e-3))
    if (top + reach) / step * len(means) > 3e6:
        return math.inf
    z = np.arange(-reach, top + step, step)
    terms = order * _mixture_loss(z, logs, means) - z**2 / 2
    log_integral = float(logsumexp(terms)) + math.log(step) - math.log(2 * math.pi) / 2
    # Mass outside the grid: below it the ratio is at most 1, above it the last mean decides.
    outside = np.logaddexp(log_integral, float(log_ndtr(-reach)) + math.log(2))
    return float(outside) / (order - 1)
