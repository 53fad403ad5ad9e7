"""MAUVE: the area under the divergence frontier of two sets of texts (Pillutla et al., NeurIPS
2021).

Features are scaled to length 1, reduced by principal components to 0.9 of their variance, and
quantised together by k-means; with histograms P and Q, R_w = w P + (1 - w) Q, the frontier is

    { (exp(-c KL(Q | R_w)), exp(-c KL(P | R_w))) : 0 < w < 1 },    c = 5

and MAUVE the area under it. It is 1 for equal histograms, and lower the less they overlap. Its
absolute value depends on features, buckets and c: compare only figures with the same settings.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.evaluation.figures import Figure, half_interval

Floats = NDArray[np.float64]

SCALING = 5.0
EXPLAINED_VARIANCE = 0.9
POINTS = 25
KMEANS_STARTS = 5
KMEANS_ITERATIONS = 500
ITEMS_PER_BUCKET = 10


def mauve(
    synthetic: NDArray[np.float32],
    reference: NDArray[np.float32],
    *,
    seed: int = 0,
    features: str = "",
) -> Figure:
    """Return MAUVE of two sets of features, (n, d) and (m, d).

    `seed` drives principal components and k-means: both sets are public. `features` names the model
    that made them. Raises ValueError if either set has fewer than two rows, or their widths differ.
    """
    if min(len(synthetic), len(reference)) < 2 or synthetic.shape[1] != reference.shape[1]:
        raise ValueError("MAUVE compares two sets of at least two rows of the same width")
    buckets = max(2, round(min(len(synthetic), len(reference)) / ITEMS_PER_BUCKET))
    labels = quantise(np.vstack([synthetic, reference]), buckets, seed)
    ours, theirs = labels[: len(synthetic)], labels[len(synthetic) :]

    def curve_of(one: NDArray[np.int64], other: NDArray[np.int64]) -> Floats:
        return frontier(histogram(ours[one], buckets), histogram(theirs[other], buckets))

    sizes = len(ours), len(theirs)
    value, interval = half_interval(lambda *rows: area(curve_of(*rows)), sizes, seed)
    curve = curve_of(*map(np.arange, sizes))
    settings: dict[str, Any] = {
        "features": features,
        "texts": [len(synthetic), len(reference)],
        "buckets": buckets,
        "scaling": SCALING,
        "explained_variance": EXPLAINED_VARIANCE,
        "kmeans_starts": KMEANS_STARTS,
        "kmeans_iterations": KMEANS_ITERATIONS,
        "seed": seed,
    }
    x, y = curve[np.argsort(curve[:, 0], kind="stable")].T
    return Figure(
        "MAUVE",
        value,
        settings,
        "1: the two are distributed alike",
        series={"divergence frontier": (x.tolist(), y.tolist())},
        interval=interval,
    )


def quantise(features: NDArray[np.float32], buckets: int, seed: int) -> NDArray[np.int64]:
    """Return the bucket of each row: unit length, principal components, k-means."""
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import normalize

    scaled = normalize(np.asarray(features, dtype=np.float64))
    components = PCA(svd_solver="full", random_state=seed).fit(scaled)
    dimensions = (
        int(np.argmax(np.cumsum(components.explained_variance_ratio_) >= EXPLAINED_VARIANCE)) + 1
    )
    reduced = components.transform(scaled)[:, :dimensions]
    means = KMeans(
        min(buckets, len(reduced)),
        n_init=KMEANS_STARTS,
        max_iter=KMEANS_ITERATIONS,
        random_state=seed,
    )
    labels: NDArray[np.int64] = means.fit_predict(reduced).astype(np.int64)
    return labels


def histogram(labels: NDArray[np.int64], buckets: int) -> Floats:
    """Return the share of each bucket."""
    counts: Floats = np.bincount(labels, minlength=buckets).astype(np.float64)
    return counts / counts.sum()


def frontier(p: Floats, q: Floats, scaling: float = SCALING, points: int = POINTS) -> Floats:
    """Return the divergence frontier with its two ends, (points + 2, 2)."""
    curve = [[0.0, np.inf]]
    for weight in np.linspace(1e-6, 1 - 1e-6, points):
        mixed = weight * p + (1 - weight) * q
        curve.append([_divergence(q, mixed), _divergence(p, mixed)])
    curve.append([np.inf, 0.0])
    return np.exp(-scaling * np.asarray(curve))


def _divergence(p: Floats, q: Floats) -> float:
    held = p > 0
    return float(np.sum(p[held] * np.log(p[held] / q[held])))


def area(curve: Floats) -> float:
    """Return the area under the frontier, averaged over both orders of its axes."""
    x, y = curve.T
    first, second = np.argsort(x), np.argsort(y)
    return float(np.trapezoid(y[first], x[first]) + np.trapezoid(x[second], y[second])) / 2
