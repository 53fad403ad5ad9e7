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


@torch.inference_mode()
def draws(
    model: LocalModel,
    prompt: Prompt,
    records: Sequence[str],
    target: str,
    settings: Sequence[tuple[float, float, int]],
) -> list[dict[str, float]]:
    """What a batch's mean draws after each token of a real text, by clip, temperature and top_k.

    `loss`: expected nats of a drawn token by the model without records. `best`: chance of the
    likeliest. `kept`: whether the text's own next token is in the support. Means over its tokens.
    """
    ids = model.tokenizer.encode(" " + target, add_special_tokens=False)[:TARGET_TOKENS]
    public, *private = [
        _likelihood(model, prompt.tokens(text, RECORD_TOKENS), ids)[1] for text in ("", *records)
    ]
    own, rows, found = torch.tensor(ids), torch.stack(private), []
    shown: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # of the latest support
    for clip, temperature, top_k in settings:
        if top_k not in shown:
            kept = public.topk(top_k or public.shape[1], dim=1).indices  # (tokens, k)
            own_best = rows.gather(2, kept.expand(len(rows), -1, -1))
            shown = {top_k: (kept, own_best - own_best.amax(dim=2, keepdim=True))}
        kept, below = shown[top_k]
        clipped = (below + clip).clamp(min=-clip)
        law = torch.softmax(clipped.mean(dim=0).double() / temperature, dim=1)
        nats = -public.gather(1, kept).double()
        found.append(
            {
                "loss": float((law * nats).sum(dim=1).mean()),
                "best": float(law.amax(dim=1).mean()),
                "kept": float((kept == own[:, None]).any(dim=1).double().mean()),
            }
        )
    return found


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
