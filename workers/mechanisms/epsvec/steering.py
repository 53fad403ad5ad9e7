"""Steered writing (paper 000, Equation 3): beta v added to the residual stream at every position.

Everything here is made of what was released, so it costs nothing, however many texts are written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from accountant.core.errors import DataError
from accountant.core.mechanisms.epsvec import Epsvec
from accountant.core.privacy.price import Terms
from workers.data.public_text import label as public_label
from workers.data.words import words
from workers.generation.kept_texts import kept_texts
from workers.generation.local_writer import LocalWriter
from workers.generation.writer import Manner, Writer, Written
from workers.interface import Progress, Text
from workers.mechanisms.epsvec.prompts import Prompt, Scaffold
from workers.mechanisms.epsvec.quality import Judge, Rate, by_rule, readable
from workers.mechanisms.epsvec.shots import Label, Shot
from workers.mechanisms.epsvec.vectors import states
from workers.models import LocalModel
from workers.noise.kept_draws import KeptDraws

#: How often texts are written in place of those that were dropped; then fewer come out than were
#: asked for.
ROUNDS = 4

#: Texts that are rated together.
TOGETHER = 64

#: Texts that are kept together: at most these are written again by an attempt that goes on.
AT_A_TIME = 512

T = TypeVar("T")


@dataclass(frozen=True)
class Steered:
    """The first two steps' releases: prompts, shots, vectors (labels, layers, hidden)."""

    scaffold: Scaffold
    shots: Mapping[Label, Sequence[Shot]]
    layers: NDArray[np.int64]
    vectors: NDArray[np.float32]

    def bias(self, label: Label, coefficient: float) -> dict[int, torch.Tensor]:
        """Return the vector added after each layer: layer to (hidden,)."""
        label_vector = self.vectors[list(self.shots).index(label)]  # (layers, hidden)
        pairs = zip(self.layers.tolist(), label_vector, strict=True)
        return {layer: torch.from_numpy(coefficient * vector) for layer, vector in pairs}


def check_fit(parameters: Epsvec, terms: Terms, model: LocalModel, steered: Steered) -> None:
    """Raises DataError where a job can't write with what an earlier one released."""
    labels: Sequence[Label] = terms.labels or (None,)
    unknown = [label for label in labels if label not in steered.shots]
    if unknown:
        raise DataError(f"label: the job in from_job released no vector for {unknown[0]!r}")
    model.structure.check_layers(steered.layers.tolist())
    if steered.vectors.shape != (len(steered.shots), len(steered.layers), model.structure.hidden):
        raise DataError("from_job: its vectors are not of this model's width")
    for label in labels:
        shots = [shot.text for shot in steered.shots[label]]
        needed = len(
            steered.scaffold.prompt(model.tokenizer, public_label(terms, label), shots).ids
        )
        needed += parameters.max_tokens
        if needed > model.context_tokens:
            raise DataError(
                f"max_tokens: with the earlier job's shots {needed} tokens would be needed"
            )


def texts_of(
    parameters: Epsvec,
    terms: Terms,
    writer: LocalWriter,
    steered: Steered,
    label: Label,
    judge: Writer | None,
    progress: Progress,
    kept: KeptDraws,
) -> Iterator[Text]:
    """`samples` texts of one label, or fewer where too many are dropped; empty ones are left out.

    Where draws are kept, so are texts, AT_A_TIME of them.
    """
    shots = [shot.text for shot in steered.shots[label]]
    prompt = steered.scaffold.prompt(writer.model.tokenizer, public_label(terms, label), shots)
    manner = Manner(parameters.max_tokens, parameters.temperature, steered.scaffold.marker)
    bias = steered.bias(label, parameters.coefficient) if parameters.coefficient else None

    def good(own: LocalWriter, left: int, judge: Writer | None) -> Iterator[Written]:
        rate = _rating(parameters, judge, steered.scaffold.template, public_label(terms, label))
        if parameters.drafts > 1:
            drafts = own.write([prompt.asked], manner, left * parameters.drafts, bias)
            groups = _groups(drafts, TOGETHER)
            rated = [row for each in groups for row in _good(each, rate, parameters.min_quality)]
            yield from _best(parameters, own.model, prompt, rated, steered, label)[:left]
            progress.advance(left)
            return
        for _ in range(ROUNDS if rate is not None else 1):
            written = own.write([prompt.asked], manner, left, bias)
            for group in _groups(written, TOGETHER if rate is not None else 1):
                good_texts = _good(group, rate, parameters.min_quality)
                left -= len(good_texts)
                progress.advance(len(good_texts))
                yield from (row for row in good_texts if row.text)
            if not left:
                return
        progress.advance(left)

    if not kept.keeps:
        yield from (
            Text(row.text, label, row.complete) for row in good(writer, parameters.samples, judge)
        )
        return
    for first in range(0, parameters.samples, AT_A_TIME):
        name = f"texts of {label!r} from {first}"
        rater = (
            None
            if judge is None
            else judge.seeded(kept.seed(f"ratings of {name}", parameters.seed))
        )
        make = partial(good, left=min(AT_A_TIME, parameters.samples - first), judge=rater)
        for row in kept_texts(kept, name, parameters.seed, writer, progress, make):
            yield Text(row.text, label, row.complete)


def _best(
    parameters: Epsvec,
    model: LocalModel,
    prompt: Prompt,
    drafts: Sequence[Written],
    steered: Steered,
    label: Label,
) -> list[Written]:
    """Return different drafts, those first that are `quality.readable` among them. In both parts
    those come first that lie furthest along the label's vectors and least along others'. Public:
    drafts, vectors and model are.
    """
    unique = list({tuple(words(row.text)): row for row in drafts if row.text}.values())
    place, many = list(steered.shots).index(label), len(steered.vectors)
    direction = steered.vectors[place] - (steered.vectors.sum(0) - steered.vectors[place]) / max(
        1, many - 1
    )  # (layers, hidden)
    layers = range(steered.layers[0], steered.layers[-1] + 1)
    tokens = parameters.max_tokens
    texts = [row.text for row in unique]
    first = readable(model, texts, tokens)
    scores = [
        float(np.sum(state * direction)) for state in states(model, prompt, texts, tokens, layers)
    ]
    order = sorted(range(len(unique)), key=lambda row: (not first[row], -scores[row]))
    return [unique[row] for row in order]


def _rating(parameters: Epsvec, judge: Writer | None, template: str, label: str) -> Rate | None:
    if parameters.rejection == "none":
        return None
    if judge is None:
        return partial(by_rule, template=template, label=label)
    return Judge.of(judge, parameters.max_tokens)


def _good(group: Sequence[Written], rate: Rate | None, least: int) -> list[Written]:
    if rate is None:
        return list(group)
    return [row for row, quality in zip(group, rate(group), strict=True) if quality >= least]


def _groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    stream = iter(items)
    while group := list(islice(stream, size)):
        yield group
