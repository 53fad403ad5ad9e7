"""The portfolio of filters: what adaptive analysts can do to it, and how much of the budget it
keeps.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial
from itertools import product

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import laplace, norm

from accountant.core.errors import InvalidRequest
from accountant.core.ledger.admission import Account, FilterAccount
from accountant.core.ledger.reservations import move, settled
from accountant.core.privacy.composition import gaussian_mu
from accountant.core.privacy.events import (
    Allocated,
    EpsilonDelta,
    Event,
    Exponential,
    Gaussian,
    Laplace,
    PoissonSampled,
    SampledWithoutReplacement,
    SelfComposed,
)
from accountant.core.privacy.filters import Amount, Costs, Kind, granted, portfolio
from accountant.core.privacy.pld_bounds import quoted

GAUSSIAN_SHARES = {
    Kind.RENYI: Fraction(5, 100),
    Kind.GAUSSIAN: Fraction(9, 10),
    Kind.RENYI_LOW: Fraction(2, 100),
    Kind.BASIC: Fraction(3, 100),
}


def account(
    epsilon: object,
    delta: object,
    shares: dict[Kind, Fraction] | None = None,
    order: Fraction | None = None,
) -> Account:
    eps, dlt = granted(epsilon, delta)
    filters = portfolio(eps, dlt, shares, order)
    return Account(eps, dlt, tuple(FilterAccount(each, each.limit(eps, dlt)) for each in filters))


# --- an adversary who sees every release and picks the next -------------------------------------


@dataclass(frozen=True)
class Job:
    """Up to `count` releases of `event`, each a draw from `p` on one dataset and `q` on its
    neighbour.
    """

    event: Event
    count: int
    p: tuple[float, ...]
    q: tuple[float, ...]

    @lru_cache  # noqa: B019 - jobs live as long as a test
    def costs(self, of: Account, count: int) -> dict[Kind, Amount | None]:
        return of.costs(SelfComposed(self.event, count) if count > 1 else self.event)


def cells(cdf_p, cdf_q, edges: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The masses of the cells between `edges` under both."""
    bounds = np.array([-np.inf, *sorted(edges), np.inf])
    return tuple(np.diff(cdf_p(bounds))), tuple(np.diff(cdf_q(bounds)))


def quantised_gaussian(
    multiplier: float, count: int, edges: tuple[float, ...], rate: float = 1.0
) -> Job:
    mu = 1 / multiplier

    def with_unit(x):
        return rate * norm.cdf(x - mu) + (1 - rate) * norm.cdf(x)

    event = Gaussian(multiplier) if rate == 1 else PoissonSampled(rate, Gaussian(multiplier))
    p, q = cells(with_unit, norm.cdf, edges)
    return Job(event, count, p, q)


def quantised_laplace(multiplier: float, count: int, edges: tuple[float, ...]) -> Job:
    p, q = cells(lambda x: laplace.cdf(x - 1 / multiplier), laplace.cdf, edges)
    return Job(Laplace(multiplier), count, p, q)


def softmax_of_two(shift: float, count: int, place: float) -> Job:
    """The extreme pair whose log ratios span 2 * `shift`, one end at `place` * 2 * `shift`."""
    high = max(2 * shift * place, 1e-6)
    low = high - 2 * shift
    q = -math.expm1(low) / (math.exp(high) - math.exp(low)) if low < 0 else 0.0
    return Job(Exponential(shift), count, (q * math.exp(high), (1 - q) * math.exp(low)), (q, 1 - q))


def secret_coin(shift: float, count: int, place: float, batches: int) -> Job:
    """Rounds of one token in each of some batches, in one of which the unit is by a fresh coin."""
    one = softmax_of_two(shift, 1, place)
    p, q = [], []
    for drawn in product((0, 1), repeat=batches):
        under_q = math.prod(one.q[each] for each in drawn)
        q.append(under_q)
        p.append(
            under_q * sum(one.p[each] / one.q[each] for each in drawn if one.q[each]) / batches
        )
    return Job(Allocated(batches, batches, 1, Exponential(shift)), count, tuple(p), tuple(q))


