"""The exact (epsilon, delta) of one job of allocated tokens (docs/accounting.md, section 10.6).

H(K) = sup E_Q (L - K)_+ over all adaptive sequences of tokens is convex, so it belongs to a ratio
L*, and every delta of every job is at most that of the mean of k independent copies of L*, of which
those of batches that aren't run are 1. A coin drawn anew multiplies such means.

A ratio is kept as atoms: values, their masses under Q, and the mass of P at infinity. Putting an
atom on a grid splits it between two nodes with its mean kept, which is larger in convex order: so
every figure is an upper bound, whatever the grid.
"""

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.special import ndtr

from accountant.core.privacy.allocation import Batch
from accountant.core.privacy.loss_distributions import Ratio

Array = NDArray[np.floating[Any]]

#: Steps of the dynamic program in one token's range 2 * shift, finest first.
_STEPS = (16, 12, 8)
#: Grid points times steps times tokens that one quote may cost.
_MOST_WORK = 1.5e7
#: Ratios are followed to this many deviations of their logarithm: what lies beyond weighs below
#: 1e-15.
_DEVIATIONS = 8.5
#: Nodes on each side of 1 of the grid on which copies are averaged.
_NODES = 450
#: Mass beyond e^this counts as infinite.
_MOST_LOG = 30.0


# --- one batch ----------------------------------------------------------------------------------


def calls(shift: float, tokens: int) -> tuple[Array, Array] | None:
    """r = e^u <= 1 and v(r) >= sup E_Q (r L - 1)_+ over adaptive sequences; None if it takes too
    much work.

    From the last token to the first: v is replaced by its largest mean over two ratios e^t, e^(t -
    2 shift) of mean 1. Between nodes v is taken linear, a bound as it is convex, and the best t has
    a closed form. As swapped pairs are pairs of the same kind, v(r) = r v(1/r) + r - 1, and half of
    it is kept.
    """
    deviation = shift * math.sqrt(tokens)
    depth = min(2 * shift * tokens, _DEVIATIONS * deviation + deviation**2 / 2) + 2 * shift
    for steps in _STEPS:
        width = 2 * shift / steps
        nodes = math.ceil(depth / width)
        if nodes * steps * tokens <= _MOST_WORK:
            break
    else:
        return None
    r = np.exp(width * np.arange(-nodes, 1.0))
    wide = np.exp(width * np.arange(-nodes - steps, steps + 1.0))
    ratio = math.exp(-2 * shift)
    least, most = np.exp(width * np.arange(steps)), np.exp(width * np.arange(1, steps + 1.0))
    # Rows are the points r, columns the parts of the range: cells in which r e^(t - 2 shift) and r
    # e^t lie.
    windows = sliding_window_view(np.arange(len(wide) - 1), steps)
    lower, upper = windows[: nodes + 1], windows[steps:]
    start = r[:, None]
    above = wide[nodes + steps + 1 :]
    v = np.zeros(nodes + 1)
    for _ in range(tokens):
        below = v[0] * wide[:steps] / wide[steps]
        column = np.concatenate([below, v, above * v[-2 : -steps - 2 : -1] + above - 1])
        slope = np.diff(column) / np.diff(wide)
        level = column[:-1] - slope * wide[:-1]
        gain = np.maximum(level[lower] - level[upper], 0.0)
        loss = np.maximum(ratio * start * (slope[upper] - slope[lower]), 1e-300)
        w = np.clip(np.sqrt(gain / loss), least, most)
        high = column[upper] + slope[upper] * (start * w - wide[upper])
        low = column[lower] + slope[lower] * (start * ratio * w - wide[lower])
        share = (1 / w - ratio) / (1 - ratio)
        v = np.maximum((share * high + (1 - share) * low).max(axis=1), v)
    return r, v


def worst_ratio(batch: Batch) -> Ratio | None:
    """Return L* of one batch; None if it is too much work or beyond floats."""
    if not 1e-5 <= max(batch.shift, batch.mu) <= 20 or batch.spread > 100:
        return None
    if batch.mu:
        return gaussian_ratio(math.sqrt(batch.spread))
    curve = calls(batch.shift, batch.tokens)
    if curve is None:
        return None
    r, v = curve
    # E_Q (K - L)_+ is v(K) for K <= 1, and E_Q (L - K)_+ is K v(1/K) for K >= 1.
    beyond = 1 / r[::-1]
    call = beyond * v[::-1]
    puts = np.diff(v) / np.diff(r)
    falls = np.diff(call) / np.diff(beyond)
    first = v[0] / r[0]
    middle = falls[0] + 1 - puts[-1]
    masses = np.concatenate(
        [[first, puts[0] - first], np.diff(puts), [middle], np.diff(falls), [-falls[-1]]]
    )
    values = np.concatenate([[0.0], r, beyond[1:]])
    return Ratio(values, np.maximum(masses, 0.0), float(call[-1]))


