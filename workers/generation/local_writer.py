"""Writing with a local model: texts that it continues from public prompts, many rows side by side.

Nothing private is in reach, so draws may be seeded and need no meter. A row whose text has ended
begins the next one, of the same prompt or of another, until all that were asked for have begun;
each that has begun is written to its end, so that short texts come no more often than the model has
them.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

import torch

from workers.data.public_text import PublicPrompt, PublicText, vouch
from workers.engine import Batch, Context, Decoder, Shape, sizes
from workers.generation.writer import Manner, Written
from workers.models import LocalModel, request_tokens, text_start
from workers.text_tokens import text_tokens

Steering = Mapping[int, torch.Tensor]


def generator(device: torch.device, seed: int | None) -> torch.Generator:
    """Return public random numbers; without a seed from the operating system."""
    source = int.from_bytes(os.urandom(7), "big") if seed is None else seed
    return torch.Generator(device=device).manual_seed(source)


def prompt_tokens(tokenizer: Any, prompt: PublicPrompt) -> list[int]:
    """Return tokens of a prompt, up to where a text begins."""
    if not isinstance(prompt, PublicPrompt):
        raise TypeError("a writer is asked with a PublicPrompt only")
    if prompt.chat and getattr(tokenizer, "chat_template", None) is not None:
        return request_tokens(tokenizer, str(prompt.text))
    # Tokenizers join a blank to the word that follows, so what is written brings its own.
    return text_start(tokenizer) + text_tokens(tokenizer, prompt.text.rstrip(" "))


@dataclass(frozen=True)
class LocalWriter:
    """A Writer that decodes with a registered model."""

    model: LocalModel
    random: torch.Generator

    @property
    def name(self) -> str:
        """The folder that the model was loaded from."""
        return self.model.folder.name

    def seeded(self, seed: int | None) -> "LocalWriter":
        """As `Writer.seeded`."""
        return LocalWriter(self.model, generator(self.random.device, seed))

    def shortened(self, text: PublicText, tokens: int) -> PublicText:
        """As `Writer.shortened`, counted by the model's tokenizer."""
        ids = text_tokens(self.model.tokenizer, text)
        if len(ids) <= tokens:
            return text
        return text.through(
            lambda _: self.model.tokenizer.decode(ids[:tokens], skip_special_tokens=True)
        )

    def length(self, text: PublicText) -> int:
        """As `Writer.length`, exactly."""
        return len(text_tokens(self.model.tokenizer, text))

    def room(self, manner: Manner) -> int:
        """As `Writer.room`."""
        return max(1, self.model.context_tokens - manner.max_tokens)

    def write(
        self,
        prompts: Sequence[PublicPrompt],
        manner: Manner,
        each: int = 1,
        steering: Steering | None = None,
    ) -> Iterator[Written]:
        """As `Writer.write`. `steering`: layer to (hidden,), added at every position.

        A prompt that would not fit the model's context loses its beginning. Memory does not grow
        with `each`.
        """
        if not prompts or each < 1:
            return
        room = self.room(manner)
        ids = [prompt_tokens(self.model.tokenizer, prompt)[-room:] for prompt in prompts]
        # What all prompts begin with is read once. One token at least is a row's own.
        shared = _shared(ids)
        suffixes = [prompt[shared:] for prompt in ids]
        yield from _Rows(self, manner, suffixes, each, ids[0][:shared], steering).texts()

    def write_after(
        self, soft: Sequence[torch.Tensor], manner: Manner, each: int = 1
    ) -> Iterator[Written]:
        """Write as `write` after soft tokens (m, hidden) that fit the model's context."""
        if soft and each >= 1:
            yield from _Rows(self, manner, list(soft), each, [], None).texts()


