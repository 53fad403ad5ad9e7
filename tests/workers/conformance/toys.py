"""The public things of a conformance run: the bundled model, and all else made up here."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.workers.conformance.samples import LABELS, WORDS
from workers.data.public_text import PublicText, constant
from workers.data.terms import TermList
from workers.data.words import words
from workers.embedding.neighbours import Floats, unit
from workers.interface import Artifact, Public
from workers.sample import MODEL_DIR

if TYPE_CHECKING:
    from workers.models import LocalModel

#: Public facts of the corpus, as its registration would find them.
TEXTS = 12
CORPUS_FACTS: Mapping[str, Any] = {"texts": TEXTS, "labels": []}


@dataclass(frozen=True)
class Corpus:
    """A corpus of a dozen short texts, without labels."""

    name: str = "toy"
    label_column: None = None

    def texts(self) -> Iterator[tuple[PublicText, None]]:
        """Every text."""
        room = constant("The room was quiet.")
        return ((room.through(partial(_numbered, n)), None) for n in range(TEXTS))


def _numbered(number: int, text: str) -> str:
    return text.replace("room", f"room number {number}")


class Embedder:
    """Places texts by their hashes; an empty one nowhere."""

    dimensions, context_tokens = 5, 64

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[Floats]:
        """Unit vectors (1, dimensions) float32, one after the other."""
        for text in texts:
            bytes_ = hashlib.sha256(text.encode()).digest()[: self.dimensions]
            row = np.frombuffer(bytes_, np.uint8).astype(np.float32) - 127.5
            yield unit(row[None] if text.strip() else np.zeros((1, self.dimensions), np.float32))


@cache
def model() -> "LocalModel":
    """The bundled model with no token that ends a text, so that every draw that is priced is
    made.
    """
    import torch

    from workers import models

    torch.set_num_threads(1)  # passes are tiny
    return replace(models.load(MODEL_DIR, models.digest(MODEL_DIR)), end_tokens=frozenset())


@cache
def model_facts() -> Mapping[str, Any]:
    """Its public facts."""
    from workers import models

    return models.inspect(MODEL_DIR)


def _terms() -> Artifact:
    """A term list of the words that records are made of, and some more."""
    listed = dict.fromkeys(words(f"{' '.join(WORDS)} no record has these"), 1)
    return Artifact.of_json("terms", "term-list", TermList(listed, TEXTS).to_json())


def _evolution() -> Artifact:
    """Samples of every label that a run may have, and of none: three, of which two survived."""
    texts = ("a quiet room", "cold soup", "the key did not fit")
    made = [{"text": text, "complete": True, "origin": None} for text in texts]
    ended = {"candidates": [0, 1, 2], "noisy_counts": [1, 5, 3], "survivors": [1, 2]}
    every = [{"label": label, "samples": made, "epochs": [ended]} for label in (None, *LABELS)]
    return Artifact.of_json("evolution", "evolution", {"labels": every})


#: What another job may have released, by its kind, where what a toy corpus yields would have
#: nothing to say.
ARTIFACTS: Mapping[str, Callable[[], Artifact]] = {"term-list": _terms, "evolution": _evolution}


def public(kinds: Mapping[str, str]) -> Public:
    """A toy for each field that names a registered thing."""
    makers: Mapping[str, Callable[[], Any]] = {
        "corpus": Corpus,
        "embedding": Embedder,
        "model": model,
        "writer": model,
    }
    made: dict[str, dict[str, Any]] = {kind: {} for kind in makers}
    for field, kind in kinds.items():
        made["model" if kind == "writer" else kind][field] = makers[kind]()
    return Public(made["corpus"], made["embedding"], made["model"])
