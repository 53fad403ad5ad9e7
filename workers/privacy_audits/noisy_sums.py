"""Noisy-sums audit: do the sums that a mechanism releases tell more of one record than their price says?

A record is planted among others, with words that nobody else has, and the mechanism runs many times with it
and many times without, with its own runner and a real meter. The attacker knows everything but whether the
record was there: every release, all other records, the noise's law. The best it can do is to look at the
log-likelihood ratio of the releases (Neyman and Pearson), which is computed here from the exact sums of both
worlds.

    bound      no run's |ratio| may pass the priced epsilon, where all noise is Laplace (pure epsilon)
    attack     the largest epsilon that the attacker's errors at a threshold of 0 prove, 95 % confidence each
               way (Clopper and Pearson 1934; Jagielski, Ullman and Oprea 2020); it may not pass the price
    control    the same record planted many times over, at the same price, must be caught by the same test
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from accountant.core import mechanisms
from accountant.core.errors import invalid
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.divergences import pure_epsilon
from accountant.core.privacy.events import FREE, Event, releases
from accountant.core.privacy.price import Price, Terms
from workers.data.records import Record, Records
from workers.data.terms import TermList
from workers.data.words import words
from workers.interface import Artifact, Progress, Public, Released
from workers.mechanisms import runner
from workers.noise.meter import Meter, Values
from workers.noise.samplers import Grid
from workers.privacy_audits import subjects

DELTA = subjects.DELTA
#: Runs of each world, the largest part of runs that an interval may leave out, and copies in the control.
RUNS, LEVEL, COPIES = 300, 0.05, 12
SIZE = 40
PLANTED = Record("planted", "a", "zyx wvu tsr qpo nml kji hgf edc")
WORDS = ("soup", "lift", "desk", "cold", "room", "price", "garden", "day", "early", "stairs", "bill", "tea")

_KPS = {"vocabulary": "JOB", "output": "phrases", "sequences_per_label": 1, "terms_per_record": 8}
_KPS |= {"vocabulary_size": 16, "vocabulary_epsilon": 0.5, "kde_epsilon": 0.5, "sequence_length": 4}
_KPS |= {"seed": 1}  # features are public: both worlds have the same

#: What is audited by name.
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "dp-kps": ("dp-kps", _KPS),
    "dp-kps-gaussian": ("dp-kps", _KPS | {"noise": "gaussian"}),
    "dp-kps-sequences": ("dp-kps", _KPS | {"method": "linear", "embedding": "E", "features": 64}),
    "noisy-count": ("noisy-count", {"epsilon": 1.0}),
}


@dataclass(frozen=True)
class Release:
    """One noisy release: the exact sums, the noise's scale in grid steps, and what was released."""

    kind: str
    values: Grid
    scale: float
    answer: Grid


class Noting(Meter):
    """A meter that notes its releases; with `answers`, what it returns are these, and no noise is drawn.

    The latter for planted records only.
    """

    def __init__(self, reserved: Event, answers: Sequence[Release] | None = None) -> None:
        super().__init__(reserved)
        self.answers, self.made = answers, list[Release]()

    def gaussian(
        self, values: Values, sensitivity: Fraction | float, event: Event, part: Any | None = None
    ) -> Grid:
        """As `Meter.gaussian`, and note it."""
        return self._noted("gaussian", values, sensitivity, event, part)

    def laplace(
        self, values: Values, sensitivity: Fraction | float, event: Event, part: Any | None = None
    ) -> Grid:
        """As `Meter.laplace`, and note it."""
        return self._noted("laplace", values, sensitivity, event, part)

    def _noted(
        self, kind: str, values: Values, sensitivity: Fraction | float, event: Event, part: Any | None
    ) -> Grid:
        values = values() if callable(values) else values
        if self.answers is None:
            answer = getattr(super(), kind)(values, sensitivity, event, part)
        else:
            answer = self.answers[len(self.made)].answer
        (leaf,) = releases(event)
        scale = leaf.noise_multiplier * float(sensitivity)  # type: ignore[union-attr]
        self.made.append(Release(kind, values.copy(), scale, answer))
        return answer


def log_ratio(one: Sequence[Release], other: Sequence[Release]) -> float:
    """ln of the density of the answers where the sums are those of `one`, over that of the other's."""
    total = 0.0
    for first, second in zip(one, other, strict=True):
        moved = first.values != second.values
        near = (first.answer - first.values)[moved] / first.scale
        far = (first.answer - second.values)[moved] / second.scale
        if first.kind == "laplace":
            total += float(np.sum(np.abs(far) - np.abs(near)))
        else:
            total += float(np.sum(far**2 - near**2)) / 2
    return total


