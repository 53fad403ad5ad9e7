"""Private summaries of groups of reviews: score over ε, one-shot against token by token.

    python -m benchmarks.summaries run --folder F [--data sample|yelp] [--model FOLDER] [--part
      NAME]
    python -m benchmarks.summaries table --folder F

sample: the bundled public reviews and model, groups are kinds of business; shifted: the private
ones. yelp: six groups of Yelp's reviews by category and stars, read from EXCHEQUER_SHARED;
yelp-four: those four of them that a classifier tells apart. n texts of each group are the records.
A public half of its own gives centre, directions, adapter, and a classifier of the group (logistic
regression on TF-IDF, or with --embedding on vectors). The score of a run is the share of its texts
that the classifier puts into the right group. ε "inf" is without noise and exists here only. `run`
goes through states, the ratio of cached to repeated reading, memory of a large group, adapters and
scores of the variants, and token-by-token scores; each part leaves a file in F, so that a run that
was cut short goes on.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
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
from benchmarks.summaries_data import DATA, Data
from benchmarks.summaries_judge import Judge, nats
from workers import models
from workers.data.records import Record, Records
from workers.embedding import mean_states
from workers.embedding.mean_states import Reader, View
from workers.engine import Batch, Decoder, Shape, Sizes
from workers.generation import soft_prompt_adapter
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner
from workers.interface import Progress
from workers.mechanisms import summary_adapter, summary_oneshot, summary_token
from workers.noise.meter import Meter, Values
from workers.noise.samplers import Grid

EPSILONS = ("1", "2", "5", "10", "20", "50", "inf")


#: The clip of each is the 90 % quantile of public norms; its adapter is trained with the σ of ε 2.
VARIANTS: dict[str, dict[str, Any]] = {
    "projected": {"centre": True, "components": 64},
    "plain": {"centre": False, "components": None},
    "centred": {"centre": True, "components": None},
    "few": {"centre": True, "components": 16},
}
TRAINED_AT = 2.0


class Exact(Meter):
    """A meter that adds nothing, for ε = ∞; nothing that serves can reach it."""

    def gaussian(self, values: Values, sensitivity: Any, event: Any, part: Any = None) -> Grid:  # noqa: ARG002
        return values() if callable(values) else values


def load(options: argparse.Namespace) -> models.LocalModel:
    data = DATA[options.data]
    folder = Path(options.model or data.model)
    return models.load(folder, models.digest(folder), options.dtype or data.dtype, 6.0)


def judge_of(options: argparse.Namespace) -> Judge:
    return Judge(DATA[options.data], options.embedding, Path(options.folder) / "judge.npy")


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
        raw | ({"public_corpus": "public"} if used else {}) | {"max_tokens": data.tokens},
        data.terms,
    )


def adapter(options: argparse.Namespace) -> dict[str, Any]:
    folder, model, data = Path(options.folder), load(options), DATA[options.data]
    _, clip, found = view_and_clip(folder, options.variant)
    part = data.public()
    sigma = group_means.sigma(parsed(data, TRAINED_AT, clip, options.variant), data.terms)
    raw = {
        **{"corpus": "public", "clip": clip, "sigma": sigma, **VARIANTS[options.variant]},
        "soft_tokens": options.soft_tokens,
        "steps": options.steps,
        "batch_size": 8,
        "set_size": 8,
        "target_tokens": data.tokens,
        "evaluate_every": 12,
        "patience": 4,
        "learning_rate": 1e-3,
        "seed": 1,
        "start": data.start,
        "template": data.oneshot,
        "public_texts": 600,
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
    judge, terms = judge_of(options), data.terms
    view, clip, found = view_and_clip(folder, options.variant)
    weights = dict(np.load(folder / f"adapter-{options.variant}.npz"))
    made = soft_prompt_adapter.of_tensors(weights, model.structure.hidden, options.soft_tokens)
    own = np.array(data.private().labels)
    totals = np.stack(
        [
            mean_states.clipped_sum(view, found["private"][own == group], clip)
            for group in data.groups
        ]
    )
    name = f"oneshot-{options.variant}"
    kept = _kept(options, name) or {"scores": {}, "nats": {}, "texts": {}, "clip": clip}
    kept["ceiling"] = judge.ceiling(data)
    scores, losses, shown = kept["scores"], kept["nats"], kept["texts"]
    for epsilon in options.epsilons:
        for seed in range(len(scores.get(epsilon, [])), options.seeds):
            parameters = parsed(
                data, 1.0 if epsilon == "inf" else float(epsilon), clip, options.variant
            )
            meter = Exact(event(parameters)) if epsilon == "inf" else Meter(event(parameters))
            means = summary_oneshot.release(parameters, terms, totals, view, meter)
            with torch.inference_mode():
                soft = made(
                    torch.from_numpy(np.concatenate([means[group] for group in data.groups]))
                )
            writer = LocalWriter(model, generator(model.device, seed))
            manner = Manner(data.tokens, options.temperature)
            written = list(writer.write_after(list(soft), manner, options.decodings))
            texts = [each.text for each in written]
            groups = [data.groups[each.row] for each in written]
            scores.setdefault(epsilon, []).append(judge.score(texts, groups))
            losses.setdefault(epsilon, []).append(nats(model, texts))
            shown[epsilon] = [f"{group}: {text}" for group, text in zip(groups, texts, strict=True)]
            _save(options, name, kept)
        print(epsilon, scores[epsilon], losses[epsilon], shown[epsilon][:2], flush=True)
    return kept


# --- token by token -----------------------------------------------------------------------------


def records(data: Data) -> Records:
    part = data.private()
    pairs = zip(part.texts, part.labels, strict=True)
    made = tuple(Record(f"{n}", None, text, group) for n, (text, group) in enumerate(pairs))
    return Records((None,), made, b"k" * 32, groups=data.groups)


def token(options: argparse.Namespace) -> dict[str, Any]:
    """Prompts are read once; every run begins from them again, and one that was cut short goes
    on.
    """
    model, data = load(options), DATA[options.data]
    judge, terms, own = judge_of(options), data.terms, records(data)
    public = Reader(model, data.token, data.record_tokens).states(data.public().texts[::6])
    clip = float(np.quantile(np.linalg.norm(np.stack(list(public)), axis=1), 0.9))
    raw: dict[str, Any] = {
        "clip": float(f"{clip:.4g}"),
        "public_size": data.size,
        "max_tokens": data.tokens,
    }
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
    kept = _kept(options, "token") or {"scores": {}, "nats": {}, "texts": {}, "clip": raw["clip"]}
    scores, losses, shown = kept["scores"], kept["nats"], kept["texts"]
    for epsilon in options.epsilons:
        for seed in range(len(scores.get(epsilon, [])), options.seeds):
            parameters = mechanism.parse(
                raw | {"epsilon": 1.0 if epsilon == "inf" else float(epsilon)}, terms
            )
            priced = mechanism.price(parameters, terms).dp
            assert priced is not None
            meter = Exact(priced) if epsilon == "inf" else Meter(priced)
            random: dict[Group, torch.Generator] = {
                group: torch.Generator().manual_seed(seed * 100 + n)
                for n, group in enumerate(data.groups)
            }
            given = _Again(decoder, first), [Batch([])] * len(data.groups)
            opened = partial(tuple, given)
            writing = summary_token.Writing(
                parameters, terms, model, meter, opened, data.groups, random
            )
            texts = list(writing.texts(Progress(0)))
            scores.setdefault(epsilon, []).append(
                judge.score([each.text for each in texts], [str(each.label) for each in texts])
            )
            losses.setdefault(epsilon, []).append(nats(model, [each.text for each in texts]))
            shown.setdefault(epsilon, []).extend(f"{each.label}: {each.text}" for each in texts)
            print(
                epsilon,
                seed,
                scores[epsilon][-1],
                losses[epsilon][-1],
                shown[epsilon][-1],
                flush=True,
            )
            _save(options, "token", kept)
    return kept


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
    """CPU seconds of a text of T tokens over n contexts, with a cache and read again for every
    token.
    """
    model, data, size, tokens = load(options), DATA[options.data], 8, 50
    reader = Reader(model, data.token, data.record_tokens)
    prompt = reader.prompt
    texts = [prompt.tokens(text, data.record_tokens) for text in data.private().texts[:size]]
    shape = Shape(0, max(map(len, texts)), tokens)
    with torch.inference_mode():
        started = time.process_time()
        decoder = Decoder(model.structure, [Batch(texts)], shape, Sizes(size, size, 1), hidden=True)
        cached = [torch.cat([values for _, values in decoder.read()]).clone()]
        for step in range(tokens - 1):
            cached.append(
                torch.cat([values for _, values in decoder.step({0: 100 + step})]).clone()
            )
        seconds = time.process_time() - started
        started, far = time.process_time(), 0.0
        for step in range(tokens):
            longer = [[*ids, *range(100, 100 + step)] for ids in texts]
            own = Shape(0, shape.rest + step, 0)
            again = Decoder(
                model.structure, [Batch(longer)], own, Sizes(size, size, 1), hidden=True
            )
            states = torch.cat([values for _, values in again.read()])
            far = max(
                far, float((states - cached[step]).norm(dim=1).max() / states.norm(dim=1).max())
            )
        slow = time.process_time() - started
    return {
        "cached": seconds,
        "again": slow,
        "ratio": slow / seconds,
        "furthest": far,
        "n": size,
        "T": tokens,
    }


def megabytes(field: str) -> float:
    """VmRSS, what this process holds, or VmHWM, the most that it held since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) / 1024


