"""A published log on a folder: extended from ledger entries, signed, cosigned, and asked for
proofs.

    checkpoint       the newest head, with all signatures (notes.py)
    tile/…           the tree and its leaves (tiles.py)
    places/HASH      where the entries of a dataset stand: 8 bytes for each, in order; HASH is of
                     its name

The folder can be served as it is. `places` only says where to look: a proof is made from the tiles.
"""

import fcntl
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from accountant.core.errors import VerificationFailed
from accountant.core.transparency.notes import Head, Key, parse, read_head
from accountant.core.transparency.proofs import leaf, proof_text, read_leaves
from accountant.core.transparency.tiles import Tiles, drop_partial, extend, write_synced
from accountant.core.transparency.witnesses import Ask, LogSigner, WitnessAhead, cosigned

#: (dataset, number, hash) of ledger entries in the order of the log, from a number of entries on.
Entries = Callable[[int], Iterator[tuple[str, int, str]]]
#: A witness: its key, and how it is asked.
Asked = tuple[Key, Ask]

_PLACE = 8


def publish(
    folder: Path, entries: Entries, signer: LogSigner, witnesses: Sequence[Asked] = ()
) -> Head:
    """Extend the log by the entries that it lacks, and replace its checkpoint once every witness
    signed.

    Raises VerificationFailed, with the checkpoint as it was, if the entries do not continue what
    was signed, or a witness saw another tree.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        # a lost folder is made anew from the ledgers, and an older copy goes on from where it ends
        size = 0
        if (folder / "checkpoint").exists():
            published, tiles = checkpoint(folder)
            signer.take_up(published, tiles)
            size = tiles.size
        before = signer.newest
        if size:  # what stands there is what comes from the ledger, and not the log of another
            last = next(tiles.leaves(size - 1))
            named = next(entries(size - 1), None)
            if named is None or leaf(*named) != last:
                raise VerificationFailed(f"entry {size - 1} of the log is not that of the ledgers")
        size = extend(folder, size, _placed(folder, size, entries(size)))
        tiles = Tiles(folder, size)
        note = signer.sign(tiles)
        for key, ask in witnesses:
            try:
                note = cosigned(note, tiles, key, ask, before.size)
            except WitnessAhead as error:
                signer.heed(error.size)
                raise
        write_synced(folder / "checkpoint", note.encode())
        drop_partial(folder)
    return read_head(parse(note)[0])


def checkpoint(folder: Path) -> tuple[str, Tiles]:
    """Return a log's newest checkpoint, as a note, and its tiles. Raises VerificationFailed."""
    try:
        text = (folder / "checkpoint").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise VerificationFailed(f"{folder} holds no checkpoint of a log") from None
    return text, Tiles(folder, read_head(parse(text)[0]).size)


def proof_of(folder: Path, dataset: str, at_most: int) -> tuple[int, str] | None:
    """Return a dataset's newest (number, proof) in the log up to `at_most`, or None."""
    statement, tiles = checkpoint(folder)
    places = _places(folder, dataset)
    data = places.read_bytes() if places.exists() else b""
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


def _placed(folder: Path, size: int, entries: Iterator[tuple[str, int, str]]) -> Iterator[bytes]:
    """Yield the leaves of entries, whose places are noted as they are taken."""
    for place, (dataset, seq, entry_hash) in enumerate(entries, size):
        places = _places(folder, dataset)
        places.parent.mkdir(exist_ok=True)
        with places.open("r+b" if places.exists() else "w+b") as file:
            file.seek(_PLACE * (seq - 1))
            file.write(place.to_bytes(_PLACE, "big"))
        yield leaf(dataset, seq, entry_hash)


def _places(folder: Path, dataset: str) -> Path:
    return folder / "places" / hashlib.sha256(dataset.encode()).hexdigest()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
