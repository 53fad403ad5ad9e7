"""Keys and values of contexts that were read, kept for the rounds of a job that follow.

They depend on a context's own tokens alone, so a round that shows a record again takes them and
reads no prompt. They stay in the host's memory and are never written to a disk: a record can be
recovered from them. How many there is room for follows from public sizes alone. Prefixes are public
and stay on the model's device.
"""

from array import array
from collections.abc import Callable, Sequence

import torch

from workers.engine.cache import Part, Store
from workers.engine.sizing import Shape, cache_bytes
from workers.engine.structure import Structure
from workers.model_shelf import whole_memory

#: The part of the memory for contexts that prefixes may take.
PREFIXES = 32

Prefix = tuple[int, ...]


def key_of(prefix: Sequence[int], own: Sequence[int]) -> bytes:
    """Return what tells one context from another: all its tokens, and where its own begin."""
    return array("q", [len(prefix), *prefix, *own]).tobytes()


class KeptContexts:
    """The contexts of one job that were read, as many as there is room for."""

    def __init__(self, model: Structure, shape: Shape, memory: int) -> None:
        """`memory`: bytes for contexts that are decoded together. A fourth of the host's memory is
        used here, and no more than `memory` where that is the host's too.
        """
        self.model, self.shape = model, shape
        host = whole_memory("cpu") // 4
        self.bytes = min(memory, host) if model.device.type == "cpu" else host
        self.used = 0
        self.like: Store | None = None
        self._places: dict[bytes, int] = {}
        self._fresh: dict[bytes, int] = {}
        self._rooms: list[torch.Tensor] = []
        self._states = torch.empty((0, 0))
        self._prefixes: dict[Prefix, Store] = {}
        self._prefix_bytes = memory // PREFIXES
        self._store: Store | None = None

    def begin_round(self) -> None:
        """Let the contexts that were read serve from now on.

        Within a round they don't: its time would tell whether records are alike.
        """
        self._places |= self._fresh
        self._fresh = {}

    def place(self, key: bytes) -> int | None:
        """Return where a context of an earlier round is kept, or None."""
        return self._places.get(key)

    def prefix(self, ids: Prefix, read: Callable[[Prefix], Store]) -> Store:
        """Return a public prefix, which is read where it is not kept, and kept if there is room."""
        if ids in self._prefixes:
            return self._prefixes[ids]
        store, size = read(ids), cache_bytes(self.model.network, len(ids))
        if size <= self._prefix_bytes:
            self._prefix_bytes -= size
            self._prefixes[ids] = store
        return store

    def store(self, rows: int) -> Store:
        """Return a decoder's memory, all zero: that of the decoder before, which has ended, if it
        has as many rows. To write into memory that the process has is faster by three times.
        """
        if self._store is None or self._store.own[0].rows != rows:
            self._store = Store(len(self.model.blocks), rows, self.shape.capacity)
        self._store.clear()
        return self._store

    def keep(self, keys: Sequence[bytes], read: Store, states: torch.Tensor) -> None:
        """Keep what was read of these contexts, the first rows of `read`, while there is room.

        `states`: (contexts, hidden), the head's input for the last token of each.
        """
        first, rest = self.shape.prefix, self.shape.rest
        if self.like is None:
            self._reserve(read, states)
        count = min(len(keys), len(self._states) - self.used)
        room = slice(self.used, self.used + count)
        memory = Part(self._rooms, room, slice(None))
        memory.copy(read.part(slice(count), first, first + rest))
        self._states[room] = states[:count]
        for number, key in enumerate(keys[:count]):
            self._fresh[key] = self.used + number
        self.used += count

    def _reserve(self, read: Store, states: torch.Tensor) -> None:
        """Allocate memory for contexts like these."""
        self.like = Store(len(read.own), 1, 0)
        self.like.reserve(read)
        # a CPU's passes keep wider numbers than a coarse model computes
        ones = [
            torch.empty((1, room.shape[1], self.shape.rest, room.shape[3]), dtype=layer.given)
            for layer in read.own
            for room in (layer.keys, layer.values)
        ]
        ones.append(torch.empty((1, states.shape[1]), dtype=states.dtype))
        most = self.bytes // sum(one.nbytes for one in ones)
        *self._rooms, self._states = [one.new_empty((most, *one.shape[1:])) for one in ones]

    def take(self, rows: slice, places: Sequence[int], store: Store) -> torch.Tensor:
        """Write kept contexts into rows of a store; return the head's input for the last token of
        each: (rows, hidden).
        """
        first, rest = self.shape.prefix, self.shape.rest
        numbers = torch.tensor(places)
        store.part(rows, first, first + rest).copy(Part(self._rooms, numbers, slice(None)))
        return self._states[numbers]
