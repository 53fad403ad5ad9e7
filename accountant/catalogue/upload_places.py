"""Where uploaded files lie: a folder, or a prefix of an object store that web nodes share.

    folder    draft beside its file, 0600 and locked ── rename
    store     draft without a name, on this machine ── one object, whole or not at all

A name is the SHA-256 of a file and its suffix. What a store's library raises says at most its type.
"""

import contextlib
import errno
import fcntl
import logging
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from accountant.core.errors import NoRoom, UploadsAway
from accountant.core.files.private import sync_folder
from accountant.ledger_log.kept_heads import error_code, is_address
from accountant.results import place_at, problem_of

logger = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: How stores say the same.
_FULL_CODES = ("507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull")
_DRAFT = ".part"
_DRAFT_SECONDS = 60.0  # a younger draft may not be locked yet
_NAMED = re.compile(r"[0-9a-f]{64}\.(csv|jsonl)(\.gz)?|[0-9a-f]{64}\.parquet")


class Draft:
    """A file on its way in, written without a buffer: what is refused later is not written then."""

    def __init__(self, handle: int, path: Path | None = None) -> None:
        self.handle, self.path = handle, path

    def write(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            view = view[os.write(self.handle, view) :]

    def sync(self) -> None:
        os.fsync(self.handle)


class Place(Protocol):
    """A place of uploads. Raises NoRoom where it is full, and UploadsAway."""

    def address(self, name: str) -> str: ...
    def draft(self) -> AbstractContextManager[Draft]:
        """Return a block that takes in a file of which nothing stays unless it is kept."""

    def send(self, draft: Draft, name: str) -> None:
        """Do what takes long of keeping a file, before others wait."""

    def keep(self, draft: Draft, name: str) -> None:
        """Let a draft that was sent lie there under its name, durably, while no sweep runs."""

    def names(self) -> list[str] | None:
        """Return what lies there, drafts too, or None where the place does not."""

    def is_lost(self, name: str) -> bool:
        """Return whether a file that no row knows was left by a process that ended."""

    def problem(self) -> str | None:
        """Return why nothing can be kept there now, or None."""


def place_of(place: Path | str) -> Place:
    """Return the place of uploads that the settings name."""
    return _Objects(str(place)) if is_address(place) else _Folder(Path(place))


def is_named(name: str) -> bool:
    """Return whether a name is one that uploads get."""
    return _NAMED.fullmatch(name) is not None


def remove(address: str) -> None:
    """Destroy an upload, if it is there. Raises UploadsAway."""
    if not is_address(address):
        Path(address).unlink(missing_ok=True)
        return
    with _asking("destroyed"), contextlib.suppress(FileNotFoundError):
        system, path = place_at(address, use_listings_cache=False)
        system.rm_file(path)


class _Folder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def address(self, name: str) -> str:
        return str(self._folder / name)

    @contextlib.contextmanager
    def draft(self) -> Iterator[Draft]:
        """Return a new private file, locked while it is written, and removed unless renamed."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f".{secrets.token_hex(16)}{_DRAFT}"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            with _room():
                yield Draft(handle, path)
        finally:
            path.unlink(missing_ok=True)
            os.close(handle)

    def send(self, draft: Draft, name: str) -> None:
        """Do nothing: a rename takes no time."""

    def keep(self, draft: Draft, name: str) -> None:
        assert draft.path is not None
        draft.path.rename(self._folder / name)
        sync_folder(self._folder)

    def names(self) -> list[str] | None:
        return os.listdir(self._folder) if self._folder.is_dir() else None

    def is_lost(self, name: str) -> bool:
        path = self._folder / name
        try:
            if time.time() - path.stat().st_mtime < _DRAFT_SECONDS:
                return False
            if is_named(name):
                return True
            if not name.endswith(_DRAFT):
                return False
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
        except OSError:
            return False

    def problem(self) -> str | None:
        return None


class _Objects:
    def __init__(self, address: str) -> None:
        self._root = address.rstrip("/")

    @cached_property
    def _store(self) -> tuple[Any, str]:
        system, path = place_at(self._root, use_listings_cache=False)  # others write here too
        return system, path.rstrip("/")

    def _at(self, name: str) -> tuple[Any, str]:
        system, root = self._store
        return system, f"{root}/{name}"

    def address(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextlib.contextmanager
    def draft(self) -> Iterator[Draft]:
        """Return a new file that has no name: nothing of it outlives this process."""
        with tempfile.TemporaryFile(buffering=0) as file, _room():
            yield Draft(file.fileno())

    def send(self, draft: Draft, name: str) -> None:
        with _asking("written"):
            system, path = self._at(name)
            system.put_file(f"/proc/self/fd/{draft.handle}", path)

    def keep(self, draft: Draft, name: str) -> None:
        with _asking("read"):
            system, path = self._at(name)
            is_there = system.exists(path)
        if not is_there:  # a sweep came between
            self.send(draft, name)

    def names(self) -> list[str] | None:
        with _asking("read"):
            system, root = self._store
            try:
                paths = system.ls(root, detail=False)
            except FileNotFoundError:
                return []
        return [path.rsplit("/", 1)[-1] for path in paths]

    def is_lost(self, name: str) -> bool:
        if not is_named(name):
            return False
        with _asking("read"):
            system, path = self._at(name)
            try:
                changed = system.modified(path).timestamp()
            except FileNotFoundError:
                return False
        return bool(time.time() - changed >= _DRAFT_SECONDS)

    def problem(self) -> str | None:
        why = problem_of(self._root)
        return None if why is None else f"uploads can't be kept: {why}"


@contextlib.contextmanager
def _room() -> Iterator[None]:
    """Raise NoRoom where the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise _no_room() from None
        raise


@contextlib.contextmanager
def _asking(what: str) -> Iterator[None]:
    """Raise NoRoom or UploadsAway for whatever the store's library raises."""
    try:
        yield
    except Exception as error:  # each store's library has errors of its own
        if error_code(error) in _FULL_CODES:
            raise _no_room() from None
        logger.warning("uploads can't be %s: %s", what, type(error).__name__)
        raise UploadsAway from None


def _no_room() -> NoRoom:
    return NoRoom("there is no room left to keep this file")
