"""The protocol of everything that writes from public prompts: a local model, or an endpoint
elsewhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from accountant.core.errors import ExchequerError
from workers.data.public_text import PublicPrompt, PublicText


class WriterError(ExchequerError):
    """A Writer that can't go on. The text is public: nothing private reaches a Writer."""

    code = "writer"


@dataclass(frozen=True)
class Written:
    """A text, stripped. `complete`: not cut by the length limit; `row`: of which prompt."""

    text: PublicText
    complete: bool
    row: int = 0


@dataclass(frozen=True)
class Manner:
    """How to write. `temperature` 0: the likeliest token. `stop`: what ends a text."""

    max_tokens: int
    temperature: float
    stop: str = ""


class Writer(Protocol):
    """Writes texts from public prompts."""

    @property
    def name(self) -> str:
        """The writer's name in figures and reports."""

    def seeded(self, seed: int | None) -> "Writer":
        """Return the same writer with random numbers of its own; None: the operating system's."""

    def write(
        self, prompts: Sequence[PublicPrompt], manner: Manner, each: int = 1
    ) -> Iterator[Written]:
        """`each` texts of every prompt, as they end; each that has begun is written to its end.

        Raises WriterError where it can't.
        """

    def length(self, text: PublicText) -> int:
        """About how many tokens a text has."""

    def shortened(self, text: PublicText, tokens: int) -> PublicText:
        """Return the beginning of a text, of about `tokens` tokens at most."""

    def room(self, manner: Manner) -> int:
        """Return the most tokens that a prompt may have so that a text still fits after it."""


def answers(writer: Writer, prompts: Sequence[PublicPrompt], manner: Manner) -> list[PublicText]:
    """Return one text for each prompt, in their order. Raises WriterError."""
    texts_by_row = {written.row: written.text for written in writer.write(prompts, manner)}
    return [texts_by_row[row] for row in range(len(prompts))]
