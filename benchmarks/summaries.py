"""Private summaries of groups of reviews: score over ε, one-shot against token by token.

    python -m benchmarks.summaries run --folder F [--data sample|yelp] [--model FOLDER] [--part NAME]
    python -m benchmarks.summaries table --folder F

sample: the bundled public reviews and model, groups are kinds of business; shifted: the private ones. yelp:
reviews of Yelp by category and stars, read from EXCHEQUER_SHARED. n texts of each group are the records. A
public half of its own gives centre, directions, adapter, and a classifier of the group (TF-IDF and logistic
regression). The score of a run is the share of its texts that the classifier puts into the right group; one
in six is chance. ε "inf" is without noise and exists here only. `run` goes through states, the ratio of
cached to repeated reading, adapters and scores of the variants, and token-by-token scores; each part leaves
a file in F, so that a run that was cut short goes on.
"""

import argparse
import csv
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.utils.logging import disable_progress_bar

from accountant.core import mechanisms
from accountant.core.mechanisms import group_means
from accountant.core.mechanisms.group_means import Group
from accountant.core.mechanisms.summary_oneshot import event
from accountant.core.privacy.price import Terms
from benchmarks.utility_data import rows
from tests.support import SHARED
from workers import models, sample
from workers.data.records import Record, Records
from workers.embedding import mean_states
from workers.embedding.mean_states import Reader, View
from workers.engine import Batch, Decoder, Shape, Sizes
from workers.evaluation.transfer import Labelled, _classifier
from workers.generation import soft_prompt_adapter
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner
from workers.interface import Progress
from workers.mechanisms import summary_adapter, summary_oneshot, summary_token
from workers.noise.meter import Meter
from workers.noise.samplers import Grid

EPSILONS = ("1", "2", "5", "10", "20", "50", "inf")


@dataclass(frozen=True)
class Data:
    """Texts of six groups, and how they are read. `texts`: of the private or the public half."""

    groups: tuple[str, ...]
    model: str
    dtype: str
    oneshot: str
    token: str
    start: str
    record_tokens: int
    texts: Callable[[str], Labelled]
    size: int = 100
    public_each: int = 90
    tokens: int = 24

    @property
    def terms(self) -> Terms:
        return Terms(groups=self.groups)

    def private(self) -> Labelled:
        return first_of_each(self.texts("private"), self.groups, self.size)

    def public(self) -> Labelled:
        return first_of_each(self.texts("public"), self.groups, self.public_each)


YELP = (
    *("Restaurants 1", "Restaurants 5", "Bars 5", "Shopping 5", "Beauty & Spas 5"),
    "Event Planning & Services 5",
)


def of_yelp(part: str) -> Labelled:
    found = []
    for row in rows(SHARED / f"data/yelp_augpe/{'test' if part == 'private' else 'dev'}.csv.gz"):
        group = f"{row['label1'].removeprefix('Business Category: ')} {row['label2'].split()[-1][0]}"
        if group in YELP:
            found.append((row["text"], group))
    return Labelled([text for text, _ in found], [group for _, group in found])


def of_file(path: Path) -> Labelled:
    with path.open(encoding="utf-8", newline="") as file:
        found = [(row["text"], row["business"]) for row in csv.DictReader(file)]
    return Labelled([text for text, _ in found], [group for _, group in found])


def of_sample(part: str) -> Labelled:
    """Every other public review plays a record: both halves are about the same things."""
    found, first = of_file(sample.PUBLIC_SAMPLE_CSV), part == "private"
    return Labelled(found.texts[first::2], found.labels[first::2])


def of_shifted(part: str) -> Labelled:
    """The bundled private reviews, which are full of what the public ones rarely mention."""
    return of_file(sample.PRIVATE_CSV if part == "private" else sample.PUBLIC_SAMPLE_CSV)


SAMPLE = Data(
    groups=sample.KINDS,
    model=str(sample.MODEL_DIR),
    dtype="auto",
    oneshot="A review: {record}\nAnother review (",
    token="A review: {record}\nAnother review (",
    start="A review:",
    record_tokens=64,
    texts=of_shifted,
)

DATA = {
    "yelp": Data(
        groups=YELP,
        model="",
        dtype="float32",
        oneshot="Review: {record}\nIn short, this is a review of a",
        token="{user}Review: {record}\nSay in one sentence what reviews like this are about.{assistant}"
        "The reviews are about",
        start="A review of a business:",
        record_tokens=48,
        texts=of_yelp,
    ),
    "shifted": SAMPLE,
    "sample": replace(SAMPLE, texts=of_sample, size=36, public_each=36),
}

