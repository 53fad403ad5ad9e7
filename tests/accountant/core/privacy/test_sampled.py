"""Sampled Gaussians: what a sample amplifies, against mpmath, dp-accounting and each other."""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.errors import InvalidRequest
from accountant.core.privacy import divergences, privacy_profiles
from accountant.core.privacy.calibration import gaussian_multiplier, sampled_multiplier
from accountant.core.privacy.composition import epsilon_alone, gaussian_delta, renyi_epsilon
from accountant.core.privacy.events import (
    Composed,
    Gaussian,
    Laplace,
    PoissonReplaced,
    PoissonSampled,
    SampledWithoutReplacement,
    SelfComposed,
    WorstOf,
    from_json,
    releases,
    to_json,
)

RATES = st.floats(1e-4, 0.999)
MULTIPLIERS = st.floats(0.3, 20)
ORDERS = st.floats(1.05, 120)
RELAXED = settings(max_examples=60, deadline=None)


def mp_renyi(order: float, q: float, mu: float) -> float:
    """D_order((1 - q) N(0) + q N(mu) || N(0)) by mpmath, split at its modes."""
    with mpmath.workdps(25):

        def integrand(x):
            mixture = 1 - q + q * mpmath.exp(mu * x - mpmath.mpf(mu) ** 2 / 2)
            return mpmath.npdf(x) * mixture ** mpmath.mpf(order)

        cuts = [-12, 0, mu * order / 2, mu * order, mu * order + 12]
        return float(mpmath.log(mpmath.quad(integrand, sorted(cuts))) / (order - 1))


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.floats(1.05, 30), RATES, st.floats(0.5, 8))
def test_the_renyi_divergence_of_a_poisson_sample_is_the_integral(order, q, multiplier):
    mine = privacy_profiles.renyi_poisson(order, q, 1 / multiplier)
    assert mine == pytest.approx(mp_renyi(order, q, 1 / multiplier), rel=1e-10, abs=1e-15)


@RELAXED
@given(st.integers(2, 120), RATES, MULTIPLIERS)
def test_the_renyi_divergence_of_a_poisson_sample_is_that_of_dp_accounting(order, q, multiplier):
    """At whole orders, where its formula is a finite sum."""
    accountant = RdpAccountant([order], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(
        dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(multiplier))
    )
    assert privacy_profiles.renyi_poisson(order, q, 1 / multiplier) == pytest.approx(
        float(accountant._rdp[0]), rel=1e-9, abs=1e-13
    )


