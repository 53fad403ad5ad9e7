"""Aggregation of a batch's logits to one integer score per token: the mean, or the median with its
ends.

Every context is clipped alone, clip_c(z) = max(-c, z - max z + c), and rounded to a multiple of c /
GRID, so that sums are exact and do not depend on their order. A context with NaN or +infinity is
zero everywhere: a record that can't be processed contributes nothing.

Rounding preserves order, so the median of rounded values is the rounded median: the median sorts
the floats unrounded and rounds only what it uses.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

#: Clipped logits are rounded to multiples of clip / GRID and added as integers.
GRID = 2**16

#: Columns that are clipped and added at once: a piece stays in the processor's cache.
COLUMNS = 1024

Scores = NDArray[np.int64]


# --- clipping -----------------------------------------------------------------------------------


def _on_grid(shifted: torch.Tensor, usable: torch.Tensor, clip: float) -> torch.Tensor:
    """Return z - max z + c, clipped and rounded to multiples of c / GRID: whole float64. Zero where
    `usable` is false.
    """
    steps = shifted.clamp(-clip, clip).double().mul_(GRID / clip).round_().clamp_(-GRID, GRID)
    return torch.where(usable, steps, 0.0)


# --- the mean -----------------------------------------------------------------------------------


class Mean:
    """Sum of clipped logits over the contexts of one batch, in multiples of clip / GRID."""

    def __init__(self, clip: float, vocabulary: int) -> None:
        self.clip, self.total = clip, torch.zeros(vocabulary, dtype=torch.float64)

    @torch.inference_mode()
    def add(self, logits: torch.Tensor) -> None:
        """Add contexts: (contexts, vocabulary) float32, in pieces of columns."""
        # Whole numbers below 2^53 are exact in float64 and add in any order.
        if self.total.device != logits.device:
            self.total = self.total.to(logits.device)
        highest = logits.amax(dim=1, keepdim=True)
        usable = torch.isfinite(highest)
        width = COLUMNS if logits.device.type == "cpu" else logits.shape[1]
        for first in range(0, logits.shape[1], width):
            piece = slice(first, first + width)
            steps = _on_grid(logits[:, piece] - highest + self.clip, usable, self.clip)
            self.total[piece] += steps.sum(dim=0)

    def scores(self) -> Scores:
        """Return the sums: int64 (vocabulary,)."""
        summed: Scores = self.total.long().cpu().numpy()
        return summed


# --- the median ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """The median, and the ends of an interval that contains the median of any neighbour.

    Each int64 (vocabulary,), in multiples of clip / (2 * GRID), so that the middle of two grid
    values is a whole number too.
    """

    left: Scores
    median: Scores
    right: Scores


class Median:
    """The logits of one batch's contexts, kept until their medians are requested."""

    def __init__(self, clip: float) -> None:
        self.clip = clip
        self.pieces: list[torch.Tensor] = []

    def add(self, logits: torch.Tensor) -> None:
        """Add contexts: (contexts, vocabulary) float32. Kept, not copied."""
        self.pieces.append(logits)

    def interval(self) -> Interval:
        """Return the medians and their ends. Raises ValueError for fewer than two contexts."""
        size = sum(len(piece) for piece in self.pieces)
        middles = _middles(size)
        on_cpu = all(piece.device.type == "cpu" for piece in self.pieces)
        order = _by_numpy if on_cpu else _by_torch
        with torch.inference_mode():
            ordered = order([piece.float() for piece in self.pieces], self.clip, middles)
            steps = (ordered.clamp(-self.clip, self.clip).double() * (GRID / self.clip)).round()
            steps = steps.clamp(-GRID, GRID).long().cpu()
        return Interval(*(edge.numpy() for edge in _ends(steps)))


