"""Terms: words and word sequences, cut and cased alike in public lists and in records.

    text -> words, case folded (data/words.py)
    a term is one to n words, joined by blanks

Terms are counted in records cut as the list was cut, so both use `words`.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from accountant.core.errors import DataError
from workers.data.words import words


class _Json(Protocol):
    def json(self) -> Any: ...


@dataclass(frozen=True)
class TermList:
    """Terms, those of most texts first, and in how many of `texts` texts each occurs."""

    documents: Mapping[str, int]
    texts: int

    @cached_property
    def longest(self) -> int:
        """Words of the longest term."""
        return max((term.count(" ") + 1 for term in self.documents), default=0)

    def to_json(self) -> dict[str, Any]:
        """Return it as the content of an artifact of kind `term-list`."""
        return {
            "texts": self.texts,
            "terms": [[term, count] for term, count in self.documents.items()],
        }

    @classmethod
    def of(cls, artifact: _Json) -> "TermList":
        """Return the list in a released artifact. Raises DataError for another kind."""
        try:
            value = artifact.json()
            return cls(
                {str(term): int(count) for term, count in value["terms"]}, int(value["texts"])
            )
        except (KeyError, TypeError, ValueError):
            raise DataError("the artifact is no term list") from None

    def found(self, text: str, most_words: int | None = None) -> Iterator[str]:
        """Yield the terms of a text from left to right, the longest that fits at each place; none
        overlap.

        Time is linear in the words of the text, of which the first `most_words` are read.
        """
        own, place = words(text, most_words), 0
        while place < len(own):
            for length in range(min(self.longest, len(own) - place), 0, -1):
                term = " ".join(own[place : place + length])
                if term in self.documents:
                    yield term
                    place += length
                    break
            else:
                place += 1

    def distinct(
        self,
        text: str,
        most: int,
        most_words: int | None = None,
        among: Container[str] | None = None,
    ) -> list[str]:
        """Return the first `most` distinct terms of a text, of those `among` some, if given."""
        seen: dict[str, None] = {}
        for term in self.found(text, most_words):
            if among is None or term in among:
                seen.setdefault(term)
            if len(seen) == most:
                break
        return list(seen)
