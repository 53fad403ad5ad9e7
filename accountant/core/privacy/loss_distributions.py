"""The epsilon of independent pairs together, each given by its likelihood ratio: sums of losses on
a grid.

A ratio is kept as atoms. An atom is split between two points of a grid with its mean kept, which
makes every hockey-stick divergence larger, in both directions; so the figure is an upper bound
whatever the spacing. What leaves the window is bounded by Chernoff's inequality and counted as
delta.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # scipy.optimize is loaded at its first use: most processes never need it
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]

_MOST_POINTS = 2**20
#: Squared spacing of the grid as a part of the mean variance of one loss. Splitting adds a sixth of
#: it.
_FINE = 0.02
#: Logarithms of ratios beyond this count as infinite.
_FAR = 60.0
_TILTS = 2.0 ** np.arange(-7.0, 9.0)


@dataclass(frozen=True)
class Ratio:
    """A likelihood ratio dP/dQ: `values` >= 0, masses `under_q`, P's mass where Q has none."""

    values: Array
    under_q: Array
    infinite: float

    def delta(self, epsilon: float) -> float:
        """Return the larger of both directions' hockey-stick divergences at `epsilon`."""
        t = math.exp(epsilon)
        there = float(self.under_q @ np.maximum(self.values - t, 0.0)) + self.infinite
        back = float(self.under_q @ np.maximum(1 - t * self.values, 0.0))
        return max(there, back)

    @property
    def variance(self) -> float:
        """Of the ratio under Q, at most 1."""
        return min(float(self.under_q @ (self.values - 1) ** 2), 1.0)


def epsilon(parts: Sequence[tuple[Ratio, int]], delta: float) -> float:
    """Return the least epsilon >= 0 at `delta` of all parts together, each so many times; infinite
    if there is none.

    Infinite also where `delta` is too small for the rounding of Fourier transforms.
    """
    rounding = _rounding(parts)
    if delta < 1000 * rounding:
        return math.inf
    if len(parts) == 1 and parts[0][1] == 1:
        return _least(lambda at: parts[0][0].delta(at) + rounding, delta)
    sums = _both_directions(parts, delta / 1000)

    def delta_at(at: float) -> float:
        deltas = [
            law.lost + float(law.masses @ np.maximum(-np.expm1(at - losses), 0.0))
            for law, losses in sums
        ]
        return max(deltas) + rounding

    return _least(delta_at, delta)


def replaced_epsilon(
    coins: Sequence[tuple[Ratio, int]], others: Sequence[tuple[Ratio, int]], delta: float
) -> float:
    """Return the least epsilon at `delta` between two worlds that each lie `coins` away from a
    third; or infinite.

    `others` are pairs of the two worlds themselves. A = e^a N + d and N = e^b B + c give A <=
    e^(a+b) B + d + e^a c for every event, so all that is sought is the best split
    (docs/accounting.md, section 10.6).
    """
    rounding = _rounding([*coins, *others])
    if delta < 1000 * rounding:
        return math.inf
    tail = delta * 1e-7  # what the second step loses counts e^a times
    first = _hockey_stick(*_both_directions([*coins, *others], tail)[0], rounding)
    second = _hockey_stick(*_both_directions(coins, tail)[1], rounding)
    best, low, high = math.inf, 0.0, 1.0
    while first(np.array([high]))[0] > delta / 2:
        high *= 2
        if high > 500:
            return math.inf
    for _ in range(3):  # every point of a grid is a bound, and finer ones lie around the best
        a = np.linspace(low, high, 400)
        left = (delta - first(a)) * np.exp(-a)
        epsilon = a + _least_at(second, left)
        place = int(np.argmin(epsilon))
        best = min(best, float(epsilon[place]))
        low, high = float(a[max(place - 1, 0)]), float(a[min(place + 1, len(a) - 1)])
    return best * (1 + 1e-8) + 1e-8


def _least_at(profile: Callable[[Array], Array], deltas: Array) -> Array:
    """Return the least epsilon >= 0 of a profile at each delta; infinite where none is."""
    low, high = np.zeros(len(deltas)), np.full(len(deltas), 512.0)
    held = (deltas > 0) & (profile(high) <= deltas)
    free = held & (profile(low) <= deltas)
    for _ in range(48):
        middle = (low + high) / 2
        below = profile(middle) <= deltas
        low, high = np.where(below, low, middle), np.where(below, middle, high)
    return np.where(free, 0.0, np.where(held, high, math.inf))


def _hockey_stick(law: "_Law", losses: Array, rounding: float) -> Callable[[Array], Array]:
    """delta as a function of epsilons >= 0."""
    held = losses > 0
    losses, masses = losses[held], law.masses[held]
    order = np.argsort(losses)
    losses, masses = losses[order], masses[order]
    above = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    weighted = np.append(np.cumsum((masses * np.exp(-losses))[::-1])[::-1], 0.0)

    def profile(epsilons: Array) -> Array:
        place = np.searchsorted(losses, epsilons, side="right")
        delta = above[place] - np.exp(np.minimum(epsilons, 700.0)) * weighted[place]
        # The difference of two sums: each is good to some 1e-14 of itself.
        return np.asarray(np.maximum(delta, 0.0) + 1e-14 * above[place] + law.lost + rounding)

    return profile


