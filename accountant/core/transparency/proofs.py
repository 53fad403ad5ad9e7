"""What the log says of a dataset's ledger: leaves, and proofs that travel with an export.

A leaf is the canonical text of {dataset, hash, seq} of an entry. An export carries the proof of its
last entry, whose hash stands for every entry before it. That no other history of the dataset is in
the same log, only the log's leaves show: `check_only_history` goes through all of them.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from accountant.core.errors import VerificationFailed
from accountant.core.ledger.canonical_json import canonical
from accountant.core.transparency.merkle import check_consistency, check_inclusion, leaf_hash
from accountant.core.transparency.notes import (
    Head,
    Key,
    from_base64,
    read_head,
    to_base64,
    verified,
)
from accountant.core.transparency.tiles import Tiles

_HEADER = "c2sp.org/tlog-proof@v1"
_INDEX = re.compile(r"0|[1-9][0-9]{0,18}")
#: The clock of a witness may be so much behind that of the service.
_CLOCK_SECONDS = 300


def leaf(dataset: str, seq: int, entry_hash: str) -> bytes:
    """Return the leaf of a ledger entry."""
    return canonical({"dataset": dataset, "seq": seq, "hash": entry_hash})


# --- a proof with its checkpoint (C2SP tlog-proof) ----------------------------------------------


def proof_text(tiles: Tiles, index: int, checkpoint: str) -> str:
    """Return the proof that leaf `index` stands in the log of this checkpoint, from the tiles."""
    hashes = "".join(f"{to_base64(sibling)}\n" for sibling in tiles.inclusion(index))
    return f"{_HEADER}\nindex {index}\n{hashes}\n{checkpoint}"


@dataclass(frozen=True)
class Logged:
    """A leaf that a checkpoint proves: its place, the head, its signers and witnesses' times."""

    index: int
    head: Head
    signed: dict[Key, int | None]


def read_proof(text: str) -> tuple[int, list[bytes], str]:
    """(index, hashes, checkpoint) of a proof. Raises VerificationFailed."""
    stated, _, checkpoint = text.partition("\n\n")
    lines = [part for part in stated.split("\n") if not part.startswith("extra ")]
    if len(lines) < 2 or lines[0] != _HEADER:
        raise VerificationFailed("this is no proof of a log")
    index = lines[1].removeprefix("index ")
    try:
        hashes = [from_base64(line) for line in lines[2:]]
    except ValueError:
        raise VerificationFailed("the proof is no base64") from None
    if lines[1] == index or _INDEX.fullmatch(index) is None:
        raise VerificationFailed("the proof names no place in the log")
    return int(index), hashes, checkpoint


def check_head(
    checkpoint: str, log: Key, witnesses: Sequence[Key] = ()
) -> tuple[Head, dict[Key, int | None]]:
    """Return the head that the log and each witness signed. Raises VerificationFailed."""
    text, signed = verified(checkpoint, [log, *witnesses])
    for key in (log, *witnesses):
        if key not in signed:
            raise VerificationFailed(f"the checkpoint is not signed by {key.name}")
    head = read_head(text)
    if head.origin != log.name:
        raise VerificationFailed(f"the checkpoint is of {head.origin!r:.60}, not of {log.name}")
    return head, signed


def check_logged(proof: str, entry: bytes, log: Key, witnesses: Sequence[Key] = ()) -> Logged:
    """Return the place of a leaf in a checkpoint signed by all keys; else VerificationFailed."""
    index, hashes, checkpoint = read_proof(proof)
    head, signed = check_head(checkpoint, log, witnesses)
    check_inclusion(leaf_hash(entry), index, head.size, head.root, hashes)
    return Logged(index, head, signed)


# --- the whole log ------------------------------------------------------------------------------


