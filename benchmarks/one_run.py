"""One-run audit: a lower bound of ε from a game of coins (Steinke, Nasr and Jagielski 2023).

    canaries, a part of the data for each ── a coin each ──▶ those that are records ──▶ a run
    score of a canary = ln p(what was released | it is there) − ln p(… | nobody is there)
    the surest quarter is guessed, by the sign of its score

If a mechanism is (ε, δ)-DP, a guess is right with probability e^ε / (1 + e^ε) at most, so r guesses
of which v are right refute every ε that makes v too lucky. All noise comes from the meter, so one
audit serves every mechanism: a score is computed from what the meter was given with one canary and
with none, and from what it answered. The audit runs the real runner, up to its first releases.

Gaussian noise has no ε but a curve: two normal distributions, μ apart. No (ε, δ) of the curve is
refuted by a few hundred canaries, but μ is: parts are disjoint, so guesses by the sign of the score
are independent, each right with probability Φ(μ/2) at most (Nasr and others 2023, section 4). The
bound of ε is that of the curve of the least μ that is not refuted.

A draw of the median has no ε but a cost that follows from what was drawn, so each guess is right
with the probability that its own cost allows. The bound is the largest cost charged, times the
largest factor that so many right guesses refute. Both worlds' costs bound the odds; the lower is
taken.

Such a bound is below the true ε. It can find that noise is missing, and prove nothing else.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from random import SystemRandom
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from accountant.core.privacy.composition import epsilon_alone, gaussian_epsilon
from accountant.core.privacy.divergences import pure_epsilon
from accountant.core.privacy.events import Event, Gaussian, Laplace, Sampled, releases
from workers.data.records import Record, Records
from workers.privacy_audits.leave_one_out import log_probability
from workers.privacy_audits.noting import Call, Ints, NotingMeter
from workers.privacy_audits.subjects import DELTA, KEYS, Subject, record_of

CONFIDENCE = 0.95
#: The share of canaries that are guessed, where a release is pure: those of the surest scores.
GUESSED = 0.25
_STEPS, _MOST = 60, 60.0
_TOKENS = ("token", "ex-post token")
#: Assigns records to batches, the same in every run.
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


def lower_mu(guesses: int, right: int, confidence: float) -> float:
    """Return the largest μ that so many right guesses refute, all of independent canaries."""
    return _largest(
        lambda mu: stats.binom.sf(right - 1, guesses, stats.norm.cdf(mu / 2)) < 1 - confidence
    )


def _largest(refuted: Callable[[float], bool]) -> float:
    low, high = 0.0, _MOST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


# --- what was released ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """What the meter was given and answered.

    `noise`: the scale of the scores, or of Laplace noise, or the standard deviation of Gaussian.
    `costs`: ex post, of each token that might have been drawn.
    """

    kind: str
    event: Event | None
    values: Ints
    noise: float
    answer: Any
    costs: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, call: Call) -> "Release":
        """Return the release of a call of the meter."""
        per = float(call.per)
        noise = per if call.kind in _TOKENS else _multiplier(call.event) / per
        return cls(call.kind, call.event, call.values, noise, call.answer, call.costs)

    def told(self, one: Ints, other: Ints) -> float:
        """Return ln p(answer | `one`) − ln p(answer | `other`)."""
        if self.kind in _TOKENS:
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
    """A meter that notes each part's first release; ends the run after as many as `most`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.first: dict[Hashable, Release] = {}
        self.most = 0

    def note(self, part: Hashable | None, call: Call) -> Any:
        """Note a part's first call."""
        if call.kind in (*_TOKENS, "gaussian", "laplace"):
            self.first.setdefault(part, Release.of(call))
            if len(self.first) == self.most:
                raise Enough
        return call.answer


def _multiplier(event: Event | None) -> float:
    assert event is not None
    (leaf,) = releases(event.event if isinstance(event, Sampled) else event)
    assert isinstance(leaf, Gaussian | Laplace)
    return leaf.noise_multiplier


