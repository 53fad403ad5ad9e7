"""Patterns, terms or a column that describe secrets, matched in time linear in the text.

Text, terms and patterns are folded alike (text_folding), so that a secret is found however it is
written. A pattern runs by RE2 and is bounded in every way: no repetition without an upper end, no
empty match, and a limit on its length, on their number, and on the size of the program that RE2
makes of it. What RE2 does not know (a back-reference, a look-around) has no linear time and is
refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from accountant.core.errors import InvalidRequest, invalid
from accountant.core.folded_patterns import PARTS, UnfoldablePattern, fold_pattern
from accountant.core.text_folding import fold, is_word_character

MOST_PATTERNS = 50
MOST_PATTERN_CHARACTERS = 500
#: Instructions of one compiled pattern.
MOST_PROGRAM = 10_000
MOST_TERMS = 10_000
MOST_TERM_CHARACTERS = 200
#: What stands in place of a secret that was redacted before.
TAG = "[secret]"

_ALLOWED = (
    f"RE2 syntax with bounded repetitions, as \\d{{4,8}}; at most {MOST_PATTERN_CHARACTERS} "
    "characters"
)
#: Texts that hold no secret and share no word: a pattern found in every one is found in any text.
_ANY_TEXT = ("we left early", "soup was cold today", "nobody answers my letters")


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    """Return a pattern as RE2 runs it on folded text. Raises UnfoldablePattern or re2.error."""
    import re2

    options = re2.Options()
    options.log_errors = False  # they would quote a secret's shape
    options.max_mem = 8 * 2**20
    options.never_nl = True
    return re2.compile(f"(?i){fold_pattern(pattern)}", options)


def _problem(pattern: str) -> str | None:
    """Return why a pattern is refused; None: it is valid."""
    import re2

    if not 0 < len(pattern) <= MOST_PATTERN_CHARACTERS:
        return "is empty or too long"
    if "\\Q" in pattern or "\\C" in pattern:
        return "quotes with \\Q or matches a byte with \\C"
    if any(part.group() in ("*", "+") or part["most"] == "" for part in PARTS.finditer(pattern)):
        return "repeats without an upper bound"
    try:
        compiled = _compiled(pattern)
    except UnfoldablePattern as error:
        return str(error)
    except re2.error:
        return "is no pattern of linear time, or too large"
    if compiled.programsize > MOST_PROGRAM:
        return "is too large when its repetitions are written out"
    if compiled.search("") is not None:
        return "matches where there is nothing"
    if all(compiled.search(text) is not None for text in _ANY_TEXT):
        return (
            "matches any text, since capitals count as small letters: everything would be a secret"
        )
    return None


def check(patterns: Sequence[str], terms: Sequence[str]) -> None:
    """Raises InvalidRequest naming `secret_patterns` or `secret_terms`, before anything is read."""
    problems = []
    if len(patterns) > MOST_PATTERNS:
        problems.append(
            invalid("secret_patterns", f"there are {len(patterns)}", f"at most {MOST_PATTERNS}")
        )
    for pattern in patterns[:MOST_PATTERNS]:
        why = _problem(pattern)
        if why is not None:
            problems.append(invalid("secret_patterns", f"{pattern[:80]!r} {why}", _ALLOWED))
    if len(terms) > MOST_TERMS:
        problems.append(
            invalid("secret_terms", f"there are {len(terms):,}", f"at most {MOST_TERMS:,}")
        )
    if any(len(term.strip()) > MOST_TERM_CHARACTERS or not _folded_term(term) for term in terms):
        allowed = f"1 to {MOST_TERM_CHARACTERS} visible characters each"
        problems.append(invalid("secret_terms", "one is empty or too long", allowed))
    if problems:
        raise InvalidRequest(
            [field_problem for problem in problems for field_problem in problem.problems]
        )


@dataclass(frozen=True)
class Secrets:
    """The definition of secrets in a dataset's texts. Patterns and terms must have passed `check`.

    A term that begins or ends with a letter from a to z or a digit is found as a whole word there.
    In a record with a secret column, that column's value is a secret wherever it stands in the
    text.
    """

    patterns: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()

    def is_in(self, text: str, own: str = "") -> bool:
        """Return whether a text holds a secret, or the tag that stands for one.

        `own`: the value of the record's secret column.
        """
        searched = fold(text)
        if TAG in searched:
            return True
        if any(
            match.start() < match.end()
            for pattern in self.patterns
            for match in _compiled(pattern).finditer(searched)
        ):
            return True
        matchers = [_matcher(self.terms)] if self.terms else []
        if _folded_term(own):
            matchers.append(_matcher.__wrapped__((own,)))  # not kept: it is of one record
        return any(
            _is_whole(searched, start, end)
            for matcher in matchers
            for _, start, end in matcher.find_matches_as_indexes(searched, overlapping=True)
        )


@lru_cache(maxsize=4)
def _matcher(terms: tuple[str, ...]) -> Any:
    """Return the automaton that finds all terms in a folded text at once, nested ones too."""
    from ahocorasick_rs import AhoCorasick

    return AhoCorasick(sorted({_folded_term(term) for term in terms}))


def _folded_term(term: str) -> str:
    return fold(term).strip()


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return whether no word goes on at an end that is an ASCII letter or digit.

    Other scripts set no blanks between words, or join particles to names: a term is found inside
    there.
    """
    return not (
        (start and _is_plain(text[start]) and is_word_character(text[start - 1]))
        or (end < len(text) and _is_plain(text[end - 1]) and is_word_character(text[end]))
    )


def _is_plain(character: str) -> bool:
    return character.isascii() and character.isalnum()
