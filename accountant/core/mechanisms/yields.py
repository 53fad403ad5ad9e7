"""What a job writes, by its parameters alone: how many texts and how long, told before it is asked
for.
"""

from dataclasses import dataclass
from typing import Literal

Bound = Literal["exactly", "at least", "at most"]


@dataclass(frozen=True)
class Yield:
    """The output of a job in public numbers: `number` of `what`, each of at most `tokens` (None: no
    tokens).

    `bound` says how sure the number is: texts that end early make room for more of them ("at
    least"), and texts may be dropped for their quality ("at most").
    """

    what: str
    number: int
    tokens: int | None = None
    bound: Bound = "exactly"

    def sentence(self) -> str:
        """Return the same in words: "at least 44 texts, of at most 128 tokens each"."""
        start = "" if self.bound == "exactly" else f"{self.bound} "
        what = self.what.removesuffix("s") if self.number == 1 else self.what
        tokens = "1 token" if self.tokens == 1 else f"{self.tokens or 0:,} tokens"
        long = "" if self.tokens is None else f", of at most {tokens}"
        each = " each" if long and self.number != 1 else ""
        return f"{start}{self.number:,} {what}{long}{each}"


def by_label(each: int, labels: tuple[str, ...]) -> int:
    """So many of each label; of a dataset without labels so many in all."""
    return each * max(1, len(labels))


def texts(each: int, labels: tuple[str, ...], tokens: int, bound: Bound = "exactly") -> Yield:
    """So many texts of each label."""
    return Yield("texts", by_label(each, labels), tokens, bound)
