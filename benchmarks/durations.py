"""How long jobs take against what a quote says: each mechanism's own runner on this machine.

    python -m benchmarks.durations [--model FOLDER] [--only NAME ...] [--scale N]

Processor time of this process, one thread, without loading and tokenising the model's files: what the machine
does beside it is left out on both sides. The speed is measured as it is when a model is registered; each
mechanism then runs on the bundled reviews with the parameters below, in whole. Prints a table.
"""

import argparse
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from accountant.core import mechanisms
from accountant.core.mechanisms.durations import MODEL, Speed, estimate, together
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secrets import SecretRelease
from accountant.core.template import templates
from workers import models, sample, speed
from workers.data import records as reader
from workers.data.corpora import Corpus
from workers.data.terms import TermList
from workers.embedding import embedders
from workers.interface import Artifact, Progress, Public, Released
from workers.mechanisms import runner
from workers.noise.meter import Meter

RECORDS = 200
BATCHED = {"batches_per_label": 4, "batch_size": 50, "record_tokens": 48}
EVOLVED = {
    **{"samples": 30, "variations": 2, "max_tokens": 40, "record_tokens": 48},
    **{"prompt": "A review:", "prompting": "plain"},
}
PROTECTED = {
    **EVOLVED,
    **{"prior": 1e-4, "bound": 0.02, "records_per_secret": 3, "sampling_rate": 0.5},
    **{"neighbour": "removed", "public_corpus": "reviews", "public_texts": 100, "clusters": 5},
    **{"iterations": 4, "varying": "continue"},
}
#: `patience`: training does not end early, which an estimate can't know.
TRAINED = {
    **{"corpus": "reviews", "public_texts": 200, "record_tokens": 48, "set_size": 16, "steps": 60},
    **{"target_tokens": 40, "patience": 1_000},
}
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "private-prediction": ("private-prediction", {**BATCHED, "tokens_per_batch": 60, "max_text_tokens": 30}),
    "private-prediction, median": (
        "private-prediction",
        {
            **BATCHED,
            "tokens_per_batch": 60,
            "max_text_tokens": 30,
            "aggregation": "median",
            "ex_post_cap": 90.0,
        },
    ),
    "private-prediction, rounds": (
        "private-prediction",
        {**BATCHED, "tokens_per_batch": 30, "amplification": "allocation", "rounds": 2, "temperature": 20.0},
    ),
    "invisible-ink": ("invisible-ink", {**BATCHED, "texts_per_batch": 2, "max_tokens": 30}),
    "epsvec": (
        "epsvec",
        {
            **{"epsilon": 8.0, "sampling_rate": 0.5, "candidates": 60, "partners": 60, "samples": 100},
            **{"max_tokens": 40, "record_tokens": 48, "layers": "1-2", "shots": 1},
        },
    ),
    "summary-token": (
        "summary-token",
        {"epsilon": 8.0, "public_size": RECORDS, "record_tokens": 48, "max_tokens": 40},
    ),
    "summary-oneshot": ("summary-oneshot", {"epsilon": 8.0, "public_size": RECORDS, "record_tokens": 48}),
    "aug-pe": ("aug-pe", {**EVOLVED, "epsilon": 8.0, "epochs": 4, "varying": "continue"}),
    "aug-pe, rewriting": ("aug-pe", {**EVOLVED, "epsilon": 8.0, "epochs": 4}),
    "secpe": ("secpe", PROTECTED),
    "aug-pe, another writer": (
        "aug-pe",
        {**EVOLVED, "epsilon": 8.0, "epochs": 4, "varying": "continue", "writer": "model"},
    ),
    "aug-pe, embedding": (
        "aug-pe",
        {**EVOLVED, "epsilon": 8.0, "epochs": 4, "varying": "continue", "embedding": "embedding"},
    ),
    "secpe, another writer": ("secpe", {**PROTECTED, "writer": "model"}),
    "secpe, both": ("secpe", {**PROTECTED, "writer": "model", "embedding": "embedding"}),
    "summary-adapter": ("summary-adapter", TRAINED),
    "summary-adapter, long targets": (
        "summary-adapter",
        {**TRAINED, "soft_tokens": 20, "target_tokens": 80, "batch_size": 24},
    ),
    "dp-kps": (
        "dp-kps",
        {
            **{"vocabulary": "JOB", "vocabulary_size": 50, "sequences_per_label": 120, "sequence_length": 5},
            **{"max_tokens": 40, "writer": "model", "prompt": "A review with the words {phrases}:"},
        },
    ),
}


