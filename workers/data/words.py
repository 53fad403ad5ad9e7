"""Words of every script, by ICU: Unicode Annex 29, with dictionaries for scripts that set no
blanks.

    text -> words: letters, marks and digits, with inner apostrophes and hyphens -> NFKC

Chinese, Japanese, Thai, Lao, Khmer and Burmese are cut by ICU's dictionaries. Terms, vocabularies,
word vectors and scores of texts all count these words.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Literal

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("‐‑", "-"),
        "_": " ",
        # seen by nobody
        **dict.fromkeys("\xad\u2060\ufeff\u200e\u200f\u202a\u202b\u202c\u202d\u202e"),
    }
)
#: Signs inside what ICU takes for one word or number.
_INNER = re.compile(r"[.:;,·⁄ ]")
#: What NFKC takes apart, and dictionaries know as one letter.
_ONE_LETTER = (("\u0e4d\u0e32", "\u0e33"), ("\u0ecd\u0eb2", "\u0eb3"), ("ຫນ", "ໜ"), ("ຫມ", "ໝ"))
#: Characters of a text that are read for each word asked for.
_CHARACTERS = 32

#: Scripts that set no blanks between words, and that no dictionary of ICU's is for.
_UNCUT = {
    "Tai Le": "\u1950-\u197f",
    "New Tai Lue": "\u1980-\u19df",
    "Tai Tham": "\u1a20-\u1aaf",
    "Balinese": "\u1b00-\u1b7f",
    "Javanese": "\ua980-\ua9df",
    "Tai Viet": "\uaa80-\uaadf",
    "Ahom": "\U00011700-\U0001174f",
}
_IS_UNCUT = re.compile(f"[{''.join(_UNCUT.values())}]")


def words(text: str, most: int | None = None) -> list[str]:
    """Return the first `most` words of a text, case folded, in time linear in either."""
    shown = text if most is None else text[: _CHARACTERS * most]
    return [_normalised("NFKC", word.casefold()) for word in cased_words(shown)[:most]]


def cased_words(text: str) -> list[str]:
    """Return the words of a text in order, as they are written."""
    from icu4py.breakers import WordBreaker

    cased: list[str] = []
    before = ""  # what a hyphen may go on: a word, or a word and its hyphen
    plain = _normalised("NFC", text.translate(_PLAIN).encode("utf-8", "replace").decode())
    for segment in WordBreaker(plain, "en"):
        parts = [
            part
            for part in _INNER.split(_normalised("NFKC", segment))
            if any(map(str.isalnum, part))
        ]
        if parts and before == "word-":
            cased[-1] += f"-{parts.pop(0)}"
        cased += parts
        if segment == "-" and before == "word":
            before = "word-"
        else:
            before = (
                "word"
                if segment[-1].isalnum() or unicodedata.category(segment[-1])[0] == "M"
                else ""
            )
    return cased


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text in order, each with what stands before the next."""
    from icu4py.breakers import SentenceBreaker

    yield from SentenceBreaker(text.encode("utf-8", "replace").decode(), "en")


def _normalised(form: Literal["NFC", "NFKC"], text: str) -> str:
    text = unicodedata.normalize(form, text)
    for parts, letter in _ONE_LETTER:
        text = text.replace(parts, letter)
    return text


def uncut_script(text: str) -> str | None:
    """Return the name of a script in a text whose words can't be told apart, if there is one."""
    sign = _IS_UNCUT.search(text)
    if sign is None:
        return None
    return next(name for name, signs in _UNCUT.items() if re.match(f"[{signs}]", sign.group()))