# --- the game -------------------------------------------------------------------------------------


def audit(arms: Sequence[Subject], runs: int, confidence: float = CONFIDENCE) -> dict[str, Any]:
    """Play the game with every arm: in each run a coin for each label, or group, of its terms."""
    results = [_play(arm, runs, confidence) for arm in arms]
    return {
        "audit": "one-run",
        "confidence": confidence,
        "results": results,
        "passed": all(result["passed"] for result in results),
    }


def _play(arm: Subject, runs: int, confidence: float) -> dict[str, Any]:
    began, coin = time.perf_counter(), SystemRandom()
    canaries, nobody = _canaries(arm), _watched(arm, ())
    effects = [_effect(_watched(arm, [each], len(nobody)), nobody) for each in canaries]
    (event,) = {release.event for release in nobody.values()}  # parts are paid for in parallel
    guesses = []
    for _ in range(runs):
        thrown = [coin.random() < 0.5 for _ in canaries]
        planted = [each for each, is_in in zip(canaries, thrown, strict=True) if is_in]
        released = _watched(arm, planted, len(nobody))
        guesses += [
            Guess.of(effect, nobody, released, is_in)
            for effect, is_in in zip(effects, thrown, strict=True)
        ]
    return (
        arm.describe()
        | _guessed(event, guesses, confidence)
        | {"seconds": round(time.perf_counter() - began, 1)}
    )


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
            score += released[part].told(alone.values, nobody[part].values)
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
    made = [record_of(10_007 * place % KEYS) for place in range(len(parts))]
    return [
        Record(each.unit, None if groups else part, each.text, part if groups else None)
        for each, part in zip(made, parts, strict=True)
    ]


def _watched(arm: Subject, records: Sequence[Record], most: int = 0) -> dict[Hashable, Release]:
    """Return each part's first release in a run of the arm; of `most` parts, or all."""
    meter = arm.meter(Watching)
    assert isinstance(meter, Watching)
    meter.most = most
    labels = arm.terms.labels or (None,)
    # others of the same key: one record alone never moves a median
    beside = [
        replace(each, unit=f"{each.unit}, {n}") for each in _canaries(arm) for n in _beside(arm)
    ]
    data = Records(labels, (*beside, *records), _KEY, groups=arm.terms.groups)
    with suppress(Enough):
        arm.run(data, meter)
    return meter.first


def _beside(arm: Subject) -> range:
    """Return the numbers of the records that are always there, beside a canary."""
    is_median = getattr(arm.parameters, "aggregation", "") == "median"
    return range(arm.parameters.public_contexts if is_median else 0)


def _effect(
    alone: dict[Hashable, Release], nobody: dict[Hashable, Release]
) -> dict[Hashable, Release]:
    """Return the releases of the parts that a canary changes, when it is there."""
    return {
        part: release
        for part, release in alone.items()
        if not np.array_equal(release.values, nobody[part].values)
    }


def _guessed(event: Event | None, guesses: list[Guess], confidence: float) -> dict[str, Any]:
    pure = None if event is None else pure_epsilon(event)
    count = len(guesses)
    is_gaussian = event is not None and pure is None
    many = count if is_gaussian else max(1, int(count * GUESSED))
    surest = sorted(guesses, key=lambda guess: -abs(guess.score))[:many]
    right = sum(guess.is_right for guess in surest)
    if event is None:
        costs = [guess.cost for guess in surest]
        stated = max(costs)
        found = stated * lower_factor(costs, right, confidence)
    elif pure is not None:
        found, stated = lower_bound(count, many, right, 0.0, confidence), float(pure)
    else:
        mu, (stated, _) = lower_mu(many, right, confidence), epsilon_alone(event, DELTA)
        found = gaussian_epsilon(mu, DELTA) if mu else 0.0
    return {
        "canaries": count,
        "guesses": many,
        "right": right,
        "lower_bound": found,
        "stated": stated,
        "passed": found <= stated,
    }