def _rounding(parts: Sequence[tuple[Ratio, int]]) -> float:
    return 1e-14 * (100 + sum(times for _, times in parts))


def _both_directions(parts: Sequence[tuple[Ratio, int]], tail: float) -> list[tuple["_Law", Array]]:
    """Return losses of all parts in both directions; each end loses `tail`."""
    if len(parts) == 1 and parts[0][1] == 1:
        return [_exactly(parts[0][0], back) for back in (False, True)]
    count = sum(times for _, times in parts)
    variance = sum(ratio.variance * times for ratio, times in parts) / count
    spacing = math.sqrt(_FINE * max(variance, 1e-12))
    while True:
        sides = [
            [(_law(ratio, spacing, back), times) for ratio, times in parts]
            for back in (False, True)
        ]
        windows = [_window(laws, spacing, tail) for laws in sides]
        if all(points <= _MOST_POINTS for _, points in windows):
            break
        spacing *= 2
    return [
        (_summed(laws, *window, tail), spacing * (window[0] + np.arange(window[1])))
        for laws, window in zip(sides, windows, strict=True)
    ]


def _exactly(ratio: Ratio, back: bool) -> tuple["_Law", Array]:
    """Return the losses of one ratio, on no grid."""
    held = (ratio.values > 0) & (ratio.under_q > 0)
    values, masses = ratio.values[held], ratio.under_q[held]
    places = np.zeros(0, dtype=np.int64)
    if back:
        return _Law(places, masses, float(ratio.under_q[ratio.values == 0].sum())), -np.log(values)
    return _Law(places, masses * values, ratio.infinite), np.log(values)


def _least(delta_at: Callable[[float], float], delta: float) -> float:
    if delta_at(0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_at(high) > delta:
        high *= 2
        if high > 500:
            return math.inf
    epsilon = float(
        scipy.optimize.brentq(lambda eps: delta_at(eps) - delta, 0.0, high, xtol=1e-9, rtol=1e-9)
    )
    return epsilon * (1 + 1e-8) + 1e-8  # a root from either side, on any platform


@dataclass(frozen=True)
class _Law:
    """Masses on losses `places` * spacing, and the mass of infinite loss."""

    places: NDArray[np.int64]
    masses: Array
    lost: float


def _law(ratio: Ratio, spacing: float, back: bool) -> _Law:
    """Return the loss ln dP/dQ under P or, going back, ln dQ/dP under Q."""
    held = (ratio.values > 0) & (ratio.under_q > 0)
    values, masses = ratio.values[held], ratio.under_q[held]
    y = np.log(values)
    far = y > _FAR
    infinite = ratio.infinite + float(values[far] @ masses[far])
    zero = float(ratio.under_q[ratio.values == 0].sum() + masses[far].sum())
    values, masses = values[~far], masses[~far]
    low = np.floor(np.maximum(y[~far], -_FAR) / spacing).astype(np.int64)
    # An atom below the last point lies between it and 0.
    floor = np.where(values < math.exp(-_FAR), 0.0, np.exp(low * spacing))
    ceiling = np.exp((low + 1) * spacing)
    right = np.clip((values - floor) / (ceiling - floor), 0.0, 1.0) * masses
    left = masses - right
    zero += float(left[floor == 0].sum())
    left = np.where(floor == 0, 0.0, left)
    places, probability = np.concatenate([low, low + 1]), np.concatenate([left, right])
    if back:
        return _Law(-places, probability, zero)
    return _Law(places, probability * np.exp(places * spacing), infinite)


def _window(laws: Sequence[tuple[_Law, int]], spacing: float, tail: float) -> tuple[int, int]:
    """Return first place and number of points, a power of two, of all but `tail` at either end of
    the sum.

    By Chernoff's inequality.
    """

    def log_moment(tilt: float) -> float:
        total = 0.0
        for law, times in laws:
            exponents = tilt * spacing * law.places
            top = float(exponents.max())
            total += times * (top + math.log(float(law.masses @ np.exp(exponents - top))))
        return total

    high = min((log_moment(t) - math.log(tail)) / t for t in _TILTS)
    low = max((log_moment(-t) - math.log(tail)) / -t for t in _TILTS)
    first = math.floor(low / spacing)
    return first, 1 << (math.ceil(high / spacing) - first + 1).bit_length()


def _summed(laws: Sequence[tuple[_Law, int]], first: int, points: int, tail: float) -> _Law:
    """Return the law of the sum of independent losses, each so many times, on `points` places from
    `first` on.

    What lies beyond the window comes back into it by the period of the Fourier transform, and is
    counted as lost besides.
    """
    product = np.ones(points // 2 + 1, dtype=complex)
    mass = 0.0
    for law, times in laws:
        product *= np.fft.rfft(np.bincount(law.places % points, law.masses, points)) ** times
        mass += times * math.log1p(-min(law.lost, 1 - 1e-9))
    masses = np.maximum(np.roll(np.fft.irfft(product, points), -(first % points)), 0.0)
    return _Law(first + np.arange(points), masses, 2 * tail - math.expm1(mass))
