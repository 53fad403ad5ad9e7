"""Attention over a preallocated cache, with masks made from positions.

Every column of a cache has a position, known before anything is read: -1 for padding, otherwise the
position of its token in its own context. A query sees the columns whose position is not above its
own and, in a sliding layer, less than a window below. So padding may lie anywhere, a batch may
begin its next text without erasing anything (columns ahead of a query have higher positions), and
rows may be at different positions in their texts.

transformers' models call the function registered here for every layer. It receives `masks` through
their keyword arguments, and each layer names its own sliding window and soft cap.
"""

from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

NAME = "exchequer"

#: A position that no query reaches.
BEHIND = 2**62

#: The fewest queries that a call on a CPU is worth.
BLOCK = 32


class Masks:
    """The masks of a forward pass: one a window in use, the same for all layers."""

    def __init__(
        self, queries: torch.Tensor, keys: torch.Tensor, first_query: int | None, dtype: torch.dtype
    ) -> None:
        """`queries`: (rows, q) and `keys`: (rows, k) positions; `dtype` that of the cached keys.

        `first_query` is the column of the first query if the queries are adjacent columns that see
        nothing behind their own; some may be padding, and padding queries see only themselves.
        """
        # Padding keys stand behind everything, so that one comparison of all pairs hides them too.
        self.queries, self.keys = (
            queries.unsqueeze(2),
            keys.masked_fill(keys < 0, BEHIND).unsqueeze(1),
        )
        self.first_query, self.dtype = first_query, dtype
        self._made: dict[tuple[int | None, torch.device], torch.Tensor] = {}
        self._spread: dict[tuple[int | None, int, int], torch.Tensor] = {}

    def of(self, window: int | None, device: torch.device | None = None) -> torch.Tensor:
        """Return what is added to scores, 0 where a query sees a key, else -infinity: (rows, 1, q,
        k).

        As attention adds it: a mask of booleans would be turned into this in every layer.
        `device`: that of the layer; None: of the positions.
        """
        home = self.queries.device
        wanted = window, device or home
        if wanted not in self._made and wanted[1] != home:
            self._made[wanted] = self.of(window).to(wanted[1])
        elif wanted not in self._made:
            seen = self.keys <= self.queries
            if window is not None:
                seen &= self.keys > self.queries - window
            if self.first_query is not None:
                # Without this, padding would see nothing and its softmax would be NaN.
                columns = torch.arange(seen.shape[1], device=seen.device)
                seen[:, columns, columns + self.first_query] |= self.queries[:, :, 0] < 0
            self._made[wanted] = torch.where(seen, 0.0, -torch.inf).to(self.dtype).unsqueeze(1)
        return self._made[wanted]

    def spread(self, window: int | None, heads: int, groups: int) -> torch.Tensor:
        """Return single queries' mask, by head and group: (rows * heads, groups, k)."""
        wanted = window, heads, groups
        if wanted not in self._spread:
            own = self.of(window)
            spread = own.expand(-1, heads, groups, -1)
            self._spread[wanted] = spread.reshape(len(own) * heads, groups, own.shape[3])
        return self._spread[wanted]


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    masks: Masks | None = None,
    **unknown: Any,
) -> tuple[torch.Tensor, None]:
    """Return softmax attention; `query` (rows, heads, q, width), keys and values (rows, key heads,
    k, width).

    Returns (rows, q, heads, width). Keys and values may be more precise than the query. Without
    `masks` (a plain call of the model) the model's own mask is used.
    """
    del module
    for name in ("s_aux", "position_bias"):
        if unknown.get(name) is not None:
            raise NotImplementedError(f"attention with {name}")
    mask = attention_mask if masks is None else masks.of(sliding_window, key.device)
    rows, heads, queries, width = query.shape
    groups = heads // key.shape[1]
    asked = query.to(key.dtype)
    if masks is not None and softcap is None and key.device.type == "cpu":
        if queries == 1:
            spread = masks.spread(sliding_window, heads // groups, groups)
            return _single(asked, key, value, spread, scaling).view(rows, 1, heads, -1).to(
                query.dtype
            ), None
        # a narrow head's, as the cache holds them, for which there is no fused call
        if key.stride(3) != 1:
            key = key.contiguous()
        if masks.first_query is not None and queries >= 2 * BLOCK:
            own = masks.of(sliding_window)
            return _in_blocks(asked, key, value, own, masks.first_query, scaling).to(
                query.dtype
            ), None
    if groups > 1 and queries == 1:
        # heads of one group share keys: no copies
        asked = asked.view(rows, heads // groups, groups, width)
    elif groups > 1 and softcap is not None:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    if softcap is None:
        mixed = _fused(asked, key, value, mask, scaling)
    else:
        mixed = _softcapped(asked, key, value, mask, scaling, softcap)
    return mixed.reshape(rows, heads, queries, -1).transpose(1, 2).to(query.dtype), None


def _fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
) -> torch.Tensor:
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=scaling, enable_gqa=query.shape[1] != key.shape[1]
    )


def _in_blocks(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    first: int,
    scaling: float | None,
) -> torch.Tensor:
    """Return queries from column `first` on, in blocks with the columns up to their own: (rows, q,
    heads, width).

    The fused call computes what the mask hides, too; four blocks leave out three eighths of all
    scores.
    """
    count = query.shape[2]
    size = max(BLOCK, -(-count // 4))
    mixed = []
    for start in range(0, count, size):
        own, seen = slice(start, start + size), slice(first + min(start + size, count))
        part = _fused(
            query[:, :, own], key[:, :, seen], value[:, :, seen], mask[:, :, own, seen], scaling
        )
        mixed.append(part.transpose(1, 2))
    return torch.cat(mixed, dim=1)


def _single(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    scaling: float | None,
) -> torch.Tensor:
    """Return one query of each head, by three calls: on a CPU faster than the fused one, most so
    for small heads.

    `mask`: (rows * key heads, groups, k), so that heads of one group read their keys once.
    """
    factor = query.shape[-1] ** -0.5 if scaling is None else scaling
    each = query.reshape(*mask.shape[:2], query.shape[-1])
    scores = torch.baddbmm(mask, each, key.flatten(0, 1).transpose(1, 2), alpha=factor)
    return torch.bmm(torch.softmax(scores, dim=-1), value.flatten(0, 1))


def _softcapped(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    softcap: float,
) -> torch.Tensor:
    """Return scores squashed to (-softcap, softcap) before the mask (Gemma 2)."""
    factor = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.tanh(torch.matmul(query, key.transpose(2, 3)) * (factor / softcap)) * softcap
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    # float32 or better, whatever the cache holds
    weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    return torch.matmul(weights.to(value.dtype), value)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, eager_mask)
