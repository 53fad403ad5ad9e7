"""The public support of a draw: the likeliest tokens of a context that holds nothing private.

Public contexts are decoded apart from private ones, in passes whose shape follows from public
numbers alone and never changes: which rows there are, the columns that they see, and how a text is
appended, always token by token. So their logits are the same to the last bit whatever the private
batches hold, whatever other attempts wrote before, and whether memory runs out beside them
(docs/accounting.md, section 15).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from workers.engine.decoder import Batch, Decoder
from workers.engine.kept_contexts import KeptContexts
from workers.engine.sizing import Shape, Sizes, sizes
from workers.engine.structure import Structure


@dataclass(frozen=True)
class Endings:
    """The tokens that end a text, int64, and how many a text has before one of them."""

    tokens: torch.Tensor
    least: int


class PublicContexts:
    """One public context for each of a group of batches, extended by the batch's own tokens."""

    def __init__(
        self,
        model: Structure,
        contexts: Sequence[Sequence[int]],
        text: int,
        memory: int,
        endings: Endings,
        prefixes: KeptContexts | None = None,
    ) -> None:
        """`contexts`: token ids, one context a batch. `text`: the public length of one text.
        `prefixes`: those that earlier rounds read.
        """
        self.endings, self.written = endings, [0] * len(contexts)
        # What several batches share is read once; each has a token of its own.
        batches = [Batch([ids[-1:]], ids[:-1]) for ids in contexts]
        shape = Shape(max((len(batch.prefix) for batch in batches), default=0), 1, text)
        chosen = sizes(model.network, shape, 1, len(batches), memory)
        # How many there are is public, so no row of theirs has to be filled up.
        chosen = replace(chosen, rows=min(chosen.rows, max(1, len(batches))))
        self.decoder = Decoder(
            model, batches, shape, chosen, fixed=True, whole=True, prefixes=prefixes
        )

    def read(self) -> dict[int, torch.Tensor]:
        """Read all contexts: for each batch the logits of its texts' first token, (vocabulary,)."""
        return self._alone(self.decoder.read())

    def append(self, texts: Mapping[int, Sequence[int]]) -> dict[int, torch.Tensor]:
        """Append to each named batch the beginning of a text; the logits of its next token."""
        for batch, text in texts.items():
            self.written[batch] = len(text)
        return self._alone(self.decoder.append(texts))

    def step(self, tokens: Mapping[int, int]) -> dict[int, torch.Tensor]:
        """Append to each named batch its token; the logits of its next one."""
        for batch in tokens:
            self.written[batch] += 1
        return self._alone(self.decoder.step(tokens))

    def restart(self, batch: int) -> None:
        """The batch's next text begins."""
        self.decoder.restart(batch)
        self.written[batch] = 0

    def _alone(self, given: Iterator[tuple[int, torch.Tensor]]) -> dict[int, torch.Tensor]:
        """The logits of each batch, -infinity for what would end a text that is too short."""
        alone = {batch: logits[0] for batch, logits in given}
        for batch, logits in alone.items():
            if self.written[batch] < self.endings.least:
                alone[batch] = logits.index_fill(0, self.endings.tokens, -torch.inf)
        return alone


@dataclass(frozen=True)
class Support:
    """The tokens that a draw chooses from: int64 (n,), in order; None: all of the vocabulary."""

    tokens: torch.Tensor | None = None

    def of(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the columns of these tokens: (contexts, n)."""
        return logits if self.tokens is None else logits.index_select(1, self.tokens)

    def token(self, place: int) -> int:
        """Return the token that stands in this place."""
        return place if self.tokens is None else int(self.tokens[place])

    def alone(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the same logits with -infinity for all other tokens: (vocabulary,)."""
        if self.tokens is None:
            return logits
        return torch.full_like(logits, -torch.inf).index_copy(
            0, self.tokens, logits.index_select(0, self.tokens)
        )


def likeliest(public: torch.Tensor, top_k: int) -> Support:
    """Return the tokens whose public logits (vocabulary,) are the `top_k` highest, ties included.

    All tokens where `top_k` is 0, but for those of -infinity, and all where none is finite, as
    those of a context without any token.
    """
    if not torch.isfinite(public.max()):
        return Support()
    least = public.topk(min(top_k or len(public), len(public))).values[-1]
    kept = torch.nonzero((public >= least) & torch.isfinite(public)).squeeze(1)
    return Support(kept if len(kept) < len(public) else None)


class Supports:
    """The public support of each of a group of batches."""

    def __init__(self, public: PublicContexts, top_k: int) -> None:
        self.public, self.top_k = public, top_k

    def read(self) -> dict[int, Support]:
        """Read all contexts: for each batch the support of its texts' first token."""
        return self._of(self.public.read())

    def append(self, texts: Mapping[int, Sequence[int]]) -> dict[int, Support]:
        """Append to each named batch the beginning of a text; the support of its next token."""
        return self._of(self.public.append(texts))

    def step(self, tokens: Mapping[int, int]) -> dict[int, Support]:
        """Append to each named batch its token; the support of its next one."""
        return self._of(self.public.step(tokens))

    def restart(self, batch: int) -> None:
        """The batch's next text begins."""
        self.public.restart(batch)

    def _of(self, public: Mapping[int, torch.Tensor]) -> dict[int, Support]:
        return {batch: likeliest(logits, self.top_k) for batch, logits in public.items()}


def private_sizes(network: Any, shape: Shape, contexts: int, batches: int, memory: int) -> Sizes:
    """Return sizes for batches of so many private contexts that have a public one beside them."""
    together = sizes(network, shape, contexts + 1, batches, memory).batches
    return sizes(network, shape, contexts, together, memory)
