"""Densities of phrases, and sequences drawn from them: free, since they read what was released
only.

    independent    L draws from the densities of single phrases
    iterative      phrase by phrase, each drawn from the densities of the prefix with every phrase
                   after it

"High scoring" in paper 002 (section 2, ii) is a draw here: the best phrase of each step would write
one sequence a thousand times. Noise makes some densities negative; they are clipped at 0 after
summation.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workers.embedding.neighbours import Floats
from workers.mechanisms.dp_kps.features import Features
from workers.mechanisms.dp_kps.sketches import Sketched

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Rows of the kernel that are held at a time.
ROWS = 512


def smoothed(weights: Doubles, points: Floats, bandwidth: float) -> Doubles:
    """Return densities at every term, (labels, terms): weights times the kernel exp(-|x - y|^2 /
    bandwidth^2).

    `weights`: (labels, terms). `points`: (terms, d) unit vectors; a term that has none, a row of
    zeros, is like itself only.
    """
    if not points.shape[1]:
        return weights
    present = (points != 0).any(axis=1)
    exact = points[present].astype(np.float64)
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    inner, of_all = weights[:, present], weights.copy()
    densities = np.empty_like(inner)
    for first in range(0, len(exact), ROWS):
        squared = 2 - 2 * (exact[first : first + ROWS] @ exact.T)
        kernel = np.exp(-np.maximum(squared, 0) / bandwidth**2)
        densities[:, first : first + ROWS] = inner @ kernel.T
    of_all[:, present] = densities
    return of_all


def draw(
    densities: Doubles,
    count: int,
    random: np.random.Generator,
    usable: NDArray[np.bool_] | None = None,
    top: int | None = None,
) -> Integers:
    """`count` draws from each row's densities, clipped at 0: (n, terms) to (n, count).

    `top`: only among so many of the highest, and others as high. A row that has none above 0 tells
    nothing: each term is as likely, of the `usable` ones where there are.
    """
    likely = np.maximum(densities, 0)
    if top is not None and top < likely.shape[1]:
        least = np.partition(likely, -top, axis=1)[:, -top, None]
        likely = np.where(likely >= least, likely, 0)
    likely[likely.sum(axis=1) <= 0] = 1 if usable is None or not usable.any() else usable
    bounds = likely.cumsum(axis=1)
    points = random.random((len(bounds), count)) * bounds[:, -1:]
    places = [
        np.searchsorted(row, at, side="right") for row, at in zip(bounds, points, strict=True)
    ]
    return np.minimum(np.stack(places), densities.shape[1] - 1).astype(np.int64)


@dataclass(frozen=True)
class Sequences:
    """Sequences of terms drawn from released sketches.

    `points`: (terms, d) unit vectors of the kernel of histograms; (terms, 0): no kernel.
    `bandwidth`: of it. `top`: phrases that are drawn among, None for all.
    """

    sketched: Sketched
    points: Floats
    bandwidth: float
    top: int | None = None

    @cached_property
    def features(self) -> list[Features]:
        """The features of Fourier sketches."""
        return self.sketched.layout.sketches(self.sketched.points)

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """The terms that sketches can tell apart: for Fourier ones those that the embedding could
        place.
        """
        if self.sketched.layout.sketch == "histogram":
            return np.ones(len(self.sketched.points), bool)
        return np.asarray((self.sketched.points != 0).any(axis=1))

    @cached_property
    def single(self) -> Doubles:
        """Densities of single phrases, as sums over records: (labels, terms). Not clipped."""
        layout = self.sketched.layout
        weights = self.sketched.sums[0] / layout.steps
        if layout.sketch == "histogram":
            return smoothed(weights, self.points, self.bandwidth)
        empty = np.zeros((1, 0), np.int64)
        densities = np.concatenate([self.features[0].densities(row, empty) for row in weights])
        return np.where(self.known, densities, 0)

    def drawn(self, label: int, count: int, length: int, random: np.random.Generator) -> Integers:
        """`count` sequences of `length` terms of the label at this place: (count, length)."""
        if self.sketched.layout.method == "independent":
            places = draw(self.single[label][None], count * length, random, self.known, self.top)
            return places.reshape(count, length)
        places = np.zeros((count, 0), np.int64)
        for place in range(1, length + 1):
            number = next(n for n, most in enumerate(self.sketched.layout.blocks) if most >= place)
            weights = self.sketched.sums[number, label] / self.sketched.layout.steps
            scores = np.where(self.known, self.features[number].densities(weights, places), 0)
            places = np.concatenate([places, draw(scores, 1, random, self.known, self.top)], axis=1)
        return places
