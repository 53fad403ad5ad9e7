"""CSV for people who open it in a spreadsheet: its encoding is known, and no text of it runs as a
formula.

A spreadsheet reads a file without a byte-order mark in the encoding of its machine. It runs a cell
that begins with =, + or - as a formula, and Lotus's @ too: OWASP's "CSV injection". An apostrophe
before such a text keeps it a text. Numbers stay numbers, negative ones too.
"""

import re
import unicodedata

#: The byte-order mark of UTF-8, as the first character of a file.
MARK = "\ufeff"

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BEGINS = frozenset("=+-@\u2212")  # U+2212 is a minus sign to LibreOffice
#: A spreadsheet whose lists are separated by semicolons or tabs cuts a line at them, whatever the
#: quotes say, and at every line break. A point of a list ("- milk") at the beginning of a line
#: stays.
_SEPARATED = r"[;\t]\s*(?=[=+\-@\uff1d\uff0b\uff0d\uff20\u2212])"
_NEXT_LINE = r"[\r\n]\s*(?=[=@\uff1d\uff20]|[+\-\uff0b\uff0d\u2212]\S)"
_WITHIN = re.compile(f"{_SEPARATED}|{_NEXT_LINE}")


def harmless(text: str) -> str:
    """Return a text for a cell of CSV: with an apostrophe wherever a formula could begin."""
    if _NUMBER.fullmatch(text):
        return text
    text = _WITHIN.sub(r"\g<0>'", text)
    return f"'{text}" if _is_formula(text) else text


def _is_formula(text: str) -> bool:
    """Return True if a spreadsheet may read a text as a formula, behind invisible marks too."""
    for character in text:
        if character in "\t\r\n":
            return True  # OWASP names them: some programs drop them and read what follows
        if character.isspace() or unicodedata.category(character) in ("Cc", "Cf", "Mn"):
            continue
        return bool(_BEGINS & set(unicodedata.normalize("NFKC", character)))
    return False
