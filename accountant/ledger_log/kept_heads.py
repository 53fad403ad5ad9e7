"""Signed heads in an object store: an object for each, created once and never replaced.

    ADDRESS/<SHA-256 of the log's name>/<size / 4096>/<size>.json    written with If-None-Match: *

Whoever may create objects there and not replace them, as the signer, can't take a head back. A
backup of the database, its log or a disk does not hold them.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from accountant.core.errors import VerificationFailed
from accountant.core.transparency.merkle import EMPTY, check_consistency
from accountant.core.transparency.notes import Head
from accountant.core.transparency.witnesses import Heads, KeptHeads

logger = logging.getLogger(__name__)

#: Sizes whose objects share a folder: so few are listed to find the newest.
_TOGETHER = 4096
#: What witnesses saw has a folder beside those of logs.
_WITNESSED = "witnessed"
#: How stores say that an object is there, or is just being created.
_THERE = ("PreconditionFailed", "412", "ConditionalRequestConflict", "409")

#: By address, what was read there last: heads only move on, so it holds while the store is away.
_last_read: dict[str, list[tuple[Head, str | None]]] = {}


def is_address(place: object) -> bool:
    """Return whether a place is an address of an object store, and no folder."""
    return isinstance(place, str) and "://" in place


def kept_heads(place: Path | str) -> Heads:
    """Return the heads that are kept in a folder, or at an address of an object store."""
    return KeptObjects(str(place)) if is_address(place) else KeptHeads(Path(place))


def create_object(system: Any, path: str, content: bytes, **options: Any) -> bool:
    """Return whether an object was created; False if it is there, or is just being created."""
    try:
        system.pipe_file(path, content, mode="create", **options)
    except OSError as error:
        if isinstance(error, FileExistsError) or error_code(error) in _THERE:
            return False
        raise
    return True


def read_object(system: Any, path: str, **options: Any) -> bytes | None:
    """Return an object, or None if it is not there. Raises FileNotFoundError for a lost bucket."""
    try:  # with a place to begin at, it is not looked up before it is read
        content: bytes = system.cat_file(path, start=0, **options)
    except FileNotFoundError as error:
        if error_code(error) == "NoSuchBucket":
            raise
        return None
    return content


def error_code(error: Exception) -> object:
    """Return what a server that speaks S3 calls an error, or None."""
    return getattr(error.__cause__, "response", {}).get("Error", {}).get("Code")


class KeptObjects:
    """The heads of logs that somebody signed, in an object store."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")

    @cached_property
    def _store(self) -> tuple[Any, str]:
        from accountant.results import place_at  # fsspec is where an address names it

        system, path = place_at(self.address, use_listings_cache=False)
        return system, path.rstrip("/")

    def newest(self, origin: str) -> Head:
        """Return the newest head signed of a log; if none was signed, that of no leaves."""
        head = self._newest(_name(origin))
        return Head(origin, 0, EMPTY) if head is None else head[0]

    def all(self) -> Iterator[tuple[Head, str | None]]:
        """Yield the newest head of each log, and the digest of its last leaf where that was kept.

        While the store is away, these are what this process read last. Raises OSError if it never
        did.
        """
        try:
            logs = [self._newest(name) for name in self._names()]
            _last_read[self.address] = [head for head in logs if head is not None]
        except Exception as error:
            # each store's library has errors of its own
            if self.address not in _last_read:
                raise OSError(f"{type(error).__name__} at {self.address}") from None
            logger.warning("signed heads can't be read now: %s", type(error).__name__)
        yield from _last_read[self.address]

    @contextmanager
    def locked(self, origin: str) -> Iterator[Head]:
        """Return the newest head. No lock is held: `advance` finds out whether another one came."""
        yield self.newest(origin)

    def advance(
        self, kept: Head, head: Head, proof: Sequence[bytes], leaf: str | None = None
    ) -> None:
        """Keep a head that continues the one that is kept, like KeptHeads.advance.

        Raises VerificationFailed, too, if somebody else kept one since: of two signers at once at
        most one signs.
        """
        if kept.origin != head.origin:
            raise VerificationFailed(f"the log is {head.origin!r:.60}, not {kept.origin!r:.60}")
        check_consistency(kept.size, head.size, kept.root, head.root, proof)
        if head == kept:
            return
        stated = {"origin": head.origin, "size": head.size, "root": head.root.hex()}
        stated |= {} if leaf is None else {"leaf": leaf}
        name = _name(head.origin)
        self._create(name, head.size, stated)
        since = [group for group in self._list(name) if group >= self._group(kept.size)]
        sizes = [size for group in since for size in self._sizes(name, group)]
        if [size for size in sizes if size > kept.size] != [head.size]:
            raise VerificationFailed("another signer signed this log meanwhile")

    def witnessed(self, origin: str, size: int) -> None:
        """Keep how many entries a witness saw."""
        self._create(_WITNESSED, size, {"origin": origin, "size": size, "root": ""})

    # --- objects ----------------------------------------------------------------------------------

    def _create(self, name: str, size: int, stated: dict[str, Any]) -> None:
        """Create a head's object. Raises VerificationFailed if another of its size is there."""
        self._require_conditions()
        created = self._is_created(f"{name}/{self._group(size)}/{size:020}.json", stated)
        if not created and self._read(name, self._group(size), size) != stated:
            raise VerificationFailed(f"another head of {size:,} entries was signed")

    def _require_conditions(self) -> None:
        """Raise OSError unless the store refuses to create an object that is there."""
        if self._is_created("probe.json", {}) and self._is_created("probe.json", {}):
            raise OSError(f"{self.address} replaces objects: it knows no If-None-Match")

    def _is_created(self, name: str, stated: dict[str, Any]) -> bool:
        """Return whether an object was created; False if it is there."""
        system, root = self._store
        return create_object(system, f"{root}/{name}", json.dumps(stated).encode())

    def _newest(self, name: str) -> tuple[Head, str | None] | None:
        for group in sorted(self._list(name), reverse=True):
            sizes = self._sizes(name, group)
            if sizes:
                kept = self._read(name, group, max(sizes))
                head = Head(kept["origin"], kept["size"], bytes.fromhex(kept["root"]))
                return head, kept.get("leaf")
        return None

    def _read(self, name: str, group: str, size: int) -> dict[str, Any]:
        system, root = self._store
        head: dict[str, Any] = json.loads(system.cat_file(f"{root}/{name}/{group}/{size:020}.json"))
        return head

    def _names(self) -> list[str]:
        return [name for name in self._list("") if not name.endswith(".json")]

    def _sizes(self, name: str, group: str) -> list[int]:
        return [int(file_name.removesuffix(".json")) for file_name in self._list(f"{name}/{group}")]

    def _group(self, size: int) -> str:
        return f"{size // _TOGETHER:016}"

    def _list(self, folder: str) -> list[str]:
        system, root = self._store
        try:
            paths = system.ls(f"{root}/{folder}".rstrip("/"), detail=False)
        except FileNotFoundError:
            return []
        return [path.rstrip("/").rsplit("/", 1)[-1] for path in paths]


def _name(origin: str) -> str:
    return sha256(origin.encode()).hexdigest()
