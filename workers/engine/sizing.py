"""Shapes and sizes of a decoding run, from public numbers only.

The number of contexts in a forward pass affects how sums are rounded, so it must not depend on what
a batch really holds (docs/security.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from accountant.core.device_memory import WORKING_SHARE, for_contexts

#: Rows beyond which a forward pass gets hardly faster per row: weights are read once a pass.
MOST_ROWS = {"cpu": 96, "cuda": 256}

#: Rows are a multiple of this: kernels work on tiles.
TILE = 16

#: Columns that a pass sees are a multiple of this on a device where a shape that repeats is faster.
COLUMNS = {"cpu": 1, "cuda": 64}

#: Tokens of a reading pass beyond which it gets slower on a CPU: activations leave the processor's
#: cache.
READING_TOKENS = 2048


@dataclass(frozen=True)
class Shape:
    """Public lengths in tokens: a batch's common prefix, the rest of each context, and one text."""

    prefix: int
    rest: int
    text: int

    @property
    def capacity(self) -> int:
        return self.prefix + self.rest + self.text


@dataclass(frozen=True)
class Sizes:
    """Contexts of a step (`rows`) and a reading pass (`reading`); `batches` side by side."""

    rows: int
    reading: int
    batches: int


def extent(columns: int, capacity: int, device: str) -> int:
    """Return columns that a pass sees to see at least `columns`, of `capacity` in all."""
    step = COLUMNS.get(device, COLUMNS["cuda"])
    return min(-(-columns // step) * step, capacity)


def cache_bytes(network: Any, capacity: int) -> int:
    """Return the approximate size of one context's keys and values, in bytes."""
    each = max(network.dtype.itemsize, 4 if network.device.type == "cpu" else 0)
    return cached_numbers(network.config) * capacity * each


def cached_numbers(config: Any) -> int:
    """Return how many numbers a token's keys and values are."""
    config = config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * width)


def reading_bytes(network: Any, shape: Shape) -> int:
    """Estimate bytes for reading one context's prompt, beside its cache."""
    config = network.config.get_text_config()
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    columns = shape.prefix + shape.rest
    return int(
        shape.rest * (network.dtype.itemsize * (8 * config.hidden_size + 3 * inner) + 2 * columns)
    )


def sizes(network: Any, shape: Shape, contexts: int, batches: int, memory: int) -> Sizes:
    """Return the sizes that fit into `memory` bytes, for many batches of a public number of
    `contexts`.

    A batch that holds more than that, or that does not fit alone, still runs, in more passes; if
    memory does run out, passes become smaller (Decoder).
    """
    config = network.config.get_text_config()
    logits = 4 * config.vocab_size
    working = memory // WORKING_SHARE
    together = (memory - working) // (contexts * (cache_bytes(network, shape.capacity) + logits))
    together = max(1, min(together, batches))
    most = MOST_ROWS[network.device.type if network.device.type in MOST_ROWS else "cuda"]
    rows = pass_rows(together * contexts, most)
    while rows > TILE and 2 * rows * logits > working:
        rows = max(TILE, rows // 2 // TILE * TILE)
    reading = min(
        most_read(network.device.type, shape.rest, rows), working // reading_bytes(network, shape)
    )
    return Sizes(rows, reading_rows(rows, reading), together)


def most_read(device: str, rest: int, rows: int) -> int:
    """Return prompts of `rest` tokens, of `rows`, that are best read at once if memory allows."""
    return min(rows, max(TILE, READING_TOKENS // max(1, rest))) if device == "cpu" else rows


def reading_rows(rows: int, most: int) -> int:
    """Return rows of a reading pass: whole tiles, at most `most` rows, that divide a pass of
    `rows`; or single rows.

    A record that is added or removed moves the prompts after it to other positions in these passes.
    If the last pass were shorter than the others, or a tile cut, the last bits of other records'
    logits would change with it.
    """
    fitting = (
        reading for reading in range(rows, 0, -TILE) if reading <= most and rows % reading == 0
    )
    return next(fitting, 1)


def pass_rows(contexts: int, most: int) -> int:
    """Return rows of a pass: whole tiles, at most `most`, such that passes over `contexts` are
    about even.

    65 contexts in passes of 64 would take two of them, the second empty but for one row.
    """
    passes = -(-contexts // most)
    return -(-contexts // (passes * TILE)) * TILE


def default_memory(layers: Sequence[torch.device]) -> int:
    """Return bytes without a setting: most of the memory of the layers' GPUs, 4 GiB of a host's."""
    if layers[0].type != "cuda":
        return 4 * 2**30

    def most(device: torch.device) -> float:
        return for_contexts(torch.cuda.mem_get_info(device)[0], layers.count(device) / len(layers))

    return int(min(map(most, set(layers))))
