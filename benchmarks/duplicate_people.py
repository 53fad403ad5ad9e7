"""How often strangers' datasets are refused as one, and how often a shared hundredth is missed.

    python -m benchmarks.duplicate_people [--shared FOLDER] [--pairs 100000] [--file FILE.csv:COLUMN
      ...]

Each record of a corpus goes into one of two datasets of strangers by a coin, or into neither,
`pairs` times for each size. They are weighed as data is (accountant.core.text_evidence). Copies of
a text of 100 letters in a corpus are one person's and stay together; `apart` takes them for
strangers'.

`missed`: one in a hundred records of a dataset is in another too. The distribution of the evidence
is exact, by convolution, and simulated. The made-up corpus has what is cleaned out of published
ones: empty answers, stock phrases, and letters that many people send.
"""

import argparse
import csv
import gzip
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from accountant.core.text_evidence import (
    COMMON_COPIES,
    COMMON_RECORDS,
    COMMON_SHARE,
    LETTERS_PER_NAT,
    MOST_WEIGHT,
    threshold,
    weight,
)
from workers.data.fingerprints import distinct_letters, normalised

CORPORA = {
    "AG News": ("ag_news/train10k.csv.gz", "text"),
    "IMDb": ("imdb/unsup15k.csv.gz", "text"),
    "Yelp": ("yelp_augpe/*.csv.gz", "text"),
    "DBpedia": ("dbpedia14/train14k.csv.gz", "text"),
    "OpenReview": ("openreview/iclr2017_reviews.csv.gz", "review"),
    "PubMedQA": ("pubmedqa/pqa_labeled.jsonl.gz", "contexts"),
    "PubMedQA questions": ("pubmedqa/pqa_labeled.jsonl.gz", "question"),
}
#: Records of each of two datasets of strangers; `math.inf`: half of the corpus.
SIZES = (100, 300, 1_000, 3_000, math.inf)
#: Letters from which equal texts are copies of one.
COPY = 100
STOCK = (
    "n/a",
    "",
    "Great!!",
    "none",
    "thank you",
    "nothing to add",
    "ok",
    "very good",
    "-",
    "No complaints.",
)
LETTER = (
    "This message and its attachments are confidential and meant for the addressee alone. If you "
    "received it "
    "by mistake, please tell the sender and delete it. Form {} of our office, as of this year."
)
TRIES, AT_ONCE = 2_000_000, 500


def read(shared: Path, pattern: str, column: str) -> list[str]:
    return [text for path in sorted(shared.glob(pattern)) for text in texts(path, column)]


def texts(path: Path, column: str) -> Iterator[str]:
    csv.field_size_limit(2**24)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as lines:
        rows = map(json.loads, lines) if ".jsonl" in path.name else csv.DictReader(lines)
        for row in rows:
            yield row[column] if isinstance(row[column], str) else json.dumps(row[column])


def made_up(own: list[str], draw: random.Random) -> list[str]:
    """Records of which a fifth are stock phrases, and a twentieth one of five letters of a hundred
    people.
    """
    forms = [LETTER.format(number) for number in range(5)]
    return [
        draw.choice(STOCK) if chance < 0.2 else draw.choice(forms) if chance < 0.25 else text
        for text, chance in ((text, draw.random()) for text in own)
    ]


