"""Tokens are drawn exactly, and only what is paid for is drawn."""

from collections import Counter
from fractions import Fraction
from itertools import chain, repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from accountant.core.errors import MeterExceeded
from accountant.core.privacy.events import (
    Composed,
    Exponential,
    Gaussian,
    Laplace,
    PoissonSampled,
    SelfComposed,
    WorstOf,
    releases,
)
from workers.noise import token_sampler
from workers.noise.meter import Meter

SCALE = Fraction(9, 2**16 * 64) / Fraction(1.5)


def test_frequencies_follow_the_softmax():
    scores = np.array([0, 500_000, 400_000, -(2**22), 500_000], dtype=np.int64)
    expected = np.exp((scores - scores.max()) * float(SCALE))
    expected /= expected.sum()
    draws = 40_000
    counts = np.bincount([token_sampler.draw(scores, SCALE) for _ in range(draws)], minlength=5)
    # The rare token, expected 14 times, has no chi-square law: it is judged alone.
    assert binom.cdf(counts[3], draws, expected[3]) > 1e-9
    assert binom.sf(counts[3] - 1, draws, expected[3]) > 1e-9
    common = np.delete(counts, 3)
    wanted = np.delete(expected, 3)
    assert chisquare(common, wanted / wanted.sum() * common.sum()).pvalue > 1e-9


def test_a_wrong_temperature_would_be_noticed():
    """The statistical test above has the power to tell a scale that is off by five per cent."""
    scores = np.array([0, 500_000, 400_000, 500_000], dtype=np.int64)
    wrong = np.exp((scores - scores.max()) * float(SCALE))
    draws = 40_000
    counts = np.bincount([token_sampler.draw(scores, SCALE * 2) for _ in range(draws)], minlength=4)
    assert chisquare(counts, wrong / wrong.sum() * draws).pvalue < 1e-9


def words(entropy: bytes):
    """An entropy source that gives these bytes and then others, however many are asked for."""
    stream = chain((entropy[i : i + 8] for i in range(0, len(entropy), 8)), repeat(b"\xa5" * 8))
    return lambda _: next(stream)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-(2**23), 2**23), min_size=1, max_size=30),
    st.binary(min_size=64, max_size=64),
    st.floats(0.05, 50),
)
def test_the_exact_path_decides_as_the_fast_one(scores, entropy, temperature):
    scale = Fraction(9, 2**16 * 64) / Fraction(temperature)
    vector = np.array(scores, dtype=np.int64)
    fast = token_sampler.draw(vector, scale, words(entropy))
    bits = int.from_bytes(entropy[:8], "big")
    exact = token_sampler._draw_exactly(vector - vector.max(), scale, bits, words(entropy[8:]))
    assert fast == exact


def test_near_a_boundary_the_exact_path_is_taken(monkeypatch):
    taken = []
    monkeypatch.setattr(token_sampler, "_draw_exactly", lambda *_: taken.append(1) or 0)
    token_sampler.draw(
        np.zeros(2, dtype=np.int64), Fraction(1), lambda _: (2**63).to_bytes(8, "big")
    )
    assert taken


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-(2**23), 2**23), min_size=1, max_size=600),
    st.binary(min_size=64, max_size=64),
    st.floats(0.05, 50),
    st.integers(0, 40),
)
def test_integers_decide_as_the_exact_path(scores, entropy, temperature, spread):
    scale = Fraction(9, 2**16 * 64) / Fraction(temperature)
    vector = np.array(scores, dtype=np.int64)
    below = vector - vector.max()
    bits = int.from_bytes(entropy[:8], "big")
    exact = token_sampler._draw_exactly(below, scale, bits, words(entropy[8:]))
    first, last = token_sampler._candidates(vector, float(scale), bits / 2**64)
    assert first <= exact <= last
    first, last = max(0, first - spread), min(len(scores) - 1, last + spread)
    # None where a boundary lies within the last of 64 bits: then more of them are drawn.
    assert token_sampler._locate_among(below, scale, bits, first, last) in (exact, None)


def test_beside_a_boundary_integers_decide_and_on_it_more_digits():
    """Two equal weights: the boundary is 2^63 of 2^64, and floating point tells neither side of
    it.
    """
    below, scale = np.zeros(2, dtype=np.int64), Fraction(1)
    assert token_sampler._candidates(below, 1.0, 0.5) == (0, 1)
    assert token_sampler._locate_among(below, scale, 2**63 - 2, 0, 1) == 0
    assert token_sampler._locate_among(below, scale, 2**63 + 1, 0, 1) == 1
    assert token_sampler._locate_among(below, scale, 2**63, 0, 1) is None
    assert token_sampler.draw(below, scale, words(b"\x80" + bytes(14) + b"\x01")) == 1


def test_a_large_vocabulary_is_within_its_tolerance():
    """Blocks and padding: every index is found from the middle of its own interval."""
    rng = np.random.default_rng(5)
    scores = rng.integers(-(2**22), 0, 5_000)
    weights = np.exp((scores - scores.max()) * float(SCALE))
    ends = np.cumsum(weights) / weights.sum()
    for index in (0, 1, 255, 256, 257, 2_559, 2_560, 4_998, 4_999):
        middle = ends[index] - weights[index] / weights.sum() / 2
        assert token_sampler._candidates(scores, float(SCALE), float(middle)) == (index, index)


TOKEN = Exponential(0.09375)


