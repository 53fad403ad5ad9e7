"""The meter: noise exists only here, and asking for it records what it costs.

A mechanism that forgets to pay has no noise to add. Each release is counted before it is drawn and
refused where the reservation does not cover it. Counting is exact: the reservation is a multiset of
basic releases, and disjoint parts of the data (batches, labels) spend side by side.
"""

from collections import Counter
from collections.abc import Hashable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from accountant.core.errors import MeterExceeded
from accountant.core.events import Event, Gaussian, Laplace, Sampled, from_releases, releases
from workers.noise import Grid, gaussian_on_grid, laplace_on_grid
from workers.sampling import draw


class Meter:
    """Records the releases of one job under one reservation."""

    def __init__(self, reserved: Event) -> None:
        self._covered = releases(reserved)
        self._common: Counter[Event] = Counter()
        self._branches: dict[Hashable, Counter[Event]] = {}

    def parallel(self, part: Hashable) -> "Branch":
        """The meter of one part of the data. Parts must be disjoint: no unit lies in two of them.

        Under replace-one a unit may move from one part to another; the event that a mechanism records
        must then cover both (events.WorstOf).
        """
        return Branch(self, part)

    def sample_token(
        self, scores: NDArray[np.int64], scale: Fraction, event: Event, part: Hashable | None = None
    ) -> int:
        """Draw from softmax(scores * scale) and record `event`.

        `scores`: (vocabulary,) int64, a sum of clipped contributions on their grid; one unit of privacy
        moves `scores * scale` by at most the shift in `event`. Raises MeterExceeded before drawing.
        """
        self._record(event, part)
        return draw(scores, scale)

    def gaussian(
        self, values: Grid, sensitivity: Fraction | float, event: Event, part: Hashable | None = None
    ) -> Grid:
        """Add Gaussian noise of sigma = the multiplier in `event` times `sensitivity`; record `event`.

        `values`: int64 in steps of a public grid. `event`: a Gaussian, and `values`, of any shape, are one
        release; or n times the same Gaussian, or a sampled event of these, and `values` has n rows
        (its first axis), a release each. `sensitivity`: the furthest that one unit moves a release, in
        grid steps and L2; a float stands for its exact value, so round an irrational one up. Returns
        int64 of the same shape, exactly round(values + sigma * Z).

        Nobody can ask for a sigma of their own: less noise costs more. Raises MeterExceeded before
        drawing, and ValueError for another event or shape.
        """
        multiplier = self._pay(event, Gaussian, values, part)
        return gaussian_on_grid(values, multiplier * Fraction(sensitivity))

    def laplace(
        self, values: Grid, sensitivity: Fraction | float, event: Event, part: Hashable | None = None
    ) -> Grid:
        """Add Laplace noise of scale = the multiplier in `event` times `sensitivity`; record `event`.

        As `gaussian`, with Laplace events, and the sensitivity in L1.
        """
        multiplier = self._pay(event, Laplace, values, part)
        return laplace_on_grid(values, multiplier * Fraction(sensitivity))

    def _pay(
        self, event: Event, kind: type[Gaussian] | type[Laplace], values: Grid, part: Hashable | None
    ) -> Fraction:
        """Record `event` once it is known to stand for these values; the multiplier of its noise."""
        inner = releases(event.event if isinstance(event, Sampled) else event)
        if len(inner) != 1:
            raise ValueError("one call makes releases of one kind and one noise multiplier")
        leaf, count = next(iter(inner.items()))
        if not isinstance(leaf, kind):
            raise ValueError(f"the event is no {kind.__name__}")
        if count > 1 and values.shape[:1] != (count,):
            raise ValueError(f"the event is {count} releases, so the values must have {count} rows")
        if isinstance(event, Sampled):
            self._record(event, part)  # one draw of records serves all its releases
        else:
            self._record(leaf, part, count)
        return Fraction(leaf.noise_multiplier)

    def _record(self, event: Event, part: Hashable | None, count: int = 1) -> None:
        spent = self._common if part is None else self._branches.setdefault(part, Counter())
        most = max((branch[event] for branch in self._branches.values()), default=0)
        branch = 0 if part is None else spent[event]
        used = self._common[event] + (most if part is None else branch)
        if used + count > self._covered[event]:
            raise MeterExceeded("the reservation does not cover this release")
        spent[event] += count

    @property
    def realized(self) -> Event:
        """What was spent so far: the common releases and, for each kind, the part that made most."""
        total = Counter(self._common)
        for event in self._covered:
            total[event] += max((branch[event] for branch in self._branches.values()), default=0)
        return from_releases(+total)


class Branch:
    """The meter of one disjoint part."""

    def __init__(self, meter: Meter, part: Hashable) -> None:
        self._meter, self._part = meter, part

    def sample_token(self, scores: NDArray[np.int64], scale: Fraction, event: Event) -> int:
        """As `Meter.sample_token`, charged to this part."""
        return self._meter.sample_token(scores, scale, event, self._part)

    def gaussian(self, values: Grid, sensitivity: Fraction | float, event: Event) -> Grid:
        """As `Meter.gaussian`, charged to this part."""
        return self._meter.gaussian(values, sensitivity, event, self._part)

    def laplace(self, values: Grid, sensitivity: Fraction | float, event: Event) -> Grid:
        """As `Meter.laplace`, charged to this part."""
        return self._meter.laplace(values, sensitivity, event, self._part)
