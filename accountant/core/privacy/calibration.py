"""Calibration of noise: the least multiplier whose exact price does not exceed a given epsilon.

Never the classical sqrt(2 ln(1.25/delta))/epsilon, which is wrong for epsilon > 1 and wasteful
below (DESIGN, trap 3; Balle and Wang 2018). A multiplier is sigma, or the Laplace scale, over the
sensitivity under the dataset's relation. Resolved parameters carry the multiplier and no epsilon,
so that runner, ledger and verifier use one number that nobody computes again.
"""

import math
from fractions import Fraction

from accountant.core.errors import invalid
from accountant.core.privacy import replaced_samples
from accountant.core.privacy.composition import check_delta, gaussian_mu
from accountant.core.privacy.units import float_up

#: Bounds of every `noise_multiplier`: below, epsilon passes 500,000; above, no release tells
#: anything.
LEAST_MULTIPLIER, MOST_MULTIPLIER = 1e-3, 1e9
#: Bounds of every `epsilon` that noise is calibrated to.
LEAST_EPSILON, MOST_EPSILON = 1e-6, 1_000.0

#: Root-finding is good to 1e-13; this much more noise keeps the price below its target.
_SLACK = 1 + 1e-11
#: A sampled event's price is moved outward by so much (composition), so its noise aims at so much
#: less.
_OUTWARD = 2e-11


def gaussian_multiplier(epsilon: float, delta: float, releases: int = 1) -> float:
    """Return the least sigma / sensitivity at which `releases` Gaussians together cost (`epsilon`,
    `delta`).

    sqrt(releases) / mu with mu the root of the exact profile (paper 004, Equations 3 and 4).
    """
    check_delta(delta)
    return math.sqrt(releases) / gaussian_mu(epsilon, delta) * _SLACK


def sampled_multiplier(epsilon: float, delta: float, releases: int, probability: float) -> float:
    """As `gaussian_multiplier`, on one sample of rate `probability`, Poisson or of fixed size.

    Amplification is exact and invertible: epsilon before sampling is ln(1 + (e^epsilon - 1)/q) at
    delta / q (Balle, Barthe and Gaboardi 2018, Theorems 8 and 9).
    """
    check_delta(delta)
    if delta >= probability:
        raise invalid(
            "epsilon", f"any noise will do: delta {delta} is not below the rate {probability}"
        )
    aim = epsilon * (1 - _OUTWARD) - _OUTWARD
    before = math.log1p(math.expm1(aim) / probability) if epsilon < 700 else aim
    return gaussian_multiplier(before, delta / probability, releases)


def swapped_multiplier(epsilon: float, delta: float, releases: int, probability: float) -> float:
    """As `sampled_multiplier` for a unit replaced on a Poisson sample (events.PoissonSwapped)."""
    # refuses a delta not below the rate
    plain = sampled_multiplier(epsilon, delta, releases, probability)
    aim = epsilon * (1 - _OUTWARD) - _OUTWARD
    multiplier = math.sqrt(releases) * replaced_samples.multiplier(aim, delta, probability) * _SLACK
    return min(multiplier, plain)


def laplace_multiplier(epsilon: float, releases: int = 1) -> float:
    """Return the least scale / sensitivity at which Laplace releases cost pure `epsilon`."""
    return float_up(releases / Fraction(epsilon))
