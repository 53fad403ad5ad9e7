"""Reasons why an effect of the papers doesn't show at this size: the quantities behind it, measured.

| table | question |
|---|---|
| vectors | how much of EPSVec's direction is left after sampling and noise |
| histogram | whether the noisy histogram picks the candidates that most records are near to |
| median-cost | what the median costs ex post in a batch, by the number of records in it |

All of it looks at private records without noise and repeats releases, for the sake of the comparison: the
corpora are published, and the service has none of this.
"""

import random
import secrets
import statistics
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from accountant.core import mechanisms
from accountant.core.mechanisms.epsvec import Epsvec, layer_range
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from benchmarks import utility_data, utility_runs
from benchmarks.utility_bench import Bench
from benchmarks.utility_cells import Made, Repeats, Table
from benchmarks.utility_tables import affordable, clustered, matched, raw_epsvec, raw_prediction
from workers import mechanisms as runners
from workers.data.public_text import label as public_label
from workers.data.records import Place, Records, Within
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner
from workers.interface import Progress
from workers.mechanisms.epsvec import shots as fixed_shots
from workers.mechanisms.epsvec import vectors as dataset_vectors
from workers.mechanisms.epsvec.prompts import Scaffold
from workers.noise.meter import Meter

M = TypeVar("M", bound=Meter)

TIMES = 10  # how many times the records of the other tables are looked at beside them
RELEASES = 50
VECTOR_EPSILONS = (1.0, 3.0, 5.0)
SHOT_EPSILONS = (0.1, 1.0)


@dataclass
class Job:
    """One job of a mechanism on a bench's corpus: what its steps take."""

    bench: Bench
    mechanism: str
    raw: Mapping[str, Any]
    terms: Terms = field(init=False)
    parameters: Any = field(init=False)

    def __post_init__(self) -> None:
        self.terms = utility_runs.terms_of(self.bench.corpus)
        self.parameters = mechanisms.get(self.mechanism).parse(self.raw, self.terms)

    def meter(self, kind: type[M] = Meter) -> M:
        price = mechanisms.get(self.mechanism).price(self.parameters, self.terms)
        return kind(price.dp or FREE, price.ex_post_draws)

    def records(self) -> Records:
        return Records(self.terms.labels, self.bench.corpus.records(), secrets.token_bytes(32))

    def written(self, count: int) -> dict[str | None, list[str]]:
        """Texts of the model alone, which stand as candidates or partners."""
        scaffold, model = Scaffold.of(self.parameters), self.bench.model
        writer = LocalWriter(model, generator(model.device, None))
        manner = Manner(self.parameters.max_tokens, self.parameters.temperature, scaffold.marker)
        labels = self.terms.labels
        prompts = [
            scaffold.prompt(model.tokenizer, public_label(self.terms, label)).asked for label in labels
        ]
        found: dict[str | None, list[str]] = {label: [] for label in labels}
        for each in writer.write(prompts, manner, count):
            found[labels[each.row]].append(each.text)
        return found


def larger(bench: Bench) -> list[Bench]:
    """The bench with its records, and with TIMES as many or all that there are."""
    whole = len(utility_data.load(bench.dataset, TIMES * bench.sizes.records).private.texts)
    return [bench, replace(bench, sizes=replace(bench.sizes, records=whole))]


def repeated(bench: Bench, kind: str, settings: Made, make: Any) -> list[Made]:
    """The cells of all repeats that there was time for."""
    made = [
        bench.store.once(kind, {**bench.common, **settings, "repeat": repeat}, make)
        for repeat in range(bench.sizes.seeds)
    ]
    return [each for each in made if each is not None]


def shown(bench: Bench, made: Sequence[Made], key: str, digits: int = 2) -> str:
    column = Repeats(bench.sizes.seeds)
    for each in made:
        column.add(each[key])
    return column.shown(digits)


def described(bench: Bench, **more: Any) -> Made:
    return {
        "model": f"{bench.folder.name} ({bench.sha256[:12]})",
        "corpus": bench.dataset,
        "repeats": bench.sizes.seeds,
        **more,
    }


# --- directions ---------------------------------------------------------------------------------


