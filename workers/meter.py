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
from accountant.core.events import Event, from_releases, releases
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

    def _record(self, event: Event, part: Hashable | None) -> None:
        spent = self._common if part is None else self._branches.setdefault(part, Counter())
        most = max((branch[event] for branch in self._branches.values()), default=0)
        branch = 0 if part is None else spent[event]
        used = self._common[event] + (most if part is None else branch)
        if used + 1 > self._covered[event]:
            raise MeterExceeded("the reservation does not cover this release")
        spent[event] += 1

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
