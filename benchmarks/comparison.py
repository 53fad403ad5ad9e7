"""One table of all mechanisms: each cell is a job by its own runner, at its own price.

    python -m benchmarks.comparison MODEL [--small] [--seconds N] [--dataset imdb] [--row paper]
        [--processes N]

A cell is (corpus, row, ε, seed) at one size. benchmarks/comparison.json keeps figures alone, no
text; a cell that stands there is never run again, and cells of the paper's setting and of support
with allocation at ε 3 come first. After --seconds no further cell begins. docs/comparison.md and
docs/images/comparison-*.png are written anew at the end. --small: IMDb and AG News, ε 3, one seed,
128 records, 8 texts of 16 tokens, 1,800 seconds. --processes: cells side by side, which pays on a
GPU. "Private" corpora are those of EXCHEQUER_SHARED.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from accountant.core.errors import InvalidRequest
from accountant.core.mechanisms.planning import CLIP, SUPPORT, TEMPERATURE, propose
from benchmarks import comparison_page, summaries, utility_data, utility_runs
from benchmarks.proposals import figures, side, without_records
from workers import models
from workers.embedding.embedders import embed_all
from workers.evaluation.language import losses
from workers.evaluation.mauve import mauve
from workers.evaluation.run import LEAST_TEXTS
from workers.evaluation.usable import duplicates

ROOT = Path(__file__).parent
FIGURES, PAGE = ROOT / "comparison.json", ROOT.parent / "docs/comparison.md"
AUDITS = ROOT / "audits.json"
IMAGES = ROOT.parent / "docs/images"
#: Prompts without a record; with one, the last line stands twice.
PROMPTS = {
    "imdb": "{label} movie reviews by viewers.\n\nReview:",
    "ag_news": "{label} news in brief.\n\nArticle:",
    "yelp": "{label} reviews of businesses by customers.\n\nReview:",
    "openreview": "Peer reviews of papers about machine learning. {label}.\n\nReview:",
    "pubmedqa": "Abstracts of medical studies. {label}.\n\nAbstract:",
}
EPSILONS = (3.0, 1.0, 10.0)
PRIOR = 1e-4  # of a secret, for secpe


@dataclass(frozen=True)
class Size:
    """What a cell's time follows from. `texts`: of all labels together."""

    records: int = 2_000
    texts: int = 100
    tokens: int = 48


SMALL, SMALL_CORPORA = Size(128, 8, 16), ("imdb", "ag_news")


