r"""Patterns in RE2's syntax, changed so that they find in folded text what people wrote them for.

Folded text (text_folding) has small letters, one blank for any run of blanks and line breaks, one
apostrophe, one hyphen and the digits 0 to 9. So letters beyond ASCII are folded in the pattern too,
and:

    (?i)            stands before the whole, so [A-Z] is any letter from a to z
    \s \t \n        are the one blank, and repeating it asks for no more
    \w              is also any character beyond ASCII
    \b              holds anywhere in a pattern with letters beyond ASCII, since RE2's is of ASCII
                    words

What can't be said of folded text is refused: a range that folding tears apart, a letter in brackets
that becomes two, lines of their own, or capitals told from small letters.
"""

import re
import unicodedata

from accountant.core.text_folding import fold

_ESCAPE = r"\\[pP](?:\{\^?\w+\}|\w)|\\x(?:\{[0-9A-Fa-f]{1,6}\}|[0-9A-Fa-f]{2})|\\."
#: What a pattern is made of: a class with its own brackets, a count, flags, an escape, or other
#: signs. A sign before a count stands alone.
PARTS = re.compile(
    rf"(?P<class>\[\^?\]?(?:\[:\^?\w+:\]|{_ESCAPE}|[^\]\\])*\])"
    r"|(?P<count>\{(?P<least>\d+)(?:,(?P<most>\d*))?\})"
    r"|(?P<flags>\(\?[A-Za-z]*-?[A-Za-z]*[:)])"
    rf"|(?P<escape>{_ESCAPE})"
    r"|(?P<signs>[^\x00-\x7f]+(?![{?])|.)",
    re.DOTALL,
)
_IN_CLASS = re.compile(rf"\[:\^?\w+:\]|{_ESCAPE}|.", re.DOTALL)
_CAPITALS = re.compile(r"\\P\{?L[ultC&]\}?|\\p\{\^L[ultC&]\}|\[:\^(?:upper|lower):\]")
_BLANKS = frozenset((r"\s", r"\t", r"\n", r"\r", r"\f", r"\v"))
_WORD = r"0-9A-Za-z_\x{80}-\x{10FFFF}"


class UnfoldablePattern(ValueError):
    """A pattern that says what folded text has none of. The message follows its quotation."""


def fold_pattern(pattern: str) -> str:
    """Return the pattern for folded text. Raises UnfoldablePattern."""
    composed = unicodedata.normalize("NFC", pattern).replace("i\u0307", "i")
    pieces: list[str] = []
    for part in PARTS.finditer(composed):
        text, is_after_blank = part.group(), bool(pieces) and pieces[-1] == " "
        if part["flags"] and ("m" in text or re.search("-.*i", text)):
            raise UnfoldablePattern("sets a flag for lines or capitals, which are folded away")
        if part["count"]:
            folded = text
            if is_after_blank:
                folded = "?" if int(part["least"]) == 0 else ""
        elif part["class"]:
            folded = _folded_class(text)
        elif part["flags"]:
            folded = text
        else:
            folded = _folded_signs(text)
        if folded and not (folded == " " and is_after_blank):
            pieces.append(folded)
    if not "".join(pieces).isascii() or re.search(r"\\[pP]", pattern):
        pieces = [part for part in pieces if part not in (r"\b", r"\B")]
    return "".join(pieces)


def _folded_signs(text: str) -> str:
    """Return an escape or signs outside of brackets."""
    if text in (r"\w", r"\W"):
        return f"[{_WORD}]" if text == r"\w" else f"[^{_WORD}]"
    literal = _literal(text)
    if literal is None:
        return text
    folded = fold(literal)
    if folded == text:
        return text  # a sign of the syntax, or one that folding leaves
    if text.isascii() and text.isalpha():
        return text  # (?i) folds it
    escaped = "".join(map(_escaped, folded))
    return escaped if len(folded) <= 1 else f"(?:{escaped})"


def _folded_class(text: str) -> str:
    if _CAPITALS.search(text):
        raise UnfoldablePattern("tells capitals from small letters, which are folded away")
    is_negated = text.startswith("[^")
    tokens = _IN_CLASS.findall(text[2 if is_negated else 1 : -1])
    if is_negated:
        # Folded text has none of what folding changes, so it needs no exclusion.
        return f"[^{''.join(_WORD if token == chr(92) + 'w' else token for token in tokens)}]"
    if all(_is_blank(token) for token in tokens):
        return " "
    piece, place = [], 0
    while place < len(tokens):
        if tokens[place + 1 : place + 2] == ["-"] and place + 2 < len(tokens):
            piece.append(_folded_range(tokens[place], tokens[place + 2]))
            place += 3
        else:
            piece.append(_folded_member(tokens[place]))
            place += 1
    return f"[{''.join(piece)}]"


def _folded_member(member: str) -> str:
    """Return one character or escape in brackets."""
    if member == r"\w":
        return _WORD
    literal = _literal(member)
    if literal is None or (
        member.isascii() and literal.isascii() and literal not in "` \t\n\r\f\v"
    ):
        return member
    folded = fold(literal)
    if len(folded) != 1:
        raise UnfoldablePattern(
            f"has {literal!r} in brackets, which is not one letter: write it as (?:a|b)"
        )
    return _escaped(folded)


def _folded_range(first: str, last: str) -> str:
    if (
        first.isascii()
        and last.isascii()
        and not first.startswith(r"\x")
        and not last.startswith(r"\x")
    ):
        return f"{first}-{last}"
    ends = [_literal(end) for end in (first, last)]
    low, high = (fold(end) if end is not None else "" for end in ends)
    if len(low) != 1 or len(high) != 1 or low > high:
        raise UnfoldablePattern(
            f"has the range {first}-{last}, which folding tears apart: list its signs"
        )
    return f"{_escaped(low)}-{_escaped(high)}"


def _literal(token: str) -> str | None:
    """Return the character that a token stands for; None for a class of them or an anchor."""
    if token in _BLANKS:
        return " "
    if _CAPITALS.fullmatch(token):
        raise UnfoldablePattern("tells capitals from small letters, which are folded away")
    if token.startswith(r"\x"):
        number = int(token[2:].strip("{}"), 16)
        return chr(number) if number <= 0x10FFFF else None
    if token[0] == "\\":
        return None if token[1].isalnum() else token[1]
    return None if token.startswith("[:") else token


def _is_blank(token: str) -> bool:
    literal = _literal(token)
    return literal is not None and literal.isspace()


def _escaped(character: str) -> str:
    is_sign = character.isascii() and not character.isalnum() and character not in " _"
    return f"\\{character}" if is_sign else character
