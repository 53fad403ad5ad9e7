"""The hash chain: one per dataset, gapless, over a versioned canonical encoding (RFC 8785).

An entry's hash covers every field and the hash before it. Amounts are decimal strings of integers:
canonical JSON numbers are doubles and would lose digits.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from json.encoder import encode_basestring as _quoted
from typing import Any

import rfc8785

from accountant.core.errors import VerificationFailed

VERSION = 1
GENESIS = "0" * 64


class EntryKind(StrEnum):
    """What an entry does to the books (DESIGN section 4)."""

    ALLOW = "ALLOW"
    RESERVE = "RESERVE"
    COMMIT = "COMMIT"
    VOID = "VOID"
    REVERSAL = "REVERSAL"


FIELDS = ("version", "dataset", "seq", "kind", "at", "actor", "job", "body", "previous")


@dataclass(frozen=True)
class Entry:
    """One line of a dataset's ledger. `at` is UTC; `job` names the reservation it belongs to."""

    dataset: str
    seq: int
    kind: EntryKind
    at: datetime
    actor: str
    job: str | None
    body: Mapping[str, Any]
    previous: str

    def document(self) -> dict[str, Any]:
        """The object that is hashed."""
        return {
            "version": VERSION,
            "dataset": self.dataset,
            "seq": self.seq,
            "kind": str(self.kind),
            "at": format_time(self.at),
            "actor": self.actor,
            "job": self.job,
            "body": dict(self.body),
            "previous": self.previous,
        }

    def hash(self) -> str:
        """SHA-256, in hex, of the canonical encoding."""
        return digest(self.document())


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of the canonical encoding of `document`."""
    return digest_text(canonical(document))


def digest_text(text: bytes) -> str:
    """SHA-256, in hex, of an encoding made before."""
    return hashlib.sha256(text).hexdigest()


def canonical(document: Mapping[str, Any]) -> bytes:
    """RFC 8785 bytes. Raises ValueError for what has none."""
    try:
        return _text(dict(document)).encode()
    except UnicodeEncodeError:
        return rfc8785.dumps(dict(document))  # which says so in its own words


def _text(value: Any) -> str:
    """The common shapes, in a third of the time; everything else is left to `rfc8785`."""
    kind = type(value)
    if kind is str:
        return _quoted(value)
    if kind is dict and all(type(key) is str and key.isascii() for key in value):  # they sort alike
        return "{" + ",".join([f"{_quoted(key)}:{_text(value[key])}" for key in sorted(value)]) + "}"
    if kind is list or kind is tuple:
        return "[" + ",".join(map(_text, value)) + "]"
    if kind is float:
        return _number(value)
    if kind is int and abs(value) < 2**53:
        return str(value)
    return "null" if value is None else rfc8785.dumps(value).decode()


@lru_cache(maxsize=4096)
def _number(value: float) -> str:
    return rfc8785.dumps(value).decode()


def format_time(moment: datetime) -> str:
    """UTC with microseconds, always the same length."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_time(text: str) -> datetime:
    """The inverse of `format_time`."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def read_entry(document: Mapping[str, Any], seq: int) -> Entry:
    """An entry from an exported object, expected at place `seq`. Raises VerificationFailed."""
    if not isinstance(document, dict) or set(document) != set(FIELDS):
        raise VerificationFailed(f"its fields are not {', '.join(FIELDS)}", seq)
    if document["version"] != VERSION:
        raise VerificationFailed(f"unknown version {document['version']!r}", seq)
    if document["seq"] != seq:
        raise VerificationFailed(f"its number is {document['seq']!r}, an entry is missing or moved", seq)
    try:
        entry = Entry(
            document["dataset"],
            seq,
            EntryKind(document["kind"]),
            read_time(document["at"]),
            document["actor"],
            document["job"],
            document["body"],
            document["previous"],
        )
    except (ValueError, TypeError) as error:
        raise VerificationFailed(f"it can't be read: {error}", seq) from None
    if not isinstance(entry.body, dict):
        raise VerificationFailed("its body is not an object", seq)
    return entry
