"""Seconds that a quote tells, against those of jobs: rehearsals first, then jobs of other sizes.

    python -m benchmarks.seconds [--model FOLDER] [--mechanism private-prediction]

One thread, processor time. Every rehearsal is one of the worker's own, its report included, on the
sample's public reviews; jobs run on the sample's invented records. The last column is the larger of
told / taken and taken / told.
"""

import argparse
import csv
import json
import secrets
import time
from dataclasses import replace
from pathlib import Path

import torch

from accountant.core import mechanisms
from accountant.core.mechanisms import seconds
from accountant.core.mechanisms.rehearsal import filled, held_out
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from benchmarks.utility_runs import public as things
from workers import mechanisms as runners
from workers import models, sample
from workers import rehearsal as rehearsals
from workers.data.corpora import Corpus
from workers.data.records import Record, Records
from workers.interface import Progress
from workers.noise.meter import Meter
from workers.sample.corpus import PUBLIC_SAMPLE_SIZE

#: Fields of rehearsals and of jobs, the number of texts first; then labels.
PLAIN = {"batch_size": 16, "max_text_tokens": 24}
SECRET = PLAIN | {"amplification": "allocation", "rounds": 2, "batches_per_label": 4}
REHEARSED = [
    (100, 2, PLAIN | {"tokens_per_batch": 24}),
    (200, 4, PLAIN | {"tokens_per_batch": 48}),
    (150, 2, SECRET | {"tokens_per_batch": 24}),
]
JOBS = [
    (100, 1, PLAIN | {"tokens_per_batch": 24}),
    (400, 4, PLAIN | {"tokens_per_batch": 24}),
    (300, 2, PLAIN | {"tokens_per_batch": 48, "batch_size": 32}),
    (300, 2, SECRET | {"tokens_per_batch": 24, "rounds": 3, "batches_per_label": 9}),
    (200, 3, SECRET | {"tokens_per_batch": 48, "batches_to_run": 2}),
]
#: Of `dp-kps`: labels, sequences of each, tokens of a text.
PHRASES = {"vocabulary": "JOB", "writer": "writer", "vocabulary_size": 100, "sequence_length": 5}
PHRASES_REHEARSED = [(2, 8, 24), (4, 8, 48), (1, 60, 24)]
PHRASES_JOBS = [(1, 90, 48), (4, 12, 16), (2, 30, 80), (3, 20, 24)]


def main() -> None:
    """Print the table."""
    own = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    own.add_argument("--model", type=Path, default=sample.MODEL_DIR)
    own.add_argument("--mechanism", default="private-prediction")
    options = own.parse_args()
    torch.set_num_threads(1)
    model = models.load(options.model, models.digest(options.model))
    corpus = Corpus("c", str(sample.PUBLIC_SAMPLE_CSV), "{text}", None)
    mechanism, found = mechanisms.get(options.mechanism), []
    rehearsed, jobs = REHEARSED, JOBS
    if mechanism.id == "dp-kps":
        names = ("sequences_per_label", "max_tokens")
        rehearsed, jobs = (
            [(100, labels, PHRASES | dict(zip(names, own, strict=True))) for labels, *own in shapes]
            for shapes in (PHRASES_REHEARSED, PHRASES_JOBS)
        )
    public = replace(things(model), corpora={"rehearsal_corpus": corpus})
    for size, labels, raw in rehearsed:
        terms = Terms(public_size=size, labels=sample.LABELS[:labels])
        rehearsal = mechanisms.get("rehearsal:" + mechanism.id)
        parameters = rehearsal.parse({**raw, "rehearsal_corpus": "c"}, terms)
        began = time.process_time()
        lines = list(rehearsals.Runner().make(parameters, terms, model, Progress(0), public))
        took = time.process_time() - began
        texts = json.loads(lines[-1].content)["texts_read"]
        parameters = filled(parameters, terms, texts)
        found.append((seconds.work(parameters, terms, texts, held_out(PUBLIC_SAMPLE_SIZE)), took))
        print(f"rehearsal of {texts:4} texts {took:22.1f} s", flush=True)
    with sample.PRIVATE_CSV.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for size, labels, raw in jobs:
        terms = Terms(public_size=size, labels=sample.LABELS[:labels])
        parameters = mechanism.parse(raw, terms)
        own_rows = [row for row in rows if row["label"] in terms.labels]
        records = tuple(
            Record(str(n), terms.labels[n % labels], own_rows[n % len(own_rows)]["text"])
            for n in range(size)
        )
        data = Records(terms.labels, records, secrets.token_bytes(32))
        meter = Meter(mechanism.price(parameters, terms).dp or FREE)
        began = time.process_time()
        run = runners.runner(mechanism.id).run
        list(run(parameters, terms, data, model, meter, Progress(0), public))
        took = time.process_time() - began
        told = seconds.predicted(found, seconds.work(parameters, terms, size))
        off = max(told / took, took / told)
        print(f"job on {size:4} records: told {told:6.1f}, took {took:6.1f} s, {off:.2f}")


if __name__ == "__main__":
    main()
