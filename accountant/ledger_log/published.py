"""Where the log is published: a folder, or an address of an object store that web nodes share.

    ADDRESS/checkpoint, tile/…, places/…, key    the files of a folder, each an object

Stores have no lock: a tile is created with If-None-Match, and of two signers at once the kept heads
(kept_heads.py) let one sign. Who replaces a newer checkpoint by its own publishes again at once.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from accountant.core.errors import LogUnusable
from accountant.core.transparency.tiles import Files, Folder
from accountant.ledger_log.kept_heads import create_object, is_address, read_object

#: Each call of the store ends after this.
CALL_SECONDS = 10.0


def files_at(place: Path | str) -> Files:
    """Return the files of the log that is published at a place; nothing is read yet."""
    return _Objects(str(place)) if is_address(place) else Folder(Path(place))


class _Objects:
    """The files at one address. Raises LogUnusable for whatever the store's library raises."""

    def __init__(self, address: str) -> None:
        self._address = address.rstrip("/")

    def __str__(self) -> str:
        return self._address

    @cached_property
    def _store(self) -> tuple[Any, str]:
        from accountant.results import place_at  # fsspec is where an address names it

        system, path = place_at(self._address, use_listings_cache=False)
        return system, path.rstrip("/")

    @contextmanager
    def _asking(self, name: str, what: str) -> Iterator[tuple[Any, str]]:
        """Yield the store, and an object's path in it."""
        try:
            system, root = self._store
            yield system, f"{root}/{name}"
        except Exception as error:  # each store's library has errors of its own
            named = error if isinstance(error, ImportError) else type(error).__name__
            raise LogUnusable(f"what is published of it can't be {what}: {named}") from None

    def read(self, name: str) -> bytes | None:
        """Return an object, or None if it is not there."""
        with self._asking(name, "read") as (system, path):
            return read_object(system, path, timeout=CALL_SECONDS)

    def create(self, name: str, data: bytes) -> bool:
        """Like Files.create: two who write at once never replace each other's."""
        with self._asking(name, "written") as (system, path):
            return create_object(system, path, data, timeout=CALL_SECONDS)

    def replace(self, name: str, data: bytes) -> None:
        """Write an object in the place of another."""
        with self._asking(name, "written") as (system, path):
            system.pipe_file(path, data, timeout=CALL_SECONDS)

    def write_at(self, name: str, at: int, data: bytes) -> None:
        """Write within an object: it is written anew."""
        kept = self.read(name) or b""
        self.replace(name, kept[:at].ljust(at, b"\0") + data + kept[at + len(data) :])

    def drop_partial(self, filled: Sequence[str]) -> None:
        """Remove what a listing names of those; what it leaves out only takes room."""
        for name in filled:
            with self._asking(f"{name}.p", "tidied up") as (system, path):
                try:
                    parts = system.ls(path, detail=False, timeout=CALL_SECONDS)
                except FileNotFoundError:
                    continue
                for part in parts:
                    system.rm_file(part)

    def alone(self) -> AbstractContextManager[object]:
        """Return a block that keeps nobody out."""
        return nullcontext()
