"""Layers and coefficient for a model that paper 000 does not cover: a table, and a recommendation.

    python -m benchmarks.epsvec_sweep --model FOLDER --corpus FILE [--label-column C --label L]

On public text alone: half of the corpus plays the records, the other half is what texts are
compared with. Shots, vectors and noise are those of the mechanism at --epsilon. How long a vector
has to be depends on how long a model's states are, so coefficients are tried as shares
(--strengths) of the mean length of the states of the layers; the clipping norm that is tried and
named is the median length of a difference on this public text. It must be public: never measure it
on the records to be protected.

Each row: layers, coefficient, the share that it is, MAUVE against the held-out half (its settings
are printed below), quality by the rule of `rejection` (0 to 10), share of texts that came to their
end. Recommended: the highest MAUVE among rows whose quality is at least 0.9 of that without
steering. Other options: --help.
"""

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.utils.logging import disable_progress_bar

from accountant.core import mechanisms
from accountant.core.mechanisms.epsvec import PAPER_SETTINGS, Epsvec, layer_range
from accountant.core.privacy.events import Composed
from accountant.core.privacy.price import Terms
from workers import models
from workers.data.corpora import Corpus
from workers.data.public_text import label as public_label
from workers.data.records import Record, Records
from workers.embedding import embedders
from workers.embedding.model_states import OwnEmbedder
from workers.evaluation.mauve import mauve
from workers.generation.local_writer import LocalWriter, generator
from workers.generation.writer import Manner, Written
from workers.interface import Progress, Public
from workers.mechanisms.epsvec import find_shots, vectors
from workers.mechanisms.epsvec.prompts import Prompt, Scaffold
from workers.mechanisms.epsvec.quality import by_rule
from workers.noise.meter import Meter

PRICE = mechanisms.get("epsvec")
LABEL = None