def vectors(bench: Bench) -> Table:
    """Cosines with the direction of all records, in the mean over labels and layers."""
    rows = []
    for each in larger(bench):
        raw = raw_epsvec(each, shots=0)
        found = repeated(each, "vectors", {"raw": raw}, partial(directions, each, raw))
        keys = ["halves", "drawn", *(f"epsilon {epsilon:g}" for epsilon in VECTOR_EPSILONS), "labels"]
        count = len(each.corpus.private.texts)
        rows.append([f"{count:,}", str(raw["samples_per_label"]), *(shown(each, found, key) for key in keys)])
    columns = ["records", "drawn per label", "one half and the other", "drawn, no noise"]
    columns += [f"released at ε {epsilon:g}" for epsilon in VECTOR_EPSILONS] + ["between labels"]
    title = f"How much of a vector is left (cosines), {bench.dataset}"
    raw = raw_epsvec(bench)
    settings = described(bench, layers=raw["layers"], clip=raw["clip"], δ="n^-1.1")
    return Table(f"vectors-{bench.dataset}", title, columns, rows, settings)


def directions(bench: Bench, raw: Made) -> Made:
    jobs = {}
    for epsilon in VECTOR_EPSILONS:
        total = utility_runs.epsvec_epsilon(bench.corpus, raw, epsilon)
        jobs[epsilon] = Job(bench, "epsvec", {**raw, "epsilon": total})
    job = jobs[VECTOR_EPSILONS[0]]
    parameters, records = job.parameters, job.records()
    views = views_of(job)
    sums = partial(dataset_vectors.sums, parameters, bench.model, key=records.key, views=views)
    mixed = random.sample(records.records, len(records.records))
    first, second = (sums(mixed[place::2]) for place in (0, 1))
    whole = first + second
    drawn = sums(dataset_vectors.drawn(parameters, job.terms, records))
    flat = unit(whole)
    between = [
        float((flat[:, one] * flat[:, two]).sum(axis=-1).mean())
        for one in range(flat.shape[1])
        for two in range(one)
    ]
    made = {"halves": cosine(first, second), "drawn": cosine(drawn, whole), "labels": np.mean(between).item()}
    for epsilon, each in jobs.items():
        noisy = dataset_vectors.release(each.parameters, each.terms, drawn.shape[1], drawn, each.meter())
        made[f"epsilon {epsilon:g}"] = cosine(noisy.transpose(1, 0, 2), whole)
    return made


def views_of(job: Job) -> dict[str | None, dataset_vectors.View]:
    """As the mechanism's second step makes them, without shots."""
    parameters: Epsvec = job.parameters
    scaffold, model = Scaffold.of(parameters), job.bench.model
    views = {}
    for label, texts in job.written(parameters.partners).items():
        prompt = scaffold.prompt(model.tokenizer, public_label(job.terms, label))
        found = dataset_vectors.partners(
            model, prompt, texts, parameters.record_tokens, layer_range(parameters), parameters.partner
        )
        views[label] = dataset_vectors.View(prompt, found)
    return views


def unit(values: NDArray[Any]) -> NDArray[np.float64]:
    """Of length 1 along the last axis."""
    values = values.astype(np.float64)
    return np.divide(values, np.linalg.norm(values, axis=-1, keepdims=True))


