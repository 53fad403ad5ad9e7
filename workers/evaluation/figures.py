"""The result of a metric: a value with its interval, what stands beside it, and its settings."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: An interval covers the true value in so many of 100 samples of texts.
COVERAGE = 95
_QUANTILE = 1.959964
RESAMPLES = 1_000
HALVES = 50

Interval = tuple[float, float]


@dataclass(frozen=True)
class Value:
    """The value of a metric for one side, or the reason why there is none."""

    value: float
    interval: Interval | None = None
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the value as in reports. A missing value (NaN) is null."""
        shown: dict[str, Any] = {"value": None if math.isnan(self.value) else self.value}
        shown["interval"] = None if self.interval is None else list(self.interval)
        return shown | ({"why": self.why} if self.why else {})


@dataclass(frozen=True)
class Figure:
    """One figure of a report.

    `settings` are everything that the value depends on besides the texts. `ideal` says in words
    which direction is better. `series` are lines of a plot: name -> (x, y). `beside` has the same
    metric of other texts: the model's own without a record ("zero-shot"), and "real texts". A
    `headline` figure ranks word salad below zero-shot. `sentence` says what the figure means, or
    why there is none.
    """

    name: str
    value: float
    settings: Mapping[str, Any]
    ideal: str
    details: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    interval: Interval | None = None
    beside: Mapping[str, Value] = field(default_factory=dict)
    least_texts: int = 0
    headline: bool = False
    sentence: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the figure as in reports and outputs. A missing value (NaN) is null."""
        figure: dict[str, Any] = {"name": self.name, **Value(self.value, self.interval).to_json()}
        figure |= {"ideal": self.ideal, "headline": self.headline, "sentence": self.sentence}
        figure["beside"] = {name: value.to_json() for name, value in self.beside.items()}
        figure |= {"least_texts": self.least_texts, "settings": dict(self.settings)}
        figure["details"] = dict(self.details)
        return figure | {"series": {name: {"x": x, "y": y} for name, (x, y) in self.series.items()}}


def mean_interval(values: NDArray[Any] | Sequence[Any], seed: int = 0) -> Interval:
    """Return the interval of a mean over texts.

    The bootstrap draws texts again with replacement. A share is given Wilson's interval instead:
    the bootstrap would be sure of a share that is 0 or 1.
    """
    array = np.asarray(values)
    if array.dtype == np.bool_:
        return _share_interval(int(array.sum()), len(array))
    draws = np.random.default_rng(seed).integers(len(array), size=(RESAMPLES, len(array)))
    low, high = np.percentile(array[draws].mean(axis=1), _tails())
    return float(low), float(high)


def ratio_interval(over: NDArray[Any], under: NDArray[Any], seed: int = 0) -> Interval:
    """Return the bootstrap interval of sum(over) / sum(under), whose parts belong to one text."""
    draws = np.random.default_rng(seed).integers(len(over), size=(RESAMPLES, len(over)))
    low, high = np.percentile(over[draws].sum(axis=1) / under[draws].sum(axis=1), _tails())
    return float(low), float(high)


def _tails() -> tuple[float, float]:
    return (100 - COVERAGE) / 2, (100 + COVERAGE) / 2


def _share_interval(hits: int, number: int) -> Interval:
    share, square = hits / number, _QUANTILE**2 / number
    middle = (share + square / 2) / (1 + square)
    spread = _QUANTILE * math.sqrt(share * (1 - share) / number + square / (4 * number))
    spread /= 1 + square
    return max(0.0, middle - spread), min(1.0, middle + spread)


def half_interval(
    measure: Callable[[NDArray[np.int64], NDArray[np.int64]], float],
    sizes: tuple[int, int],
    seed: int = 0,
) -> tuple[float, Interval]:
    """Return a figure of two samples, and its interval from random halves of both.

    Distances and counts of distinct texts change if a text is drawn twice, so the bootstrap draws
    halves without replacement: their spread is that of whole samples.

    Args:
        measure: the figure of the rows with these indices, of each sample.
    """
    draw = np.random.default_rng(seed)
    whole = measure(np.arange(sizes[0]), np.arange(sizes[1]))
    halves = []
    for _ in range(HALVES):
        first, second = (draw.permutation(size)[: max(1, size // 2)] for size in sizes)
        halves.append(measure(first, second))
    spread = _QUANTILE * float(np.std(halves))
    return whole, (whole - spread, whole + spread)
