"""dp-kps without a language model: what a classifier learns from its phrase sequences (paper 002,
Table 5).

    python -m benchmarks.kps [--part sketches|methods] [--embedding FOLDER] [--seeds 5]

14,000 DBpedia summaries of 14 topics from the folder of real corpora (EXCHEQUER_SHARED), a fifth of
each topic held out; "private" is the part that the rest plays. Vocabulary: 82,765 English words
without the 200 most frequent. A logistic regression on which phrases a sequence has learns from
1,000 sequences a topic and is tried on the sequences of held-out texts; `real` is one that learned
from the private records' own sequences. Rows are means over seeds, with each seed's figure. Every
release is made by the mechanism under a meter that reserves the price of the row. `--embedding`: a
folder as models of kind embedding have it; without it, word vectors trained on public news
(workers.embedding.phrase_vectors).
"""

import argparse
import gzip
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from accountant.core import mechanisms
from accountant.core.mechanisms.dp_kps import DpKps
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from benchmarks.utility_data import PUBLIC, rows
from tests.support import SHARED
from workers.data.records import Record, Records
from workers.data.terms import TermList
from workers.embedding import embedders
from workers.embedding.neighbours import Floats
from workers.embedding.phrase_vectors import WordVectors, train
from workers.interface import Artifact, Progress, Public, Released
from workers.mechanisms.dp_kps import sequences, sketched
from workers.mechanisms.dp_kps.sketches import Sketched
from workers.noise.meter import Meter

PRICE = mechanisms.get("dp-kps")
STOP_WORDS, HELD_OUT = 200, 5
BASE = {"vocabulary": "JOB", "output": "phrases", "embedding": "E", "sequences_per_label": 1_000}


class Cached:
    """An embedding model that embeds each phrase once."""

    def __init__(self, model: embedders.Embedder) -> None:
        self.model, self.found = model, dict[str, Any]()
        self.dimensions, self.context_tokens = model.dimensions, model.context_tokens

    def embed(self, texts: Any, tokens: int | None = None) -> Iterator[Floats]:
        """As `embedders.Embedder.embed`."""
        asked = list(texts)
        new = [text for text in dict.fromkeys(asked) if text not in self.found]
        self.found |= zip(new, embedders.embed_all(self.model, new, tokens), strict=True)
        yield np.stack([self.found[text] for text in asked])


@dataclass(frozen=True)
class Bench:
    """Records of a split, its held-out texts, the public term list and an embedding model."""

    records: Records
    held_out: Sequence[tuple[str, str]]
    public: Public
    listed: TermList
    labels: tuple[str, ...]
    terms: Terms

    @classmethod
    def of(
        cls, rows_found: Sequence[tuple[str, str]], listed: TermList, model: Cached, seed: int
    ) -> "Bench":
        """`rows_found`: (label, text)."""
        shuffled = list(rows_found)
        random.Random(seed).shuffle(shuffled)
        labels = tuple(sorted({label for label, _ in shuffled}))
        seen, held, kept = dict.fromkeys(labels, 0), [], []
        for label, text in shuffled:
            seen[label] += 1
            (held if seen[label] % HELD_OUT == 0 else kept).append((label, text))
        records = tuple(Record(f"r{n}", label, text) for n, (label, text) in enumerate(kept))
        artifact = Artifact.of_json("terms", "term-list", listed.to_json())
        public = Public(
            embedders={"embedding": model},
            sources={"vocabulary": {"terms": Released(artifact.name, artifact.content)}},
        )
        terms = Terms(delta=1e-6, public_size=len(rows_found), labels=labels)
        return cls(Records(labels, records, b"k" * 32), held, public, listed, labels, terms)

    def release(self, **raw: Any) -> tuple[DpKps, Sketched]:
        """The private steps under the meter of their price."""
        parameters = PRICE.parse(BASE | raw, self.terms)
        meter = Meter(PRICE.price(parameters, self.terms).dp or FREE)
        return parameters, sketched(
            parameters, self.terms, self.records, meter, Progress(0), self.public
        )

    def drawn(
        self, parameters: DpKps, found: Sketched, seed: int, **changes: Any
    ) -> list[tuple[str, list[int]]]:
        """(label, terms) of every sequence."""
        drawing = sequences(parameters.model_copy(update=changes), found, self.public)
        generator = np.random.default_rng(seed)
        made = []
        for place, label in enumerate(self.labels):
            several = drawing.drawn(
                place, parameters.sequences_per_label, parameters.sequence_length, generator
            )
            made += [(label, row) for row in several.tolist()]
        return made

    def own(
        self, texts: Sequence[tuple[str, str]], found: Sketched, most: int
    ) -> list[tuple[str, list[int]]]:
        """(label, the terms that the text begins with)."""
        places = {str(term): place for place, term in enumerate(found.phrases)}
        return [
            (label, [places[term] for term in self.listed.distinct(text, most, 2_000, places)])
            for label, text in texts
        ]

    def real(self, found: Sketched, most: int) -> list[tuple[str, list[int]]]:
        """The private records' own sequences."""
        texts = [(str(record.label), record.text) for record in self.records.records]
        return self.own(texts, found, most)


