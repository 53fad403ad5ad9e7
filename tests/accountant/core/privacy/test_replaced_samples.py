"""A unit replaced on a Poisson sample, by all three distances: brute force, and integrals in
mpmath.
"""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import norm

from accountant.core.privacy import divergences, privacy_profiles, replaced_samples
from accountant.core.privacy.calibration import sampled_multiplier, swapped_multiplier
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import (
    Composed,
    Gaussian,
    PoissonReplaced,
    PoissonSwapped,
    SelfComposed,
    from_json,
    releases,
    to_json,
)
from accountant.core.privacy.filters import Kind
from accountant.core.privacy.secrets import group_divergence
from tests.accountant.core.privacy.test_filters import (
    Job,
    account,
    admitted,
    cells,
    softmax_of_two,
    worst_delta,
)

RATES = st.sampled_from([0.001, 0.02, 0.1, 0.5, 0.9])
DISTANCES = st.floats(0.05, 4)


def pair(q: float, mu: float, angle: float, short: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Log densities of both samples on a grid, and a cell's area; the units' shifts span an
    angle.
    """
    half = mu / 2
    first = np.array([half, 0.0])
    second = short * half * np.array([math.cos(angle), math.sin(angle)])
    line = np.linspace(-9 - half, 9 + half, 220)
    x, y = np.meshgrid(line, line)

    def around(at, part):
        return -((x - at[0]) ** 2 + (y - at[1]) ** 2) / 2 - math.log(2 * math.pi) + math.log(part)

    none = around((0.0, 0.0), 1 - q)
    laws = [np.logaddexp(none, around(at, q)) for at in (first, second)]
    return laws[0], laws[1], (line[1] - line[0]) ** 2


def divergence(one: np.ndarray, other: np.ndarray, area: float, order: float) -> float:
    return (float(logsumexp(order * one + (1 - order) * other)) + math.log(area)) / (order - 1)


# --- every geometry, both directions ------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(RATES, DISTANCES, st.floats(0, math.pi), st.floats(0, 1), st.floats(0, 3))
def test_no_pair_of_units_passes_the_profile(q, mu, angle, short, epsilon):
    a, b, area = pair(q, mu, angle, short)
    bound = replaced_samples.profile(q, mu)(np.array([epsilon, -epsilon]))
    for one, other in ((a, b), (b, a)):
        for sign, most in zip((1, -1), bound, strict=True):
            gain = np.maximum(np.exp(one) - math.exp(sign * epsilon) * np.exp(other), 0)
            assert float(gain.sum()) * area <= most * (1 + 1e-3) + 1e-6


@settings(max_examples=25, deadline=None)
@given(RATES, DISTANCES, st.floats(0, math.pi), st.floats(0, 1), st.floats(1.05, 24))
def test_no_pair_of_units_passes_the_divergence(q, mu, angle, short, order):
    a, b, area = pair(q, mu, angle, short)
    cost = divergences.renyi(PoissonSwapped(q, Gaussian(1 / mu)), Fraction(order))
    for one, other in ((a, b), (b, a)):
        assert divergence(one, other, area, order) <= float(cost) * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize(
    ("q", "mu", "order"),
    [(0.02, 1.0, 9.356), (0.02, 1.0, 18.7), (0.1, 2.0, 3.0), (0.5, 1.0, 9.356)],
)
def test_it_is_within_a_seventh_of_opposite_units(q, mu, order):
    a, b, area = pair(q, mu, math.pi, 1.0)
    true = divergence(a, b, area, order)
    own = float(divergences.renyi(PoissonSwapped(q, Gaussian(1 / mu)), Fraction(order)))
    assert true <= own <= true * 8 / 7


# --- the lemma, and the integral ----------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 0.9), DISTANCES, st.floats(0.01, 12), st.floats(0, 1))
def test_each_split_bounds_its_mixture(q, mu, u, part):
    """H_t(M1 || (1-b) M0 + b M1') for opposite units, by integration, against the split."""
    t = math.exp(u)
    b = (1 - q + q * t) / t
    x = np.linspace(-12 - mu, 12 + mu, 40_001)
    mixture = (1 - b) * norm.pdf(x) + b * norm.pdf(x + mu / 2)
    true = float(np.maximum(norm.pdf(x - mu / 2) - t * mixture, 0).sum() * (x[1] - x[0]))
    bound = math.exp(float(replaced_samples._log_split(part, q, mu, np.array([u]))[0]))
    assert true <= bound * (1 + 1e-6) + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "mu", "order", "part"),
    [(0.02, 1.0, 9.356, 1.0), (0.3, 0.4, 2.5, 0.05), (0.01, 2.0, 4.0, 0.0)],
)
def test_the_integral_of_one_split_is_that_of_mpmath(monkeypatch, q, mu, order, part):
    monkeypatch.setattr(replaced_samples, "_MANY", (part,))
    mpmath.mp.dps = 20
    q_, mu_, a = mpmath.mpf(q), mpmath.mpf(mu), mpmath.mpf(order)

    def hockey_stick(m, u):
        return mpmath.ncdf(m / 2 - u / m) - mpmath.exp(u) * mpmath.ncdf(-m / 2 - u / m)

    def integrand(u):
        t = 1 + q_ * mpmath.expm1(u)
        b = t * mpmath.exp(-u)
        if part == 0:
            h = hockey_stick(mu_ / 2, u + mpmath.log(1 - b))
        elif part == 1:
            h = (1 - b) * hockey_stick(mu_ / 2, u) + b * hockey_stick(mu_, u)
        else:
            w = part * b
            h = (1 - w) * hockey_stick(mu_ / 2, u + mpmath.log((1 - b) / (1 - w)))
            h += w * hockey_stick(mu_, u - mpmath.log(part))
        return (t ** (a - 2) + t ** (-a - 1)) * h * mpmath.exp(u)

    top = mu * mu * (order + 0.5) + 12 * mu
    near = [mu / 2 * 2.0**-step for step in range(100, 0, -3)]
    edges = [1e-40, *near, *np.arange(mu / 2, top, mu / 2).tolist(), top]
    total = mpmath.quad(integrand, edges)
    true = mpmath.log(1 + a * (a - 1) * q_**2 * total) / (a - 1)
    replaced_samples.renyi.cache_clear()
    assert replaced_samples.renyi(order, q, mu) == pytest.approx(float(true), rel=1e-9)
    replaced_samples.renyi.cache_clear()


