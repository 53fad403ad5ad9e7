"""Metrics that use a language model: next-token accuracy after training, label accuracy in context."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workers import interruption
from workers.evaluation.figures import Figure
from workers.evaluation.transfer import Labelled


def _load(folder: Path) -> tuple[Any, Any]:
    """A fresh copy of a local model in float32, and its tokenizer; safetensors only, no code of its own."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    options = {"trust_remote_code": False, "local_files_only": True}
    network: Any = AutoModelForCausalLM.from_pretrained(
        folder, use_safetensors=True, dtype=torch.float32, **options
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    interruption.looks(network)
    return network.to(device), AutoTokenizer.from_pretrained(folder, **options)


def next_token_accuracy(
    folder: Path,
    train: Sequence[str],
    test: Sequence[str],
    *,
    steps: int = 200,
    batch: int = 16,
    tokens: int = 64,
    rate: float = 5e-4,
    seed: int = 0,
) -> Figure:
    """Share of next tokens of `test` that a model fine-tuned on `train` ranks first (Xie et al. 2024).

    Each text is cut after `tokens` tokens. The untrained model's figure is reported beside it.
    """
    network, tokenizer = _load(folder)
    rows = [ids for text in train if len(ids := _ids(tokenizer, text, tokens)) > 1]
    held = [ids for text in test if len(ids := _ids(tokenizer, text, tokens)) > 1]
    if not rows or not held:
        raise ValueError("no text has two tokens")
    before = _accuracy(network, held, batch)
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate)
    draw = np.random.default_rng(seed)
    network.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
        picked = [rows[index] for index in draw.integers(len(rows), size=batch)]
        inputs, mask = _padded(picked, network.device)
        targets = inputs.masked_fill(mask == 0, -100)
        loss = network(input_ids=inputs, attention_mask=mask, labels=targets).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    settings = {
        "model": folder.name,
        "steps": steps,
        "batch": batch,
        "tokens": tokens,
        "learning_rate": rate,
        "seed": seed,
        "texts": [len(rows), len(held)],
    }
    value = _accuracy(network, held, batch)
    details = {"before training": before}
    return Figure("Next-token accuracy", value, settings, "the figure of real texts", details)


def _ids(tokenizer: Any, text: str, tokens: int) -> list[int]:
    return list(tokenizer.encode(text[: 32 * tokens], split_special_tokens=True))[:tokens]


def _padded(rows: Sequence[list[int]], device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, rows))
    ids = torch.zeros((len(rows), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
        mask[index, : len(row)] = 1
    return ids.to(device), mask.to(device)


@torch.inference_mode()
def _accuracy(network: Any, rows: Sequence[list[int]], batch: int) -> float:
    network.eval()
    right = total = 0
    for first in range(0, len(rows), batch):
        ids, mask = _padded(rows[first : first + batch], network.device)
        found = network(input_ids=ids, attention_mask=mask).logits[:, :-1].argmax(-1)
        counted = mask[:, 1:].bool()
        right += int(((found == ids[:, 1:]) & counted).sum())
        total += int(counted.sum())
    return right / total


def in_context_accuracy(
    folder: Path,
    examples: Labelled,
    test: Labelled,
    *,
    shots: int = 4,
    tokens: int = 64,
    seed: int = 0,
    name: str = "In-context TSTR accuracy",
) -> Figure:
    """Accuracy of a model that names the label after `shots` examples of each label in its prompt.

    The label with the highest mean log-likelihood wins. Every text is cut after `tokens` tokens.
    """
    network, tokenizer = _load(folder)
    network.eval()
    labels = sorted(set(test.labels))
    draw = np.random.default_rng(seed)
    shown: list[str] = []
    for label in labels:
        own = [text for text, given in zip(examples.texts, examples.labels, strict=True) if given == label]
        if not own:
            raise ValueError(f"no example has the label {label!r}")
        picked = draw.permutation(len(own))[:shots]
        shown += [_shot(tokenizer, own[index], label, tokens) for index in picked]
    prompt = "".join(shown[index] for index in draw.permutation(len(shown)))
    right = 0
    for text, label in zip(test.texts, test.labels, strict=True):
        asked = prompt + _shot(tokenizer, text, "", tokens).rstrip()
        scores = [_likelihood(network, tokenizer, asked, f" {each}") for each in labels]
        right += labels[int(np.argmax(scores))] == label
    settings = {"model": folder.name, "shots per label": shots, "tokens": tokens, "seed": seed}
    settings["texts"] = len(test.texts)
    return Figure(name, right / len(test.texts), settings, "the figure of real examples")


def _shot(tokenizer: Any, text: str, label: str, tokens: int) -> str:
    cut = tokenizer.decode(_ids(tokenizer, text, tokens), skip_special_tokens=True)
    return f"Text: {cut.strip()}\nLabel: {label}\n\n"


@torch.inference_mode()
def _likelihood(network: Any, tokenizer: Any, prompt: str, answer: str) -> float:
    """Mean log-likelihood of the answer's tokens after the prompt, the prompt cut from its start."""
    tail = tokenizer.encode(answer, add_special_tokens=False)
    room = int(getattr(network.config, "max_position_embeddings", 2048)) - len(tail)
    head = tokenizer.encode(prompt)[-room:]
    ids = torch.tensor([[*head, *tail]], device=network.device)
    scores = network(input_ids=ids).logits[0, len(head) - 1 : -1].float().log_softmax(-1)
    return float(scores.gather(1, ids[0, len(head) :, None]).mean())