def test_the_meter_refuses_before_it_draws(monkeypatch):
    meter = Meter(SelfComposed(TOKEN, 2))
    scores = np.zeros(3, dtype=np.int64)
    for _ in range(2):
        meter.sample_token(scores, SCALE, TOKEN)
    monkeypatch.setattr(
        "workers.noise.meter.draw", lambda *_: pytest.fail("noise was drawn unpaid")
    )
    with pytest.raises(MeterExceeded):
        meter.sample_token(scores, SCALE, TOKEN)
    with pytest.raises(MeterExceeded):
        Meter(SelfComposed(TOKEN, 2)).sample_token(scores, SCALE, Exponential(0.1))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60), st.integers(1, 20))
def test_realized_is_the_worst_part_and_never_more_than_reserved(steps, limit):
    other = WorstOf((Exponential(0.2), SelfComposed(Exponential(0.1), 2)))
    reserved = Composed((SelfComposed(TOKEN, limit), SelfComposed(other, limit), Laplace(3.0)))
    meter = Meter(reserved)
    made: dict[int, Counter] = {part: Counter() for part in range(4)}
    for part, first in steps:
        event = TOKEN if first else other
        if made[part][event] < limit:
            meter.parallel(part).sample_token(np.zeros(2, dtype=np.int64), SCALE, event)
            made[part][event] += 1
        else:
            with pytest.raises(MeterExceeded):
                meter.parallel(part).sample_token(np.zeros(2, dtype=np.int64), SCALE, event)
    realized = releases(meter.realized)
    for event in (TOKEN, other):
        assert realized[event] == max(part[event] for part in made.values())
    assert not realized - releases(reserved)


ZEROS = np.zeros(3, dtype=np.int64)
NOISY = pytest.mark.parametrize(
    ("method", "event"),
    [("gaussian", Gaussian(2.0)), ("laplace", Laplace(2.0))],
    ids=["gaussian", "laplace"],
)


@pytest.fixture
def no_noise(monkeypatch):
    """Replace both kinds of noise by a record of the scales that were asked for."""
    asked = []
    for kind in ("gaussian_on_grid", "laplace_on_grid"):
        monkeypatch.setattr(
            f"workers.noise.meter.{kind}",
            lambda values, scale, kind=kind: asked.append((kind, scale)) or values,
        )
    return asked


@NOISY
def test_noise_is_the_multiplier_times_the_sensitivity(method, event, no_noise):
    meter = Meter(SelfComposed(event, 3))
    getattr(meter, method)(ZEROS, Fraction(7, 3), event)
    getattr(meter.parallel("a"), method)(ZEROS, 0.1, event)
    kind = f"{method}_on_grid"
    assert no_noise == [(kind, Fraction(14, 3)), (kind, 2 * Fraction(0.1))], "exact rationals"
    assert meter.realized == SelfComposed(event, 2)


@NOISY
def test_noise_is_refused_before_it_is_drawn(method, event, no_noise):
    meter = Meter(Composed((SelfComposed(event, 2), Exponential(0.1))))
    add = getattr(meter, method)
    add(ZEROS, 1, event)
    with pytest.raises(MeterExceeded):
        add(ZEROS, 1, type(event)(1.0))  # less noise was not reserved, nor was more
    with pytest.raises(MeterExceeded):
        add(ZEROS, 1, type(event)(4.0))
    with pytest.raises(MeterExceeded):
        add(np.zeros((2, 3), dtype=np.int64), 1, SelfComposed(event, 2))
    add(ZEROS, 1, event)
    with pytest.raises(MeterExceeded):
        add(ZEROS, 1, event)
    with pytest.raises(MeterExceeded):
        getattr(meter.parallel("a"), method)(ZEROS, 1, event)
    assert len(no_noise) == 2
    assert meter.realized == SelfComposed(event, 2)


def test_events_that_are_another_noise_cost_nothing_and_give_none(no_noise):
    both = Composed((Gaussian(1.0), Gaussian(2.0)))
    reserved = Composed(
        (Gaussian(1.0), Gaussian(2.0), Laplace(2.0), TOKEN, WorstOf((Gaussian(1.0),)))
    )
    meter = Meter(reserved)
    for event in (Laplace(2.0), TOKEN, both, Composed(()), WorstOf((Gaussian(1.0),))):
        with pytest.raises(ValueError, match=r"the event|one call"):
            meter.gaussian(ZEROS, 1, event)
    for event in (Gaussian(1.0), TOKEN, PoissonSampled(0.1, Gaussian(1.0))):
        with pytest.raises(ValueError, match="the event"):
            meter.laplace(ZEROS, 1, event)
    assert not no_noise
    assert meter.realized == Composed(())


def test_one_draw_of_records_serves_all_releases_of_a_sampled_event(no_noise):
    layers = SelfComposed(Gaussian(3.0), 4)
    sampled = PoissonSampled(0.25, layers)
    vectors = np.zeros((4, 5), dtype=np.int64)
    meter = Meter(Composed((sampled, layers)))
    for event in (sampled, layers):
        with pytest.raises(ValueError, match="4 rows"):
            meter.parallel("label").gaussian(vectors[:3], 10, event)
        assert meter.parallel("label").gaussian(vectors, 10, event).shape == (4, 5)
        with pytest.raises(MeterExceeded):
            meter.parallel("label").gaussian(vectors, 10, event)
    assert meter.parallel("other").gaussian(vectors, 10, sampled).shape == (4, 5), "side by side"
    assert no_noise == [("gaussian_on_grid", 30)] * 3
    assert releases(meter.realized) == releases(Composed((sampled, layers)))
