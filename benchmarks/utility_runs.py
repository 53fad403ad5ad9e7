"""Texts for benchmarks.utility: the mechanisms' own runners under a meter that reserves their real
price.

What has no privacy at all stands here too, and here alone: prompts of real records, and batches by
k-means on private embeddings. The service has neither.
"""

import random
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from accountant.core import mechanisms
from accountant.core.mechanisms.base import Parameters
from accountant.core.mechanisms.fitting import fit
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import FREE, releases
from accountant.core.privacy.price import Terms
from accountant.core.privacy.units import EPSILON_UNITS
from benchmarks import utility_data
from benchmarks.utility_cells import Made
from benchmarks.utility_data import PUBLIC, embedder
from workers import mechanisms as runners
from workers.data.corpora import Corpus
from workers.data.records import Records
from workers.embedding.embedders import embed_all
from workers.embedding.neighbours import kmeans, nearest
from workers.engine import Batch, Decoder, Shape, Sizes
from workers.interface import Progress, Public, Text
from workers.models import LocalModel, Prompt
from workers.noise.meter import Meter

DELTA_POWER = 1.1
ROWS = 64  # texts written side by side where there is a context for each


def terms_of(corpus: utility_data.Corpus) -> Terms:
    """Add-remove, delta = n^-1.1 as in paper 001, and labels that are public."""
    size = len(corpus.private.texts)
    return Terms(delta=size**-DELTA_POWER, public_size=size, labels=corpus.labels)


def most_tokens(mechanism: str, raw: Mapping[str, Any], terms: Terms, epsilon: float) -> int:
    """The largest tokens_per_batch whose whole price stays within `epsilon`. Raises ValueError for
    none.
    """

    def affordable(price: Any) -> bool:
        return price.dp is not None and epsilon_alone(price.dp, terms.delta)[0] <= epsilon

    fitted = fit(mechanisms.get(mechanism), raw, terms, "tokens_per_batch", affordable)
    if fitted is None:
        raise ValueError(f"not one token costs at most {epsilon}")
    return int(fitted.value)


def most_clip(mechanism: str, raw: Mapping[str, Any], terms: Terms, epsilon: float) -> float:
    """The largest clip whose whole price stays within `epsilon`. Raises ValueError for none."""

    def affordable(price: Any) -> bool:
        return price.dp is not None and epsilon_alone(price.dp, terms.delta)[0] <= epsilon

    fitted = fit(mechanisms.get(mechanism), raw, terms, "clip", affordable)
    if fitted is None:
        raise ValueError(f"no clip costs at most {epsilon}")
    return float(fitted.value)


def epsvec_epsilon(corpus: utility_data.Corpus, raw: Mapping[str, Any], total: float) -> float:
    """The `epsilon` of the vectors with which the whole job, shots included, costs at most
    `total`.
    """
    terms = terms_of(corpus)

    def affordable(price: Any) -> bool:
        return price.dp is not None and epsilon_alone(price.dp, terms.delta)[0] <= total

    fitted = fit(mechanisms.get("epsvec"), raw, terms, "epsilon", affordable)
    if fitted is None:
        raise ValueError(f"no vector costs at most {total} beside the shots")
    return float(fitted.value)


def run(
    mechanism: str,
    raw: Mapping[str, Any],
    corpus: utility_data.Corpus,
    model: LocalModel,
    clusters: int | None = None,
) -> Made:
    """Texts and costs of one job, as a worker would run it. `clusters`: see `Sorted`; no privacy at
    all.
    """
    terms = terms_of(corpus)
    parameters = mechanisms.get(mechanism).parse(raw, terms)
    price = mechanisms.get(mechanism).price(parameters, terms)
    meter = Meter(price.dp or FREE, price.ex_post_draws)
    records = Records(terms.labels, corpus.records(), secrets.token_bytes(32))
    if clusters is not None:
        records = Sorted(records.labels, records.records, records.key, clusters=clusters)
    runner = runners.runner(mechanism)
    began = time.process_time()
    progress = Progress(runner.total(parameters, terms))
    made = [*runner.run(parameters, terms, records, model, meter, progress, public())]
    spent, reserved = releases(meter.realized), releases(price.dp or FREE)
    assert all(count <= reserved[event] for event, count in spent.items()), (
        "realized above reserved"
    )
    return {
        "texts": [[each.text, each.label] for each in made if isinstance(each, Text)],
        "epsilon": None if price.dp is None else epsilon_alone(price.dp, terms.delta)[0],
        "delta": terms.delta,
        "ex_post_epsilon": meter.realized_ex_post / EPSILON_UNITS if meter.has_ex_post else None,
        "parameters": shortened(parameters),
        "steps": progress.done,
        "cpu_seconds": round(time.process_time() - began, 1),
        "private": clusters is None,
    }


