"""The bound on a guesser: no pair of distributions beats it, and one reaches it."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies

from accountant.core.errors import InvalidRequest
from accountant.core.privacy.hypothesis_testing import best_success, most_detected

EPSILONS = strategies.floats(0, 12)
DELTAS = strategies.floats(0, 1)


def delta_of(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    """The smallest δ with which both are (epsilon, δ)-indistinguishable."""
    factor = math.exp(epsilon)
    return float(
        max(np.maximum(one - factor * other, 0).sum(), np.maximum(other - factor * one, 0).sum())
    )


def best_guess(one: np.ndarray, other: np.ndarray) -> float:
    """The success of the best test at even odds: (1 + total variation)/2, by trying every set."""
    sets = (np.arange(2 ** len(one))[:, None] >> np.arange(len(one))) & 1
    return float((sets @ one + (1 - sets) @ other).max() / 2)


@given(EPSILONS, strategies.integers(2, 6), strategies.integers(0, 2**32 - 1))
def test_no_pair_of_distributions_beats_the_bound(epsilon, outcomes, seed):
    draw = np.random.default_rng(seed)
    one, other = draw.dirichlet(np.full(outcomes, 0.5), size=2)
    delta = min(delta_of(one, other, epsilon), 1.0)
    assert best_guess(one, other) <= best_success(epsilon, delta) + 1e-12
    sets = (np.arange(2**outcomes)[:, None] >> np.arange(outcomes)) & 1
    for alarms, detected in zip(sets @ other, sets @ one, strict=True):
        assert detected <= most_detected(epsilon, delta, min(max(float(alarms), 0), 1)) + 1e-9


@given(EPSILONS, DELTAS)
def test_the_extreme_pair_reaches_it(epsilon, delta):
    """The dominating pair of Kairouz, Oh and Viswanath 2015: two outcomes tell all, two tell
    e^ε.
    """
    odds = math.exp(epsilon) / (1 + math.exp(epsilon))
    one = np.array([delta, (1 - delta) * odds, (1 - delta) * (1 - odds), 0])
    other = one[::-1]
    assert delta_of(one, other, epsilon) <= delta + 1e-9
    assert best_guess(one, other) == pytest.approx(best_success(epsilon, delta), abs=1e-12)
    alarms = float(other[:2].sum())
    assert float(one[:2].sum()) == pytest.approx(most_detected(epsilon, delta, alarms), abs=1e-9)


@given(EPSILONS, DELTAS)
def test_it_is_the_best_point_of_the_boundary(epsilon, delta):
    along = np.linspace(0, 1, 2001)
    best = max((1 + most_detected(epsilon, delta, float(a)) - a) / 2 for a in along)
    assert best <= best_success(epsilon, delta) + 1e-12
    assert best >= best_success(epsilon, delta) - (1 + math.exp(epsilon)) / 4000


def test_known_values_and_bounds():
    assert best_success(0, 0) == 0.5
    assert best_success(0, 1) == best_success(50, 1) == 1
    assert best_success(math.log(3), 0) == pytest.approx(0.75)
    assert best_success(5000, 0) == 1.0
    assert most_detected(0, 0, 0.01) == pytest.approx(0.01)
    for epsilon, delta in (
        (-1, 0),
        (math.nan, 0),
        (math.inf, 0),
        (1, -0.1),
        (1, 1.1),
        (1, math.nan),
    ):
        with pytest.raises(InvalidRequest):
            best_success(epsilon, delta)
