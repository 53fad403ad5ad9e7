"""summary-token at ε ∞ on sets of eight reviews that people summarised: ROUGE against what they
wrote.

    python -m benchmarks.summaries_rouge --model FOLDER --file OUT.json [--sets 20] [--tokens 48]

The Yelp test sets of opinion_summaries (EXCHEQUER_SHARED). Groups of eight have no honest ε: the
noise of any would drown them, so the meter adds none, here alone. Beside the mechanism: the model
asked without any review, the set's first review cut to as many tokens, and the model given all
eight at once. ROUGE is the mean over the references of a set, then over sets.
"""

import argparse
import gzip
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accountant.core import mechanisms
from accountant.core.privacy.price import Terms
from benchmarks.summaries import Exact
from tests.support import SHARED
from workers import models
from workers.data.public_text import PublicPrompt, vouch
from workers.data.records import Record, Records
from workers.evaluation.summaries import rouge
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner, answers
from workers.interface import Progress
from workers.mechanisms.summary_token import Runner

ASKED = "Write a short review of the business that says what its customers think."
TEMPLATE = "{user}Review: {record}\n" + ASKED + "{assistant}"
SIZE = 8


def sets(most: int) -> list[tuple[list[str], list[str]]]:
    """(reviews, references) of each set."""
    path = SHARED / "data/opinion_summaries/fewsum.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    chosen = [each for each in found if (each["domain"], each["split"]) == ("yelp", "test")]
    return [(each["reviews"], each["summaries"]) for each in chosen[:most]]


def by_tokens(
    model: models.LocalModel, groups: Sequence[Sequence[str]], tokens: int, temperature: float
) -> list[str]:
    """A summary of each group, token by token, without noise."""
    names = tuple(f"g{place}" for place in range(len(groups)))
    terms = Terms(groups=names)
    raw: dict[str, Any] = {
        "epsilon": 1.0,
        "clip": 1e4,
        "public_size": SIZE,
        "min_group": SIZE,
        "max_tokens": tokens,
    }
    raw |= {"template": TEMPLATE, "record_tokens": 96, "temperature": temperature, "seed": 1}
    mechanism = mechanisms.get("summary-token")
    parameters = mechanism.parse(raw, terms)
    priced = mechanism.price(parameters, terms).dp
    assert priced is not None
    made = tuple(
        Record(f"{name}-{place}", None, text, name)
        for name, own in zip(names, groups, strict=True)
        for place, text in enumerate(own)
    )
    records = Records((None,), made, b"k" * 32, groups=names)
    return [
        text.text
        for text in Runner().run(parameters, terms, records, model, Exact(priced), Progress(0))
    ]


def asked(
    model: models.LocalModel, prompts: Sequence[str], tokens: int, temperature: float
) -> list[str]:
    """The model's answers."""
    writer = LocalWriter(model, generator(model.device, 1))
    made = [PublicPrompt(vouch(prompt), True) for prompt in prompts]
    return [str(each) for each in answers(writer, made, Manner(tokens, temperature))]


def score(texts: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """ROUGE-1, -2 and -L: mean over each set's references."""
    rows = []
    for text, own in zip(texts, references, strict=True):
        rows.append(np.mean([[each.value for each in rouge([text], [one])] for one in own], axis=0))
    return [float(value) for value in np.mean(rows, axis=0)]


def main() -> None:
    """A row for each way; texts go to the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--temperature", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = models.load(options.model, models.digest(options.model), "bfloat16")
    found = sets(options.sets)
    reviews, references = [own for own, _ in found], [own for _, own in found]
    tokens, temperature = options.tokens, options.temperature
    cut = LocalWriter(model, generator(model.device, 1))
    several = [
        "\n".join(f"Review: {cut.shortened(vouch(each), 96)}" for each in own) + f"\n{ASKED}"
        for own in reviews
    ]
    ways: dict[str, Callable[[], list[str]]] = {
        "one of the people, against the others": lambda: [own[0] for own in references],
        "the first review, cut": lambda: [
            str(cut.shortened(vouch(own[0]), tokens)) for own in reviews
        ],
        "the model without a review": lambda: asked(
            model, [ASKED] * len(found), tokens, temperature
        ),
        "the model given all eight": lambda: asked(model, several, tokens, temperature),
        "summary-token, ε ∞": lambda: by_tokens(model, reviews, tokens, temperature),
    }
    kept = {}
    print("| | ROUGE-1 | ROUGE-2 | ROUGE-L | CPU s |\n|---|---|---|---|---|")
    for name, way in ways.items():
        started = time.process_time()
        texts = way()
        seconds = time.process_time() - started
        against = [own[1:] for own in references] if name.startswith("one of") else references
        kept[name] = texts
        cells = " | ".join(f"{value:.3f}" for value in score(texts, against))
        print(f"| {name} | {cells} | {seconds:.0f} |", flush=True)
        options.file.write_text(json.dumps(kept, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
