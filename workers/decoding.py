"""Decoding many contexts in step: prompts are read once, then one shared token extends all of them.

First version of the engine. Rows of a batch are padded on the left to a length and a row count that are
public and the same for every batch, so that a record's logits don't depend on how long or how many the
others are (DESIGN, trap 12); missing rows are filled with dummies whose logits are never handed out.
"""

from collections.abc import Iterator
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from workers.models import LocalModel


class SharedDecoder:
    """The contexts of one batch. `start` goes back to the prompts; `step` appends one token to all."""

    def __init__(self, model: LocalModel, prompts: list[list[int]], width: int, rows: int, text: int) -> None:
        """`width`: tokens that every prompt is padded to; `rows`: contexts decoded
        at a time; `text`: most tokens that are ever appended."""
        self.model = model
        self._chunks = [
            _Chunk(model, prompts[first : first + rows], width, rows, text)
            for first in range(0, len(prompts), rows)
        ]

    def start(self) -> Iterator[torch.Tensor]:
        """Logits of the first token, chunk by chunk: float32 (contexts, vocabulary)."""
        for chunk in self._chunks:
            yield chunk.start()

    def step(self, token: int) -> Iterator[torch.Tensor]:
        """Append `token` to every context; logits of the next one, chunk by chunk."""
        for chunk in self._chunks:
            yield chunk.step(token)


class _Layer(DynamicLayer):
    """Keys and values of one layer in room set aside once: appending copies nothing but the new ones."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity, self.length = capacity, 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            rows, heads, _new, width = key_states.shape
            self.keys = key_states.new_empty((rows, heads, self.capacity, width))
            self.values = value_states.new_empty((rows, heads, self.capacity, value_states.shape[-1]))
            self.is_initialized = True
        begin, self.length = self.length, self.length + key_states.shape[-2]
        self.keys[:, :, begin : self.length] = key_states
        self.values[:, :, begin : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_seq_length(self) -> int:
        return self.length


class _Chunk:
    """A fixed number of rows with their key-value cache, which is cut back and not read again."""

    def __init__(self, model: LocalModel, prompts: list[list[int]], width: int, rows: int, text: int) -> None:
        self.model, self.count = model, len(prompts)
        ids = torch.zeros((rows, width), dtype=torch.long)
        mask = torch.zeros((rows, width), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
        mask[self.count :, -1] = 1  # a dummy attends to something, or its softmax would be NaN
        self.mask = mask.to(model.device)
        self.lengths = self.mask.sum(dim=1)
        positions = (self.mask.cumsum(dim=1) - 1).clamp(min=0)
        layers = model.network.config.num_hidden_layers
        self.cache = Cache(layers=[_Layer(width + text) for _ in range(layers)])
        self.steps = 0
        self.first = self._forward(ids.to(model.device), self.mask, positions)

    @torch.inference_mode()
    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        output = self.model.network(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[: self.count, -1, :].float()
        return logits

    def start(self) -> torch.Tensor:
        for layer in self.cache.layers:
            layer.length -= self.steps
        self.steps = 0
        return self.first

    def step(self, token: int) -> torch.Tensor:
        rows = len(self.mask)
        ids = torch.full((rows, 1), token, dtype=torch.long, device=self.model.device)
        positions = (self.lengths + self.steps).unsqueeze(1)
        self.steps += 1
        grown = self.mask.new_ones((rows, self.steps))
        return self._forward(ids, torch.cat((self.mask, grown), dim=1), positions)