def proven_epsilon(hits: int, false_alarms: int, runs: int, delta: float) -> float:
    """The largest epsilon that these counts of `runs` each refute from below; 0 where they prove none."""
    from scipy.stats import beta

    def at_least(count: int) -> float:
        return 0.0 if count == 0 else float(beta.ppf(LEVEL, count, runs - count + 1))

    def at_most(count: int) -> float:
        return 1.0 if count == runs else float(beta.ppf(1 - LEVEL, count + 1, runs - count))

    ratios = [
        (at_least(hits) - delta) / at_most(false_alarms),
        (at_least(runs - false_alarms) - delta) / at_most(runs - hits),
    ]
    return max(0.0, float(np.log(max(*ratios, 1.0))))


@dataclass(frozen=True)
class World:
    """A mechanism with its price, and what it reads beside the records."""

    name: str
    mechanism: str
    parameters: Any
    terms: Terms
    price: Price

    @classmethod
    def of(cls, name: str, asked: dict[str, Any]) -> "World":
        """An arm by its name, with the parameters that the caller replaces."""
        if name not in ARMS:
            raise invalid("arm", f"unknown arm {name!r}", ", ".join(ARMS))
        mechanism_id, own = ARMS[name]
        mechanism = mechanisms.get(mechanism_id)
        terms = Terms(delta=DELTA, public_size=SIZE, labels=("a", "b"))
        parameters = mechanism.parse(own | asked, terms)
        return cls(name, mechanism_id, parameters, terms, mechanism.price(parameters, terms))

    def run(self, copies: int, answers: Sequence[Release] | None = None) -> list[Release]:
        """The releases of one run with so many copies of the planted record."""
        meter = Noting(self.price.dp or FREE, answers)
        rest = [
            Record(f"u{n}", "ab"[n % 2], f"{WORDS[n % 12]} {WORDS[n * 5 % 11]} {WORDS[n // 12]}")
            for n in range(SIZE)
        ]
        data = Records(("a", "b"), (*rest, *(PLANTED,) * copies), b"k" * 32)
        running, progress = runner(self.mechanism), Progress(0)
        for _ in running.run(self.parameters, self.terms, data, None, meter, progress, _public()):
            pass
        return meter.made

    def ratio(self, with_it: bool, copies: int) -> float:
        """The log-likelihood ratio, with over without, of one run in one of the worlds."""
        first = self.run(copies if with_it else 0)
        second = self.run(0 if with_it else copies, first)
        return log_ratio(first, second) if with_it else -log_ratio(first, second)


class _Embedder:
    """Terms at right angles, for Fourier features."""

    dimensions, context_tokens = 32, 64

    def embed(self, texts: Any, tokens: int | None = None) -> Any:  # noqa: ARG002
        """Unit vectors, by the places of the words in the list."""
        order = _words()
        yield np.eye(self.dimensions, dtype=np.float32)[[order.index(text) for text in texts]]


def _words() -> list[str]:
    return [*WORDS, *words(PLANTED.text)]


def _public() -> Public:
    made = Artifact.of_json("terms", "term-list", TermList(dict.fromkeys(_words(), 1), SIZE).to_json())
    listed = {"vocabulary": {"terms": Released(**vars(made))}}
    return Public(embedders={"embedding": _Embedder()}, sources=listed)


def audit(arms: Sequence[str], asked: dict[str, Any], runs: int = RUNS) -> dict[str, Any]:
    """Every arm and its control. `asked`: parameters, which all the arms have."""
    if not 20 <= runs <= 100_000:
        raise invalid("runs", f"{runs} runs of each world", "20 to 100000")
    results = [_measure(World.of(arm, asked), runs, copies) for arm in arms for copies in (1, COPIES)]
    return {
        "audit": "noisy-sums",
        "runs": runs,
        "confidence": 1 - LEVEL,
        "results": results,
        "passed": all(each["passed"] for each in results),
    }


def _measure(world: World, runs: int, copies: int) -> dict[str, Any]:
    started, control = time.perf_counter(), copies > 1
    assert world.price.dp is not None
    pure = pure_epsilon(world.price.dp)
    epsilon = epsilon_alone(world.price.dp, DELTA)[0] if pure is None else float(pure)
    delta = DELTA if pure is None else 0.0
    present = [world.ratio(True, copies) for _ in range(runs)]
    absent = [world.ratio(False, copies) for _ in range(runs)]
    largest = max(map(abs, [*present, *absent]))
    hits, alarms = sum(each > 0 for each in present), sum(each > 0 for each in absent)
    proven = proven_epsilon(hits, alarms, runs, delta)
    above = proven > epsilon or (pure is not None and largest > epsilon * (1 + 1e-9))
    return {
        "arm": world.name if not control else f"{world.name}, planted {copies} times",
        "mechanism": world.mechanism,
        "parameters": world.parameters.model_dump(mode="json"),
        "epsilon": epsilon,
        "delta": delta,
        "control": control,
        "largest_ratio": largest,
        "found": hits,
        "false_alarms": alarms,
        "proven_epsilon": proven,
        "seconds": round(time.perf_counter() - started, 1),
        "passed": above if control else not above,
    }
