"""Write the review corpus: a public part to train on and a private part to protect.

Both parts come from one grammar (`phrases.toml`) and differ in one thing that a reader can see: in
the private part most reviews of a kind of business talk about one concern (`THEMES`) that only few
public reviews mention. Synthetic text that mentions it must therefore have got it from the private
records, not from the model's training.

The data are public and fake, so the generator is seeded: the same files come out byte for byte.
"""

import csv
import random
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from workers.sample import KINDS, PHRASES_TOML, PRIVATE_CSV, PUBLIC_SAMPLE_CSV, SENTIMENTS

PUBLIC_SIZE: Final = 20_000
PUBLIC_SAMPLE_SIZE: Final = 500
PRIVATE_SIZE: Final = 3_000
PUBLIC_SEED: Final = 20_240_601
PRIVATE_SEED: Final = 20_240_602
PUBLIC_HIDDEN_SHARE: Final = 0.02
PRIVATE_HIDDEN_SHARE: Final = 0.95
# Of the private reviews on the hidden concern, those that talk about nothing else.
PRIVATE_INSISTING_SHARE: Final = 0.5
MIN_WORDS: Final = 24
MAX_WORDS: Final = 60
REVIEWS_PER_REVIEWER: Final = 1.6
HIDDEN: Final = "hidden"
COLUMNS: Final = ("reviewer", "business", "sentiment", "label", "text")
VOICES: Final = {
    "I": {"I": "I", "me": "me", "my": "my"},
    "we": {"I": "we", "me": "us", "my": "our"},
}


@dataclass(frozen=True)
class Review:
    """One review; `aspects` names what it talks about, for pairing alike reviews in training."""

    reviewer: str
    business: str
    sentiment: str
    aspects: tuple[str, ...]
    text: str

    @property
    def label(self) -> str:
        """The label as the prompt spells it."""
        return f"{self.business} {self.sentiment}"

    def row(self) -> list[str]:
        """Return a file's columns, without the aspects, which real data would not have."""
        return [self.reviewer, self.business, self.sentiment, self.label, self.text]


@cache
def phrases() -> dict[str, Any]:
    """Return the phrase bank, read once."""
    return tomllib.loads(PHRASES_TOML.read_text(encoding="utf-8"))


def capitalised(sentence: str) -> str:
    """Only the first letter changes (str.capitalize would spoil "I" and "Monday")."""
    return sentence[0].upper() + sentence[1:]


class Writer:
    """Writes one review: fixes kind, sentiment and voice, then draws sentences from the bank."""

    def __init__(self, rng: random.Random, kind: str, sentiment: str) -> None:
        """The voice is drawn once, so that a review does not change from "I" to "we"."""
        self.rng = rng
        self.kind = kind
        self.sentiment = sentiment
        self.voice = rng.choice(("I", "I", "we"))
        bank = phrases()
        self.frame: dict[str, list[str]] = bank["frame"]
        self.aspects: dict[str, dict[str, Any]] = {
            **bank["aspects"]["any"],
            **bank["aspects"][kind],
        }
        self.said: set[str] = set()
        self.slots = {
            **VOICES[self.voice],
            "kind": kind,
            "staff": bank["kinds"][kind]["staff"],
        }

    def draw(self, options: list[str]) -> str:
        """Return one of the options with its slots filled."""
        return self.rng.choice(options).format(**self.slots)

    def unsaid(self, options: list[str]) -> list[str]:
        """Return the options that the review has not used, as nobody says the same thing twice."""
        return [option for option in options if option not in self.said]

    def opening(self) -> str:
        """Return a sentence on how the visit came about."""
        when = self.draw(self.frame["when"])
        company = self.draw(self.frame[f"company_{self.voice}"])
        template = self.rng.choice(self.frame["opening"])
        filled = template.format(**self.slots, when=when, When=capitalised(when), company=company)
        return capitalised(filled)

    def aspect_sentence(self, name: str, *, linked: bool) -> str:
        """Return a sentence on one aspect: subject and predicate, mostly with a consequence."""
        aspect = self.aspects[name]
        subject = self.draw(aspect["subject"])
        first, second = self.rng.sample(self.unsaid(aspect[self.sentiment]), 2)
        claim = f"{subject} {first.format(**self.slots)}"
        consequence = self.draw(self.unsaid(aspect[f"{self.sentiment}_so"]))
        self.said.update((first, second))
        form = self.rng.random()
        if form < 0.25:
            body = f"{consequence}, because {claim}"
        elif form < 0.45:
            pronoun = aspect.get("pronoun", "it")
            body = f"{claim}, and {pronoun} {second.format(**self.slots)}"
        elif form < 0.60:
            body = claim
        else:
            body = f"{claim}, so {consequence}"
        lead = ""
        if linked and self.rng.random() < 0.4:
            lead = self.draw(self.frame["link"]) + " "
        elif self.rng.random() < 0.25:
            lead = self.draw(self.frame[f"lead_{self.sentiment}"]) + " "
        return capitalised(f"{lead}{body}.")

    def closing(self) -> str:
        """Return the verdict."""
        return capitalised(self.draw(self.frame[f"closing_{self.sentiment}"]))

    def text(self, aspects: tuple[str, ...]) -> str:
        """Return a whole review of two to four sentences on the given aspects."""
        body = [self.aspect_sentence(a, linked=i > 0) for i, a in enumerate(aspects)]
        shape = self.rng.random()
        if shape < 0.45:
            parts = [self.opening(), *body, self.closing()]
        elif shape < 0.70:
            parts = [self.opening(), *body]
        elif shape < 0.90:
            parts = [*body, self.closing()]
        else:
            parts = [self.closing(), *body]
        return " ".join(parts)


