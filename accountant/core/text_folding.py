"""Texts folded so that one spelling is found in another.

    compatibility   NFKC: full width, ligatures, composed and decomposed accents
    case            full case folding; ß is ss, and every dotted or dotless i is i
    blanks          any run of blanks and line breaks is one blank
    marks           every apostrophe is ', every hyphen and dash is -, every double quotation mark
                    is "
    digits          0 to 9 in every script
    nothing         soft hyphens, zero-width and directional marks, variation selectors, control
                    characters

A text is folded piece by piece, in time linear in it. A piece is a run of ASCII, a run of blanks,
or a character with the marks that follow it.
"""

import re
import unicodedata
from functools import cache, lru_cache
from itertools import groupby

_APOSTROPHES = "`´‘’‚‛′‵ʹʻʼʽʾʿˈ՚׳ꞌ＇"
_QUOTES = "“”„‟″‶«»״〝〞〟＂"
_HYPHENS = "−⁃˗➖"
#: Signs of one meaning; digits and dashes of all scripts, blanks and invisible characters join
#: them.
_SIGNS = {
    ord(symbol): sign
    for signs, sign in ((_APOSTROPHES, "'"), (_QUOTES, '"'), (_HYPHENS, "-"))
    for symbol in signs
}
#: A blank that is no separator (category So).
_BRAILLE_BLANK = "\u2800"
#: Invisible characters that are no format characters (category Cf): joiners, fillers, the Arabic
#: tatweel.
_INVISIBLE = frozenset("\u034f\u0640\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_SELECTORS = frozenset(
    map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
#: Letters that join the letter before them: vowels and finals of Hangul, voiced sounds of
#: half-width kana.
_JOINING = (
    *range(0x1161, 0x1200),
    *range(0xD7B0, 0xD7FC),
    *range(0x314F, 0x3164),
    0xFF9E,
    0xFF9F,
    *range(0xFFC2, 0xFFDD),
)
#: Marks after one letter, as in Unicode's stream-safe text; it bounds the time that ordering them
#: takes.
_MOST_MARKS = 30


def fold(text: str) -> str:
    """Return the folded text."""
    return _pieces().sub(_folded_piece, text)


def _folded_piece(match: re.Match[str]) -> str:
    piece = match.group()
    if match.lastgroup == "plain":
        return piece.lower().replace("`", "'")
    return " " if match.lastgroup == "blanks" else _folded(piece)


def is_word_character(character: str) -> bool:
    """Return whether a folded character continues a word that ends in an ASCII letter or digit."""
    return character.isdigit() or character.upper() != character


@cache
def _pieces() -> re.Pattern[str]:
    kinds: dict[str, list[int]] = {"mark": [*_JOINING], "blank": [], "ignored": [], "other": []}
    # The planes that hold marks, blanks or format characters.
    for number in (*range(0x20000), *range(0xE0000, 0xE1000)):
        kinds[_kind(chr(number))].append(number)
    mark, blank, ignored = (_one_of(sorted(kinds[kind])) for kind in ("mark", "blank", "ignored"))
    # A run of ASCII leaves its last character to a mark that may follow it.
    plain = r"(?P<plain>[!-~]+(?: [!-~]+)*(?![^\t-\r\x1c-~]))"
    blanks = f"(?P<blanks>{blank}(?:{blank}|{ignored})*)"
    # No possessive quantifier: Python before 3.11.3 gives up a repeated group that holds one.
    joined = f"(?:{ignored}*{mark}){{0,{_MOST_MARKS}}}{ignored}*"
    return re.compile(f"{plain}|{blanks}|(?P<one>(?s:.){joined})")


def _one_of(numbers: list[int]) -> str:
    """Return a pattern for one of these code points, which are in order."""
    runs = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ends = [(run[0][1], run[-1][1]) for run in (list(pairs) for _, pairs in runs)]
    low, high = (
        "".join(
            f"\\U{first:08x}-\\U{last:08x}" for first, last in ends if (first > 0xFFFF) is is_high
        )
        for is_high in (False, True)
    )
    # Above U+FFFF ranges are tried one by one: no other character comes that far.
    return f"(?:[{low}]|(?![\\0-\uffff])[{high}])" if high else f"[{low}]"


def _kind(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cf", "Cc", "Zs", "Zl", "Zp") or character == _BRAILLE_BLANK:
        return "blank" if character.isspace() or character == _BRAILLE_BLANK else "ignored"
    if character in _INVISIBLE or character in _SELECTORS:
        return "ignored"
    return "mark" if category[0] == "M" else "other"


class _Same(dict[int, str]):
    """What stands for a character by itself: signs of one meaning, digits, blanks and nothing."""

    def __missing__(self, number: int) -> str:
        character = chr(number)
        kind, category = _kind(character), unicodedata.category(character)
        if category == "Nd":
            same = str(unicodedata.decimal(character))
        elif category == "Cs":
            same = "\ufffd"
        elif kind in ("blank", "ignored"):
            same = " " if kind == "blank" else ""
        else:
            same = "-" if category == "Pd" else character
        self[number] = same
        return same


_same = _Same(_SIGNS)


@lru_cache(maxsize=2**16)
def _folded(piece: str) -> str:
    """Return a character and its marks, folded."""
    folded_text = piece.translate(_same)
    for _ in range(2):
        folded_text = unicodedata.normalize(
            "NFKC", unicodedata.normalize("NFKC", folded_text).casefold()
        )
        folded_text = unicodedata.normalize(
            "NFKC", folded_text.replace("i\u0307", "i").replace("ı", "i")
        )
    folded_text = folded_text.translate(_same)
    # A spacing accent, or a phrase in one sign, is no blank and holds none.
    return piece if " " in folded_text else folded_text