@dataclass(frozen=True)
class Bench:
    """A model, public texts in two halves, and how texts are compared."""

    model: models.LocalModel
    records: Records
    held_out: list[str]
    embedder: embedders.Embedder
    arguments: argparse.Namespace
    random: torch.Generator

    @property
    def terms(self) -> Terms:
        return Terms(public_size=len(self.records.records))

    def parameters(self, layers: str, clip: float) -> Epsvec:
        own, many = self.arguments, len(self.records.records)
        raw: dict[str, Any] = {
            "layers": layers,
            "clip": clip,
            "epsilon": own.epsilon,
            "samples_per_label": min(500, many // 2),
            "shots": own.shots,
            "candidates": own.candidates,
            "max_tokens": own.tokens,
            "record_tokens": own.tokens,
            "temperature": own.temperature,
            "description": own.description,
        }
        if own.template is not None:
            raw["template"] = own.template
        if own.stop is not None:
            raw["stop"] = own.stop or None
        parsed: Epsvec = PRICE.parse(raw, self.terms)
        return parsed

    def features(self, texts: list[str]) -> np.ndarray:
        found = embedders.embed_all(self.embedder, texts, self.arguments.tokens)
        return found[(found != 0).any(axis=1)]


def public_texts(arguments: argparse.Namespace) -> Iterator[str]:
    corpus = Corpus("", arguments.corpus, arguments.text_template, arguments.label_column)
    return (text for text, label in corpus.texts() if arguments.label in (None, label))


def opened(arguments: argparse.Namespace) -> Bench:
    model = models.load(arguments.model, models.digest(arguments.model))
    texts = [
        text for text, _ in zip(public_texts(arguments), range(arguments.records), strict=False)
    ]
    half = len(texts) // 2
    records = tuple(Record(f"{n}", LABEL, text) for n, text in enumerate(texts[:half]))
    embedder: embedders.Embedder = OwnEmbedder(model)
    if arguments.embedding is not None:
        folder = arguments.embedding
        embedder = embedders.load(folder, models.digest(folder, embedders.FILES))
    random = generator(model.device, arguments.seed)
    return Bench(
        model, Records((LABEL,), records, b"sweep" * 8), texts[half:], embedder, arguments, random
    )


def blocks(bench: Bench) -> list[str]:
    """The layers to try; pairs from a third of the depth on where none are named."""
    if bench.arguments.layers:
        return str(bench.arguments.layers).split(",")
    depth = len(bench.model.structure.blocks)
    places = sorted({round(depth * share) for share in (0.35, 0.5, 0.65, 0.8)})
    return [f"{place}-{place + 1}" for place in places if place + 1 < depth]


def written(
    writer: LocalWriter,
    manner: Manner,
    prompt: Prompt,
    bias: dict[int, torch.Tensor] | None,
    count: int,
) -> list[Written]:
    return [each for each in writer.write([prompt.asked], manner, count, bias) if each.text]


def row(
    bench: Bench, texts: list[Written], layers: str, coefficient: float, share: float
) -> dict[str, Any]:
    ours, theirs = [each.text for each in texts], bench.held_out[: len(texts)]
    named = (
        str(bench.arguments.embedding.name)
        if bench.arguments.embedding
        else "the model's own states"
    )
    figure = mauve(bench.features(ours), bench.features(theirs), features=named)
    return {
        "layers": layers,
        "coefficient": coefficient,
        "share": share,
        "mauve": figure.value,
        "quality": statistics.mean(by_rule(texts)),
        "complete": statistics.mean(each.complete for each in texts),
        "settings": figure.settings,
    }


def sweep(bench: Bench) -> Iterator[dict[str, Any]]:
    """One row without steering, then one for each block of layers and strength."""
    own, model = bench.arguments, bench.model
    first = bench.parameters(blocks(bench)[0], 1.0)
    event = PRICE.price(first, bench.terms).dp
    meter, progress = Meter(event or Composed(())), Progress(0)
    writer = LocalWriter(model, bench.random)
    chosen = find_shots(first, bench.terms, bench.records, writer, meter, progress, Public())
    scaffold = Scaffold.of(first)
    prompt = scaffold.prompt(
        model.tokenizer, public_label(bench.terms, LABEL), [shot.text for shot in chosen[LABEL]]
    )
    manner = Manner(own.tokens, own.temperature, scaffold.marker)
    yield row(bench, written(writer, manner, prompt, None, own.texts), "-", 0.0, 0.0)
    partners = [each.text for each in writer.write([prompt.asked], manner, own.partners)]
    for layers in blocks(bench):
        span = layer_range(bench.parameters(layers, 1.0))
        compared = vectors.partners(model, prompt, partners, own.tokens, span, "hashed")
        some = [record.text for record in bench.records.records[: own.partners]]
        states = np.stack(list(vectors.states(model, prompt, some, own.tokens, span)))
        length = float(np.nanmean(np.linalg.norm(states, axis=2)))
        apart = states - compared[np.arange(len(states)) % len(compared)]
        clip = float(f"{np.nanmedian(np.linalg.norm(apart, axis=2)):.3g}")
        parameters = bench.parameters(layers, clip)
        meter = Meter(PRICE.price(parameters, bench.terms).dp or Composed(()))
        drawn = vectors.drawn(parameters, bench.terms, bench.records)
        views = {LABEL: vectors.View(prompt, compared)}
        total = vectors.sums(parameters, model, drawn, bench.records.key, views)
        (found,) = vectors.release(parameters, bench.terms, 1, total, meter)
        for share in map(float, own.strengths.split(",")):
            coefficient = float(f"{share * length:.3g}")
            bias = {
                layer: torch.from_numpy(coefficient * each)
                for layer, each in zip(span, found, strict=True)
            }
            texts = written(writer, manner, prompt, bias, own.texts)
            yield {**row(bench, texts, layers, coefficient, share), "clip": clip}


def recommended(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row with the highest MAUVE whose texts are nearly as well written as unsteered ones."""
    least = 0.9 * rows[0]["quality"]
    return max(
        (each for each in rows if each["quality"] >= least), key=lambda each: float(each["mauve"])
    )


def main() -> None:
    """Print the table and the recommendation."""
    arguments = _arguments()
    disable_progress_bar()
    print(
        "from paper 000, Table 5:",
        "; ".join(f"{k} {v[1]:g} ({v[0]})" for k, v in PAPER_SETTINGS.items()),
    )
    print(
        f"{'layers':>8} {'coefficient':>12} {'share':>6} {'MAUVE':>6} {'quality':>8} "
        f"{'complete':>9}"
    )
    rows = []
    for each in sweep(opened(arguments)):
        rows.append(each)
        print(
            f"{each['layers']:>8} {each['coefficient']:>12g} {each['share']:>6g} "
            f"{each['mauve']:>6.3f} "
            f"{each['quality']:>8.2f} {each['complete']:>9.0%}",
            flush=True,
        )
    print("MAUVE:", rows[0]["settings"])
    best = recommended(rows)
    if best["coefficient"]:
        settings = (
            f"coefficient {best['coefficient']:g}, layers {best['layers']}, clip {best['clip']:g}"
        )
        print(f"recommended: {settings}")
    else:
        print("recommended: no steering; none of these rows is better than the prompt alone")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of a language model")
    parser.add_argument("--corpus", required=True, help="public text: CSV, JSON Lines or Parquet")
    parser.add_argument("--text-template", default="{text}")
    parser.add_argument("--label-column")
    parser.add_argument("--label")
    parser.add_argument(
        "--embedding", type=Path, help="folder of an embedding model; nothing: the model's own"
    )
    parser.add_argument("--description", default="text", help="what a text is, for the prompt")
    parser.add_argument("--template", help="prompt with the slot {examples}")
    parser.add_argument("--stop", help="what ends a text; empty: a new line")
    parser.add_argument("--layers", help="blocks, such as 3-4,5-6")
    parser.add_argument("--strengths", default="0.05,0.1,0.2,0.4")
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument(
        "--records", type=int, default=2_000, help="texts of the corpus that are used"
    )
    parser.add_argument("--partners", type=int, default=200)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--shots", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=100, help="longest text and longest record")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    main()
