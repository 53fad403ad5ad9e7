"""Batches of similar records: public centres, noisy counts, kept centres (paper 001, section 4.1).

    centres = k-means of the embeddings of public texts
    counts  = per label and centre, the number of the label's records nearest to it, with noise
    kept    = the centres of each label's largest noisy counts
    cluster = the nearest kept centre of the record's label

All but the counting and the last step is public, or computed from the released counts. Given these,
a record's cluster depends on that record alone: nearest neighbours are computed without rounding
(neighbours.py). Private texts are embedded twice, in pieces, so that no vector outlives its piece;
memory grows by only two numbers per record.
"""

import heapq
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.data.records import Records, Within
from workers.embedding.embedders import Embedder, embed_all
from workers.embedding.neighbours import Floats, Integers, kmeans, nearest, votes, weighted_votes

#: Public texts per centre that k-means sees at most; more move the centres little.
TEXTS_PER_CENTRE = 100

#: Of public choices, which are the same in every run.
SEED = 0

Check = Callable[[], None]


class Reservoir:
    """A reproducible uniform sample of at most `most` texts from a stream of public texts."""

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, 0
        self.kept: list[str] = []
        self._generator = random.Random(SEED)  # noqa: S311  (public texts)

    def add(self, text: str) -> None:
        self.seen += 1
        if len(self.kept) < self.most:
            self.kept.append(text)
        elif (place := self._generator.randrange(self.seen)) < self.most:
            self.kept[place] = text


def public_centres(texts: Iterable[str], embedder: Embedder, number: int, tokens: int) -> Floats:
    """At most `number` centres of public texts, fewer if fewer can be embedded: unit vectors
    (number, d).

    Each text is cut after `tokens` tokens. Raises ValueError if none can be embedded.
    """
    chosen = Reservoir(TEXTS_PER_CENTRE * number)
    for text in texts:
        chosen.add(text)
    points = embed_all(embedder, chosen.kept, tokens)
    usable = int(points.any(axis=1).sum())
    return kmeans(points, min(number, max(1, usable)), SEED)


def count(pieces_of: Mapping[str | None, Iterable[Floats]], centres: Floats) -> Integers:
    """Return the number of records of each label nearest to each centre: int64 (labels, centres).

    A record is in at most one count, so adding or removing it changes one of them, by 1.
    """
    return np.stack([votes(pieces, centres) for pieces in pieces_of.values()])


@dataclass(frozen=True)
class Clusters:
    """The kept centres with their released counts: all of it is public.

    `centres`: (m, d). `counts`: noisy, int64 (labels, m). `kept`: indices of centres, ascending,
    int64 (labels, k). `batches`: how many of its label's batches each of them has, int64 (labels,
    k): 0 where a label has fewer batches than k, which leaves its smaller counts without one.
    """

    centres: Floats
    counts: Integers
    kept: Integers
    batches: Integers

    def tensors(self) -> dict[str, NDArray[np.float32] | Integers]:
        """Return the arrays of the artifact."""
        return {
            "centres": self.centres,
            "counts": self.counts,
            "kept": self.kept,
            "batches": self.batches,
        }


def keep(centres: Floats, noisy: Integers, clusters: int, batches: Sequence[int]) -> Clusters:
    """Return the `clusters` largest counts of each label, with its number of `batches` divided
    among them.

    A label of fewer batches keeps as many clusters. A centre without a batch adds its count to the
    nearest one that has one, where its records will go. Each of these gets one batch; every further
    batch goes where batches are fullest by these counts.
    """
    largest = np.argsort(-noisy, axis=1, kind="stable")[:, : min(clusters, len(centres))]
    kept = np.sort(largest, axis=1)
    seats = np.zeros_like(kept)
    for row, places, many, shared in zip(noisy, largest, batches, seats, strict=True):
        own = np.sort(places[:many])
        weights = weighted_votes(centres, row.astype(float), centres[own])
        shared[np.isin(np.sort(places), own)] = _share(weights, many)
    return Clusters(centres, noisy, kept, seats)


def _share(weights: NDArray[np.float64], total: int) -> list[int]:
    """Share `total` seats by weight: at least one each, then to the most weight a seat."""
    seats = [1] * len(weights)
    fullest = [(-weight, place) for place, weight in enumerate(weights.tolist())]
    heapq.heapify(fullest)
    for _ in range(total - len(seats)):
        _, place = fullest[0]
        seats[place] += 1
        heapq.heapreplace(fullest, (-weights[place] / seats[place], place))
    return seats


def within(
    pieces_of: Mapping[str | None, Iterable[Floats]], records: Records, clusters: Clusters
) -> Within:
    """Return each record's cluster's first batch and number of batches (records.Records.batches).

    A record without an embedding is in its label's first cluster.
    """
    batches_of: dict[str | None, Iterator[tuple[int, int]]] = {}
    for (label, pieces), kept, seats in zip(
        pieces_of.items(), clusters.kept, clusters.batches, strict=True
    ):
        centres, many = kept[seats > 0], seats[seats > 0]
        cluster_places = np.maximum(nearest(pieces, clusters.centres[centres])[:, 0], 0)
        places = list(zip((np.cumsum(many) - many).tolist(), many.tolist(), strict=True))
        batches_of[label] = map(places.__getitem__, cluster_places.tolist())
    return [
        next(batches_of[record.label]) if record.label in batches_of else (0, 1)
        for record in records.records
    ]


def embedded(
    records: Records, embedder: Embedder, tokens: int, check: Check
) -> dict[str | None, Iterator[Floats]]:
    """Return the embeddings of each label's records, in their order, computed piece by piece on
    demand.

    `check` is called between pieces.
    """

    def of(label: str | None) -> Iterator[Floats]:
        texts = (record.text for record in records.records if record.label == label)
        for piece in embedder.embed(texts, tokens):
            check()
            yield piece

    return {label: of(label) for label in records.labels}
