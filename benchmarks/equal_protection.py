"""aug-pe, secpe and dp-kps at equal protection: quality of the texts and prompts sent to the
language model.

    python -m benchmarks.equal_protection noise
    python -m benchmarks.equal_protection run --model FOLDER --embedding FOLDER --folder F [--arm
      NAME …]
    python -m benchmarks.equal_protection table --folder F

`run`: the Yelp development reviews of EXCHEQUER_SHARED play the private records, restaurants and
other businesses as two labels that no prompt names; a part of the test reviews is secpe's public
corpus, another the real texts to compare with. secpe promises that a secret with prior 1e-4 is
guessed with probability r at most, where it stands in one record; aug-pe has the mu of Equation 4
for one record (paper 003, Table 5). dp-kps and aug-pe share epsilon 6. `noise`: what `recluster`
leaves of secpe's noise at equal r, where a secret stands in more records; no data. Every run is the
mechanism's own runner under a meter of its price, or without noise for "inf", which exists here
only.

All arms of a seed are written by one writer: the k-th text after a prompt is the same for all, so
that they differ by what they select, and a text is written once. Texts and figures stay in F; a run
that was cut short goes on.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from scipy.special import ndtri

from accountant.core import mechanisms
from accountant.core.mechanisms.secpe import release as released_by
from accountant.core.privacy.blowup import GroupSampling, Without, least_sigma
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from benchmarks.evolution import Known, survivors, without_noise
from benchmarks.kps import english
from benchmarks.utility_data import rows
from tests.support import SHARED
from workers import models
from workers.data.public_text import PublicPrompt, PublicText, vouch
from workers.data.records import Record, Records
from workers.embedding import embedders
from workers.embedding.neighbours import Floats
from workers.evaluation.fidelity import frechet
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner, Written
from workers.interface import Artifact, Progress, Public, Released, Text
from workers.mechanisms.aug_pe import Runner as AugPeRunner
from workers.mechanisms.dp_kps import Runner as DpKpsRunner
from workers.mechanisms.secpe import Runner as SecPeRunner
from workers.noise.meter import Meter

LABELS = ("other", "restaurant")
PRIOR, RATIOS = 1e-4, (2.0, 10.0, 50.0, math.inf)
TOKENS, HELD_OUT = 64, 500
EPSILON = {"vocabulary_epsilon": 1.0, "kde_epsilon": 5.0}

#: How texts are written: no prompt names the label, so what a classifier learns of it comes from
#: votes.
WRITING = {
    "prompt": "Write a short Yelp review of a business.",
    "rewriting": "Rewrite this Yelp review in other words, about another business of this kind: "
    "{text}",
    "prompting": "chat",
    "temperature": 0.9,
    "max_tokens": 40,
    "record_tokens": TOKENS,
    "embedding": "given",
    "writer": "given",
}


# --- the writer that all arms share -------------------------------------------------------------


class Shared:
    """A writer that keeps what it wrote: the k-th text after a prompt is the same in every run of a
    seed.

    Stands where an endpoint would; `asked` counts the texts that a run had written for it.
    """

    name = "shared"

    def __init__(self, writer: LocalWriter, file: Path) -> None:
        self.writer, self.file = writer, file
        self.kept: dict[str, list[tuple[str, bool]]] = {}
        if file.exists():
            self.kept = {
                key: [(t, c) for t, c in own] for key, own in json.loads(file.read_text()).items()
            }
        self.seen: dict[str, int] = {}
        self.asked = 0

    def seeded(self, _: int | None) -> "Shared":
        """A run begins with the first text after each prompt."""
        self.seen, self.asked = {}, 0
        return self

    def write(
        self, prompts: Sequence[PublicPrompt], manner: Manner, each: int = 1
    ) -> Iterator[Written]:
        """As `Writer.write`."""
        wanted = [
            (row, str(prompt.text)) for row, prompt in enumerate(prompts) for _ in range(each)
        ]
        places, missing = list[tuple[int, str, int]](), list[str]()
        for row, key in wanted:
            place = self.seen.get(key, 0)
            self.seen[key] = place + 1
            places.append((row, key, place))
            own = self.kept.setdefault(key, [])
            if place >= len(own) + missing.count(key):
                missing.append(key)
        by_key = {str(prompt.text): prompt for prompt in prompts}
        for written in self.writer.write([by_key[key] for key in missing], manner):
            self.kept[missing[written.row]].append((str(written.text), written.complete))
        if missing:
            self.file.write_text(json.dumps(self.kept, ensure_ascii=False))
        self.asked += len(places)
        for row, key, place in places:
            text, complete = self.kept[key][place]
            yield Written(vouch(text), complete, row)

    def length(self, text: PublicText) -> int:
        """As `Writer.length`."""
        return self.writer.length(text)

    def shortened(self, text: PublicText, tokens: int) -> PublicText:
        """As `Writer.shortened`."""
        return self.writer.shortened(text, tokens)

    def room(self, manner: Manner) -> int:
        """As `Writer.room`."""
        return self.writer.room(manner)


# --- data ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Texts:
    """A public corpus that lies in memory; its texts have no label of the job."""

    own: Sequence[str]

    def texts(self) -> Iterator[tuple[PublicText, str | None]]:
        """As `Corpus.texts`."""
        return ((vouch(text), None) for text in self.own)


def reviews(part: str) -> list[tuple[str, str]]:
    """(label, text)."""
    found = rows(SHARED / f"data/yelp_augpe/{part}.csv.gz")
    return [(LABELS[row["label1"].endswith("Restaurants")], row["text"]) for row in found]


@dataclass(frozen=True)
class Bench:
    """Records, texts to compare with, and the public things of a job."""

    options: argparse.Namespace

    @cached_property
    def every(self) -> list[tuple[str, str]]:
        return reviews("dev")

    @property
    def private(self) -> list[tuple[str, str]]:
        return self.every[: self.options.records]

    @cached_property
    def test(self) -> list[tuple[str, str]]:
        return reviews("test")

    @cached_property
    def held_out(self) -> list[tuple[str, str]]:
        """As many of each label."""
        rest = self.test[self.options.public :]
        return [
            pair
            for label in LABELS
            for pair in [each for each in rest if each[0] == label][:HELD_OUT]
        ]

    @cached_property
    def embedder(self) -> Known:
        folder = self.options.embedding
        model = embedders.load(folder, embedders.inspect(folder)["sha256"])
        texts = [text for _, text in [*self.every, *self.test]]
        stored = self.options.folder / "reviews.npy"
        if not stored.exists():
            np.save(stored, embedders.embed_all(model, texts, TOKENS))
        return Known(model, dict(zip(texts, np.load(stored), strict=True)))

    @cached_property
    def model(self) -> models.LocalModel:
        return models.load(self.options.model, models.digest(self.options.model), "bfloat16")

    @cached_property
    def terms(self) -> Terms:
        return Terms(labels=LABELS, delta=1e-6, public_size=self.options.records)

    def records(self, some: bool = True) -> Records:
        """All, or none."""
        made = (Record(f"r{n}", label, text) for n, (label, text) in enumerate(self.private))
        return Records(LABELS, tuple(made) if some else (), b"k" * 32)

    def vectors(self, texts: Sequence[str]) -> Floats:
        """(texts, dimensions)."""
        return np.concatenate(list(self.embedder.embed(texts, TOKENS)))

    def real(self, seed: int) -> list[tuple[str, str]]:
        """As many private reviews as an arm publishes texts, cut as these are."""
        random = np.random.default_rng(seed)
        chosen = []
        for label in LABELS:
            own = [each for each in self.private if each[0] == label]
            chosen += [
                own[place] for place in random.choice(len(own), self.options.samples, replace=False)
            ]
        return chosen

    def figures(self, made: Sequence[tuple[str, str]]) -> dict[str, float]:
        """Fréchet distance to the held-out reviews, and accuracy on them of a classifier of
        embeddings.
        """
        from sklearn.linear_model import LogisticRegression

        ours = self.vectors([text for _, text in made])
        theirs = self.vectors([text for _, text in self.held_out])
        classifier = LogisticRegression(max_iter=1_000).fit(ours, [label for label, _ in made])
        accuracy = classifier.score(theirs, [label for label, _ in self.held_out])
        return {"frechet": frechet(ours, theirs).value, "accuracy": float(accuracy)}


# --- arms ---------------------------------------------------------------------------------------


def mu(ratio: float) -> float:
    """Of Equation 4: what Gaussian DP lets a guess of prior p succeed with probability `ratio`
    p.
    """
    return float(ndtri(ratio * PRIOR) - ndtri(PRIOR))


@dataclass(frozen=True)
class Arm:
    """One way of making texts. `ratio`: r / p. `records`: whether there are any. `paper`: its
    votes.
    """

    mechanism: str
    ratio: float = math.inf
    recluster: bool = False
    records: bool = True
    epsilon: float | None = None
    paper: bool = False


ARMS = {
    "aug-pe, ε 6": Arm("aug-pe", epsilon=6.0),
    "dp-kps, ε 6": Arm("dp-kps", epsilon=6.0),
    **{f"aug-pe, r/p {ratio:g}": Arm("aug-pe", ratio) for ratio in RATIOS},
    **{f"secpe, r/p {ratio:g}": Arm("secpe", ratio) for ratio in RATIOS},
    **{f"secpe, recluster, r/p {ratio:g}": Arm("secpe", ratio, True) for ratio in RATIOS[:3]},
    **{f"secpe of the paper, r/p {ratio:g}": Arm("secpe", ratio, paper=True) for ratio in RATIOS},
    **{
        f"secpe of the paper, recluster, r/p {ratio:g}": Arm("secpe", ratio, True, paper=True)
        for ratio in RATIOS[:3]
    },
    "secpe of the paper, public clusters alone": Arm("secpe", records=False, paper=True),
}


def made_by(bench: Bench, arm: Arm, writer: Shared, seed: int) -> dict[str, Any]:
    """Texts of a run with their labels, σ, prompts, and where the mechanism evolves each round's
    texts.
    """
    options = bench.options
    price = mechanisms.get(arm.mechanism)
    evolving = {
        **WRITING,
        "samples": options.samples,
        "variations": options.variations,
        "seed": seed,
    }
    none = nullcontext()
    if arm.mechanism == "dp-kps":
        return of_phrases(bench, writer, seed)
    if arm.mechanism == "aug-pe":
        spend: dict[str, Any] = {"epsilon": arm.epsilon}
        if arm.epsilon is None:
            sigma = 1.0 if math.isinf(arm.ratio) else math.sqrt(options.epochs) / mu(arm.ratio)
            spend = {"noise_multiplier": sigma}
        raw, runner = {**evolving, **spend, "epochs": options.epochs}, cast("Any", AugPeRunner())
    else:
        noise = {"noise_multiplier": 1.0} if math.isinf(arm.ratio) else {"bound": arm.ratio * PRIOR}
        stated = {
            "prior": PRIOR,
            "records_per_secret": 1,
            "sampling_rate": 1.0,
            "neighbour": "removed",
        }
        raw = {
            **evolving,
            **stated,
            **noise,
            "iterations": options.epochs,
            "recluster": arm.recluster,
        }
        raw |= {"public_corpus": "given", "clusters": options.clusters}
        raw |= {"voting": "nearest", "counted": "all"} if arm.paper else {}
        runner = SecPeRunner()
    parameters = price.parse(raw, bench.terms)
    priced = price.price(parameters, bench.terms)
    meter = Meter(priced.dp or FREE)
    if arm.mechanism == "secpe":
        meter = Meter(FREE, secret=released_by(parameters))
    exact = math.isinf(arm.ratio) and arm.epsilon is None
    given = Public(
        embedders={"embedding": bench.embedder},
        endpoints={"writer": cast("Any", writer)},
        corpora={
            "public_corpus": cast("Any", Texts([text for _, text in bench.test[: options.public]]))
        },
    )
    with without_noise() if exact else none:
        own = (bench.terms, bench.records(arm.records), bench.model, meter, Progress(0), given)
        found = list(runner.run(parameters, *own))
    artifact = next(
        each for each in found if isinstance(each, Artifact) and each.name == "evolution"
    )
    rounds = survivors(artifact, options.samples)
    labels = [label for label in LABELS for _ in range(options.samples)]
    return {
        "texts": [(text.label, text.text) for text in found if isinstance(text, Text)],
        "rounds": [list(zip(labels, each, strict=True)) for each in rounds],
        "sigma": 0.0 if exact else parameters.noise_multiplier,
        "prompts": writer.asked,
    }


def of_phrases(bench: Bench, writer: Shared, seed: int) -> dict[str, Any]:
    """dp-kps: as many texts as the others publish, a prompt for each."""
    raw = {
        "vocabulary": "JOB",
        "writer": "given",
        "sequences_per_label": bench.options.samples,
        "prompt": "Write a short Yelp review of a business that has these words: {phrases}",
        **{name: WRITING[name] for name in ("prompting", "temperature", "max_tokens")},
        **{**EPSILON, "sequence_length": bench.options.phrases, "seed": seed},
    }
    price = mechanisms.get("dp-kps")
    parameters = price.parse(raw, bench.terms)
    listed = Artifact.of_json("terms", "term-list", english().to_json())
    public = Public(
        endpoints={"writer": cast("Any", writer)},
        sources={"vocabulary": {"terms": Released(listed.name, listed.content)}},
    )
    meter = Meter(price.price(parameters, bench.terms).dp or FREE)
    found = DpKpsRunner().run(
        cast("Any", parameters), bench.terms, bench.records(), None, meter, Progress(0), public
    )
    texts = [(each.label, each.text) for each in found if isinstance(each, Text)]
    return {"texts": texts, "rounds": [], "sigma": None, "prompts": writer.asked}


# --- commands -----------------------------------------------------------------------------------


def run(options: argparse.Namespace) -> None:
    """Every arm of every seed that has left no file yet."""
    options.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(options)
    for seed in options.seeds:
        local = LocalWriter(bench.model, generator(bench.model.device, seed))
        writer = Shared(local, options.folder / f"written-{seed}.json")
        for name, arm in ARMS.items():
            place = options.folder / f"{seed}-{name.replace('/', ' ')}.json"
            if place.exists() or name not in (options.arm or ARMS):
                continue
            started = time.process_time()
            found = made_by(bench, arm, writer.seeded(seed), seed)
            found["figures"] = [
                bench.figures(each) for each in [*found.pop("rounds"), found["texts"]]
            ]
            found["cpu_seconds"] = round(time.process_time() - started, 1)
            place.write_text(json.dumps(found, ensure_ascii=False))
            shown = {key: value for key, value in found.items() if key != "texts"}
            print(seed, name, json.dumps(shown), flush=True)
        place = options.folder / f"{seed}-real.json"
        place.write_text(json.dumps({"figures": [bench.figures(bench.real(seed))]}))


def table(folder: Path) -> None:
    """Both figures: mean, then each seed's."""
    print(
        "| | σ | prompts | Fréchet ↓ | each seed | accuracy ↑ | each seed "
        "|\n|---|---|---|---|---|---|---|"
    )
    for name in ["real", "first samples", *ARMS]:
        stem = "aug-pe, r/p inf" if name == "first samples" else name
        found = [
            json.loads(path.read_text())
            for path in sorted(folder.glob(f"*-{stem.replace('/', ' ')}.json"))
        ]
        if not found:
            continue
        ends = [each["figures"][0 if name == "first samples" else -1] for each in found]
        cells = [
            f"{np.mean([e[key] for e in ends]):.3f} | {', '.join(f'{e[key]:.3f}' for e in ends)}"
            for key in ("frechet", "accuracy")
        ]
        sigma, prompts = found[0].get("sigma"), found[0].get("prompts", 0)
        if name == "first samples":
            sigma = None
        print(
            f"| {name} | {'' if sigma is None else f'{sigma:.3g}'} | {prompts} | "
            f"{' | '.join(cells)} |"
        )


