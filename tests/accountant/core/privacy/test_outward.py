"""No conversion states less than the truth: each is compared with sixty digits over a wide grid."""

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accountant.core.privacy import composition, divergences
from accountant.core.privacy.composition import (
    conversion,
    epsilon_alone,
    gaussian_delta,
    gaussian_delta_up,
    gaussian_epsilon,
    gaussian_mu,
    renyi_epsilon,
)
from accountant.core.privacy.events import (
    Allocated,
    Composed,
    EpsilonDelta,
    Exponential,
    Gaussian,
    Laplace,
    PoissonReplaced,
    PoissonSampled,
    PoissonSwapped,
    SelfComposed,
    ZCDp,
)
from accountant.core.privacy.filters import Filter, Kind
from accountant.core.privacy.privacy_profiles import gaussian
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS


@pytest.fixture(autouse=True)
def sixty_digits():
    with mpmath.workdps(60):
        yield


def exponents(low, high):
    return st.floats(low, high).map(lambda power: 10.0**power)


DELTAS, MUS, EPSILONS = exponents(-21, -0.3), exponents(-9, 2.5), exponents(-9, 4)


def exact(value):
    return mpmath.mpf(Fraction(value).numerator) / Fraction(value).denominator


def true_delta(mu, epsilon):
    """The delta of mu-GDP; the arguments are what the floats are exactly."""
    mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
    with mpmath.workdps(90):  # the two terms cancel
        near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        return (
            mpmath.erfc(near / mpmath.sqrt(2)) / 2
            - mpmath.exp(epsilon) * mpmath.erfc(far / mpmath.sqrt(2)) / 2
        )


def true_conversion(order, delta):
    order, delta = exact(order), mpmath.mpf(delta)
    return mpmath.log1p(-1 / order) - (mpmath.log(delta) + mpmath.log(order)) / (order - 1)


# --- Gaussians ------------------------------------------------------------------------------------


@given(mu=MUS, epsilon=EPSILONS)
@example(mu=1.0, epsilon=0.0)
@example(mu=1e-9, epsilon=1e-9)
@example(mu=300.0, epsilon=1.0)
@settings(max_examples=400, deadline=None)
def test_a_delta_is_bounded_closely(mu, epsilon):
    true = true_delta(mu, epsilon)
    if true < mpmath.mpf("1e-300"):
        return
    assert true <= gaussian_delta_up(mu, epsilon) <= true * (1 + mpmath.mpf("1e-9"))
    assert abs(gaussian_delta(mu, epsilon) / true - 1) < 1e-9


