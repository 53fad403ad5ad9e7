"""Secrets compose by divergence, not by adding r; what `dp` jobs cost them."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from accountant.core.errors import InvalidRequest
from accountant.core.ledger.accounts import Accounts, Demand, beyond_dp, new_secret_account
from accountant.core.privacy.blowup import Without
from accountant.core.privacy.events import (
    Composed,
    EpsilonDelta,
    Exponential,
    Gaussian,
    Laplace,
    PoissonSampled,
    SelfComposed,
    WorstOf,
    ZCDp,
)
from accountant.core.privacy.secrets import (
    SecretKind,
    SecretRelease,
    SecretTerms,
    best_order,
    bound_after,
    divergence_limit,
    group_blow_up,
    group_divergence,
    group_size,
)

PIN = SecretTerms(1e-4, 0.02, 1, 1.0, Without.REMOVED)
#: Two of four digits: sure with the secret, one chance in a hundred without. D is ln 100 at any
#: order.
HALF = math.ceil(math.log(100) * 10**9)


def many(terms, order):
    return new_secret_account(terms, SecretKind.MANY, "add-remove", order and Fraction(order))


def after(account, job):
    """The account with `job` reserved, or None where it is refused."""
    if beyond_dp(Accounts(None, secret=account), job, True) is not None:
        return None
    cost = account.cost(job.dp, job.secret)
    return replace(account, reserved=account.reserved + cost, jobs=account.jobs + 1)


def test_adding_r_over_jobs_is_false():
    """Each half of the PIN is (1e-4, 1e-2), which paper 003, Theorem 3, adds to 2e-2. The truth is
    1.
    """
    likelier = 100  # how much likelier the true two digits are with the secret than without
    assert PIN.prior * likelier == pytest.approx(1e-2)
    assert PIN.prior * likelier**2 == pytest.approx(1.0)


@pytest.mark.parametrize("order", [None, 3, 5, 7, 8, 16, 64, 1000])
def test_half_a_pin_is_admitted_once_at_most(order):
    account = many(PIN, order)
    # 0.01^((a-1)/a) <= 0.02 from order 6.7 on; the default order suits many small jobs instead.
    assert account.admits(HALF) is (order is not None and order >= 7)
    assert not replace(account, spent=HALF, jobs=1).admits(HALF)


def test_one_exact_job_takes_half_a_pin_and_no_second_half():
    account = new_secret_account(PIN, SecretKind.ONE, "add-remove")
    half = 10**19  # r = 0.01
    assert account.admits(half)
    assert not replace(account, spent=half, jobs=1).admits(half)


@pytest.mark.parametrize("kind", list(SecretKind))
def test_two_pure_jobs_as_strong_as_half_a_pin_are_never_admitted(kind):
    job = Demand(EpsilonDelta(math.log(100), 0.0))
    account = new_secret_account(
        PIN, kind, "add-remove", Fraction(16) if kind is SecretKind.MANY else None
    )
    once = after(account, job)
    assert once is not None
    assert after(once, job) is None


@given(st.floats(1e-7, 0.1), st.floats(1.5, 300))
def test_the_default_order_is_the_maximiser(prior, ratio):
    p, r = Fraction(prior), min(Fraction(prior * ratio), Fraction(1, 2))
    if r <= p:
        return
    best = best_order(p, r)

    def quotient(order: Fraction) -> float:
        return divergence_limit(p, r, order) / float(order)

    for factor in (Fraction(9, 10), Fraction(11, 10)):
        assert quotient(best) >= quotient(1 + (best - 1) * factor) * (1 - 1e-9)


@given(st.floats(1e-7, 0.1), st.floats(1.5, 300), st.floats(1.01, 200))
def test_the_limit_is_where_the_bound_is_reached(prior, ratio, order):
    p, r = Fraction(prior), min(Fraction(prior * ratio), Fraction(1, 2))
    limit = divergence_limit(p, r, Fraction(order))
    if limit > 0:
        assert bound_after(p, Fraction(order), limit) == pytest.approx(float(r), rel=1e-9)


# --- what dp jobs cost --------------------------------------------------------------------------


@given(st.integers(1, 20), st.floats(5, 500), st.fractions(2, 30))
def test_gaussian_jobs_cost_the_group_mu(size, multiplier, order):
    cost = group_divergence(Gaussian(multiplier), order, size)
    assert float(cost) == pytest.approx(float(order) * (size / multiplier) ** 2 / 2)
    exact = norm.cdf(norm.ppf(1e-3) + size / multiplier)
    assert exact <= group_blow_up(Gaussian(multiplier), 1e-3, size) <= exact * (1 + 1e-9)


events = st.one_of(
    st.builds(Gaussian, st.floats(2, 100)),
    st.builds(Laplace, st.floats(1, 100)),
    st.builds(Exponential, st.floats(0.01, 1)),
    st.builds(ZCDp, st.floats(1e-4, 0.5)),
    st.builds(EpsilonDelta, st.floats(0.01, 2), st.just(0.0)),
    st.builds(PoissonSampled, st.floats(0.01, 1), st.builds(Gaussian, st.floats(1, 20))),
)


@settings(deadline=None)
@given(events, st.integers(1, 8), st.fractions(2, 20))
def test_a_group_costs_no_less_than_one_and_grows(event, size, order):
    one, more = (group_divergence(event, order, n) for n in (size, size + 1))
    assert 0 < one < more or math.isclose(one, more)
    assert one >= size * group_divergence(event, order, 1) * (1 - Fraction(1, 10**6)) or size == 1


@settings(deadline=None)
@given(events, events, st.integers(1, 8), st.fractions(2, 20))
def test_divergences_add_and_alternatives_cost_the_larger(first, second, size, order):
    both = group_divergence(Composed((first, SelfComposed(second, 3))), order, size)
    a, b = (group_divergence(each, order, size) for each in (first, second))
    assert both == a + 3 * b
    either = group_divergence(WorstOf((first, second)), order, size)
    assert either is None or either >= min(a, b)


def test_epsilon_delta_has_no_price():
    assert group_divergence(EpsilonDelta(0.1, 1e-9), Fraction(3), 2) is None
    account = new_secret_account(PIN, SecretKind.MANY, "add-remove")
    refused = beyond_dp(Accounts(None, secret=account), Demand(EpsilonDelta(0.1, 1e-9)), True)
    assert refused is not None
    assert refused.cap == "secret"


def test_one_exact_job_may_be_epsilon_delta():
    """(epsilon, delta) for one: e^(2 epsilon) p + (1 + e^epsilon) delta for two."""
    found = group_blow_up(Composed((EpsilonDelta(0.1, 1e-6), EpsilonDelta(0.2, 0.0))), 1e-3, 2)
    assert found == pytest.approx(math.exp(0.6) * 1e-3 + (1 + math.exp(0.3)) * 1e-6)


@pytest.mark.parametrize(
    ("neighbours", "without", "size"),
    [
        ("add-remove", Without.REMOVED, 5),
        ("add-remove", Without.REDACTED, 10),
        ("replace-one", Without.REDACTED, 5),
    ],
)
def test_group_sizes(neighbours, without, size):
    assert group_size(neighbours, SecretTerms(1e-4, 1e-3, 5, 1.0, without)) == size


def test_removal_under_replace_one_is_refused():
    with pytest.raises(InvalidRequest, match="removal"):
        new_secret_account(PIN, SecretKind.MANY, "replace-one")


@given(
    st.floats(1e-4, 1e-2),
    st.floats(3, 50),
    st.lists(st.floats(2, 60), min_size=1, max_size=12),
    st.sampled_from([None, 4, 10]),
)
def test_composed_gaussians_never_pass_the_bound(prior, ratio, multipliers, order):
    """Jobs admitted by a `many` account together keep the exact blow-up of one Gaussian within
    r.
    """
    bound = min(0.9, prior * ratio)
    terms = SecretTerms(prior, bound, 3, 1.0, Without.REMOVED)
    account = new_secret_account(
        terms, SecretKind.MANY, "add-remove", None if order is None else Fraction(order)
    )
    mu_squared = 0.0
    for multiplier in multipliers:
        with_it = after(account, Demand(Gaussian(multiplier)))
        if with_it is not None:
            account, mu_squared = with_it, mu_squared + (3 / multiplier) ** 2
    assert norm.cdf(norm.ppf(prior) + math.sqrt(mu_squared)) <= bound * (1 + 1e-9)


# --- declarations -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"prior": 0.02},
        {"prior": 0.0},
        {"bound": 1.0},
        {"records_per_secret": 0},
        {"records_per_secret": 2.5},
        {"sampling_rate": 1.1},
        {"sampling_rate": "1"},
        {"neighbour": "gone"},
        {"extra": 1},
    ],
)
def test_bad_declarations(change):
    good = PIN.to_json()
    assert SecretTerms.from_json(good) == PIN
    with pytest.raises(InvalidRequest):
        SecretTerms.from_json({**good, **change})


def test_releases_survive_their_json():
    release = SecretRelease(5, 0.5, Without.REDACTED, 7.25, 3)
    assert SecretRelease.from_json(release.to_json()) == release
    with pytest.raises(InvalidRequest):
        SecretRelease.from_json({**release.to_json(), "type": "other"})
    with pytest.raises(InvalidRequest):
        SecretRelease.from_json({**release.to_json(), "sigma": math.nan})
