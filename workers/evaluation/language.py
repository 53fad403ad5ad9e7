"""Metrics that use a language model: next-token accuracy after training, label accuracy in
context.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from workers import interruption, models, networks
from workers.engine import Batch, Decoder, Shape, sizes
from workers.evaluation.figures import Figure, mean_interval, ratio_interval
from workers.evaluation.transfer import Labelled
from workers.models import text_start
from workers.text_tokens import encoded, text_tokens

#: Adafactor's rate is a share of a weight's own size: about what Adam's rate is of usual weights.
ADAFACTOR = 20


def _load(folder: Path) -> tuple[Any, Any, bool]:
    """Return a fresh copy of a local model to train, its tokenizer, and whether it is large.

    safetensors only, no code of its own. In float32; a large one in bfloat16 where that is faster.
    """
    from transformers import AutoModelForCausalLM

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    large = models.weight_count(folder) >= models.LARGE
    coarse = large and models.faster_in_bfloat16(folder, device.type)
    dtype = torch.bfloat16 if coarse else torch.float32
    network = networks.open_network(AutoModelForCausalLM, folder, dtype)
    interruption.looks(network)
    return network.to(device), models.tokenizer(folder), large


def _optimiser(network: Any, rate: float, large: bool) -> tuple[torch.optim.Optimizer, float]:
    """Return what trains a model, and its rate; a large one's keeps rows and columns alone."""
    if large:
        return torch.optim.Adafactor(network.parameters(), lr=ADAFACTOR * rate), ADAFACTOR * rate
    return torch.optim.AdamW(network.parameters(), lr=rate), rate


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
    """Return share of next tokens of `test` that a model fine-tuned on `train` ranks first (Xie et
    al. 2024).

    Each text is cut after `tokens` tokens. The untrained model's figure is reported beside it.
    Models of `models.LARGE` weights or more learn by Adafactor: for AdamW's two numbers a weight it
    keeps a few a row.
    """
    network, tokenizer, large = _load(folder)
    rows = [ids for text in train if len(ids := _ids(tokenizer, text, tokens)) > 1]
    held = [ids for text in test if len(ids := _ids(tokenizer, text, tokens)) > 1]
    if not rows or not held:
        raise ValueError("no text has two tokens")
    right, total = _right(network, held, batch)
    before = float(right.sum() / total.sum())
    optimizer, highest = _optimiser(network, rate, large)
    draw = np.random.default_rng(seed)
    network.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = highest * (1 + math.cos(math.pi * step / steps)) / 2
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
        "learning_rate": highest,
        "optimiser": type(optimizer).__name__,
        "seed": seed,
        "texts": [len(rows), len(held)],
    }
    right, total = _right(network, held, batch)
    details, interval = {"before training": before}, ratio_interval(right, total, seed)
    value, ideal = float(right.sum() / total.sum()), "the figure of real texts"
    return Figure("Next-token accuracy", value, settings, ideal, details, interval=interval)


def _ids(tokenizer: Any, text: str, tokens: int) -> list[int]:
    return encoded(lambda: tokenizer.encode(text[: 32 * tokens], split_special_tokens=True))[
        :tokens
    ]


