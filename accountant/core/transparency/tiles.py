"""A log's tree and entries as files (C2SP tlog-tiles): whoever has the folder can make every proof.

    tile/L/N           256 hashes, each the root of 256^L leaves, in a row
    tile/entries/N     256 entries, each after its length in two bytes
    …/N.p/W            the same of the W (under 256) that there are yet

N is written in groups of three digits, all but the last after an "x". Files never change: a wider
one is a new file, and a full one replaces those that were part of it.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from accountant.core.errors import VerificationFailed
from accountant.core.files.private import sync_folder
from accountant.core.transparency.merkle import (
    EMPTY,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root_of,
    split,
)

WIDTH, HASH = 256, 32
_HEIGHT = 8  # levels of the tree in a tile
_LONGEST = 0xFFFF


def tile_path(level: int | str, number: int, width: int = WIDTH) -> str:
    """Return the path of a tile (level) or bundle ("entries"); a partial one has its width."""
    digits = f"{number % 1000:03}"
    while number := number // 1000:
        digits = f"x{number % 1000:03}/{digits}"
    return f"tile/{level}/{digits}" + ("" if width == WIDTH else f".p/{width}")


class Files(Protocol):
    """The files of a published log, by names with slashes. One that is written is there whole."""

    def read(self, name: str) -> bytes | None: ...
    def create(self, name: str, data: bytes) -> bool:
        """Return whether a file was created; False if it is there."""

    def replace(self, name: str, data: bytes) -> None: ...
    def write_at(self, name: str, at: int, data: bytes) -> None:
        """Write within a file, made if it is not there, which nobody takes as proved."""

    def drop_partial(self, filled: Sequence[str]) -> None:
        """Remove partial tiles whose full one is there: of those `filled` now, at least."""

    def alone(self) -> AbstractContextManager[object]:
        """Return a block in which nobody else publishes, where the place has locks."""


class Tiles:
    """A log's files, read as the tree of `size` leaves: a checkpoint says which."""

    def __init__(self, place: Path | Files, size: int) -> None:
        self._files, self.size = files_of(place), size
        #: The hashes of a tile, by level and number.
        self.hashes = lru_cache(maxsize=64)(self._read_tile)

    def root(self) -> bytes:
        """Return the root of the tree."""
        return self.subtree(0, self.size) if self.size else EMPTY

    def subtree(self, start: int, end: int) -> bytes:
        """Return the root of the leaves from `start` up to `end`, which is a node of the tree."""
        size = end - start
        if size & (size - 1):
            middle = start + split(size)
            return node_hash(self.subtree(start, middle), self.subtree(middle, end))
        level, height = divmod(size.bit_length() - 1, _HEIGHT)
        first = start >> (_HEIGHT * level)
        at = first % WIDTH
        hashes = self.hashes(level, first // WIDTH)
        return root_of(
            [hashes[HASH * index : HASH * index + HASH] for index in range(at, at + (1 << height))]
        )

    def inclusion(self, index: int) -> list[bytes]:
        """Return the proof that leaf `index` stands in this tree."""
        return inclusion_proof(self.subtree, index, self.size)

    def consistency(self, first: int) -> list[bytes]:
        """Return the proof that this tree continues that of its `first` leaves."""
        return consistency_proof(self.subtree, first, self.size)

    def leaves(self, start: int = 0) -> Iterator[bytes]:
        """Yield the entries from number `start` on, each checked against its hash in the tree."""
        for number in range(start // WIDTH, (self.size + WIDTH - 1) // WIDTH):
            width = min(WIDTH, self.size - number * WIDTH)
            hashes = self.hashes(0, number)
            entries = list(unbundled(self._read(tile_path("entries", number, width)), width))
            for at, entry in enumerate(entries):
                if leaf_hash(entry) != hashes[HASH * at : HASH * at + HASH]:
                    raise VerificationFailed(
                        f"entry {number * WIDTH + at} of the log is not that of its tree"
                    )
                if number * WIDTH + at >= start:
                    yield entry

    def check(self) -> None:
        """Raise VerificationFailed unless the entries are the tiles', and the root is theirs."""
        grown = Frontier()
        for entry in self.leaves():
            grown.add(leaf_hash(entry))
        if grown.root() != self.root():
            raise VerificationFailed("the tiles of the log are not those of its entries")

    def _read_tile(self, level: int, number: int) -> bytes:
        have = self.size >> (_HEIGHT * level)
        width = min(WIDTH, have - number * WIDTH)
        hashes = self._read(tile_path(level, number, width))
        if len(hashes) != HASH * width:
            raise VerificationFailed(f"{tile_path(level, number, width)} has {len(hashes)} bytes")
        return hashes

    def _read(self, path: str) -> bytes:
        """Return a file's bytes; a partial one's also from the full one that replaced it."""
        for name in (path, path.partition(".p/")[0]):
            data = self._files.read(name)
            if data is None:
                continue
            if name != path and "/entries/" not in path:
                return data[: HASH * int(path.rpartition("/")[2])]
            return data
        raise VerificationFailed(f"the log has no {path}")


class Frontier:
    """The root of a growing list of leaves: one hash for each bit of their number."""

    def __init__(self) -> None:
        self._full: list[tuple[int, bytes]] = []

    def add(self, leaf: bytes) -> None:
        size = 1
        while self._full and self._full[-1][0] == size:
            leaf, size = node_hash(self._full.pop()[1], leaf), 2 * size
        self._full.append((size, leaf))

    def root(self) -> bytes:
        running = EMPTY
        for place, (_, peak) in enumerate(reversed(self._full)):
            running = node_hash(peak, running) if place else peak
        return running


def bundled(entries: Iterable[bytes]) -> bytes:
    """Return entries as a bundle holds them."""
    bundle = bytearray()
    for entry in entries:
        if len(entry) > _LONGEST:
            raise ValueError(f"an entry of {len(entry)} bytes: a bundle holds at most {_LONGEST}")
        bundle += len(entry).to_bytes(2, "big") + entry
    return bytes(bundle)


def unbundled(data: bytes, width: int) -> Iterator[bytes]:
    """Yield the first `width` entries of a bundle. Raises VerificationFailed."""
    at = 0
    for _ in range(width):
        size = int.from_bytes(data[at : at + 2], "big")
        entry = data[at + 2 : at + 2 + size]
        if at + 2 > len(data) or len(entry) != size:
            raise VerificationFailed("a bundle of the log is cut off")
        yield entry
        at += 2 + size


# --- writing ------------------------------------------------------------------------------------


def extend(place: Path | Files, size: int, leaves: Iterable[bytes]) -> int:
    """Write the tiles of a log of `size` leaves and these after them; returns their number.

    The files are durable before it returns. A file that is there with other bytes is refused, by
    VerificationFailed: two histories in one place.
    """
    files = files_of(place)
    tiles = Tiles(files, size)
    rows: list[bytearray] = []  # of each level, the hashes of its last tile
    while size >> (_HEIGHT * len(rows)):
        level = len(rows)
        have = size >> (_HEIGHT * level)
        rows.append(bytearray(tiles.hashes(level, have // WIDTH) if have % WIDTH else b""))
    entries = list(tiles.leaves(size - size % WIDTH)) if size % WIDTH else []
    for leaf in leaves:
        entries.append(leaf)
        _push(files, rows, 0, size, leaf_hash(leaf))
        size += 1
        if size % WIDTH == 0:
            _write(files, tile_path("entries", size // WIDTH - 1), bundled(entries))
            entries = []
    if entries:
        _write(files, tile_path("entries", size // WIDTH, len(entries)), bundled(entries))
    for level, row in enumerate(rows):
        if row:
            number = (size >> (_HEIGHT * level)) // WIDTH
            _write(files, tile_path(level, number, len(row) // HASH), bytes(row))
    return size


def _push(files: Files, rows: list[bytearray], level: int, size: int, found: bytes) -> None:
    """Add a hash to a level's last tile; a full tile goes on as one hash of the next level."""
    if level == len(rows):
        rows.append(bytearray())
    row = rows[level]
    row += found
    if len(row) == HASH * WIDTH:
        number = (size >> (_HEIGHT * level)) // WIDTH
        _write(files, tile_path(level, number), bytes(row))
        whole = root_of([bytes(row[at : at + HASH]) for at in range(0, len(row), HASH)])
        row.clear()
        _push(files, rows, level + 1, size, whole)


def _write(files: Files, path: str, data: bytes) -> None:
    """Write a file of the log; one that is there must be the same."""
    if not files.create(path, data) and files.read(path) != data:
        raise VerificationFailed(f"the log has another {path} already")


def filled(before: int, size: int) -> list[str]:
    """Return the tiles and bundles of which a tree of `before` leaves had a part, and one of
    `size` leaves the whole.
    """
    names: list[str] = []
    for level in range((size.bit_length() + _HEIGHT - 1) // _HEIGHT):
        had, has = before >> (_HEIGHT * level), size >> (_HEIGHT * level)
        if had % WIDTH and has // WIDTH > had // WIDTH:
            levels = (level,) if level else (0, "entries")
            names += [tile_path(each, had // WIDTH) for each in levels]
    return names


def write_synced(target: Path, data: bytes) -> None:
    """Replace a file as a whole, so that it is on the disk, old or new, whatever happens."""
    part = target.with_name(f"{target.name}.new")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(target)
    sync_folder(target.parent)


def drop_partial(folder: Path) -> None:
    """Remove partial tiles and bundles whose full one is there."""
    for path in list((folder / "tile").rglob("*.p")):
        if re.fullmatch(r"\d{3}\.p", path.name) and path.with_suffix("").exists():
            shutil.rmtree(path)


class Folder:
    """A published log on a folder, which can be served as it is. Files are on the disk once they
    are written, but for `write_at`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, or None if it is not there."""
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def create(self, name: str, data: bytes) -> bool:
        """Like Files.create, under the lock."""
        if (self._folder / name).exists():
            return False
        self.replace(name, data)
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Write a file in the place of another."""
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_synced(target, data)

    def write_at(self, name: str, at: int, data: bytes) -> None:
        """Write within a file."""
        target = self._folder / name
        target.parent.mkdir(exist_ok=True)
        with target.open("r+b" if target.exists() else "w+b") as file:
            file.seek(at)
            file.write(data)

    def drop_partial(self, filled: Sequence[str]) -> None:
        """Remove all partial tiles whose full one is there, `filled` now or before."""
        del filled  # the folder is searched
        drop_partial(self._folder)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Return a block under the folder's lock."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def files_of(place: Path | Files) -> Files:
    """Return the files of a published log: those of a folder, or whatever they lie on."""
    return Folder(place) if isinstance(place, Path) else place
