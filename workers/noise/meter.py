"""The meter: the only source of noise, which records the cost of every draw.

A mechanism that does not pay has no noise to add. Each release is counted before it is drawn, and
refused if the reservation does not cover it. Counting is exact: the reservation is a multiset of
basic releases, and disjoint parts of the data (batches, labels) spend in parallel. Draws may be
kept for a later attempt (kept_draws.py), which counts those that it takes like its own.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accountant.core.errors import MeterExceeded
from accountant.core.privacy.events import (
    Allocation,
    Event,
    Gaussian,
    Laplace,
    Sampled,
    from_releases,
    releases,
)
from accountant.core.privacy.ex_post_curves import CostCurve
from accountant.core.privacy.secrets import SecretRelease
from accountant.core.privacy.units import EPSILON_UNITS, round_price
from workers.noise.kept_draws import KeptDraws
from workers.noise.samplers import Grid, gaussian_on_grid, laplace_on_grid
from workers.noise.token_sampler import draw

#: Whole numbers on a grid, or what computes them.
Values = Grid | Callable[[], Grid]


@dataclass
class _ExPost:
    """Draws whose cost depends on the data: their number, the cost of each, and the exact sum."""

    draws: int = 0
    cost: Fraction = Fraction(0)
    each: "array[float]" = field(default_factory=lambda: array("d"))


class Turn(NamedTuple):
    """One batch in one round of an allocation: in each round every unit draws its batch anew.

    `round`: 0 for the first. `batch`: the number that a unit's coin shows; batches of that number
    in other parts of the data, such as labels, are parts of the same. A part may have more batches
    than were priced where all are run: a unit is harder to find there, and costs no more.
    """

    round: int
    part: Hashable
    batch: int


@dataclass
class _Rounds:
    """Rounds of an allocation that have begun, and the draws of each batch in the latest."""

    begun: int = 0
    drawn: Counter[Hashable] = field(default_factory=Counter)


class Meter:
    """Records the releases of one job under one reservation.

    `reserved` is the event that was priced. `ex_post_draws` is the number of draws with an ex-post
    cost that each part may make, fixed beforehand by a reservation with a cap (price.Price); 0:
    none. `secret` is the secret release that was reserved, with its rounds. `shared`: other workers
    run other batches of the job. Each of them would make a release from all the data, but only one
    is priced, so none is allowed: every release must name its part. `kept`: where draws are kept
    for attempts that go on after this one.
    """

    def __init__(
        self,
        reserved: Event,
        ex_post_draws: int = 0,
        shared: bool = False,
        secret: SecretRelease | None = None,
        kept: KeptDraws | None = None,
    ) -> None:
        self._covered = releases(reserved)
        self._common: Counter[Event] = Counter()
        self._branches: dict[Hashable, Counter[Event]] = {}
        self._most: Counter[Event] = (
            Counter()
        )  # of any branch: counts only grow, so no draw looks at them all
        self._allocations: dict[Event, _Rounds] = {}
        self._ex_post_draws, self._shared = ex_post_draws, shared
        self._secret, self._rounds = secret, 0
        self._common_ex_post = _ExPost()
        self._ex_post: dict[Hashable, _ExPost] = {}
        self._most_ex_post = 0  # draws of any part
        self.kept = kept or KeptDraws()

    def parallel(self, part: Hashable) -> "Branch":
        """Return the meter of one part of the data. Parts must be disjoint: no unit lies in two of
        them.

        The parts of an allocation are its `Turn`s: no unit lies in two batches of one round. Under
        replace-one a unit may move from one part to another; the event that a mechanism records
        must then cover both (events.WorstOf).
        """
        return Branch(self, part)

    def sample_token(
        self, scores: NDArray[np.int64], scale: Fraction, event: Event, part: Hashable | None = None
    ) -> int:
        """Draw from softmax(scores * scale) and record `event`.

        `scores`: (vocabulary,) int64, a sum of clipped contributions on their grid; one unit of
        privacy moves `scores * scale` by at most the shift in `event` or, where that is an
        allocation, in its draw; `part` is a Turn then. Raises MeterExceeded before drawing.
        """
        self._record(event, part)
        self.kept.before_drawing(part)
        token = draw(scores, scale)
        self.kept.add(part, token)
        return token

    def kept_token(self, event: Event, part: Hashable | None = None) -> int | None:
        """Return the next token that an earlier attempt drew for this part, recorded as
        `sample_token` does.

        None: the next one is to be drawn. Raises MeterExceeded as a draw does.
        """
        token = self.kept.take(part)
        if token is not None:
            self._record(event, part)
            if not isinstance(token, int):
                raise ValueError("another kind of draw was kept here")
        return token

    def ex_post_token(
        self,
        scores: NDArray[np.int64],
        scale: Fraction,
        costs: NDArray[np.float64],
        part: Hashable | None = None,
    ) -> int:
        """Draw from softmax(scores * scale) and add the drawn token's ex-post cost to this part's
        sum.

        `scores`: (vocabulary,) int64. `costs`: (vocabulary,) float64, the ex-post epsilon of every
        token, already rounded up; the sum is exact. The cost of a draw depends on the data, so
        nothing is ever refused, stopped or shortened because of it: only the number of draws is
        bounded, by the price. Raises MeterExceeded beyond that, or if nothing ex-post was reserved,
        and ValueError for costs that are not one finite number >= 0 per token; both before drawing.
        """
        if costs.shape != scores.shape or costs.dtype != np.float64:
            raise ValueError("costs must be float64, one for every score")
        if not (np.isfinite(costs).all() and (costs >= 0).all()):
            raise ValueError("an ex-post cost must be finite and not negative")
        spent = self._count_ex_post(part)
        self.kept.before_drawing(part)
        token = draw(scores, scale)
        cost = float(costs[token])
        self.kept.add(part, [token, cost])
        spent.each.append(cost)
        spent.cost += Fraction(cost)
        return token

    def kept_ex_post_token(self, part: Hashable | None = None) -> int | None:
        """As `kept_token`, for draws of `ex_post_token`: the cost was kept with the token."""
        draw = self.kept.take(part)
        if draw is None:
            return None
        if not isinstance(draw, list):
            raise ValueError("another kind of draw was kept here")
        spent, (token, cost) = self._count_ex_post(part), draw
        spent.each.append(cost)
        spent.cost += Fraction(cost)
        return int(token)

    def _count_ex_post(self, part: Hashable | None) -> _ExPost:
        """Count a draw; return its cost's sum. Raises MeterExceeded beyond their number."""
        spent = self._common_ex_post if part is None else self._ex_post.setdefault(part, _ExPost())
        used = self._common_ex_post.draws + (self._most_ex_post if part is None else spent.draws)
        if used >= self._ex_post_draws or (part is None and self._shared):
            raise MeterExceeded("the reservation does not cover this draw")
        spent.draws += 1
        if part is not None:
            self._most_ex_post = max(self._most_ex_post, spent.draws)
        return spent

    def gaussian(
        self,
        values: Values,
        sensitivity: Fraction | float,
        event: Event,
        part: Hashable | None = None,
    ) -> Grid:
        """Add Gaussian noise of sigma = the multiplier in `event` times `sensitivity`; record
        `event`.

        `values`: int64 in steps of a public grid. `event` is one of: a Gaussian, and then `values`,
        of any shape, are one release; or n times the same Gaussian, or a sampled event of these,
        and then `values` has n rows (its first axis), one release each. `sensitivity` is the L2
        distance, in grid steps, by which one unit can move a release; a float stands for its exact
        value, so round an irrational one up. Returns int64 of the same shape, exactly round(values
        + sigma * Z). `values` may be a function that computes them: it is not called where an
        earlier attempt's release is taken in their place.

        A mechanism can't choose its own sigma: less noise costs more. Raises MeterExceeded before
        drawing, and ValueError for another event or shape.
        """
        return self._release(values, Fraction(sensitivity), event, Gaussian, part)

    def laplace(
        self,
        values: Values,
        sensitivity: Fraction | float,
        event: Event,
        part: Hashable | None = None,
    ) -> Grid:
        """Add Laplace noise of scale = the multiplier in `event` times `sensitivity`; record
        `event`.

        As `gaussian`, with Laplace events, and the sensitivity in L1.
        """
        return self._release(values, Fraction(sensitivity), event, Laplace, part)

    def _release(
        self,
        values: Values,
        sensitivity: Fraction,
        event: Event,
        kind: type[Gaussian] | type[Laplace],
        part: Hashable | None,
    ) -> Grid:
        """Return the noisy values that an earlier attempt released here, or new ones."""
        draw = self.kept.take(part)
        if draw is None:
            plain_values = values() if callable(values) else values
            scale = self._pay(event, kind, plain_values.shape, part) * sensitivity
            self.kept.before_drawing(part)
            noisy = (gaussian_on_grid if kind is Gaussian else laplace_on_grid)(plain_values, scale)
            self.kept.add(part, {"noisy": noisy.tolist()})
            return noisy
        if not (isinstance(draw, dict) and "noisy" in draw):
            raise ValueError("another kind of release was kept here")
        noisy = np.array(draw["noisy"], np.int64)
        if not callable(values) and noisy.shape != values.shape:
            raise ValueError("another kind of release was kept here")
        self._pay(event, kind, noisy.shape, part)
        return noisy

    def secret(
        self, counts: Grid, centres: Grid, moves: Sequence[Fraction], release: SecretRelease
    ) -> tuple[Grid, Grid]:
        """Add the noise of one round of a secret release to counts and centres; record the round.

        `counts`: (clusters,) int64, of which one record moves one by 1. `centres`: (clusters,
        dimensions) int64 in steps of a public grid. `moves`: for each cluster the furthest that one
        record moves its centre, 2R over the public number of the cluster, in grid steps and L2.
        `release`: what was priced; each count gets noise of its `sigma`, each coordinate of a
        centre of sigma times that cluster's move, exactly round(values + noise). Returns both.

        Whether a record takes part in a round, by its coin, is the caller's. Raises MeterExceeded
        before drawing where another release was reserved, or all its rounds are taken; ValueError
        for other shapes.
        """
        if counts.ndim != 1 or centres.ndim != 2 or not len(counts) == len(centres) == len(moves):
            raise ValueError("counts, centres and moves must be of the same clusters")
        if not all(move > 0 for move in moves):
            raise ValueError("a record moves every centre by more than 0 at the most")
        self._count_round(release)
        self.kept.before_drawing(None)
        sigma = Fraction(release.sigma)
        rows = [
            gaussian_on_grid(row, sigma * move) for row, move in zip(centres, moves, strict=True)
        ]
        noisy = gaussian_on_grid(counts, sigma), np.stack(rows) if rows else centres
        self.kept.add(None, {"counts": noisy[0].tolist(), "centres": noisy[1].tolist()})
        return noisy

    def kept_secret(self, release: SecretRelease) -> tuple[Grid, Grid] | None:
        """Return the next round released earlier, recorded like `secret`, or None to draw it."""
        draw = self.kept.take(None)
        if draw is None:
            return None
        if not (isinstance(draw, dict) and "centres" in draw):
            raise ValueError("another kind of release was kept here")
        self._count_round(release)
        counts, centres = (np.array(draw[name], np.int64) for name in ("counts", "centres"))
        return counts, centres.reshape(len(counts), -1)

    def _count_round(self, release: SecretRelease) -> None:
        reserved = self._secret
        if (
            reserved is None
            or self._shared
            or replace(release, rounds=1) != replace(reserved, rounds=1)
        ):
            raise MeterExceeded("the reservation does not cover this release")
        if self._rounds >= reserved.rounds:
            raise MeterExceeded("the reservation does not cover this round")
        self._rounds += 1

    def _pay(
        self,
        event: Event,
        kind: type[Gaussian] | type[Laplace],
        shape: tuple[int, ...],
        part: Hashable | None,
    ) -> Fraction:
        """Record `event`, checked to describe such values. Returns its noise multiplier."""
        inner = releases(event.event if isinstance(event, Sampled) else event)
        if len(inner) != 1:
            raise ValueError("one call makes releases of one kind and one noise multiplier")
        leaf, count = next(iter(inner.items()))
        if not isinstance(leaf, kind):
            raise ValueError(f"the event is no {kind.__name__}")
        if count > 1 and shape[:1] != (count,):
            raise ValueError(f"the event is {count} releases, so the values must have {count} rows")
        if isinstance(event, Sampled):
            self._record(event, part)  # one draw of records serves all its releases
        else:
            self._record(leaf, part, count)
        return Fraction(leaf.noise_multiplier)

    def _record_turn(self, event: Allocation, turn: Hashable | None) -> None:
        """Count a draw of an allocation; its first in a round begins the round, which is charged
        whole.

        What one more token costs under a secret coin depends on what was seen, so nothing of a
        round returns. Rounds begin in their order: the number of those begun is then the same for
        whoever shares the job.
        """
        if not isinstance(turn, Turn):
            raise ValueError("a draw of an allocation names its round, its part and its batch")
        rounds = self._allocations.get(event, _Rounds())
        if turn.round < 0 or turn.round not in (rounds.begun - 1, rounds.begun):
            raise ValueError(f"round {turn.round} after {rounds.begun} rounds have begun")
        if turn.round == rounds.begun:
            rounds = _Rounds(rounds.begun + 1)
        runs = turn.batch >= 0 and (turn.batch < event.run or event.run == event.batches)
        covered = rounds.begun <= self._covered[event] and runs
        if not covered or rounds.drawn[turn] >= event.tokens:
            raise MeterExceeded("the reservation does not cover this draw")
        rounds.drawn[turn] += 1
        self._allocations[event] = rounds

    def _record(self, event: Event, part: Hashable | None, count: int = 1) -> None:
        if isinstance(event, Allocation):
            self._record_turn(event, part)
            return
        spent = self._common if part is None else self._branches.setdefault(part, Counter())
        used = self._common[event] + (self._most[event] if part is None else spent[event])
        if used + count > self._covered[event] or (part is None and self._shared):
            raise MeterExceeded("the reservation does not cover this release")
        spent[event] += count
        if part is not None:
            self._most[event] = max(self._most[event], spent[event])

    @property
    def has_ex_post(self) -> bool:
        """True if the reservation has draws with an ex-post cost."""
        return self._ex_post_draws > 0

    @property
    def realized(self) -> Event:
        """The event spent so far: the common releases and, of each kind, those of the part that
        made most.

        Of an allocation, every round that has begun.
        """
        total = Counter(self._common)
        total.update({event: rounds.begun for event, rounds in self._allocations.items()})
        for event in self._covered:
            total[event] += self._most[event]
        return from_releases(+total)

    @property
    def secret_rounds(self) -> int:
        """The rounds of the secret release that were taken."""
        return self._rounds

    @property
    def realized_ex_post(self) -> int:
        """The cost of the draws of `ex_post_token`, in units, rounded up: that of the most
        expensive part.

        This figure depends on the data. It is for stewards and auditors.
        """
        most = max((curve.cost for curve in self._ex_post.values()), default=Fraction(0))
        return round_price(self._common_ex_post.cost + most, EPSILON_UNITS)

    @property
    def ex_post_curve(self) -> CostCurve | None:
        """The growth of that cost; None if no part made such a draw. As private as the figure."""
        return CostCurve.of([part.each for part in self._ex_post.values()])