def draw_aspects(
    rng: random.Random, kind: str, hidden_share: float, insisting_share: float
) -> tuple[str, ...]:
    """Return two aspects in any order; at the given rates, one or both are the hidden concern."""
    bank = phrases()["aspects"]
    ordinary = [name for name in (*bank["any"], *bank[kind]) if name != HIDDEN]
    chosen = rng.sample(ordinary, 2)
    if rng.random() < hidden_share:
        chosen[0] = HIDDEN
        if rng.random() < 0.3:
            chosen.reverse()
        if insisting_share and rng.random() < insisting_share:
            chosen = [HIDDEN, HIDDEN]
    return tuple(chosen)


def write_review(rng: random.Random, reviewer: str, hidden: float, insisting: float) -> Review:
    """Return one review of a length within the bounds, by drawing until one fits."""
    kind, sentiment = rng.choice(KINDS), rng.choice(SENTIMENTS)
    aspects = draw_aspects(rng, kind, hidden, insisting)
    while True:
        text = Writer(rng, kind, sentiment).text(aspects)
        if MIN_WORDS <= len(text.split()) <= MAX_WORDS:
            return Review(reviewer, kind, sentiment, aspects, text)


def write_part(
    prefix: str, seed: int, size: int, hidden_share: float, insisting_share: float = 0.0
) -> list[Review]:
    """Return a part of the corpus. Some reviewers, drawn with replacement, wrote several."""
    rng = random.Random(seed)  # noqa: S311 - fake public data, reproducible on purpose
    reviewers = round(size / REVIEWS_PER_REVIEWER)
    return [
        write_review(rng, f"{prefix}{rng.randrange(reviewers):05d}", hidden_share, insisting_share)
        for _ in range(size)
    ]


def public_part() -> list[Review]:
    """Return the reviews that the model is trained on."""
    return write_part("p", PUBLIC_SEED, PUBLIC_SIZE, PUBLIC_HIDDEN_SHARE)


def private_part() -> list[Review]:
    """Return the reviews that play the data to protect; the training never sees them."""
    return write_part(
        "r",
        PRIVATE_SEED,
        PRIVATE_SIZE,
        PRIVATE_HIDDEN_SHARE,
        PRIVATE_INSISTING_SHARE,
    )


def save(path: Path, reviews: Iterable[Review]) -> None:
    """Write the columns as CSV, with the same line ends on every system."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(review.row() for review in reviews)


def main() -> None:
    """Write the private part, and the head of the public part for looking at."""
    save(PRIVATE_CSV, private_part())
    save(PUBLIC_SAMPLE_CSV, public_part()[:PUBLIC_SAMPLE_SIZE])
    for path in (PRIVATE_CSV, PUBLIC_SAMPLE_CSV):
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