@pytest.mark.slow
@given(mu=MUS, delta=DELTAS)
@example(mu=1.17e-7, delta=1e-21)
@settings(max_examples=400, deadline=None)
def test_an_epsilon_of_a_gaussian_is_not_below_the_truth(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert true_delta(mu, epsilon) <= mpmath.mpf(delta)
    if epsilon > 1e-12:  # and no more than it has to be
        assert true_delta(mu, epsilon * (1 - 1e-8)) > mpmath.mpf(delta) * (1 - mpmath.mpf("1e-9"))


@pytest.mark.slow
@given(epsilon=EPSILONS, delta=DELTAS)
@example(epsilon=1e-6, delta=1e-21)
@example(epsilon=0.0, delta=1e-9)
@settings(max_examples=400, deadline=None)
def test_a_mu_is_not_above_what_an_epsilon_allows(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert true_delta(mu, epsilon) <= mpmath.mpf(delta)
    assert true_delta(mu * (1 + 1e-8), epsilon) > mpmath.mpf(delta) * (1 - mpmath.mpf("1e-9"))


@given(mu=exponents(-8, 2), count=st.integers(1, 10**6), delta=DELTAS)
@settings(max_examples=200, deadline=None)
def test_the_price_of_composed_gaussians_is_not_below_the_truth(mu, count, delta):
    multiplier = 1 / mu
    epsilon, how = epsilon_alone(SelfComposed(Gaussian(multiplier), count), delta)
    assert how == "exact Gaussian"
    assert true_delta(mpmath.sqrt(count) / mpmath.mpf(multiplier), epsilon) <= mpmath.mpf(delta)


@pytest.mark.parametrize("mu", [1e-8, 1e-5, 1e-3, 0.05, 0.099, 0.1, 0.7, 3.0])
def test_a_profile_has_every_digit_that_prices_rest_on(mu):
    """At small mu its two terms are closer than their logarithms are exact."""
    for deviations in (0.0, 0.5, 2.0, 6.0, 9.0):
        for epsilon in (mu * deviations, -mu * deviations):
            true = true_delta(mu, epsilon)
            found = float(gaussian(mu, composition.np.array([epsilon]))[0])
            assert abs(found / true - 1) < 1e-11, (mu, epsilon)


# --- Rényi divergence and zCDP
# ---------------------------------------------------------------------


@given(above=exponents(-6, 12), delta=DELTAS)
@settings(max_examples=400, deadline=None)
def test_a_conversion_is_not_below_the_truth(above, delta):
    for order in (1 + above, 1 + Fraction(above)):
        if order > 1:
            true, found = true_conversion(order, delta), conversion(order, delta)
            assert true <= found
            assert found <= true + mpmath.mpf("1e-12") * (1 + abs(mpmath.log(delta))) * (
                1 + 1 / mpmath.mpf(above)
            )


@pytest.mark.slow
@given(rho=exponents(-12, 3), delta=DELTAS)
@settings(max_examples=60, deadline=None)
def test_an_epsilon_of_zcdp_is_not_below_the_best_order_s(rho, delta):
    found = renyi_epsilon(ZCDp(rho), delta)
    best = min(
        true_conversion(1 + 10.0**power, delta) + exact(1 + 10.0**power) * exact(rho)
        for power in _POWERS
    )
    assert found >= max(_least(rho, delta), 0)
    assert found <= best * (1 + mpmath.mpf("0.05")) or best <= 0


_POWERS = [step / 4 for step in range(-16, 40)]


def _least(rho, delta):
    """The least over all orders: a ternary search, as the figure falls and then rises."""

    def at(log_above):
        above = mpmath.exp(log_above)
        first = mpmath.log1p(-1 / (1 + above))
        return (
            first
            - (mpmath.log(mpmath.mpf(delta)) + mpmath.log1p(above)) / above
            + (1 + above) * exact(rho)
        )

    low, high = mpmath.mpf(-12), mpmath.mpf(34)
    for _ in range(160):
        first, second = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, second) if at(first) < at(second) else (first, high)
    return at((low + high) / 2)


@given(epsilon=exponents(-6, 4), delta=DELTAS, order=exponents(-5, 6))
@example(epsilon=1e-6, delta=1e-21, order=1e-6)
@settings(max_examples=200, deadline=None)
def test_a_filter_s_limit_is_not_above_the_truth(epsilon, delta, order):
    units, delta_units = (
        math.floor(epsilon * EPSILON_UNITS),
        max(1, math.floor(delta * DELTA_UNITS)),
    )
    share = Fraction(3, 10)
    true_share = exact(share * Fraction(delta_units, DELTA_UNITS))
    alpha = 1 + Fraction(order)
    limit = Filter(Kind.RENYI, share, alpha).limit(units, delta_units)
    left = exact(Fraction(units, EPSILON_UNITS)) - true_conversion_at(alpha, true_share)
    assert limit.main <= max(left, 0) * EPSILON_UNITS
    limit = Filter(Kind.GAUSSIAN, share).limit(units, delta_units)
    mu = mpmath.sqrt(mpmath.mpf(limit.main) / EPSILON_UNITS)
    assert mu == 0 or true_delta(mu, exact(Fraction(units, EPSILON_UNITS))) <= true_share


def true_conversion_at(order, delta):
    order = exact(order)
    return mpmath.log1p(-1 / order) - (mpmath.log(delta) + mpmath.log(order)) / (order - 1)


# --- Rényi divergence of one release, at every order
# -------------------------------------------------


def true_token(order, shift):
    """The largest divergence of a draw: docs/accounting.md, section 11.3, with the best t."""
    whole, high = -mpmath.expm1(-2 * shift), -mpmath.expm1(-2 * order * shift)
    low = mpmath.exp(-2 * shift) - mpmath.exp(-2 * order * shift)
    best = mpmath.log((order - 1) * high / (order * low))
    return ((order - 1) * best + mpmath.log(high / (order * whole))) / (order - 1)


def true_laplace(order, pure):
    near = order / (2 * order - 1) * mpmath.exp((order - 1) * pure)
    far = (order - 1) / (2 * order - 1) * mpmath.exp(-order * pure)
    return mpmath.log(near + far) / (order - 1)


def true_response(order, pure):
    likely = 1 / (1 + mpmath.exp(-pure))
    rare = likely * mpmath.exp(-pure)
    whole = likely**order * rare ** (1 - order) + rare**order * likely ** (1 - order)
    return mpmath.log(whole) / (order - 1)


@given(above=exponents(-6, 12), size=exponents(-12, 2.5))
@example(above=1e6, size=2e-8)
@example(above=1.12e10, size=1.03e-12)
@settings(max_examples=400, deadline=None)
def test_the_divergence_of_a_pure_release_is_not_below_the_truth_at_any_order(above, size):
    order = 1 + Fraction(above)
    laplace = Laplace(1 / size)
    with mpmath.workdps(80):  # the terms cancel
        cases = (
            (Exponential(size), true_token(exact(order), exact(size))),
            (laplace, true_laplace(exact(order), 1 / exact(laplace.noise_multiplier))),
            (EpsilonDelta(size, 0.0), true_response(exact(order), exact(size))),
        )
    for event, true in cases:
        assert exact(divergences.renyi(event, order)) >= true, event


@given(
    order=exponents(0.31, 3.4).map(int),
    rate=exponents(-6, -0.001),
    multiplier=exponents(-1, 3),
)
@settings(max_examples=40, deadline=None)
def test_the_divergence_of_a_sample_is_not_below_the_truth_at_whole_orders(order, rate, multiplier):
    """(Mironov, Talwar and Zhang 2019, section 3.3: a sum of positive terms.)"""
    true = true_sample(order, mpmath.mpf(rate), 1 / mpmath.mpf(multiplier))
    event = PoissonSampled(rate, Gaussian(multiplier))
    assert exact(divergences.renyi(event, Fraction(order))) >= true
    replaced = PoissonReplaced(rate, Gaussian(multiplier))  # the other unit may add nothing
    assert exact(divergences.renyi(replaced, Fraction(order))) >= true
    swapped = PoissonSwapped(rate, Gaussian(multiplier / 2))
    assert exact(divergences.renyi(swapped, Fraction(order))) >= true


def true_sample(order, rate, mu):
    drawn, total = (1 - rate) ** order, mpmath.mpf(0)
    for j in range(1, order + 1):
        drawn *= rate * (order - j + 1) / ((1 - rate) * j)
        total += drawn * mpmath.expm1(mu * mu * j * (j - 1) / 2)
    return mpmath.log1p(total) / (order - 1)


@given(
    order=st.integers(2, 40),
    run=st.integers(1, 300),
    idle=st.integers(0, 300),
    tokens=st.integers(1, 100),
    multiplier=exponents(0, 3),
)
@settings(max_examples=40, deadline=None)
def test_the_divergence_of_a_coin_is_not_below_the_truth_at_whole_orders(
    order, run, idle, tokens, multiplier
):
    """With against without, which Theorem 1 gives exactly for Gaussians."""
    batches, square = run + idle, tokens / mpmath.mpf(multiplier) ** 2
    one = [mpmath.exp(n * (n - 1) * square / 2) / mpmath.factorial(n) for n in range(order + 1)]
    whole = [mpmath.mpf(idle) ** n / mpmath.factorial(n) for n in range(order + 1)]
    while run:
        if run % 2:
            whole = product(whole, one)
        run, one = run // 2, product(one, one)
    moment = whole[order] * mpmath.factorial(order) / mpmath.mpf(batches) ** order
    event = Allocated(batches, batches - idle, tokens, Gaussian(multiplier))
    assert exact(divergences.renyi(event, Fraction(order))) >= mpmath.log(moment) / (order - 1)


def product(first, second):
    return [mpmath.fsum(first[j] * second[n - j] for j in range(n + 1)) for n in range(len(first))]


@given(size=exponents(-12, 2))
@settings(max_examples=200, deadline=None)
def test_a_mu_squared_is_not_below_the_truth(size):
    laplace = Laplace(1 / size)
    corners = (
        (Exponential(size), 1 / (1 + mpmath.exp(exact(size)))),
        (EpsilonDelta(size, 0.0), 1 / (1 + mpmath.exp(exact(size)))),
        (laplace, mpmath.exp(-1 / (2 * exact(laplace.noise_multiplier))) / 2),
    )
    for event, error in corners:
        mu = mpmath.sqrt(exact(divergences.gaussian_mu_squared(event)))
        assert mpmath.ncdf(-mu / 2) <= error, event


# --- others
# ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12, 1e-20])
@pytest.mark.parametrize("multiplier", [0.5, 3.0, 40.0, 2e4])
@pytest.mark.parametrize("rate", [0.001, 0.3])
def test_a_sampled_gaussian_is_not_below_the_truth(multiplier, rate, delta):
    epsilon, _ = epsilon_alone(PoissonSampled(rate, Gaussian(multiplier)), delta)
    inner = mpmath.log1p(mpmath.expm1(mpmath.mpf(epsilon)) / mpmath.mpf(rate))
    removed = mpmath.mpf(rate) * true_delta(1 / mpmath.mpf(multiplier), inner)
    assert removed <= mpmath.mpf(delta)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12, 1e-20])
