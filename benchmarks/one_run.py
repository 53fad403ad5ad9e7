"""One-run audit: a lower bound of ε from a game of coins (Steinke, Nasr and Jagielski 2023).

    canaries, a part of the data for each ── a coin each ──▶ those that are records ──▶ a run
    score of a canary = ln p(what was released | it is there) − ln p(… | nobody is there)
    the surest quarter is guessed, by the sign of its score

If a mechanism is (ε, δ)-DP, a guess is right with probability e^ε / (1 + e^ε) at most, so r guesses
of which v are right refute every ε that makes v too lucky. All noise comes from the meter, so one
audit serves every mechanism: a score is computed from what the meter was given with one canary and
with none, and from what it answered. The audit runs the real runner, up to its first releases.

Gaussian noise, and tokens of batches that nobody knows, have no ε but a curve. No (ε, δ) of it is
refuted by a few hundred canaries, but its total variation V is: parts are disjoint, so guesses by
the sign of the score are independent, each right with probability (1 + V) / 2 at most (Nasr and
others 2023, section 4). The bound of ε is that of the same releases with the most noise that is not
refuted. In a secret batch a canary's likelihood is the mean over all batches of its round.

A draw of the median has no ε but a cost that follows from what was drawn, so each guess is right
with the probability that its own cost allows. The bound is the largest cost charged, times the
largest factor that so many right guesses refute. Both worlds' costs bound the odds; the lower is
taken.

A price in secrets has no ε either: whoever guesses a secret with probability p by chance may find
it with probability r. A canary is found where its score is one that those which are not there have
with probability p at most; the bound is the largest refuted share of those found that are there.

Such a bound is below the true ε. It can find that noise is missing, and prove nothing else.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from random import SystemRandom
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.divergences import pure_epsilon
from accountant.core.privacy.events import (
    Allocated,
    Event,
    Exponential,
    Gaussian,
    Laplace,
    Sampled,
    SelfComposed,
    from_releases,
    releases,
)
from accountant.core.privacy.secret_batches import has_secret_batches
from workers.data.records import Record, Records
from workers.noise.meter import Turn
from workers.privacy_audits.leave_one_out import log_probability
from workers.privacy_audits.noting import Call, Ints, NotingMeter
from workers.privacy_audits.subjects import DELTA, KEYS, Subject, fresh_key, record_of

CONFIDENCE = 0.95
#: The share of canaries that are guessed, where a release is pure: those of the surest scores.
GUESSED = 0.25
_TOKENS = ("token", "ex-post token")
#: Runs until a canary's coin lets it take part.
_TRIES = 40
#: Assigns records to batches, the same in every run where batches are known.
_KEY = b"k" * 32


# --- what was guessed -----------------------------------------------------------------------------


def lower_bound(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """Return the largest ε that so many right guesses refute; 0 if they refute none."""
    return _largest(lambda epsilon: luck(canaries, guesses, right, epsilon, delta) < 1 - confidence)


def luck(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the largest probability of so many right guesses under (ε, δ)-DP (Theorem 5.2)."""
    share = stats.logistic.cdf(epsilon)
    chance = float(stats.binom.sf(right - 1, guesses, share))
    if not delta or not right:
        return min(1.0, chance)
    fewer = np.arange(1, right + 1)
    below = stats.binom.pmf(right - fewer, guesses, share).cumsum()
    return min(1.0, chance + 2 * canaries * delta * float((below / fewer).max()))


def lower_factor(costs: Sequence[float], right: int, confidence: float) -> float:
    """Return the largest factor of all costs that so many right guesses, one for each, refute."""

    def refuted(factor: float) -> bool:
        chances = np.ones(1)  # of each number of right guesses
        for share in stats.logistic.cdf(factor * np.asarray(costs)):
            chances = np.convolve(chances, (1 - share, share))
        return bool(chances[right:].sum() < 1 - confidence)

    return _largest(refuted)


def lower_share(guesses: int, right: int, confidence: float) -> float:
    """Return the largest probability of a right guess that so many, all independent, refute."""
    return _largest(lambda share: stats.binom.sf(right - 1, guesses, share) < 1 - confidence, 1.0)


def lower_curve(event: Event, guesses: int, right: int, confidence: float) -> float:
    """Return ε at DELTA of the event, with the most noise that so many right guesses allow."""
    variation = 2 * lower_share(guesses, right, confidence) - 1
    if variation <= 0:
        return 0.0
    # no ε is needed at a δ of the total variation
    refuted = lambda loud: not epsilon_alone(louder(event, loud), variation)[0]  # noqa: E731
    loud = _largest(refuted, 4.0, 16)
    return epsilon_alone(louder(event, loud), DELTA)[0] if loud else 0.0


