"""Distances between two sets of texts: Fréchet distance, lengths, openings, and V-measure of
clusters.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workers.data.words import words
from workers.evaluation.figures import Figure, half_interval


def frechet(
    synthetic: NDArray[np.float32], reference: NDArray[np.float32], *, features: str = ""
) -> Figure:
    """Return Fréchet distance of two Gaussians fitted to features, (n, d) and (m, d) (Heusel et al.
    2017).

    |mu - mu'|^2 + tr(S + S' - 2 (S S')^(1/2)). It falls with more texts: compare equal numbers
    only.
    """
    if min(len(synthetic), len(reference)) < 2:
        raise ValueError("a covariance needs at least two rows")
    value, interval = half_interval(
        lambda one, other: _frechet(synthetic[one], reference[other]),
        (len(synthetic), len(reference)),
    )
    settings = {"features": features, "texts": [len(synthetic), len(reference)]}
    ideal = "0: same mean and covariance"
    return Figure("Fréchet distance", value, settings, ideal, interval=interval)


def _frechet(synthetic: NDArray[np.float32], reference: NDArray[np.float32]) -> float:
    ours, theirs = synthetic.astype(np.float64), reference.astype(np.float64)
    first, second = (np.atleast_2d(np.cov(sample, rowvar=False)) for sample in (ours, theirs))
    # tr (S S')^(1/2) through the symmetric S^(1/2) S' S^(1/2), which has the same eigenvalues.
    values, vectors = np.linalg.eigh(first)
    root = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    shared = np.sqrt(np.clip(np.linalg.eigvalsh(root @ second @ root), 0, None)).sum()
    gap = float(np.sum((ours.mean(axis=0) - theirs.mean(axis=0)) ** 2))
    return max(0.0, gap + float(np.trace(first) + np.trace(second)) - 2 * float(shared))


def lengths(synthetic: Sequence[str], reference: Sequence[str]) -> Figure:
    """Return Wasserstein distance of the two distributions of lengths, in words."""
    from scipy.stats import wasserstein_distance

    ours, theirs = (
        np.array([len(words(text)) for text in texts]) for texts in (synthetic, reference)
    )
    shares = np.linspace(0, 1, 101)
    series = {
        name: (np.quantile(counts, shares).tolist(), shares.tolist())
        for name, counts in (("synthetic", ours), ("reference", theirs))
    }
    details = {"median words, synthetic": float(np.median(ours))}
    details["median words, reference"] = float(np.median(theirs))
    settings = {"unit": "words", "texts": [len(ours), len(theirs)]}
    value, interval = half_interval(
        lambda one, other: float(wasserstein_distance(ours[one], theirs[other])),
        (len(ours), len(theirs)),
    )
    ideal = "0: lengths are distributed alike"
    return Figure("Length distance", value, settings, ideal, details, series, interval)


def openings(synthetic: Sequence[str], reference: Sequence[str]) -> Figure:
    """Return the share of distinct opening 3-grams among equally many texts (000, Figure 3)."""
    count = min(len(synthetic), len(reference))
    steps = sorted({max(1, round(count * share / 20)) for share in range(1, 21)})
    series, began = {}, []
    for name, texts in (("synthetic", synthetic), ("reference", reference)):
        seen = [tuple(words(text, 3)) for text in texts[:count]]
        began.append(seen)
        series[name] = ([float(n) for n in steps], [len(set(seen[:n])) / n for n in steps])
    details = {f"distinct, {name}": y[-1] for name, (_, y) in series.items()}

    def ratio(ours: NDArray[np.int64], theirs: NDArray[np.int64]) -> float:
        one, other = (
            {began[side][row] for row in rows} for side, rows in enumerate((ours, theirs))
        )
        return len(one) / len(other)

    value, interval = half_interval(ratio, (count, count))
    settings = {"words": 3, "texts of each": count, "case": "folded"}
    return Figure(
        "Distinct openings, ratio",
        value,
        settings,
        "1: as varied as the reference",
        details,
        series,
        interval,
    )
