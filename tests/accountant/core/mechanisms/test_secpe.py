"""`secpe`: its noise against integration that shares no code with the price."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import binom, norm

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest
from accountant.core.mechanisms.base import quote
from accountant.core.privacy.blowup import GroupSampling, Without, blow_up, divergence, least_sigma
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secrets import SecretRelease, SecretTerms

REMOVED, REDACTED = Without.REMOVED, Without.REDACTED
PRICE = mechanisms.get("secpe")


def most_powerful(log_ratio, q_mass, prior):
    """B(prior) of a finite pair: outputs in the order of their likelihood ratio until Q is used
    up.
    """
    order = np.argsort(-log_ratio)
    with np.errstate(divide="ignore"):
        q, p = q_mass[order], np.exp(np.minimum(np.log(q_mass) + log_ratio, 0.0))[order]
    level = np.cumsum(q)
    place = int(np.searchsorted(level, prior))
    before = level[place - 1] if place else 0.0
    return float(np.sum(p[:place]) + p[place] * (prior - before) / q[place])


def integrated(group, sigma, rounds, prior):
    """The blow-up on a grid over the outputs of one or two rounds (and, where seen, over the
    draws).
    """
    draws = np.arange(group.records + 1)
    weights = binom.pmf(draws, group.records, group.rate)
    step = (math.sqrt(2) if group.without is REMOVED else 2.0) / sigma
    if group.without is REMOVED:
        z = np.linspace(-9, 9 + step * group.records, 40_001 if rounds == 1 else 1_201)
        ratio = logsumexp(step * np.outer(z, draws) - (step * draws) ** 2 / 2, b=weights, axis=1)
        mass = norm.pdf(z) * (z[1] - z[0])
        if rounds == 2:
            ratio, mass = np.add.outer(ratio, ratio).ravel(), np.outer(mass, mass).ravel()
        return most_powerful(ratio, mass, prior)
    # Seen draws: the two rounds' draws are two coordinates of one Gaussian.
    if rounds == 2:
        weights = np.outer(weights, weights).ravel()
        shifts = step * np.sqrt(np.add.outer(draws**2, draws**2)).ravel()
    else:
        shifts = step * draws
    z = np.linspace(-9, 9 + shifts.max(), 4_001)
    ratio = (np.outer(shifts, z) - shifts[:, None] ** 2 / 2).ravel()
    return most_powerful(ratio, np.outer(weights, norm.pdf(z) * (z[1] - z[0])).ravel(), prior)


groups = st.builds(
    GroupSampling, st.integers(1, 12), st.floats(0.02, 1.0), st.sampled_from([REMOVED, REDACTED])
)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(groups, st.sampled_from([1, 2]), st.sampled_from([1e-4, 1e-3, 1e-2]), st.floats(2, 40))
def test_sigma_is_enough_and_within_a_percent_of_the_least(group, rounds, prior, ratio):
    bound = min(prior * ratio, 0.5)
    sigma = least_sigma(group, rounds, prior, bound, 0.5)
    assert integrated(group, sigma, rounds, prior) <= bound * (1 + 2e-4)  # the grid's own error
    none_takes_part = (1 - group.rate) ** (group.records * rounds)
    sampling_alone = 1 - none_takes_part * (1 - prior)  # B without any noise, at most
    if sigma > 0.5 and sampling_alone > bound * 1.001:
        assert integrated(group, sigma * 0.99, rounds, prior) > bound


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.floats(0.02, 1.0), st.floats(1, 30), st.sampled_from([1e-4, 1e-2]))
def test_one_removed_round_is_the_stated_formula(records, rate, sigma, prior):
    """E Phi(Phi^-1(p) + sqrt(2) X / sigma), by quadrature of the mixture's upper tail."""
    weights = binom.pmf(np.arange(records + 1), records, rate)

    def density(z):
        return float(weights @ norm.pdf(z - math.sqrt(2) / sigma * np.arange(records + 1)))

    threshold = float(norm.isf(prior))
    top = max(threshold, math.sqrt(2) / sigma * records) + 9
    tail = quad(density, threshold, top, limit=500, epsabs=1e-13, epsrel=1e-10)[0]
    group = GroupSampling(records, rate, REMOVED)
    assert blow_up(group, sigma, 1, prior) == pytest.approx(tail, rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("records", "rate", "rounds", "sigma"),
    [(5, 0.3, 5, 6.0), (10, 0.1, 10, 5.0), (30, 0.05, 20, 9.0)],
)
def test_many_removed_rounds_by_an_independent_pld(records, rate, rounds, sigma):
    """dp-accounting's mixture of Gaussians, composed: inf over epsilon of e^epsilon p + delta."""
    prior = 1e-4
    weights = binom.pmf(np.arange(records + 1), records, rate)
    kept = [k for k in range(records + 1) if weights[k] > 1e-13]
    once = pld.from_mixture_gaussian_mechanism(
        sigma,
        [math.sqrt(2) * k for k in kept],
        [weights[k] for k in kept],
        value_discretization_interval=2e-3,
    )
    composed = once.self_compose(rounds)
    bounds = [
        math.exp(e) * prior + composed.get_delta_for_epsilon(e) for e in np.linspace(1, 7, 121)
    ]
    ours = blow_up(GroupSampling(records, rate, REMOVED), sigma, rounds, prior)
    assert ours == pytest.approx(min(bounds), rel=5e-3)


