"""The filter by a potential that decision 0024 declines: its proof by brute force, and what it would give."""

import math
from functools import lru_cache

import numpy as np
import pytest

from accountant.core.privacy.composition import gaussian_delta, gaussian_mu
from accountant.core.privacy.privacy_profiles import log_gaussian, mu_of_laplace, mu_of_pure
from benchmarks.potential_filter import (
    excess,
    laplace_laws,
    least_price,
    sampled_law,
    token_laws,
)

EPSILON, DELTA = 1.0, 0.02
RATIOS = np.exp(np.linspace(-8, 8, 801))


def best_gain(menu, limit: float, scale: float) -> float:
    """sup over adaptive strategies of E (P/Q - e^epsilon)+: each step the largest over pairs, at each ratio.

    Prices are times `scale`. Between the points of a grid the convex value is taken linear: a bound.
    """

    @lru_cache
    def price(number: int, left: float) -> float:
        _, laws, most = menu[number]
        return least_price(laws, left, most)

    @lru_cache
    def value(left: float) -> np.ndarray:
        best = np.maximum(RATIOS - math.exp(EPSILON), 0.0)
        for number, (_, laws, most) in enumerate(menu):
            if left < most:
                continue
            after = value(left - price(number, left) * scale)
            for losses, masses in laws:
                ratios = [RATIOS * math.exp(loss) for loss in losses]
                # Beyond the grid a value is at most its ratio, below it at most in proportion.
                values = [
                    np.where(r > RATIOS[-1], r, np.interp(r, RATIOS, after) * np.minimum(r / RATIOS[0], 1))
                    for r in ratios
                ]
                total = sum(math.exp(mass) * each for mass, each in zip(masses, values, strict=True))
                best = np.maximum(best, total)
        return best

    return float(np.interp(1.0, RATIOS, value(limit)))


TOKENS = [
    ("token", token_laws(0.3, 7), mu_of_pure(0.3) ** 2),
    ("wide token", token_laws(0.45, 5), mu_of_pure(0.45) ** 2),
]


def test_no_adaptive_strategy_passes_the_potential():
    """It is a supermartingale: prices that depend on what is left, exactly played, stay within delta."""
    limit = gaussian_mu(EPSILON, DELTA) ** 2
    found = best_gain(TOKENS, limit, 1.0)
    assert 0.5 * DELTA < found <= DELTA
    assert best_gain(TOKENS, limit, 0.5) > DELTA  # half of its prices are too little


def test_a_price_never_grows_with_what_is_left_and_tends_to_the_variance():
    """From -2 Phi^-1(1/(1 + e^x)) squared, about pi/2 x^2, to x^2."""
    shift, mu = 0.1, mu_of_pure(0.1)
    laws = token_laws(shift)
    prices = [least_price(laws, share * mu**2, mu**2) for share in (1.5, 3, 10, 100)]
    assert prices == sorted(prices, reverse=True)
    assert prices[0] < 0.72 * mu**2
    assert shift**2 * 0.99 < prices[-1] < shift**2 * 1.02
    laplace = laplace_laws(1.0)
    assert least_price(laplace, 10 * mu_of_laplace(1.0) ** 2, mu_of_laplace(1.0) ** 2) < 0.73 * 1.07


@pytest.mark.parametrize("part", [0.9, 0.5])
def test_a_sampled_gaussian_has_no_price_below_its_plain_one(part):
    """Far out one draw's tail is what counts: with less than mu^2 charged the condition fails."""
    q, mu, left = 0.1, 1.0, 10.0
    price = part * mu**2
    for far in (3_000.0, 10_000.0):
        # L is at least q times the ratio of a unit that takes part, so (L R' - K)+ >= q (ratio R' - K/q)+.
        asked = np.array([far - math.log(q)])
        with_unit = math.log(q) + log_gaussian(math.sqrt(left - price + mu**2), asked)
        assert with_unit[0] > log_gaussian(math.sqrt(left), np.array([far]))[0]
    # Within twelve deviations it seems to hold for far less: an additive slack could make use of that.
    assert excess(sampled_law(q, mu), left, 0.1) < 0 < excess(sampled_law(q, mu), left, 0.03)


def test_the_potential_s_first_value_is_delta():
    limit = gaussian_mu(EPSILON, DELTA) ** 2
    assert gaussian_delta(math.sqrt(limit), EPSILON) == pytest.approx(DELTA)
