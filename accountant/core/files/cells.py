"""Cells of tables in one canonical form, whatever format, library or type wrote them.

    text(value)         what a template, a label or a secret gets; "" where the cell is missing
    identifier(value)   what names a privacy unit; None where the cell is missing

A number without a fraction, a truth value, a date or a time is one text in every format: 17, 17.0,
Decimal 17.00 and "17.0" are "17"; true and "True" are "true". Spellings that may or may not be one
person ("017" and "17", "P1" and "p1 ") keep their own `exact` form and share the `folded` one:
`unit_spelling` says what that means. docs/uploads.md has the rules.
"""

import json
import math
import re
import unicodedata
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID


class Unreadable(ValueError):
    """The reason why a cell can't be read as what it is needed for. It quotes no value."""


class Narrow(float):
    """A float of less than 64 bits. Whole numbers from `exact` on may stand for several."""

    exact = 2**53


class Single(Narrow):
    """A float of 32 bits."""

    exact = 2**24


class Half(Narrow):
    """A float of 16 bits."""

    exact = 2**11


class Identifier(NamedTuple):
    """The name of a privacy unit.

    `exact` is equal for cells that are surely one person, `folded` for cells that may be one.
    """

    exact: str
    folded: str
    family: str


NUMBER, TEXT, WORD, BOOLEAN = "numbers", "texts", "truth values as words", "truth values"
DATE, ZONED, TIME = "dates", "times with a zone", "times of day"
#: Families of identifiers that one column may hold together. Others are one value written by two
#: tools.
TOGETHER = ({NUMBER, TEXT}, {TEXT, WORD}, {WORD, BOOLEAN}, {DATE}, {ZONED}, {TIME})

#: Floats and moments that are missing, as every library prints them.
_NOT_A_NUMBER = frozenset({"nan", "NaN", "NAN", "-nan", "-NaN", "NaT"})
#: What libraries print for a missing identifier; a text may well consist of one.
_NO_IDENTIFIER = _NOT_A_NUMBER | {"None", "null", "NULL", "<NA>", "NA", "N/A", "n/a", "#N/A", "\\N"}
_WORDS = {
    "True": "true",
    "TRUE": "true",
    "true": "true",
    "False": "false",
    "FALSE": "false",
    "false": "false",
}

_LONGEST = 48
_FIRST = frozenset("0123456789-nNtTfF")
_WHOLE = re.compile(r"(-?)([0-9]+)\.0+")
_CLOCK = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
_MOMENT = re.compile(
    rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]{_CLOCK}(?: "
    rf"?(Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?))?)?"
)
_TIME = re.compile(_CLOCK)


# --- text ---------------------------------------------------------------------------------------


def text(value: Any) -> str:
    """Return a cell as text. Raises Unreadable for types without text, or if it is not UTF-8."""
    if type(value) is str:
        if len(value) > _LONGEST or not value or value[0] not in _FIRST:
            return value
        return _plain(value)
    if value is None:
        return ""
    if isinstance(value, dict | list | tuple):
        return json.dumps(_nested(value), ensure_ascii=False)
    return _scalar(value)


def _plain(value: str) -> str:
    """Return the canonical text of a short string that may be a number, truth value or moment."""
    if value in _NOT_A_NUMBER:
        return ""
    if value in _WORDS:
        return _WORDS[value]
    if "." in value and (whole := _WHOLE.fullmatch(value)):
        sign, digits = whole.groups()
        return digits if not digits.strip("0") else sign + digits
    if value == "-0":
        return "0"
    if ("-" in value or ":" in value) and (moment := _moment(value)) is not None:
        return moment
    return value


