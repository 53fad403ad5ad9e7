"""The hash chain: one per dataset, gapless, over a versioned canonical encoding (RFC 8785).

An entry's hash covers every field and the previous hash. Salted commitments (commitments.py) cover
private values, so that a public export can be verified too.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from accountant.core.errors import UNREADABLE, VerificationFailed
from accountant.core.ledger import commitments
from accountant.core.ledger.canonical_json import canonical

__all__ = [
    "GENESIS",
    "JOBLESS",
    "VERSION",
    "Entry",
    "EntryKind",
    "canonical",
    "digest",
    "read_entry",
]

VERSION = 2
SALT_BYTES = 32
GENESIS = "0" * 64


class EntryKind(StrEnum):
    """The kinds of entries (DESIGN section 4). REGISTER and POLICY are rules; others move books."""

    ALLOW = "ALLOW"
    RESERVE = "RESERVE"
    COMMIT = "COMMIT"
    VOID = "VOID"
    REVERSAL = "REVERSAL"
    REGISTER = "REGISTER"
    POLICY = "POLICY"
    LOSS = "LOSS"


#: Kinds that belong to no job: allowances, losses, and the rules that stand beside them
#: (rules.py).
JOBLESS = (EntryKind.ALLOW, EntryKind.REGISTER, EntryKind.POLICY, EntryKind.LOSS)


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
    salt: bytes = field(
        default_factory=lambda: secrets.token_bytes(SALT_BYTES), repr=False, compare=False
    )

    def document(self) -> dict[str, Any]:
        """Return the object that is stored, and exported in full; `digest` hashes it."""
        plain = {
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
        return commitments.sealed(plain, self.salt)

    def hash(self) -> str:
        """Return the hash that the next entry names."""
        return digest(self.document())


def digest(document: Mapping[str, Any]) -> str:
    """Return SHA-256, in hex, of the canonical encoding of a document's published form."""
    return hashlib.sha256(canonical(commitments.hidden(document))).hexdigest()


def format_time(moment: datetime) -> str:
    """Return the moment in UTC with microseconds; the text always has the same length."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


_TIME = re.compile(
    r"[0-9]{4}-[01][0-9]-[0-3][0-9]T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{6}Z"
)


def read_time(text: str) -> datetime:
    """Return the inverse of `format_time`. Raises ValueError for any other way to write a time."""
    if _TIME.fullmatch(text) is None:
        raise ValueError(f"{text!r:.40} is no time")
    return datetime.fromisoformat(text)


def read_entry(document: Mapping[str, Any], seq: int) -> Entry:
    """Return the entry in an exported object, expected at position `seq`; a hidden actor is "".

    Raises VerificationFailed.
    """
    if not isinstance(document, dict) or document.keys() != set(FIELDS):
        raise VerificationFailed(f"its fields are not {', '.join(FIELDS)}", seq)
    if type(document["version"]) is not int or document["version"] != VERSION:
        raise VerificationFailed(f"unknown version {document['version']!r}", seq)
    if type(document["seq"]) is not int or document["seq"] != seq:
        raise VerificationFailed(
            f"its number is {document['seq']!r}, an entry is missing or moved", seq
        )
    try:
        plain = commitments.opened(document)
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
            b"",
        )
    except UNREADABLE as error:
        raise VerificationFailed(f"it can't be read: {error}", seq) from None
    if not isinstance(entry.body, dict):
        raise VerificationFailed("its body is not an object", seq)
    if actor == "":  # which stands for a hidden one above
        raise VerificationFailed("its actor is empty", seq)
    for name, text in (
        ("dataset", entry.dataset),
        ("actor", entry.actor),
        ("job", entry.job or ""),
    ):
        if not isinstance(text, str):
            raise VerificationFailed(f"its {name} is no text", seq)
    if (entry.job is None) != (entry.kind in JOBLESS):
        which = "names a job" if entry.kind in JOBLESS else "names no job"
        raise VerificationFailed(f"it {which}, and is of the kind {entry.kind}", seq)
    return entry