def cosine(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float((unit(one) * unit(other)).sum(axis=-1).mean())


# --- shots --------------------------------------------------------------------------------------


def histogram(bench: Bench) -> Table:
    """Quality of the noisy counts' choice, between chance (0) and the exact counts' choice (1)."""
    rows = []
    for each in larger(bench):
        raw = raw_epsvec(each)
        found = repeated(each, "histogram", {"raw": raw, "releases": RELEASES}, partial(picks, each, raw))
        keys = ["mean", "best", *(f"{kind} {e:g}" for e in SHOT_EPSILONS for kind in ("sigma", "found"))]
        digits = [1, 1, *(digit for _ in SHOT_EPSILONS for digit in (1, 2))]
        cells = [shown(each, found, key, digit) for key, digit in zip(keys, digits, strict=True)]
        rows.append([f"{len(each.corpus.private.texts):,}", *cells])
    columns = ["records", "near a candidate", "near one of the best two"]
    for epsilon in SHOT_EPSILONS:
        columns += [f"σ at ε {epsilon:g}", f"found at ε {epsilon:g}"]
    title = f"What the histogram finds, {bench.dataset}"
    settings = described(bench, candidates=raw_epsvec(bench)["candidates"], shots=2, releases=RELEASES)
    return Table(f"histogram-{bench.dataset}", title, columns, rows, settings)


def picks(bench: Bench, raw: Made) -> Made:
    job = Job(bench, "epsvec", {**raw, "noise_multiplier": 1e5})
    candidates = {
        label: list(dict.fromkeys(filter(None, texts)))
        for label, texts in job.written(job.parameters.candidates).items()
    }
    near = fixed_shots.count_near(
        job.records(), candidates, utility_data.embedder(), job.parameters.record_tokens, lambda: None
    )
    made = {
        "mean": statistics.fmean(float(each.mean()) for each in near.values()),
        "best": statistics.fmean(float(np.sort(each)[-2:].mean()) for each in near.values()),
    }
    for epsilon in SHOT_EPSILONS:
        found_sizes = {label: len(each) for label, each in near.items()}
        own = Job(bench, "epsvec", {**job.raw, "shots_epsilon": epsilon})
        shares = []
        for _ in range(RELEASES):
            noisy = fixed_shots.release(own.parameters, own.terms, found_sizes, lambda: near, own.meter())
            for label, exact in near.items():
                picked = exact[np.argsort(-noisy[label], kind="stable")[:2]].mean()
                best = np.sort(exact)[-2:].mean()
                shares.append(float((picked - exact.mean()) / (best - exact.mean())))
        made[f"sigma {epsilon:g}"] = float(own.parameters.shots_noise_multiplier)
        made[f"found {epsilon:g}"] = statistics.fmean(shares)
    return made


# --- the median's cost --------------------------------------------------------------------------


@dataclass(frozen=True)
class Counted(Records):
    """Records that remember how many of them each batch got."""

    sizes: dict[Place, int] = field(default_factory=dict)

    def batches(
        self, count: int, within: Within | None = None, run: int | None = None
    ) -> dict[Place, list[str]]:
        found = super().batches(count, within, run)
        self.sizes.update({place: len(texts) for place, texts in found.items()})
        return found


class Parts(Meter):
    """A meter that remembers what the draws of each batch cost."""

    def __init__(self, *reserved: Any) -> None:
        super().__init__(*reserved)
        self.parts: Counter[Hashable] = Counter()

    def ex_post_token(
        self,
        scores: NDArray[np.int64],
        scale: Fraction,
        costs: NDArray[np.float64],
        part: Hashable | None = None,
    ) -> int:
        token = super().ex_post_token(scores, scale, costs, part)
        self.parts[part] += costs[token]
        return token


GROUPS = ((0, 7), (8, 15), (16, 31), (32, 63), (64, 10**9))


def median_cost(bench: Bench) -> Table:
    """The ex-post cost of a batch, by its size, for uniform batches and clusters."""
    mean = affordable(bench, raw_prediction(bench))
    grouped = affordable(bench, clustered(bench, raw_prediction(bench)))
    rows = []
    for name, raw in (("uniform", matched(mean)), ("clusters", matched(grouped))):
        made = repeated(bench, "median-cost", {"raw": raw}, partial(costs, bench, raw))
        pairs = [pair for each in made for pair in each["batches"]]
        for low, high in GROUPS:
            own = [cost for size, cost in pairs if low <= size <= high]
            if own:
                ends = f"{low} to {high}" if high < 10**9 else f"{low} and more"
                figures = [f"{figure:.2f}" for figure in (statistics.fmean(own), max(own))]
                rows.append([name, ends, str(len(own)), *figures])
    columns = ["batches", "records in the batch", "how many", "mean ε ex post", "highest"]
    settings = described(bench, **{"tokens of a batch": mean["tokens_per_batch"], "clip": mean["clip"]})
    settings |= {"with clusters": grouped["tokens_per_batch"], "public contexts": "beside the records"}
    return Table(
        f"median-cost-{bench.dataset}",
        f"What the median costs in a batch, {bench.dataset}",
        columns,
        rows,
        settings,
    )


def costs(bench: Bench, raw: Made) -> Made:
    job = Job(bench, "private-prediction", raw)
    plain = job.records()
    records = Counted(plain.labels, plain.records, plain.key)
    meter, progress = job.meter(Parts), Progress(0)
    runner = runners.runner("private-prediction")
    for _ in runner.run(
        job.parameters, job.terms, records, bench.model, meter, progress, utility_runs.public()
    ):
        pass
    return {"batches": [[size, meter.parts[place]] for place, size in records.sizes.items()]}