def _scalar(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float(value)
        case Decimal():
            if not value.is_finite():
                return "" if value.is_nan() else str(value)
            return str(int(value)) if value == value.to_integral_value() else format(value, "f")
        case bytes() | bytearray() | memoryview():
            try:
                return text(bytes(value).decode())
            except UnicodeDecodeError:
                raise Unreadable("it is not UTF-8") from None
        case str():
            return text(str(value))
        case date() | time():  # datetime is a date
            written = value.isoformat()
            return _moment(written) or written
        case UUID():
            return str(value)
    raise Unreadable(f"it has the type {type(value).__name__}, which is not read: write it as text")


def _float(value: float) -> str:
    if math.isnan(value):
        return ""
    if value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    return float.__repr__(value)


def _nested(value: Any) -> Any:
    """Return a list or an object in JSON: cells in canonical form, missing fields left out."""
    if isinstance(value, dict):
        pairs = (
            (key if isinstance(key, str) else text(key), _nested(item))
            for key, item in value.items()
        )
        return {key: item for key, item in pairs if item is not None}
    if isinstance(value, list | tuple):
        return [_nested(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 1e16 else float(value)
    return _scalar(value)


@lru_cache(maxsize=2**12)
def _moment(value: str) -> str | None:
    """Return the canonical form of an ISO date, date and time, or time of day; None if it is none.

    Midnight without a zone is the date alone, as libraries print it either way. A time with a zone
    is UTC.
    """
    if match := _TIME.fullmatch(value):
        *clock, fraction = match.groups()
        return ":".join(clock) + _fraction(fraction) if int(clock[0]) < 24 else None
    match = _MOMENT.fullmatch(value)
    if match is None:
        return None
    day, hour, minute, second, fraction, zone = match.groups()
    try:
        instant = datetime.fromisoformat(day)
        if hour is not None:
            instant = instant.replace(hour=int(hour), minute=int(minute), second=int(second))
        if zone is not None:
            zone = "+0000" if zone == "Z" else zone.replace(":", "").ljust(5, "0")
            away = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:]))
            instant = instant + away if zone[0] == "-" else instant - away
    except (ValueError, OverflowError):
        return None
    rest = _fraction(fraction)
    if zone is None and not rest and (instant.hour, instant.minute, instant.second) == (0, 0, 0):
        return instant.date().isoformat()
    return instant.isoformat() + rest + ("" if zone is None else "Z")


def _fraction(digits: str | None) -> str:
    digits = (digits or "").rstrip("0")
    return f".{digits}" if digits else ""


# --- identifiers --------------------------------------------------------------------------------


def identifier(value: Any) -> Identifier | None:
    """Return the name of a privacy unit, or None if the cell is missing.

    Raises Unreadable for a cell that can't name anybody surely: a float with a fraction or too
    large to be one number, a list, bytes that are not UTF-8.
    """
    if type(value) is str:
        return _named(value)
    match value:
        case None:
            return None
        case bool():
            word = "true" if value else "false"
            return Identifier(word, word, BOOLEAN)
        case int():
            return Identifier(str(value), str(value), NUMBER)
        case float():
            return _number(value)
        case Decimal() if not value.is_finite():
            if value.is_nan():
                return None
            raise Unreadable("it is infinite")
        case dict() | list() | tuple():
            raise Unreadable("a list or an object names nobody: name a column of single values")
        case bytes() | bytearray() | memoryview():
            try:
                return _named(bytes(value).decode())
            except UnicodeDecodeError:
                raise Unreadable("it is not UTF-8") from None
    return _named(_scalar(value))


def _number(value: float) -> Identifier | None:
    if math.isnan(value):
        return None
    if math.isinf(value):
        raise Unreadable("it is infinite")
    if not value.is_integer():
        raise Unreadable(
            "it is a float with a fraction, which formats write differently: write it as text"
        )
    if abs(value) >= (value.exact if isinstance(value, Narrow) else 2**53):
        raise Unreadable(
            "it is a float so large that it may stand for several numbers: write it as an integer"
        )
    return Identifier(str(int(value)), str(int(value)), NUMBER)


#: A float printed with an exponent, as spreadsheets and libraries print long numbers: digits are
#: gone.
_PRINTED = re.compile(r"-?[0-9]\.[0-9]+[eE]\+?[0-9]+")
#: A number as it may be typed. An exponent follows one digit before the point, as a float is
#: printed.
_NUMBER = re.compile(
    r"(?=.*[0-9])[+-]?(?:[0-9]+|[0-9]{1,3}(?:,[0-9]{3})+)?(?:\.[0-9]*)?|[+-]?[1-9](?:\.[0-9]*)?e[+-]?[0-9]{1,3}"
)
_UUID = re.compile(
    r"(?:urn:uuid:)?\{?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})\}?"
)
_HYPHENATED = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MARKS = str.maketrans(dict.fromkeys("‐‑‒–—―−", "-") | dict.fromkeys("‘’ʼ´", "'") | {"ı": "i"})


@lru_cache(maxsize=2**14)
def _named(value: str) -> Identifier | None:
    if value.isdigit() and value.isascii() and value[0] != "0" and len(value) < 32:
        return Identifier(value, value, NUMBER)
    if "\0" in value:
        raise Unreadable("it holds a NUL character")
    exact = unicodedata.normalize("NFC", value)
    if not exact.strip() or exact.strip() in _NO_IDENTIFIER:
        return None
    if _PRINTED.fullmatch(exact):
        raise Unreadable(
            "it is a number with an exponent, of which digits are gone: write it in full"
        )
    if _HYPHENATED.fullmatch(exact):
        exact = exact.lower()
    whole = _WHOLE.fullmatch(exact)
    if whole and int(whole[2]) >= 2**53:
        raise Unreadable(
            "it is a float so large that it may stand for several numbers: write it as an integer"
        )
    exact = _plain(exact) if len(exact) <= _LONGEST else exact
    folded = fold(exact)
    return Identifier(exact, folded, _family(exact, folded)) if folded else None


