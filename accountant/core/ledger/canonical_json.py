"""Canonical JSON (RFC 8785): the bytes that are hashed and signed.

Amounts are integers written as strings: numbers in canonical JSON are doubles and would lose
digits. The `rfc8785` package writes the numbers. The rest is written here for speed, because a
verifier encodes every entry of a ledger; a test compares the two.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

import rfc8785

_LARGEST = 2**53 - 1


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return the RFC 8785 bytes of a document. Raises ValueError for NaN and the like."""
    return value_text(document).encode()


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text. Raises ValueError for an object with a name twice, too."""
    return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("an object holds a name twice")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number in JSON")


def canonical_text(value: str) -> str:
    """Return the RFC 8785 form of a text by itself."""
    return encode_basestring(value)


def value_text(value: object) -> str:
    """Return the RFC 8785 form of any value by itself."""
    return _WRITERS[type(value)](value)


def _object_text(value: Mapping[str, Any]) -> str:
    parts = []
    for key, begin in _names(tuple(value)):
        part = value[key]
        parts.append(begin + _WRITERS[type(part)](part))
    return "{" + ",".join(parts) + "}"


def _array_text(value: Sequence[Any]) -> str:
    return "[" + ",".join([value_text(item) for item in value]) + "]"


def _whole_text(value: int) -> str:
    if not -_LARGEST <= value <= _LARGEST:
        raise ValueError(f"{value} is beyond what a double holds exactly")
    return str(int(value))


class _Writers(dict[type, Callable[[Any], str]]):
    """What writes values, by their exact types. A type in between is written as its base."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        for base in kind.__mro__:
            if base in self:
                return self[base]
        raise ValueError(f"{kind.__name__} has no JSON form")


@lru_cache(maxsize=1024)  # objects of one kind have the same names
def _names(keys: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the names of an object in their order, each with its text before a value."""
    if not all(isinstance(key, str) for key in keys):
        raise ValueError("the names of an object are text")
    ordered = sorted(keys, key=lambda key: key.encode("utf-16-be"))
    return tuple((key, encode_basestring(key) + ":") for key in ordered)


@lru_cache(maxsize=4096)
def _number(value: float) -> str:
    return rfc8785.dumps(value).decode()


_WRITERS = _Writers(
    {
        str: encode_basestring,
        dict: _object_text,
        list: _array_text,
        tuple: _array_text,
        bool: lambda value: "true" if value else "false",
        int: _whole_text,
        float: _number,
        type(None): lambda _: "null",
    }
)
