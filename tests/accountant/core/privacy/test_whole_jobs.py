"""Whole jobs at a delta of their own: each figure against independent numerics, and what may not
return.
"""

import math
from fractions import Fraction

import mpmath
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from accountant.core.ledger.reservations import settled
from accountant.core.privacy import divergences
from accountant.core.privacy.composition import gaussian_delta, gaussian_epsilon
from accountant.core.privacy.events import (
    Composed,
    EpsilonDelta,
    Event,
    Exponential,
    Gaussian,
    Laplace,
    PoissonSampled,
    SampledWithoutReplacement,
    SelfComposed,
    ZCDp,
)
from accountant.core.privacy.filters import Amount, Kind
from accountant.core.privacy.whole_jobs import PARTS, epsilon_at, least_share, whole_cost
from tests.accountant.core.privacy.test_filters import account

GRID = 2.0**-10
WHOLE, ALL_DELTA = 3 * 10**9, 10**14


def loss_distribution(event: Event):
    """By dp-accounting, whose figures are bounds from above."""
    match event:
        case Gaussian(multiplier):
            return pld.from_gaussian_mechanism(multiplier, value_discretization_interval=GRID)
        case Laplace(multiplier):
            return pld.from_laplace_mechanism(multiplier, value_discretization_interval=GRID)
        case PoissonSampled(rate, Gaussian(multiplier)):
            return pld.from_gaussian_mechanism(
                multiplier, sampling_prob=rate, value_discretization_interval=GRID
            )
        case Exponential(shift):
            response = DifferentialPrivacyParameters(shift, 0)
            return pld.from_privacy_parameters(response, value_discretization_interval=GRID)
        case SelfComposed(inner, count):
            return loss_distribution(inner).self_compose(count)
        case Composed((first, second)):
            return loss_distribution(first).compose(loss_distribution(second))
    raise AssertionError(event)


@pytest.mark.parametrize("delta", [1e-5, 1e-8])
@pytest.mark.parametrize(
    ("event", "above"),
    [
        (Gaussian(1.6), 1.001),
        (PoissonSampled(0.01, Gaussian(0.8)), 1.001),
        (PoissonSampled(0.1, Gaussian(0.9)), 1.001),
        (Composed((Gaussian(3.0), PoissonSampled(0.1, Gaussian(0.9)))), 1.001),
        (Composed((Gaussian(3.0), Laplace(2.0))), 1.001),
        (SelfComposed(Laplace(30.0), 50), 1.12),
        (SelfComposed(PoissonSampled(0.01, Gaussian(1.0)), 100), 1.8),
    ],
)
def test_an_epsilon_is_not_below_an_independent_one_and_near_it(event, delta, above):
    """PLD overstates by at most a few grid steps; Rényi divergence by what is written here."""
    own, other = (
        float(epsilon_at(event, delta)),
        loss_distribution(event).get_epsilon_for_delta(delta),
    )
    assert own >= other - 2 * GRID - 1e-4
    assert own <= other * above + 1e-4


@pytest.mark.parametrize("tokens", [1, 20, 200])
@pytest.mark.parametrize("shift", [32 * GRID, 384 * GRID])
def test_tokens_cost_no_less_than_randomised_responses(tokens, shift):
    """Binary tokens whose ratios span 2 * shift are such tokens."""
    event = SelfComposed(Exponential(shift), tokens)
    other = loss_distribution(event).get_epsilon_for_delta(1e-6)
    assert float(epsilon_at(event, 1e-6)) >= other - 1e-6


def test_a_gaussian_is_exact_in_forty_digits():
    mpmath.mp.dps = 40
    for multiplier, delta in ((1.6, 1e-6), (30.0, 1e-9), (0.2, 1e-3)):
        mu = 1 / mpmath.mpf(multiplier)

        def excess(eps, mu=mu, delta=delta):
            upper = mpmath.ncdf(-eps / mu + mu / 2)
            return upper - mpmath.exp(eps) * mpmath.ncdf(-eps / mu - mu / 2) - mpmath.mpf(delta)

        true = mpmath.findroot(excess, gaussian_epsilon(float(mu), delta))
        own = epsilon_at(Gaussian(multiplier), delta)
        assert (
            true <= mpmath.mpf(own.numerator) / own.denominator <= true * (1 + mpmath.mpf("3e-6"))
        )


@pytest.mark.parametrize("order", ["1.001", "2", "9.356", "64"])
@pytest.mark.parametrize("shift", [1e-4, 0.09375, 0.5, 3.0])
def test_a_token_has_its_exact_divergence(shift, order):
    """The largest over all two-point pairs, in forty digits; the bound by zCDP is above it."""
    mpmath.mp.dps = 40
    x, a = mpmath.mpf(shift), mpmath.mpf(order)

    def moment(t):
        q = (mpmath.exp(-t) - mpmath.exp(-2 * x)) / (1 - mpmath.exp(-2 * x))
        return q * mpmath.exp(a * t) + (1 - q) * mpmath.exp(a * (t - 2 * x))

    low, high = mpmath.mpf(0), 2 * x
    for _ in range(200):  # the moment rises and falls once
        first, second = low + (high - low) / 3, high - (high - low) / 3
        low, high = (first, high) if moment(first) < moment(second) else (low, second)
    true = mpmath.log(moment(low)) / (a - 1)
    own = divergences.renyi(Exponential(shift), Fraction(order))
    plain = divergences.quoted_renyi(Exponential(shift), Fraction(order))
    assert (
        true
        <= mpmath.mpf(own.numerator) / own.denominator
        <= true * (1 + mpmath.mpf("3e-6")) + 1e-9
    )
    assert own <= plain