@RELAXED
@given(st.integers(2, 60), st.integers(1, 999), MULTIPLIERS)
def test_without_replacement_the_bound_is_never_above_that_of_dp_accounting(
    order, size, multiplier
):
    accountant = RdpAccountant([order], dp_accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(
        dp_accounting.SampledWithoutReplacementDpEvent(
            1000, size, dp_accounting.GaussianDpEvent(multiplier)
        )
    )
    theirs = float(accountant._rdp[0])
    assert privacy_profiles.renyi_replaced(order, size / 1000, 1 / multiplier) <= theirs * (
        1 + 1e-9
    )


@RELAXED
@given(ORDERS, RATES, MULTIPLIERS)
def test_a_replaced_record_costs_no_less_than_the_worst_pair_found(order, q, multiplier):
    """The bound covers (1 - q) N(0) + q N(v) against (1 - q) N(0) + q N(-v), 2v apart."""
    half = 1 / multiplier / 2
    x = np.linspace(-15 - half, 15 + half * (2 * order + 1), 40_001)
    first = np.logaddexp(math.log1p(-q), math.log(q) + half * x - half * half / 2)
    second = np.logaddexp(math.log1p(-q), math.log(q) - half * x - half * half / 2)
    moved, step = order * first + (1 - order) * second, x[1] - x[0]
    logs = moved - x * x / 2 - math.log(2 * math.pi) / 2
    if moved.max() < 1:  # beside 1 the sum would lose a small divergence
        divergence = math.log1p(
            float((np.exp(-x * x / 2) * np.expm1(moved)).sum() * step / math.sqrt(2 * math.pi))
        )
        noise = 1e-15 / (order - 1)
    else:
        peak = logs.max()
        divergence = peak + math.log(np.exp(logs - peak).sum() * step)
        noise = 4e-12 / (order - 1)  # of the sum above, near 1
    divergence /= order - 1
    assert (
        privacy_profiles.renyi_replaced(order, q, 1 / multiplier) >= divergence * (1 - 1e-9) - noise
    )


@RELAXED
@given(st.floats(1.05, 60), MULTIPLIERS)
def test_a_sample_of_everybody_is_no_sample(order, multiplier):
    plain = order / (2 * multiplier**2)
    assert privacy_profiles.renyi_replaced(order, 1.0, 1 / multiplier) == pytest.approx(
        plain, rel=1e-9
    )
    assert privacy_profiles.renyi_poisson(order, 1.0, 1 / multiplier) == pytest.approx(
        plain, rel=1e-9
    )


@RELAXED
@given(st.floats(1.01, 1e6), RATES, st.floats(0.01, 1000), st.integers(1, 50), st.integers(0, 2))
def test_every_filter_takes_the_smaller_of_amplified_and_plain(order, q, multiplier, layers, kind):
    whole = SelfComposed(Gaussian(multiplier), layers)
    sampled = [
        PoissonSampled(q, whole),
        PoissonReplaced(q, whole),
        SampledWithoutReplacement(math.ceil(q * 10_000), 10_000, whole),
    ][kind]
    exact = divergences.Fraction(order)
    assert 0 < divergences.renyi(sampled, exact) <= divergences.renyi(whole, exact)
    assert divergences.gaussian_mu_squared(sampled) == divergences.gaussian_mu_squared(whole)
    assert divergences.pure_epsilon(sampled) is None


# --- epsilon alone -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("q", "multiplier", "shots"),
    [(0.05, 1.0, 30.0), (0.01, 0.7, None), (0.3, 2.0, 1.5), (0.001, 0.5, 3.0)],
)
def test_sampled_vectors_and_shots_cost_what_a_loss_distribution_says(q, multiplier, shots):
    """Paper 000: Sampled(SelfComposed(Gaussian, 4)) with the counts of shots, against
    dp-accounting's PLD.
    """
    event = PoissonSampled(q, SelfComposed(Gaussian(2 * multiplier), 4))
    theirs = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(multiplier))
    if shots:
        event = Composed((Gaussian(shots), event))
        theirs = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(shots), theirs])
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(theirs)
    epsilon, how = epsilon_alone(event, 1e-6)
    assert how == "exact sampled Gaussian"
    pessimistic = accountant.get_epsilon(1e-6)
    assert pessimistic - 1e-4 <= epsilon <= pessimistic
    assert epsilon <= renyi_epsilon(event, 1e-6)


@pytest.mark.parametrize(("multiplier", "scale"), [(0.6, 1.0), (20.0, 0.1), (5.0, 5.0)])
def test_a_laplace_and_a_gaussian_release_cost_what_a_loss_distribution_says(multiplier, scale):
    """dp-kps with Gaussian sketches."""
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    parts = [dp_accounting.GaussianDpEvent(multiplier), dp_accounting.LaplaceDpEvent(scale)]
    accountant.compose(dp_accounting.ComposedDpEvent(parts))
    epsilon, how = epsilon_alone(Composed((Gaussian(multiplier), Laplace(scale))), 1e-6)
    assert how == "exact integration"
    assert accountant.get_epsilon(1e-6) - 1e-3 <= epsilon <= accountant.get_epsilon(1e-6) + 1e-9


@RELAXED
@given(st.floats(0.01, 50), st.floats(-9, -2), RATES, st.integers(1, 64))
def test_calibration_on_a_sample_spends_epsilon_exactly(epsilon, log_delta, q, layers):
    delta = 10**log_delta * q
    multiplier = sampled_multiplier(epsilon, delta, layers, q)
    event = PoissonSampled(q, SelfComposed(Gaussian(multiplier), layers))
    found = epsilon_alone(event, delta)[0]
    assert found <= epsilon
    assert found == pytest.approx(epsilon, rel=1e-6)
    assert multiplier <= gaussian_multiplier(epsilon, delta, layers) * (1 + 1e-9)


