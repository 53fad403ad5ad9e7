"""What the rounds of a secret batch cost in time: prompts that are kept, against prompts read
anew.

    python -m benchmarks.rounds MODEL CORPUS.csv [--records 96] [--batches 3] [--rounds 16]
                                [--tokens 16] [--record-tokens 96] [--dtype auto] [--column text]

One run of `private-prediction` for each row, on one thread, in processor time: one round that draws
a single token, which is the reading of all prompts; the rounds asked for, with contexts kept and
without; and one round of as many tokens. Noise is real, and texts are thrown away.
"""

import argparse
import csv
import itertools
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from accountant.core import mechanisms
from accountant.core.privacy.price import Terms
from workers import models
from workers.data.records import Record, Records
from workers.interface import Progress
from workers.mechanisms import private_prediction
from workers.noise.meter import Meter


def records(path: Path, column: str, count: int) -> Records:
    """Return the first records of a CSV file, as units of one record each."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(itertools.islice(csv.DictReader(file), count))
    found = [Record(str(number), None, row[column]) for number, row in enumerate(rows)]
    return Records((None,), tuple(found), b"k" * 32)


def seconds(model: models.LocalModel, data: Records, **parameters: Any) -> float:
    """Return the processor time of one job."""
    mechanism, terms = mechanisms.get("private-prediction"), Terms()
    parsed = mechanism.parse({"amplification": "allocation", "clip": 6, **parameters}, terms)
    meter, runner = Meter(mechanism.price(parsed, terms).dp), private_prediction.Runner()
    begin = time.process_time()
    for _ in runner.run(parsed, terms, data, model, meter, Progress(0)):
        pass
    return time.process_time() - begin


def main() -> None:
    """Print the table."""
    own = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    own.add_argument("model", type=Path)
    own.add_argument("corpus", type=Path)
    own.add_argument("--column", default="text")
    own.add_argument("--records", type=int, default=96)
    own.add_argument("--batches", type=int, default=3)
    own.add_argument("--rounds", type=int, default=16)
    own.add_argument("--tokens", type=int, default=16)
    own.add_argument("--record-tokens", type=int, default=96)
    own.add_argument("--dtype", default="auto")
    options = own.parse_args()
    model = models.load(options.model, models.digest(options.model), options.dtype)
    torch.set_num_threads(1)
    data = records(options.corpus, options.column, options.records)
    common = {
        "batches_per_label": options.batches,
        "batch_size": options.records // options.batches,
        "record_tokens": options.record_tokens,
        "max_text_tokens": options.tokens,
        "min_tokens": options.tokens,  # every text has its full length
    }
    many = {**common, "rounds": options.rounds, "tokens_per_batch": options.tokens}
    reading = seconds(model, data, **common, tokens_per_batch=1)
    rows = {"reading of one round": reading, "rounds, prompts kept": seconds(model, data, **many)}
    with mock.patch.object(private_prediction, "KeptContexts", return_value=None):
        rows["rounds, prompts read anew"] = seconds(model, data, **many)
    whole = options.rounds * options.tokens
    rows["one round of as many tokens"] = seconds(model, data, **common, tokens_per_batch=whole)
    for name, spent in rows.items():
        print(f"{name:28} {spent:8.1f} s  {spent / reading:6.2f} x the reading of one")


if __name__ == "__main__":
    main()