def leaky_response(epsilon: float, delta: float, count: int) -> Job:
    """(epsilon, delta) attained: with probability delta the truth is told."""
    yes = (1 - delta) / (1 + math.exp(-epsilon))
    p, q = (delta, yes, 1 - delta - yes, 0.0), (0.0, 1 - delta - yes, yes, delta)
    return Job(EpsilonDelta(epsilon, delta), count, p, q)


class Adversary:
    """The worst delta at `epsilon` over all adaptive strategies of at most `depth` releases,
    exactly.

    At every point it may start any job that the account admits, go on, or end the job early and get
    the difference back; its gain is sum over outputs of (P - e^epsilon Q)+.
    """

    def __init__(self, epsilon: float, menu: list[Job], swapped: bool):
        self.scale, self.menu, self.swapped, self.paths = math.exp(epsilon), menu, swapped, 0

    def between_jobs(self, of: Account, p: float, q: float, depth: int) -> float:
        best = max(p - self.scale * q, 0.0)
        self.paths += 1
        if depth == 0 or best == p:  # nothing more to learn where Q has nothing
            return best
        for job in self.menu:
            event = SelfComposed(job.event, job.count) if job.count > 1 else job.event
            # the first job may take the account for whole jobs
            costs, whole = of.charge(event, job.costs(START, job.count))
            if whole or of.admitting(costs):
                begun = move(of.with_whole(True) if whole else of, costs, reserved=1)
                best = max(best, self.inside(job, costs, 0, begun, p, q, depth))
        return best

    def inside(
        self, job: Job, reserved: Costs, taken: int, of: Account, p: float, q: float, depth: int
    ):
        best = 0.0
        if taken:
            realized = job.costs(START, taken)
            ended = move(of, reserved, reserved=-1, keep_closed=True)
            ended = move(ended, settled(reserved, realized), spent=1)
            best = self.between_jobs(ended, p, q, depth)
        if taken < job.count and depth:
            first, second = (job.q, job.p) if self.swapped else (job.p, job.q)
            total = sum(
                self.inside(job, reserved, taken + 1, of, p * a, q * b, depth - 1)
                for a, b in zip(first, second, strict=True)
                if a > 0
            )
            best = max(best, total)
        return best


START: Account  # the account whose prices are in use; prices depend on filters, not on balances


def worst_delta(of: Account, epsilon: float, menu: list[Job], depth: int) -> float:
    global START  # noqa: PLW0603
    START = of
    return max(
        Adversary(epsilon, menu, swapped).between_jobs(of, 1.0, 1.0, depth)
        for swapped in (False, True)
    )


@st.composite
def menus(draw, most: int):
    """(epsilon, delta, shares, menu): mechanisms of which two to six or so fit the allowance."""
    epsilon = float(f"{draw(st.floats(0.1, 2)):.3f}")
    delta = float(f"{draw(st.floats(0.01, 0.3)):.3f}")
    split = draw(st.one_of(st.permutations([1, 0, 0, 0]), st.permutations([5, 3, 1, 1])))
    shares = {kind: Fraction(part, sum(split)) for kind, part in zip(Kind, split, strict=True)}
    part = st.floats(0.2, 1.0)
    multiplier = part.map(lambda x: 1 / (x * gaussian_mu(epsilon, delta)))
    pure = part.map(lambda x: x * epsilon)
    edges = st.lists(st.floats(0.3, 3), min_size=1, max_size=2, unique=True).map(tuple)
    count = st.integers(1, 3)
    jobs = st.one_of(
        st.builds(quantised_gaussian, multiplier, count, edges),
        st.builds(
            quantised_gaussian, multiplier.map(lambda m: m / 2), count, edges, st.floats(0.1, 0.9)
        ),
        st.builds(quantised_laplace, pure.map(lambda x: 1 / x), count, edges),
        st.builds(softmax_of_two, pure, count, st.floats(0, 1)),
        st.builds(
            secret_coin, pure.map(lambda x: 2 * x), count, st.floats(0.05, 0.95), st.integers(2, 3)
        ),
        st.builds(leaky_response, pure, st.floats(0.01, 0.3).map(lambda x: x * delta), count),
    )
    return epsilon, delta, shares, draw(st.lists(jobs, min_size=1, max_size=most))