@settings(max_examples=60, deadline=None)
@given(st.floats(-8, 8), st.floats(1e-4, 1.0), DISTANCES)
def test_it_is_never_above_the_profile_of_pairs_far_apart(epsilon, q, mu):
    """Of PoissonReplaced, where the sample with neither may lie as far off as the others."""
    at = np.array([epsilon])
    new, old = (
        each(q, mu)(at)[0] for each in (replaced_samples.profile, privacy_profiles.replaced)
    )
    assert new <= old * (1 + 1e-12)
    mirrored = -math.expm1(epsilon) + math.exp(epsilon) * replaced_samples.profile(q, mu)(-at)[0]
    assert new == pytest.approx(mirrored, rel=1e-9, abs=1e-12 * math.exp(abs(epsilon)))


# --- adaptive strategies ------------------------------------------------------------------------


def swapped(q: float, multiplier: float, count: int, edges: tuple[float, ...], place: float) -> Job:
    """Quantised samples of two units on a line, at half the distance and its part `place`,
    opposite.
    """
    half = 1 / multiplier / 2

    def law(shift):
        return lambda x: q * norm.cdf(x - shift) + (1 - q) * norm.cdf(x)

    p, other = cells(law(half), law(-half * place), edges)
    return Job(PoissonSwapped(q, Gaussian(multiplier)), count, p, other)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.floats(0.3, 2),
    st.floats(0.01, 0.2),
    st.sampled_from([0.1, 0.3, 0.7]),
    st.floats(0.3, 2),
    st.lists(st.floats(-2, 3), min_size=1, max_size=2, unique=True),
    st.floats(0, 1),
    st.integers(1, 2),
)
def test_no_adaptive_strategy_passes_the_allowance(
    epsilon, delta, q, multiplier, edges, place, count
):
    epsilon, delta = float(f"{epsilon:.3f}"), float(f"{delta:.3f}")
    menu = [
        swapped(q, multiplier, count, tuple(edges), place),
        softmax_of_two(0.2 * epsilon, 1, 0.5),
    ]
    found = worst_delta(account(repr(epsilon), repr(delta)), epsilon, menu, depth=4)
    assert found <= delta * (1 + 1e-12)


# --- what it gives ------------------------------------------------------------------------------


def test_some_jobs_become_hundreds():
    """On (3, 1e-6) with q 0.02 and multiplier 1; convexity alone (s = 1) gives 163 by
    the first Rényi filter."""
    of = account("3", "1e-6")
    assert admitted(of, PoissonReplaced(0.02, Gaussian(1.0))) == 86
    count = admitted(of, PoissonSwapped(0.02, Gaussian(1.0)))
    assert 750 < count < 850
    limit = next(each.limit.main for each in of.filters if each.filter.kind is Kind.RENYI)
    order = float(of.filters[0].filter.order)
    convex = limit / 1e9 / convexity_alone(order, 0.02, 1.0)
    assert 163 <= convex < 164


def convexity_alone(order: float, q: float, mu: float) -> float:
    before, replaced_samples._MANY = replaced_samples._MANY, (1.0,)
    try:
        return replaced_samples.renyi.__wrapped__(order, q, mu)
    finally:
        replaced_samples._MANY = before


@settings(max_examples=30, deadline=None)
@given(st.floats(0.05, 20), st.floats(-9, -2), RATES, st.integers(1, 64))
def test_calibration_spends_epsilon_exactly_with_less_noise(epsilon, log_delta, q, layers):
    delta = 10**log_delta * q
    multiplier = swapped_multiplier(epsilon, delta, layers, q)
    found = epsilon_alone(PoissonSwapped(q, SelfComposed(Gaussian(multiplier), layers)), delta)[0]
    assert found <= epsilon + 1e-9
    assert found == pytest.approx(epsilon, rel=1e-6)
    assert multiplier <= sampled_multiplier(epsilon, delta, layers, q)


def test_every_other_price_is_that_of_a_replaced_unit():
    """The Gaussian filter and groups pay as if the units always took part."""
    whole = Composed((Gaussian(2.0), Gaussian(3.5)))
    new, old = PoissonSwapped(0.1, whole), PoissonReplaced(0.1, whole)
    assert divergences.gaussian_mu_squared(new) == divergences.gaussian_mu_squared(old)
    assert group_divergence(new, Fraction(3), 4) == group_divergence(old, Fraction(3), 4)
    assert from_json(to_json(new)) == new
    assert to_json(new)["type"] == "poisson_swapped"
    assert releases(SelfComposed(new, 3)) == {new: 3}
    everybody = PoissonSwapped(1.0, whole)
    assert divergences.renyi(everybody, Fraction(5)) == divergences.renyi(whole, Fraction(5))
    assert epsilon_alone(everybody, 1e-6)[0] == pytest.approx(
        epsilon_alone(whole, 1e-6)[0], rel=1e-6
    )
