"""Privacy profiles of sampled Gaussians: the exact hockey-stick divergences behind their prices.

The profile of a pair (P, Q) at epsilon is H(P || Q) = sup over events of P - e^epsilon Q: the least
delta at that epsilon (Balle, Barthe and Gaboardi 2018). Sampling a composition of Gaussians of
total mu, one draw for all, has a profile in closed form, and from a profile follow exactly

  delta of its composition with a Gaussian:  E[h(epsilon - L)], L the loss of the Gaussian
  Rényi divergence:  e^((a-1) D) - 1 <= a (a-1) integral_1^inf (t^(a-2) + t^(-a-1)) h(ln t) dt

where h bounds both directions (the second is the f-divergence of t^a as an integral of
hockey-sticks, Sason and Verdú 2016). All arguments are natural logarithms. Integrals are by
Gauss-Legendre panels refined at every kink, good to about 1e-12 relative; tests compare them with
dp-accounting.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, erfinv, log_ndtr, logsumexp, ndtri_exp

Array = NDArray[np.floating[Any]]
Profile = Callable[[Array], Array]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
#: Gaussian tails beyond this many deviations weigh less than 2e-32 and are added to delta.
_TAIL = 12.0
#: Orders that would need more points than this are priced without amplification.
_MOST_POINTS = 60_000


def log_gaussian(mu: float, epsilon: Array) -> Array:
    """ln H(N(mu, 1) || N(0, 1)) at any real `epsilon` (Balle and Wang 2018, Theorem 8)."""
    upper = log_ndtr(mu / 2 - epsilon / mu)
    lower = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    with np.errstate(divide="ignore"):
        log = np.asarray(upper + np.log(-np.expm1(np.minimum(lower - upper, 0.0))))
    near = epsilon / mu - mu / 2
    if mu >= _SMALL_MU or not np.any(near > _LEFT):
        return log
    # The two logarithms nearly cancel.
    near = np.maximum(near, _LEFT)
    exact = -near * near / 2 - math.log(2 * math.pi) / 2 + np.log(mills_drop(near, mu))
    return np.where(near > _LEFT, exact, log)


#: Below this mu the two terms of a Gaussian's profile are closer than their logarithms are exact,
#: right of this argument of the first.
_SMALL_MU, _LEFT = 0.1, -5.0


def mills_drop(start: Array, width: float) -> Array:
    """Return R(start) - R(start + width) for the Mills ratio R(t) = (1 - Phi(t)) / phi(t), without
    cancellation.

    R' = t R - 1, integrated by one Gauss-Legendre panel: `width` is at most 1, `start` at least -5.
    """
    points = start[..., None] + width * (1 + _NODES) / 2
    slopes = 1 - points * math.sqrt(math.pi / 2) * erfcx(points / math.sqrt(2))
    return np.asarray(slopes @ _WEIGHTS * (width / 2))


def gaussian(mu: float, epsilon: Array) -> Array:
    """Return H(N(mu, 1) || N(0, 1)) at any real `epsilon`."""
    return np.asarray(np.exp(log_gaussian(mu, epsilon)))


def _unsampled(q: float, epsilon: Array) -> Array:
    """Return ln(1 + (e^epsilon - 1) / q): where the whole event's profile is taken."""
    near = np.minimum(epsilon, 30.0)
    inner = np.log1p(np.maximum(np.expm1(near) / q, -1 + 1e-300))
    far = epsilon - math.log(q) + np.log1p(-(1 - q) * np.exp(-np.maximum(epsilon, 30.0)))
    return np.asarray(np.where(epsilon > 30.0, far, inner))


def poisson_removed(q: float, mu: float) -> Profile:
    """Return the profile of (1 - q) N(0) + q N(mu) against N(0): unit present."""

    def profile(epsilon: Array) -> Array:
        with np.errstate(divide="ignore"):
            epsilons = _unsampled(q, epsilon)
        certain = epsilon <= math.log1p(-q) if q < 1 else np.zeros(epsilon.shape, dtype=bool)
        epsilons = np.where(certain, 0.0, epsilons)
        return np.asarray(
            np.where(certain, -np.expm1(np.minimum(epsilon, 0.0)), q * gaussian(mu, epsilons))
        )

    return profile


