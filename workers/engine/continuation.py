"""Batches that go on where an earlier attempt stopped.

Their contexts are read when the first token has to be drawn. Until then, tokens that were drawn
before are only noted: of a batch's text in the making the latest, nothing of finished texts. So a
group of batches whose tokens were all drawn is never read, and another reads its texts in the
making as it reads prompts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

Law = TypeVar("Law")


class Group(Protocol[Law]):
    """Batches decoded together: what the next token of each is drawn from."""

    def read(self) -> dict[int, Law]:
        """Read all prompts; what the first token of each batch's texts is drawn from."""

    def append(self, texts: Mapping[int, Sequence[int]]) -> dict[int, Law]:
        """Append to each named batch the beginning of a text; what its next token is drawn from."""

    def step(self, tokens: Mapping[int, int]) -> dict[int, Law]:
        """Append to each named batch its token; what its next one is drawn from."""

    def restart(self, batch: int) -> None:
        """The batch's next text begins."""


class Continued(Generic[Law]):
    """A group of batches that `make` opens once something has to be drawn for one."""

    def __init__(self, make: Callable[[], Group[Law]]) -> None:
        self._make = make
        self._group: Group[Law] | None = None
        self._first: dict[int, Law] = {}
        self._laws: dict[int, Law] = {}
        # tokens of each batch's text, while the group is not open
        self._behind: dict[int, list[int]] = {}

    def law(self, batch: int) -> Law:
        """Return what the batch's next token is drawn from."""
        if self._group is None:
            self._catch_up()
        return self._laws[batch]

    def append(self, tokens: Mapping[int, int]) -> None:
        """Append to each named batch its token."""
        if self._group is not None and tokens:
            self._laws |= self._group.step(tokens)
            return
        for batch, token in tokens.items():
            self._behind.setdefault(batch, []).append(token)

    def restart(self, batch: int) -> None:
        """The batch's next text begins."""
        self._behind.pop(batch, None)
        if self._group is not None:
            self._group.restart(batch)
            self._laws[batch] = self._first[batch]

    def _catch_up(self) -> None:
        self._group = self._make()
        self._first = self._group.read()
        self._laws = dict(self._first)
        if self._behind:
            self._laws |= self._group.append(self._behind)
        self._behind = {}
