"""Laplace noise on the Gaussian filter at its own mu: the least one, on one number and on
several.
"""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import laplace, norm

from accountant.core.privacy import divergences
from accountant.core.privacy.composition import gaussian_delta
from accountant.core.privacy.events import EpsilonDelta, Laplace
from accountant.core.privacy.privacy_profiles import laplace as laplace_profile
from accountant.core.privacy.privacy_profiles import mu_of_laplace, mu_of_pure

EPSILONS = [1e-6, 0.01, 0.3, 0.999, 1.0, 1.001, 3.0, 20.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_it_is_the_formula_in_forty_digits(epsilon):
    mpmath.mp.dps = 40
    tail = mpmath.exp(-mpmath.mpf(epsilon) / 2)
    true = 2 * mpmath.sqrt(2) * mpmath.erfinv(1 - tail)
    assert abs(mpmath.mpf(mu_of_laplace(epsilon)) / true - 1) < 1e-13
    own = divergences.gaussian_mu_squared(Laplace(1 / epsilon))
    assert (
        true**2 * (1 - 1e-14) <= mpmath.mpf(own.numerator) / own.denominator <= true**2 * (1 + 4e-6)
    )


@pytest.mark.parametrize("epsilon", EPSILONS[1:])
def test_no_test_has_smaller_errors_and_one_attains_it(epsilon):
    """Over all thresholds, which are best as the ratio is monotone: Phi^-1(1-a) + Phi^-1(1-f(a)) <=
    mu.
    """
    mu = mu_of_laplace(epsilon)
    thresholds = np.linspace(-25, 25 + epsilon, 20_001)
    errors = norm.isf(laplace.sf(thresholds)) + norm.isf(laplace.cdf(thresholds - epsilon))
    assert errors.max() <= mu * (1 + 1e-9)
    assert norm.isf(laplace.sf(epsilon / 2)) * 2 == pytest.approx(mu, rel=1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS[1:])
def test_its_profile_lies_below_that_of_its_gaussian(epsilon):
    points = np.linspace(-epsilon, epsilon, 401)
    ours = laplace_profile(epsilon)(points)
    assert all(
        own <= gaussian_delta(mu_of_laplace(epsilon), float(at)) * (1 + 1e-9)
        for own, at in zip(ours, points, strict=True)
        if at >= 0
    )


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-4, 30), st.floats(0, 1))
def test_shifts_of_several_numbers_cost_no_more_than_one(epsilon, share):
    """mu^2 is superadditive, so a vector whose shifts add up to epsilon scales is
    mu(epsilon)-GDP.
    """
    first, second = share * epsilon, (1 - share) * epsilon
    parts = sum(mu_of_laplace(each) ** 2 for each in (first, second) if each > 1e-300)
    assert parts <= mu_of_laplace(epsilon) ** 2 * (1 + 1e-12)


def test_it_is_less_than_that_of_a_pure_release_which_keeps_its_own():
    for epsilon in EPSILONS:
        assert mu_of_laplace(epsilon) < mu_of_pure(epsilon)
        pure = divergences.gaussian_mu_squared(EpsilonDelta(epsilon, 0.0))
        assert float(pure) == pytest.approx(mu_of_pure(epsilon) ** 2)


def test_a_two_sided_geometric_has_a_larger_mu():
    """Decision 0002: at a shift of one step it is randomised response. The noise is a rounded
    Laplace.
    """
    epsilon = 1.0
    ratio = math.exp(-epsilon)
    errors = ratio / (1 + ratio)
    assert 2 * norm.isf(errors) > mu_of_laplace(epsilon) * 1.15
