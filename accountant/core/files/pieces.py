"""A write-only file whose bytes can be sent on while it grows, for libraries that write to
files.
"""

import io
from typing import Any


class Pieces(io.RawIOBase):
    """A file that hands out what was written to it. It can't be read or sought."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        return len(piece)

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        taken, self._pieces = b"".join(self._pieces), []
        return taken
