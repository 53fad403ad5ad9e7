"""Corpora of benchmarks: the part that stands for private data, and a held-out part to
compare with.

All of them are published corpora; "private" is the part they play. Both parts are balanced over
labels.
"""

import csv
import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support import SHARED
from workers.data.records import Record
from workers.evaluation.transfer import Labelled

PUBLIC = SHARED / "data/dbpedia14/train14k.csv.gz"
EMBEDDING = SHARED / "data/models/model2vec64"
SPLIT_SEED = 0


@dataclass(frozen=True)
class Corpus:
    """`private`: what mechanisms read. `held_out`: real texts that no mechanism sees."""

    name: str
    labels: tuple[str, ...]
    private: Labelled
    held_out: Labelled

    def records(self, grouped: bool = False) -> tuple[Record, ...]:
        """The private part; every record is its own unit. `grouped`: labels are its groups."""
        pairs = enumerate(zip(self.private.texts, self.private.labels, strict=True))
        return tuple(
            Record(f"{self.name}-{n}", None if grouped else label, text, label if grouped else None)
            for n, (text, label) in pairs
        )


def rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _ag_news() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    folder = SHARED / "data/ag_news"
    private = [(row["label_name"], row["text"]) for row in rows(folder / "train10k.csv.gz")]
    joined = "{title} . {description}"
    return private, [
        (row["label_name"], joined.format(**row)) for row in rows(folder / "test.csv.gz")
    ]


def _yelp() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Polarity: one and two stars against four and five; three are left out, as in Yelp
    Polarity.
    """
    named = {"1.0": "Negative", "2.0": "Negative", "4.0": "Positive", "5.0": "Positive"}
    parts = []
    for part in ("dev", "test"):
        found = (
            (row["label2"].split()[-1], row["text"])
            for row in rows(SHARED / f"data/yelp_augpe/{part}.csv.gz")
        )
        parts.append([(named[stars], text) for stars, text in found if stars in named])
    return parts[0], parts[1]


def _imdb() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Halves of the labelled reviews; the base model has read others, without labels."""
    named = {"0": "Negative", "1": "Positive"}
    path = SHARED / "data/imdb/train10k.csv.gz"
    return _halves((named[row["label"]], row["text"]) for row in rows(path))


DBPEDIA_LABELS = ("Athlete", "Company", "Film", "Plant", "Village")
DBPEDIA_OTHERS = ("Album", "Animal", "Artist", "Building", "NaturalPlace")
DBPEDIA_REST = ("EducationalInstitution", "MeanOfTransportation", "OfficeHolder", "WrittenWork")


def _dbpedia5(
    labels: Sequence[str] = DBPEDIA_LABELS,
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Some classes of the public corpus, halved."""
    return _halves((r["label_name"], r["text"]) for r in rows(PUBLIC) if r["label_name"] in labels)


YELP_LABELS = ("Restaurants", "Bars", "Shopping", "Event Planning & Services", "Beauty & Spas")
YELP_PRIVATE = 400


def _yelp5() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Five categories of businesses: of each, so many reviews are private and the rest held out."""
    found: dict[str, list[tuple[str, str]]] = {label: [] for label in YELP_LABELS}
    for part in ("dev", "test"):
        for row in rows(SHARED / f"data/yelp_augpe/{part}.csv.gz"):
            label = row["label1"].removeprefix("Business Category: ")
            if label in found:
                found[label].append((label, row["text"]))
    private = [pair for pairs in found.values() for pair in pairs[:YELP_PRIVATE]]
    return private, [pair for pairs in found.values() for pair in pairs[YELP_PRIVATE:]]


#: Four that a classifier tells apart.
YELP_GROUPS = ("Restaurants 1", "Restaurants 5", "Shopping 5", "Beauty & Spas 5")


def _yelp4() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Groups by category of business and stars."""
    parts = []
    for part in ("test", "dev"):
        found = (
            (f"{row['label1'].split(': ')[1]} {row['label2'].split()[-1][0]}", row["text"])
            for row in rows(SHARED / f"data/yelp_augpe/{part}.csv.gz")
        )
        parts.append([pair for pair in found if pair[0] in YELP_GROUPS])
    return parts[0], parts[1]


def _press5() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Four sections of news, and reviews of films for a fifth."""
    films = ([("Film", text) for _, text in part] for part in _imdb())
    private, rest = (news + reviews for news, reviews in zip(_ag_news(), films, strict=True))
    return private, rest


def _openreview() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Halves of the reviews of accepted and of rejected papers."""
    path = SHARED / "data/openreview/iclr2017_reviews.csv.gz"
    named = {"Accept": "Accepted", "Reject": "Rejected"}
    found = ((row["decision"].split()[0], row["review"]) for row in rows(path))
    return _halves((named[verdict], text) for verdict, text in found if verdict in named)


def _pubmedqa() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Halves of the abstracts that MeSH files under the aged, and of the others."""
    with gzip.open(SHARED / "data/pubmedqa/pqa_labeled.jsonl.gz", "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    named = ("Younger patients", "Aged patients")
    return _halves((named["Aged" in each["mesh"]], " ".join(each["contexts"])) for each in found)


def _halves(
    pairs: Iterable[tuple[str, str]],
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    found = list(pairs)
    random.Random(SPLIT_SEED).shuffle(found)
    return found[: len(found) // 2], found[len(found) // 2 :]


READ = {
    "openreview": _openreview,
    "pubmedqa": _pubmedqa,
    "ag_news": _ag_news,
    "yelp": _yelp,
    "imdb": _imdb,
    "dbpedia": lambda: _dbpedia5(("Company", "Film")),
    "dbpedia5": _dbpedia5,
    "dbpedia5b": lambda: _dbpedia5(DBPEDIA_OTHERS),
    "dbpedia4": lambda: _dbpedia5(DBPEDIA_REST),
    "yelp5": _yelp5,
    "yelp4": _yelp4,
    "press5": _press5,
}


def load(name: str, records: int | None, held_out: int = 1_000) -> Corpus:
    """At most `records` private and `held_out` held-out texts, as many of each label."""
    private, rest = READ[name]()
    labels = tuple(sorted({label for label, _ in private}))
    return Corpus(
        name, labels, balanced(private, labels, records), balanced(rest, labels, held_out)
    )


def balanced(pairs: Sequence[tuple[str, str]], labels: Sequence[str], most: int | None) -> Labelled:
    """As many of each label as the rarest has, at most `most` together, in a random order of fixed
    seed.
    """
    shuffled = random.Random(SPLIT_SEED).sample(pairs, len(pairs))
    by_label = {label: [text for own, text in shuffled if own == label] for label in labels}
    each = min(map(len, by_label.values()))
    each = each if most is None else min(each, most // len(labels))
    turns = [(label, by_label[label][index]) for index in range(each) for label in labels]
    return Labelled([text for _, text in turns], [label for label, _ in turns])


@cache
def embedder() -> Any:
    from workers import models
    from workers.embedding import embedders

    return embedders.load(EMBEDDING, models.digest(EMBEDDING, embedders.FILES))