def forget_peak() -> float:
    """From here on VmHWM is the peak; what is held now."""
    Path("/proc/self/clear_refs").write_text("5")
    return megabytes("VmRSS")


def memory(options: argparse.Namespace) -> dict[str, Any]:
    """Megabytes at most, above the model's own, and seconds: one group of n records, T tokens, two
    limits.
    """
    data, size = DATA[options.data], 500
    texts = list(islice(cycle(data.texts("private").texts), size))
    own = Records(
        (None,), tuple(Record(f"{n}", None, text) for n, text in enumerate(texts)), b"k" * 32
    )
    mechanism, terms = mechanisms.get("summary-token"), Terms()
    raw = {"epsilon": 1e3, "clip": 40.0, "public_size": size, "max_tokens": 50, "seed": 1}
    parameters = mechanism.parse(
        raw | {"record_tokens": data.record_tokens, "template": data.token}, terms
    )
    priced = mechanism.price(parameters, terms).dp
    assert priced is not None
    found: dict[str, Any] = {"n": size, "T": parameters.max_tokens}
    for limit in (512, 256):
        model = replace(load(options), memory_bytes=limit << 20)
        before, started = forget_peak(), time.process_time()
        list(summary_token.Runner().run(parameters, terms, own, model, Meter(priced), Progress(0)))
        above = megabytes("VmHWM") - before
        found[f"limit {limit} MiB"] = {
            "megabytes_above": round(above),
            "cpu_seconds": round(time.process_time() - started, 1),
        }
    return found


