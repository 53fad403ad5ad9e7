"""A language model's own view of a text, where no embedding model is named.

It stands apart from embedders.py, which a worker that only counts or checks loads without torch.
"""

from collections.abc import Iterable, Iterator

import torch

from workers.embedding.embedders import ROWS
from workers.embedding.neighbours import Floats, unit
from workers.engine import HEAD, Shape, hidden_states, sizes
from workers.models import LocalModel
from workers.text_tokens import text_tokens


class OwnEmbedder:
    """What the model's head receives, averaged over a text's tokens.

    As mean-pooled causal models are embedded in workers/embedding/embedders.py.
    """

    def __init__(self, model: LocalModel) -> None:
        self.model = model
        self.dimensions, self.context_tokens = model.structure.hidden, model.context_tokens

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[Floats]:
        """Embed texts like `Embedder.embed`."""
        width = min(tokens or self.context_tokens, self.context_tokens)
        shape = Shape(0, width, 0)
        chosen = sizes(self.model.network, shape, 1, ROWS, self.model.memory_bytes)
        group: list[list[int]] = []

        def states() -> Floats:
            spans = [(0, len(ids)) for ids in group]
            rows = hidden_states(self.model.structure, group, [HEAD], shape, chosen, spans=spans)
            return unit(torch.cat(list(rows)).cpu().numpy())  # (rows, hidden)

        for text in texts:
            shown = text[: 32 * width].strip()
            group.append(text_tokens(self.model.tokenizer, shown)[:width])
            if len(group) == ROWS:
                yield states()
                group = []
        if group:
            yield states()
