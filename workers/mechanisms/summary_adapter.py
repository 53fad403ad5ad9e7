"""`summary-adapter` (paper 004, Equation 5): trains the adapter of one-shot summaries on a public
corpus.

    states of all texts, once -> sets of one label -> their clipped mean + N(0, sigma^2) -> soft
        tokens -> the loss of another text of the label, by the frozen model -> gradients reach the
          adapter alone

A share of the texts is held out: sets of them measure the loss, the best weights are kept, and
training ends early where measures stop improving. Everything is public, so draws may be seeded.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from accountant.core.errors import DataError
from accountant.core.mechanisms.summary_adapter import MEASURED, SummaryAdapter
from accountant.core.mechanisms.summary_oneshot import ADAPTER
from accountant.core.privacy.price import Terms
from workers.data.words import sentences
from workers.embedding import mean_states
from workers.embedding.mean_states import Floats, Reader
from workers.engine import soft_loss
from workers.generation import soft_prompt_adapter
from workers.generation.soft_prompt_adapter import Adapter
from workers.interface import Artifact, Progress, Public
from workers.models import LocalModel
from workers.text_tokens import text_tokens

#: Sets that say where the input of an adapter lies and how far it spreads.
SCALING = 256


@dataclass(frozen=True)
class Measure:
    """A line of output: the mean training loss since the last, and the held-out one."""

    step: int
    loss: float
    held_out: float
    best: bool

    def to_json(self) -> dict[str, Any]:
        return {"step": self.step, "loss": self.loss, "held_out": self.held_out, "best": self.best}


class Runner:
    """Runs `summary-adapter`."""

    def total(self, parameters: SummaryAdapter, terms: Terms) -> int:  # noqa: ARG002
        """Return steps of training, at most."""
        return parameters.steps

    def make(
        self,
        parameters: SummaryAdapter,
        terms: Terms,  # noqa: ARG002
        model: LocalModel,
        progress: Progress,
        public: Public,
    ) -> Iterator[Measure | Artifact]:
        """Yield measures in training, then the best weights. Raises DataError without sets."""
        reader = Reader(model, parameters.template, parameters.record_tokens)
        corpus = public.corpus("corpus")
        states, texts = mean_states.corpus_states(
            reader, corpus, parameters.public_texts, progress.check
        )
        adapter = yield from train(parameters, model, states, texts, progress)
        yield Artifact.of_tensors("adapter", ADAPTER, adapter.tensors())


@dataclass(frozen=True)
class Sets:
    """Texts by label: a set is drawn, and another text of its label as the target."""

    by_label: Sequence[NDArray[np.int64]]
    targets: Sequence[Sequence[int]]

    def draw(
        self, random: np.random.Generator, count: int, size: int
    ) -> tuple[list[NDArray[np.int64]], list[list[int]]]:
        """`count` sets of `size` texts, fewer where a label has fewer, and the tokens of each one's
        target.

        Every label is as likely, however many texts it has.
        """
        sets, targets = [], []
        for _ in range(count):
            members = self.by_label[int(random.integers(len(self.by_label)))]
            chosen = random.permutation(members)[: size + 1]
            targets.append(list(self.targets[chosen[0]]))
            sets.append(chosen[1:])
        return sets, targets


def split(
    texts: Sequence[tuple[str, str | None]],
    targets: Sequence[Sequence[int]],
    share: float,
    random: np.random.Generator,
) -> tuple[Sets, Sets]:
    """Return training and held-out sets of different texts. Raises DataError if empty."""
    labels: dict[str | None, list[int]] = {}
    for place in random.permutation(len(texts)).tolist():
        if targets[place]:
            labels.setdefault(texts[place][1], []).append(place)
    training, held = [], []
    for label in labels.values():
        few = max(2, round(len(label) * share))
        if len(label) >= few + 2:
            held.append(np.array(label[:few]))
            training.append(np.array(label[few:]))
    if not training:
        raise DataError("corpus: no label of it has four texts, so there are no sets to learn from")
    return Sets(training, targets), Sets(held, targets)


def train(
    parameters: SummaryAdapter,
    model: LocalModel,
    states: Floats,
    texts: Sequence[tuple[str, str | None]],
    progress: Progress,
) -> Generator[Measure, None, Adapter]:
    """Train on public texts and states, (texts, hidden); yield measures, return the best."""
    seed = (
        parameters.seed
        if parameters.seed is not None
        else int.from_bytes(np.random.bytes(6), "big")
    )
    random = np.random.default_rng(seed)
    view = mean_states.public_view(states, parameters.centre, parameters.components)
    targets = [target_of(model, text, parameters.target_tokens) for text, _ in texts]
    trained, held = split(texts, targets, parameters.held_out, random)

    clipped = mean_states.clipped(view, states, parameters.clip)

    def means(sets: Sequence[NDArray[np.int64]]) -> Floats:
        return mean_states.clipped_means(
            view, clipped, [members.tolist() for members in sets], parameters.clip
        )

    scaling = means(trained.draw(random, SCALING, parameters.set_size)[0])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        adapter = soft_prompt_adapter.begun(
            model, parameters.start, parameters.soft_tokens, scaling
        )

    def noisy(sets: Sequence[NDArray[np.int64]]) -> torch.Tensor:
        """Return means with the noise of private ones, in the coordinates that get some."""
        noise = random.normal(0.0, parameters.sigma, (len(sets), view.dimensions))
        return torch.from_numpy((means(sets) + view.state(noise) - view.centre).astype(np.float32))

    measured = held.draw(random, MEASURED, parameters.set_size)
    public_means = noisy(measured[0])
    optimiser = torch.optim.Adam(adapter.parameters(), lr=parameters.learning_rate)
    best, weights, waited, losses = np.inf, adapter.tensors(), 0, list[float]()
    for step in range(1, parameters.steps + 1):
        sets, wanted = trained.draw(random, parameters.batch_size, parameters.set_size)
        wanted_loss = partial(soft_loss, model.structure, targets=wanted)
        losses.append(soft_prompt_adapter.step(adapter, optimiser, noisy(sets), wanted_loss))
        progress.advance()
        if step % parameters.evaluate_every and step < parameters.steps:
            continue
        with torch.no_grad():
            loss = soft_loss(model.structure, adapter(public_means), measured[1]).loss
        better = loss < best
        if better:
            best, weights, waited = loss, {k: v.copy() for k, v in adapter.tensors().items()}, 0
        waited += not better
        yield Measure(step, float(np.mean(losses)), loss, better)
        losses.clear()
        if waited >= parameters.patience:
            progress.advance(parameters.steps - step)
            break
    return soft_prompt_adapter.of_tensors(weights, model.structure.hidden, parameters.soft_tokens)


def target_of(model: LocalModel, text: str, tokens: int) -> list[int]:
    """Return a text as the model is to write it: its first whole sentences, up to `tokens`, and the
    token that ends a text. A longer first sentence is cut, and has no end.

    It begins with a blank, as after any prompt (workers.generation.local_writer).
    """
    whole, said, end = list[int](), " ", model.tokenizer.eos_token_id
    for sentence in sentences(text.strip()):
        said += sentence
        ids = text_tokens(model.tokenizer, said.rstrip())
        if len(ids) > tokens:
            if not whole:
                return ids[:tokens]
            break
        whole = ids
    return whole if end is None or not whole else [*whole, int(end)]
