"""Votes of records for samples against faiss, a round of votes by centres, and k-means: ratios in
one run.

    python -m benchmarks.votes [--records 1900000]

Process CPU time of one thread, random unit vectors of 384 dimensions (a fixed seed). Needs
faiss-cpu and scikit-learn (the `bench` extra) to compare with; the service uses neither.
"""

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from workers.embedding.neighbours import Floats, kmeans, nearest, unit, votes, weighted_votes

WIDTH, SAMPLES, CENTRES = 384, 2_000, 600
MOST_RATIO, MOST_MEMORY, LEAST_GAIN = 1.2, 300, 1_000
POINTS, CLOUDS = 50_000, 300
PIECE = 10_000


def cpu(work: Callable[[], Any], repeat: int = 1) -> tuple[float, Any]:
    """(CPU seconds of one call, its result)."""
    start = time.process_time()
    for _ in range(repeat):
        result = work()
    return (time.process_time() - start) / repeat, result


def random_units(count: int, generator: np.random.Generator) -> Floats:
    """Made in place, so that nothing but the array itself is held."""
    made = np.empty((count, WIDTH), np.float32)
    for first in range(0, count, PIECE):
        part = made[first : first + PIECE]
        generator.standard_normal(out=part, dtype=np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return made


def megabytes(field: str) -> float:
    """VmRSS or VmHWM (its peak) of this process."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def of_votes(records: int) -> bool:
    """Votes of all records, by both; then a round by centres."""
    generator = np.random.default_rng(0)
    points, samples = random_units(records, generator), random_units(SAMPLES, generator)
    index = faiss.IndexFlatIP(WIDTH)
    index.add(samples)
    index.search(points[:PIECE], 1)  # each library's first call sets itself up
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    before = megabytes("VmRSS")
    votes(points[:PIECE], samples)
    own, counts = cpu(lambda: votes(points, samples))
    above = megabytes("VmHWM") - before
    other, (_, chosen) = cpu(lambda: index.search(points, 1))
    five, _ = cpu(lambda: votes(points[: records // 10], samples, 5))
    centres, weights = points[:CENTRES], np.ones(CENTRES)
    round_, _ = cpu(lambda: weighted_votes(centres, weights, samples), repeat=50)
    some = nearest(points[:100_000], samples)[:, 0]
    lost = ((samples[chosen[:100_000, 0]] - samples[some]) * points[: len(some)]).sum(axis=1)
    ratio, gain = own / other, own / round_
    print(f"{records:,} records, {SAMPLES:,} samples, {WIDTH} dimensions, one thread")
    print(f"  votes, k = 1           {own:8.2f} s   {ratio:.2f} of faiss ({other:.2f} s)")
    print(f"  memory above the input {above:8.0f} MB")
    print(
        f"  votes, k = 5           {10 * five:8.2f} s   {10 * five / own:.2f} of k = 1 (a tenth "
        "was run)"
    )
    print(f"  a round by {CENTRES} centres {1e3 * round_:8.2f} ms  {gain:,.0f} times cheaper")
    same = (some == chosen[: len(some), 0]).mean()
    print(
        f"  same nearest as faiss  {100 * same:8.2f} %   cosine lost on the others at most "
        f"{lost.max():.1e}"
    )
    assert counts.sum() == records
    return ratio <= MOST_RATIO and above <= MOST_MEMORY and gain >= LEAST_GAIN


def of_kmeans() -> None:
    """Seconds and the mean cosine to the nearest centre, which is what k-means makes large."""
    generator = np.random.default_rng(1)
    clouds = generator.standard_normal((CLOUDS, WIDTH))
    noise = generator.standard_normal((POINTS, WIDTH))
    points = unit(0.5 * clouds[generator.integers(0, CLOUDS, POINTS)] + noise)

    def by_faiss(k: int) -> Floats:
        made = faiss.Kmeans(
            WIDTH, k, niter=25, spherical=True, seed=1, max_points_per_centroid=POINTS
        )
        made.train(points)
        return np.asarray(made.centroids)

    def by_sklearn(k: int, start: str) -> Floats:
        return (
            KMeans(k, n_init=1, max_iter=25, init=start, random_state=0)
            .fit(points)
            .cluster_centers_
        )

    print(f"k-means of {POINTS:,} points, {WIDTH} dimensions, 25 rounds at most, one thread")
    for k in (60, 1_000):
        ways: dict[str, Callable[[], Floats]] = {
            "ours": lambda k=k: kmeans(points, k, seed=0),
            "faiss": lambda k=k: by_faiss(k),
            "scikit-learn": lambda k=k: by_sklearn(k, "random"),
            "scikit-learn, k-means++": lambda k=k: by_sklearn(k, "k-means++"),
        }
        for name, way in ways.items():
            seconds, centres = cpu(way)
            own = unit(centres)[nearest(points, centres)[:, 0]]
            cosine = float((points * own).sum(axis=1).mean())
            print(f"  k = {k:5,}  {name:24} {seconds:6.2f} s   mean cosine {cosine:.4f}")


def main() -> int:
    """Print both tables; 1 where a bound is passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--records", type=int, default=1_900_000)
    records = parser.parse_args().records
    with threadpool_limits(1):
        kept = of_votes(records)
        of_kmeans()
    print(
        f"bounds: {MOST_RATIO} of faiss, {MOST_MEMORY} MB, {LEAST_GAIN:,} times cheaper: "
        f"{'kept' if kept else 'passed over'}"
    )
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
