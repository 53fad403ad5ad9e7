"""Clusterings of private embeddings compared (paper 001, Table 2 and Figure 2): sizes and
V-measure.

The truth is k-means on the private embeddings themselves, which is no private method and exists
here alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from sklearn.metrics import adjusted_mutual_info_score, v_measure_score

from accountant.core.privacy.calibration import gaussian_multiplier, laplace_multiplier
from accountant.core.privacy.events import Gaussian, Laplace, SelfComposed
from benchmarks.utility_cells import Made
from workers.embedding.neighbours import GRID, Floats, Integers, kmeans, nearest, unit, votes
from workers.noise.meter import Meter

ROUNDS = 5  # of DP k-means; each pays for sums and counts of all clusters
DELTA_POWER = 1.1


@dataclass(frozen=True)
class Task:
    """`points`: private embeddings. `public`: those of a public corpus. `kept`: centres after
    rebalancing.
    """

    points: Floats
    public: Floats
    clusters: int
    kept: int
    seed: int

    @property
    def delta(self) -> float:
        return len(self.points) ** -DELTA_POWER


def truth(task: Task) -> Floats:
    """Centres of k-means on the private points: no privacy at all."""
    return kmeans(task.points, task.clusters, task.seed)


def public_centres(task: Task) -> Floats:
    return kmeans(task.public, task.clusters, task.seed)


def rebalanced(task: Task, epsilon: float) -> Floats:
    """The public centres with the largest noisy counts: one Laplace histogram, sensitivity 1."""
    centres = public_centres(task)
    event = Laplace(laplace_multiplier(epsilon))
    noisy = Meter(event).laplace(votes(task.points, centres), 1, event)
    return centres[np.sort(np.argsort(-noisy, kind="stable")[: task.kept])]


#: How far one point moves the sums and counts of a round: a row of at most GRID, and GRID for the
#: count.
SENSITIVITY = Fraction(math.sqrt(2) * GRID) * (1 + Fraction(1, 10**9))


def dp_kmeans(task: Task, epsilon: float) -> Floats:
    """DP k-means without public data: noisy sums and counts of every cluster, round by round, from
    random directions (the Lloyd iteration of Su et al. 2016, with exact Gaussian noise).
    """
    width = task.points.shape[1]
    centres = unit(np.random.default_rng(task.seed).standard_normal((task.clusters, width)))
    event = Gaussian(gaussian_multiplier(epsilon, task.delta, ROUNDS))
    meter = Meter(SelfComposed(event, ROUNDS))
    for _ in range(ROUNDS):
        noisy = meter.gaussian(sums(task.points, centres), SENSITIVITY, event)
        # A centre is the direction of its noisy sum; one whose noisy count is below 1 stays where
        # it was.
        alive = noisy[:, -1] >= GRID
        centres[alive] = unit(noisy[alive, :-1].astype(np.float32))
    return centres


def sums(points: Floats, centres: Floats) -> Integers:
    """Sum and number of the points nearest to each centre, in steps of 1 / GRID: int64 (centres, d
    + 1).

    One point is in one row, which it moves by its own vector, no longer than GRID, and by GRID in
    the last place.
    """
    own = nearest(points, centres)[:, 0]
    inside = own >= 0
    made = np.zeros((len(centres), points.shape[1] + 1), np.int64)
    rows = np.trunc(unit(points[inside]) * (GRID - 1)).astype(np.int64)
    np.add.at(made, own[inside], np.hstack([rows, np.full((len(rows), 1), GRID)]))
    return made


def by_chance(task: Task, count: int) -> Integers:
    """Any cluster for any point. V-measure is not corrected for chance, so this is where it
    begins.
    """
    found: Integers = np.random.default_rng(task.seed).integers(0, count, len(task.points))
    return found


def compare(task: Task, epsilons: tuple[float, ...]) -> Made:
    """Figures of every clustering against k-means; k-means from another start is what can be hoped
    for.
    """
    own = assigned(task, truth(task))
    again = replace(task, seed=task.seed + 1_000)
    ways: dict[tuple[str, str], Callable[[], Integers]] = {
        ("k-means", "∞"): lambda: own,
        ("k-means from another start", "∞"): lambda: assigned(task, truth(again)),
        **{
            ("DP k-means", f"{e:g}"): lambda e=e: assigned(task, dp_kmeans(task, e))
            for e in epsilons
        },
        ("public centres", "0"): lambda: assigned(task, public_centres(task)),
        ("public centres, rebalanced", "0.1"): lambda: assigned(task, rebalanced(task, 0.1)),
        ("by chance, as many as k-means", "0"): lambda: by_chance(task, task.clusters),
        ("by chance, as many as rebalanced", "0"): lambda: by_chance(task, task.kept),
    }
    rows = [
        {"method": name, "epsilon": e, **figures(way(), own)} for (name, e), way in ways.items()
    ]
    return {"rows": rows}


def assigned(task: Task, centres: Floats) -> Integers:
    """The centre of every private point; one that could not be embedded is a cluster of its own,
    -1.
    """
    found: Integers = nearest(task.points, centres)[:, 0]
    return found


def figures(clusters: Integers, own: Integers) -> Made:
    """Clusters of at least two and of at least 100 points, the share of the largest, V-measure,
    and mutual information corrected for chance, which V-measure is not (Vinh et al. 2010)."""
    sizes = np.bincount(clusters[clusters >= 0])
    return {
        "clusters": int((sizes > 1).sum()),
        "of_100": int((sizes >= 100).sum()),
        "largest": float(sizes.max() / sizes.sum()),
        "v_measure": float(v_measure_score(own, clusters)),
        "adjusted": float(adjusted_mutual_info_score(own, clusters)),
    }
