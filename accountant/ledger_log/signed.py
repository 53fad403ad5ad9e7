"""Heads that were signed of the log, where every process can read them and no backup of the log
reaches.

    signer ── publishes ──▶ public-log/checkpoint, tiles     signed-logs/….json
    every process ── at its start, and when either changes ──▶ compares them with the log (files.py)

An older copy of the database and one of the log agree with each other. These two places disagree
with them.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from accountant.core.errors import LogUnusable, VerificationFailed
from accountant.core.transparency.publication import checkpoint
from accountant.core.transparency.witnesses import KeptHeads, leaf_digest
from accountant.settings import Settings

#: Tries to read a checkpoint with its last leaf: the signer may replace both between two reads.
_TRIES = 5


@dataclass(frozen=True)
class SignedHead:
    """So many entries were signed. `leaf`: the digest of the last one's leaf, where it is known."""

    size: int
    leaf: str | None


@dataclass(frozen=True)
class SignedPlaces:
    """The folder in which the log is published, and the one in which the signer keeps what it
    signed.
    """

    published: Path | None = None
    kept: Path | None = None

    @classmethod
    def of(cls, configured: Settings) -> "SignedPlaces":
        """Return the places that the settings name."""
        return cls(configured.public_log, configured.signed_logs)

    def state(self) -> tuple[object, ...]:
        """Return a value that changes when a head is signed."""
        return tuple(map(_version, self._watched))

    @cached_property
    def _watched(self) -> list[str]:
        found = [] if self.published is None else [str(self.published / "checkpoint")]
        # a replaced file changes its folder
        return found if self.kept is None else [*found, str(self.kept)]

    def heads(self) -> list[SignedHead]:
        """Return the newest head of each place and name. Raises LogUnusable where one can't be
        read.
        """
        found: list[SignedHead] = []
        try:
            if self.published is not None and (self.published / "checkpoint").exists():
                found.append(self._published_head(self.published))
            if self.kept is not None:
                found += [SignedHead(head.size, leaf) for head, leaf in KeptHeads(self.kept).all()]
        except (OSError, VerificationFailed, ValueError, TypeError, LookupError) as error:
            raise LogUnusable(f"what was signed of it can't be read ({error})") from None
        return [head for head in found if head.size]

    def _published_head(self, folder: Path) -> SignedHead:
        for _ in range(_TRIES - 1):
            try:
                return _read_published(folder)
            except VerificationFailed:
                continue
        return _read_published(folder)


def _read_published(folder: Path) -> SignedHead:
    tiles = checkpoint(folder)[1]
    leaf = leaf_digest(next(tiles.leaves(tiles.size - 1))) if tiles.size else None
    return SignedHead(tiles.size, leaf)


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
