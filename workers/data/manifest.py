"""The files that data is: how many, their bytes and hashes, so that a file that appears later is
noticed.

    {"files": 2, "bytes": 48121, "sha256": "…", "list": [["part-0.csv", 24060, "…"], ["part-1.csv",
      …]]}

`sha256` covers the hashes of all files in their order; names don't matter. The list stops after
`LISTED` files, so that the entry of the ledger that holds it stays small.
"""

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar

import fsspec

from accountant.core.errors import DataError
from workers import interruption
from workers.data.addresses import files, names
from workers.data.rows import Held, has_rows

LISTED = 100
_BLOCK = 2**22

UNREADABLE = (
    "the data can't be read as it was registered: its steward can register it as a new version, "
    "which says what is wrong"
)
CHANGED = "the data has {} than when it was registered: add what changed as a new version"

T = TypeVar("T")


def of(address: str) -> dict[str, Any]:
    """Return the manifest of the data at an address. Raises DataError."""
    paths = files(address)
    hashed = []
    for file, path in zip(paths, names(address, paths), strict=True):
        interruption.check()
        try:
            with fsspec.open(file, "rb") as binary:
                sha256 = hashlib.file_digest(binary, "sha256").digest()
                hashed.append((file, path, binary.seek(0, 2), sha256))
        except OSError as error:
            raise DataError(f"a file can't be read: {type(error).__name__}") from None
    return summary(hashed)


def summary(hashed: Iterable[tuple[str, str, int, bytes]]) -> dict[str, Any]:
    """Return the manifest of files that were hashed: address, path, bytes and SHA-256 of each.

    Raises DataError for an empty file, and for two of the same bytes.
    """
    total, size, listed = hashlib.sha256(), 0, []
    first: dict[bytes, str] = {}
    for file, path, length, sha256 in hashed:
        if not length:
            raise DataError(f"{path or 'the file'}: it is empty")
        total.update(sha256)
        size += length
        name = path or file.rstrip("/").rpartition("/")[2]
        listed.append([name, length, sha256.hex()])
        if first.setdefault(sha256, name) != name and has_rows(file):
            same = f"{name!r} and {first[sha256]!r} have the same bytes"
            raise DataError(
                f"{same}, so everybody in them would count twice: take one out of the folder"
            )
    return {
        "files": len(listed),
        "bytes": size,
        "sha256": total.hexdigest(),
        "list": listed[:LISTED],
    }


def fetch(address: str, registered: Mapping[str, Any]) -> list[Held]:
    """Read the files of data once, and return their bytes, which are those that were registered.

    Raises DataError if they are others. Its text names no file: analysts read it.
    """
    try:
        paths = files(address)
        shown = names(address, paths)
    except DataError:
        raise DataError(UNREADABLE) from None
    if len(paths) != registered["files"]:
        raise DataError(CHANGED.format("another number of files"))
    left = registered["bytes"]

    def grows(length: int) -> None:
        nonlocal left
        left -= length
        if left < 0:  # no more than was registered is ever held in memory
            raise DataError(CHANGED.format("other bytes"))

    held, sha256 = hold(paths, shown, io.BytesIO, grows)
    if sha256 != registered["sha256"]:
        raise DataError(CHANGED.format("other bytes"))
    return held


def hold(
    found: Sequence[str],
    shown: Sequence[str],
    place: Callable[[], IO[bytes]],
    grows: Callable[[int], None] = lambda _: None,
    again: bool = False,
) -> tuple[list[Held], str]:
    """Read files once into places of this process alone; returns them, and the SHA-256 of all.

    Args:
        place: makes an empty file for the bytes of one.
        grows: is told how many bytes were read, and may raise.
        again: their rows may be read several times.
    """
    total, held = hashlib.sha256(), []
    for file, name in zip(found, shown, strict=True):
        content, own = place(), hashlib.sha256()
        try:
            with fsspec.open(file, "rb") as binary:
                while block := binary.read(_BLOCK):
                    interruption.check()
                    own.update(block)
                    content.write(block)
                    grows(len(block))
        except OSError:
            raise DataError(UNREADABLE) from None
        content.flush()
        total.update(own.digest())
        held.append(Held(file, name, content, again, own.digest()))
    return held, total.hexdigest()


def check(address: str, registered: Mapping[str, Any]) -> None:
    """Raise DataError unless the data is what was registered, naming no file: analysts read it."""
    try:
        found = of(address)
    except DataError:
        raise DataError(UNREADABLE) from None
    for field, words in (("files", "another number of files"), ("sha256", "other bytes")):
        if found[field] != registered[field]:
            raise DataError(CHANGED.format(words))


def unchanged(address: str, registered: Mapping[str, Any], found: Iterator[T]) -> Iterator[T]:
    """Yield what is read of data, and raise DataError at the end if its files changed meanwhile."""
    yield from found
    check(address, registered)