def gaussian_ratio(mu: float) -> Ratio:
    """Return the ratio of N(mu, 1) to N(0, 1)."""
    ends = np.linspace(-_DEVIATIONS, _DEVIATIONS + mu, 4000)
    values = np.exp(mu * ends - mu * mu / 2)
    under_q, under_p = np.diff(ndtr(ends)), np.diff(ndtr(ends - mu))
    right = np.clip((under_p - under_q * values[:-1]) / np.diff(values), 0.0, under_q)
    masses = np.append(under_q - right, 0.0) + np.append(0.0, right)
    lost = 2 * float(ndtr(-_DEVIATIONS))
    return Ratio(np.append(0.0, values), np.append(lost, masses), lost)


# --- the mean of independent copies -------------------------------------------------------------


class _Grid:
    """0, and nodes e^y, y = unit / growth * sinh(growth * i): fine near 1."""

    def __init__(self, unit: float, top: float) -> None:
        growth = 1e-4
        while unit / growth * math.sinh(growth * _NODES) < top and growth < 1:
            growth *= 1.03
        self.unit, self.growth = unit, growth
        i = np.arange(-_NODES, _NODES + 1.0)
        self.values = np.concatenate([[0.0], np.exp(unit / growth * np.sinh(growth * i))])

    def put(self, values: Array, masses: Array) -> tuple[Array, float]:
        """Return masses on the grid, and P's mass beyond it, whose mass under Q goes to 0."""
        beyond = values > self.values[-1]
        lost = float(values[beyond] @ masses[beyond])
        values = np.where(beyond, 0.0, values)
        y = np.log(np.maximum(values, self.values[1]))
        place = np.floor(np.arcsinh(y * (self.growth / self.unit)) / self.growth).astype(np.int64)
        place = np.clip(place + _NODES + 1, 1, 2 * _NODES)
        # Rounding may miss the cell by one; below the first node it is the cell from 0.
        place -= values < self.values[place]
        place += values > self.values[np.minimum(place + 1, 2 * _NODES + 1)]
        low, high = self.values[place], self.values[place + 1]
        right = (values - low) / (high - low) * masses
        size = len(self.values)
        put = np.bincount(place, masses - right, size) + np.bincount(place + 1, right, size)
        return np.asarray(put, dtype=np.float64), lost


def mean(ratio: Ratio, batches: int, run: int) -> Ratio:
    """Return the mean of `batches` independent copies, with 1 for those not run."""
    if batches == run == 1:
        return ratio
    top = min(max(math.log(ratio.values[-1]) + 0.1, 0.5), _MOST_LOG)
    grid = _Grid(0.1 * max(math.sqrt(ratio.variance / run), 1e-7), top)
    infinite = ratio.infinite

    def pruned(masses: Array) -> Array:
        """Return the places with any weight; what others weigh goes to 0 and infinity."""
        nonlocal infinite
        rest = masses * (1 + grid.values) < 1e-18
        infinite += float(grid.values[rest] @ masses[rest])
        masses[0] += masses[rest].sum()
        masses[rest & (grid.values > 0)] = 0.0
        return np.asarray(np.flatnonzero(masses))

    def joined(first: Array, n: int, second: Array, m: int) -> Array:
        nonlocal infinite
        a, b = pruned(first), pruned(second)
        values = (n * grid.values[a][:, None] + m * grid.values[b]) / (n + m)
        masses, lost = grid.put(values.ravel(), np.outer(first[a], second[b]).ravel())
        infinite += lost
        return masses

    power, lost = grid.put(ratio.values, ratio.under_q)
    infinite += lost
    whole: Array = np.zeros(0)
    have, size, left = 0, 1, run
    while left:
        if left & 1:
            whole, have = (joined(whole, have, power, size), have + size) if have else (power, size)
        left >>= 1
        if left:
            power, size = joined(power, size, power, size), 2 * size
    share = run / batches
    return Ratio(1 - share + share * grid.values, whole, share * infinite)
