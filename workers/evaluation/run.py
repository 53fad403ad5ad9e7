"""All metrics of one evaluation, in the order asked for, beside zero-shot and real texts.

    headline figures      loss, usable texts, right labels: word salad is below zero-shot in each
    parts                 share finished, duplicates, talk, copying: what makes texts usable
    likeness              MAUVE, Fréchet, lengths, openings, classifiers: of readable texts only

A metric that can't be computed says why and takes no other down. A judge that does not
answer ends the evaluation with its reason: asking again is free.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.core.errors import DataError, InvalidRequest, invalid
from accountant.core.mechanisms.evaluation import Evaluation
from workers.embedding import embedders
from workers.evaluation import fidelity, judge, language, usable
from workers.evaluation.adaptation import adapted_accuracy
from workers.evaluation.figures import Figure, Interval, Value, mean_interval
from workers.evaluation.mauve import mauve
from workers.evaluation.sides import Sides, Texts
from workers.evaluation.transfer import transfer
from workers.generation.writer import Writer
from workers.models import LocalModel

__all__ = ["Embedding", "Sides", "Texts", "Tools", "embedding_of", "evaluate"]

#: The texts that a metric needs on each side that it reads. Below, chance decides.
LEAST_TEXTS: Mapping[str, int] = {
    "mauve": 100,
    "frechet": 100,
    **dict.fromkeys(("loss", "finished", "duplicates", "talk", "copying", "judge"), 10),
}
LEAST = 20
#: Figures of likeness, which can be high for word salad, by their names in reports.
LIKENESS: Mapping[str, str] = {
    "mauve": "MAUVE",
    "frechet": "Fréchet distance",
    "lengths": "Length distance",
    "openings": "Distinct openings, ratio",
    "tstr": "TSTR accuracy",
    "trts": "TRTS accuracy",
    "coral": "TSTR accuracy, Deep CORAL",
    "next-token": "Next-token accuracy",
    "in-context-tstr": "In-context TSTR accuracy",
    "in-context-trts": "In-context TRTS accuracy",
}
NAMES: Mapping[str, str] = {
    "loss": "Loss",
    "usable": "Usable texts",
    "labels": "Right labels",
    "finished": "Finished",
    "duplicates": "Duplicates",
    "talk": "Talk about the task",
    "copying": "Longest copied run",
    "judge": "Judged quality",
    **LIKENESS,
}
#: Headline figures, and whether more is better.
HEADLINES: Mapping[str, bool] = {"loss": False, "usable": True, "labels": True}


@dataclass(frozen=True)
class Embedding:
    """An embedding model: its name, for the settings, and the map of texts to (n, d) float32."""

    name: str
    embed: Callable[[Sequence[str]], NDArray[np.float32]]


def embedding_of(folder: Path) -> Embedding:
    """Return a local embedding model. Raises ModelError if the folder holds none."""
    model = embedders.load(folder, embedders.inspect(folder)["sha256"])
    return Embedding(folder.name, lambda texts: embedders.embed_all(model, texts))


@dataclass(frozen=True)
class Tools:
    """Models of an evaluation.

    Args:
        embedding: for MAUVE, the Fréchet distance and deep CORAL.
        model: finds losses, and is trained or prompted.
        writer: the judge.
    """

    embedding: Embedding | None = None
    model: LocalModel | None = None
    writer: Writer | None = None


def evaluate(parameters: Evaluation, sides: Sides, tools: Tools) -> Iterator[Figure]:
    """Yield the figures of `parameters.wanted()`; one that can't be computed says why."""
    run = _Run(parameters, _bounded(sides, parameters.most_texts), tools)
    for metric in parameters.wanted():
        yield run.figure(metric)


def _bounded(sides: Sides, most: int) -> Sides:
    cut = slice(0, most)
    zero_shot = None if sides.zero_shot is None else sides.zero_shot.part(cut)
    ours, real, held_out = (s.part(cut) for s in (sides.ours, sides.real, sides.held_out))
    return replace(sides, ours=ours, real=real, held_out=held_out, zero_shot=zero_shot)


