"""A meter that notes its calls, and the distance between two runs on neighbouring records.

The second run gets the draws of the first, so that the two differ only by what the records
themselves moved. Exact: whole numbers and fractions, no tolerance (but for ex-post costs, which are
floats).
"""

import math
from collections import defaultdict
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

import numpy as np

from accountant.core.privacy.blowup import GroupSampling, Without
from accountant.core.privacy.events import (
    FREE,
    AllocatedReplaced,
    Allocation,
    Event,
    Exponential,
    Sampled,
    SelfComposed,
    WorstOf,
    releases,
)
from accountant.core.privacy.price import Price
from accountant.core.privacy.secrets import SecretRelease
from tests.workers.conformance.metadata import Refused
from workers.noise.meter import Turn
from workers.privacy_audits.noting import Call, Ints, NotingMeter


class Noting(NotingMeter):
    """A meter for `price` that notes its calls by part; answers as `earlier` did where one is
    given.
    """

    def __init__(self, price: Price, earlier: "Noting | None" = None, shared: bool = False) -> None:
        stated = None if price.secret is None else SecretRelease.from_json(price.secret["release"])
        super().__init__(price.dp or FREE, price.ex_post_draws, shared, stated)
        self.calls: dict[Hashable, list[Call]] = defaultdict(list)
        self._earlier = earlier

    def note(self, part: Hashable | None, call: Call) -> Any:
        """Note a call; the earlier meter's answer at its place, or its own."""
        own = self.calls[part]
        own.append(call)
        if self._earlier is None:
            return call.answer
        before = self._earlier.calls.get(part, [])
        if len(before) < len(own) or before[len(own) - 1].form != call.form:
            raise Refused(
                f"{call.kind}: a neighbour makes another release in its place, or declares another"
            )
        return before[len(own) - 1].answer


def compare_secret(one: Noting, two: Noting, group: GroupSampling, differ: int) -> None:
    """Raise Refused where `differ` records that all took part moved a round further than the price
    assumes.

    Counts and centres as one vector, each in units of what one record may move it. `two` was
    answered as `one`.
    """
    (first, second) = one.calls[None], two.calls[None]
    if len(first) != len(second):
        raise Refused("neighbours make different numbers of releases")
    most = (2 if group.without is Without.REMOVED else 4) * differ**2
    for each, other in zip(first, second, strict=True):
        if each.kind != "secret":
            raise Refused(f"{each.kind}: a job that is priced in secrets draws other noise")
        steps = each.values.astype(object) - other.values.astype(object)
        moved = Fraction(sum(int(step) ** 2 for step in steps[:, 0]))
        for row, move in zip(steps[:, 1:], each.moves, strict=True):
            moved += sum(int(step) ** 2 for step in row) / move**2
        if moved > most:
            times = math.sqrt(moved / most)
            raise Refused(
                f"secret: {differ} records move a round {times:.6g} times what is declared"
            )


def compare(one: Noting, two: Noting) -> None:
    """Raise Refused where the runs differ by more than their events declare. `two` was answered as
    `one`.
    """
    if {part: len(each) for part, each in one.calls.items()} != {
        part: len(each) for part, each in two.calls.items()
    }:
        raise Refused("neighbours make different numbers of releases")
    moved: dict[tuple[str, Event, int], list[Fraction]] = defaultdict(list)
    for part, calls in one.calls.items():
        # Rounds are paid for one by one; a unit moves its batch in each of them.
        number = part.round if isinstance(part, Turn) else 0
        furthest: dict[tuple[str, Event, int], Fraction] = defaultdict(Fraction)
        for first, second in zip(calls, two.calls[part], strict=True):
            if first.event is None:
                _check_costs(first, second)
                continue
            distance = _distance(first, second)
            if part is None:
                _check(first.kind, first.event, [distance])
            kind = first.kind, first.event, number
            furthest[kind] = max(furthest[kind], distance)
        if part is not None:
            for kind, distance in furthest.items():
                moved[kind].append(distance)
    for (name, event, _), distances in moved.items():
        _check(name, event, [each for each in distances if each])


def _distance(first: Call, second: Call) -> Fraction:
    """A release's move: of scores, or in parts of the L1 sensitivity, or of the L2 one, squared."""
    rows = first.values, second.values
    if first.kind == "token":
        return max(_differences(*rows), default=0) * first.per
    assert first.event is not None
    inner = releases(first.event.event if isinstance(first.event, Sampled) else first.event)
    if sum(inner.values()) == 1:  # one release, of whatever shape; else one a row
        rows = first.values[None], second.values[None]
    moves = [_differences(*pair) for pair in zip(*rows, strict=True)]
    if first.kind == "laplace":
        return max(sum(each) for each in moves) * first.per
    return max(sum(step * step for step in each) for each in moves) * first.per**2


def _differences(first: Ints, second: Ints) -> list[int]:
    return [
        abs(a - b)
        for a, b in zip(first.ravel().tolist(), second.ravel().tolist(), strict=True)
        if a != b
    ]


def _check(kind: str, event: Event, distances: list[Fraction]) -> None:
    """Refuse moves of disjoint parts that the event, paid once for all of them, does not cover.

    What parts of a sensitivity cost together is no more than the whole of it costs: for Laplace
    noise they add up, for Gaussian noise their squares do, and for draws of tokens a sum of shifts
    covers its terms.
    """
    total = sum(distances, Fraction(0))
    if kind != "token":
        if total > 1:
            times = float(total) if kind == "laplace" else math.sqrt(total)
            raise Refused(f"{kind}: one unit moves {times:.6g} times what is declared")
        return
    # its draw is from the batch without the unit that goes or comes
    if isinstance(event, Allocation):
        twice = isinstance(event, AllocatedReplaced)
        covered = isinstance(event.draw, Exponential) and total <= (1 + twice) * Fraction(
            event.draw.shift
        )
        if not covered:
            raise Refused(
                f"token: one unit moves scores by {float(total):.6g}, and {event} is declared"
            )
        return
    covered = False
    for each in event.events if isinstance(event, WorstOf) else (event,):
        leaf, count = (each.event, each.count) if isinstance(each, SelfComposed) else (each, 1)
        if not isinstance(leaf, Exponential):
            raise Refused("token: its event is no Exponential, and no WorstOf such")
        shift = Fraction(leaf.shift)
        spread = len(distances) <= count and all(move <= shift for move in distances)
        covered = covered or total <= shift or spread
    if not covered:
        raise Refused(
            f"token: one unit moves scores by {float(total):.6g} in all, and {event} is declared"
        )


def _check_costs(first: Call, second: Call) -> None:
    """Refuse an ex-post cost below what the drawn token tells between these two neighbours."""
    told = abs(_log(first, first.answer) - _log(second, first.answer))
    for each in (first, second):
        assert each.costs is not None
        cost = float(each.costs[first.answer])
        if told > cost + 1e-9:
            raise Refused(
                f"ex-post token: it tells {told:.6g} of a unit, and its cost is {cost:.6g}"
            )


def _log(call: Call, token: int) -> float:
    """ln of the probability of a token."""
    exponents = (call.values - call.values.max()) * float(call.per)
    return float(exponents[token] - np.log(np.exp(exponents).sum()))