#: The clip of each is the 90 % quantile of public norms; its adapter is trained with the σ of ε 2.
VARIANTS: dict[str, dict[str, Any]] = {
    "projected": {"centre": True, "components": 64},
    "plain": {"centre": False, "components": None},
    "centred": {"centre": True, "components": None},
}
TRAINED_AT = 2.0


def first_of_each(part: Labelled, groups: Sequence[str], count: int) -> Labelled:
    kept: dict[str, list[str]] = {group: [] for group in groups}
    for text, group in zip(part.texts, part.labels, strict=True):
        if len(kept[group]) < count:
            kept[group].append(text)
    return Labelled(
        [text for own in kept.values() for text in own], [g for g, own in kept.items() for _ in own]
    )


class Judge:
    """The classifier of groups, trained on the public half."""

    def __init__(self, data: Data) -> None:
        known = data.texts("public")
        self.classifier = _classifier().fit(list(known.texts), list(known.labels))

    def score(self, texts: Sequence[str], groups: Sequence[str]) -> float:
        """Share of texts put into their own group; an empty text is in none."""
        found = self.classifier.predict(list(texts))
        pairs = zip(texts, found, groups, strict=True)
        return float(np.mean([bool(text.strip()) and guess == group for text, guess, group in pairs]))


class Exact(Meter):
    """A meter that adds nothing, for ε = ∞; nothing that serves can reach it."""

    def gaussian(self, values: Grid, sensitivity: Any, event: Any, part: Any = None) -> Grid:  # noqa: ARG002
        return values


def load(options: argparse.Namespace) -> models.LocalModel:
    data = DATA[options.data]
    folder = Path(options.model or data.model)
    return models.load(folder, models.digest(folder), data.dtype, 6.0)


# --- one-shot -----------------------------------------------------------------------------------


def states(options: argparse.Namespace) -> dict[str, Any]:
    data = DATA[options.data]
    reader = Reader(load(options), data.oneshot, data.record_tokens)
    parts = {"private": data.private(), "public": data.public()}
    found = {name: np.stack(list(reader.states(part.texts))) for name, part in parts.items()}
    np.savez(Path(options.folder) / "states.npz", private=found["private"], public=found["public"])
    return {"read": {name: len(own) for name, own in found.items()}}


def view_and_clip(folder: Path, variant: str) -> tuple[View, float, dict[str, np.ndarray]]:
    """The view of a variant and its clip: the 90 % quantile of public norms in it."""
    found = dict(np.load(folder / "states.npz"))
    view = mean_states.public_view(found["public"], **VARIANTS[variant])
    clip = float(np.quantile(np.linalg.norm(view.coordinates(found["public"]), axis=1), 0.9))
    return view, float(f"{clip:.4g}"), found


def parsed(data: Data, epsilon: float, clip: float, variant: str) -> Any:
    option = VARIANTS[variant]
    used = option["centre"] or option["components"] is not None
    raw = {"epsilon": epsilon, "clip": clip, "public_size": data.size, **option}
    return mechanisms.get("summary-oneshot").parse(
        raw | ({"public_corpus": "public"} if used else {}) | {"max_tokens": data.tokens}, data.terms
    )


def adapter(options: argparse.Namespace) -> dict[str, Any]:
    folder, model, data = Path(options.folder), load(options), DATA[options.data]
    _, clip, found = view_and_clip(folder, options.variant)
    part = data.public()
    sigma = group_means.sigma(parsed(data, TRAINED_AT, clip, options.variant), data.terms)
    raw = {
        **{"corpus": "public", "clip": clip, "sigma": sigma, **VARIANTS[options.variant]},
        **{"soft_tokens": options.soft_tokens, "steps": options.steps, "batch_size": 8, "set_size": 8},
        **{
            "target_tokens": data.tokens,
            "evaluate_every": 12,
            "patience": 4,
            "learning_rate": 1e-3,
            "seed": 1,
        },
        **{"start": data.start, "template": data.oneshot, "public_texts": 600},
    }
    parameters = mechanisms.get("summary-adapter").parse(raw, Terms())
    measures = []
    training = summary_adapter.train(
        parameters,
        model,
        found["public"],
        list(zip(part.texts, part.labels, strict=True)),
        Progress(options.steps),
    )
    while True:
        try:
            measures.append(next(training).to_json())
            print(measures[-1], flush=True)
        except StopIteration as ended:
            np.savez(folder / f"adapter-{options.variant}.npz", **ended.value.tensors())
            break
    return {"measures": measures, "clip": clip, "sigma": sigma}


