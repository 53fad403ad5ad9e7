"""Quotes of allocated tokens: the dominating pair against brute force, and sums of losses."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.privacy import allocation_pairs, loss_distributions
from accountant.core.privacy.allocation import Batch
from accountant.core.privacy.composition import (
    epsilon_alone,
    gaussian_delta,
    gaussian_epsilon,
    renyi_epsilon,
)
from accountant.core.privacy.events import (
    Allocated,
    AllocatedReplaced,
    Composed,
    Exponential,
    Gaussian,
    Laplace,
    SelfComposed,
)
from accountant.core.privacy.filters import granted, portfolio
from benchmarks import allocation as tables
from tests.accountant.core.privacy.test_allocation import play

pytestmark = pytest.mark.slow

AG_NEWS = Exponential(0.09375)


def delta(law: np.ndarray, m: np.ndarray, epsilon: float) -> float:
    t = math.exp(epsilon)
    return max(float(law @ np.maximum(m - t, 0)), float(law @ np.maximum(1 - t * m, 0)))


@pytest.mark.parametrize(
    ("batches", "run", "tokens"), [(1, 1, 3), (2, 2, 3), (3, 3, 2), (4, 4, 2), (4, 2, 3), (8, 8, 1)]
)
@pytest.mark.parametrize("shift", [0.1, 0.5])
def test_no_adaptive_strategy_passes_the_pair(batches, run, tokens, shift):
    """At any epsilon, in either direction, whatever it knows of other batches."""
    ratio = allocation_pairs.worst_ratio(Batch(tokens, shift=shift))
    pair = allocation_pairs.mean(ratio, batches, run)
    random = np.random.default_rng(batches)
    size = 2 ** (run * tokens) - 1
    tightest = 0.0
    for place in (0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, None, None, None):
        places = np.full(size, place) if place else random.uniform(0.01, 0.99, size)
        law, m = play(batches, run, tokens, shift, places)
        for epsilon in np.linspace(0, 1.5 * shift, 6):
            true, bound = delta(law, m, epsilon), pair.delta(epsilon)
            assert true <= bound + 1e-12
            tightest = max(tightest, true / bound)
    assert tightest > 0.7


def test_one_batch_of_one_token_is_the_two_point_pair():
    """sup E (L - K)_+ over the pairs of one token, by a search."""
    shift = 0.4
    ratio = allocation_pairs.worst_ratio(Batch(1, shift=shift))
    t = 2 * shift * np.linspace(1e-6, 1 - 1e-6, 200_001)
    q = (np.exp(-t) - math.exp(-2 * shift)) / -math.expm1(-2 * shift)
    for k in (0.7, 0.9, 1.0, 1.1, 1.4):
        found = q * np.maximum(np.exp(t) - k, 0) + (1 - q) * np.maximum(
            np.exp(t - 2 * shift) - k, 0
        )
        mine = float(ratio.under_q @ np.maximum(ratio.values - k, 0))
        assert found.max() <= mine + 1e-12 <= found.max() * 1.01 + 1e-4


@pytest.mark.parametrize("shift", [0.02, 0.3, 1.5])
@pytest.mark.parametrize(("parts", "tokens"), [(2, 1), (3, 2), (2, 20)])
def test_a_shift_in_parts_is_dominated_by_the_whole(shift, parts, tokens):
    """A unit of several records moves batches of one number by shifts that add up to the stated
    one.
    """
    whole = allocation_pairs.worst_ratio(Batch(tokens, shift=shift))
    split = allocation_pairs.worst_ratio(Batch(parts * tokens, shift=shift / parts))
    for k in np.exp(2 * shift * tokens * np.linspace(-0.9, 0.9, 37)):
        calls = [
            float(each.under_q @ np.maximum(each.values - k, 0)) + each.infinite
            for each in (split, whole)
        ]
        assert calls[0] <= calls[1] * (1 + 1e-9) + 1e-12


def test_a_pair_keeps_all_mass():
    for batch in (Batch(40, shift=0.2), Batch(3, mu=0.5)):
        for batches, run in ((1, 1), (7, 7), (100, 60)):
            pair = allocation_pairs.mean(allocation_pairs.worst_ratio(batch), batches, run)
            assert pair.under_q.sum() == pytest.approx(1, abs=1e-11)
            assert pair.under_q @ pair.values + pair.infinite == pytest.approx(1, abs=1e-11)
            assert (pair.under_q >= 0).all()


def test_a_mean_of_gaussian_ratios_by_a_double_sum():
    mu, n = 0.8, 1500
    x = (np.arange(n) + 0.5) / n * 18 - 9
    weights = np.exp(-x * x / 2) / np.exp(-x * x / 2).sum()
    ratio = np.exp(mu * x - mu * mu / 2)
    m = ((ratio[:, None] + ratio) / 2).ravel()
    law = np.outer(weights, weights).ravel()
    pair = allocation_pairs.mean(allocation_pairs.worst_ratio(Batch(1, mu=mu)), 2, 2)
    for epsilon in (0.0, 0.3, 0.8, 1.5):
        assert pair.delta(epsilon) == pytest.approx(delta(law, m, epsilon), rel=0.03, abs=1e-6)
        assert pair.delta(epsilon) >= delta(law, m, epsilon) * (1 - 1e-4)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.05, 1.0), st.integers(1, 60), st.floats(1e-8, 1e-3))
def test_gaussians_on_a_grid_of_losses_are_the_exact_ones_from_above(mu, count, at):
    pair = allocation_pairs.worst_ratio(Batch(1, mu=mu))
    exact = gaussian_epsilon(mu * math.sqrt(count), at)
    mine = loss_distributions.epsilon([(pair, count)], at)
    assert exact * (1 - 1e-6) <= mine <= exact * 1.01 + 1e-3
    split = loss_distributions.epsilon([(pair, count), (pair, 2)], at)
    assert split >= gaussian_epsilon(mu * math.sqrt(count + 2), at) * (1 - 1e-6)


def test_where_rounding_could_count_nothing_is_stated():
    pair = allocation_pairs.worst_ratio(Batch(1, mu=0.3))
    assert math.isinf(loss_distributions.epsilon([(pair, 10)], 1e-12))
    assert math.isinf(loss_distributions.epsilon([(pair, 10**9)], 1e-6))
    assert epsilon_alone(Allocated(9, 9, 5, AG_NEWS), 1e-30)[1] != "dominating pair"


def test_a_coin_beside_a_poisson_sample_of_dp_accounting():
    """The neighbour of 40 rounds: 468 batches, each by a coin of its own with q = 1/468."""
    sigma, rounds, at = 1.5, 40, 2.9e-6
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    poisson = dp_accounting.PoissonSampledDpEvent(1 / 468, dp_accounting.GaussianDpEvent(sigma))
    accountant.compose(poisson, 468 * rounds)
    theirs = accountant.get_epsilon(at)
    mine, name = epsilon_alone(SelfComposed(Allocated(468, 468, 1, Gaussian(sigma)), rounds), at)
    assert name == "dominating pair"
    assert 0.95 * theirs < mine < 1.01 * theirs


def test_the_quote_is_the_smallest_figure():
    for event in (
        Allocated(468, 468, 212, AG_NEWS),
        SelfComposed(Allocated(16, 8, 20, AG_NEWS), 5),
        Composed((Gaussian(8.0), Allocated(100, 100, 30, AG_NEWS))),
    ):
        quoted, name = epsilon_alone(event, 2.9e-6)
        assert name == "dominating pair"
        assert quoted < renyi_epsilon(event, 2.9e-6)
    assert epsilon_alone(Allocated(468, 468, 210, AG_NEWS), 2.9e-6)[0] < 1
    histogram = Composed((Laplace(5.0), Allocated(100, 100, 30, AG_NEWS)))
    alone = epsilon_alone(Allocated(100, 100, 30, AG_NEWS), 2.9e-6)[0]
    assert epsilon_alone(histogram, 2.9e-6)[0] <= alone + 0.2 + 1e-12


@pytest.mark.parametrize(
    ("tokens", "rounds", "epsilon"),
    [(210, 1, 1), (350, 1, 3), (830, 1, 10), (50, 44, 1), (50, 340, 3), (50, 2740, 10)],
)
def test_what_a_coin_buys_at_the_size_of_ag_news(tokens, rounds, epsilon):
    """Tokens of one batch alone: 6, 45 and 373 where everybody knows the coin."""
    coin = Allocated(468, 468, tokens, AG_NEWS)
    assert epsilon_alone(SelfComposed(coin, rounds), 2.9e-6)[0] <= epsilon


def test_jobs_on_an_account_at_the_size_of_ag_news():
    for (epsilon, of_delta), counts in zip(tables.ACCOUNTS, tables.JOBS, strict=True):
        limits = granted(epsilon, of_delta)
        for size, count in zip(tables.SIZES, counts, strict=True):
            assert tables.jobs(portfolio(*limits), limits, tables.coin(size)) >= count


def test_other_jobs_have_a_quote_too():
    for event, name in (
        (AllocatedReplaced(468, 468, 50, AG_NEWS), "dominating pair"),
        (Composed((Allocated(9, 9, 5, AG_NEWS), AllocatedReplaced(9, 9, 5, AG_NEWS))), "Rényi"),
        (Allocated(5, 5, 10**7, Exponential(1e-4)), "Rényi"),  # too much work
        (Allocated(5, 5, 1, Exponential(90.0)), "Rényi"),  # beyond what a coin could help
    ):
        quoted, found = epsilon_alone(event, 1e-6)
        assert found == name
        assert 0 < quoted < math.inf


def test_the_gaussian_pair_dominates_its_profile():
    for mu in (1e-3, 0.2, 3.0):
        pair = allocation_pairs.worst_ratio(Batch(1, mu=mu))
        for epsilon in (0.0, mu, 4 * mu):
            exact = gaussian_delta(mu, epsilon)
            assert exact * (1 - 1e-9) <= pair.delta(epsilon) <= exact * 1.001 + 1e-13


# --- a replaced unit ----------------------------------------------------------------------------


def two_units(
    batches: int, tokens: int, shift: float, opposite: bool, random
) -> tuple[np.ndarray, ...]:
    """The law with neither unit over all outcomes of two, and the ratios with the one and with the
    other.

    A unit moves the two scores of a token in its batch by `shift`, each its own way.
    """
    law = np.ones(1)
    ones, twos = np.ones((batches, 1)), np.ones((batches, 1))
    for step in range(batches * tokens):
        logit = random.uniform(-2, 2, len(law))
        signs = np.where(random.uniform(size=len(law)) < 0.5, 1, -1)

        def chance(moved: np.ndarray, logit=logit) -> np.ndarray:
            return 1 / (1 + np.exp(-logit - moved))

        q, p = chance(0 * logit), chance(2 * shift * signs)
        other = chance(
            -2 * shift * signs if opposite else 2 * shift * random.choice([-1, 1], len(law))
        )
        grown = []
        for ratios, mine in ((ones, p), (twos, other)):
            up, down = ratios.copy(), ratios.copy()
            up[step % batches] *= mine / q
            down[step % batches] *= (1 - mine) / (1 - q)
            grown.append(np.concatenate([up, down], axis=1))
        law = np.concatenate([law * q, law * (1 - q)])
        ones, twos = grown
    return law, ones.mean(axis=0), twos.mean(axis=0)


@pytest.mark.parametrize(("batches", "tokens"), [(1, 1), (1, 3), (2, 2), (3, 2), (4, 2)])
@pytest.mark.parametrize("shift", [0.1, 0.5])
def test_no_replaced_unit_passes_the_quote(batches, tokens, shift):
    """By brute force: adaptive, the two units in batches of their own coins, or of one."""
    one_batch = allocation_pairs.worst_ratio(Batch(tokens, shift=shift))
    coin = [(allocation_pairs.mean(one_batch, batches, batches), 1)]
    random, tightest = np.random.default_rng(batches), 0.0
    for trial in range(12):
        law, one, two = two_units(batches, tokens, shift, trial % 2 == 0, random)
        for epsilon in np.linspace(0.05, 3 * shift, 4):
            true = float(law @ np.maximum(one - math.exp(epsilon) * two, 0))
            if true > 1e-7:
                quoted = loss_distributions.replaced_epsilon(coin, [], true)
                assert epsilon <= quoted + 1e-9
                tightest = max(tightest, epsilon / quoted)
    assert tightest > 0.5


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 1.2), st.integers(1, 30), st.floats(0.1, 3), st.floats(1e-7, 1e-3))
def test_a_replaced_unit_whose_batch_is_known_costs_what_two_steps_of_gaussians_do(
    mu, rounds, beside, at
):
    """With one batch the two steps are Gaussians of distance mu, and together one of 2 mu."""
    coin = SelfComposed(AllocatedReplaced(1, 1, 1, Gaussian(1 / mu)), rounds)
    pair = [(allocation_pairs.worst_ratio(Batch(1, mu=mu)), rounds)]
    exact = gaussian_epsilon(2 * mu * math.sqrt(rounds), at)
    found = loss_distributions.replaced_epsilon(pair, [], at)
    assert found >= exact * (1 - 1e-6)
    if math.isfinite(found) and exact < 10:
        assert found <= exact * 1.02 + 2e-3
    together, _ = epsilon_alone(Composed((Gaussian(1 / beside), coin)), at)
    assert together >= gaussian_epsilon(math.sqrt(beside**2 + 4 * mu * mu * rounds), at) * (
        1 - 1e-6
    )


def test_the_quote_of_a_replaced_unit_is_less_than_by_holders_inequality():
    for event, part in (
        (AllocatedReplaced(468, 468, 50, AG_NEWS), 0.7),
        (AllocatedReplaced(468, 468, 200, AG_NEWS), 0.54),
        (SelfComposed(AllocatedReplaced(468, 468, 50, AG_NEWS), 341), 0.95),
    ):
        assert epsilon_alone(event, 2.9e-6)[0] < part * renyi_epsilon(event, 2.9e-6)
    assert math.isinf(
        loss_distributions.replaced_epsilon([(allocation_pairs.gaussian_ratio(1.0), 5)], [], 1e-12)
    )
