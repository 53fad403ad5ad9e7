"""aug-pe and secpe: Fréchet distance over epochs, memory of a voting pass, and time of a round.

    python -m benchmarks.evolution fid --embedding FOLDER [--model FOLDER] [--epsilon inf 4 1]
      [--seeds 1]
    python -m benchmarks.evolution votes      one voting pass of 10,000 to 1,000,000 records
    python -m benchmarks.evolution rounds     secpe: the release, and a round, for 100 to 1,000,000
                                              records

`fid` runs the mechanism's own runner on a part of some reviews, which plays the private one, and
compares the survivors of each epoch with the other part, which it does not see: the bundled reviews
and model, or with --model an instruction model and the Yelp reviews of ../shared/data. ε inf is a
meter without noise, which exists here and nowhere in the service. The others need no model: vectors
are random, seeds fixed.
"""

import argparse
import csv
import json
import math
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from threadpoolctl import threadpool_limits

from accountant.core.mechanisms import aug_pe, secpe
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secrets import SecretRelease
from benchmarks.utility_data import rows
from tests.support import SHARED
from workers import models, sample
from workers.data.public_text import vouch
from workers.data.records import Record, Records
from workers.embedding import embedders
from workers.embedding.neighbours import Floats, unit
from workers.evaluation.fidelity import frechet
from workers.evolution.places import Space
from workers.evolution.population import Evolution, Family, Label
from workers.evolution.variation import Made
from workers.interface import Artifact, Progress, Public
from workers.mechanisms.aug_pe import Runner, count
from workers.mechanisms.secpe import votes
from workers.mechanisms.secpe.cells import Cells
from workers.mechanisms.secpe.releases import Members, Noisy, release
from workers.noise.meter import Meter

WIDTH, SAMPLES = 384, 2_000
RECORDS, HELD_OUT, TOKENS = 2_000, 1_000, 64


# --- Fréchet distance over epochs ---------------------------------------------------------------


#: How samples are written by an instruction model, and by the bundled one.
CHAT = {
    "prompt": "Write a short Yelp review of a business.",
    "rewriting": "Rewrite this review: {text}",
}
PLAIN = {"prompt": "A review ({label}):", "varying": "continue", "prompting": "plain", "stop": "\n"}
LABELS = sample.LABELS[:4]

Labelled = list[tuple[str | None, str]]


def yelp() -> tuple[Labelled, Labelled]:
    """(private, held-out) reviews of Yelp, without labels."""
    dev, test = (
        [(None, row["text"]) for row in rows(SHARED / f"data/yelp_augpe/{part}.csv.gz")]
        for part in ("dev", "test")
    )
    return list(dev[:RECORDS]), list(test[:HELD_OUT])


def bundled() -> tuple[Labelled, Labelled]:
    """(private, held-out) reviews of four labels of the private part of the bundled corpus: a half
    each.
    """
    with sample.PRIVATE_CSV.open(encoding="utf-8", newline="") as file:
        found: Labelled = [
            (row["label"], row["text"]) for row in csv.DictReader(file) if row["label"] in LABELS
        ]
    return found[::2], found[1::2]