@pytest.mark.parametrize("rounds", [1, 3, 10, 100])
def test_where_all_take_part_it_is_one_gaussian(rounds):
    """Rate 1: N(sqrt(2) M sqrt(T)) and N(2 M sqrt(T)) against N(0), Phi(Phi^-1(p) + mu)."""
    for without, step in ((REMOVED, math.sqrt(2)), (REDACTED, 2.0)):
        exact = norm.cdf(norm.ppf(1e-3) + step * 4 * math.sqrt(rounds) / 50)
        ours = blow_up(GroupSampling(4, 1.0, without), 50.0, rounds, 1e-3)
        assert exact * (1 - 1e-9) <= ours <= exact * (1 + 1e-3)


@pytest.mark.parametrize("sigma", [0.3, 3.0])
def test_fresh_draws_and_one_draw_for_all_rounds_differ(sigma):
    """With little noise ten draws catch a rare record, with much of it they average out."""
    group = GroupSampling(5, 0.1, REMOVED)
    fresh, same = blow_up(group, sigma, 10, 1e-4), blow_up(group, sigma / math.sqrt(10), 1, 1e-4)
    assert (fresh > same) is (sigma < 1)
    assert fresh < 1


def test_one_gaussian_of_equal_variance_is_no_bound():
    """Matching X's second moment by a fixed shift understates what rare large draws tell."""
    group = GroupSampling(20, 0.05, REMOVED)
    moment = math.sqrt(20 * 0.05 * 0.95 + 1.0)
    naive = norm.cdf(norm.ppf(1e-4) + math.sqrt(2) * moment / 6.0)
    assert blow_up(group, 6.0, 1, 1e-4) > naive


@settings(max_examples=40, deadline=None)
@given(groups, st.floats(4, 60), st.floats(1.2, 8))
def test_divergence_by_quadrature(group, sigma, order):
    draws = np.arange(group.records + 1)
    weights = binom.pmf(draws, group.records, group.rate)
    step = group.shift / sigma
    top = order * step * group.records + 12
    places = np.linspace(-12, top, 20_001)
    if group.without is REMOVED:
        ratio = logsumexp(
            step * np.outer(places, draws) - (step * draws) ** 2 / 2, b=weights, axis=1
        )
        terms = order * ratio - places**2 / 2
        shifted = terms.max()
        integral = np.trapezoid(np.exp(terms - shifted), places) / math.sqrt(2 * math.pi)
        expected = (math.log(integral) + shifted) / (order - 1)
    else:
        exponents = order * (order - 1) * (step * draws) ** 2 / 2
        expected = float(logsumexp(exponents, b=weights) / (order - 1))
    ours = divergence(group, sigma, 1, order)
    assert ours == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert divergence(group, sigma, 7, order) == pytest.approx(7 * ours)


@settings(max_examples=60, deadline=None)
@given(groups, st.floats(2, 40), st.integers(1, 4), st.floats(1.5, 10))
def test_the_renyi_bound_never_passes_below_the_blow_up(group, sigma, rounds, order):
    """(p e^D)^((alpha - 1) / alpha) bounds B(p): what a `many` account relies on."""
    prior = 1e-3
    bound = (prior * math.exp(min(divergence(group, sigma, rounds, order), 700))) ** (
        (order - 1) / order
    )
    assert blow_up(group, sigma, rounds, prior) <= min(1.0, bound) * (1 + 1e-3)


# --- the mechanism ------------------------------------------------------------------------------

TERMS = Terms(secret=SecretTerms(1e-4, 1e-3, 8, 0.25, REMOVED))


def test_price_has_no_dp_part_and_states_the_bound():
    parameters = PRICE.parse({}, TERMS)
    found = quote(PRICE, parameters, TERMS)
    assert found["dp"] is None
    assert found["secret"]["bound"] <= 1e-3
    assert SecretRelease.from_json(found["secret"]["release"]).rounds == 1
    # a verifier gets the same noise
    assert PRICE.parse(parameters.model_dump(), TERMS) == parameters


def test_reclustering_costs_a_release_a_round():
    once, often = (
        PRICE.parse({"recluster": value, "iterations": 10}, TERMS) for value in (False, True)
    )
    assert often.noise_multiplier > 1.5 * once.noise_multiplier
    assert PRICE.price(often, TERMS).secret["release"]["rounds"] == 10


def test_a_job_on_artifacts_is_free():
    assert PRICE.price(PRICE.parse({"from_job": "j1"}, TERMS), TERMS).dp == FREE


@pytest.mark.parametrize(
    ("raw", "terms", "field"),
    [
        ({"bound": 1e-4}, TERMS, "bound"),
        ({"bound": 1e-3, "noise_multiplier": 2.0}, TERMS, "bound"),
        ({"prior": 1e-3}, TERMS, "prior"),
        ({"sampling_rate": 1.5}, TERMS, "sampling_rate"),
        ({"neighbour": "gone"}, TERMS, "neighbour"),
        ({"iterations": "10"}, TERMS, "iterations"),
        ({"bound": math.inf}, TERMS, "bound"),
        ({"weights": 1}, TERMS, "weights"),
        ({}, Terms(), "prior"),
        ({}, Terms(max_records_per_unit=2, secret=TERMS.secret), "mechanism"),
    ],
)
def test_bad_input_names_its_field(raw, terms, field):
    with pytest.raises(InvalidRequest) as error:
        PRICE.parse(raw, terms)
    assert field in [each.field for each in error.value.problems]


@pytest.mark.parametrize(
    "declared",
    [SecretTerms(1e-6, 1e-4, 1000, 0.01, REDACTED), SecretTerms(1e-4, 1e-3, 300, 0.5, REMOVED)],
)
@pytest.mark.timeout(120)  # a second or two on a quiet machine
def test_a_price_of_many_iterations_ends(declared):
    PRICE.parse({"recluster": True, "iterations": 10}, Terms(secret=declared))
