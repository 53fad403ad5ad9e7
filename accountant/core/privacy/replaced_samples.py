"""A unit replaced on a Poisson sample, where the sample with neither lies half as far as the two
apart.

With M0 the release without the unit, M1 with the one and M1' with the other, A = (1-q) M0 + q M1
and B = (1-q) M0 + q M1'. For e = e^epsilon > 1, t = 1 + (e - 1)/q and b = e/t (Balle, Barthe and
Gaboardi 2018, Theorem 2, advanced joint convexity)

    H_e(A || B) = q H_t(M1 || (1-b) M0 + b M1')

and for every part s of M1' that is split off, w = s b of M1 against b M1' and the rest against
(1-b) M0,

    H_t(M1 || (1-b) M0 + b M1') <= (1-w) H(M1 || M0) at t (1-b)/(1-w)  +  w H(M1 || M1') at t b/w =
      t/s.

s = 1 is convexity; small s makes use of it that M1' is rare in B. The least over a few s is a
bound; swapping the two units changes nothing, so both directions have it (docs/accounting.md,
section 12).
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import scipy  # scipy.optimize is loaded at its first use: most processes never need it
from scipy.special import logsumexp

from accountant.core.privacy.privacy_profiles import (
    Array,
    Profile,
    log_gaussian,
    panels,
)
from accountant.core.privacy.privacy_profiles import replaced as convex

#: Parts s that are tried: in a profile, which is asked thousands of times, and in a divergence.
_FEW = (1.0, 0.03, 0.0)
_MANY = (1.0, 0.3, 0.05, 0.003, 0.0)
_TAIL = 12.0
_MOST_POINTS = 60_000


def _log_split(part: float, q: float, mu: float, u: Array) -> Array:
    """Return ln of the bound on H_t, t = e^u > 1; `mu` is the distance of the units."""
    log_share = _log_mixture(q, u) - u  # ln b
    log_none = math.log1p(-q) + np.log(-np.expm1(-u))  # ln(1 - b), without cancellation
    if part == 0:
        return log_gaussian(mu / 2, u + log_none)
    log_rest = log_none if part == 1 else np.log1p(-part * np.exp(log_share))
    there = log_rest + log_gaussian(mu / 2, u + log_none - log_rest)
    return np.asarray(
        np.logaddexp(there, math.log(part) + log_share + log_gaussian(mu, u - math.log(part)))
    )


def _log_mixture(q: float, u: Array) -> Array:
    """ln(1 - q + q e^u) for u >= 0."""
    return np.asarray(u + np.log1p((1 - q) * np.expm1(-u)))


def profile(q: float, mu: float) -> Profile:
    """Return the least delta at any epsilon, in both directions; `mu`: distance of units."""
    if q == 1:
        return convex(q, mu)

    def bound(epsilon: Array) -> Array:
        e = np.minimum(np.abs(epsilon), 700.0)
        u = np.maximum(np.log1p(np.expm1(np.minimum(e, 30.0)) / q), 1e-300)
        far = e - math.log(q) + np.log1p(-(1 - q) * np.exp(-np.maximum(e, 30.0)))
        u = np.where(e > 30.0, far, u)
        held = q * np.exp(np.min([_log_split(part, q, mu, u) for part in _FEW], axis=0))
        below = np.minimum(epsilon, 0.0)
        return np.asarray(np.where(epsilon >= 0, held, -np.expm1(below) + np.exp(below) * held))

    return bound


@lru_cache(maxsize=4096)
def renyi(order: float, q: float, mu: float) -> float:
    """Return a bound on the Rényi divergence, both directions being below the bound above (Sason
    and Verdú 2016).

    The integral of (t^(a-2) + t^(-a-1)) H(u) q^2 e^u over u > 0, where here t = 1 + q (e^u - 1), as
    in `privacy_profiles.renyi_replaced`. On each panel one part s serves, whose integrand is
    smooth. Infinite where too many points would be needed, and for q = 1.
    """
    width = min(mu / 2, 1.0)
    top = mu * mu * (order + 0.5) + _TAIL * mu
    count = math.ceil(top / width)
    if q == 1 or not 12 * len(_MANY) * (count + 40) <= _MOST_POINTS:
        return math.inf
    graded = width * np.exp2(-np.arange(1.0, 40.0))
    u, weights = panels(np.unique(np.concatenate((width * np.arange(count + 1), graded))))
    log_t = _log_mixture(q, u)
    powers: Any = np.logaddexp((order - 2) * log_t, -(order + 1) * log_t)
    outer = powers + u + np.log(weights)
    splits = [
        logsumexp((_log_split(part, q, mu, u) + outer).reshape(-1, 12), axis=1) for part in _MANY
    ]
    total = (
        float(logsumexp(np.min(splits, axis=0))) + math.log(order * (order - 1)) + 2 * math.log(q)
    )
    return float(np.logaddexp(0.0, total) / (order - 1)) + 1e-16


def multiplier(epsilon: float, delta: float, q: float) -> float:
    """Return the least sigma / distance at which the release costs (`epsilon`, `delta`)."""
    at = np.array([epsilon])

    def excess(log_multiplier: float) -> float:
        return math.log(float(profile(q, math.exp(-log_multiplier))(at)[0]) or 1e-300) - math.log(
            delta
        )

    low = high = 0.0
    while excess(low) < 0:
        low -= 1
    while excess(high) > 0:
        high += 1
    return math.exp(float(scipy.optimize.brentq(excess, low, high, xtol=1e-13, rtol=1e-14)))
