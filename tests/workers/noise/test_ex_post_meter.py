"""Draws whose cost depends on the data: exact sums, a number of draws fixed beforehand, never a
refusal.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from accountant.core import mechanisms
from accountant.core.errors import MeterExceeded
from accountant.core.privacy.events import FREE, Exponential, SelfComposed
from accountant.core.privacy.ex_post_curves import CostCurve
from accountant.core.privacy.price import Terms
from workers.noise.meter import Meter

SCALE = Fraction(6, 2**16 * 66)
SCORES = np.array([0, 500_000, 400_000, -(2**22), 500_000], dtype=np.int64)


def test_tokens_are_drawn_from_the_softmax_whatever_they_cost():
    costs = np.array([5.0, 0.0, 1000.0, 0.25, 1e-12])
    draws = 40_000
    meter = Meter(FREE, draws)
    counts = np.bincount(
        [meter.ex_post_token(SCORES, SCALE, costs) for _ in range(draws)], minlength=5
    )
    expected = np.exp((SCORES - SCORES.max()) * float(SCALE))
    expected /= expected.sum()
    # The rare token, expected 18 times, has no chi-square law: it is judged alone.
    assert binom.cdf(counts[3], draws, expected[3]) > 1e-9
    assert binom.sf(counts[3] - 1, draws, expected[3]) > 1e-9
    common, wanted = np.delete(counts, 3), np.delete(expected, 3)
    assert chisquare(common, wanted / wanted.sum() * common.sum()).pvalue > 1e-9
    exact = sum(
        int(count) * Fraction(float(cost)) for count, cost in zip(counts, costs, strict=True)
    )
    assert meter.realized_ex_post == math.ceil(exact * 10**9)
    assert meter.realized == FREE


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([None, "a", "b", "c"]), st.integers(0, 2)),
        min_size=1,
        max_size=40,
    ),
    st.lists(st.floats(0, 1e6, allow_nan=False, allow_subnormal=True), min_size=3, max_size=3),
    st.integers(1, 15),
)
def test_the_sum_is_exact_and_the_part_that_cost_most_counts(steps, values, limit):
    """Scores so far apart that the token is certain: the expected sums are known exactly."""
    costs = np.array(values)
    meter = Meter(FREE, limit)
    sums = dict.fromkeys((None, "a", "b", "c"), Fraction(0))
    made = dict.fromkeys(sums, 0)
    for part, token in steps:
        scores = np.full(3, -(2**40), dtype=np.int64)
        scores[token] = 0
        others = max(made[each] for each in ("a", "b", "c"))
        if made[None] + (others if part is None else made[part]) < limit:
            assert meter.ex_post_token(scores, Fraction(1), costs, part) == token
            sums[part] += Fraction(values[token])
            made[part] += 1
        else:
            with pytest.raises(MeterExceeded):
                meter.ex_post_token(scores, Fraction(1), costs, part)
    exact = sums[None] + max(sums[each] for each in ("a", "b", "c"))
    assert meter.realized_ex_post == math.ceil(exact * 10**9)


def test_nothing_is_refused_or_stopped_because_of_what_it_cost():
    meter = Meter(FREE, 4)
    for _ in range(4):
        meter.parallel("batch").ex_post_token(SCORES, SCALE, np.full(5, 1e300))
    assert meter.realized_ex_post == math.ceil(4 * Fraction(1e300) * 10**9)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.floats(0, 9), min_size=7, max_size=7), min_size=1, max_size=9),
    st.integers(0, 9),
)
def test_how_the_cost_grew_ends_at_what_each_batch_cost(costs, cut):
    """Over all parts of a job, in whatever shares they come."""
    whole = CostCurve.of(costs)
    assert sorted(whole.batches) == pytest.approx(sorted(map(sum, costs)))
    assert whole.most[-1] == pytest.approx(max(map(sum, costs)))
    assert whole.sums[-1] == pytest.approx(sum(map(sum, costs)))
    assert whole.tokens == tuple(range(1, 8))
    assert whole.sums[2] == pytest.approx(sum(sum(each[:3]) for each in costs))
    shares = [CostCurve.of(share) for share in (costs[:cut], costs[cut:])]
    joined = shares[0] or shares[1]
    if all(shares):
        joined = shares[0].joined(shares[1])
    assert joined.sums == pytest.approx(whole.sums)
    assert (joined.most, joined.batches) == (whole.most, whole.batches)
    again = CostCurve.from_json(whole.to_json())
    assert again.batches == pytest.approx(whole.batches, rel=1e-5)
    for plot in again.plots():
        for line in plot["series"].values():
            assert len(line["x"]) == len(line["y"]) >= 2
    per_token = whole.plots()[1]["series"]["mean"]["y"]
    assert per_token == pytest.approx(
        [sum(each) / len(costs) for each in zip(*costs, strict=True)], abs=1e-9
    )


def test_a_long_curve_is_looked_at_in_a_hundred_places():
    curve = CostCurve.of([[0.5] * 12_345])
    assert len(curve.tokens) == len(curve.sums) == 100
    assert curve.tokens[-1] == 12_345
    assert curve.sums[-1] == 12_345 / 2
    assert CostCurve.of([]) is None


def test_the_meter_keeps_how_the_cost_of_each_part_grew():
    meter = Meter(FREE, 2)
    for part, cost in (("a", 1.0), ("b", 2.0), ("a", 0.25), ("b", 4.0)):
        meter.parallel(part).ex_post_token(SCORES, SCALE, np.full(5, cost))
    assert meter.ex_post_curve == CostCurve((1, 2), (3.0, 7.25), (2.0, 6.0), (1.25, 6.0))
    assert Meter(FREE, 2).ex_post_curve is None


@pytest.fixture
def no_draw(monkeypatch):
    monkeypatch.setattr(
        "workers.noise.meter.draw", lambda *_: pytest.fail("a token was drawn unpaid")
    )


@pytest.mark.usefixtures("no_draw")
def test_a_job_without_a_cap_has_no_such_draw():
    token = Exponential(0.1)
    for draws in (0, -1):
        with pytest.raises(MeterExceeded):
            Meter(SelfComposed(token, 10), draws).ex_post_token(SCORES, SCALE, np.zeros(5))


@pytest.mark.usefixtures("no_draw")
@pytest.mark.parametrize(
    "costs",
    [
        np.array([0, 0, math.nan, 0, 0]),
        np.array([0, 0, 0, 0, -1e-300]),
        np.array([0, math.inf, 0, 0, 0]),
        np.zeros(4),
        np.zeros((5, 1)),
        np.zeros(5, dtype=np.float32),
    ],
    ids=["nan", "negative", "infinite", "short", "shape", "float32"],
)
def test_costs_that_are_no_costs_raise_before_drawing(costs):
    meter = Meter(FREE, 1)
    with pytest.raises(ValueError, match="cost"):
        meter.ex_post_token(SCORES, SCALE, costs)
    assert meter.realized_ex_post == 0


def test_the_price_of_the_median_fixes_the_draws_of_a_batch():
    mechanism = mechanisms.get("private-prediction")
    raw = {"aggregation": "median", "ex_post_cap": 2.5, "tokens_per_batch": 7}
    terms = Terms(public_size=100)
    price = mechanism.price(mechanism.parse(raw, terms), terms)
    assert (price.ex_post_draws, price.ex_post_cap, price.dp) == (7, Fraction(5, 2), None)
    mean = mechanism.price(mechanism.parse({}, terms), terms)
    assert (mean.ex_post_draws, mean.ex_post_cap) == (0, None)
