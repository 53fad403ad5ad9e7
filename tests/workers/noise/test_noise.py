"""The noise is distributed exactly, decided exactly, never seeded and has no scale but the one paid
for.
"""

import os
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from accountant.core.privacy.divergences import renyi
from accountant.core.privacy.events import Laplace
from workers.noise import samplers

pytestmark = pytest.mark.slow

ADD = {"gaussian": samplers.gaussian_on_grid, "laplace": samplers.laplace_on_grid}
LAW = {"gaussian": samplers._NORMAL, "laplace": samplers._LAPLACE}
CONTINUOUS = {"gaussian": stats.norm, "laplace": stats.laplace}
KINDS = pytest.mark.parametrize("kind", ADD)

ROOT = Path(__file__).resolve().parents[3]

#: A correct sampler falls below this p-value in fewer than one of 10^8 runs, the approximations
#: included.
ALARM = 1e-9

scales = st.one_of(
    st.floats(0.01, 2.0**30).map(Fraction),
    st.fractions(Fraction(1, 1000), 10**6, max_denominator=10**9),
)


def _bin_chances(kind: str, scale: float, most: int) -> np.ndarray:
    """P(k) for k = -most .. most, the last on each side with its whole tail."""
    edges = np.arange(0.5, most + 0.5)
    tail = CONTINUOUS[kind].sf(edges / scale)
    upper = tail - np.append(tail[1:], 0.0)
    return np.concatenate([upper[::-1], [1 - 2 * tail[0]], upper])


