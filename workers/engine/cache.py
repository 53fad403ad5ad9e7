"""A cache of keys and values, allocated once: appending a token writes one column and copies
nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

#: Heads of at most this width have their keys laid out with adjacent columns on a CPU: products of
#: single queries with them are up to a third faster so, those of wider heads slower.
NARROW = 8


@dataclass
class Place:
    """The columns that a forward pass reads and writes: set before it, the same for every layer.

    A pass that fails halfway is repeated with the same place and writes the same columns again.
    """

    rows: slice
    #: The first of the columns side by side that are written, or one column for each row.
    columns: int | torch.Tensor
    #: Columns that are read.
    extent: int
    #: The numbers of the rows of a pass: the same for every layer, and for most passes.
    numbers: torch.Tensor = field(default_factory=lambda: torch.arange(0), repr=False)

    def each(self, count: int, device: torch.device) -> torch.Tensor:
        """Return the numbers 0 to `count` - 1 on a device."""
        if len(self.numbers) != count or self.numbers.device != device:
            self.numbers = torch.arange(count, device=device)
        return self.numbers


def kept_type(states: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the type in which keys and values of such states are kept."""
    return torch.promote_types(states, torch.float32) if device.type == "cpu" else states


class Layer(CacheLayerMixin):
    """One layer's keys and values: (rows, key heads, capacity, width).

    On a device without memory for them they stay in the host's memory and are copied over layer by
    layer. On a CPU they are float32 even if the model is bfloat16: attention is faster so, and more
    precise.
    """

    keys: torch.Tensor
    values: torch.Tensor
    given: torch.dtype  # of the keys and values that a pass computed

    def __init__(self, rows: int, capacity: int, place: Place) -> None:
        super().__init__()
        self.rows, self.capacity, self.place = rows, capacity, place

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate the memory, all zero: a masked column must still be a number."""
        self.keys, self.values = self._room(key_states), self._room(value_states)
        if key_states.device.type == "cpu" and key_states.shape[3] <= NARROW:
            self.keys = self.keys.transpose(2, 3).contiguous().transpose(2, 3)
        self.is_initialized = True

    def _room(self, states: torch.Tensor) -> torch.Tensor:
        shape = (self.rows, states.shape[1], self.capacity, states.shape[3])
        dtype = kept_type(states.dtype, states.device)
        try:
            return torch.zeros(shape, dtype=dtype, device=states.device)
        except torch.OutOfMemoryError:
            if states.device.type == "cpu":
                raise
            return torch.zeros(shape, dtype=dtype, pin_memory=True)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values in their place, and return everything that may be read."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.given = torch.promote_types(key_states.dtype, value_states.dtype)
        return self._written(self.keys, key_states), self._written(self.values, value_states)

    def _written(self, room: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        place, own = self.place, room[self.place.rows]
        if isinstance(place.columns, int):
            own[:, :, place.columns : place.columns + states.shape[2]] = states.to(
                room.device, room.dtype
            )
        else:
            each = place.each(len(own), room.device)
            own[each, :, place.columns.to(room.device)] = states[:, :, 0].to(
                room.device, room.dtype
            )
        return own[:, :, : place.extent].to(states.device)

    def get_seq_length(self) -> int:
        return self.place.extent

    def get_max_length(self) -> int:
        return self.capacity

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002 - masks are our own
        return self.place.extent, 0


class Store(Cache):
    """The layers of a model with memory for `rows` contexts of `capacity` columns."""

    def __init__(self, layers: int, rows: int, capacity: int) -> None:
        self.place = Place(slice(0, rows), 0, 0)
        self.own = [Layer(rows, capacity, self.place) for _ in range(layers)]
        super().__init__(layers=list(self.own))

    def reserve(self, like: "Store") -> None:
        """Allocate the memory of every layer, with the shapes of another store's."""
        for layer, other in zip(self.own, like.own, strict=True):
            if not layer.is_initialized:
                layer.lazy_initialization(other.keys, other.values)

    @torch.inference_mode()
    def clear(self) -> None:
        """Make every number zero."""
        for layer in self.own:
            if layer.is_initialized:
                layer.keys.zero_()
                layer.values.zero_()

    def part(self, rows: slice | torch.Tensor, begin: int, end: int) -> "Part":
        """Return some columns of these rows, of all layers."""
        rooms = [room for layer in self.own for room in (layer.keys, layer.values)]
        return Part(rooms, rows, slice(begin, end))


@dataclass(frozen=True)
class Part:
    """Some columns of some rows of keys and values: (rows, key heads, columns, width) each."""

    rooms: Sequence[torch.Tensor]
    rows: slice | torch.Tensor  # numbers of rows are those of a source, or of the same types
    columns: slice

    def copy(self, source: "Part") -> None:
        """Write the numbers of another part, in these types. A single row is written into each."""
        for room, other in zip(self.rooms, source.rooms, strict=True):
            numbers = other[source.rows, :, source.columns].to(room.device)
            room[self.rows, :, self.columns] = numbers
