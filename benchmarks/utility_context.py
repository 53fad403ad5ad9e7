"""The effect of a record in a base model's context, on public text: all that private prediction
has.

For a target text of some class: its mean negative log-likelihood after the template with no record,
with one of its own class, with one of another class, and with two of its own. What a record says
about its class is the difference between the figures of the other class and its own. KL: the
divergence of the next token's distribution with the record from that without.
"""

import random
import statistics
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.utility_cells import Made
from benchmarks.utility_data import PUBLIC, rows
from workers.models import LocalModel, Prompt

TEMPLATES = {
    "the default": "A text ({label}): {record}\nAnother text ({label}):",
    "fences (001, E.4.1)": "```\n{label}\n{record}\n```\n```\n{label}\n",
    "label, then text": "{label} . {record} {label} .",
    "a line each": "{record}\n",
    "nothing between": "{record}",
    "as in training": "{record}</s><s>",
    "shown": "{label}\n\nText: {record}\n\nText:",
}
RECORD_TOKENS, TARGET_TOKENS = 64, 40


def measure(model: LocalModel, template: str, targets: int, seed: int) -> Made:
    """Mean nats per token over `targets` texts of DBpedia, 14 classes in turn."""
    by_label: dict[str, list[str]] = {}
    for row in rows(PUBLIC):
        by_label.setdefault(row["label_name"], []).append(row["text"])
    labels, draw = sorted(by_label), random.Random(seed)
    found: dict[str, list[float]] = {}
    for number in range(targets):
        own, other = labels[number % len(labels)], labels[(number + 5) % len(labels)]
        prompt = Prompt(model.tokenizer, template, own)
        first, second, target = draw.sample(by_label[own], 3)
        stranger = draw.choice(by_label[other])
        ids = model.tokenizer.encode(" " + target, add_special_tokens=False)[:TARGET_TOKENS]
        none, plain = _likelihood(model, prompt.tokens("", RECORD_TOKENS), ids)
        one, law = _likelihood(model, prompt.tokens(first, RECORD_TOKENS), ids)
        again = prompt.tokens(second, RECORD_TOKENS)
        begins = again[0] in model.tokenizer.all_special_ids
        both = prompt.tokens(first, RECORD_TOKENS) + again[begins:]
        values = {
            "none": none,
            "own": one,
            "other": _likelihood(model, prompt.tokens(stranger, RECORD_TOKENS), ids)[0],
            "two": _likelihood(model, both, ids)[0],
            "kl_first": float((law[0].exp() * (law[0] - plain[0])).sum()),
            "kl": float((law.exp() * (law - plain)).sum(-1).mean()),
        }
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    means: dict[str, Any] = {name: statistics.fmean(values) for name, values in found.items()}
    gains = [a - b for a, b in zip(found["other"], found["own"], strict=True)]
    return {
        **means,
        "gain": statistics.fmean(gains),
        "gain_error": statistics.stdev(gains) / targets**0.5,
    }


def own_loss(model: LocalModel, template: str, texts: Sequence[Sequence[str]]) -> float:
    """Nats per token of (text, label) pairs after the prompt without a record, over all tokens."""
    total, count = 0.0, 0
    for text, label in texts:
        context = Prompt(model.tokenizer, template, label).tokens("", RECORD_TOKENS)
        ids = model.tokenizer.encode(" " + text, add_special_tokens=False)
        total += _likelihood(model, context, ids)[0] * len(ids)
        count += len(ids)
    return total / max(1, count)


@torch.inference_mode()
def _likelihood(
    model: LocalModel, context: Sequence[int], target: Sequence[int]
) -> tuple[float, torch.Tensor]:
    """(mean negative log-likelihood of the target, log-probabilities of all tokens at its
    places).
    """
    ids = torch.tensor([[*context, *target]], device=model.device)
    kept = len(target) + 1  # of a vocabulary of 262,144, a pass is mostly logits
    logs = model.network(input_ids=ids, logits_to_keep=kept).logits[0, :-1].float().log_softmax(-1)
    return -float(logs.gather(1, ids[0, len(context) :, None]).mean()), logs