def _steps_p_value(kind: str, drawn: np.ndarray, scale: float) -> float:
    """Chi-square of whole-number noise, in bins of neighbouring steps that expect 1 % of the draws
    or more.

    A bin that expects few has no chi-square law: two draws where a tenth of one is expected are an
    alarm.
    """
    most = int(-(-CONTINUOUS[kind].isf(50 / drawn.size) * scale // 1)) + 1
    counts = np.bincount(np.clip(drawn, -most, most) + most, minlength=2 * most + 1)
    expected = _bin_chances(kind, scale, most) * drawn.size
    starts, gathered = [0], 0.0
    for step, each in enumerate(expected, start=1):
        gathered += each
        if gathered >= drawn.size / 100:
            starts.append(step)
            gathered = 0.0
    starts.pop()  # the rest joins the last bin
    return float(
        stats.chisquare(np.add.reduceat(counts, starts), np.add.reduceat(expected, starts)).pvalue
    )


# --- the distribution
# ------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("scale", [0.3, 1.0, Fraction(10, 3), 40.7])
def test_steps_have_exactly_their_probabilities(kind, scale):
    drawn = ADD[kind](np.zeros(400_000, dtype=np.int64), scale)
    assert _steps_p_value(kind, drawn, float(scale)) > ALARM


@KINDS
@pytest.mark.parametrize("off", [0.95, 1.05])
def test_a_scale_five_per_cent_off_would_be_noticed(kind, off):
    """Each statistic lies eight of its standard deviations or more beyond the alarm."""
    drawn = ADD[kind](np.zeros(400_000, dtype=np.int64), 40.7 * off)
    assert _steps_p_value(kind, drawn, 40.7) < ALARM
    wide = ADD[kind](np.zeros(400_000, dtype=np.int64), off * 10.0 * 2**16)
    assert stats.kstest(wide / (10.0 * 2**16), CONTINUOUS[kind].cdf).pvalue < ALARM


@KINDS
def test_on_a_fine_grid_noise_is_as_good_as_continuous(kind):
    """At 655,360 steps rounding moves the distribution by less than 1e-6, a thousandth of what KS
    sees.
    """
    drawn = ADD[kind](np.zeros(400_000, dtype=np.int64), 10 * 2**16)
    assert stats.kstest(drawn / (10.0 * 2**16), CONTINUOUS[kind].cdf).pvalue > ALARM


@KINDS
def test_values_of_one_release_get_independent_noise(kind):
    drawn = ADD[kind](np.zeros((200_000, 2), dtype=np.int64), 1000)
    signs = np.sign(drawn)
    table = [[np.sum((signs[:, 0] == a) & (signs[:, 1] == b)) for b in (-1, 1)] for a in (-1, 1)]
    assert stats.chi2_contingency(table).pvalue > ALARM
    large = np.abs(drawn) > 700
    table = [
        [np.sum((large[:, 0] == a) & (large[:, 1] == b)) for b in (False, True)]
        for a in (False, True)
    ]
    assert stats.chi2_contingency(table).pvalue > ALARM


@KINDS
def test_the_exact_path_alone_has_the_same_distribution(kind):
    words = np.frombuffer(os.urandom(8 * 12_000), dtype="<u8")
    steps = [
        samplers._exactly(LAW[kind], Fraction(10, 3), int(word) >> 1, os.urandom) for word in words
    ]
    signs = 1 - 2 * (words & np.uint64(1)).astype(np.int64)
    assert _steps_p_value(kind, np.array(steps) * signs, 10 / 3) > ALARM


# --- the decisions
# ---------------------------------------------------------------------------------


def _entropy(first: bytes, *more: bytes):
    stream = iter([first, *more])
    return lambda count: next(stream, os.urandom(count))


@KINDS
@settings(max_examples=300, deadline=None)
@given(
    bits=st.integers(0, 2**63 - 1),
    negative=st.integers(0, 1),
    scale=scales,
    value=st.integers(-(2**40), 2**40),
)
def test_the_exact_path_decides_as_the_fast_one(kind, bits, negative, scale, value):
    first = (2 * bits + negative).to_bytes(8, "little")
    fast = ADD[kind](np.array([value]), scale, _entropy(first, b"\x5a" * 8, b"\xc3" * 8))
    exact = samplers._exactly(LAW[kind], scale, bits, _entropy(b"\x5a" * 8, b"\xc3" * 8))
    assert fast[0] == value + (-exact if negative else exact)


def _tail(kind: str, x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.erfc(x / mpmath.sqrt(2)) if kind == "gaussian" else mpmath.exp(-x)


@KINDS
@settings(max_examples=300, deadline=None)
@given(
    step=st.integers(0, 30),
    scale=st.fractions(Fraction(5), 10, max_denominator=50),
    away=st.integers(-3, 3),
)
def test_next_to_a_boundary_as_independent_digits_decide(kind, step, scale, away):
    """T is put a few units of its last bit from a boundary, with 63 zeros or ones to follow."""
    with mpmath.workdps(80):
        edge = _tail(kind, mpmath.mpf((2 * step + 1) * scale.denominator) / (2 * scale.numerator))
        bits = min(max(int(mpmath.floor(edge * 2**63)) + away, 0), 2**63 - 1)
        for more in (b"\x00" * 8, b"\xff" * 8):
            t = mpmath.mpf((bits << 64) + int.from_bytes(more, "big")) / mpmath.mpf(2) ** 127
            expected = step if t >= edge else step + 1
            drawn = ADD[kind](
                np.zeros(1, dtype=np.int64), scale, _entropy((2 * bits).to_bytes(8, "little"), more)
            )
            assert drawn[0] == expected


@KINDS
def test_near_a_boundary_and_in_the_far_tail_the_exact_path_is_taken(kind, monkeypatch):
    taken = []
    monkeypatch.setattr(samplers, "_exactly", lambda *_: taken.append(1) or 0)
    half = int(float(_tail(kind, mpmath.mpf(1) / 2)) * 2**63)
    for bits, expected in [(half, 1), (2**45, 2), (0, 3), (half + 2**40, 3)]:
        ADD[kind](np.zeros(1, dtype=np.int64), 1, _entropy((2 * bits).to_bytes(8, "little")))
        assert len(taken) == expected


@KINDS
def test_far_tails_go_on(kind):
    """A T of 127 leading zeros: the quantile is that of 2^-128, give or take."""
    entropy = _entropy(b"\x00" * 8, b"\x00" * 7 + b"\x01", b"\x80" + b"\x00" * 7)
    drawn = ADD[kind](np.zeros(1, dtype=np.int64), 1000, entropy)
    low, high = (CONTINUOUS[kind].isf(2.0 ** -(127 + more)) for more in (0, 1))
    assert 1000 * low - 1 < drawn[0] < 1000 * high + 1


@settings(max_examples=200, deadline=None)
@given(st.fractions(Fraction(1, 10**9), 25), st.integers(20, 400))
@example(
    Fraction(
        2523985175314625636621790991880811984975147, 129316634016935787734920067460583 * 10**9
    ),
    34,
)
def test_the_bounds_of_the_tails_hold_and_are_tight(x, precision):
    with mpmath.workdps(400):
        argument = mpmath.mpf(x.numerator) / x.denominator
        for kind, law in LAW.items():
            low, high = law.tail(x, precision)
            exact = _tail(kind, argument)
            assert mpmath.mpf(low.numerator) / low.denominator <= exact
            assert exact <= mpmath.mpf(high.numerator) / high.denominator
            assert high - low <= Fraction(1, 2**precision)
        below, above = samplers._pi(precision)
        assert below <= mpmath.pi * 2**precision <= above <= below + 2


@KINDS
def test_the_quantiles_are_nearer_than_the_slack_assumes(kind):
    """Measured below 2^-51; 2^-46 is allowed for."""
    generator = np.random.default_rng()
    tails = np.concatenate(
        [
            generator.random(400),
            2.0 ** -generator.uniform(0, 17, 400),
            1 - 2.0 ** -generator.uniform(1, 50, 200),
        ]
    )
    found = LAW[kind].quantile(tails)
    with mpmath.workdps(50):
        for tail, quantile in zip(tails.tolist(), found.tolist(), strict=True):
            exact = -mpmath.log(tail)
            if kind == "gaussian":
                exact = mpmath.mpf(quantile)
                for _ in range(3):  # Newton, from 16 digits to all
                    density = mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-(exact**2) / 2)
                    exact += (_tail(kind, exact) - tail) / density
            assert abs(quantile - exact) < 2.0**-50 * (1 + exact)


# --- arguments, and what noise may depend on
# --------------------------------------------------------


@KINDS
@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=20), scale=scales)
def test_noise_does_not_depend_on_values(kind, values, scale):
    words = os.urandom(8 * len(values))
    vector = np.array(values, dtype=np.int64)
    doubtless = [_entropy(words, *[b"\x5a" * 8] * 40) for _ in range(2)]
    plain = ADD[kind](np.zeros_like(vector), scale, doubtless[0])
    assert np.array_equal(ADD[kind](vector, scale, doubtless[1]) - vector, plain)