def louder(event: Event, times: float) -> Event:
    """Return the event, a curve, with so many times less noise."""
    match event:
        case SelfComposed(inner, count):
            return SelfComposed(louder(inner, times), count)
        case Allocated(_, _, _, draw):
            return replace(event, draw=louder(draw, times))
        case Exponential(shift):
            return Exponential(shift * times)
        case Gaussian(multiplier):
            return Gaussian(multiplier / times)
    raise ValueError(f"{event} has another curve")


def found_at(
    prior: float, there: Sequence[float], others: Sequence[float], confidence: float
) -> int:
    """Return how many of the scores `there` are beyond what others pass with probability `prior`.

    That probability is not passed, with (1 + confidence) / 2, whatever law the others' have.
    """
    few = int(stats.binom.ppf((1 - confidence) / 2, len(others), prior)) - 1
    beyond = sorted(others, reverse=True)[few] if few >= 0 else math.inf
    return int(sum(score > beyond for score in there))


def _largest(refuted: Callable[[float], bool], most: float = 60.0, steps: int = 60) -> float:
    low, high = 0.0, most
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


# --- what was released ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """What the meter was given and answered.

    `noise`: the scale of the scores, or of Laplace noise, or the standard deviation of Gaussian; of
    a secret release one for each number.
    `costs`: ex post, of each token that might have been drawn.
    """

    kind: str
    event: Event | None
    values: Ints
    noise: float | NDArray[np.float64]
    answer: Any
    costs: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, call: Call, sigma: float = 0.0) -> "Release":
        """Return the release of a call of the meter. `sigma`: of a secret release."""
        per = float(call.per)
        if call.kind == "secret":
            counts, centres = call.answer
            moves = np.array([[1.0, *[float(move)] * centres.shape[1]] for move in call.moves])
            answer = np.concatenate([counts[:, None], centres], axis=1)
            return cls(call.kind, None, call.values, sigma * moves, answer)
        noise = per if call.kind in _TOKENS else _multiplier(call.event) / per
        return cls(call.kind, call.event, call.values, noise, call.answer, call.costs)

    def told(self, one: Ints, other: Ints) -> float:
        """Return ln p(answer | `one`) − ln p(answer | `other`)."""
        if isinstance(self.noise, float) and self.kind in _TOKENS:
            scale = Fraction(self.noise)
            return log_probability(one, scale, self.answer) - log_probability(
                other, scale, self.answer
            )
        away = [(self.answer - each).astype(np.float64) / self.noise for each in (one, other)]
        if self.kind == "laplace":
            return float(np.abs(away[1]).sum() - np.abs(away[0]).sum())
        return float((away[1] ** 2).sum() - (away[0] ** 2).sum()) / 2


class Enough(Exception):
    """All was released that is looked at: what follows is made of it."""


class Watching(NotingMeter):
    """A meter that notes each part's first release after `before`; ends the run after `most`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.first: dict[Hashable, Release] = {}
        self.calls = Counter[Hashable]()
        self.before = self.most = 0

    def note(self, part: Hashable | None, call: Call) -> Any:
        """Note a part's call, if it is the one to look at."""
        self.calls[part] += 1
        if self.calls[part] == self.before + 1:
            sigma = 0.0 if self._secret is None else self._secret.sigma
            self.first[part] = Release.of(call, sigma)
            if len(self.first) == self.most:
                raise Enough
        return call.answer


def _multiplier(event: Event | None) -> float:
    assert event is not None
    (leaf,) = releases(event.event if isinstance(event, Sampled) else event)
    assert isinstance(leaf, Gaussian | Laplace)
    return leaf.noise_multiplier


# --- the game -------------------------------------------------------------------------------------


def audit(
    arm: Subject, runs: int, confidence: float = CONFIDENCE, before: int = 0
) -> dict[str, Any]:
    """Play the game with an arm: in each run a coin for each label, or group, of its terms.

    `before`: releases of a part that come before the one that is looked at.
    """
    coin = SystemRandom()
    canaries, nobody = _canaries(arm), _watched(arm, (), before)
    effects = [_effect(arm, each, nobody, before) for each in canaries]
    guesses = []
    for _ in range(runs):
        thrown = [coin.random() < 0.5 for _ in canaries]
        planted = [each for each, is_in in zip(canaries, thrown, strict=True) if is_in]
        released = _watched(arm, planted, before, len(nobody))
        guesses += [
            Guess.of(effect, nobody, released, is_in)
            for effect, is_in in zip(effects, thrown, strict=True)
        ]
    return arm.describe() | _guessed(arm, _event(nobody), guesses, confidence)


def _event(nobody: dict[Hashable, Release]) -> Event | None:
    """Return all that a record's releases cost: parts are paid for in parallel, rounds are not."""
    rounds = {part.round for part in nobody if isinstance(part, Turn)}
    events = {release.event for release in nobody.values()}
    known = Counter({event: max(1, len(rounds)) for event in events if event is not None})
    return from_releases(known) if None not in events else None


