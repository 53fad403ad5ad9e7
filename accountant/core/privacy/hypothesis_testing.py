"""The meaning of (epsilon, delta) as a hypothesis test: bounds on the success of every possible
guess.

The test is between two neighbouring datasets: given all that was published, which of the two did it
come from? Any test with false alarms a and detections b has b ≤ e^ε a + δ and 1 − a ≤ e^ε (1 − b) +
δ (Wasserman and Zhou 2010, Theorem 2.4, for δ = 0; Kairouz, Oh and Viswanath 2015, Theorem 2.1),
and some mechanism of this (ε, δ) reaches every point of that boundary.
"""

import math

from accountant.core.errors import invalid


def best_success(epsilon: float, delta: float) -> float:
    """Return the largest probability of a right guess if both datasets are equally likely
    beforehand.

    (1 + b − a)/2 on the boundary above is largest where its two lines meet, at a = (1 − δ)/(1 +
    e^ε): (e^ε + δ)/(1 + e^ε). Raises InvalidRequest outside ε ≥ 0 and 0 ≤ δ ≤ 1.
    """
    _check(epsilon, delta)
    return _share(epsilon) + delta * _share(-epsilon)


def most_detected(epsilon: float, delta: float, false_alarms: float) -> float:
    """Return the largest detection probability of a test with this probability of a false alarm."""
    _check(epsilon, delta)
    if not 0 <= false_alarms <= 1:
        raise invalid("false_alarms", f"{false_alarms}", "0 to 1")
    by_excess = math.exp(min(epsilon, 700.0)) * false_alarms + delta
    by_misses = 1 - math.exp(-epsilon) * (1 - delta - false_alarms)
    return min(by_excess, by_misses, 1.0)


def _share(epsilon: float) -> float:
    """e^ε / (1 + e^ε), without overflow."""
    if epsilon >= 0:
        return 1 / (1 + math.exp(-epsilon))
    return math.exp(epsilon) / (1 + math.exp(epsilon))


def _check(epsilon: float, delta: float) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise invalid("epsilon", f"{epsilon}", "a finite number of at least 0")
    if not 0 <= delta <= 1:
        raise invalid("delta", f"{delta}", "0 to 1")