@pytest.mark.parametrize(
    ("scale", "multiplier"), [(1.0, 1.0), (10.0, 5.0), (300.0, 30.0), (0.3, 50.0)]
)
def test_laplace_beside_a_gaussian_is_not_below_the_truth(scale, multiplier, delta):
    epsilon, _ = epsilon_alone(Composed((Laplace(scale), Gaussian(multiplier))), delta)
    pure, mu = 1 / mpmath.mpf(scale), 1 / mpmath.mpf(multiplier)

    def profile(at):
        if at < -pure:
            return -mpmath.expm1(at)
        return -mpmath.expm1((min(at, pure) - pure) / 2)

    with mpmath.workdps(30):
        turns = sorted((mpmath.mpf(epsilon) - kink - mu * mu / 2) / mu for kink in (-pure, pure))
        places = sorted({-14, 14, *(min(max(turn, -14), 14) for turn in turns), -3, 0, 3})
        true = mpmath.quad(
            lambda z: mpmath.npdf(z) * profile(epsilon - mu * mu / 2 - mu * z), places
        )
    assert true <= mpmath.mpf(delta) * (1 + mpmath.mpf("1e-9"))


@given(multiplier=exponents(-2, 6), delta=DELTAS)
@settings(max_examples=60, deadline=None)
def test_a_sum_of_pure_epsilons_is_not_below_the_truth(multiplier, delta):
    event = SelfComposed(Laplace(multiplier), 3)
    pure = divergences.pure_epsilon(event)
    found, how = epsilon_alone(event, delta)
    assert how != "sum of pure epsilon" or Fraction(found) >= pure