@dataclass(frozen=True)
class Guess:
    """A canary's score, whether it was there, and what the draw cost ex post, if it did."""

    score: float
    is_in: bool
    cost: float

    @classmethod
    def of(
        cls,
        effect: dict[Hashable, Release],
        nobody: dict[Hashable, Release],
        released: dict[Hashable, Release],
        is_in: bool,
    ) -> "Guess":
        """Return the guess of a canary that has this effect."""
        score = cost = 0.0
        for part, alone in effect.items():
            told = [
                released[each].told(alone.values, nobody[each].values)
                for each in _beside(part, nobody)
            ]
            score += float(np.logaddexp.reduce(told)) - math.log(len(told))
            both = [each.costs for each in (alone, nobody[part]) if each.costs is not None]
            cost += min((float(each[released[part].answer]) for each in both), default=0.0)
        return cls(score, is_in, cost)

    @property
    def is_right(self) -> bool:
        """True if its sign tells whether the canary was there."""
        return (self.score > 0) == self.is_in


def _canaries(arm: Subject) -> list[Record]:
    """Return a record for each part, with a key of its own."""
    groups = arm.terms.groups
    parts = groups or arm.terms.labels
    keys = [10_007 * place % KEYS for place in range(len(parts))]
    named = "group" if groups else "label"
    return [
        replace(record_of(key), secret=f"{key:05d}", **{named: part})
        for key, part in zip(keys, parts, strict=True)
    ]


def _watched(
    arm: Subject, records: Sequence[Record], before: int, most: int = 0
) -> dict[Hashable, Release]:
    """Return the releases to look at in a run of the arm, by part; of `most` parts, or all."""
    meter = arm.meter(Watching)
    assert isinstance(meter, Watching)
    meter.most, meter.before = most, before
    labels = arm.terms.labels or (None,)
    # others of the same key: one record alone never moves a median
    beside = [
        replace(each, unit=f"{each.unit}, {n}") for each in _canaries(arm) for n in _others(arm)
    ]
    key = fresh_key() if getattr(arm.parameters, "amplified", False) else _KEY
    data = Records(labels, (*beside, *records), key, groups=arm.terms.groups)
    with suppress(Enough):
        arm.run(data, meter)
    return meter.first


def _others(arm: Subject) -> range:
    """Return the numbers of the records that are always there, beside a canary."""
    is_median = getattr(arm.parameters, "aggregation", "") == "median"
    return range(arm.parameters.public_contexts if is_median else 0)


def _beside(part: Hashable, nobody: Iterable[Hashable]) -> list[Hashable]:
    """Return the parts of which nobody knows in which a record lies, if it lies in this one."""
    if not isinstance(part, Turn):
        return [part]
    return [
        each
        for each in nobody
        if isinstance(each, Turn) and (each.round, each.part) == (part.round, part.part)
    ]


def _effect(
    arm: Subject, canary: Record, nobody: dict[Hashable, Release], before: int
) -> dict[Hashable, Release]:
    """Return the releases of the parts that a canary changes, when it is there and takes part."""
    for _ in range(_TRIES):
        changed = {
            part: release
            for part, release in _watched(arm, [canary], before, len(nobody)).items()
            if not np.array_equal(release.values, nobody[part].values)
        }
        if changed:
            return changed
    raise ValueError("a canary that changes nothing can't be found")


def _guessed(
    arm: Subject, event: Event | None, guesses: list[Guess], confidence: float
) -> dict[str, Any]:
    secret, count, measure = arm.price.secret, len(guesses), "ε"
    pure = None if event is None else pure_epsilon(event)
    is_curve = event is not None and (pure is None or has_secret_batches(event))
    many = count if is_curve else max(1, int(count * GUESSED))
    surest = sorted(guesses, key=lambda guess: -abs(guess.score))[:many]
    right = sum(guess.is_right for guess in surest)
    if secret is not None:
        there, others = ([g.score for g in guesses if g.is_in is each] for each in (True, False))
        many, right = len(there), found_at(secret["prior"], there, others, confidence)
        found, stated = lower_share(many, right, (1 + confidence) / 2), secret["bound"]
        measure = f"share found at {secret['prior']:g}"
    elif event is None:
        costs = [guess.cost for guess in surest]
        stated = max(costs)
        found = stated * lower_factor(costs, right, confidence)
    elif not is_curve:
        found, stated = lower_bound(count, many, right, 0.0, confidence), float(pure or 0)
    else:
        found, stated = lower_curve(event, many, right, confidence), epsilon_alone(event, DELTA)[0]
    return {
        "measure": measure,
        "canaries": count,
        "guesses": many,
        "right": right,
        "lower_bound": found,
        "stated": stated,
        "passed": found <= stated,
    }
