"""Heads that were signed of the log, where every process can read them and no backup of the log
reaches.

    signer ── publishes ──▶ public-log/checkpoint, tiles     signed-logs/….json
    every process ── at its start, and when either changes ──▶ compares them with the log (log.py)

An older copy of the database and one of the log agree with each other. These two places disagree
with them.
"""

import os
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from accountant.core.errors import LogUnusable, VerificationFailed
from accountant.core.transparency.notes import parse, read_head
from accountant.core.transparency.publication import checkpoint
from accountant.core.transparency.witnesses import leaf_digest
from accountant.ledger_log.kept_heads import is_address, kept_heads
from accountant.settings import Settings

#: Tries to read a checkpoint with its last leaf: the signer may replace both between two reads.
_TRIES = 5
#: Seconds between two looks into an object store.
LOOK_SECONDS = 30.0


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
    """The folder in which the log is published, and the place in which the signer keeps what it
    signed: a folder, or an address of an object store.
    """

    published: Path | None = None
    kept: Path | str | None = None

    @classmethod
    def of(cls, configured: Settings) -> "SignedPlaces":
        """Return the places that the settings name."""
        return cls(configured.public_log, configured.signed_logs)

    def state(self) -> tuple[object, ...]:
        """Return a value that changes when a head is signed."""
        # objects tell nobody that another one came: they are looked at now and then
        turn = int(time.monotonic() // LOOK_SECONDS) if is_address(self.kept) else 0
        return turn, *map(_version, self._watched)

    @cached_property
    def _watched(self) -> list[str]:
        paths = [] if self.published is None else [str(self.published / "checkpoint")]
        # a replaced file changes its folder
        is_folder = self.kept is not None and not is_address(self.kept)
        return [*paths, str(self.kept)] if is_folder else paths

    def heads(self) -> list[SignedHead]:
        """Return the newest head by place and name. Raises LogUnusable if one can't be read."""
        signed: list[SignedHead] = []
        try:
            if self.published is not None and (self.published / "checkpoint").exists():
                signed.append(self._published_head(self.published))
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

    def _published_head(self, folder: Path) -> SignedHead:
        for _ in range(_TRIES - 1):
            try:
                return _read_published(folder)
            except VerificationFailed:
                continue
        return _read_published(folder)


def _read_published(folder: Path) -> SignedHead:
    note, tiles = checkpoint(folder)
    leaf = leaf_digest(next(tiles.leaves(tiles.size - 1))) if tiles.size else None
    return SignedHead(read_head(parse(note)[0]).origin, tiles.size, leaf)


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