def noise(_: argparse.Namespace) -> None:
    """σ of one release, and of the mean of T releases, at equal r."""
    print("| M | rate | r/p | one release | mean of 4 | mean of 10 |\n|---|---|---|---|---|---|")
    for records, rate in ((1, 1.0), (4, 1.0), (4, 0.25), (20, 1.0), (20, 0.25), (20, 0.05)):
        for ratio in RATIOS[:3]:
            group = GroupSampling(records, rate, Without.REMOVED)
            means = [
                least_sigma(group, rounds, PRIOR, ratio * PRIOR, 1e-2) / math.sqrt(rounds)
                for rounds in (1, 4, 10)
            ]
            print(
                f"| {records} | {rate:g} | {ratio:g} | "
                f"{' | '.join(f'{each:.3g}' for each in means)} |",
                flush=True,
            )


def main() -> int:
    """Run, or print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    parser.add_argument("command", choices=["noise", "run", "table"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--embedding", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--arm", nargs="+", choices=list(ARMS), help="these alone")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--records", type=int, default=5_000, help="private reviews")
    parser.add_argument(
        "--public", type=int, default=1_000, help="reviews in secpe's public corpus"
    )
    for name, default in (
        ("samples", 24),
        ("variations", 3),
        ("epochs", 4),
        ("clusters", 8),
        ("phrases", 5),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.command == "noise":
        noise(options)
    elif options.command == "table":
        table(options.folder)
    else:
        run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
