"""The hash chain: one per dataset, gapless, over a versioned canonical encoding (RFC 8785).

An entry's hash covers every field and the previous hash. In entries of version 2, salted commitments
(commitments.py) cover private values, so that a public export can be verified too; in entries of version 1
they are plain.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from accountant.core.errors import UNREADABLE, VerificationFailed
from accountant.core.ledger import commitments
from accountant.core.ledger.canonical_json import canonical

__all__ = ["GENESIS", "VERSION", "Entry", "EntryKind", "canonical", "digest", "opened", "read_entry"]

VERSION = 2
GENESIS = "0" * 64


class EntryKind(StrEnum):
    """The kinds of entries, by their effect on the books (DESIGN section 4)."""

    ALLOW = "ALLOW"
    RESERVE = "RESERVE"
    COMMIT = "COMMIT"
    VOID = "VOID"
    REVERSAL = "REVERSAL"


FIELDS = ("version", "dataset", "seq", "kind", "at", "actor", "job", "body", "previous")


@dataclass(frozen=True)
class Entry:
    """One line of a dataset's ledger. `at` is UTC; `job` names the reservation it belongs to.

    Values are plain here; the salts of the private ones are derived from `salt`.
    """

    dataset: str
    seq: int
    kind: EntryKind
    at: datetime
    actor: str
    job: str | None
    body: Mapping[str, Any]
    previous: str
    version: int = VERSION
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False, compare=False)

    def document(self) -> dict[str, Any]:
        """The object that is stored, and exported in full; `digest` hashes it."""
        plain = {
            "version": self.version,
            "dataset": self.dataset,
            "seq": self.seq,
            "kind": str(self.kind),
            "at": format_time(self.at),
            "actor": self.actor,
            "job": self.job,
            "body": dict(self.body),
            "previous": self.previous,
        }
        return plain if self.version == 1 else commitments.sealed(plain, self.salt)

    def hash(self) -> str:
        """The hash that the next entry names."""
        return digest(self.document())


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of the canonical encoding of a document's published form."""
    return hashlib.sha256(canonical(published(document))).hexdigest()


def published(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document as it is hashed. In version 1 that is the whole document, names and figures included."""
    return document if document.get("version") == 1 else commitments.hidden(document)


def opened(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with plain values, for people and for the books; hidden values stay hidden."""
    return document if document.get("version") == 1 else commitments.opened(document)


def format_time(moment: datetime) -> str:
    """The moment in UTC with microseconds; the text always has the same length."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_time(text: str) -> datetime:
    """The inverse of `format_time`."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def read_entry(document: Mapping[str, Any], seq: int) -> Entry:
    """The entry in an exported object, expected at position `seq`; a hidden actor is "".

    Raises VerificationFailed.
    """
    if not isinstance(document, dict) or set(document) != set(FIELDS):
        raise VerificationFailed(f"its fields are not {', '.join(FIELDS)}", seq)
    if document["version"] not in (1, VERSION) or isinstance(document["version"], bool):
        raise VerificationFailed(f"unknown version {document['version']!r}", seq)
    if document["seq"] != seq:
        raise VerificationFailed(f"its number is {document['seq']!r}, an entry is missing or moved", seq)
    try:
        plain = opened(document)
        actor = plain["actor"]
        entry = Entry(
            document["dataset"],
            seq,
            EntryKind(document["kind"]),
            read_time(document["at"]),
            "" if commitments.is_hidden(actor) else actor,
            document["job"],
            plain["body"],
            document["previous"],
            document["version"],
            b"",
        )
    except UNREADABLE as error:
        raise VerificationFailed(f"it can't be read: {error}", seq) from None
    if not isinstance(entry.body, dict):
        raise VerificationFailed("its body is not an object", seq)
    return entry
