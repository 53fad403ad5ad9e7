"""Nearest neighbours, votes and k-means among unit vectors, in bounded memory.

The measure is the cosine, and it is computed without rounding. Vectors are normalised and put on a
grid of multiples of 2^-12; then each product of two components is a multiple of 2^-24, and so is
every sum of them, none larger than 1 (Cauchy and Schwarz). float32 holds all of these exactly, so
the order in which a library adds does not matter. Whom a record votes for therefore depends on that
record and the candidates alone: not on which records stand before it, how many there are, or the
machine. Adding or removing a record changes the counts by its own votes and nothing else. The grid
moves a cosine by about 1e-4.

A row of zeros, or one with NaN or an infinity, stands for a text that could not be embedded: it
votes for nobody and is nobody's neighbour.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from workers import interruption

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

#: Steps of the grid in a unit: squares of it are the integers that float32 holds.
GRID = 4096

#: Rows in one product, and the most similarities that are held at a time.
ROWS = 256
HELD = 2**24


def unit(points: npt.ArrayLike) -> Floats:
    """Return rows scaled to length 1, float32 (n, d); zero for one without direction, or NaN."""
    rows = np.ascontiguousarray(points, np.float32)
    factors = _factors(rows, 1.0)
    with np.errstate(invalid="ignore"):  # infinity times 0 is NaN, and zero in the next line
        units: Floats = rows * factors[:, None]
    units[factors == 0] = 0
    return units


def _factors(rows: Floats, length: float) -> Floats:
    """Return the factor that scales each row to `length`; 0 if there is none."""
    with np.errstate(all="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        factors: Floats = (length / norms).astype(np.float32)
        factors[~np.isfinite(norms) | ~np.isfinite(factors)] = 0
    return factors


def _to_grid(points: npt.ArrayLike) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """(rows in grid steps, which rows are usable). Each row's length stays below GRID.

    Rounding d components lengthens a row by at most sqrt(d) / 2 steps, which is left free, with a
    little for the rounding of the norm itself.
    """
    rows = np.ascontiguousarray(points, np.float32)
    factors = _factors(rows, (GRID - np.sqrt(rows.shape[1]) / 2) * (1 - 1e-4))
    usable = factors != 0
    with np.errstate(invalid="ignore"):
        grid: Floats = rows * factors[:, None]
    if not usable.all():
        grid[~usable] = 0
    np.rint(grid, out=grid)
    return grid, usable


def _pieces(points: Floats | Iterable[Floats], rows: int) -> Iterator[Floats]:
    for part in [points] if isinstance(points, np.ndarray) else points:
        yield from (part[first : first + rows] for first in range(0, len(part), rows))


def _nearest(points: Floats | Iterable[Floats], candidates: Floats, k: int) -> Iterator[Integers]:
    """Yield the nearest candidates, (rows, k) a piece of the points; -1 in unusable rows."""
    targets, usable = _to_grid(candidates)
    if not 1 <= k <= usable.sum():
        raise ValueError(f"k is {k}; it must be from 1 to the {usable.sum():,} usable candidates")
    absent = np.flatnonzero(~usable)
    rows, room = _room(targets)
    for piece in _pieces(points, rows):
        interruption.check()
        block, nonzero_rows = _to_grid(piece)
        near = np.matmul(block, targets.T, out=room[: len(block)])
        near[:, absent] = -np.inf
        places = np.empty((len(block), k), np.int64)
        for place in range(k):
            places[:, place] = near.argmax(axis=1)  # the first of equals
            if place + 1 < k:
                near[np.arange(len(block)), places[:, place]] = -np.inf
        places[~nonzero_rows] = -1
        yield places


def _room(targets: Floats) -> tuple[int, Floats]:
    """Return the number of rows compared at a time, and a buffer for their similarities."""
    rows = max(1, min(ROWS, HELD // len(targets)))
    return rows, np.empty((rows, len(targets)), np.float32)


def nearest(points: Floats | Iterable[Floats], candidates: Floats, k: int = 1) -> Integers:
    """Return the `k` most similar candidates of every point, most similar first: int64 (n, k).

    `points`: (n, d), or an iterable of such pieces, read once. `candidates`: (m, d). Of equally
    similar candidates the lower index comes first. A point that can't be embedded has -1 in its
    row. Raises ValueError if there are fewer than `k` usable candidates.
    """
    blocks = list(_nearest(points, candidates, k))
    return np.concatenate(blocks) if blocks else np.empty((0, k), np.int64)


def votes(points: Floats | Iterable[Floats], candidates: Floats, k: int = 1) -> Integers:
    """Return the number of points that have each candidate among their `k` nearest: int64 (m,).

    As `nearest`, without keeping each point's choice: memory does not grow with the points. One
    point changes at most k counts, each by one: L2 sensitivity sqrt(k), and sqrt(2k) if a point is
    replaced.
    """
    counts = np.zeros(len(candidates), np.int64)
    for places in _nearest(points, candidates, k):
        counts += np.bincount(places[places >= 0], minlength=len(counts))
    return counts


#: Candidates that a point of a shared vote gives something at least, where there are as many.
LEAST_DEPTH = 8


def weighted_votes(
    points: Floats, weights: npt.NDArray[np.float64], candidates: Floats, k: int = 1
) -> npt.NDArray[np.float64]:
    """Return votes of weighted points, such as noisy centres that stand for their clusters: float64
    (m,).

    `weights`: (n,), the weight of each point's vote. Once released centres represent the records, a
    round of votes costs the product of centres and candidates, whatever the number of records.
    """
    places = nearest(points, candidates, k)
    voting = places[:, 0] >= 0
    chosen = places[voting].ravel()
    counts = np.bincount(chosen, weights=np.repeat(weights[voting], k), minlength=len(candidates))
    return np.asarray(counts, np.float64)


def shared_votes(
    points: Floats, weights: npt.NDArray[np.float64], candidates: Floats, seats: int
) -> npt.NDArray[np.float64]:
    """Return votes by which `seats` places are shared out among weighted points: float64 (m,).

    A point gives its j-th nearest candidate its weight / (2 j - 1). Where the points' candidates
    differ, the `seats` largest votes are those of Sainte-Laguë's method: each point has places in
    proportion to its weight, for its nearest candidates. A candidate near several points has all
    they give. Points vote deep enough for twice the largest share, and for `seats` candidates in
    all where there are as many.
    """
    most = min(seats, int((candidates != 0).any(axis=1).sum()))
    total = float(weights.sum())
    if total <= 0:
        return np.zeros(len(candidates))
    depth = min(most, max(LEAST_DEPTH, math.ceil(2 * seats * float(weights.max()) / total)))
    while True:
        places = nearest(points, candidates, depth)
        voting = (places[:, 0] >= 0) & (weights > 0)
        chosen = places[voting]  # (points with a vote, depth)
        if depth == most or len(np.unique(chosen)) >= most:
            break
        depth = min(most, 2 * depth)
    shares = weights[voting, None] / (2 * np.arange(depth) + 1)
    return np.bincount(chosen.ravel(), weights=shares.ravel(), minlength=len(candidates)).astype(
        np.float64
    )


def kmeans(points: Floats, k: int, seed: int, rounds: int = 25) -> Floats:
    """`k` centres of public points, unit vectors (k, d) float32, by spherical k-means.

    Starts at random points and stops after `rounds`, or when no point changes its centre. A centre
    that loses all its points restarts at a point farthest from its own. The same points, seed and
    library versions give the same centres. Never for private points: a seed has no privacy. Raises
    ValueError if there are fewer than `k` usable points.
    """
    rows, are_usable = _to_grid(points)
    usable = rows[are_usable]
    if not 1 <= k <= len(usable):
        raise ValueError(f"k is {k}; it must be from 1 to the {len(usable):,} usable points")
    start = np.random.default_rng(seed).choice(len(usable), k, replace=False)
    centres = usable[np.sort(start)]
    before: Integers | None = None
    for _ in range(rounds):
        places, likeness = _assign(usable, centres)
        if before is not None and np.array_equal(places, before):
            break
        before = places
        members = csr_matrix(
            (np.ones(len(places), np.float32), (places, np.arange(len(places)))), (k, len(places))
        )
        centres, have_points = _to_grid(members @ usable)
        lost = np.flatnonzero(~have_points)
        if len(lost):
            centres[lost] = usable[np.argsort(likeness, kind="stable")[: len(lost)]]
    return unit(centres)


def _assign(points: Floats, centres: Floats) -> tuple[Integers, Floats]:
    """Return (nearest centre, similarity) of every point; both are on the grid already."""
    rows, room = _room(centres)
    places, likeness = np.empty(len(points), np.int64), np.empty(len(points), np.float32)
    for first in range(0, len(points), rows):
        interruption.check()
        part = points[first : first + rows]
        near = np.matmul(part, centres.T, out=room[: len(part)])
        places[first : first + rows] = near.argmax(axis=1)
        likeness[first : first + rows] = near.max(axis=1)
    return places, likeness