class _Run:
    """One evaluation: what several metrics need is computed once for each side."""

    def __init__(self, parameters: Evaluation, sides: Sides, tools: Tools) -> None:
        self.parameters, self.sides, self.tools = parameters, sides, tools
        self._losses: dict[int, NDArray[np.float64]] = {}
        self._features: dict[int, NDArray[np.float32]] = {}

    def figure(self, metric: str) -> Figure:
        """Return one metric of the texts, with the same metric of the sides beside them."""
        ours = self._of(metric, self.sides.ours)
        beside = {
            name: Value(np.nan, why=self.sides.why_no_zero_shot)
            if side is None
            else _value(self._of(metric, side))
            for name, side in self.sides.beside().items()
        }
        least = LEAST_TEXTS.get(metric, LEAST)
        ours = replace(ours, beside=beside, least_texts=least, headline=metric in HEADLINES)
        if metric in HEADLINES and not np.isnan(ours.value):
            ours = replace(ours, sentence=_ranked(ours, more=HEADLINES[metric]))
        return ours

    def _of(self, metric: str, side: Texts) -> Figure:
        """Return one metric of one side. Its sentence says why there is none."""
        try:
            self._require(metric, side)
            return self._measured(metric, side)
        except InvalidRequest as error:
            why = "; ".join(f"{problem.problem}: {problem.allowed}" for problem in error.problems)
        except (ValueError, DataError) as error:
            why = str(error)
        return Figure(NAMES[metric], float("nan"), {}, "", sentence=f"Not computed: {why}.")

    def _require(self, metric: str, side: Texts) -> None:
        """Raise ValueError if a side has too few texts, or no language, for a metric."""
        least = LEAST_TEXTS.get(metric, LEAST)
        compared = self.sides.equal if metric in ("mauve", "frechet") else len(side.texts)
        fewest = min(compared, len(self.sides.held_out.texts))
        if fewest < least:
            raise ValueError(f"{NAMES[metric]} needs {least} texts a side, and there are {fewest}")
        if metric in LIKENESS and side is self.sides.ours and self._is_salad:
            count = int(self._readable(side).sum())
            raise ValueError(
                f"{count} of {len(side.texts)} texts are readable, and likeness of others "
                "means nothing: word salad has it too"
            )

    # --- what texts are worth reading -------------------------------------------------------------

    def _loss(self, side: Texts) -> NDArray[np.float64]:
        if self.tools.model is None:
            raise invalid("language_model", "loss needs one", "a registered language model")
        if id(side) not in self._losses:
            tokens = self.parameters.text_tokens
            self._losses[id(side)] = language.losses(self.tools.model, side.texts, tokens=tokens)
        return self._losses[id(side)]

    def _readable(self, side: Texts) -> usable.Mask:
        return usable.readable(side.texts, self._loss(side), self._loss(self.sides.held_out))

    def _usable(self, side: Texts) -> usable.Mask:
        complete = np.ones(len(side.texts), bool) if side.complete is None else side.complete
        flawed = usable.duplicates(side.texts) | usable.talks(side.texts)
        return self._readable(side) & np.asarray(complete) & ~flawed

    @cached_property
    def _is_salad(self) -> bool:
        """Return True if less than half of the texts are readable, and fewer than of zero-shot."""
        if self.tools.model is None or len(self.sides.held_out.texts) < LEAST:
            return False
        readable = self._readable(self.sides.ours)
        other = self.sides.real if self.sides.zero_shot is None else self.sides.zero_shot
        high = mean_interval(readable)[1]
        return bool(readable.mean() < 0.5 and high < mean_interval(self._readable(other))[0])

    # --- the metrics ------------------------------------------------------------------------------

    def _measured(self, metric: str, side: Texts) -> Figure:
        held_out, seed = self.sides.held_out, self.parameters.seed
        match metric:
            case "loss" | "usable" | "finished" | "duplicates" | "talk" | "copying":
                return self._of_each_text(metric, side)
            case "labels":
                sides = held_out.labelled(metric, "corpus"), side.labelled(metric, "from_job")
                return transfer(*sides, name=NAMES[metric], usable=self._usable(side))
            case "mauve" | "frechet" | "lengths" | "openings":
                return self._likeness(metric, side)
            case "tstr" | "trts":
                sides = side.labelled(metric, "from_job"), held_out.labelled(metric, "corpus")
                train, test = sides if metric == "tstr" else sides[::-1]
                return transfer(train, test, name=NAMES[metric])
            case "coral":
                return self._adapted(side)
            case "judge":
                if self.tools.writer is None:
                    raise invalid("judge", "judge needs one", "a language model or endpoint")
                return judge.quality(side.texts, self.tools.writer)
        if self.tools.model is None:
            raise invalid("language_model", f"{metric} needs one", "a registered language model")
        folder, tokens = self.tools.model.folder, self.parameters.text_tokens
        if metric == "next-token":
            steps = self.parameters.steps
            return language.next_token_accuracy(
                folder, side.texts, held_out.texts, steps=steps, tokens=tokens, seed=seed
            )
        sides = side.labelled(metric, "from_job"), held_out.labelled(metric, "corpus")
        examples, test = sides if metric == "in-context-tstr" else sides[::-1]
        shots, name = self.parameters.shots, NAMES[metric]
        return language.in_context_accuracy(
            folder, examples, test, shots=shots, tokens=tokens, seed=seed, name=name
        )

    def _of_each_text(self, metric: str, side: Texts) -> Figure:
        """Return the mean of a value that each text has by itself."""
        details: dict[str, float] = {}
        settings: dict[str, object] = {"texts": len(side.texts)}
        values: NDArray[Any]
        ideal = "all"
        match metric:
            case "loss":
                values = self._loss(side)
                values = values[np.isfinite(values)]
                if not len(values):
                    raise ValueError("no text has a token")
                details["repeat themselves"] = float(usable.repeats(side.texts).mean())
                ideal = "that of real texts"
            case "usable":
                values = self._usable(side)
                details["readable"] = float(self._readable(side).mean())
            case "finished":
                if side.complete is None:
                    raise ValueError("nothing says which texts are finished")
                values = np.asarray(side.complete)
            case "copying":
                number = min(len(self.sides.real.texts), len(self.sides.held_out.texts))
                real, held_out = (
                    usable.longest_runs(side.texts, other.texts[:number])
                    for other in (self.sides.real, self.sides.held_out)
                )
                values = held_out if side is self.sides.real else real
                details["with texts held out"] = float(held_out.mean())
                settings["compared with"], ideal = number, "no longer than with texts held out"
            case _:
                found = usable.duplicates if metric == "duplicates" else usable.talks
                values, ideal = found(side.texts), "none"
        if metric in ("loss", "usable"):
            assert self.tools.model is not None
            settings |= {"model": self.tools.model.folder.name}
            settings |= {"tokens of a text": self.parameters.text_tokens}
        value, interval = float(values.mean()), mean_interval(values, self.parameters.seed)
        return Figure(NAMES[metric], value, settings, ideal, details, interval=interval)

    def _likeness(self, metric: str, side: Texts) -> Figure:
        """Return a distance of two samples of equal size."""
        cut = slice(0, self.sides.equal)
        pair = side.part(cut), self.sides.held_out.part(cut)
        if metric in ("lengths", "openings"):
            measure = fidelity.lengths if metric == "lengths" else fidelity.openings
            return measure(pair[0].texts, pair[1].texts)
        name = self._embedding.name
        ours, theirs = (self._features_of(whole)[cut] for whole in (side, self.sides.held_out))
        if metric == "mauve":
            return mauve(ours, theirs, seed=self.parameters.seed, features=name)
        return fidelity.frechet(ours, theirs, features=name)

    @property
    def _embedding(self) -> Embedding:
        if self.tools.embedding is None:
            raise invalid("embedding", "this metric needs one", "a registered embedding model")
        return self.tools.embedding

    def _features_of(self, side: Texts) -> NDArray[np.float32]:
        if id(side) not in self._features:
            self._features[id(side)] = self._embedding.embed(side.texts)
        return self._features[id(side)]

    def _adapted(self, side: Texts) -> Figure:
        """Return deep CORAL, adapted to every other held-out text unlabelled, tried on the rest."""
        features = self._features_of(self.sides.held_out)
        train = side.labelled("coral", "from_job")
        test = self.sides.held_out.labelled("coral", "corpus")
        return adapted_accuracy(
            (self._features_of(side), train.labels),
            features[::2],
            (features[1::2], test.labels[1::2]),
            features=self._embedding.name,
            seed=self.parameters.seed,
        )


def _value(figure: Figure) -> Value:
    return Value(figure.value, figure.interval, figure.sentence)


def _ranked(figure: Figure, more: bool) -> str:
    """Return where a headline figure stands against zero-shot, in words."""
    other = figure.beside["zero-shot"]
    if np.isnan(other.value) or figure.interval is None or other.interval is None:
        return f"Not compared with zero-shot: {other.why.removeprefix('Not computed: ')}."
    ours, theirs = figure.interval, other.interval
    if _below(ours, theirs) if more else _below(theirs, ours):
        return "Worse than zero-shot: what the model writes without any record is better."
    if _below(theirs, ours) if more else _below(ours, theirs):
        return "Better than zero-shot."
    return "Not told apart from zero-shot: more texts would tell."


def _below(one: Interval, other: Interval) -> bool:
    return one[1] < other[0]