def of_epochs(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One run for every seed and ε: the distance of the first samples, and of each epoch's
    survivors.
    """
    folder = arguments.model or sample.MODEL_DIR
    model = models.load(folder, models.digest(folder))
    private, held_out = yelp() if arguments.model else bundled()
    terms = Terms(labels=() if arguments.model else LABELS)
    embedder = embedders.load(arguments.embedding, embedders.inspect(arguments.embedding)["sha256"])
    reference = embedders.embed_all(embedder, (text for _, text in held_out), TOKENS)
    texts = [text for _, text in private]
    kept = Known(
        embedder, dict(zip(texts, embedders.embed_all(embedder, texts, TOKENS), strict=True))
    )
    rows_of = tuple(
        Record(f"r{number}", label, text) for number, (label, text) in enumerate(private)
    )
    records = Records(terms.labels or (None,), rows_of, b"k" * 32)
    fixed = {
        **(CHAT if arguments.model else PLAIN),
        **{
            name: getattr(arguments, name)
            for name in ("epochs", "samples", "variations", "max_tokens")
        },
        "temperature": 1.0,
        "record_tokens": TOKENS,
        "embedding": "given",
    }
    for seed in arguments.seeds:
        for epsilon in arguments.epsilon:
            started = time.perf_counter()
            spend = {"noise_multiplier": 1.0} if math.isinf(epsilon) else {"epsilon": epsilon}
            parameters = aug_pe.MECHANISM.parse({**fixed, **spend, "seed": seed}, terms)
            dp = aug_pe.MECHANISM.price(parameters, terms).dp
            assert dp is not None
            public = Public(embedders={"embedding": kept})
            with without_noise() if math.isinf(epsilon) else nullcontext():
                run = Runner().run(
                    parameters, terms, records, model, Meter(dp), Progress(0), public
                )
                artifact = next(each for each in run if isinstance(each, Artifact))
            sets = survivors(artifact, arguments.samples)
            found = [
                frechet(embedders.embed_all(embedder, each, TOKENS), reference) for each in sets
            ]
            yield {
                "epsilon": str(epsilon),
                "seed": seed,
                "texts": len(sets[0]),
                "sigma": 0.0 if math.isinf(epsilon) else parameters.noise_multiplier,
                "frechet": [round(each.value, 4) for each in found],
                "seconds": round(time.perf_counter() - started, 1),
            }


def without_noise() -> Any:
    """A meter whose noise is nothing, for ε = ∞."""
    return mock.patch("workers.noise.meter.gaussian_on_grid", lambda values, _: values)


def survivors(artifact: Artifact, samples: int) -> list[list[str]]:
    """The first `samples` candidates of every label, which nobody voted for, then each epoch's
    survivors.
    """
    families = artifact.json()["labels"]
    epochs = len(families[0]["epochs"])
    places = [[each["epochs"][0]["candidates"][:samples] for each in families]]
    places += [[each["epochs"][epoch]["survivors"] for each in families] for epoch in range(epochs)]
    return [
        [
            family["samples"][place]["text"]
            for family, own in zip(families, each, strict=True)
            for place in own
        ]
        for each in places
    ]


class Known:
    """An embedder that looks up the vectors of the records, which are the same in every run."""

    def __init__(self, embedder: embedders.Embedder, known: dict[str, Floats]) -> None:
        self.embedder, self.known = embedder, known
        self.dimensions, self.context_tokens = embedder.dimensions, embedder.context_tokens

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[Floats]:
        """As `Embedder.embed`."""
        found = list(texts)
        if found and all(text in self.known for text in found):
            yield np.stack([self.known[text] for text in found])
        else:
            yield from self.embedder.embed(found, tokens)


# --- votes and rounds ---------------------------------------------------------------------------


def vectors(number: int, seed: int = 0) -> list[Floats]:
    """Random unit vectors in pieces of 10,000 at most."""
    random = np.random.default_rng(seed)
    sizes = [min(10_000, number - first) for first in range(0, number, 10_000)]
    return [unit(random.standard_normal((size, WIDTH), np.float32)) for size in sizes]


def megabytes(field: str) -> float:
    """VmRSS or VmHWM (its peak) of this process."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def of_votes() -> Iterator[dict[str, Any]]:
    """CPU seconds of one pass, and the memory above the records' vectors."""
    samples = np.concatenate(vectors(SAMPLES, 1))
    count(vectors(100), samples, 1)  # the library's first call sets itself up
    for number in (10_000, 100_000, 1_000_000):
        points = vectors(number)
        Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
        before, start = megabytes("VmRSS"), time.process_time()
        found = count(points, samples, 1)
        seconds, above = time.process_time() - start, megabytes("VmHWM") - before
        assert found.sum() == number
        yield {
            "records": number,
            "cpu_seconds": round(seconds, 2),
            "megabytes_above": round(above, 1),
        }
        del points


class Numbered:
    """An embedder of texts that are numbers: rows of one random matrix."""

    dimensions, context_tokens = WIDTH, 10

    def __init__(self, most: int) -> None:
        self.rows = np.concatenate(vectors(most, 2))

    def embed(self, texts: Iterable[str], tokens: int | None = None) -> Iterator[Floats]:  # noqa: ARG002
        """As `Embedder.embed`, in pieces of 10,000."""
        places = [int(text) % len(self.rows) for text in texts]
        for first in range(0, len(places), 10_000):
            yield self.rows[places[first : first + 10_000]]


def of_rounds() -> Iterator[dict[str, Any]]:
    """600 clusters, 2,000 samples: CPU seconds of the one release, and the median of 60 rounds
    after it.
    """
    where = Space(Numbered(50_000), 10, np.zeros(WIDTH, np.float32))
    raw = {
        "prior": 1e-4,
        "bound": 1e-3,
        "records_per_secret": 8,
        "sampling_rate": 0.5,
        "neighbour": "removed",
        "public_corpus": "x",
        "clusters": 600,
        "samples": SAMPLES // 7,
    }
    parameters = secpe.MECHANISM.parse(raw, Terms())
    price = secpe.MECHANISM.price(parameters, Terms())
    assert price.secret is not None
    stated = SecretRelease.from_json(price.secret["release"])
    cells = Cells.of([np.concatenate(vectors(20_000, 3))], parameters.clusters, 1.0)
    family = Family()
    family.candidates = [family.add(Made(vouch(str(n)), True), None) for n in range(SAMPLES)]
    evolution: Any = Evolution.__new__(Evolution)
    evolution.families, evolution.parameters = dict[Label, Family]({None: family}), parameters
    released = dict[int, tuple[float, Noisy]]()
    for number in (100, 10_000, 1_000_000):
        records = Records(
            (None,), tuple(Record(str(n), None, str(n)) for n in range(number)), b"k" * 32
        )
        start = time.process_time()
        members = Members(parameters, records, where, cells, lambda: None)
        first = release(parameters, members, Meter(FREE, secret=stated))
        once = time.process_time() - start
        noisy = Noisy(
            first[0][None], first[1][None], cells.owners, cells.sizes, where.centre, where.centre
        )
        released[number] = once, noisy
    rounds: dict[int, list[float]] = {number: [] for number in released}
    for _ in range(60):  # in turn, so that whatever else the machine does meets all three alike
        for number, (_, noisy) in released.items():
            start = time.process_time()
            votes(evolution, where, noisy)
            rounds[number].append(time.process_time() - start)
    for number, (once, _) in released.items():
        yield {
            "records": number,
            "release_cpu_seconds": round(once, 2),
            "round_cpu_ms": round(1e3 * float(np.median(rounds[number])), 2),
        }


def main() -> None:
    """Print a JSON line for each row."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parts = parser.add_subparsers(dest="part", required=True)
    fid = parts.add_parser("fid")
    fid.add_argument("--model", type=Path, default=None)
    fid.add_argument("--embedding", type=Path, required=True)
    fid.add_argument("--epsilon", type=float, nargs="+", default=[math.inf, 4.0, 1.0])
    fid.add_argument("--seeds", type=int, nargs="+", default=[1])
    for name, default in (("samples", 24), ("variations", 4), ("epochs", 5), ("max-tokens", 64)):
        fid.add_argument(f"--{name}", type=int, default=default)
    parts.add_parser("votes")
    parts.add_parser("rounds")
    arguments = parser.parse_args()
    if arguments.part == "fid":
        found = of_epochs(arguments)
        for row in found:
            print(json.dumps(row), flush=True)
        return
    with threadpool_limits(1):
        for row in of_votes() if arguments.part == "votes" else of_rounds():
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
