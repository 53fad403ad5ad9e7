"""Texts of groups for benchmarks.summaries: bundled reviews, or those of Yelp by category and
stars.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from accountant.core.privacy.price import Terms
from benchmarks.utility_data import rows
from tests.support import SHARED
from workers import sample
from workers.evaluation.transfer import Labelled


@dataclass(frozen=True)
class Data:
    """Texts of groups, and how they are read. `texts`: of the private or the public half."""

    groups: tuple[str, ...]
    model: str
    dtype: str
    oneshot: str
    token: str
    start: str
    record_tokens: int
    texts: Callable[[str], Labelled]
    size: int = 100
    public_each: int = 90
    tokens: int = 24

    @property
    def terms(self) -> Terms:
        return Terms(groups=self.groups)

    def private(self) -> Labelled:
        return first_of_each(self.texts("private"), self.groups, self.size)

    def public(self) -> Labelled:
        return first_of_each(self.texts("public"), self.groups, self.public_each)


YELP = (
    "Restaurants 1",
    "Restaurants 5",
    "Bars 5",
    "Shopping 5",
    "Beauty & Spas 5",
    "Event Planning & Services 5",
)
#: Without those that are mostly restaurants too.
FOUR = ("Restaurants 1", "Restaurants 5", "Shopping 5", "Beauty & Spas 5")


def of_yelp(part: str, groups: Sequence[str] = YELP) -> Labelled:
    found = []
    for row in rows(SHARED / f"data/yelp_augpe/{'test' if part == 'private' else 'dev'}.csv.gz"):
        group = (
            f"{row['label1'].removeprefix('Business Category: ')} {row['label2'].split()[-1][0]}"
        )
        if group in groups:
            found.append((row["text"], group))
    return Labelled([text for text, _ in found], [group for _, group in found])


def of_file(path: Path) -> Labelled:
    with path.open(encoding="utf-8", newline="") as file:
        found = [(row["text"], row["business"]) for row in csv.DictReader(file)]
    return Labelled([text for text, _ in found], [group for _, group in found])


def of_sample(part: str) -> Labelled:
    """Every other public review plays a record: both halves are about the same things."""
    found, first = of_file(sample.PUBLIC_SAMPLE_CSV), part == "private"
    return Labelled(found.texts[first::2], found.labels[first::2])


def of_shifted(part: str) -> Labelled:
    """The bundled private reviews, which are full of what the public ones rarely mention."""
    return of_file(sample.PRIVATE_CSV if part == "private" else sample.PUBLIC_SAMPLE_CSV)


SAMPLE = Data(
    groups=sample.KINDS,
    model=str(sample.MODEL_DIR),
    dtype="auto",
    oneshot="A review: {record}\nAnother review (",
    token="A review: {record}\nAnother review (",
    start="A review:",
    record_tokens=64,
    texts=of_shifted,
)

SIX = Data(
    groups=YELP,
    model="",
    dtype="float32",
    oneshot="Review: {record}\nIn short, this is a review of a",
    token="{user}Review: {record}\nSay in one sentence what reviews like this are about.{assistant}"
    "The reviews are about",
    start="A review of a business:",
    record_tokens=48,
    texts=of_yelp,
)

DATA = {
    "yelp": SIX,
    "yelp-four": replace(SIX, groups=FOUR, texts=partial(of_yelp, groups=FOUR), public_each=135),
    "shifted": SAMPLE,
    "sample": replace(SAMPLE, texts=of_sample, size=36, public_each=36),
}


def first_of_each(part: Labelled, groups: Sequence[str], count: int) -> Labelled:
    kept: dict[str, list[str]] = {group: [] for group in groups}
    for text, group in zip(part.texts, part.labels, strict=True):
        if len(kept[group]) < count:
            kept[group].append(text)
    return Labelled(
        [text for own in kept.values() for text in own], [g for g, own in kept.items() for _ in own]
    )