def poisson_added(q: float, mu: float) -> Profile:
    """Return the profile of N(0) against (1 - q) N(0) + q N(mu): unit absent."""

    def profile(epsilon: Array) -> Array:
        capped = np.minimum(epsilon, 700.0)
        left = 1 - np.exp(capped) * (1 - q)
        held = left > 0
        left = np.where(held, left, 1.0)
        epsilons = capped + math.log(q) - np.log(left)
        return np.asarray(np.where(held, left * gaussian(mu, epsilons), 0.0))

    return profile


def replaced(q: float, mu: float) -> Profile:
    """Return a bound for one unit replaced on a sample, by coin or without replacement, in both
    directions.

    For epsilon >= 0: q H(ln(1 + (e^epsilon - 1)/q)) (Balle, Barthe and Gaboardi 2018, Theorems 8
    and 9, by advanced joint convexity). The relation is symmetric, so the other half is its mirror
    image.
    """

    def profile(epsilon: Array) -> Array:
        held = q * gaussian(mu, _unsampled(q, np.abs(epsilon)))
        below = np.minimum(epsilon, 0.0)
        return np.asarray(np.where(epsilon >= 0, held, -np.expm1(below) + np.exp(below) * held))

    return profile


def mu_of_pure(epsilon: float) -> float:
    """Return the mu for which pure epsilon-DP is mu-GDP: -2 Phi^-1(1 / (1 + e^epsilon)).

    Accurate for small and large epsilon too.
    """
    if epsilon < 1:
        # The same by the error function: near probability 1/2 a quantile would lose every digit.
        return float(2 * math.sqrt(2) * erfinv(math.tanh(epsilon / 2)))
    log_probability = -(epsilon + math.log1p(math.exp(-epsilon)))
    return float(-2.0 * ndtri_exp(log_probability))


def mu_of_laplace(epsilon: float) -> float:
    """Return the mu for which Laplace noise of pure `epsilon` is mu-GDP: 2 Phi^-1(1 -
    e^(-epsilon/2) / 2).

    Least, and attained where both errors are e^(-epsilon/2) / 2 (docs/accounting.md, section 11.4).
    """
    if epsilon < 1:
        return float(2 * math.sqrt(2) * erfinv(-math.expm1(-epsilon / 2)))
    return float(-2.0 * ndtri_exp(-epsilon / 2 - math.log(2)))


def laplace(pure: float) -> Profile:
    """Return the profile of one Laplace release of pure epsilon `pure`."""

    def profile(epsilon: Array) -> Array:
        inside = -np.expm1((np.minimum(epsilon, pure) - pure) / 2)
        return np.asarray(np.where(epsilon < -pure, -np.expm1(np.minimum(epsilon, 0.0)), inside))

    return profile


# --- composition with a Gaussian -----------------------------------------------------------------


def panels(edges: Array) -> tuple[Array, Array]:
    """Gauss-Legendre points and weights on the panels between sorted `edges`."""
    half = np.diff(edges) / 2
    middle = (edges[1:] + edges[:-1]) / 2
    points = middle[:, None] + half[:, None] * _NODES
    return points.ravel(), (half[:, None] * _WEIGHTS).ravel()