def oneshot(options: argparse.Namespace) -> dict[str, Any]:
    folder, model, data = Path(options.folder), load(options), DATA[options.data]
    judge, terms = Judge(data), data.terms
    view, clip, found = view_and_clip(folder, options.variant)
    weights = dict(np.load(folder / f"adapter-{options.variant}.npz"))
    made = soft_prompt_adapter.of_tensors(weights, model.structure.hidden, options.soft_tokens)
    own = np.array(data.private().labels)
    totals = np.stack(
        [mean_states.clipped_sum(view, found["private"][own == group], clip) for group in data.groups]
    )
    scores: dict[str, list[float]] = {}
    shown: dict[str, list[str]] = {}
    for epsilon in EPSILONS:
        for seed in range(1 if epsilon == "inf" else options.seeds):
            parameters = parsed(data, 1.0 if epsilon == "inf" else float(epsilon), clip, options.variant)
            meter = Exact(event(parameters)) if epsilon == "inf" else Meter(event(parameters))
            means = summary_oneshot.release(parameters, terms, totals, view, meter)
            with torch.inference_mode():
                soft = made(torch.from_numpy(np.concatenate([means[group] for group in data.groups])))
            writer = LocalWriter(model, generator(model.device, seed))
            manner = Manner(data.tokens, options.temperature)
            written = list(writer.write_after(list(soft), manner, options.decodings))
            texts = [each.text for each in written]
            groups = [data.groups[each.row] for each in written]
            scores.setdefault(epsilon, []).append(judge.score(texts, groups))
            shown[epsilon] = [f"{group}: {text}" for group, text in zip(groups, texts, strict=True)][:6]
        print(epsilon, scores[epsilon], shown[epsilon][:2], flush=True)
    return {"scores": scores, "texts": shown, "clip": clip}


# --- token by token -----------------------------------------------------------------------------


def records(data: Data) -> Records:
    part = data.private()
    pairs = zip(part.texts, part.labels, strict=True)
    made = tuple(Record(f"{n}", None, text, group) for n, (text, group) in enumerate(pairs))
    return Records((None,), made, b"k" * 32, groups=data.groups)


def token(options: argparse.Namespace) -> dict[str, Any]:
    """Prompts are read once; every run begins from them again."""
    model, data = load(options), DATA[options.data]
    judge, terms, own = Judge(data), data.terms, records(data)
    public = Reader(model, data.token, data.record_tokens).states(data.public().texts[::6])
    clip = float(np.quantile(np.linalg.norm(np.stack(list(public)), axis=1), 0.9))
    raw: dict[str, Any] = {"clip": float(f"{clip:.4g}"), "public_size": data.size, "max_tokens": data.tokens}
    raw |= {
        "record_tokens": data.record_tokens,
        "template": data.token,
        "temperature": options.temperature,
    }
    mechanism = mechanisms.get("summary-token")
    parameters = mechanism.parse(raw | {"epsilon": 1.0}, terms)
    prompt = models.Prompt(model.tokenizer, parameters.template, None)
    shared = len(prompt.before)
    shape = Shape(shared, prompt.fixed_tokens - shared + data.record_tokens, data.tokens)
    batches = [
        Batch(summary_token.contexts(parameters, terms, own, prompt, group)[0], prompt.before)
        for group in data.groups
    ]
    decoder = Decoder(model.structure, batches, shape, Sizes(96, 96, len(data.groups)), hidden=True)
    started = time.perf_counter()
    first = [(place, values.clone()) for place, values in decoder.read()]
    print("read", time.perf_counter() - started, flush=True)
    scores: dict[str, list[float]] = {}
    shown: dict[str, list[str]] = {}
    for epsilon in reversed(EPSILONS):
        for seed in range(options.seeds):
            parameters = mechanism.parse(
                raw | {"epsilon": 1.0 if epsilon == "inf" else float(epsilon)}, terms
            )
            priced = mechanism.price(parameters, terms).dp
            assert priced is not None
            meter = Exact(priced) if epsilon == "inf" else Meter(priced)
            random: dict[Group, torch.Generator] = {
                group: torch.Generator().manual_seed(seed * 100 + n) for n, group in enumerate(data.groups)
            }
            again = _Again(decoder, first)
            none = [Batch([])] * len(data.groups)
            writing = summary_token.Writing(parameters, terms, model, meter, again, data.groups, random, none)
            texts = list(writing.texts(Progress(0)))
            scores.setdefault(epsilon, []).append(
                judge.score([each.text for each in texts], [str(each.label) for each in texts])
            )
            shown[epsilon] = [f"{each.label}: {each.text}" for each in texts]
        print(epsilon, scores[epsilon], shown[epsilon][:2], round(time.perf_counter() - started), flush=True)
        _save(options, "token-part", {"scores": scores, "texts": shown, "clip": raw["clip"]})
    return {"scores": scores, "texts": shown, "clip": raw["clip"]}


