"""Heads that were signed of the log, where every process can read them and no backup of the log
reaches.

    signer ── publishes ──▶ public-log/checkpoint, tiles     signed-logs/….json
    every process ── at its start, and when either changes ──▶ compares them with the log (log.py)

An older copy of the database and one of the log agree with each other. These two places disagree
with them.
"""

import logging
import os
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from accountant.core.errors import LogUnusable, VerificationFailed
from accountant.core.transparency.notes import parse, read_head
from accountant.core.transparency.publication import checkpoint
from accountant.core.transparency.tiles import Files
from accountant.core.transparency.witnesses import leaf_digest
from accountant.ledger_log.kept_heads import is_address, kept_heads
from accountant.ledger_log.published import files_at
from accountant.settings import Settings

logger = logging.getLogger(__name__)

#: Tries to read a checkpoint with its last leaf: the signer may replace both between two reads.
_TRIES = 5
#: Seconds between two looks into an object store.
LOOK_SECONDS = 30.0

#: By place, the published heads that were read there last: they hold while the store is away.
_last_read: dict[str, list["SignedHead"]] = {}


@dataclass(frozen=True)
class SignedHead:
    """A head of the published log `log`, of so many entries.

    `leaf` is the digest of the last entry's leaf, or None if it is not known.
    """

    log: str
    size: int
    leaf: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the head as a LOSS names it."""
        return {"log": self.log, "entries": self.size, "leaf": self.leaf}


@dataclass(frozen=True)
class SignedPlaces:
    """The place in which the log is published, and that in which the signer keeps what it signed:
    each a folder, or an address of an object store.
    """

    published: Path | str | None = None
    kept: Path | str | None = None

    @classmethod
    def of(cls, configured: Settings) -> "SignedPlaces":
        """Return the places that the settings name."""
        return cls(configured.public_log, configured.signed_logs)

    def state(self) -> tuple[object, ...]:
        """Return a value that changes when a head is signed."""
        # objects tell nobody that another one came: they are looked at now and then
        in_store = is_address(self.kept) or is_address(self.published)
        turn = int(time.monotonic() // LOOK_SECONDS) if in_store else 0
        return turn, *map(_version, self._watched)

    @cached_property
    def _watched(self) -> list[str]:
        # a replaced file changes its folder
        watched = [self.published and f"{self.published}/checkpoint", self.kept]
        return [str(place) for place in watched if place is not None and not is_address(place)]

    def heads(self) -> list[SignedHead]:
        """Return the newest head by place and name. Raises LogUnusable if one can't be read."""
        signed: list[SignedHead] = []
        try:
            if self.published is not None:
                signed += _published_heads(self.published)
            if self.kept is not None:
                signed += [
                    SignedHead(head.origin, head.size, leaf)
                    for head, leaf in kept_heads(self.kept).all()
                ]
        except (
            OSError,
            ImportError,
            VerificationFailed,
            ValueError,
            TypeError,
            LookupError,
        ) as error:
            raise LogUnusable(f"what was signed of it can't be read ({error})") from None
        return [head for head in signed if head.size]


def _published_heads(place: Path | str) -> list[SignedHead]:
    """Return the published head, if there is one; while a store is away, what was read last."""
    files = files_at(place)
    try:
        there = files.read("checkpoint") is not None
        _last_read[str(place)] = [_published_head(files)] if there else []
    except LogUnusable as error:
        if str(place) not in _last_read:
            raise
        logger.warning("%s", error.problem)
    return _last_read[str(place)]


def _published_head(files: Files) -> SignedHead:
    for _ in range(_TRIES - 1):
        try:
            return _read_published(files)
        except VerificationFailed:
            continue
    return _read_published(files)


def _read_published(files: Files) -> SignedHead:
    note, tiles = checkpoint(files)
    leaf = leaf_digest(next(tiles.leaves(tiles.size - 1))) if tiles.size else None
    return SignedHead(read_head(parse(note)[0]).origin, tiles.size, leaf)


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
