"""A published log: extended from ledger entries, signed, cosigned, and asked for proofs.

    checkpoint       the newest head, with all signatures (notes.py)
    tile/…           the tree and its leaves (tiles.py)
    places/HASH      where the entries of a dataset stand: 8 bytes for each, in order; HASH is of
                     its name

The files can be served as they are. `places` only says where to look: a proof is made from the
tiles. They are written before the checkpoint that names them.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from accountant.core.errors import VerificationFailed
from accountant.core.transparency.notes import Head, Key, parse, read_head
from accountant.core.transparency.proofs import leaf, proof_text, read_leaves
from accountant.core.transparency.tiles import Files, Tiles, extend, files_of, filled
from accountant.core.transparency.witnesses import Ask, LogSigner, WitnessAhead, cosigned

#: (dataset, number, hash) of ledger entries in the order of the log, from a number of entries on.
Entries = Callable[[int], Iterator[tuple[str, int, str]]]
#: A witness: its key, and how it is asked.
Asked = tuple[Key, Ask]

_PLACE = 8


def publish(
    place: Path | Files, entries: Entries, signer: LogSigner, witnesses: Sequence[Asked] = ()
) -> Head:
    """Extend the log by the entries that it lacks, and replace its checkpoint once every witness
    signed.

    Raises VerificationFailed, with the checkpoint as it was, if the entries do not continue what
    was signed, or a witness saw another tree.
    """
    files = files_of(place)
    with files.alone():
        # a lost place is made anew from the ledgers, and an older copy goes on from where it ends
        begun = 0
        if files.read("checkpoint") is not None:
            published, tiles = checkpoint(files)
            signer.take_up(published, tiles)
            begun = tiles.size
        before = signer.newest
        if begun:  # what stands there is what comes from the ledger, and not the log of another
            last = next(tiles.leaves(begun - 1))
            named = next(entries(begun - 1), None)
            if named is None or leaf(*named) != last:
                raise VerificationFailed(f"entry {begun - 1} of the log is not that of the ledgers")
        places: dict[str, tuple[int, bytearray]] = {}
        size = extend(files, begun, _placed(places, begun, entries(begun)))
        for dataset, (first, data) in places.items():
            files.write_at(_places(dataset), _PLACE * (first - 1), bytes(data))
        tiles = Tiles(files, size)
        try:
            note = signer.sign(tiles)
        except VerificationFailed:  # without a lock, not for want of entries
            if before.size <= size < signer.newest.size:
                raise VerificationFailed("another signer signed this log meanwhile") from None
            raise
        for key, ask in witnesses:
            try:
                note = cosigned(note, tiles, key, ask, before.size)
            except WitnessAhead as error:
                signer.heed(error.size)
                raise
        files.replace("checkpoint", note.encode())
        files.drop_partial(filled(begun, size))
    return read_head(parse(note)[0])


def checkpoint(place: Path | Files) -> tuple[str, Tiles]:
    """Return a log's newest checkpoint, as a note, and its tiles. Raises VerificationFailed."""
    files = files_of(place)
    try:
        text = (files.read("checkpoint") or b"").decode()
    except (OSError, UnicodeDecodeError):
        text = ""
    if not text:
        raise VerificationFailed(f"{place} holds no checkpoint of a log")
    return text, Tiles(files, read_head(parse(text)[0]).size)


def proof_of(log: Path | Files, dataset: str, at_most: int) -> tuple[int, str] | None:
    """Return a dataset's newest (number, proof) in the log up to `at_most`, or None."""
    files = files_of(log)
    statement, tiles = checkpoint(files)
    data = files.read(_places(dataset)) or b""
    for seq in range(min(at_most, len(data) // _PLACE), 0, -1):
        place = int.from_bytes(data[_PLACE * (seq - 1) : _PLACE * seq], "big")
        if place < tiles.size:  # later ones are not signed yet
            ((named, number, _),) = read_leaves([next(tiles.leaves(place))])
            if (named, number) != (dataset, seq):
                raise VerificationFailed(
                    f"leaf {place} of the log is not entry {seq} of {dataset!r}"
                )
            return seq, proof_text(tiles, place, statement)
    return None


def _placed(
    places: dict[str, tuple[int, bytearray]], size: int, entries: Iterator[tuple[str, int, str]]
) -> Iterator[bytes]:
    """Yield the leaves of entries. `places` gets each dataset's first number, and from there on
    the places of its entries, which follow one another.
    """
    for place, (dataset, seq, entry_hash) in enumerate(entries, size):
        places.setdefault(dataset, (seq, bytearray()))[1].extend(place.to_bytes(_PLACE, "big"))
        yield leaf(dataset, seq, entry_hash)


def _places(dataset: str) -> str:
    return f"places/{hashlib.sha256(dataset.encode()).hexdigest()}"