def delta_with_gaussian(
    profile: Profile, kinks: tuple[float, ...], mu: float, epsilon: float
) -> float:
    """Return the delta at `epsilon` of a `mu`-GDP release composed with one whose profile is
    `profile`.

    `kinks` are the points where the profile turns sharply. With mu = 0 this is the profile itself.
    """
    if mu == 0:
        return float(profile(np.array([epsilon]))[0])
    reach = np.concatenate(([0.0], np.exp2(np.arange(-26.0, 7.0))))
    marks = [kink + sign * reach for kink in kinks for sign in (-1, 1)]
    # The Gaussian's loss is mu^2/2 + mu z; the profile is asked at epsilon minus that.
    turns = (epsilon - np.concatenate(marks) - mu * mu / 2) / mu
    plain = np.linspace(-_TAIL, _TAIL, 49)
    edges = np.unique(np.clip(np.concatenate((plain, turns)), -_TAIL, _TAIL))
    points, weights = panels(edges)
    density = np.exp(-points * points / 2) / math.sqrt(2 * math.pi)
    values = profile(epsilon - mu * mu / 2 - mu * points)
    return float(np.dot(weights * density, values)) + 2e-33


# --- Rényi divergence ----------------------------------------------------------------------------


def _log_mixture(q: float, loss: Array) -> Array:
    """ln(1 - q + q e^loss)."""
    return np.asarray(np.logaddexp(math.log1p(-q), math.log(q) + loss) if q < 1 else loss)


@lru_cache(maxsize=4096)
def renyi_poisson(order: float, q: float, mu: float) -> float:
    """Return D_order of (1 - q) N(0) + q N(mu) against N(0), which is the larger direction.

    Mironov, Talwar and Zhang 2019, Theorems 4 and 5: the integral itself, by the trapezoidal rule,
    which converges geometrically for it. Infinite where too many points would be needed.
    """
    step = min(0.1, 0.3 / mu)
    count = math.ceil((2 * _TAIL + order * mu) / step)
    if not count <= _MOST_POINTS:
        return math.inf
    x = -_TAIL + step * np.arange(count + 1)
    loss = mu * x - mu * mu / 2
    ratio = q * np.expm1(np.minimum(loss, 700.0))
    # E[(1 + y)^a] - 1 = E[(1 + y)^a - 1 - a y] as E[y] = 0: no cancellation where y is small.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        power = order * np.where(loss < 30.0, np.log1p(ratio), _log_mixture(q, loss))
        series = order * (order - 1) / 2 * ratio**2 * (1 + (order - 2) / 3 * ratio)
        excess = np.expm1(np.minimum(power, 600.0)) - order * ratio
        small = np.abs(ratio) * max(order, 1.0) < 1e-4
        near = np.log(np.maximum(np.where(small, series, excess), 0.0))
        # Far out 1 + y is y, and only logarithms hold it.
        far = power + np.log1p(-order * np.exp(np.minimum(power / order - power, -math.log(order))))
        log_excess = np.where(power > 600.0, far, near)
    total = logsumexp(log_excess - x * x / 2) + math.log(step / math.sqrt(2 * math.pi))
    return float(np.logaddexp(0.0, total) / (order - 1)) + 1e-16


@lru_cache(maxsize=4096)
def renyi_replaced(order: float, q: float, mu: float) -> float:
    """Return a bound on the Rényi divergence from the profile `replaced` (head of this file); tight
    for q = 1.

    With t = 1 + q (e^u - 1) the integral is that of (t^(a-2) + t^(-a-1)) H(u) q^2 e^u over u > 0.
    Infinite where too many points would be needed.
    """
    width = min(mu, 1.0)
    top = mu * mu * (order + 0.5) + _TAIL * mu
    count = math.ceil(top / width)
    if not count * len(_NODES) <= _MOST_POINTS:
        return math.inf
    # Halving panels towards 0 where the profile is steepest on the scale of q.
    graded = width * np.exp2(-np.arange(1.0, 6.0))
    u, weights = panels(np.unique(np.concatenate((width * np.arange(count + 1), graded))))
    log_t = _log_mixture(q, u)
    log_h = log_gaussian(mu, u) + u + np.log(weights)
    terms: Any = logsumexp(
        np.concatenate((log_h + (order - 2) * log_t, log_h - (order + 1) * log_t))
    )
    total = float(terms) + math.log(order * (order - 1)) + 2 * math.log(q)
    return float(np.logaddexp(0.0, total) / (order - 1)) + 1e-16
