"""Definitions that the engine's aggregates are compared with, and sums of pieces."""

from collections.abc import Iterable

import torch

from workers.engine.aggregation import GRID, Mean, Scores, _ends, _middles, interval_costs


def clip_to_grid(logits: torch.Tensor, clip: float) -> torch.Tensor:
    """clip_c(z) = max(-c, z - max z + c) of each row, in integer multiples of c / GRID.

    A row with NaN or +infinity is zero.
    """
    highest = logits.max(dim=1, keepdim=True).values
    clipped = (logits - highest + clip).clamp(-clip, clip).double()
    steps = (clipped * (GRID / clip)).round().clamp(-GRID, GRID)
    return torch.where(torch.isfinite(highest), steps, 0.0).long()


def mean_scores(pieces: Iterable[torch.Tensor], clip: float, vocabulary: int) -> Scores:
    """Sum all contexts' clipped logits: int64 (vocabulary,), in steps of clip / GRID."""
    mean = Mean(clip, vocabulary)
    for logits in pieces:
        mean.add(logits)
    return mean.scores()


def median_interval(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(left end, median, right end) per token, float64 (vocabulary,), of clipped `logits`."""
    left, median, right = _ends(logits.double().sort(dim=0).values[_middles(len(logits))])
    return left / 2, median / 2, right / 2


def median_token_costs(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return the ex-post cost of drawing each token from the median of clipped `logits`."""
    return interval_costs(*median_interval(logits), temperature)
