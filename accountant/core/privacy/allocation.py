"""Rényi divergence where a secret coin puts a unit into one of k batches (docs/accounting.md,
section 10).

World P is with the unit, world Q without. Given where all other units lie, the batches are
independent under Q and m = dP/dQ = (1/k) (L_1 + … + L_k), L_i the likelihood ratio of batch i, of
mean 1; a batch that isn't run has L_i = 1. Both directions are bounded, and a price is the larger:

  with_against_without   E_Q m^a for whole a, by a power series of positive terms (Theorem 1)
  without_against_with   E_Q m^(1-a) by an integral over Laplace transforms (Theorem 2)

Everything is an upper bound up to float rounding, which `SLACK` covers. All logarithms are natural.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc, gammaln, logsumexp

from accountant.core.privacy.privacy_profiles import mu_of_pure

Array = NDArray[np.floating[Any]]

#: Orders above this are priced as if the coin were known: the work grows with the square of the
#: order.
MOST_ORDER = 256
#: Rounding: sums of up to 10^5 terms near 1, whose logarithm is the price.
SLACK = 1e-11
#: Divergences without against with below this order are taken at it: they grow with the order.
_LEAST_ORDER = 1.25
#: The same for a replaced unit, whose bound would rise again towards order 1.
_LEAST_REPLACED = 1.5
#: Up to this z one token's Laplace transform is bounded by its moments, beyond it by a larger
#: log-normal.
_SMALL_TILT = 0.35
#: Beyond these total spreads (16 is 72 nats at order 9) the integral, and then the series, isn't
#: computed.
_MOST_INTEGRATED, _MOST_SPREAD = 16.0, 1e3


@dataclass(frozen=True)
class Batch:
    """`tokens` draws of one batch, each moved by a unit: scores by at most `shift`, or a Gaussian
    by `mu`.

    One of `shift` and `mu` is 0. Draws may depend on all that was drawn before.
    """

    tokens: int
    shift: float = 0.0
    mu: float = 0.0

    @property
    def spread(self) -> float:
        """Return v with E_Q L^-r <= e^(r (r+1) v / 2) for all r > 0, as of a Gaussian."""
        return self.tokens * max(self.shift, self.mu) ** 2

    @property
    def log_normal(self) -> float:
        """v with E_Q e^(-z L) <= E e^(-z R) for all z > 0, R log-normal of mean 1 and ln R of
        variance v.

        A token: v = S e^(3S/4) with S = 2 (cosh shift - 1), or that of the Gaussian which dominates
        it (docs/accounting.md, section 10.4); the latter is less from shift 0.71 on.
        """
        if self.mu:
            return self.spread
        square = 4 * math.sinh(min(self.shift, 2.0) / 2) ** 2
        return self.tokens * min(square * math.exp(0.75 * square), mu_of_pure(self.shift) ** 2)

    def log_moment(self, order: float) -> float:
        """ln of a bound on E_Q L^order, order >= 1."""
        if self.mu:
            return order * (order - 1) * self.spread / 2
        return self.tokens * token_log_moment(order, self.shift)


def token_log_moment(order: float, shift: float) -> float:
    """ln of the largest E_Q L^order of one token, order >= 1, over all ratios in an interval of
    logarithms 2 * shift wide.

    Attained at the two ends e^t and e^(t - 2 shift), with E_Q L = 1, at the best t. With that t the
    moment is

        sinh(n x)/(n sinh x) * (sinh(n x) (n - 1)/(n sinh((n - 1) x)))^(n - 1),
        n = order, x = shift.

    """
    if order <= 1:
        return 0.0
    bound = min(order * (order - 1) * shift**2 / 2, 2 * shift * (order - 1))
    above = order - 1
    if order * shift < 1e-2 or shift > 10:  # the closed form would cancel, and gains little
        return bound
    first = _log_sinh_ratio(shift, above * shift) - math.log1p(above)
    second = _log_sinh_ratio(above * shift, shift) - math.log1p(1 / above)
    return min(bound, max(first + above * second, 0.0))


def _log_sinh_ratio(start: float, step: float) -> float:
    """Return ln(sinh(start + step) / sinh(start)); neither overflows nor cancels."""
    return step + math.log1p(math.exp(-2 * start) * math.expm1(-2 * step) / math.expm1(-2 * start))


# --- with against without -----------------------------------------------------------------------


def with_against_without(order: float, batches: int, run: int, batch: Batch) -> float:
    """Return D_order(P || Q) for 1 < order <= MOST_ORDER; whole orders by Theorem 1.

    ln E_Q m^a is convex in a and 0 at 1, so between whole orders its chord is a bound.
    """
    low = math.floor(order)
    table = log_moments(batches, run, batch, max(8, 2 ** math.ceil(math.log2(order))))
    between = order - low
    return float((1 - between) * table[low] + between * table[min(low + 1, len(table) - 1)]) / (
        order - 1
    )


@lru_cache(maxsize=256)
def log_moments(batches: int, run: int, batch: Batch, most: int) -> Array:
    """ln of a bound on E_Q m^a for a = 0 … `most`.

    It is a! [z^a] (sum_n M_n (z/k)^n / n!)^run e^(z (k - run)/k), with M_n a bound on E_Q L^n of
    one batch.
    """
    n = np.arange(most + 1.0)
    moments = np.array([batch.log_moment(order) for order in n.tolist()])
    moments[0] = 0.0
    factorials = gammaln(n + 1)
    base = moments - factorials - n * math.log(batches)
    idle = math.log((batches - run) / batches) if run < batches else -math.inf
    with np.errstate(invalid="ignore"):
        whole = np.where(n == 0, 0.0, n * idle) - factorials
    return np.asarray(np.maximum(_product(whole, _power(base, run)) + factorials, 0.0))


def _power(series: Array, exponent: int) -> Array:
    """Return log coefficients of a power of a series whose first coefficient is 1."""
    size = len(series)
    if exponent + 1 < size:
        whole, factor, left = None, series, exponent
        while True:
            if left & 1:
                whole = factor if whole is None else _product(whole, factor)
            left >>= 1
            if not left:
                assert whole is not None  # the exponent is positive
                return whole
            factor = _product(factor, factor)
    # f = p^g solves p f' = g p' f: n f_n = sum_j (j (g + 1) - n) p_j f_(n-j), all terms positive
    # here.
    powers = np.zeros(size)
    for n in range(1, size):
        j = np.arange(1, n + 1)
        terms = np.log((j * (exponent + 1.0) - n) / n) + series[1 : n + 1] + powers[n - 1 :: -1]
        top = terms.max()
        powers[n] = top + math.log(np.exp(terms - top).sum())
    return powers


def _product(first: Array, second: Array) -> Array:
    """Return log coefficients of the product of two series, both given by logarithms."""
    size = len(first)
    padded = np.concatenate([np.full(size - 1, -np.inf), second])
    place = size - 1 + np.arange(size)[:, None] - np.arange(size)
    terms = first + padded[place]
    top = terms.max(axis=1)
    with np.errstate(divide="ignore"):
        return np.asarray(top + np.log(np.exp(terms - top[:, None]).sum(axis=1)))


# --- without against with -----------------------------------------------------------------------


def without_against_with(order: float, batches: int, run: int, batch: Batch) -> float:
    """Return D_order(Q || P) by Theorem 2.

    With s = order - 1, m^-s is the integral of λ^(s-1) e^(-λm) over λ > 0, divided by Γ(s). Cells
    of λ, in each of which the convex ln E_Q e^(-λm) lies below its chord, give incomplete gamma
    functions: a bound, whatever their width.
    """
    s = max(order, _LEAST_ORDER) - 1
    mean = float(geometric_mean(s, batches, run, batch))
    if batch.log_normal > _MOST_INTEGRATED:
        return mean
    ends, logs = _log_laplace(batches, run, batch)
    slope = np.maximum(-np.diff(logs) / np.diff(ends), 1e-300)
    start = logs[:-1] + slope * ends[:-1]
    below, above = slope * ends[:-1], slope * ends[1:]
    share = np.where(
        below < s,
        gammainc(s, above) - gammainc(s, below),
        gammaincc(s, below) - gammaincc(s, above),
    )
    held = share > 0
    body = logsumexp(start[held] - s * np.log(slope[held]) + np.log(share[held]))
    # Beyond the last end: Γ(s, Λm)/Γ(s) <= Γ(s+r)/Γ(s) (Λm)^-r for every r > 0, and the geometric
    # mean.
    r = np.arange(1.0, 400.0)
    tail = gammaln(s + r) - gammaln(s) - r * math.log(ends[-1])
    tail += (s + r) * geometric_mean(s + r, batches, run, batch)
    return min(mean, float(np.logaddexp(body, tail.min())) / s)


def geometric_mean(s: float | Array, batches: int, run: int, batch: Batch) -> Any:
    """Bound D_(s+1)(Q || P) by the geometric mean (Feldman and Shenfeld 2025)."""
    return run / batches * (1 + s / batches) * batch.spread / 2


@lru_cache(maxsize=256)
def _log_laplace(batches: int, run: int, batch: Batch) -> tuple[Array, Array]:
    """Return ends λ of cells, from 0 on, and ln of a bound on E_Q e^(-λm) there."""
    deviation = math.sqrt(batch.log_normal)
    # With few batches the integrand's weight lies near λ = s e^(s v / k).
    top = 8.0 + 6 * deviation + min(32 / batches, 8.0) * deviation**2
    ends = np.exp(np.arange(-6.0, min(top, 80.0), 1 / 24))
    z = ends / batches
    of_a_batch = _log_centred(z, deviation)
    if batch.shift:
        variance, sixth = _small_tilts(batch.shift)
        near = z[z < _SMALL_TILT]
        beyond = math.log(sixth * batch.tokens) + 15 * batch.tokens * max(variance, batch.shift**2)
        less = _log_centred(near, math.sqrt(batch.tokens * variance))
        less = np.logaddexp(less, beyond + 6 * np.log(near) + near)
        of_a_batch = np.concatenate(
            [np.minimum(of_a_batch[: len(near)], less), of_a_batch[len(near) :]]
        )
    logs = -ends + run * of_a_batch
    finite = logs > -600.0
    return np.concatenate([[0.0], ends[finite]]), np.concatenate([[0.0], logs[finite]])


@lru_cache(maxsize=256)
def _small_tilts(shift: float) -> tuple[float, float]:
    """(v, c): one token has E_Q e^(-z L) <= E e^(-z R) + c z^6 for all z > 0, ln R of variance v.

    Up to z = _SMALL_TILT without the second term. With Y = L - 1 in {a, -b} and e^-y between its
    Taylor polynomials it is enough that ab (1/2 - z (a - b)/6 + z^2 (a^2 - ab + b^2) e^(zb)/24) is
    at most s (1/2 - z s (s + 3)/6), s = e^v - 1: convex in z against linear, so only the ends
    count.
    """
    t = 2 * shift * np.arange(2001) / 2000
    a, b = np.expm1(t), -np.expm1(t - 2 * shift)
    z = _SMALL_TILT
    second = float((a * b).max())
    fourth = (a * a - a * b + b * b) * math.exp(2 * shift * z) / 24
    needed = float((a * b * (0.5 - z * (a - b) / 6 + z * z * fourth)).max())
    s = second
    for _ in range(60):  # s (1/2 - z s (s + 3)/6) = needed, by its fixed point from below
        s = max(second, needed / (0.5 - z * s * (s + 3) / 6))
    v = math.log1p(s) * (1 + 1e-6)  # the grid of t misses the largest by less
    s = math.expm1(v)
    most = Batch(1, shift=shift).log_normal
    if not v < most or s * (0.5 - z * s * (s + 3) / 6) < needed:
        v = most
    # E e^(-z R) grows with the variance by at most 2 e^-2 of it.
    return v, 2 * math.exp(-2) * max(most - v, 1e-6 * v) / z**6


def _log_centred(z: Array, deviation: float) -> Array:
    """ln E e^(-z (R - 1)) >= 0, z sorted, for R log-normal of mean 1 and ln R of this standard
    deviation.

    By the trapezium rule, which converges geometrically here. For z < 1 it is computed from
    E (e^-t - 1 + t), t = z (R - 1), which does not cancel.
    """
    x = np.arange(-12.0, 12.0 + deviation, min(0.2, 0.3 / deviation))
    weights = np.exp(-x * x / 2)
    weights /= weights.sum()
    moved = np.expm1(deviation * x - deviation**2 / 2)
    small, large = z[z < 1.0], z[z >= 1.0]
    t = small[:, None] * moved
    series = t * t / 2 * (1 - t / 3 * (1 - t / 4 * (1 - t / 5 * (1 - t / 6))))
    excess = np.where(np.abs(t) < 1e-2, series, np.expm1(-t) + t)
    far = logsumexp(-large[:, None] * moved, b=weights, axis=1)
    return np.concatenate([np.log1p(excess @ weights), np.maximum(far, 0.0)])


# --- prices -------------------------------------------------------------------------------------


def renyi(order: float, batches: int, run: int, batch: Batch) -> float:
    """Return the larger of both directions at `order`; infinite where it isn't computed."""
    if not _priced(order, batch):
        return math.inf
    there = with_against_without(order, batches, run, batch)
    back = geometric_mean(order - 1, batches, run, batch)
    if back > there:
        back = without_against_with(order, batches, run, batch)
    return float(max(there, back) + SLACK)


def renyi_replaced(order: float, batches: int, run: int, batch: Batch) -> float:
    """Return a bound where a unit is replaced, by Hölder's inequality through the world N with
    neither unit.

    For 1/p + 1/q = 1: D_a(A || B) <= (a - 1/p)/(a - 1) D_pa(A || N) + D_(q(a-1)+1)(N || B). All pa
    are whole here.
    """
    best = math.inf
    if not _priced(order, batch):
        return best
    order = max(order, _LEAST_REPLACED)
    for raised in sorted({math.ceil(order * p) for p in (1.25, 1.5, 1.75, 2, 2.5, 3, 4)}):
        if not order < raised <= MOST_ORDER:
            continue
        p = raised / order
        other = (order - 1) * p / (p - 1)
        there = (order - 1 / p) / (order - 1) * with_against_without(raised, batches, run, batch)
        back = geometric_mean(other, batches, run, batch)
        if there < best and other < 4 * MOST_ORDER:
            back = without_against_with(other + 1, batches, run, batch)
        best = min(best, there + back)
    return best + 2 * SLACK


def _priced(order: float, batch: Batch) -> bool:
    return 1 < order <= MOST_ORDER and 0 < batch.spread <= _MOST_SPREAD
