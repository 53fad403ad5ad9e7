"""Files that appear under their name only when they are whole."""

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from accountant.core.errors import ExchequerError


class Altered(ExchequerError):
    """Bytes whose hash is not the one that the ledger holds; nothing was saved."""

    code = "altered"

    def __init__(self, sha256: str):
        self.sha256 = sha256
        super().__init__(f"what the server sent is not {sha256[:12]}…: do not use it")


@contextmanager
def draft(path: Path) -> Iterator[BinaryIO]:
    """Return a file beside `path` that takes its name at the end, and is gone after an error."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            yield file
        beside.replace(path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


class Hashing:
    """A file that knows the hash and the size of what was written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._total, self.size = file, hashlib.sha256(), 0

    def write(self, block: bytes) -> int:
        self._total.update(block)
        self.size += len(block)
        return self._file.write(block)

    @property
    def sha256(self) -> str:
        """The SHA-256 of everything written so far."""
        return self._total.hexdigest()

    def check(self, sha256: str | None) -> None:
        """Raise Altered where this is not what was written."""
        if sha256 is not None and self.sha256 != sha256:
            raise Altered(sha256)
