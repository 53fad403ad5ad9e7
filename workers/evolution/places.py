"""Embeddings of records and samples in one space, each text cut at the same public number of
tokens.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from accountant.core.mechanisms.evolution_fields import EvolvingTexts
from workers.data.records import Records
from workers.embedding.embedders import Embedder
from workers.embedding.model_states import OwnEmbedder
from workers.embedding.neighbours import Floats, unit
from workers.interface import Public
from workers.models import LocalModel


@dataclass(frozen=True)
class Space:
    """An embedder, and a public point that is taken from all its vectors: (dimensions,).

    The states of a language model lie in a narrow cone, where all cosines are alike: there the
    point is the mean of public texts. An embedding model made for cosines keeps its origin.
    """

    embedder: Embedder
    tokens: int
    centre: Floats

    def embed(
        self, texts: Iterable[str], check: Callable[[], None] = lambda: None
    ) -> Iterator[Floats]:
        """Yield unit vectors (rows, dimensions) float32 by piece; zeros for unusable texts."""
        for piece in self.embedder.embed(texts, self.tokens):
            check()
            present = (piece != 0).any(axis=1, keepdims=True)
            yield unit(np.where(present, piece - self.centre, 0)) if self.centre.any() else piece

    def all(self, texts: Iterable[str]) -> Floats:
        """Return the vectors of all texts: (n, dimensions)."""
        pieces = list(self.embed(texts))
        return (
            np.concatenate(pieces)
            if pieces
            else np.empty((0, self.embedder.dimensions), np.float32)
        )


def space(
    parameters: EvolvingTexts,
    model: LocalModel,
    public: Public,
    texts: Iterable[str] = (),
    centre: Floats | None = None,
) -> Space:
    """Return the space of a job: that of its embedding model, else of its language model.

    That is centred on the mean of public `texts`, or where an earlier job's was.
    """
    tokens = parameters.record_tokens
    if parameters.embedding is not None:
        embedder = public.embedder("embedding")
        return Space(embedder, tokens, np.zeros(embedder.dimensions, np.float32))
    own_embedder = OwnEmbedder(model)
    if centre is not None:
        return Space(own_embedder, tokens, centre)
    plain = Space(own_embedder, tokens, np.zeros(own_embedder.dimensions, np.float32))
    rows = plain.all(texts)
    return replace(plain, centre=rows.mean(axis=0)) if len(rows) else plain


def of_records(
    space: Space, records: Records, check: Callable[[], None]
) -> dict[str | None, list[Floats]]:
    """Return the vectors of each label's records, computed once and held in memory only: never
    written.

    In their order, in pieces of (rows, dimensions).
    """
    return {
        label: list(
            space.embed((record.text for record in records.records if record.label == label), check)
        )
        for label in records.labels
    }


def of_samples(space: Space, texts: Sequence[str], ahead: Sequence[Sequence[str]] = ()) -> Floats:
    """Return the vectors of candidates (n, dimensions): a text's own, or the mean of its variations
    `ahead`.

    A text none of whose variations can be embedded is in its own place.
    """
    rows = space.all(texts)
    if not ahead:
        return rows
    lengths = [len(batch) for batch in ahead]
    every = space.all(text for batch in ahead for text in batch)
    sums = np.zeros_like(rows)
    np.add.at(sums, np.repeat(np.arange(len(texts)), lengths), every)
    means = unit(sums)
    return np.where((means != 0).any(axis=1, keepdims=True), means, rows)
