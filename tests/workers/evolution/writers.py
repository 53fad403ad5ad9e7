"""A Writer and an embedder for tests: made-up words, the same for the same seed and prompts."""

import hashlib
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from workers.data.public_text import PublicPrompt, PublicText, vouch
from workers.embedding.neighbours import unit
from workers.generation.writer import Manner, WriterError, Written
from workers.interface import Public

WORDS = (
    "soup",
    "cold",
    "room",
    "quiet",
    "lift",
    "slow",
    "waiter",
    "kind",
    "bill",
    "tea",
    "warm",
    "cat",
)


@dataclass
class Words:
    """Writes a few words for each prompt. `asked`: the prompts so far. `dies`: before this
    request.
    """

    seed: int | None = 0
    words: Sequence[str] = WORDS
    dies: int | None = None
    asked: list[PublicPrompt] = field(default_factory=list)

    name = "words"

    def seeded(self, seed: int | None) -> "Words":
        return Words(seed, self.words, self.dies, self.asked)

    def write(
        self, prompts: Sequence[PublicPrompt], manner: Manner, each: int = 1
    ) -> Iterator[Written]:
        for row, prompt in enumerate(prompts):
            for number in range(each):
                if self.dies is not None and len(self.asked) >= self.dies:
                    raise WriterError("the endpoint 'words' answered 503, 6 times")
                self.asked.append(prompt)
                told = f"{self.seed} {len(self.asked)} {number} {prompt.text}"
                draws = random.Random(told)
                count = min(manner.max_tokens, draws.randint(1, 6))
                text = " ".join(draws.choices(self.words, k=count))
                yield Written(vouch(text), True, row)

    def length(self, text: PublicText) -> int:
        return len(text.split())

    def shortened(self, text: PublicText, tokens: int) -> PublicText:
        return text.through(lambda whole: " ".join(whole.split()[:tokens]))

    def room(self, manner: Manner) -> int:
        return 1_000


class Places:
    """Unit vectors of the hashes of texts; an empty text has none."""

    dimensions, context_tokens = 6, 100

    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[np.ndarray]:
        for text in texts:
            self.seen.append(text)
            yield unit(vector(text)[None])


def vector(text: str) -> np.ndarray:
    """What `Places` makes of a text, before it is brought to length 1."""
    if not text.strip():
        return np.zeros(Places.dimensions, np.float32)
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).normal(size=Places.dimensions).astype(np.float32)


def public(writer: Words | None = None, **corpora) -> Public:
    """Public things of a job that names the writer "words" and the embedding "places"."""
    return Public(
        corpora=corpora, embedders={"embedding": Places()}, endpoints={"writer": writer or Words()}
    )
