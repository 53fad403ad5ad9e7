"""Plain generation: texts that a model continues from a prompt, many rows in parallel.

For prompts of public or released text only. Nothing private is within reach, so draws may be seeded and need
no meter. A row that ends its text begins the next one, until all requested texts have begun. Each one begun
is written to its end, so that short texts are not over-represented.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from workers.engine import Batch, Decoder, Shape, sizes
from workers.models import LocalModel


@dataclass(frozen=True)
class Written:
    """One text, stripped. `complete` is false if the length limit ended it; `row` is its prompt's index."""

    text: str
    complete: bool
    row: int = 0


def generator(device: torch.device, seed: int | None) -> torch.Generator:
    """Random numbers for public draws; without a seed they come from the operating system."""
    source = int.from_bytes(os.urandom(7), "big") if seed is None else seed
    return torch.Generator(device=device).manual_seed(source)


@dataclass(frozen=True)
class Pen:
    """The settings of a writing model. `stop` is a text that ends generation besides end tokens, or ""."""

    model: LocalModel
    max_tokens: int
    temperature: float
    random: torch.Generator
    stop: str = ""

    def write(
        self, prompt: Sequence[int], count: int, steering: Mapping[int, torch.Tensor] | None = None
    ) -> Iterator[Written]:
        """`count` texts after one prompt, as they end. `steering`: layer to (hidden,), at every position.

        Memory does not grow with `count`.
        """
        shape = Shape(len(prompt) - 1, 1, self.max_tokens)
        chosen = sizes(self.model.network, shape, 1, count, self.model.memory_bytes)
        rows = min(count, chosen.batches, chosen.rows)
        if rows > 0:
            batch = Batch([prompt[-1:]] * rows, prompt[:-1])
            decoder = Decoder(self.model.structure, [batch], shape, chosen, steering)
            yield from self._run(decoder, rows, count)

    def answer(self, prompts: Sequence[Sequence[int]], prompt_tokens: int) -> list[str]:
        """One text after each prompt; a prompt longer than the public `prompt_tokens` loses its beginning."""
        shape = Shape(0, prompt_tokens, self.max_tokens)
        chosen = sizes(self.model.network, shape, 1, len(prompts), self.model.memory_bytes)
        rows = min(chosen.batches, chosen.rows)
        found = [""] * len(prompts)
        for first in range(0, len(prompts), rows):
            group = prompts[first : first + rows]
            decoder = Decoder(self.model.structure, [Batch(group)], shape, chosen)
            for each in self._run(decoder, len(group), len(group)):
                found[first + each.row] = each.text
        return found

    def _run(self, decoder: Decoder, rows: int, count: int) -> Iterator[Written]:
        first = torch.cat([values for _, values in decoder.read()])
        current = first
        texts: list[list[int]] = [[] for _ in range(rows)]
        appended = torch.zeros(rows, dtype=torch.long, device=first.device)
        tokens = torch.zeros_like(appended)
        begun, live = rows, set(range(rows))
        while live:
            drawn = self._draw(current)
            fresh = []
            for row, token in enumerate(drawn.tolist()):
                if row not in live:
                    continue
                text = self._ended(texts[row], token)
                if text is None:
                    continue
                yield Written(text.text, text.complete, row)
                texts[row] = []
                fresh.append(row)
                if begun == count:
                    live.discard(row)
                else:
                    begun += 1
            going = torch.tensor([bool(each) for each in texts], device=first.device)
            if not going.any():
                current = first
                continue
            # A row whose text ended stands still for this step and draws from `first` in the next.
            tokens = torch.where(going, drawn, tokens)
            places = torch.tensor([max(len(each) - 1, 0) for each in texts], device=first.device)
            values = decoder.extend(tokens, places)
            current = torch.where(going.unsqueeze(1), values, first)

    def _draw(self, logits: torch.Tensor) -> torch.Tensor:
        """A token for each row, drawn by its share of the cumulative weights: (rows,).

        A row without finite logits draws any token.
        """
        weights = ((logits - logits.amax(dim=1, keepdim=True)) / self.temperature).exp_()
        bounds = weights.cumsum(dim=1)
        points = torch.rand((len(logits), 1), generator=self.random, device=logits.device) * bounds[:, -1:]
        found = torch.searchsorted(bounds, points, right=True).squeeze(1)
        return found.clamp(max=logits.shape[1] - 1)

    def _ended(self, text: list[int], token: int) -> Written | None:
        """The text, if `token` ends it; otherwise the token is added."""
        complete = token in self.model.end_tokens
        if not complete:
            text.append(token)
            # A stop at the very beginning is the line break that the prompt leaves open.
            complete = self._may_stop(token) and self.stop in self._decode(text[-64:]).lstrip()
            if not complete and len(text) < self.max_tokens:
                return None
        whole = self._decode(text)
        if self.stop:
            whole = whole.lstrip().split(self.stop, 1)[0]
        return Written(whole.strip(), complete)

    def _decode(self, tokens: list[int]) -> str:
        decoded: str = self.model.tokenizer.decode(tokens, skip_special_tokens=True)
        return decoded

    def _may_stop(self, token: int) -> bool:
        """True if a stop text can end with this token. Decoding every text at every step would be slow."""
        if not self.stop:
            return False
        return not self.stop.isascii() or token in _tokens_with(self.model.tokenizer, self.stop[-1])


@lru_cache(maxsize=8)
def _tokens_with(tokenizer: Any, character: str) -> frozenset[int]:
    """The tokens that contain a character."""
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))], skip_special_tokens=True)
    return frozenset(token for token, text in enumerate(texts) if character in text)
