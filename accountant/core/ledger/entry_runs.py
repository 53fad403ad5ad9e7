"""What can be known of an entry without those before it, gathered for entries that follow each other.

Taking a text apart and hashing it is most of a verification's work, and needs nothing but the text: any
process may do it. What is left of a RESERVE, COMMIT or VOID is small, and the verifier takes it in order
(verifier.py). What is in no run has to be judged in full, from its text.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from accountant.core.ledger import entry_texts
from accountant.core.ledger.entry_texts import EntryText
from accountant.core.ledger.lineage import output_key
from accountant.core.ledger.reservations import SHAPES
from accountant.core.ledger.rules import People, people

#: The key of its shape, its time and job, the people of a RESERVE, the key of an output that it publishes.
Slots = tuple[bytes, str, str, People | None, bytes | None]
#: Bytes of a hash.
HASH = 32


class Run(NamedTuple):
    """Entries whose hashes are right, each after the one before it by number, hash and time.

    `line`: where the first stands in its block; `seq` and `previous` are the first's own; `hashes`: 32 bytes
    for each. Plain values only, so that one process can hand them to another.
    """

    line: int
    seq: int
    previous: str
    hashes: bytes
    entries: list[Slots]


def runs(lines: Sequence[str]) -> list[Run]:
    """The runs among lines of a JSON Lines export, in order."""
    made: list[Run] = []
    hashes = bytearray()
    last: EntryText | None = None
    for place, line in enumerate([*lines, ""]):
        found = split(line)
        text = None if found is None else found[0]
        entry = None if found is None or text is None else slots(text, found[2])
        if last is not None and (entry is None or text is None or not _follows(text, last)):
            made[-1] = made[-1]._replace(hashes=bytes(hashes))
            hashes.clear()
            last = None
        if entry is None or text is None:
            continue
        if last is None:
            made.append(Run(place, text.seq, text.previous, b"", []))
        made[-1].entries.append(entry)
        hashes += bytes.fromhex(text.hash)
        last = text
    return made


def _follows(text: EntryText, last: EntryText) -> bool:
    return text.previous == last.hash and text.seq == last.seq + 1 and text.at >= last.at


def run_of(text: EntryText, recorded_hash: str) -> Run | None:
    """A run of one entry; None: it has to be judged in full."""
    entry = slots(text, recorded_hash)
    return None if entry is None else Run(0, text.seq, text.previous, bytes.fromhex(text.hash), [entry])


_HASH = re.compile(r',"hash":"([0-9a-f]{64})"\}\r?\n?')


def split(line: str) -> tuple[EntryText, str, str] | None:
    """A line of a JSON Lines export: its entry taken apart, that entry's text, and the hash it states."""
    found = _HASH.search(line, max(0, len(line) - 80))
    if found is None or found.end() != len(line):
        return None
    text = line[: found.start()] + "}"
    parts = entry_texts.read(text)
    return None if parts is None else (parts, text, found[1])


def slots(text: EntryText, recorded_hash: str) -> Slots | None:
    """What is left to look at of an entry beside its place; None: it has to be judged in full."""
    if text.hash != recorded_hash or not isinstance(text.actor, str):
        return None
    named, output = None, None
    if text.kind == "RESERVE":
        named = people(text.actor, text.approval)
        if named is None:
            return None
    elif text.output is not None:
        output = output_key(text.job, text.output)
    return shape_key(text.shape), text.at, text.job, named, output


@lru_cache(maxsize=SHAPES)
def shape_key(shape: str) -> bytes:
    """What stands for a shape: its SHA-256."""
    return hashlib.sha256(shape.encode()).digest()
