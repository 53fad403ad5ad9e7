"""Densities of phrases, and sequences drawn from them: free, since they read what was released
only.

    independent    L draws from the densities of single phrases
    iterative      phrase by phrase, each drawn from the densities of the prefix with every phrase
                   after it

"High scoring" in paper 002 (section 2, ii) is a draw here: the best phrase of each step would write
one sequence a thousand times. Noise makes some densities negative; they are clipped at 0 after
summation. No sequence has a phrase twice.
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
#: Densities that are drawn from at a time.
CELLS = 2**22


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
    """`count` different terms of each row, one after the other by its densities, clipped at 0: (n,
    terms) to (n, count).

    `top`: only among so many of the highest, and others as high. Where none above 0 is left, the
    rest tells nothing: each term is as likely, of the `usable` ones where there are.
    """
    likely = np.maximum(densities, 0)
    if top is not None and max(top, count) < likely.shape[1]:
        least = np.partition(likely, -max(top, count), axis=1)[:, -max(top, count), None]
        likely = np.where(likely >= least, likely, 0)
    rest = True if usable is None else usable | ~usable.any(axis=-1, keepdims=True)
    weights = np.where(likely > 0, likely, np.finfo(np.float64).tiny * rest)
    # The largest of log weight + Gumbel noise is a draw by weight, and the next one a draw of the
    # others.
    with np.errstate(divide="ignore"):
        keys = np.log(weights) + random.gumbel(size=weights.shape)
    return np.argsort(-keys, axis=1)[:, :count].astype(np.int64)


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
        """Return terms that sketches tell apart: of Fourier ones, those with a place."""
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
        """`count` sequences of `length` terms of the label at this place, or of all that are known:
        (count, length).
        """
        length = min(length, int(self.known.sum()) or len(self.known))
        if self.sketched.layout.method == "independent":
            rows = max(1, CELLS // len(self.known))
            single = np.repeat(self.single[label][None], min(rows, count), axis=0)
            groups = (single[: count - first] for first in range(0, count, rows))
            return np.concatenate(
                [draw(each, length, random, self.known, self.top) for each in groups]
            )
        places = np.zeros((count, 0), np.int64)
        usable = np.repeat(self.known[None], count, axis=0)
        for place in range(1, length + 1):
            number = next(n for n, most in enumerate(self.sketched.layout.blocks) if most >= place)
            weights = self.sketched.sums[number, label] / self.sketched.layout.steps
            scores = np.where(usable, self.features[number].densities(weights, places), 0)
            places = np.concatenate([places, draw(scores, 1, random, usable, self.top)], axis=1)
            np.put_along_axis(usable, places, False, axis=1)
        return places