@KINDS
def test_shapes_and_extremes(kind):
    assert ADD[kind](np.zeros((2, 0, 3), dtype=np.int64), 1).shape == (2, 0, 3)
    assert ADD[kind](np.zeros((), dtype=np.int64), 1).shape == ()
    assert ADD[kind](np.zeros((3, 2), dtype=np.int64), 5).dtype == np.int64
    ends = np.array([2**63 - 1, -(2**63)] * 50)
    noisy = ADD[kind](ends, 2.0**40)
    assert np.all(np.sign(noisy) == np.sign(ends)), "no sum wraps around"
    assert not np.any(ADD[kind](np.zeros(100, dtype=np.int64), 5e-324))
    far = ADD[kind](np.zeros(1, dtype=np.int64), 2**40, _entropy(b"\x00" * 8, *[b"\x00" * 8] * 3))
    assert 2**43 < far[0] < 2**50


@KINDS
@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf"), 2**40 + 1, Fraction(-1, 3)])
def test_scales_that_are_none_are_refused(kind, scale):
    with pytest.raises(ValueError, match="scale"):
        ADD[kind](np.zeros(2, dtype=np.int64), scale)


@KINDS
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint64, object])
def test_values_are_whole_steps(kind, dtype):
    with pytest.raises(ValueError, match="int64"):
        ADD[kind](np.zeros(2, dtype=dtype), 1)


PROCESS = """
import random, numpy as np
random.seed(7); np.random.seed(7)
from workers.noise.samplers import gaussian_on_grid, laplace_on_grid
zeros = np.zeros(4, dtype=np.int64)
print(gaussian_on_grid(zeros, 2**30).tolist(), laplace_on_grid(zeros, 2**30).tolist())
"""


def test_no_seed_and_no_two_processes_the_same():
    drawn = []
    for _ in range(2):
        random.seed(7)
        np.random.seed(7)
        zeros = np.zeros(4, dtype=np.int64)
        drawn += [samplers.gaussian_on_grid(zeros, 2**30), samplers.laplace_on_grid(zeros, 2**30)]
    assert len({tuple(each.tolist()) for each in drawn}) == 4
    run = [sys.executable, "-c", PROCESS]
    texts = {
        subprocess.run(
            run,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        ).stdout
        for _ in range(2)
    }
    assert len(texts) == 2


def test_a_two_sided_geometric_would_cost_more_than_its_price():
    """Counts get a rounded Laplace: at an integer sensitivity the discrete one is randomised
    response.
    """
    multiplier, order = 4.0, 8.0
    ratio = np.exp(-1 / multiplier)
    steps = np.arange(-400, 402)
    here = (1 - ratio) / (1 + ratio) * ratio ** np.abs(steps)
    there = (1 - ratio) / (1 + ratio) * ratio ** np.abs(steps - 1)
    discrete = np.log(np.sum(here * (here / there) ** (order - 1))) / (order - 1)
    price = float(renyi(Laplace(multiplier), Fraction(order)))
    assert discrete > 1.04 * price
    most = 400
    chances = _bin_chances("laplace", multiplier, most)
    rounded = np.log(np.sum(chances[1:] * (chances[1:] / chances[:-1]) ** (order - 1))) / (
        order - 1
    )
    assert rounded <= price
