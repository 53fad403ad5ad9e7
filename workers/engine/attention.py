"""Attention over a preallocated cache, with masks made from positions.

Every column of a cache has a position, known before anything is read: -1 for padding, otherwise the position
of its token in its own context. A query sees the columns whose position is not above its own and, in a
sliding layer, less than a window below. So padding may lie anywhere, a batch may begin its next text without
erasing anything (columns ahead of a query have higher positions), and rows may be at different positions in
their texts.

transformers' models call the function registered here for every layer. It receives `masks` through their
keyword arguments, and each layer names its own sliding window and soft cap.
"""

from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

NAME = "exchequer"


class Masks:
    """The attention masks of one forward pass: one for each window in use."""

    def __init__(self, queries: torch.Tensor, keys: torch.Tensor, first_query: int | None) -> None:
        """`queries`: (rows, q) and `keys`: (rows, k) positions.

        `first_query` is the column of the first query if the queries are adjacent columns and some may be
        padding; padding queries see only themselves.
        """
        self.queries, self.keys = queries.unsqueeze(2), keys.unsqueeze(1)
        self.first_query = first_query
        self._made: dict[int | None, torch.Tensor] = {}

    def of(self, window: int | None) -> torch.Tensor:
        """The mask, true where a query sees a key: bool (rows, 1, q, k)."""
        if window not in self._made:
            seen = (self.keys >= 0) & (self.keys <= self.queries)
            if window is not None:
                seen &= self.keys > self.queries - window
            if self.first_query is not None:
                # Without this, padding would see nothing and its softmax would be NaN.
                columns = torch.arange(seen.shape[1], device=seen.device)
                seen[:, columns, columns + self.first_query] |= self.queries[:, :, 0] < 0
            self._made[window] = seen.unsqueeze(1)
        return self._made[window]


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
    """Softmax attention; `query` (rows, heads, q, width), keys and values (rows, key heads, k, width).

    Returns (rows, q, heads, width). Keys and values may be more precise than the query. Without `masks` (a
    plain call of the model) the model's own mask is used.
    """
    del module
    for name in ("s_aux", "position_bias"):
        if unknown.get(name) is not None:
            raise NotImplementedError(f"attention with {name}")
    mask = attention_mask if masks is None else masks.of(sliding_window)
    rows, heads, queries, width = query.shape
    groups = heads // key.shape[1]
    asked = query.to(key.dtype)
    if groups > 1 and queries == 1:
        asked = asked.view(rows, heads // groups, groups, width)  # heads of one group share keys: no copies
    elif groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    if softcap is None:
        mixed = functional.scaled_dot_product_attention(asked, key, value, attn_mask=mask, scale=scaling)
    else:
        mixed = _softcapped(asked, key, value, mask, scaling, softcap)
    return mixed.reshape(rows, heads, queries, -1).transpose(1, 2).to(query.dtype), None


def _softcapped(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    softcap: float,
) -> torch.Tensor:
    """Scores squashed to (-softcap, softcap) before the mask (Gemma 2)."""
    factor = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = torch.tanh(torch.matmul(query, key.transpose(2, 3)) * (factor / softcap)) * softcap
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    # float32 or better, whatever the cache holds
    weights = torch.softmax(scores, dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    return torch.matmul(weights.to(value.dtype), value)


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, eager_mask)