class _Rows:
    """The rows of one call: what each writes now, and of which prompt."""

    def __init__(
        self,
        writer: LocalWriter,
        manner: Manner,
        own: Sequence[Context],
        each: int,
        shared: list[int],
        steering: Steering | None,
    ) -> None:
        """`own`: each prompt after the tokens that all begin with, `shared`."""
        self.model, self.random, self.manner = writer.model, writer.random, manner
        self.own = own
        shape = Shape(len(shared), max(map(len, own)), manner.max_tokens)
        count = len(own) * each
        chosen = sizes(self.model.network, shape, 1, count, self.model.memory_bytes)
        self.waiting = (place for place in range(len(own)) for _ in range(each))
        self.prompts = [next(self.waiting) for _ in range(min(count, chosen.batches, chosen.rows))]
        batch = Batch([self.own[place] for place in self.prompts], shared)
        self.decoder = Decoder(self.model.structure, [batch], shape, chosen, steering)

    def texts(self) -> Iterator[Written]:
        """Yield every text as it ends."""
        first = torch.cat([values for _, values in self.decoder.read()]).clone()
        current, rows = first, len(self.prompts)
        texts: list[list[int]] = [[] for _ in range(rows)]
        tokens = torch.zeros(rows, dtype=torch.long, device=first.device)
        live = set(range(rows))
        while live:
            drawn = self._draw(current)
            for row, token in enumerate(drawn.tolist()):
                if row not in live:
                    continue
                text = self._ended(texts[row], token)
                if text is None:
                    continue
                yield Written(text.text, text.complete, self.prompts[row])
                texts[row] = []
                following = next(self.waiting, None)
                if following is None:
                    live.discard(row)
                elif following != self.prompts[row]:
                    self.prompts[row] = following
                    first[row] = self.decoder.replace(row, self.own[following])
            going = torch.tensor([bool(row_text) for row_text in texts], device=first.device)
            if not going.any():
                current = first
                continue
            # A row whose text ended stands still for this step and draws from `first` in the next.
            tokens = torch.where(going, drawn, tokens)
            places = torch.tensor(
                [max(len(row_text) - 1, 0) for row_text in texts], device=first.device
            )
            values = self.decoder.extend(tokens, places)
            current = torch.where(going.unsqueeze(1), values, first)

    def _draw(self, logits: torch.Tensor) -> torch.Tensor:
        """Return a token for each row, by its share of the cumulative weights: (rows,).

        A row without finite logits draws any.
        """
        if not self.manner.temperature:
            return logits.argmax(dim=1)
        weights = ((logits - logits.amax(dim=1, keepdim=True)) / self.manner.temperature).exp_()
        bounds = weights.cumsum(dim=1)
        points = (
            torch.rand((len(logits), 1), generator=self.random, device=logits.device)
            * bounds[:, -1:]
        )
        places = torch.searchsorted(bounds, points, right=True).squeeze(1)
        return places.clamp(max=logits.shape[1] - 1)

    def _ended(self, text: list[int], token: int) -> Written | None:
        """Return the text, if `token` ends it; otherwise the token is added."""
        complete = token in self.model.end_tokens
        if not complete:
            text.append(token)
            # A stop at the very beginning is the line break that the prompt leaves open.
            complete = (
                self._may_stop(token) and self.manner.stop in self._decode(text[-64:]).lstrip()
            )
            if not complete and len(text) < self.manner.max_tokens:
                return None
        whole = self._decode(text)
        if self.manner.stop:
            whole = whole.lstrip().split(self.manner.stop, 1)[0]
        return Written(vouch(whole.strip()), complete)

    def _decode(self, tokens: list[int]) -> str:
        decoded: str = self.model.tokenizer.decode(tokens, skip_special_tokens=True)
        return decoded

    def _may_stop(self, token: int) -> bool:
        """Return True if a stop text can end with this token: decoding all is slow."""
        if not self.manner.stop:
            return False
        return not self.manner.stop.isascii() or token in _tokens_with(
            self.model.tokenizer, self.manner.stop[-1]
        )


def _shared(prompts: list[list[int]]) -> int:
    """Return the number of leading tokens that prompts share; each keeps one of its own."""
    least, most = min(prompts), max(prompts)  # what the first and last in order share, all share
    same = takewhile(lambda pair: pair[0] == pair[1], zip(least, most, strict=False))
    return min(sum(1 for _ in same), min(map(len, prompts)) - 1)


@lru_cache(maxsize=8)
def _tokens_with(tokenizer: Any, character: str) -> frozenset[int]:
    """Return tokens that hold a character."""
    texts = tokenizer.batch_decode(
        [[token] for token in range(len(tokenizer))], skip_special_tokens=True
    )
    return frozenset(token for token, text in enumerate(texts) if character in text)