@dataclass
class Case:
    """One corpus, model and size."""

    dataset: str
    model: models.LocalModel
    facts: Mapping[str, Any]
    size: Size

    @cached_property
    def corpus(self) -> utility_data.Corpus:
        return utility_data.load(self.dataset, self.size.records)

    @cached_property
    def real(self) -> Any:
        """Losses of real texts, for what is readable."""
        return losses(self.model, self.corpus.held_out.texts[:40])

    @property
    def prompt(self) -> str:
        return PROMPTS[self.dataset]

    @property
    def template(self) -> str:
        head, _, last = self.prompt.rpartition("\n\n")
        return f"{head}\n\n{last} {{record}}\n\n{last}"

    @property
    def labels(self) -> int:
        return len(self.corpus.labels)

    @property
    def each(self) -> int:
        """Texts of a label."""
        return -(-self.size.texts // self.labels)

    @property
    def held(self) -> int:
        """Records of a label."""
        return len(self.corpus.private.texts) // self.labels

    def fitted(self, mechanism: str, raw: Mapping[str, Any], epsilon: float, name: str) -> float:
        terms = utility_runs.terms_of(self.corpus)
        return utility_runs.fitted(mechanism, raw, terms, epsilon, name)


# --- rows ---------------------------------------------------------------------------------------


def prediction(case: Case, epsilon: float, secret: bool = False, **more: Any) -> dict[str, Any]:
    """private-prediction, as many texts as are wanted or as ε allows. Paper 001's own row for ε 3:
    256 records a batch, clip 9, temperature 1.5, all tokens.
    """
    tokens = case.size.tokens
    batches = max(1 + secret, -(-case.held // 256))
    raw = {
        **{"batch_size": case.held // batches, "batches_per_label": batches},
        **{"max_text_tokens": tokens, "record_tokens": 64, "template": case.template},
        "top_k": 0,
        **more,
    }
    wanted = -(-case.each // batches)
    if not secret:
        priced = {name: value for name, value in raw.items() if name != "ex_post_cap"}
        priced |= {"aggregation": "mean"}
        most = case.fitted("private-prediction", priced, epsilon, "tokens_per_batch")
        return {**raw, "tokens_per_batch": min(int(most), wanted * tokens)}
    raw |= {"amplification": "allocation", "tokens_per_batch": tokens}
    most = case.fitted("private-prediction", raw, epsilon, "rounds")
    return {**raw, "rounds": min(int(most), wanted)}


NARROW = {"clip": CLIP, "temperature": TEMPERATURE, "top_k": SUPPORT}


def clustered(case: Case, epsilon: float) -> dict[str, Any]:
    own = {"public_corpus": "given", "embedding": "given", "batching": "clusters"}
    return prediction(case, epsilon, **own, clusters=case.labels, public_centres=12)


def median(case: Case, epsilon: float) -> dict[str, Any]:
    """As many tokens as the mean, from the same batches: its ε is ex post."""
    raw = prediction(case, epsilon)
    return {**raw, "aggregation": "median", "ex_post_cap": 100.0}


def ink(case: Case, epsilon: float) -> dict[str, Any]:
    batch = max(1, min(8, case.held // case.each))
    raw = {
        **{"batch_size": batch, "batches_per_label": case.each, "record_tokens": 64},
        **{"max_tokens": case.size.tokens, "template": case.template},
        "public_template": case.prompt,
    }
    return {**raw, "clip": case.fitted("invisible-ink", raw, epsilon, "clip")}


def epsvec(case: Case, epsilon: float) -> dict[str, Any]:
    """The planner's own request, at this ε: its rule drops texts that it has no room to end, and
    length is free. Raises ValueError for a model that nobody has swept.
    """
    terms = utility_runs.terms_of(case.corpus)
    found = propose("texts", terms, lambda _: True, case.facts, only="epsvec")
    if found.mechanism is None:
        raise ValueError(found.outlook.why)
    raw = {**found.parameters, "samples": case.each}
    return {**raw, "epsilon": case.fitted("epsvec", raw, epsilon, "epsilon")}


def shots(case: Case) -> dict[str, Any]:
    """epsvec with nothing added: what its shots alone give, at their ε of 0.1."""
    layers = {"layers": "0", "coefficient": 0.0, "noise_multiplier": 1e5}
    head, _, last = case.prompt.rpartition("\n\n")
    own = {"template": f"{head}\n\n{{examples}}{last}", "prompting": "plain", "stop": None}
    counts = {"candidates": case.each, "partners": 2, "samples": case.each, "embedding": "given"}
    texts = {"max_tokens": case.size.tokens, "record_tokens": 64, "temperature": 1.0}
    return {**layers, **own, **counts, **texts, "samples_per_label": 1}


def phrases(case: Case, epsilon: float) -> dict[str, Any]:
    kept = max(50, min(1_000, int(case.held * 0.8 * epsilon / 4)))
    head, _, last = case.prompt.rpartition("\n\n")
    return {
        **{"vocabulary": "JOB", "writer": "writer", "vocabulary_size": kept},
        **{"vocabulary_epsilon": epsilon / 5, "kde_epsilon": epsilon * 4 / 5},
        **{"sequences_per_label": case.each, "sequence_length": 5},
        **{"prompt": f"{head} Words: {{phrases}}.\n\n{last}", "temperature": 1.0},
        "max_tokens": case.size.tokens,
    }


def evolved(case: Case) -> dict[str, Any]:
    return {
        **{"prompt": case.prompt, "samples": case.each, "variations": 3, "temperature": 1.0},
        **{"max_tokens": case.size.tokens, "record_tokens": 64, "embedding": "given"},
    }


def aug_pe(case: Case, epsilon: float) -> dict[str, Any]:
    return {**evolved(case), "epochs": 3, "epsilon": epsilon}


def secpe(case: Case, epsilon: float) -> dict[str, Any]:
    """A secret in one record, guessed with e^ε times its prior at most: not an (ε, δ)."""
    stated = {"prior": PRIOR, "records_per_secret": 1, "sampling_rate": 1.0, "neighbour": "removed"}
    own = {"public_corpus": "given", "public_texts": 1_000, "clusters": 8, "iterations": 3}
    return {**evolved(case), **stated, **own, "bound": min(0.5, PRIOR * float(np.exp(epsilon)))}


Row = tuple[str, Callable[[Case, float], dict[str, Any]]]
PREDICTION = "private-prediction"
ROWS: Mapping[str, Row] = {
    "zero-shot": ("invisible-ink", lambda case, _: {"public_template": case.prompt}),
    "paper": (PREDICTION, prediction),
    "support + allocation": (PREDICTION, lambda c, e: prediction(c, e, True, **NARROW)),
    "support": (PREDICTION, lambda c, e: prediction(c, e, **NARROW)),
    "allocation": (PREDICTION, lambda c, e: prediction(c, e, True)),
    "clusters": (PREDICTION, clustered),
    "median": (PREDICTION, median),
    "invisible-ink": ("invisible-ink", ink),
    "epsvec": ("epsvec", epsvec),
    "fixed shots": ("epsvec", lambda case, _: shots(case)),
    "dp-kps": ("dp-kps", phrases),
    "aug-pe": ("aug-pe", aug_pe),
    "secpe": ("secpe", secpe),
}


def narrow(**one: Any) -> Row:
    """Support and allocation, with one setting changed."""
    return PREDICTION, lambda case, epsilon: prediction(case, epsilon, True, **{**NARROW, **one})


#: Run where --row names them.
SWEEP: Mapping[str, Row] = {
    **{f"clip {c:g}": narrow(clip=c) for c in (2.0, 3.0, 6.0, 9.0)},
    **{f"temperature {t:g}": narrow(temperature=t) for t in (0.8, 1.5)},
    **{f"top_k {k or 'all'}": narrow(top_k=k) for k in (20, 400, 0)},
}
FIRST = ("zero-shot", "paper", "support + allocation")
SAME_AT_ANY_EPSILON = ("zero-shot", "fixed shots")


def bought(name: str) -> list[tuple[float, float, str]]:
    """Texts of 48 tokens over ε that a row of private-prediction writes of 5,000 IMDb reviews."""
    case, line = Case("imdb", None, {}, Size(5_000, 10**6, 48)), []
    for epsilon in (0.5, 1.0, 2.0, 3.0, 5.0, 10.0):
        raw = ROWS[name][1](case, epsilon)
        each = raw.get("rounds", 1) * raw["tokens_per_batch"] // case.size.tokens
        if each:
            line.append((epsilon, each * raw["batches_per_label"] * case.labels, ""))
    return line


# --- cells --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One job to run; what it wants is `size`."""

    writer: str
    dataset: str
    row: str
    epsilon: float
    seed: int
    size: Size

    @property
    def key(self) -> str:
        size = "-".join(map(str, asdict(self.size).values()))
        return "|".join(
            [self.writer, self.dataset, self.row, f"{self.epsilon:g}", str(self.seed), size]
        )


def cells(options: argparse.Namespace) -> Iterator[Cell]:
    """Yield cells in the order in which they are run: what is compared first comes first."""
    size = SMALL if options.small else Size(options.records, options.texts, options.tokens)
    seeds, epsilons = ((1,), EPSILONS[:1]) if options.small else ((1, 2, 3), EPSILONS)
    writer = options.model.resolve().name.rpartition("-")[0] or options.model.name
    found = [
        Cell(writer, dataset, name, epsilon, seed, size)
        for seed in seeds
        for epsilon in epsilons
        for dataset in options.dataset or (SMALL_CORPORA if options.small else PROMPTS)
        for name in options.row or ROWS
        if epsilon == EPSILONS[0] or name not in SAME_AT_ANY_EPSILON
    ]

    def later(each: Cell) -> int:
        return (each.row not in FIRST) + (each.seed != 1) + (each.epsilon != EPSILONS[0])

    yield from sorted(found, key=later)


@cache
def case_of(folder: Path, dataset: str, size: Size, gib: float | None) -> Case:
    """The case of this process; one model for all."""
    model = models.load(folder, models.digest(folder), memory_gib=gib)
    return Case(dataset, model, models.inspect(folder), size)


def figures_of(options: argparse.Namespace, each: Cell, ends: float) -> dict[str, Any] | None:
    """Run one cell, in a process of its own; None where the time, by the clock, is over."""
    if time.time() >= ends:
        return None
    torch.set_num_threads(options.threads)
    case = case_of(options.model, each.dataset, each.size, options.gib)
    return cell(case, each.row, each.epsilon, each.seed)


def cell(case: Case, name: str, epsilon: float, seed: int) -> dict[str, Any]:
    """Run one job and return its figures; why there are none, where it writes nothing."""
    mechanism, build = {**ROWS, **SWEEP}[name]
    began = time.process_time()
    torch.manual_seed(seed)
    spent: dict[str, Any] = {"epsilon": 0.0}
    try:
        raw = build(case, epsilon)
        if name == "zero-shot":
            raw |= {"max_tokens": case.size.tokens, "temperature": 1.0}
            terms = utility_runs.terms_of(case.corpus)
            texts = without_records(mechanism, raw, terms, case.model, case.size.texts, seed)
        else:
            spent = utility_runs.run(mechanism, raw, case.corpus, case.model)
            pairs = spent["texts"]
            texts = side([t for t, _ in pairs], [str(own) for _, own in pairs], spent["complete"])
    except (ValueError, InvalidRequest) as problem:
        return {"texts": 0, "why": str(problem)[:120]}
    seconds = time.process_time() - began
    if not texts.texts:
        return {"texts": 0, "why": "no text was begun"}
    found = figures(texts, case.corpus, case.model, case.real)
    encode = case.model.tokenizer.encode
    found |= {
        "tokens": statistics.fmean(len(encode(text)) for text in texts.texts),
        "duplicates": float(np.mean(duplicates(texts.texts))),
        "mauve": likeness(case, texts.texts, seed),
        "epsilon": spent["epsilon"],
        "ex post": spent.get("ex_post_epsilon"),
        "seconds": seconds,
        "device": device(case.model),
    }
    return {key: round(v, 3) if isinstance(v, float) else v for key, v in found.items()}


def device(model: models.LocalModel) -> str:
    """What a cell ran on, and in which type."""
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return f"{name} in {str(model.network.dtype).removeprefix('torch.')}"


def likeness(case: Case, texts: Sequence[str], seed: int) -> float | None:
    """MAUVE against as many held-out texts; None where there are too few."""
    real = case.corpus.held_out.texts[: len(texts)]
    if min(len(texts), len(real)) < LEAST_TEXTS["mauve"]:
        return None
    ours, theirs = (embed_all(utility_data.embedder(), each) for each in (texts, real))
    return float(mauve(ours, theirs, seed=seed, features=utility_data.EMBEDDING.name).value)


def run(options: argparse.Namespace, known: dict[str, Any]) -> None:
    """Run the cells that are not known yet, until the time is over."""
    ends = time.time() + (options.seconds or (1_800 if options.small else float("inf")))
    missing = [each for each in cells(options) if each.key not in known]
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        running = {pool.submit(figures_of, options, each, ends): each.key for each in missing}
        for future in as_completed(running):
            key = running[future]
            if problem := future.exception():
                print(key, repr(problem), flush=True)
            elif found := future.result():
                known[key] = found
                FIGURES.write_text(json.dumps(known, indent=0, ensure_ascii=False) + "\n", "utf-8")
                print(key, found, flush=True)
    left = sum(each.key not in known for each in missing)
    print(f"{left} cells are left: the same command goes on.")


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("model", type=Path, help="folder of a language model")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seconds", type=float, help="after which no further cell begins")
    parser.add_argument("--dataset", action="append", choices=PROMPTS)
    parser.add_argument("--row", action="append", choices=[*ROWS, *SWEEP])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--gib", type=float, help="memory for contexts of each process")
    for name, default in asdict(Size()).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args(arguments)


def main() -> None:
    options = options_of()
    model = str(options.model)
    known = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    run(options, known)
    small, full = (
        {each.key for each in cells(options_of([model, *which]))} for which in (["--small"], [])
    )
    audits = json.loads(AUDITS.read_text("utf-8"))
    text = comparison_page.page(known, small, full, list(ROWS), audits) + summaries.section()
    PAGE.write_text(text, "utf-8")
    texts = {name: bought(name) for name in ("paper", "support", "allocation", FIRST[-1])}
    comparison_page.plots(known, list(ROWS), list(SWEEP), texts, IMAGES)
    comparison_page.main()


if __name__ == "__main__":
    main()