# --- commands -----------------------------------------------------------------------------------


def _save(options: argparse.Namespace, name: str, found: dict[str, Any]) -> None:
    (Path(options.folder) / f"{name}.json").write_text(
        json.dumps(found, indent=1, ensure_ascii=False)
    )


def _kept(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """What a part left, or nothing."""
    path = Path(options.folder) / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _whole(options: argparse.Namespace, name: str) -> bool:
    """True where a part has nothing left to do: the scores of every ε and seed, if it makes
    some.
    """
    found = _kept(options, name)
    scores = found.get("scores")
    if scores is None:
        return bool(found)
    return all(len(scores.get(epsilon, [])) >= options.seeds for epsilon in options.epsilons)


def table(folder: Path) -> None:
    """The scores as Markdown, mean and range over seeds, and the texts' loss in nats a token."""
    names = [f"oneshot-{variant}" for variant in VARIANTS] + ["token"]
    print("| | " + " | ".join(EPSILONS) + " |\n|---|" + "---|" * len(EPSILONS))
    for name in names:
        path = folder / f"{name}.json"
        if path.exists():
            found = json.loads(path.read_text())
            scores, losses = found["scores"], found["nats"]
            cells = []
            for each in EPSILONS:
                own = scores.get(each)
                span = "–" if own is None else f"{np.mean(own):.2f} ({min(own):.2f}–{max(own):.2f})"
                cells.append(span if own is None else f"{span}, {np.mean(losses[each]):.1f}")
            print(f"| {name} | " + " | ".join(cells) + " |")


def run(options: argparse.Namespace) -> None:
    """Every part that has left no file yet, or the one that is named."""
    parts: list[tuple[str, Callable[[argparse.Namespace], dict[str, Any]], str]]
    parts = [("states", states, ""), ("speed", speed, ""), ("memory", memory, "")]
    for variant in VARIANTS:
        parts += [
            (f"adapter-{variant}", adapter, variant),
            (f"oneshot-{variant}", oneshot, variant),
        ]
    for name, part, variant in [*parts, ("token", token, "")]:
        if options.part not in (None, name) or _whole(options, name):
            continue
        options.variant, started = variant, time.perf_counter()
        found = part(options) | {"seconds": round(time.perf_counter() - started)}
        _save(options, name, found)
        shown = {key: value for key, value in found.items() if key not in ("texts", "measures")}
        print(name, shown, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0] if __doc__ else None)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--folder", required=True)
    parser.add_argument("--data", choices=list(DATA), default="sample")
    parser.add_argument(
        "--part", help="states, speed, memory, adapter-projected, oneshot-projected, …, token"
    )
    parser.add_argument("--model", help="the folder of another model than the bundled one")
    parser.add_argument("--dtype", help="of the model: float32, bfloat16")
    parser.add_argument(
        "--embedding", type=Path, help="the folder of an embedding model, for the score"
    )
    parser.add_argument("--epsilons", nargs="+", choices=EPSILONS, default=list(EPSILONS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--soft-tokens", type=int, default=8)
    parser.add_argument("--decodings", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.7)
    options = parser.parse_args()
    disable_progress_bar()
    torch.set_num_threads(options.threads)
    Path(options.folder).mkdir(parents=True, exist_ok=True)
    if options.command == "table":
        table(Path(options.folder))
    else:
        run(options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