def data() -> reader.Records:
    """The bundled reviews, without labels."""
    layout = reader.Layout("{text}")
    found = reader.read(str(sample.PRIVATE_CSV), layout, os.urandom(32))
    if len(found.records) < RECORDS:
        raise ValueError("there are fewer reviews")
    return reader.Records(found.labels, found.records[:RECORDS], found.key)


def public(model: models.LocalModel) -> Public:
    """The public things that the jobs name: a corpus, its words, and the model as writer and embedding."""
    corpus = Corpus("reviews", str(sample.PUBLIC_SAMPLE_CSV), "{text}")
    words = Counter(word for text, _ in corpus.texts() for word in set(text.split()))
    listed = Artifact.of_json("terms", "term-list", TermList(dict(words.most_common(300)), 9).to_json())
    terms = {"terms": Released(**vars(listed))}
    embedding = embedders.load(model.folder, models.digest(model.folder, embedders.FILES))
    return Public(
        {"public_corpus": corpus, "corpus": corpus},
        {"embedding": embedding},
        {"writer": model},
        sources={"vocabulary": terms},
    )


def compared(
    model: models.LocalModel, speeds: Mapping[str, Speed], name: str, raw: dict[str, Any], things: Public
) -> tuple[float, float]:
    """(seconds estimated, processor seconds of the run)."""
    terms = Terms(public_size=RECORDS)
    mechanism = mechanisms.get(name)
    parameters = mechanism.parse(raw, terms)
    tokens = max(
        models.template_tokens(model.folder, each, []) for each in templates(parameters.model_dump())
    )
    work = mechanism.work(parameters, terms, tokens)
    said = together([estimate(asked, speeds[field]) for field, asked in work.items()])
    price = mechanism.price(parameters, terms)
    secret = None if price.secret is None else SecretRelease.from_json(price.secret["release"])
    meter = Meter(price.dp or FREE, price.ex_post_draws, secret=secret)
    running, own = runner(name), data()
    started = time.process_time()
    progress = Progress(running.total(parameters, terms))
    if mechanism.public:
        made = running.make(parameters, terms, model, progress, things)
    else:
        made = running.run(parameters, terms, own, model, meter, progress, things)
    for _ in made:
        pass
    return said.seconds, time.process_time() - started


def main() -> None:
    """Print the table."""
    own = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    own.add_argument("--model", type=Path, default=sample.MODEL_DIR)
    own.add_argument("--only", nargs="*", default=list(JOBS))
    own.add_argument("--dtype", default="auto")
    options = own.parse_args()
    model = models.load(options.model, models.digest(options.model), options.dtype)
    torch.set_num_threads(1)
    started = time.process_time()
    measured, things = Speed.read(speed.measure(model)), public(model)
    embedding = Speed.read(speed.measure_embedding(things.embedder("embedding")))
    speeds = {MODEL: measured, "writer": measured, "embedding": embedding}
    print(f"{options.model.name}: {measured.device}; self-test {time.process_time() - started:.1f} s")
    print("| job | said, s | took, s | said by took |\n|---|---|---|---|")
    for title in options.only:
        said, took = compared(model, speeds, *JOBS[title], things)
        print(f"| {title} | {said:.1f} | {took:.1f} | {said / took:.2f} |", flush=True)


if __name__ == "__main__":
    main()