def check_against_adversary(case, depth: int) -> None:
    epsilon, delta, shares, menu = case
    of = account(repr(epsilon), repr(delta), shares)
    assert worst_delta(of, epsilon, menu, depth) <= delta * (1 + 1e-12)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(menus(most=2))
def test_no_adaptive_strategy_passes_the_allowance(case):
    check_against_adversary(case, depth=4)


@pytest.mark.release
@settings(max_examples=20, deadline=None)
@given(menus(most=3))
def test_no_deeper_adaptive_strategy_passes_the_allowance(case):
    check_against_adversary(case, depth=5)


@st.composite
def stated_menus(draw):
    """Releases known by (epsilon, delta) alone, beside others; some as large as what pays them."""
    epsilon = float(f"{draw(st.floats(0.3, 2)):.3f}")
    delta = float(f"{draw(st.floats(0.05, 0.3)):.3f}")
    split = draw(st.sampled_from([(4, 0, 0, 4), (0, 4, 0, 4), (3, 2, 1, 2), (2, 0, 0, 6)]))
    shares = {kind: Fraction(part, 8) for kind, part in zip(Kind, split, strict=True)}
    pot, part = delta * split[3] / 8, st.floats(0.1, 0.9)
    stated = st.builds(
        leaky_response,
        part.map(lambda x: x * epsilon),
        st.floats(0.2, 1).map(lambda x: float(f"{x * pot:.2g}")),
        st.integers(1, 2),
    )
    multiplier = part.map(lambda x: 1 / (x * gaussian_mu(epsilon, delta)))
    other = st.one_of(
        st.builds(quantised_gaussian, multiplier, st.just(1), st.tuples(st.floats(0.3, 3))),
        st.builds(softmax_of_two, part.map(lambda x: x * epsilon), st.just(1), st.floats(0, 1)),
    )
    return epsilon, delta, shares, [draw(stated), draw(other), draw(st.one_of(stated, other))]


@settings(max_examples=12, deadline=None)
@given(stated_menus())
def test_no_strategy_with_stated_deltas_passes_the_allowance(case):
    check_against_adversary(case, depth=3)


@pytest.mark.release
@settings(max_examples=40, deadline=None)
@given(stated_menus())
def test_no_deeper_strategy_with_stated_deltas_passes_the_allowance(case):
    check_against_adversary(case, depth=4)


#: Releases that tell all with a chance that half of what pays for deltas covers, beside Gaussians.
TOLD = [leaky_response(1e-6, 0.1, 1), quantised_gaussian(0.9, 1, (1.7,))]
PLAIN = {Kind.RENYI: Fraction(1, 2), Kind.GAUSSIAN: Fraction(0), Kind.RENYI_LOW: Fraction(0)}


@pytest.mark.parametrize("guarded", [True, False])
def test_without_its_part_of_delta_the_allowance_is_passed(monkeypatch, guarded):
    of = account("1", "0.2", {**PLAIN, Kind.BASIC: Fraction(1, 2)})
    if not guarded:
        monkeypatch.setattr(Account, "_beside_deltas", lambda self, event, costs: costs)
    assert (worst_delta(of, 1.0, TOLD, depth=4) <= 0.2) == guarded


def test_the_adversary_has_teeth():
    """It passes the allowance where the filters allow twice what they should."""
    menu = [quantised_gaussian(1.2, 1, (0.9, 2.4)), quantised_gaussian(2.0, 1, (1.5,))]
    shares = {Kind.RENYI: Fraction(0), Kind.GAUSSIAN: Fraction(1), Kind.RENYI_LOW: Fraction(0)}
    of = account("1", "0.05", {**shares, Kind.BASIC: Fraction(0)})
    sound = worst_delta(of, 1.0, menu, depth=5)
    loose = replace(
        of,
        filters=tuple(
            e._replace(limit=Amount(2 * e.limit.main, e.limit.delta)) for e in of.filters
        ),
    )
    assert sound <= 0.05 < worst_delta(loose, 1.0, menu, depth=5)


# --- static sequences against an independent accountant -----------------------------------------


# losses of randomised response lie on it: dp-accounting rounds them up, not between
GRID = 2.0**-10