# --- the choice of delta ------------------------------------------------------------------------

EVENTS = st.one_of(
    st.builds(Gaussian, st.floats(0.3, 300)),
    st.builds(
        PoissonSampled, st.sampled_from([0.01, 0.1]), st.builds(Gaussian, st.floats(0.5, 10))
    ),
    st.builds(lambda m: SampledWithoutReplacement(10, 1000, Gaussian(m)), st.floats(0.5, 10)),
    st.builds(SelfComposed, st.builds(Laplace, st.floats(1, 100)), st.integers(1, 100)),
    st.builds(SelfComposed, st.builds(Exponential, st.floats(0.01, 0.5)), st.integers(1, 300)),
    st.builds(ZCDp, st.floats(1e-5, 0.5)),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_no_other_part_of_delta_leaves_more(event):
    """What is charged is a bound at its delta, and its larger share is the least over all parts."""
    epsilon, delta = whole_cost(event, ALL_DELTA, WHOLE)
    chosen = max(epsilon / WHOLE, delta / ALL_DELTA)
    if delta:
        assert delta / ALL_DELTA in {float(part) for part in PARTS}
        assert epsilon >= float(epsilon_at(event, delta / 1e21)) * 1e9
    else:
        assert epsilon >= float(divergences.pure_epsilon(event)) * 1e9
    for part in PARTS:
        other = epsilon_at(event, float(part) * ALL_DELTA / 1e21)
        least = max(float(other) * 1e9 / WHOLE, float(part))
        assert chosen <= max(min(least * 1.25, 1.0), least) + 1e-8


@settings(max_examples=40, deadline=None)
@given(EVENTS)
def test_a_job_that_fits_at_some_part_of_delta_fits(event):
    epsilon, delta = whole_cost(event, ALL_DELTA, WHOLE)
    fits = any(
        float(epsilon_at(event, float(part) * ALL_DELTA / 1e21)) * 1e9 <= WHOLE * (1 - 1e-6)
        for part in PARTS
    )
    assert (epsilon <= WHOLE and delta <= ALL_DELTA) or not fits


@pytest.mark.slow
@given(EVENTS, st.integers(1, 40), st.integers(1, 40))
def test_fewer_releases_never_have_the_larger_share(event, few, more):
    """Though they may pay more epsilon or more delta: what an offer of a smaller job is compared
    by.
    """
    shares = [
        least_share(SelfComposed(event, each), ALL_DELTA, WHOLE) for each in (few, few + more)
    ]
    assert None not in shares
    assert shares[0] <= shares[1]


def test_stated_releases_pay_what_they_state_besides():
    alone = whole_cost(Gaussian(10.0), ALL_DELTA, WHOLE)
    both = whole_cost(Composed((Gaussian(10.0), EpsilonDelta(0.25, 1e-8))), ALL_DELTA, WHOLE)
    stated = whole_cost(EpsilonDelta(0.25, 1e-8), ALL_DELTA, WHOLE)
    assert stated == (250_000_000, 10**13 + 1)  # 1e-8 as a float is above 1e-8
    assert both[0] > 250_000_000 + alone[0] / 2
    assert both[1] > 10**13


def test_without_delta_only_what_is_pure_has_a_price():
    assert whole_cost(Gaussian(10.0), 0, WHOLE) is None
    assert whole_cost(Laplace(2.0), 0, WHOLE) == (500_000_000, 0)


# --- nothing of a whole job returns --------------------------------------------------------------


def test_a_prefix_at_the_same_delta_would_pass_it():
    """Stop after the first of two steps where its loss is beyond its epsilon at delta, go on
    elsewhere.

    Were each end re-priced at the job's delta, and what is left taken by a pure release that almost
    surely tells as much as it may, losses beyond epsilon would weigh what both ends lose: nearly
    1.7 delta here.
    """
    mu, delta = 1.0, 1e-3
    one, two = gaussian_epsilon(mu, delta), gaussian_epsilon(math.sqrt(2) * mu, delta)

    def under_p(z: float) -> float:
        return norm.pdf(z)  # the loss is mu^2/2 + mu z

    threshold = (one - mu * mu / 2) / mu
    stopped, _ = quad(lambda z: under_p(z) * -math.expm1(one - mu * mu / 2 - mu * z), threshold, 12)
    assert stopped == pytest.approx(delta, rel=1e-6)
    gone_on, _ = quad(
        lambda z: under_p(z) * gaussian_delta(mu, two - mu * mu / 2 - mu * z),
        -12,
        threshold,
        points=[0, 1],
    )
    assert stopped + gone_on > 1.6 * delta


def test_a_pure_reservation_never_pays_a_delta_for_a_part():
    whole = {Kind.BASIC: Amount(500, 0)}
    assert settled(whole, {Kind.BASIC: Amount(300, 0)}) == {Kind.BASIC: Amount(300, 0)}
    assert settled(whole, {Kind.BASIC: Amount(100, 7)}) == whole
    assert settled({Kind.BASIC: Amount(500, 9)}, {Kind.BASIC: Amount(1, 0)}) == {
        Kind.BASIC: Amount(500, 9)
    }


@settings(max_examples=25, deadline=None)
@given(EVENTS, st.integers(2, 30), st.integers(0, 29))
def test_what_is_settled_never_exceeds_what_was_reserved(event, count, taken):
    of = account("3", "1e-6")
    whole = of.costs(SelfComposed(event, count))
    part = of.costs(SelfComposed(event, min(taken, count))) if taken else of.costs(Composed(()))
    for kind, cost in settled(whole, part).items():
        assert cost is None or cost.fits(whole[kind])
