"""Sums and medians of clipped logits against their definitions, as integers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.aggregates import clip_to_grid, mean_scores, median_interval, median_token_costs
from workers.engine.aggregation import (
    GRID,
    Interval,
    Median,
    _by_torch,
    _middles,
    grid_costs,
)

CLIPS = st.sampled_from([0.5, 6.0, 9.0, 100.0])
SEEDS = st.integers(0, 2**32)


def drawn(seed: int, contexts: int, vocabulary: int, spoiled: bool = False) -> torch.Tensor:
    """Logits with ties, forbidden tokens and, where `spoiled`, contexts that give no numbers."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn((contexts, vocabulary), generator=generator) * 8
    logits = torch.where(
        torch.rand(logits.shape, generator=generator) < 0.3, logits.round(), logits
    )
    logits[torch.rand(logits.shape, generator=generator) < 0.05] = -torch.inf
    if spoiled:
        logits[0, vocabulary // 2] = torch.nan
        logits[-1, 0] = torch.inf
    return logits


@settings(max_examples=50, deadline=None)
@given(SEEDS, CLIPS)
def test_clipping_follows_equation_1(seed, clip):
    logits = torch.randn((4, 50), generator=torch.Generator().manual_seed(seed)) * 20
    grid = clip_to_grid(logits, clip)
    expected = torch.maximum(
        torch.tensor(-clip), logits - logits.max(dim=1, keepdim=True).values + clip
    )
    assert torch.allclose(grid.double() * clip / GRID, expected.double(), atol=clip / GRID)
    assert grid.abs().max() <= GRID


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_context_that_gives_nan_contributes_zero(bad):
    logits = torch.zeros((2, 5))
    logits[0, 3] = bad
    assert clip_to_grid(logits, 9.0)[0].tolist() == [0] * 5
    logits[1, 2] = -float("inf")  # a forbidden token is clipped like any other
    assert clip_to_grid(logits, 9.0)[1].tolist() == [GRID, GRID, -GRID, GRID, GRID]


def split(logits: torch.Tensor, at: int) -> list[torch.Tensor]:
    return [piece for piece in (logits[:at], logits[at:]) if len(piece)]


@settings(max_examples=60, deadline=None)
@given(SEEDS, CLIPS, st.integers(1, 12), st.sampled_from([7, 1024, 2500]), st.booleans())
def test_the_mean_adds_the_integers_of_every_context(seed, clip, contexts, vocabulary, spoiled):
    logits = drawn(seed, contexts, vocabulary, spoiled)
    total = mean_scores(split(logits, contexts // 3), clip, vocabulary)
    assert total.dtype == np.int64
    assert total.tolist() == clip_to_grid(logits, clip).sum(dim=0).tolist()


def test_the_mean_of_no_context_is_zero():
    assert mean_scores([], 9.0, 4).tolist() == [0] * 4


def defined(logits: torch.Tensor, clip: float) -> list[list[int]]:
    """Twice left end, median and right end, by sorting the integers of every context in full."""
    ordered = clip_to_grid(logits, clip).sort(dim=0).values
    half = len(ordered) // 2
    if len(ordered) % 2 == 0:
        low, high = ordered[half - 1], ordered[half]
        return [(2 * low).tolist(), (low + high).tolist(), (2 * high).tolist()]
    low, middle, high = ordered[half - 1], ordered[half], ordered[half + 1]
    return [(low + middle).tolist(), (2 * middle).tolist(), (middle + high).tolist()]


def as_lists(interval: Interval) -> list[list[int]]:
    return [each.tolist() for each in (interval.left, interval.median, interval.right)]


@settings(max_examples=100, deadline=None)
@given(SEEDS, CLIPS, st.integers(2, 13), st.sampled_from([7, 1024, 2500]), st.booleans())
def test_medians_are_those_of_the_integers_both_middles_averaged(
    seed, clip, contexts, vocabulary, spoiled
):
    logits = drawn(seed, contexts, vocabulary, spoiled)
    median = Median(clip)
    for piece in split(logits, contexts // 3):
        median.add(piece)
    assert as_lists(median.interval()) == defined(logits, clip)


@settings(max_examples=100, deadline=None)
@given(SEEDS, CLIPS, st.integers(2, 13), st.booleans())
def test_columns_are_skipped_only_where_nothing_that_serves_is_above_the_floor(
    seed, clip, contexts, spoiled
):
    """The accelerator's way, on a CPU: the same statistics, although most columns are never
    sorted.
    """
    logits = drawn(seed, contexts, 300, spoiled)
    logits[:, 50:] -= 200  # the usual case: nearly all tokens at -c
    size = len(logits)
    found = _by_torch(split(logits, size // 3), clip, _middles(size)).clamp(-clip, clip).double()
    steps = (found * (GRID / clip)).round().long()
    ordered = clip_to_grid(logits, clip).sort(dim=0).values[_middles(size)]
    assert steps.tolist() == ordered.tolist()


@pytest.mark.parametrize("contexts", range(2, 10))
def test_costs_on_the_grid_are_the_public_functions(contexts):
    clip, logits = 6.0, drawn(3, contexts, 400)
    median = Median(clip)
    median.add(logits)
    interval = median.interval()
    values = clip_to_grid(logits, clip).double() * (clip / GRID)
    expected = median_token_costs(values, 1.5)
    assert torch.allclose(grid_costs(interval, clip, 1.5), expected, rtol=1e-9, atol=1e-12)
    for own, end in zip(as_lists(interval), median_interval(values), strict=True):
        assert torch.tensor(own) * (clip / (2 * GRID)) == pytest.approx(end, rel=1e-12, abs=1e-12)


def test_one_context_has_no_median_interval():
    median = Median(6.0)
    median.add(torch.zeros((1, 5)))
    with pytest.raises(ValueError, match="two contexts"):
        median.interval()
