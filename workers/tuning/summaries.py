"""Clip, basis, soft tokens and length of a one-shot summary, from a public corpus alone.

Half of the texts give the centre and the directions; the other half plays the groups, one for each label. For
each clip C and number of directions q the error of a released mean is known without drawing anything:

    error = |what is left of a group's mean after clipping and projecting - its mean|^2 + q sigma^2

and is stated as a share of the signal, the mean squared distance of the groups' means from their middle.
Below 1 groups can be told apart by what is released; the least error is recommended.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from accountant.core import mechanisms
from accountant.core.errors import DataError
from accountant.core.mechanisms import group_means
from accountant.core.privacy.price import Neighbours, Terms
from workers.data.corpora import Corpus
from workers.embedding import mean_states
from workers.embedding.mean_states import Floats, Reader, View
from workers.interface import Progress
from workers.mechanisms import summary_adapter
from workers.models import LocalModel
from workers.text_tokens import text_tokens

ONESHOT, ADAPTER = map(mechanisms.get, ("summary-oneshot", "summary-adapter"))

#: Clips are tried at these quantiles of the public norms, and at halves of the least of them.
QUANTILES = (0.25, 0.5, 0.75, 0.9, 1.0)
SHRUNK = (0.1, 0.25, 0.5)
DIRECTIONS = (4, 8, 16, 32, 64, 128, 256, 512)

#: A text's share of the lengths that are written whole.
WHOLE = 0.9


@dataclass(frozen=True)
class Setting:
    """What is tuned for: the price and the public n of a group."""

    epsilon: float
    size: int
    delta: float = 1e-6
    neighbours: Neighbours = Neighbours.ADD_REMOVE

    @property
    def terms(self) -> Terms:
        return Terms(self.neighbours, self.delta)

    def sigma(self, clip: float) -> float:
        """σ of the noise on a mean, as the price states it."""
        raw = {"epsilon": self.epsilon, "clip": float(clip), "public_size": self.size}
        return group_means.sigma(ONESHOT.parse(raw, self.terms), self.terms)


@dataclass(frozen=True)
class Point:
    """One choice of clip and basis. `noise` and `error` are shares of the signal."""

    centre: bool
    components: int | None
    clip: float
    sigma: float
    noise: float
    error: float


@dataclass(frozen=True)
class Material:
    """Public texts with their states, in two halves: one makes the view, the other plays the groups."""

    states: Floats
    texts: Sequence[tuple[str, str | None]]

    @property
    def halves(self) -> tuple[Floats, list[Floats]]:
        """(states of the first half, states of the second by label)."""
        groups: dict[str | None, list[int]] = {}
        for place in range(1, len(self.texts), 2):
            groups.setdefault(self.texts[place][1], []).append(place)
        found = [self.states[own] for own in groups.values() if len(own) >= 4]
        if len(found) < 2:
            raise DataError("corpus: tuning needs two labels of at least eight texts, to play the groups")
        return self.states[::2], found


def material(model: LocalModel, corpus: Corpus, template: str, record_tokens: int, texts: int) -> Material:
    """Read the states of the first texts of a public corpus."""
    found = mean_states.corpus_states(Reader(model, template, record_tokens), corpus, texts)
    return Material(*found)


def curve(given: Material, setting: Setting) -> Iterator[Point]:
    """The error of every choice, without a centre, with one, and with directions."""
    first, groups = given.halves
    means = np.stack([own.mean(axis=0) for own in groups])
    signal = float(np.mean(np.sum((means - means.mean(axis=0)) ** 2, axis=1)))
    widths: list[tuple[bool, int | None]] = [(False, None), (True, None)]
    widths += [(True, count) for count in DIRECTIONS if count < min(first.shape)]
    for centre, components in widths:
        view = mean_states.public_view(first, centre, components)
        norms = np.linalg.norm(view.coordinates(first), axis=1)
        clips = np.quantile(norms, QUANTILES)
        for clip in [*(clips[0] * share for share in SHRUNK), *clips]:
            yield _point(view, groups, means, signal, setting, centre, components, float(f"{clip:.3g}"))


def _point(
    view: View,
    groups: Sequence[Floats],
    means: Floats,
    signal: float,
    setting: Setting,
    centre: bool,
    components: int | None,
    clip: float,
) -> Point:
    sigma = setting.sigma(clip)
    noise = view.dimensions * sigma**2
    clipped = [mean_states.clipped(view, own, clip) for own in groups]
    kept = np.concatenate(
        [mean_states.clipped_means(view, own, [range(len(own))], clip) for own in clipped], axis=0
    )
    lost = float(np.mean(np.sum((kept - means) ** 2, axis=1)))
    return Point(centre, components, clip, sigma, noise / signal, (lost + noise) / signal)


def best(points: Sequence[Point]) -> Point:
    """The choice of least error."""
    return min(points, key=lambda point: point.error)


def length(model: LocalModel, given: Material) -> int:
    """Tokens T that hold most of the public texts whole."""
    lengths = [len(text_tokens(model.tokenizer, text)) for text, _ in given.texts]
    return max(1, int(np.quantile(lengths, WHOLE)))


def held_out(
    model: LocalModel,
    given: Material,
    point: Point,
    reading: Mapping[str, Any],
    tokens: int,
    soft_tokens: int,
    steps: int,
    seed: int,
) -> float:
    """The least held-out loss, in nats a token, of an adapter with `soft_tokens` m after some steps."""
    raw = {
        **{"corpus": "tuned", "sigma": point.sigma, "clip": point.clip, "centre": point.centre},
        **{"components": point.components, "soft_tokens": soft_tokens, "steps": steps, "seed": seed},
        **{"target_tokens": tokens, "public_texts": max(2, len(given.texts)), **reading},
    }
    parameters = ADAPTER.parse(raw, Terms())
    training = summary_adapter.train(parameters, model, given.states, given.texts, Progress(steps))
    return min(measure.held_out for measure in training)


def document(point: Point, soft_tokens: int | None, tokens: int) -> dict[str, Any]:
    """The parameters that were found, as a request names them."""
    found = asdict(point)
    made = {name: found[name] for name in ("clip", "centre", "components")} | {"max_tokens": tokens}
    return made | ({} if soft_tokens is None else {"soft_tokens": soft_tokens})
