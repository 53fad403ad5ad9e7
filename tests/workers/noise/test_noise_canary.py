"""A worst-case canary on each released quantity shows no more loss than was paid; at half the noise
it does.

Each test draws many times with the canary and without, and bounds from below the loss that the
counts of one event prove (Clopper-Pearson, both bounds wrong with a chance of 1e-9 together). Where
noise is what it should be, the bound passes the price once in 10^9 runs; with halved noise it does
by ten of its standard deviations.
"""

from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm

from accountant.core.privacy.divergences import gaussian_mu_squared, pure_epsilon
from accountant.core.privacy.events import Exponential, Gaussian, Laplace, SelfComposed
from tests.aggregates import mean_scores
from workers.engine.aggregation import GRID
from workers.noise import meter as metering
from workers.noise.meter import Meter

CHANCE = 1e-9 / 2


def _bounds(with_canary: int, without: int, draws: int) -> tuple[float, float]:
    """Lower bound of the event's chance with the canary, upper bound without."""
    low = beta.ppf(CHANCE, with_canary, draws - with_canary + 1) if with_canary else 0.0
    return float(low), float(beta.isf(CHANCE, without + 1, draws - without))


def _pure_loss(with_canary: np.ndarray, without: np.ndarray) -> float:
    """At least this pure epsilon, from the outcomes (booleans) of one event."""
    low, high = _bounds(int(with_canary.sum()), int(without.sum()), with_canary.size)
    return float(np.log(low / high))


def _gaussian_loss(with_canary: np.ndarray, without: np.ndarray) -> float:
    """At least this mu: Phi^-1(power) - Phi^-1(level) of the test that rejects where the event
    happens.
    """
    low, high = _bounds(int(with_canary.sum()), int(without.sum()), with_canary.size)
    return float(norm.ppf(low) - norm.ppf(high))


@pytest.fixture(params=[1, 2], ids=["as paid", "halved"])
def weakened(request, monkeypatch) -> int:
    """By how much noise is divided on purpose, inside the meter."""
    by = request.param
    gaussian, laplace, draw = metering.gaussian_on_grid, metering.laplace_on_grid, metering.draw
    monkeypatch.setattr(
        metering, "gaussian_on_grid", lambda values, sigma: gaussian(values, sigma / by)
    )
    monkeypatch.setattr(
        metering, "laplace_on_grid", lambda values, scale: laplace(values, scale / by)
    )
    monkeypatch.setattr(metering, "draw", lambda scores, scale: draw(scores, scale * by))
    return by


def _judge(loss: float, price: float, weakened: int) -> None:
    assert loss < price if weakened == 1 else loss > price


@pytest.mark.parametrize("multiplier", [1.0, 4.0])
def test_a_count_with_gaussian_noise(weakened, multiplier):
    """The canary is one record more. Every copy has noise of its own: each is a run of the
    release.
    """
    event, draws = Gaussian(multiplier), 400_000
    outcomes = []
    for count in (101, 100):
        noisy = Meter(event).gaussian(np.full(draws, count, dtype=np.int64), 1, event)
        outcomes.append(noisy > 100)
    _judge(_gaussian_loss(*outcomes), float(gaussian_mu_squared(event)) ** 0.5, weakened)


@pytest.mark.parametrize("multiplier", [2.0, 5.0])
def test_a_count_with_laplace_noise(weakened, multiplier):
    event, draws = Laplace(multiplier), 400_000
    outcomes = []
    for count in (101, 100):
        noisy = Meter(event).laplace(np.full(draws, count, dtype=np.int64), 1, event)
        outcomes.append(noisy > 101)
    _judge(_pure_loss(*outcomes), float(pure_epsilon(event)), weakened)


def _batch(canary: list[float] | None, others: int, vocabulary: int, clip: float) -> np.ndarray:
    """The mean's numerator over a batch of ordinary contexts, with or without the canary's."""
    rows = torch.randn(others, vocabulary, generator=torch.Generator().manual_seed(5)) * 4
    if canary is not None:
        rows = torch.cat([rows, torch.tensor([canary])])
    return mean_scores([rows], clip, vocabulary)


@pytest.mark.slow
def test_a_mean_of_clipped_logits(weakened):
    """Equal logits are all clipped to +c: the longest row there is, GRID * sqrt(vocabulary)."""
    vocabulary, draws, event = 16, 8_000, Gaussian(1.0)
    outcomes = []
    without = _batch(None, 7, vocabulary, 6.0)
    sensitivity = GRID * 4
    for values in (_batch([1.0] * vocabulary, 7, vocabulary, 6.0), without):
        assert np.linalg.norm(values - without) in (0, sensitivity)
        meter = Meter(SelfComposed(event, draws))
        noisy = np.array([meter.gaussian(values, sensitivity, event) for _ in range(draws)])
        along = (noisy - without).sum(axis=1) / 4 / sensitivity
        outcomes.append(along > 0.5)
    _judge(_gaussian_loss(*outcomes), float(gaussian_mu_squared(event)) ** 0.5, weakened)


@pytest.mark.slow
def test_a_token(weakened):
    """The canary pulls one rare token up by c and all others down by c: the largest change of a
    ratio.
    """
    clip, size, vocabulary, draws = 4.0, 8, 3, 12_000
    shift = 0.5
    temperature = Fraction(clip) / size / Fraction(shift)
    scale = Fraction(clip) / (GRID * size * temperature)
    event = Exponential(shift)
    canary = [20.0] + [0.0] * (vocabulary - 1)
    rows = torch.tensor([[0.0, clip / 2, clip / 2]] * 4)  # token 0 starts rare: chance 0.16
    outcomes = []
    for contexts in (torch.cat([rows, torch.tensor([canary])]), rows):
        total = mean_scores([contexts], clip, vocabulary)
        meter = Meter(SelfComposed(event, draws))
        outcomes.append(
            np.array([meter.sample_token(total, scale, event) == 0 for _ in range(draws)])
        )
    _judge(_pure_loss(*outcomes), float(pure_epsilon(event)), weakened)