def public() -> Public:
    """The public inputs that parameters may name: the corpus and the embedding model."""
    corpus = Corpus("dbpedia14", str(PUBLIC), "{text}")
    return Public({"public_corpus": corpus}, {"embedding": embedder()})


def shortened(parameters: Parameters) -> Made:
    """Resolved parameters as JSON."""
    return parameters.model_dump(mode="json")


@dataclass(frozen=True)
class Sorted(Records):
    """Batches of records that k-means on their own embeddings finds alike: no privacy (001, Table
    1).

    The records of a label in the order of their cluster, cut into as many equal batches as ever;
    one cluster leaves them in a random order.
    """

    clusters: int = 1

    def batches(
        self, count: int, within: object = None, run: int | None = None
    ) -> dict[tuple[str | None, int], list[str]]:
        assert within is None, "uniform batching only"
        assert run is None, "all batches"
        shuffled = random.sample(self.records, len(self.records))
        points = embed_all(embedder(), [each.text for each in shuffled])
        own = nearest(points, kmeans(points, self.clusters, seed=0))[:, 0]
        found: dict[tuple[str | None, int], list[str]] = {}
        for label in self.labels:
            inside = [index for index, each in enumerate(shuffled) if each.label == label]
            ordered = sorted(inside, key=lambda index: int(own[index]))
            for place, part in enumerate(np.array_split(np.array(ordered, np.int64), count)):
                found[label, place] = [shuffled[index].text for index in part]
        return found


# --- without a mechanism ------------------------------------------------------------------------


def prompted(
    corpus: utility_data.Corpus,
    model: LocalModel,
    template: str,
    shots: int,
    settings: Mapping[str, Any],
    seed: int,
) -> Made:
    """Texts after a prompt of real records, `shots` of a label in it, or of none: epsilon infinite,
    or 0.

    `settings`: texts, temperature, max_tokens and record_tokens. Public, so that a seed is fine.
    """
    draw = random.Random(seed)
    each = -(-settings["texts"] // len(corpus.labels))
    contexts, labels = [], []
    for label in corpus.labels:
        prompt = Prompt(model.tokenizer, template, label)
        own = [
            t
            for t, given in zip(corpus.private.texts, corpus.private.labels, strict=True)
            if given == label
        ]
        for _ in range(each):
            contexts.append(_with_shots(prompt, draw.sample(own, shots), settings["record_tokens"]))
            labels.append(label)
    began = time.process_time()
    texts = write(
        model, contexts, settings["max_tokens"], settings["temperature"], seed, settings.get("stop")
    )
    return {
        "texts": [[text, label] for text, label in zip(texts, labels, strict=True) if text],
        "epsilon": 0.0 if not shots else None,
        "delta": None,
        "ex_post_epsilon": None,
        "steps": len(texts) * settings["max_tokens"],
        "cpu_seconds": round(time.process_time() - began, 1),
        "private": not shots,
    }


def _with_shots(prompt: Prompt, records: Sequence[str], most: int) -> list[int]:
    """The prompt with one record; further ones go before it, and their end is the prompt's end."""
    first = prompt.tokens(records[0] if records else "", most)
    for record in records[1:]:
        own = prompt.tokens(record, most)
        first += own[1:]  # without another begin token
    return first


def write(
    model: LocalModel,
    contexts: Sequence[Sequence[int]],
    most: int,
    temperature: float,
    seed: int,
    stop: str | None = None,
) -> list[str]:
    """One text after each context, sampled with the library's own generator: nothing here is
    private.
    """
    generator = torch.Generator().manual_seed(seed)
    texts: list[str] = []
    for first in range(0, len(contexts), ROWS):
        part = contexts[first : first + ROWS]
        shape = Shape(0, max(map(len, part)), most)
        decoder = Decoder(
            model.structure, [Batch([each]) for each in part], shape, Sizes(ROWS, ROWS, len(part))
        )
        written: list[list[int]] = [[] for _ in part]
        given = decoder.read()
        while True:
            tokens = {}
            for number, logits in given:
                law = torch.softmax(logits[0].double() / temperature, 0)
                token = int(torch.multinomial(law, 1, generator=generator))
                if token not in model.end_tokens:
                    written[number].append(token)
                    if len(written[number]) < most:
                        tokens[number] = token
            if not tokens:
                break
            given = decoder.step(tokens)
        texts += [model.tokenizer.decode(each, skip_special_tokens=True) for each in written]
    return [(text.split(stop, 1)[0] if stop else text).strip() for text in texts]