class Branch:
    """The meter of one disjoint part."""

    def __init__(self, meter: Meter, part: Hashable) -> None:
        self._meter, self._part = meter, part

    def sample_token(self, scores: NDArray[np.int64], scale: Fraction, event: Event) -> int:
        """As `Meter.sample_token`, charged to this part."""
        return self._meter.sample_token(scores, scale, event, self._part)

    def ex_post_token(
        self, scores: NDArray[np.int64], scale: Fraction, costs: NDArray[np.float64]
    ) -> int:
        """As `Meter.ex_post_token`, charged to this part."""
        return self._meter.ex_post_token(scores, scale, costs, self._part)

    def kept_token(self, event: Event) -> int | None:
        """As `Meter.kept_token`, charged to this part."""
        return self._meter.kept_token(event, self._part)

    def kept_ex_post_token(self) -> int | None:
        """As `Meter.kept_ex_post_token`, charged to this part."""
        return self._meter.kept_ex_post_token(self._part)

    def drew(self, token: int) -> None:
        """The latest draw of this part was this token: neither its place among candidates nor the
        noisy values that it was chosen by are kept.
        """
        self._meter.kept.rename(self._part, token)

    def gaussian(self, values: Values, sensitivity: Fraction | float, event: Event) -> Grid:
        """As `Meter.gaussian`, charged to this part."""
        return self._meter.gaussian(values, sensitivity, event, self._part)

    def laplace(self, values: Values, sensitivity: Fraction | float, event: Event) -> Grid:
        """As `Meter.laplace`, charged to this part."""
        return self._meter.laplace(values, sensitivity, event, self._part)
