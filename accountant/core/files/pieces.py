"""A file for writers that want one, whose bytes are sent on while it grows."""

import io
from typing import Any


class Pieces(io.RawIOBase):
    """A file that gives away what was written to it; it can't be read or sought."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        return len(piece)

    def take(self) -> bytes:
        """What was written since the last call."""
        taken, self._pieces = b"".join(self._pieces), []
        return taken
