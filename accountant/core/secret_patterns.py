"""Patterns, terms or a column that describe secrets, matched in time linear in the text (RE2).

A pattern is bounded in every way: no repetition without an upper end, no empty match, and a limit on its
length, on their number, and on the size of the program that RE2 makes of it. What RE2 does not know (a
back-reference, a look-around) has no linear time and is refused.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from accountant.core.errors import InvalidRequest, invalid

MOST_PATTERNS = 50
MOST_PATTERN_CHARACTERS = 500
#: Instructions of one compiled pattern.
MOST_PROGRAM = 10_000
MOST_TERMS = 10_000
MOST_TERM_CHARACTERS = 200
#: Terms in one compiled alternation.
_TOGETHER = 500
#: What stands in place of a secret where it is redacted.
TAG = "[secret]"

_ALLOWED = f"RE2 syntax with bounded repetitions, as \\d{{4,8}}; at most {MOST_PATTERN_CHARACTERS} characters"
#: Texts that hold no secret and share no word: a pattern found in every one is found in any text.
_ANY_TEXT = ("we left early", "soup was cold today", "nobody answers my letters")
#: What takes part in finding repetitions: an escape, a class with its own brackets, or one sign.
_PARTS = re.compile(r"\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\{(\d*),(\d*)\}|.", re.DOTALL)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    """A pattern as RE2 runs it. Raises re2.error."""
    import re2

    options = re2.Options()
    options.log_errors = False  # they would quote a secret's shape
    options.max_mem = 8 * 2**20
    return re2.compile(pattern, options)


def _problem(pattern: str) -> str | None:
    """Return why a pattern is refused; None: it is valid."""
    import re2

    if not 0 < len(pattern) <= MOST_PATTERN_CHARACTERS:
        return "is empty or too long"
    if "\\Q" in pattern or "\\C" in pattern:
        return "quotes with \\Q or matches a byte with \\C"
    for part in _PARTS.finditer(pattern):
        if part.group() in ("*", "+") or part.group(2) == "":
            return "repeats without an upper bound"
    try:
        compiled = _compiled(pattern)
    except re2.error:
        return "is no pattern of linear time, or too large"
    if compiled.programsize > MOST_PROGRAM:
        return "is too large when its repetitions are written out"
    if compiled.search("") is not None:
        return "matches where there is nothing"
    if all(compiled.search(text) is not None for text in _ANY_TEXT):
        return "matches any text, so that everything would be a secret"
    return None


def check(patterns: Sequence[str], terms: Sequence[str]) -> None:
    """Raises InvalidRequest naming `secret_patterns` or `secret_terms`, before anything is read."""
    problems = []
    if len(patterns) > MOST_PATTERNS:
        problems.append(invalid("secret_patterns", f"there are {len(patterns)}", f"at most {MOST_PATTERNS}"))
    for pattern in patterns[:MOST_PATTERNS]:
        why = _problem(pattern)
        if why is not None:
            problems.append(invalid("secret_patterns", f"{pattern[:80]!r} {why}", _ALLOWED))
    if len(terms) > MOST_TERMS:
        problems.append(invalid("secret_terms", f"there are {len(terms):,}", f"at most {MOST_TERMS:,}"))
    if any(not 0 < len(term.strip()) <= MOST_TERM_CHARACTERS for term in terms):
        allowed = f"1 to {MOST_TERM_CHARACTERS} characters each"
        problems.append(invalid("secret_terms", "one is empty or too long", allowed))
    if problems:
        raise InvalidRequest([each for problem in problems for each in problem.problems])


@dataclass(frozen=True)
class Secrets:
    """The definition of secrets in a dataset's texts. Patterns and terms must have passed `check`.

    Terms are found as whole words in any case. In a record with a secret column, that column's value is a
    secret wherever it stands in the text.
    """

    patterns: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()

    def spans(self, text: str, own: str = "") -> list[tuple[int, int]]:
        """Return the spans of secrets in a text, as (start, end) in characters: in order, without overlap.

        `own`: the value of the record's secret column.
        """
        found = sorted(span for each in self._matchers(own) for span in _found(each, text))
        joined: list[tuple[int, int]] = []
        for start, end in found:
            if joined and start < joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((start, end))
        return joined

    def redacted(self, text: str, own: str = "") -> str:
        """The text with TAG in place of every secret."""
        made, place = [], 0
        for start, end in self.spans(text, own):
            made += [text[place:start], TAG]
            place = end
        return "".join([*made, text[place:]])

    def _matchers(self, own: str) -> Iterator[Any]:
        yield from map(_compiled, self.patterns)
        for first in range(0, len(self.terms), _TOGETHER):
            yield _compiled(_alternation(self.terms[first : first + _TOGETHER]))
        if own.strip():
            yield _literal(own.strip())


def _found(matcher: Any, text: str) -> Iterator[tuple[int, int]]:
    for match in matcher.finditer(text):
        yield match.span()


def _alternation(terms: Sequence[str]) -> str:
    return "(?i)" + "|".join(map(_whole, terms))


def _literal(value: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile("(?i)" + _whole(value[:MOST_TERM_CHARACTERS]), options)


def _whole(term: str) -> str:
    """A term as whole words; \\b is of ASCII words in RE2, so others are found anywhere."""
    import re2

    term = term.strip()
    before = "\\b" if term[0].isascii() and (term[0].isalnum() or term[0] == "_") else ""
    after = "\\b" if term[-1].isascii() and (term[-1].isalnum() or term[-1] == "_") else ""
    return f"{before}{re2.escape(term)}{after}"