def _family(exact: str, folded: str) -> str:
    if exact in ("true", "false"):
        return WORD
    if _NUMBER.fullmatch(folded):
        return NUMBER
    if (moment := _moment(exact)) is None:
        return TEXT
    return ZONED if moment.endswith("Z") else DATE if "-" in moment else TIME


def fold(value: str) -> str:
    """Return the form that all spellings share which may name one person.

    Capitals, blanks, invisible characters, compatibility forms, kinds of hyphens and apostrophes
    make no difference in it. Neither does how a number (sign, zeros, exponent, commas), a zone or a
    UUID is written.
    """
    plain = value.casefold()
    if not value.isascii():
        plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", value).casefold())
        plain = plain.replace("i\u0307", "i").translate(_MARKS)
        plain = "".join(map(_folded_character, plain))
    plain = " ".join(plain.split())
    if match := _UUID.fullmatch(plain):
        return "".join(match.groups())
    if plain[:1] in "0123456789+-." and _NUMBER.fullmatch(plain):
        return _folded_number(plain.replace(",", ""))
    if moment := _moment(plain.upper()):
        return moment.removesuffix("Z").removesuffix("T00:00:00").casefold()
    return plain


def _folded_character(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.digit(character))
    return "" if category in ("Cf", "Cc") and not character.isspace() else character


def _folded_number(written: str) -> str:
    number = format(Decimal(written), "f")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    sign, digits = number[:1].strip("+0123456789."), number.lstrip("+-")
    digits = digits.lstrip("0") or "0"
    digits = f"0{digits}" if digits.startswith(".") else digits
    return digits if digits == "0" else sign + digits


def spelling(value: str) -> str:
    """Return the kind of an exact identifier's spelling, in words that quote nothing of it."""
    traits = (
        (value != value.strip(), "with blanks around it"),
        (
            any(unicodedata.category(letter) in ("Cf", "Cc") for letter in value),
            "with invisible characters",
        ),
        (
            unicodedata.normalize("NFKC", value) != value,
            "in compatibility characters such as full width",
        ),
        (re.fullmatch(r"[+-]?0+[0-9].*", value) is not None, "with leading zeros"),
        (value.startswith("+"), "with a sign"),
        (re.fullmatch(r"[+-]?[0-9.]+[eE][+-]?[0-9]+", value) is not None, "with an exponent"),
        (
            re.fullmatch(r"[+-]?[0-9,]*,[0-9]+(\.[0-9]*)?", value) is not None,
            "with commas in a number",
        ),
        (_moment(value) is not None and value.endswith("Z"), "as a time with a zone"),
        (_moment(value) is not None, "as a date or time without a zone"),
        (value.isdigit(), "as plain digits"),
        (value != value.lower() and value == value.upper(), "in capitals"),
        (value != value.lower(), "with capitals"),
    )
    return next((words for holds, words in traits if holds), "as plain text")


def how_read(value: Any) -> str:
    """Return a sentence on how a cell like this one is read. Quotes nothing of it."""
    match value:
        case bool():
            return "a truth value, such as JSON's true, is read as `true` or `false`"
        case float() | Decimal() if not math.isnan(value):
            return "a number without a fraction is read as an integer, so 1.0 as `1`"
        case int():
            return "a number is read as its digits"
        case dict() | list() | tuple():
            return "a list or an object is read as JSON"
        case bytes():
            return "bytes are read as UTF-8"
        case str() if value:
            return (
                "letter by letter; a number or truth value in one form: `1.0` as `1`, `True` as "
                "`true`"
            )
    return "the cell is missing"


# --- columns ------------------------------------------------------------------------------------


def column_key(name: str) -> str:
    """Return a column's name for comparison, without compatibility forms, blanks and marks."""
    plain = unicodedata.normalize("NFKC", name)
    return "".join(
        letter for letter in plain if unicodedata.category(letter) not in ("Cf", "Cc")
    ).strip()


def has_two_alike(names: Iterable[str]) -> bool:
    """Return whether two columns have one name. Columns without a name are not compared."""
    keys = [key for key in map(column_key, names) if key]
    return len(set(keys)) != len(keys)


class NamedTwice(ValueError):
    """An object of JSON with two fields of one name, of which the last would count in silence."""


def json_value(line: str) -> Any:
    """Return the value of a line of JSON. Raises NamedTwice, and ValueError for what is no JSON."""
    return json.loads(line, object_pairs_hook=_fields)


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise NamedTwice
    return value
