"""Public clusters of a registered corpus: what private records are then added to. Nothing here is
private.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from workers.data.corpora import Corpus
from workers.embedding.clustering import SEED, Reservoir
from workers.embedding.neighbours import Floats, Integers, kmeans, nearest
from workers.noise.kept_draws import KeptDraws


def public_texts(corpus: Corpus, labels: Sequence[str | None], most: int) -> list[list[str]]:
    """Return at most `most` texts of the corpus a label: its own where it has some."""
    pools = {label: Reservoir(most) for label in labels}
    everything = Reservoir(most)
    for text, texts in corpus.texts():
        everything.add(text)
        if texts in pools and texts is not None:
            pools[texts].add(text)
    return [pools[label].kept or everything.kept for label in labels]


@dataclass(frozen=True)
class Cells:
    """The public clusters of all labels, label after label: `rows` in all.

    `centres`: means of public texts, none longer than the radius, (rows, dimensions) float64.
    `sizes`: public texts of each, at least 1, int64 (rows,). `owners`: of which label each is, by
    its place, int64 (rows,).
    """

    centres: NDArray[np.float64]
    sizes: Integers
    owners: Integers

    @classmethod
    def of(cls, texts: Sequence[Floats], clusters: int, radius: float) -> "Cells":
        """At most `clusters` for each label, of the vectors of its public texts: (texts,
        dimensions).

        Fewer where fewer texts can be embedded. Vectors are cut to the radius as records are.
        """
        by_label = [_clusters(vectors, clusters, radius) for vectors in texts]
        return cls(
            np.concatenate([centres for centres, _ in by_label]),
            np.concatenate([sizes for _, sizes in by_label]),
            np.repeat(np.arange(len(by_label)), [len(sizes) for _, sizes in by_label]),
        )

    @classmethod
    def kept(cls, kept: KeptDraws, make: Callable[[], "Cells"]) -> "Cells":
        """Return what `make` gives, or gave in an earlier attempt: releases are about these."""

        def arrays() -> str:
            return base64.b64encode(save(vars(make()))).decode()

        return cls(**load(base64.b64decode(kept.step("clusters", arrays))))


def _clusters(
    vectors: Floats, clusters: int, radius: float
) -> tuple[NDArray[np.float64], Integers]:
    """(centres, sizes) of one label; a cluster that is nearest to no text is left out."""
    present = vectors[(vectors != 0).any(axis=1)]
    if not len(present):
        return np.empty((0, vectors.shape[1])), np.empty(0, np.int64)
    starts = kmeans(present, min(clusters, len(present)), SEED)
    places = nearest(present, starts)[:, 0]
    sizes = np.bincount(places, minlength=len(starts))
    sums = np.zeros(starts.shape)
    np.add.at(
        sums, places, present.astype(np.float64) * min(1.0, radius)
    )  # vectors are of length 1
    filled = sizes > 0
    return sums[filled] / sizes[filled, None], sizes[filled]