def check_only_history(
    tiles: Tiles, head: Head, dataset: str, hashes: Sequence[str] | None = None
) -> int:
    """Return the number of entries of a dataset in a log, whose tiles are those of the head, each
    the next one.

    `hashes`: of the dataset's entries in order, as an export has them; the log may have more after
    them. Raises VerificationFailed.
    """
    if (tiles.size, tiles.root()) != (head.size, head.root):
        raise VerificationFailed("the tiles of the log are not those of its checkpoint")
    tiles.check()
    matches = 0
    for number, (named, seq, entry_hash) in enumerate(read_leaves(tiles.leaves())):
        if named != dataset:
            continue
        matches += 1
        if seq != matches:
            raise VerificationFailed(
                f"leaf {number} of the log is entry {seq} of {dataset!r}, and entry {matches} is "
                "next: the log has two histories of it, or a gap"
            )
        if hashes is not None and matches <= len(hashes) and entry_hash != hashes[matches - 1]:
            raise VerificationFailed(f"the log has another entry {matches} of {dataset!r}")
    if hashes is not None and matches < len(hashes):
        raise VerificationFailed(
            f"the log has {matches} entries of {dataset!r}, the ledger {len(hashes)}"
        )
    return matches


def read_leaves(leaves: Iterable[bytes]) -> Iterable[tuple[str, int, str]]:
    """(dataset, number, hash) of each leaf. Raises VerificationFailed."""
    for place, leaf_text in enumerate(leaves):
        try:
            stated = json.loads(leaf_text)
            dataset, seq, entry_hash = stated["dataset"], stated["seq"], stated["hash"]
            whole = leaf(dataset, seq, entry_hash) == leaf_text and type(seq) is int
        except (ValueError, TypeError, KeyError):
            whole = False
        if not whole:
            raise VerificationFailed(f"leaf {place} of the log is no entry of a ledger")
        yield dataset, seq, entry_hash


# --- what an export says of its place in a log --------------------------------------------------


@dataclass(frozen=True)
class Demands:
    """What an auditor asks of a log: its key, witnesses who must have signed, a head known from
    elsewhere.

    `folder`: the log's files, to prove that both heads are of one log, which has one history of the
    dataset.
    """

    log: Key
    witnesses: Sequence[Key] = ()
    checkpoint: str | None = None
    folder: Path | None = None


def check_export(
    dataset: str,
    hashes: bytes | bytearray,
    stated: object,
    asked: Demands,
    at: datetime | None = None,
) -> tuple[int, Logged]:
    """(number, place) of the newest entry of a verified export that the log is proved to hold.

    `hashes`: 32 bytes for each entry; `stated`: the export's {"seq", "proof"}, of an entry written
    at `at`. Raises VerificationFailed.
    """
    if not isinstance(stated, dict) or type(stated.get("seq")) is not int:
        raise VerificationFailed("the export has no proof of a log")
    seq, proof = stated["seq"], stated.get("proof")
    if not 0 < seq <= len(hashes) // 32 or not isinstance(proof, str):
        raise VerificationFailed("the export's proof of a log is of no entry of it")
    in_order = [hashes[32 * at : 32 * at + 32].hex() for at in range(seq)]
    logged = check_logged(proof, leaf(dataset, seq, in_order[-1]), asked.log, asked.witnesses)
    for key, time in logged.signed.items():
        if at is not None and time is not None and time + _CLOCK_SECONDS < at.timestamp():
            raise VerificationFailed(
                f"{key.name} signed the log's head before entry {seq} was written"
            )
    newest = logged.head
    if asked.checkpoint is not None:
        verified_head, _ = check_head(asked.checkpoint, asked.log, asked.witnesses)
        _check_same_log(verified_head, newest, asked.folder)
        newest = max(verified_head, newest, key=lambda head: head.size)
    if asked.folder is not None:
        check_only_history(Tiles(asked.folder, newest.size), newest, dataset, in_order)
    return seq, logged


def _check_same_log(known: Head, stated: Head, folder: Path | None) -> None:
    first, second = sorted((known, stated), key=lambda head: head.size)
    if first.size == second.size and first.root != second.root:
        raise VerificationFailed(f"the log shows two trees of {first.size:,} entries")
    if first == second:
        return
    if folder is None:
        raise VerificationFailed(
            f"the export's checkpoint is of {stated.size:,} entries, yours of {known.size:,}: "
            "only the log's files prove that they are of one log"
        )
    proof = Tiles(folder, second.size).consistency(first.size)
    check_consistency(first.size, second.size, first.root, second.root, proof)