class _Again(Decoder):
    """A decoder whose prompts were read before: each text begins anew after them."""

    def __init__(self, decoder: Decoder, first: list[tuple[int, torch.Tensor]]) -> None:
        self.__dict__.update(vars(decoder))
        self.first = first

    def read(self) -> Iterator[tuple[int, torch.Tensor]]:
        for place in range(len(self.batches)):
            self.restart(place)
        return iter(self.first)


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of one text of T tokens over n contexts, with a cache and read again for every token."""
    model, data, size, tokens = load(options), DATA[options.data], 8, 50
    reader = Reader(model, data.token, data.record_tokens)
    prompt = reader.prompt
    texts = [prompt.tokens(text, data.record_tokens) for text in data.private().texts[:size]]
    shape = Shape(0, max(map(len, texts)), tokens)
    with torch.inference_mode():
        started = time.perf_counter()
        decoder = Decoder(model.structure, [Batch(texts)], shape, Sizes(size, size, 1), hidden=True)
        cached = [torch.cat([values for _, values in decoder.read()]).clone()]
        for step in range(tokens - 1):
            cached.append(torch.cat([values for _, values in decoder.step({0: 100 + step})]).clone())
        seconds = time.perf_counter() - started
        started, far = time.perf_counter(), 0.0
        for step in range(tokens):
            longer = [[*ids, *range(100, 100 + step)] for ids in texts]
            own = Shape(0, shape.rest + step, 0)
            again = Decoder(model.structure, [Batch(longer)], own, Sizes(size, size, 1), hidden=True)
            states = torch.cat([values for _, values in again.read()])
            far = max(far, float((states - cached[step]).norm(dim=1).max() / states.norm(dim=1).max()))
        slow = time.perf_counter() - started
    return {
        "cached": seconds,
        "again": slow,
        "ratio": slow / seconds,
        "furthest": far,
        "n": size,
        "T": tokens,
    }


# --- commands -----------------------------------------------------------------------------------


def _save(options: argparse.Namespace, name: str, found: dict[str, Any]) -> None:
    (Path(options.folder) / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False))


def table(folder: Path) -> None:
    """The scores as Markdown: mean and range over seeds."""
    names = [f"oneshot-{variant}" for variant in VARIANTS] + ["token", "token-part"]
    print("| | " + " | ".join(EPSILONS) + " |\n|---|" + "---|" * len(EPSILONS))
    for name in names:
        path = folder / f"{name}.json"
        if path.exists():
            scores = json.loads(path.read_text())["scores"]
            cells = [
                f"{np.mean(scores[e]):.2f} ({min(scores[e]):.2f}–{max(scores[e]):.2f})"
                if e in scores
                else "–"
                for e in EPSILONS
            ]
            print(f"| {name} | " + " | ".join(cells) + " |")


def run(options: argparse.Namespace) -> None:
    """Every part that has left no file yet, or the one that is named."""
    parts: list[tuple[str, Callable[[argparse.Namespace], dict[str, Any]], str]]
    parts = [("states", states, ""), ("speed", speed, "")]
    for variant in VARIANTS:
        parts += [(f"adapter-{variant}", adapter, variant), (f"oneshot-{variant}", oneshot, variant)]
    for name, part, variant in [*parts, ("token", token, "")]:
        if (Path(options.folder) / f"{name}.json").exists() or options.part not in (None, name):
            continue
        options.variant, started = variant, time.perf_counter()
        found = part(options) | {"seconds": round(time.perf_counter() - started)}
        _save(options, name, found)
        shown = {key: value for key, value in found.items() if key not in ("texts", "measures")}
        print(name, shown, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--folder", required=True)
    parser.add_argument("--data", choices=list(DATA), default="sample")
    parser.add_argument("--part", help="states, speed, adapter-projected, oneshot-projected, …, token")
    parser.add_argument("--model", help="the folder of another model than the bundled one")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--soft-tokens", type=int, default=8)
    parser.add_argument("--decodings", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.7)
    options = parser.parse_args()
    disable_progress_bar()
    torch.set_num_threads(2)
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    if options.command == "table":
        table(Path(options.folder))
    else:
        run(options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