class Corpus:
    """Records by the number of their text, and the weights of the texts."""

    def __init__(self, records: list[str]) -> None:
        contents = [normalised(record) for record in records]
        numbers: dict[str, int] = {}
        self.records = np.array([numbers.setdefault(content, len(numbers)) for content in contents])
        self.weights = np.array([weight(distinct_letters(content)) for content in numbers])
        self.letters = np.array([len(content) for content in numbers])

    def repeated(self) -> dict[int, int]:
        """How many texts of at least so many letters are several records."""
        several = np.bincount(self.records, minlength=len(self.weights)) > 1
        return {
            least: int((several & (self.letters >= least)).sum())
            for least in (15, 20, 25, 30, 40, COPY)
        }

    def size(self, asked: float) -> int:
        return int(min(asked, len(self.records) // 2))

    def weighed(self, size: int) -> int:
        """About how many texts of so many records are weighed."""
        return round(size * float((self.weights[self.records] > 0).mean()))

    def refused(self, size: int, pairs: int, generator: np.random.Generator, apart: bool) -> int:
        """How many of so many random pairs of disjoint datasets of about this size are refused."""
        copies = np.bincount(self.records, minlength=len(self.weights))
        repeated = np.flatnonzero((copies > 1) & (self.weights > 0))
        if not len(repeated):
            return 0
        starts = np.concatenate([[0], np.cumsum(copies[repeated])[:-1]])
        together = np.repeat(~apart & (self.letters[repeated] >= COPY), copies[repeated])
        firsts = np.repeat(starts, copies[repeated])
        enough = threshold(self.weighed(size), self.weighed(size))
        rate, refused = size / len(self.records), 0
        for done in range(0, pairs, AT_ONCE):
            coins = generator.random((min(AT_ONCE, pairs - done), int(copies[repeated].sum())))
            coins = np.where(together, coins[:, firsts], coins)
            new = np.add.reduceat(coins < rate, starts, axis=1, dtype=int)
            old = np.add.reduceat((coins >= rate) & (coins < 2 * rate), starts, axis=1, dtype=int)
            common = max(COMMON_RECORDS, COMMON_SHARE * size)
            both = (new > 0) & (new <= common) & (old > 0) & (old <= COMMON_COPIES)
            refused += int((both @ self.weights[repeated] >= enough).sum())
        return refused

    def missed(self, size: int, generator: np.random.Generator) -> tuple[float, float, float]:
        """(chance that a shared hundredth is missed, the same simulated, the threshold)."""
        copies = np.bincount(self.records, minlength=len(self.weights))
        counted = np.where(copies <= COMMON_COPIES, self.weights, 0)[self.records]
        enough = threshold(self.weighed(size), self.weighed(size))
        steps = np.round(counted * LETTERS_PER_NAT).astype(int)
        one = np.bincount(steps, minlength=int(MOST_WEIGHT * LETTERS_PER_NAT) + 1) / len(steps)
        shared = math.ceil(size / 100)
        total = np.ones(1)
        for _ in range(shared):
            total = np.convolve(total, one)[: math.ceil(enough * LETTERS_PER_NAT)]
        drawn = generator.choice(counted, (TRIES // shared, shared))
        return float(total.sum()), float((drawn.sum(axis=1) < enough).mean()), enough


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"))
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument(
        "--file", action="append", default=[], help="FILE.csv:COLUMN, another corpus"
    )
    arguments = parser.parse_args()
    generator, draw = np.random.default_rng(7), random.Random(7)
    corpora = {name: read(arguments.shared, *where) for name, where in CORPORA.items()}
    for file in arguments.file:
        path, _, column = file.rpartition(":")
        corpora[Path(path).stem] = list(texts(Path(path), column))
    corpora |= {
        f"{name}, stock phrases": made_up(own, draw) for name, own in list(corpora.items())[-1:]
    }
    total = refused = 0
    print(
        f"{'corpus':28s}{'records':>8s}{'size':>7s}{'refused':>10s}{'apart':>10s}{'missed':>10s}{'simul.':>10s}{'T':>8s}"
    )
    for name, records in corpora.items():
        corpus = Corpus(records)
        repeated = corpus.repeated()
        print(
            f"{name}: texts that several records are, from "
            + ", ".join(f"{n} letters {repeated[n]}" for n in repeated)
        )
        for size in sorted({corpus.size(size) for size in SIZES}):
            pairs = arguments.pairs // (1 if "stock" not in name else 20)
            wrong, apart = (corpus.refused(size, pairs, generator, each) for each in (False, True))
            missed, simulated, enough = corpus.missed(size, generator)
            if "stock" not in name:
                total, refused = total + pairs, refused + wrong
            print(
                f"{name:28s}{len(records):8,}{size:7,}{wrong / pairs:10.1e}{apart / pairs:10.1e}"
                f"{missed:10.1e}{simulated:10.1e}{enough:8.1f}",
                flush=True,
            )
    # Clopper and Pearson's bound for no refusal, 95 %.
    bound = (
        -math.log(0.05) / total if not refused else (refused + 2 * math.sqrt(refused) + 2) / total
    )
    print(f"all: {refused} of {total:,} pairs of strangers refused; at most {bound:.1e} at 95 %")


if __name__ == "__main__":
    main()