def _padded(rows: Sequence[list[int]], device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, rows))
    ids = torch.zeros((len(rows), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
        mask[index, : len(row)] = 1
    return ids.to(device), mask.to(device)


@torch.inference_mode()
def _right(
    network: Any, rows: Sequence[list[int]], batch: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each text's tokens that the model ranks first, and each text's tokens."""
    network.eval()
    right, total = [], []
    for first in range(0, len(rows), batch):
        ids, mask = _padded(rows[first : first + batch], network.device)
        predicted = network(input_ids=ids, attention_mask=mask).logits[:, :-1].argmax(-1)
        counted = mask[:, 1:].bool()
        right += ((predicted == ids[:, 1:]) & counted).sum(dim=1).tolist()
        total += counted.sum(dim=1).tolist()
    return np.array(right), np.array(total)


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
    """Return accuracy of a model that names the label after `shots` examples of each label in its
    prompt.

    The label with the highest mean log-likelihood wins. Every text is cut after `tokens` tokens.
    """
    model = models.load(folder, models.digest(folder))
    labels = sorted(set(test.labels))
    draw = np.random.default_rng(seed)
    shown: list[str] = []
    for label in labels:
        label_texts = [
            text
            for text, text_label in zip(examples.texts, examples.labels, strict=True)
            if text_label == label
        ]
        if not label_texts:
            raise ValueError(f"no example has the label {label!r}")
        picked = draw.permutation(len(label_texts))[:shots]
        shown += [_shot(model.tokenizer, label_texts[index], label, tokens) for index in picked]
    prompt = "".join(shown[index] for index in draw.permutation(len(shown)))
    prompts = [_shot(model.tokenizer, text, "", tokens).rstrip() for text in test.texts]
    scores = likelihoods(model, prompt, prompts, [f" {label_name}" for label_name in labels])
    named = [labels[place] for place in scores.argmax(1).tolist()]
    right = np.array([one == other for one, other in zip(named, test.labels, strict=True)])
    settings = {"model": folder.name, "shots per label": shots, "tokens": tokens, "seed": seed}
    settings["texts"] = len(test.texts)
    ideal, interval = "the figure of real examples", mean_interval(right)
    return Figure(name, float(np.mean(right)), settings, ideal, interval=interval)


def losses(
    model: models.LocalModel, texts: Sequence[str], *, tokens: int = 64, batch: int = 32
) -> NDArray[np.float64]:
    """Return each text's mean loss under a model that reads nothing else, in nats a token.

    Each text is cut after `tokens` tokens. A text without a token that is predicted gets infinity.
    """
    rows = token_losses(model, texts, tokens=tokens, batch=batch)
    return np.array([row.mean() if len(row) else np.inf for row in rows])


@torch.inference_mode()
def token_losses(
    model: models.LocalModel, texts: Sequence[str], *, tokens: int = 64, batch: int = 32
) -> list[NDArray[np.float64]]:
    """Return the losses of each text's tokens, as `losses` takes their mean."""
    start = text_start(model.tokenizer)
    rows = [start + _ids(model.tokenizer, text, tokens) for text in texts]
    values = [np.zeros(0)] * len(rows)
    # Texts of like lengths side by side: padding is computed too.
    order = sorted(
        (row for row in range(len(rows)) if len(rows[row]) > 1), key=lambda r: len(rows[r])
    )
    for first in range(0, len(order), batch):
        places = order[first : first + batch]
        ids, mask = _padded([rows[row] for row in places], model.device)
        logits = model.network(input_ids=ids, attention_mask=mask).logits[:, :-1].float()
        flat = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), ids[:, 1:], reduction="none"
        )
        for place, row in zip(places, flat.double().cpu().numpy(), strict=True):
            values[place] = row[: len(rows[place]) - 1]
    return values


def _shot(tokenizer: Any, text: str, label: str, tokens: int) -> str:
    cut = tokenizer.decode(_ids(tokenizer, text, tokens), skip_special_tokens=True)
    return f"Text: {cut.strip()}\nLabel: {label}\n\n"


def likelihoods(
    model: models.LocalModel, prompt: str, asked: Sequence[str], answers: Sequence[str]
) -> torch.Tensor:
    """Return mean log-likelihood of each answer's tokens after the prompt and each text asked:
    (asked, answers).

    The prompt is read once, and loses its beginning where it would not fit the model's context.
    """
    start, prompt_ids = (
        text_start(model.tokenizer),
        [text_tokens(model.tokenizer, prompt_parts) for prompt_parts in asked],
    )
    ends = [text_tokens(model.tokenizer, answer) for answer in answers]
    room = model.context_tokens - max(map(len, prompt_ids)) - max(map(len, ends)) - len(start)
    before = start + (text_tokens(model.tokenizer, prompt)[-room:] if room > 0 else [])
    shape = Shape(len(before), max(map(len, prompt_ids)), max(map(len, ends)))
    chosen = sizes(model.network, shape, len(ends), len(prompt_ids), model.memory_bytes)
    likelihoods = []
    for first in range(0, len(prompt_ids), chosen.batches):
        contexts = [batch for batch in prompt_ids[first : first + chosen.batches] for _ in ends]
        decoder = Decoder(model.structure, [Batch(contexts, before)], shape, chosen)
        likelihoods.append(_scored(decoder, ends, len(contexts) // len(ends)))
    return torch.cat(likelihoods)


def _scored(decoder: Decoder, ends: Sequence[Sequence[int]], texts: int) -> torch.Tensor:
    """Return (texts, ends) for contexts side by side, as many times as there are ends."""
    longest = max(map(len, ends))
    padded = torch.tensor([[*end, *[end[-1]] * (longest - len(end))] for end in ends]).repeat(
        texts, 1
    )
    counts = torch.tensor([len(end) for end in ends]).repeat(texts)
    total = torch.zeros(len(padded))
    values = torch.cat([end for _, end in decoder.read()])
    for place in range(longest):
        log_probabilities = (
            values.log_softmax(-1)
            .gather(1, padded[:, place : place + 1].to(values.device))
            .squeeze(1)
        )
        total += log_probabilities.float().cpu() * (place < counts)
        if place + 1 < longest:
            written = torch.full_like(counts, place).to(values.device)
            values = decoder.extend(padded[:, place].to(values.device), written)
    return (total / counts).view(texts, len(ends))