def features(made: Sequence[tuple[str, list[int]]], width: int) -> csr_matrix:
    """Which phrases each sequence has: (n, width), 1 or 0."""
    own = [sorted(set(terms)) for _, terms in made]
    ends = np.cumsum([0, *map(len, own)])
    return csr_matrix(
        (np.ones(ends[-1]), np.concatenate(own).astype(np.int64), ends), (len(own), width)
    )


def accuracy(
    bench: Bench, found: Sketched, made: Sequence[tuple[str, list[int]]], most: int
) -> float:
    """Of a classifier that learned from `made`, on the sequences of held-out texts."""
    from sklearn.linear_model import LogisticRegression

    tried = bench.own(bench.held_out, found, most)
    width = len(found.phrases)
    classifier = LogisticRegression(max_iter=300)
    classifier.fit(features(made, width), [label for label, _ in made])
    return float(classifier.score(features(tried, width), [label for label, _ in tried]))


# --- parts --------------------------------------------------------------------------------------


@dataclass
class Table:
    """Figures of rows over seeds."""

    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, row: str, figure: float) -> None:
        """One seed's figure."""
        self.figures.setdefault(row, []).append(figure)
        print(f"  {row}: {figure:.3f}", file=sys.stderr, flush=True)

    def show(self) -> None:
        """As Markdown."""
        print("| | mean | each seed |\n|---|---|---|")
        for row, each in self.figures.items():
            print(
                f"| {row} | {np.mean(each):.3f} | {' '.join(f'{figure:.3f}' for figure in each)} |"
            )


SKETCHES: Mapping[str, dict[str, Any]] = {
    "histogram, Laplace": {"sketch": "histogram"},
    "histogram, Gaussian": {"sketch": "histogram", "noise": "gaussian"},
    "fourier, Gaussian": {"sketch": "fourier", "noise": "gaussian"},
    "fourier, Laplace": {"sketch": "fourier"},
}
BANDWIDTHS = (1.0, 0.5, 0.25, 1 / 16)


def of_sketches(bench: Bench, seed: int, table: Table) -> None:
    """ε 1 and 5: every sketch at one bandwidth, and the histogram at several, from one release."""
    for name, raw in SKETCHES.items():
        parameters, found = bench.release(
            vocabulary_epsilon=1.0, kde_epsilon=5.0, bandwidth=0.25, **raw
        )
        if name == "histogram, Laplace":
            table.add("real", accuracy(bench, found, bench.real(found, 10), 10))
            for bandwidth in BANDWIDTHS:
                made = bench.drawn(parameters, found, seed, bandwidth=bandwidth)
                table.add(f"{name}, bandwidth {bandwidth:g}", accuracy(bench, found, made, 10))
            made = bench.drawn(parameters, found, seed, embedding=None)
            table.add(f"{name}, no kernel", accuracy(bench, found, made, 10))
        else:
            table.add(
                f"{name}, bandwidth 0.25",
                accuracy(bench, found, bench.drawn(parameters, found, seed), 10),
            )


def of_methods(bench: Bench, seed: int, table: Table) -> None:
    """Independent against iterative (Table 6), at ε 1 and 10; 300 sequences a label."""
    for method in ("independent", "logarithmic", "linear"):
        for noise in ("laplace", "gaussian"):
            for bandwidth in {"independent": (0.25,), "logarithmic": (0.5, 1.0), "linear": (1.0,)}[
                method
            ]:
                raw = {"vocabulary_epsilon": 1.0, "kde_epsilon": 10.0, "sequences_per_label": 300}
                raw |= {"bandwidth": bandwidth, "method": method, "noise": noise}
                parameters, found = bench.release(**raw)
                made = bench.drawn(parameters, found, seed)
                row = f"{method}, {parameters.sketch}, {noise}, bandwidth {bandwidth:g}"
                table.add(row, accuracy(bench, found, made, 10))


# --- corpora ------------------------------------------------------------------------------------


def dbpedia() -> list[tuple[str, str]]:
    """(topic, text)."""
    return [(row["label_name"], row["text"]) for row in rows(PUBLIC)]


def english() -> TermList:
    """The words of a public frequency list, without the most frequent."""
    with gzip.open(SHARED / "data/vocab/symspell_en_82765.csv.gz", "rt", encoding="utf-8") as file:
        words = [line.split(",")[0] for line in file][1 + STOP_WORDS :]
    return TermList(dict.fromkeys(words, 1), 1)


def news_vectors() -> WordVectors:
    """Word vectors of public news."""
    texts = [row["text"] for row in rows(SHARED / "data/ag_news/train10k.csv.gz")]
    words, vectors = train(texts, 100)
    return WordVectors(words, vectors)


PARTS: Mapping[str, Callable[[Bench, int, Table], None]] = {
    "sketches": of_sketches,
    "methods": of_methods,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    parser.add_argument("--part", choices=PARTS, default="sketches")
    parser.add_argument("--embedding", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    if not PUBLIC.is_file():
        print("the folder of real corpora (EXCHEQUER_SHARED) is not here: nothing to measure")
        return 0
    model: embedders.Embedder = news_vectors()
    if options.embedding is not None:
        model = embedders.load(options.embedding, embedders.inspect(options.embedding)["sha256"])
    listed, found, cached = english(), dbpedia(), Cached(model)
    table = Table()
    for seed in range(options.seeds):
        PARTS[options.part](Bench.of(found, listed, cached, seed), seed, table)
    table.show()
    return 0


if __name__ == "__main__":
    sys.exit(main())
