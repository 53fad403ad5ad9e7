"""Lines of the log: canonical JSON, each naming the SHA-256 of the line before it.

    header  {"format","heads","log","n","prev","segment"}         the first line of every file
    entry   {"dataset","document","hash","n","prev","seq"}        one entry of one dataset's ledger

`n` counts the entries of all datasets, from 1. `heads` repeats where each dataset stands when a
file begins, so a process that starts reads the newest file alone. `document` is the entry as the
database keeps it.
"""

import hashlib
import json
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from accountant.core.errors import LogUnusable, VerificationFailed
from accountant.core.ledger.canonical_json import canonical, canonical_text
from accountant.core.ledger.hash_chain import GENESIS, EntryKind, digest

FORMAT = "exchequer-log/1"
_HEADER = {"format", "heads", "log", "n", "prev", "segment"}
_ENTRY = {"dataset", "document", "hash", "n", "prev", "seq"}


@dataclass(frozen=True)
class Head:
    """The last entry of a dataset: its number and its hash in the dataset's chain."""

    seq: int = 0
    hash: str = GENESIS


@dataclass(frozen=True)
class Logged:
    """An entry on its way to the log or back: `text` is its document's canonical text."""

    seq: int
    previous: str
    hash: str
    text: str


#: Hexadecimal digits of a head that enter `Position.folded`; 60 bits are a bigint of the database.
FOLDED_DIGITS = 15


@dataclass
class Position:
    """Where a log stands: entries so far, the hash of its last line, and each dataset's head."""

    n: int
    line: str
    heads: MutableMapping[str, Head]
    #: The XOR of the first digits of all heads: one number, by which sets of heads are compared at
    #: a glance.
    folded: int = 0

    def copy(self) -> "Position":
        return Position(self.n, self.line, dict(self.heads), self.folded)

    def draft(self) -> "Position":
        """Return a position that moves on by itself, for `take`: few heads are copied."""
        return Position(self.n, self.line, ChainMap({}, self.heads), self.folded)

    def take(self, draft: "Position") -> None:
        """Move to where a draft of this position stands."""
        assert isinstance(draft.heads, ChainMap)
        self.n, self.line, self.folded = draft.n, draft.line, draft.folded
        self.heads.update(draft.heads.maps[0])

    def move(self, dataset: str, head: Head) -> None:
        """A dataset's head is another one now."""
        before, after = (
            int(each.hash[:FOLDED_DIGITS], 16) for each in (self.heads.get(dataset, Head()), head)
        )
        self.folded ^= before ^ after
        self.heads[dataset] = head


def line_hash(line: bytes) -> str:
    """Return SHA-256, in hex, of a line without its newline."""
    return hashlib.sha256(line).hexdigest()


def ends_with(text: bytes, line: str) -> bool:
    """Return True if whole lines follow one another in `text`, and the last has the hash `line`."""
    *complete_lines, rest = text.split(b"\n")
    hashes = [line_hash(each) for each in complete_lines]
    follow = all(
        before.encode() in each for before, each in zip(hashes, complete_lines[1:], strict=False)
    )
    return not rest and follow and hashes[-1:] == [line]


def header(log: str, segment: int, position: Position) -> bytes:
    """Return the first line of a file."""
    heads = {name: [head.seq, head.hash] for name, head in position.heads.items()}
    values = {"format": FORMAT, "heads": heads, "log": log, "n": position.n, "prev": position.line}
    return canonical(values | {"segment": segment})


def append(position: Position, dataset: str, entry: Logged) -> bytes:
    """Return the next line, for an entry that follows its dataset's head; `position` moves on."""
    name = canonical_text(dataset)
    number = position.n + 1
    # The document is canonical already, and the keys are in order: nothing is encoded a second
    # time.
    line = (
        f'{{"dataset":{name},"document":{entry.text},"hash":"{entry.hash}","n":{number},'
        f'"prev":"{position.line}","seq":{entry.seq}}}'
    ).encode()
    position.n, position.line = number, line_hash(line)
    position.move(dataset, Head(entry.seq, entry.hash))
    return line


def read_header(line: bytes, *, chained: bool = True) -> tuple[str, int, Position]:
    """Return (identity of the log, number of the file, where it begins).

    `chained`: the next line names this one; otherwise it names the line that the header names.
    Raises LogUnusable.
    """
    values = _read(line)
    if set(values) != _HEADER or values["format"] != FORMAT:
        raise LogUnusable("a file begins with something else than a header")
    try:
        before = line_hash(line) if chained else str(values["prev"])
        begins = Position(int(values["n"]), before, {})
        for name, (seq, entry) in values["heads"].items():
            begins.move(name, Head(int(seq), str(entry)))
        return str(values["log"]), int(values["segment"]), begins
    except (TypeError, ValueError, AttributeError):
        raise LogUnusable("the header of a file can't be read") from None


def follow(position: Position, line: bytes, *, thorough: bool = False) -> tuple[str, Logged]:
    """Return the dataset and entry of the line that comes next; `position` moves on.

    `thorough`: the entry's hash is computed too, and the line has to be canonical. Raises
    LogUnusable.
    """
    values = _read(line)
    where = f"line of entry {position.n + 1}"
    if set(values) != _ENTRY:
        raise LogUnusable(f"{where}: it is no entry")
    if values["prev"] != position.line or values["n"] != position.n + 1:
        raise LogUnusable(f"{where}: it does not follow the line before it")
    dataset, document, seq = values["dataset"], values["document"], values["seq"]
    head = position.heads.get(dataset, Head()) if isinstance(dataset, str) else Head()
    if (
        not isinstance(document, dict)
        or seq != head.seq + 1
        or document.get("previous") != head.hash
    ):
        raise LogUnusable(f"{where}: it does not follow entry {head.seq} of {dataset!r}")
    if thorough:
        if _computed(canonical, values) != line:
            raise LogUnusable(f"{where}: it is not canonical")
        if document.get("dataset") != dataset or _computed(digest, document) != values["hash"]:
            raise LogUnusable(f"{where}: it is not entry {seq} of {dataset!r}")
    try:
        position.move(dataset, Head(seq, values["hash"]))
    except (TypeError, ValueError):
        raise LogUnusable(f"{where}: its hash is none") from None
    position.n, position.line = values["n"], line_hash(line)
    return dataset, Logged(
        seq,
        head.hash,
        values["hash"],
        canonical(document).decode() if thorough or document.get("kind") == EntryKind.LOSS else "",
    )


def read_entry(line: bytes, n: int) -> tuple[str, str, int, str]:
    """Return (hash of line, dataset, number, hash) of the line of entry `n`, read by itself.

    Raises LogUnusable.
    """
    values = _read(line)
    if set(values) != _ENTRY or values["n"] != n:
        raise LogUnusable(f"line of entry {n}: it is another one")
    return line_hash(line), values["dataset"], values["seq"], values["hash"]


def _computed(
    compute: Callable[[Mapping[str, Any]], str | bytes], values: Mapping[str, Any]
) -> str | bytes | None:
    """Return what `compute` makes of a line's values; None: they are such as nobody writes."""
    try:
        return compute(values)
    # opened by nothing, no JSON of ours, too deep
    except (VerificationFailed, ValueError, RecursionError):
        return None


def _read(line: bytes) -> Mapping[str, Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise LogUnusable("a line is no JSON object")
    return values