@RELAXED
@given(st.floats(0, 20), RATES, MULTIPLIERS)
def test_the_profile_of_a_sample_is_the_paper_s_amplified_delta(epsilon, q, multiplier):
    """Theorem 4.2 of paper 000 with the exact Gaussian profile in place of a classical bound."""
    before = math.log1p(math.expm1(epsilon) / q)
    expected = q * gaussian_delta(1 / multiplier, before)
    at = np.array([epsilon])
    assert privacy_profiles.replaced(q, 1 / multiplier)(at)[0] == pytest.approx(
        expected, rel=1e-9, abs=1e-300
    )
    removed = privacy_profiles.poisson_removed(q, 1 / multiplier)(at)[0]
    assert removed == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert privacy_profiles.poisson_added(q, 1 / multiplier)(at)[0] <= removed * (1 + 1e-9)


@RELAXED
@given(st.floats(-20, 20), RATES, MULTIPLIERS)
def test_the_two_directions_of_a_profile_mirror_each_other(epsilon, q, multiplier):
    """H_t(P || Q) = 1 - t + t H_1/t(Q || P), for the coin and for the symmetric bound of a
    replacement.
    """
    mu = 1 / multiplier
    pairs = [
        (privacy_profiles.poisson_added(q, mu), privacy_profiles.poisson_removed(q, mu)),
        (privacy_profiles.poisson_removed(q, mu), privacy_profiles.poisson_added(q, mu)),
        (privacy_profiles.replaced(q, mu), privacy_profiles.replaced(q, mu)),
        (privacy_profiles.laplace(mu), privacy_profiles.laplace(mu)),
    ]
    for one, other in pairs:
        mirrored = -math.expm1(epsilon) + math.exp(epsilon) * other(np.array([-epsilon]))[0]
        assert one(np.array([epsilon]))[0] == pytest.approx(
            mirrored, rel=1e-9, abs=1e-12 * math.exp(abs(epsilon))
        )


@pytest.mark.slow
@RELAXED
@given(MULTIPLIERS, MULTIPLIERS, st.floats(-12, -2))
def test_a_sample_of_everybody_composes_like_a_gaussian(multiplier, shots, log_delta):
    """Both halves of the profile of a replacement count where something else is composed with
    it.
    """
    delta = 10**log_delta
    plain, how = epsilon_alone(Composed((Gaussian(multiplier), Gaussian(shots))), delta)
    assert how == "exact Gaussian"
    for sampled in (
        PoissonReplaced(1.0, Gaussian(multiplier)),
        PoissonSampled(1.0, Gaussian(multiplier)),
    ):
        found, _ = epsilon_alone(Composed((sampled, Gaussian(shots))), delta)
        assert found == pytest.approx(plain, rel=1e-8, abs=1e-9)


# --- events --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        PoissonSampled(0.25, SelfComposed(Gaussian(2.0), 4)),
        PoissonReplaced(1.0, Composed((Gaussian(2.0), Gaussian(3.5)))),
        SampledWithoutReplacement(500, 10_000, Gaussian(2.0)),
    ],
)
def test_sampled_events_survive_json_and_count_as_one_release(event):
    assert from_json(to_json(event)) == event
    assert releases(SelfComposed(event, 3)) == {event: 3}


@pytest.mark.parametrize(
    "inner", [Laplace(1.0), WorstOf((Gaussian(1.0),)), Composed(()), "gaussian"]
)
def test_what_is_not_a_composition_of_gaussians_has_no_price_on_a_sample(inner):
    with pytest.raises(InvalidRequest, match="composition of Gaussians"):
        PoissonSampled(0.5, inner)
    with pytest.raises(InvalidRequest, match="composition of Gaussians"):
        PoissonSampled(0.5, PoissonSampled(0.5, Gaussian(1.0)))


@pytest.mark.parametrize("rate", [0, -0.1, 1.1, math.nan, math.inf, "0.5", True])
def test_a_rate_is_a_number_above_0_and_at_most_1(rate):
    with pytest.raises(InvalidRequest, match="probability"):
        PoissonSampled(rate, Gaussian(1.0))


@pytest.mark.parametrize(("size", "population"), [(11, 10), (0, 10), (1, 0), (1.0, 10), (True, 10)])
def test_a_sample_is_no_larger_than_what_it_is_drawn_from(size, population):
    with pytest.raises(InvalidRequest, match=r"sample_size|population"):
        SampledWithoutReplacement(size, population, Gaussian(1.0))