def loss_distribution(event: Event, count: int):
    grid = {"value_discretization_interval": GRID}
    match event:
        case Gaussian(multiplier):
            return pld.from_gaussian_mechanism(multiplier / math.sqrt(count), **grid)
        case Laplace(multiplier):
            return pld.from_laplace_mechanism(multiplier, **grid).self_compose(count)
        case PoissonSampled(rate, Gaussian(multiplier)):
            return pld.from_gaussian_mechanism(multiplier, sampling_prob=rate, **grid).self_compose(
                count
            )
        case Exponential(shift):
            response = DifferentialPrivacyParameters(shift, 0)  # randomised response, on the grid
            return pld.from_privacy_parameters(response, **grid).self_compose(count)
    raise AssertionError(event)


static = st.lists(
    st.one_of(
        st.builds(Gaussian, st.floats(3, 60)),
        st.builds(Laplace, st.floats(3, 60)),
        st.integers(10, 300).map(lambda cells: Exponential(cells * GRID)),
        st.builds(PoissonSampled, st.floats(0.01, 0.2), st.builds(Gaussian, st.floats(1, 4))),
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(static, st.sampled_from(["0.8", "3", "6"]), st.randoms(use_true_random=False))
def test_static_sequences_hold_by_an_independent_pld(events, epsilon, random):
    """Everything admitted until the first refusal is (epsilon, delta) by dp-accounting's PLD."""
    of = account(epsilon, "1e-6")
    costs = [of.costs(event) for event in events]
    counts = [0] * len(events)
    for _ in range(3000):
        place = random.randrange(len(events))
        if not of.admitting(costs[place]):
            break
        of = move(of, costs[place], spent=1)
        counts[place] += 1
    parts = [loss_distribution(e, n) for e, n in zip(events, counts, strict=True) if n]
    if not parts:
        return
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    assert total.get_delta_for_epsilon(float(epsilon)) <= 1e-6


# --- how much of the budget is kept -------------------------------------------------------------


def admitted(of: Account, event: Event) -> int:
    """Return the number of identical jobs admitted, one after another."""
    costs, count = of.costs(event), 0
    while of.admitting(costs):
        of = move(of, costs, spent=1)
        count += 1
    return count


@pytest.mark.parametrize("multiplier", [10.0, 20.0, 50.0])
@pytest.mark.parametrize(
    ("shares", "kept"), [(None, 0.9), (GAUSSIAN_SHARES, 0.98)], ids=["default", "gaussian 0.9"]
)
def test_identical_gaussian_jobs(multiplier, shares, kept):
    of = account("3", "1e-6", shares)
    share = float(next(e.filter.share for e in of.filters if e.filter.kind is Kind.GAUSSIAN))
    count = admitted(of, Gaussian(multiplier))
    assert abs(count - gaussian_mu(3, share * 1e-6) ** 2 * multiplier**2) <= 1
    exact = math.floor(gaussian_mu(3, 1e-6) ** 2 * multiplier**2)
    assert count >= math.floor(kept * exact)
    if multiplier >= 20:
        assert count / exact >= kept


#: Jobs of each shape that together cost half of (3, 1e-6) by the tightest accountant: 1, 5 and 50
#: of them.
HALVES = {
    "Gaussian": (Gaussian, (0.3444, 0.154, 0.0487)),
    "rate 0.01": (partial(PoissonSampled, 0.01), (1.433, 1.323, 1.189)),
    "rate 0.1": (partial(PoissonSampled, 0.1), (0.8396, 0.7228, 0.4176)),
    "10 of 1,000": (partial(SampledWithoutReplacement, 10, 1000), (1.431, 1.072, 1.017)),
    "100 samples": (
        lambda one: SelfComposed(PoissonSampled(0.01, one), 100),
        (1.144, 0.8905, 0.4283),
    ),
    "Laplace": (Laplace, (1.501, 0.3003, 0.0508)),
}


@pytest.mark.parametrize("name", HALVES)
def test_jobs_that_cost_half_an_account_together_fit_on_its_filters(name):
    shape, sizes = HALVES[name]
    for count, size in zip((1, 5, 50), sizes, strict=True):
        job = shape(1 / size if shape in (Gaussian, Laplace) else Gaussian(1 / size))
        together = SelfComposed(job, count) if count > 1 else job
        assert quoted(together, 1e-6)[0] >= 1.5
        assert admitted(account("3", "1e-6"), job) >= count


def test_many_small_jobs_on_samples_are_served_by_the_first_order():
    """All of delta in one Rényi filter at the best order for them admits 1,677."""
    job = PoissonSampled(0.01, Gaussian(1.0))
    assert admitted(account("3", "1e-6"), job) == 857


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("allowance", ["1", "3", "10"])
def test_identical_pure_jobs_get_the_count_of_the_best_filter(epsilon, allowance):
    of = account(allowance, "1e-6")
    event = EpsilonDelta(epsilon, 0.0)
    single = [
        e.limit.main // cost.main for e in of.filters if (cost := e.filter.cost(event)) is not None
    ]
    assert len(single) == 4
    assert admitted(of, event) == max(single)


@pytest.mark.parametrize("shift", [1e-3, 0.1, 1.0, 4.0])
def test_no_softmax_pair_is_easier_to_tell_apart_than_its_gaussian(shift):
    """mu = -2 Phi^-1(1 / (1 + e^shift)) bounds pairs of every asymmetry, and the symmetric one
    attains it.
    """
    cost = account("3", "1e-6").costs(Exponential(shift))[Kind.GAUSSIAN]
    mu = -2 * norm.ppf(1 / (1 + math.exp(shift)))
    assert cost.main == pytest.approx(mu**2 * 1e9, abs=1.5)
    for place in np.linspace(0.001, 0.999, 401):
        job = softmax_of_two(shift, 1, place)
        assert norm.ppf(job.p[0]) - norm.ppf(job.q[0]) <= mu * (1 + 1e-9)


# --- the basic filter ---------------------------------------------------------------------------


def basic(of: Account) -> FilterAccount:
    return next(each for each in of.filters if each.filter.kind is Kind.BASIC)


def test_pure_steps_return_and_an_epsilon_delta_price_does_not():
    of = account("3", "1e-6")
    for event, returns in ((Laplace(20.0), True), (Gaussian(20.0), False)):
        whole, part = of.costs(SelfComposed(event, 10)), of.costs(SelfComposed(event, 4))
        charged = settled(whole, part)
        assert charged[Kind.RENYI] == part[Kind.RENYI]
        assert charged[Kind.GAUSSIAN] == part[Kind.GAUSSIAN]
        assert (charged[Kind.BASIC] == part[Kind.BASIC]) is returns
        assert (charged[Kind.BASIC] == whole[Kind.BASIC]) is not returns


def test_without_a_step_the_basic_filter_closes():
    each = replace(basic(account("3", "1e-6")).filter, step_delta=0)
    assert each.cost(Gaussian(10.0)) is None


# --- choices at creation ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "order"),
    [
        ({Kind.RENYI: Fraction(1)}, None),
        (dict.fromkeys(Kind, Fraction(1, 2)), None),
        ({**dict.fromkeys(Kind, Fraction(1, 4)), Kind.BASIC: Fraction(-1, 4)}, None),
        (None, Fraction(1)),
        (None, Fraction(10**13)),
    ],
)
def test_wrong_choices_are_refused(shares, order):
    with pytest.raises(InvalidRequest):
        portfolio(*granted("3", "1e-6"), shares, order)


def test_the_low_order_follows_a_chosen_one():
    filters = portfolio(*granted("3", "1e-6"), None, Fraction(31))
    assert [each.order for each in filters] == [Fraction(31), None, Fraction(79, 4), None]


# --- integers -----------------------------------------------------------------------------------


def test_a_million_smallest_jobs_add_up_exactly():
    of = account("3", "1e-6")
    costs = of.costs(Gaussian(1e8))
    assert [cost.main for cost in costs.values()][:3] == [1, 1, 1]
    total = sum(costs[Kind.GAUSSIAN].main for _ in range(10**6))
    assert total == 10**6
    for _ in range(10**4):
        of = move(of, costs, spent=1)
    for each in of.filters:
        cost = costs[each.filter.kind]
        assert (each.spent.main, each.spent.delta) == (10**4 * cost.main, 10**4 * cost.delta)
