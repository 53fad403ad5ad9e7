"""The meter of a secret release: counts and centres with their noise, one round at a time, and no
more.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from accountant.core.errors import MeterExceeded
from accountant.core.privacy.blowup import Without
from accountant.core.privacy.events import FREE, Gaussian
from accountant.core.privacy.secrets import SecretRelease
from workers.noise.meter import Meter

PRICED = SecretRelease(3, 0.5, Without.REMOVED, 50.0, 2)
COUNTS, CENTRES = np.array([10, 20]), np.zeros((2, 5), np.int64)
MOVES = [Fraction(7), Fraction(1, 3)]


def take(
    meter: Meter, release: SecretRelease = PRICED, counts=COUNTS, centres=CENTRES, moves=MOVES
):
    return meter.secret(counts, centres, moves, release)


def test_each_round_is_recorded_and_none_is_drawn_beyond_the_reservation(monkeypatch):
    meter = Meter(FREE, secret=PRICED)
    for taken in (1, 2):
        counts, centres = take(meter)
        assert (counts.shape, centres.shape) == (COUNTS.shape, CENTRES.shape)
        assert meter.secret_rounds == taken
    drawn = []
    monkeypatch.setattr("workers.noise.meter.gaussian_on_grid", lambda *each: drawn.append(each))
    with pytest.raises(MeterExceeded, match="round"):
        take(meter)
    assert (drawn, meter.secret_rounds) == ([], 2)


@pytest.mark.parametrize(
    "other",
    [{"sigma": 49.0}, {"records": 2}, {"rate": 0.4}, {"without": Without.REDACTED}],
)
def test_less_noise_or_another_meaning_is_not_what_was_priced(other):
    meter = Meter(FREE, secret=PRICED)
    with pytest.raises(MeterExceeded):
        take(meter, replace(PRICED, **other))
    assert meter.secret_rounds == 0
    take(meter, replace(PRICED, rounds=1))  # one round of the two


def test_a_job_without_a_secret_price_or_shared_by_workers_has_none():
    for meter in (Meter(FREE), Meter(Gaussian(1.0)), Meter(FREE, shared=True, secret=PRICED)):
        with pytest.raises(MeterExceeded):
            take(meter)
        assert meter.secret_rounds == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"counts": np.zeros((2, 2), np.int64)},
        {"centres": np.zeros((3, 5), np.int64)},
        {"centres": np.zeros(2, np.int64)},
        {"moves": MOVES[:1]},
        {"moves": [Fraction(1), Fraction(0)]},
        {"moves": [Fraction(1), Fraction(-1)]},
    ],
)
def test_a_shape_that_is_not_of_the_clusters_costs_nothing(wrong):
    meter = Meter(FREE, secret=PRICED)
    with pytest.raises(ValueError, match=r"cluster|centre"):
        take(meter, **wrong)
    assert meter.secret_rounds == 0


def test_noise_has_the_priced_scale_in_counts_and_the_moves_in_centres():
    many = 4000
    meter = Meter(FREE, secret=PRICED)
    counts, centres = take(
        meter,
        counts=np.full(many, 5),
        centres=np.zeros((many, 2), np.int64),
        moves=[Fraction(7)] * many,
    )
    assert abs(counts.mean() - 5) < 6 * 50 / many**0.5
    assert 0.93 < counts.std() / 50 < 1.07
    assert 0.93 < centres.std() / 350 < 1.07
    assert abs(np.corrcoef(counts, centres[:, 0])[0, 1]) < 0.1
