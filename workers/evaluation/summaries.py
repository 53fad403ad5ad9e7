"""Summaries against references: ROUGE (Lin 2004) and BERTScore (Zhang et al. 2020)."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from workers import interruption, models, networks
from workers.data.words import uncut_script, words
from workers.evaluation.figures import Figure

ROUGES = ("rouge1", "rouge2", "rougeL")


class _Stems:
    """Words as rouge-score's tokenizer cuts and stems English ones, and other scripts'."""

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer

        self.stem = PorterStemmer().stem

    def tokenize(self, text: str) -> list[str]:
        parts = [part for word in words(text) for part in re.split("['’-]", word)]
        return [self.stem(part) if part.isascii() and len(part) > 3 else part for part in parts]


def rouge(candidates: Sequence[str], references: Sequence[str]) -> list[Figure]:
    """Return mean F1 of ROUGE-1, ROUGE-2 and ROUGE-L with stemming, by the library rouge-score.

    Raises ValueError for a text whose words can't be told apart.
    """
    from rouge_score.rouge_scorer import RougeScorer

    if script := next(filter(None, map(uncut_script, (*candidates, *references))), None):
        raise ValueError(
            f"words of the {script} script can't be told apart, so there is no ROUGE of them"
        )
    scorer = RougeScorer(list(ROUGES), tokenizer=_Stems())
    scores = [scorer.score(right, ours) for ours, right in zip(candidates, references, strict=True)]
    settings = {"stemmer": True, "library": "rouge-score", "pairs": len(scores)}
    return [
        Figure(
            name.replace("rouge", "ROUGE-"),
            float(np.mean([score[name].fmeasure for score in scores])),
            settings,
            "1: the words of the reference",
        )
        for name in ROUGES
    ]


def bert_score(
    folder: Path, candidates: Sequence[str], references: Sequence[str], *, layer: int | None = None
) -> Figure:
    """Return mean F1 of greedy matching of token embeddings, every token of the same weight.

    `layer` is the layer whose hidden states are used, counted from the embeddings (0); None: the
    last. The special tokens around a sequence may be matched and are not counted, as in the
    authors' code. A pair with an empty text scores 0.
    """
    from transformers import AutoModel

    network = networks.open_network(AutoModel, folder, torch.float32, encoder=True).eval()
    interruption.looks(network)
    tokenizer = models.tokenizer(folder)
    used = int(network.config.num_hidden_layers) if layer is None else layer
    limit = int(getattr(network.config, "max_position_embeddings", 512))

    around = torch.tensor(
        [token for token in (tokenizer.cls_token_id, tokenizer.sep_token_id) if token is not None]
    )

    @torch.inference_mode()
    def embedded(text: str) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.tensor([tokenizer.encode(text.strip(), truncation=True, max_length=limit)])
        states = network(input_ids=ids, output_hidden_states=True).hidden_states[used][0]
        return torch.nn.functional.normalize(states, dim=-1), ~torch.isin(ids[0], around)

    scores = []
    for ours, right in zip(candidates, references, strict=True):
        if not ours.strip() or not right.strip():
            scores.append(0.0)
            continue
        (token_scores, counted), (wanted, expected) = embedded(ours), embedded(right)
        likeness = token_scores @ wanted.T
        precision = float(likeness.amax(1)[counted].mean())
        recall = float(likeness.amax(0)[expected].mean())
        total = precision + recall
        scores.append(2 * precision * recall / total if total else 0.0)
    settings = {
        "model": folder.name,
        "layer": used,
        "idf": False,
        "rescaled": False,
        "pairs": len(scores),
    }
    return Figure("BERTScore F1", float(np.mean(scores)), settings, "1: every token finds its like")
