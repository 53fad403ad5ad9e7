"""Private summaries of groups of Yelp reviews: score over ε, one-shot against token by token.

    python -m benchmarks.summaries run --folder F --model SMOLLM2      whatever F does not hold yet
    python -m benchmarks.summaries table --folder F

Groups are category and stars: n reviews of each from one half of the corpus. The other half plays the public
corpus: centre, directions, adapter, and a classifier of the group (TF-IDF and logistic regression). The score
of a run is the share of its texts that the classifier puts into the right group; one group in six is chance.
ε "inf" is without noise and exists here only. `run` goes through states, adapters and scores of the variants,
the ratio of cached to repeated reading, and token-by-token scores; each leaves a file in F, so that a run
that was cut short goes on.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
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
from workers import models
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

GROUPS = (
    *("Restaurants 1", "Restaurants 5", "Bars 5", "Shopping 5", "Beauty & Spas 5"),
    "Event Planning & Services 5",
)
SIZE = 100
PUBLIC_EACH = 90
EPSILONS = ("1", "2", "5", "10", "20", "50", "inf")
TOKENS, RECORD_TOKENS = 24, 48
TEMPLATES = {
    "oneshot": "Review: {record}\nIn short, this is a review of a",
    "token": "{user}Review: {record}\nSay in one sentence what reviews like this are about.{assistant}"
    "The reviews are about",
}
TERMS = Terms(groups=GROUPS)
#: Clips by `exchequer tune`; the adapter of each variant is trained with the σ of ε 2.
VARIANTS: dict[str, dict[str, Any]] = {
    "projected": {"centre": True, "components": 64},
    "plain": {"centre": False, "components": None},
    "centred": {"centre": True, "components": None},
}
TRAINED_AT = 2.0


def reviews(part: str) -> Labelled:
    """(texts, groups) of one half of the corpus, of the groups that are used."""
    found = []
    for row in rows(SHARED / f"data/yelp_augpe/{part}.csv.gz"):
        group = f"{row['label1'].removeprefix('Business Category: ')} {row['label2'].split()[-1][0]}"
        if group in GROUPS:
            found.append((row["text"], group))
    return Labelled([text for text, _ in found], [group for _, group in found])


def first_of_each(part: Labelled, count: int) -> Labelled:
    kept: dict[str, list[str]] = {group: [] for group in GROUPS}
    for text, group in zip(part.texts, part.labels, strict=True):
        if len(kept[group]) < count:
            kept[group].append(text)
    return Labelled(
        [text for own in kept.values() for text in own], [group for group, own in kept.items() for _ in own]
    )


def private() -> Labelled:
    return first_of_each(reviews("test"), SIZE)


def public() -> Labelled:
    return first_of_each(reviews("dev"), PUBLIC_EACH)


class Judge:
    """The classifier of groups, trained on the public half."""

    def __init__(self) -> None:
        known = reviews("dev")
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


def load(folder: str) -> models.LocalModel:
    return models.load(Path(folder), models.digest(Path(folder)), "float32", 6.0)


# --- one-shot -----------------------------------------------------------------------------------


def states(options: argparse.Namespace) -> dict[str, Any]:
    model = load(options.model)
    reader = Reader(model, TEMPLATES["oneshot"], RECORD_TOKENS)
    started = time.perf_counter()
    found = {name: np.stack(list(reader.states(part.texts))) for name, part in parts().items()}
    np.savez(Path(options.folder) / "states.npz", private=found["private"], public=found["public"])
    return {"seconds": time.perf_counter() - started, "texts": {k: len(v) for k, v in found.items()}}


def parts() -> dict[str, Labelled]:
    return {"private": private(), "public": public()}


def view_and_clip(folder: Path, variant: str) -> tuple[View, float, dict[str, np.ndarray]]:
    """The view of a variant and its clip: the 90 % quantile of public norms in it."""
    found = dict(np.load(folder / "states.npz"))
    view = mean_states.public_view(found["public"], **VARIANTS[variant])
    clip = float(np.quantile(np.linalg.norm(view.coordinates(found["public"]), axis=1), 0.9))
    return view, float(f"{clip:.4g}"), found


def parsed(epsilon: float, clip: float, variant: str) -> Any:
    option = VARIANTS[variant]
    used = option["centre"] or option["components"] is not None
    raw = {"epsilon": epsilon, "clip": clip, "public_size": SIZE, **option}
    return mechanisms.get("summary-oneshot").parse(
        raw | ({"public_corpus": "yelp"} if used else {}) | {"max_tokens": TOKENS}, TERMS
    )


def adapter(options: argparse.Namespace) -> dict[str, Any]:
    folder, model = Path(options.folder), load(options.model)
    _, clip, found = view_and_clip(folder, options.variant)
    part = public()
    sigma = group_means.sigma(parsed(TRAINED_AT, clip, options.variant), TERMS)
    raw = {
        **{"corpus": "yelp", "clip": clip, "sigma": sigma, **VARIANTS[options.variant]},
        **{"soft_tokens": options.soft_tokens, "steps": options.steps, "batch_size": 8, "set_size": 16},
        **{"target_tokens": TOKENS, "evaluate_every": 12, "patience": 4, "learning_rate": 1e-3, "seed": 1},
        **{"start": "A review of a business:", "template": TEMPLATES["oneshot"], "public_texts": 600},
    }
    parameters = mechanisms.get("summary-adapter").parse(raw, Terms())
    started, measures = time.perf_counter(), []
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
    return {"measures": measures, "seconds": time.perf_counter() - started, "clip": clip, "sigma": sigma}


def oneshot(options: argparse.Namespace) -> dict[str, Any]:
    folder, model, judge = Path(options.folder), load(options.model), Judge()
    view, clip, found = view_and_clip(folder, options.variant)
    weights = dict(np.load(folder / f"adapter-{options.variant}.npz"))
    made = soft_prompt_adapter.of_tensors(weights, model.structure.hidden, options.soft_tokens)
    own = np.array(private().labels)
    totals = np.stack(
        [mean_states.clipped_sum(view, found["private"][own == group], clip) for group in GROUPS]
    )
    scores: dict[str, list[float]] = {}
    shown: dict[str, list[str]] = {}
    for epsilon in EPSILONS:
        for seed in range(1 if epsilon == "inf" else options.seeds):
            parameters = parsed(1.0 if epsilon == "inf" else float(epsilon), clip, options.variant)
            meter = Exact(event(parameters)) if epsilon == "inf" else Meter(event(parameters))
            means = summary_oneshot.release(parameters, TERMS, totals, view, meter)
            with torch.inference_mode():
                soft = made(torch.from_numpy(np.concatenate([means[group] for group in GROUPS])))
            writer = LocalWriter(model, generator(model.device, seed))
            manner = Manner(TOKENS, options.temperature)
            written = list(writer.write_after(list(soft), manner, options.decodings))
            texts = [each.text for each in written]
            groups = [GROUPS[each.row] for each in written]
            scores.setdefault(epsilon, []).append(judge.score(texts, groups))
            shown[epsilon] = [f"{group}: {text}" for group, text in zip(groups, texts, strict=True)][:6]
        print(epsilon, scores[epsilon], shown[epsilon][:2], flush=True)
    return {"scores": scores, "texts": shown, "clip": clip}


# --- token by token -----------------------------------------------------------------------------


def records() -> Records:
    part = private()
    pairs = zip(part.texts, part.labels, strict=True)
    made = tuple(Record(f"{n}", None, text, group) for n, (text, group) in enumerate(pairs))
    return Records((None,), made, b"k" * 32, groups=GROUPS)


def token(options: argparse.Namespace) -> dict[str, Any]:
    """Prompts are read once; every run begins from them again."""
    model, judge, data = load(options.model), Judge(), records()
    clip = float(np.quantile(np.linalg.norm(np.stack(list(_public_states(model))), axis=1), 0.9))
    raw: dict[str, Any] = {"clip": float(f"{clip:.4g}"), "public_size": SIZE, "max_tokens": TOKENS}
    raw |= {
        "record_tokens": RECORD_TOKENS,
        "template": TEMPLATES["token"],
        "temperature": options.temperature,
    }
    mechanism = mechanisms.get("summary-token")
    parameters = mechanism.parse(raw | {"epsilon": 1.0}, TERMS)
    prompt = models.Prompt(model.tokenizer, parameters.template, None)
    shared = len(prompt.before)
    shape = Shape(shared, prompt.fixed_tokens - shared + RECORD_TOKENS, TOKENS)
    batches = [
        Batch(summary_token.contexts(parameters, TERMS, data, prompt, group)[0], prompt.before)
        for group in GROUPS
    ]
    decoder = Decoder(model.structure, batches, shape, Sizes(96, 96, len(GROUPS)), hidden=True)
    started = time.perf_counter()
    first = [(place, values.clone()) for place, values in decoder.read()]
    print("read", time.perf_counter() - started, flush=True)
    scores: dict[str, list[float]] = {}
    shown: dict[str, list[str]] = {}
    for epsilon in reversed(EPSILONS):
        for seed in range(options.seeds):
            parameters = mechanism.parse(
                raw | {"epsilon": 1.0 if epsilon == "inf" else float(epsilon)}, TERMS
            )
            priced = mechanism.price(parameters, TERMS).dp
            assert priced is not None
            meter = Exact(priced) if epsilon == "inf" else Meter(priced)
            random: dict[Group, torch.Generator] = {
                group: torch.Generator().manual_seed(seed * 100 + n) for n, group in enumerate(GROUPS)
            }
            again = _Again(decoder, first)
            none = [Batch([])] * len(GROUPS)
            writing = summary_token.Writing(parameters, TERMS, model, meter, again, GROUPS, random, none)
            texts = list(writing.texts(Progress(0)))
            scores.setdefault(epsilon, []).append(
                judge.score([each.text for each in texts], [str(each.label) for each in texts])
            )
            shown[epsilon] = [f"{each.label}: {each.text}" for each in texts]
        print(epsilon, scores[epsilon], shown[epsilon][:2], round(time.perf_counter() - started), flush=True)
        _save(options, "token-part", {"scores": scores, "texts": shown, "clip": raw["clip"]})
    return {"scores": scores, "texts": shown, "clip": raw["clip"]}


def _public_states(model: models.LocalModel) -> Iterator[np.ndarray]:
    texts = public().texts[::6]
    return Reader(model, TEMPLATES["token"], RECORD_TOKENS).states(texts)


class _Again(Decoder):
    """A decoder whose prompts were read before: each text begins anew after them."""

    def __init__(self, decoder: Decoder, first: list[tuple[int, torch.Tensor]]) -> None:
        self.__dict__.update(vars(decoder))
        self.first = first

    def read(self) -> Iterator[tuple[int, torch.Tensor]]:
        for place in range(len(GROUPS)):
            self.restart(place)
        return iter(self.first)


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of one text of T tokens over n contexts, with a cache and read again for every token."""
    model, size, tokens = load(options.model), 8, 50
    reader = Reader(model, TEMPLATES["token"], RECORD_TOKENS)
    prompt = reader.prompt
    texts = [prompt.tokens(text, RECORD_TOKENS) for text in private().texts[:size]]
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
    """Every part that has left no file yet."""
    parts: list[tuple[str, Callable[[argparse.Namespace], dict[str, Any]], str]] = [("states", states, "")]
    for variant in VARIANTS:
        parts += [(f"adapter-{variant}", adapter, variant), (f"oneshot-{variant}", oneshot, variant)]
    for name, part, variant in [*parts, ("speed", speed, ""), ("token", token, "")]:
        if (Path(options.folder) / f"{name}.json").exists():
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
    parser.add_argument("--model")
    parser.add_argument("--steps", type=int, default=24)
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
