"""Scores of summaries for benchmarks.summaries: is a text about its own group, and is it English at
all?
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from benchmarks.summaries_data import Data, first_of_each
from workers.embedding import embedders
from workers.embedding.neighbours import Floats
from workers.evaluation.transfer import _classifier
from workers.models import LocalModel, text_start
from workers.text_tokens import text_tokens

#: Words of a real text that are judged beside summaries: about what their tokens hold.
WORDS, TOKENS = 18, 64


class Judge:
    """A classifier of groups that learned from public texts.

    By an embedding model where there is one: logistic regression on all public texts of the groups,
    which weigh as much in all; their vectors stay in the file `kept`. Else by TF-IDF, on as many
    texts of each.
    """

    def __init__(self, data: Data, embedding: Path | None, kept: Path) -> None:
        known, self.embedder = data.texts("public"), None
        if embedding is None:
            least = min(Counter(known.labels).values())
            known = first_of_each(known, data.groups, least)
            self.classifier: Any = _classifier().fit(list(known.texts), list(known.labels))
            return
        self.embedder = embedders.load(embedding, embedders.inspect(embedding)["sha256"])
        if not kept.exists():
            np.save(kept, embedders.embed_all(self.embedder, known.texts, TOKENS))
        regression = LogisticRegression(max_iter=2_000, class_weight="balanced")
        self.classifier = regression.fit(np.load(kept), list(known.labels))

    def _seen(self, texts: Sequence[str]) -> Sequence[str] | Floats:
        """What the classifier looks at."""
        if self.embedder is None:
            return list(texts)
        return embedders.embed_all(self.embedder, texts, TOKENS)

    def score(self, texts: Sequence[str], groups: Sequence[str]) -> float:
        """Share of texts put into their own group; an empty text is in none."""
        found = self.classifier.predict(self._seen(texts))
        pairs = zip(texts, found, groups, strict=True)
        return float(
            np.mean([bool(text.strip()) and guess == group for text, guess, group in pairs])
        )

    def ceiling(self, data: Data) -> float:
        """The score of the records' own first words."""
        private = data.private()
        return self.score(
            [" ".join(text.split()[:WORDS]) for text in private.texts], private.labels
        )


def nats(model: LocalModel, texts: Sequence[str]) -> float:
    """Mean loss a token of texts, each by itself, after the model's start of a text."""
    first = text_start(model.tokenizer) or [0]
    losses = []
    for text in texts:
        own = text_tokens(model.tokenizer, text)
        if not own:
            continue
        ids = torch.tensor([[*first, *own]])
        with torch.inference_mode():
            logits = model.network(ids.to(model.device)).logits[0, len(first) - 1 : -1].float()
        losses.append(
            float(
                torch.nn.functional.cross_entropy(logits, torch.tensor(own, device=logits.device))
            )
        )
    return float(np.mean(losses)) if losses else float("nan")
