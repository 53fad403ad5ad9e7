"""Entries that are alike but for their place, time, job and salts: their text, written by filling
these in.

    form = EntryForm(dataset, kind, actor, body)        once: the canonical text, cut where entries
                                                        differ
    form.write(seq, at, job, previous, salt)            each: hashes of openings, and of the whole

`write` gives what `Entry.document` gives, as canonical text and with its digest; a test compares
them.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from accountant.core.ledger import commitments
from accountant.core.ledger.canonical_json import canonical, canonical_text, value_text
from accountant.core.ledger.hash_chain import VERSION, EntryKind, format_time


class EntryForm:
    """Entries of one dataset, kind, actor and body. No REVERSAL: it quotes whole entries."""

    def __init__(self, dataset: str, kind: EntryKind, actor: str, body: Mapping[str, Any]) -> None:
        if kind is EntryKind.REVERSAL:
            raise ValueError("a REVERSAL quotes entries whose private values are hidden too")
        #: What an entry with this body was judged by last, for the writer to compare.
        self.judged_by: object = None
        mark = secrets.token_hex(16)  # a text that no value holds
        #: Of each private value: its place, as bytes that its salt is made of, and its canonical
        #: text.
        self._private: list[tuple[bytes, str]] = []

        def hole(place: tuple[str, ...], value: Any) -> str:
            self._private.append(("/".join(place).encode(), value_text(value)))
            return f"{mark}{len(self._private) - 1}"

        plain = {
            "version": VERSION,
            "dataset": dataset,
            "seq": f"{mark}seq",
            "kind": str(kind),
            "at": f"{mark}at",
            "actor": actor,
            "job": f"{mark}job",
            "body": dict(body),
            "previous": f"{mark}previous",
        }
        text = canonical(commitments.mapped(plain, hole)).decode()
        #: Texts that all entries share, and between them what differs.
        self._parts = re.split(f'"{mark}([a-z]+|[0-9]+)"', text)

    def write(
        self, seq: int, at: datetime, job: str | None, previous: str, salt: bytes
    ) -> tuple[str, str]:
        """(canonical text, hash) of one entry. `salt`: 32 random bytes for this entry alone."""
        shown = {
            "seq": str(seq),
            "at": f'"{format_time(at)}"',
            "job": "null" if job is None else canonical_text(job),
            "previous": canonical_text(previous),
        }
        hidden = dict(shown)
        for number, (place, value) in enumerate(self._private):
            salt_of_place = hashlib.sha256(salt + place).hexdigest()[:32]
            opening = f'{{"salt":"{salt_of_place}","value":{value}}}'
            shown[str(number)] = opening
            hidden[str(number)] = f'{{"sha256":"{hashlib.sha256(opening.encode()).hexdigest()}"}}'
        parts = list(self._parts)
        parts[1::2] = [hidden[name] for name in self._parts[1::2]]
        recorded = hashlib.sha256("".join(parts).encode()).hexdigest()
        parts[1::2] = [shown[name] for name in self._parts[1::2]]
        return "".join(parts), recorded