def _middles(size: int) -> slice:
    """Return both middles of an even size, or the middle three of an odd one."""
    if size < 2:
        raise ValueError("the median's cost needs at least two contexts: (contexts, vocabulary)")
    return slice(size // 2 - 1, size // 2 + (2 if size % 2 else 1))


def _ends(ordered: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return twice (left end, median, right end), from the middles in order: (2 or 3, vocabulary).

    Even size, middles a, b: [a, b], for one context removed leaves a or b in the middle, and one
    added lies between them or leaves one of them there. Odd size, middles a, b, c: [(a + b) / 2, (b
    + c) / 2], for a neighbour's median is the mean of two middles. The paper's interval for odd
    sizes is [a, c], which also holds and is up to twice as wide; its right median c for even sizes
    is a slip for b (paper 001, Definition 3).
    """
    if len(ordered) == 2:
        low, high = ordered
        return 2 * low, low + high, 2 * high
    low, middle, high = ordered
    return low + middle, 2 * middle, middle + high


def _highest(piece: torch.Tensor) -> torch.Tensor:
    """Return the maximum of each row, NaN where the row contributes zero: (contexts,)."""
    highest = piece.amax(dim=1)
    return torch.where(torch.isfinite(highest), highest, torch.nan)


def _by_numpy(pieces: list[torch.Tensor], clip: float, middles: slice) -> torch.Tensor:
    """Return the wanted order statistics of z - max z + c, (2 or 3, vocabulary) float32, by one
    sort.

    NumPy sorts short contiguous rows with vector instructions, many times faster than torch does,
    so a piece of columns is transposed as it is shifted.
    """
    vocabulary = pieces[0].shape[1]
    size = sum(len(piece) for piece in pieces)
    highest = [_highest(piece) for piece in pieces]
    dead = np.flatnonzero(np.isnan(torch.cat(highest).numpy()))
    found = np.empty((middles.stop - middles.start, vocabulary), dtype=np.float32)
    block = torch.empty((min(COLUMNS, vocabulary), size))
    for first in range(0, vocabulary, COLUMNS):
        columns = slice(first, min(first + COLUMNS, vocabulary))
        here = block[: columns.stop - first]
        row = 0
        for piece, top in zip(pieces, highest, strict=True):
            torch.sub(piece[:, columns].T, top, out=here[:, row : row + len(piece)])
            row += len(piece)
        values = here.numpy()
        if len(dead):
            values[:, dead] = -clip  # which the clip added below makes zero
        values.sort(axis=1)
        found[:, columns] = values[:, middles].T
    return torch.from_numpy(found).add_(clip)


def _by_torch(pieces: list[torch.Tensor], clip: float, middles: slice) -> torch.Tensor:
    """As `_by_numpy`, on an accelerator, in pieces of columns that bound the memory of the sort.

    Only columns in which a needed statistic can be above -clip are sorted: where so few contexts
    are above it that even the highest statistic is -clip, all of them are.
    """
    size = sum(len(piece) for piece in pieces)
    shifted = torch.cat([piece - _highest(piece).unsqueeze(1) + clip for piece in pieces])
    shifted[torch.isnan(shifted).any(dim=1)] = 0
    found = shifted.new_full((middles.stop - middles.start, shifted.shape[1]), -clip)
    live = torch.nonzero((shifted > -clip).sum(dim=0) > size - middles.stop).squeeze(1)
    for columns in live.split(2**25 // size):
        found[:, columns] = shifted[:, columns].T.contiguous().sort(dim=1).values[:, middles].T
    return found


# --- what a draw from the median costs ----------------------------------------------------------


def interval_costs(
    left: torch.Tensor, median: torch.Tensor, right: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Return what each token drawn from the median costs ex post, if a context may be added or
    removed: gamma of paper 001, Definition 4, in float64, rounded up: (vocabulary,).

    |ln P(token) - ln P'(token)| is at most that for every neighbour (paper 001, Theorem 2, with the
    tighter ends of `_ends`).
    """
    left, median, right = (ends.double() / temperature for ends in (left, median, right))
    below = torch.logsumexp(median, 0) - torch.logsumexp(left, 0)
    above = torch.logsumexp(right, 0) - torch.logsumexp(median, 0)
    cost = torch.maximum(right - median + below, median - left + above)
    # Sums of exponentials err by a few units in the last place for each of their terms.
    slack = (
        (len(median) + 8)
        * 2.0**-52
        * (1 + median.abs().max() + left.abs().max() + right.abs().max())
    )
    return cost + slack


def grid_costs(interval: Interval, clip: float, temperature: float) -> torch.Tensor:
    """As `interval_costs`, from the interval of contexts on the grid: float64 (vocabulary,).

    A step of the doubled grid in float64 is off by 2^-53 of itself, which the slack covers many
    times over.
    """
    step = clip / (2 * GRID)
    left, median, right = (
        torch.from_numpy(bound) * step for bound in (interval.left, interval.median, interval.right)
    )
    return interval_costs(left, median, right, temperature)
