"""Keys and values of contexts that were read, kept for the rounds of a job that follow.

They depend on a context's own tokens alone, so a round that shows a record again takes them and
reads no prompt. They stay in the host's memory and are never written to a disk: a record can be
recovered from them. How many there is room for follows from public sizes alone.
"""

from array import array
from collections.abc import Sequence

import torch

from workers.engine.cache import Store
from workers.engine.sizing import Shape
from workers.engine.structure import Structure
from workers.model_shelf import whole_memory


def key_of(prefix: Sequence[int], own: Sequence[int]) -> bytes:
    """Return what tells one context from another: all its tokens, and where its own begin."""
    return array("q", [len(prefix), *prefix, *own]).tobytes()


class KeptContexts:
    """The contexts of one job that were read, as many as there is room for."""

    def __init__(self, model: Structure, shape: Shape, memory: int) -> None:
        """`memory`: bytes for contexts that are decoded together. A fourth of the host's memory is
        used here, and no more than `memory` where that is the host's too.
        """
        self.shape = shape
        host = whole_memory("cpu") // 4
        self.bytes = min(memory, host) if model.device.type == "cpu" else host
        self.used = 0
        self.like: Store | None = None
        self._places: dict[bytes, int] = {}
        self._fresh: dict[bytes, int] = {}
        self._room = torch.empty((0, 0))

    def begin_round(self) -> None:
        """Let the contexts that were read serve from now on.

        Within a round they don't: its time would tell whether records are alike.
        """
        self._places |= self._fresh
        self._fresh = {}

    def place(self, key: bytes) -> int | None:
        """Return where a context of an earlier round is kept, or None."""
        return self._places.get(key)

    def keep(self, keys: Sequence[bytes], read: Store, states: torch.Tensor) -> None:
        """Keep what was read of these contexts, the first rows of `read`, while there is room.

        `states`: (contexts, hidden), the head's input for the last token of each.
        """
        first, rows = self.shape.prefix, range(len(keys))
        columns = read.columns(rows, first, first + self.shape.rest)
        # a CPU's passes keep wider numbers than a coarse model computes
        exact = torch.promote_types(read.given, states.dtype)
        narrow = torch.cat([columns.to(states.device, exact), states.to(exact)], dim=1).cpu()
        if self.like is None:
            self.like = Store(len(read.own), 1, 0)
            self.like.reserve(read)
            each = narrow.shape[1] * narrow.element_size()
            self._room = torch.empty((self.bytes // each, narrow.shape[1]), dtype=narrow.dtype)
        room = self._room[self.used : self.used + len(keys)]
        room.copy_(narrow[: len(room)])
        for number, key in enumerate(keys[: len(room)]):
            self._fresh[key] = self.used + number
        self.used += len(room)

    def take(self, places: Sequence[int], hidden: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return kept contexts' columns, and the head's input for the last token of each."""
        both = self._room[torch.tensor(places)]
        return both[:, :-hidden], both[:, -hidden:]
