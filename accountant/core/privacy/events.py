"""Privacy events: a mechanism's releases, in the one form in which they are stored, priced and
verified.

Normal form: parameters are relative to the sensitivity *under the dataset's neighbouring relation*,
so an event never needs to know the relation and is always composed as dp-accounting's
ADD_OR_REMOVE_ONE (DESIGN, trap 1). An event's meaning never changes; a new meaning is a new event.

JSON is decoded through a fixed dictionary of types with checked numbers: no module is ever imported
because a stored text names it (trap 2).
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from accountant.core.errors import invalid

MAX_DEPTH = 8
MAX_PARTS = 64
MAX_COUNT = 10**12
#: Losses such as a shift or rho, and noise multipliers: any count times the square of a loss, or of
#: one over a multiplier, stays within the range of floats, and nothing is a subnormal number.
LOSSES, MULTIPLIERS = (1e-300, 1e50), (1e-50, 1e300)
#: Beyond this a float no longer holds every whole number.
MOST_WHOLE = 2**53


def _positive(value: object, field: str, ends: tuple[float, float] = LOSSES) -> None:
    allowed = f"a number from {ends[0]:g} to {ends[1]:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid(field, f"{value!r} is not a number", allowed)
    if not ends[0] <= value <= ends[1] or (isinstance(value, int) and value > MOST_WHOLE):
        raise invalid(field, f"{value!r:.40} is out of range", allowed)


def _whole(value: object, field: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(field, f"{value!r} is not a whole number", "1 to 10^12")
    if not 1 <= value <= MAX_COUNT:
        raise invalid(field, f"{value!r} is out of range", "1 to 10^12")


def _check_parts(events: object, least: int) -> None:
    if not isinstance(events, tuple) or not all(isinstance(event, Event) for event in events):
        raise invalid("events", "not a tuple of events")
    if not least <= len(events) <= MAX_PARTS:
        raise invalid("events", f"{len(events)} parts", f"{least} to {MAX_PARTS}")


@dataclass(frozen=True)
class Gaussian:
    """One Gaussian release; `noise_multiplier` = sigma / L2 sensitivity. It is 1/multiplier-GDP."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _positive(self.noise_multiplier, "noise_multiplier", MULTIPLIERS)


@dataclass(frozen=True)
class Laplace:
    """A Laplace release; `noise_multiplier` = scale / L1 sensitivity = 1 / pure epsilon."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _positive(self.noise_multiplier, "noise_multiplier", MULTIPLIERS)


@dataclass(frozen=True)
class Exponential:
    """One draw from softmax(score), each score moving by at most `shift` between neighbours.

    The exponential mechanism with both signs of change: pure epsilon 2 * shift, range-bounded by
    2 * shift, hence zCDP shift^2 / 2 (Cesar and Rogers 2021, paper 001 Theorem 1), and mu-GDP with
    mu = -2 Phi^-1(1 / (1 + e^shift)) (DESIGN section 2).
    """

    shift: float

    def __post_init__(self) -> None:
        _positive(self.shift, "shift")


@dataclass(frozen=True)
class ZCDp:
    """Any release known only to be `rho`-zCDP, such as a discrete Gaussian."""

    rho: float

    def __post_init__(self) -> None:
        _positive(self.rho, "rho")


@dataclass(frozen=True)
class EpsilonDelta:
    """Any release known only to be (`epsilon`, `delta`)-DP."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _positive(self.epsilon, "epsilon")
        if self.delta != 0 or math.copysign(1.0, self.delta) < 0:  # -0.0 is no delta either
            _positive(self.delta, "delta", (LOSSES[0], 1.0))
        if self.delta >= 1:
            raise invalid("delta", f"{self.delta!r} is out of range", "0 <= delta < 1")


@dataclass(frozen=True)
class SelfComposed:
    """`event` repeated `count` times, each allowed to depend on the results before it."""

    event: "Event"
    count: int

    def __post_init__(self) -> None:
        _whole(self.count, "count")


@dataclass(frozen=True)
class Composed:
    """All of `events`, one after the other. An empty composition costs nothing."""

    events: tuple["Event", ...]

    def __post_init__(self) -> None:
        _check_parts(self.events, least=0)


@dataclass(frozen=True)
class WorstOf:
    """Exactly one of `events` happens between any two neighbours; which one is unknown.

    A replaced record either stays in its batch (one batch moves twice as far) or changes it (two
    batches move). Each filter charges its own worst case.
    """

    events: tuple["Event", ...]

    def __post_init__(self) -> None:
        _check_parts(self.events, least=1)


@dataclass(frozen=True)
class PoissonSampled:
    """`event` on a Poisson sample: every unit takes part independently with `probability`.

    One draw serves the whole of `event`, which must consist of Gaussians: sampling a composition is
    not composing samples (DESIGN, trap 5). Neighbours differ by one unit, present in one and absent
    from the other: the loss is that of (1 - q) N(0) + q N(1/sigma) against N(0), in both
    directions. A replaced unit is `PoissonReplaced`.
    """

    probability: float
    event: "Event"

    def __post_init__(self) -> None:
        _check_probability(self.probability)
        _check_sampled(self.event)


@dataclass(frozen=True)
class PoissonReplaced:
    """Poisson sampling in which one unit is replaced by another, which is sampled independently.

    The multipliers in `event` are relative to the distance between the results with the one and
    with the other unit; each lies no further than that from the result without either. The loss is
    at most that of (1 - q) M0 + q M1 against (1 - q) M0 + q M1' with any two of the three that far
    apart.
    """

    probability: float
    event: "Event"

    def __post_init__(self) -> None:
        _check_probability(self.probability)
        _check_sampled(self.event)


@dataclass(frozen=True)
class PoissonSwapped:
    """As `PoissonReplaced`, where the result with neither unit lies half as far from each as both
    apart.

    That is so where a unit adds a vector of bounded norm to a sum: the multipliers in `event` are
    relative to twice that norm, the distance between the one and the other, and nothing is added
    without either. It costs far less for small probabilities (docs/accounting.md, section 12).
    """

    probability: float
    event: "Event"

    def __post_init__(self) -> None:
        _check_probability(self.probability)
        _check_sampled(self.event)


@dataclass(frozen=True)
class SampledWithoutReplacement:
    """`event` on a uniform sample of exactly `sample_size` of exactly `population` units.

    Meaningful under replace-one alone, where the population is public: adding a unit would displace
    another from the sample. The multipliers in `event` are relative to the replace-one sensitivity.
    """

    sample_size: int
    population: int
    event: "Event"

    def __post_init__(self) -> None:
        for name in ("sample_size", "population"):
            _whole(getattr(self, name), name)
        if self.sample_size > self.population:
            raise invalid(
                "sample_size", f"{self.sample_size} of {self.population}", f"1 to {self.population}"
            )
        _check_sampled(self.event)

    @property
    def probability(self) -> float:
        """The probability that a given unit takes part: sample_size / population."""
        return self.sample_size / self.population


@dataclass(frozen=True)
class Allocated:
    """`tokens` adaptive draws in each of `run` batches, of `batches` in which a secret coin puts
    each unit.

    Every unit lies in one batch, uniform and independent of all else, and nobody sees which. A
    unit's presence moves the draws of its own batch only, each of them by at most `draw`: an
    `Exponential`, or a `Gaussian`. The `run` batches are chosen publicly. Neighbours differ by one
    unit, present in one and absent from the other; both directions are priced (docs/accounting.md,
    "A coin nobody sees").

    One coin, one release: it is charged whole as soon as one token is drawn. Coins drawn anew are
    `SelfComposed(Allocated(...), rounds)`. A replaced unit is `AllocatedReplaced`.
    """

    batches: int
    run: int
    tokens: int
    draw: "Event"

    def __post_init__(self) -> None:
        _check_allocation(self)

    @property
    def plain(self) -> "Event":
        """The event for whoever knows the coin: all tokens of one batch."""
        return SelfComposed(self.draw, self.tokens)


@dataclass(frozen=True)
class AllocatedReplaced:
    """As `Allocated`, in which one unit is replaced by another, each in its own batch by its own
    coin.

    `draw` says how far a batch with the one unit, and with the other, lies from the same batch with
    neither. Both may share a coin, as records of one name do.
    """

    batches: int
    run: int
    tokens: int
    draw: "Event"

    def __post_init__(self) -> None:
        _check_allocation(self)

    @property
    def plain(self) -> "Event":
        """The event for whoever knows both coins: one batch moves twice as far, or two move."""
        one = self.draw
        if isinstance(one, Exponential):
            twice: Event = Exponential(2 * one.shift)
        else:
            assert isinstance(one, Gaussian)
            twice = Gaussian(one.noise_multiplier / 2)
        return WorstOf(
            (SelfComposed(twice, self.tokens), SelfComposed(SelfComposed(one, 2), self.tokens))
        )


def _check_allocation(event: "Allocation") -> None:
    for name in ("batches", "run", "tokens"):
        _whole(getattr(event, name), name)
    if event.run > event.batches:
        raise invalid("run", f"{event.run} of {event.batches} batches", f"1 to {event.batches}")
    if not isinstance(event.draw, Exponential | Gaussian):
        raise invalid(
            "draw", "only tokens and Gaussians are priced in batches", "exponential, gaussian"
        )
    _ = event.plain  # twice a shift must be a number too


def _check_probability(value: object) -> None:
    _positive(value, "probability")
    if value > 1:  # type: ignore[operator]  # _positive has refused what is no number
        raise invalid("probability", f"{value!r} is out of range", "0 < probability <= 1")


def _check_sampled(event: object) -> None:
    """Check that a sampled event consists of Gaussians only: no other composition has a price."""
    match event:
        case Gaussian():
            return
        case SelfComposed(inner, _):
            _check_sampled(inner)
        case Composed(events) if events:
            for part in events:
                _check_sampled(part)
        case _:
            raise invalid(
                "event", "only Gaussians are priced on a sample", "a composition of Gaussians"
            )


Sampled = PoissonSampled | PoissonReplaced | PoissonSwapped | SampledWithoutReplacement

Allocation = Allocated | AllocatedReplaced

Basic = Gaussian | Laplace | Exponential | ZCDp | EpsilonDelta

Event = Basic | SelfComposed | Composed | WorstOf | Sampled | Allocation

FREE = Composed(())


# --- counting releases -------------------------------------------------------------------------


def releases(event: Event) -> Counter[Event]:
    """Return the number of times each basic release occurs.

    Compositions are opened; a WorstOf, a sampled and an allocated event count as one release.
    """
    if isinstance(event, SelfComposed):
        inner = releases(event.event)
        return Counter({leaf: count * event.count for leaf, count in inner.items()})
    if isinstance(event, Composed):
        total: Counter[Event] = Counter()
        for part in event.events:
            total.update(releases(part))
        return total
    return Counter({event: 1})


def spends(event: Event) -> bool:
    """Return True if anything is released: `bool(releases(event))` without counting."""
    if isinstance(event, SelfComposed):
        return spends(event.event)
    if isinstance(event, Composed):
        return any(spends(part) for part in event.events)
    return True


def stated_delta(event: Event) -> Fraction | int:
    """Return the sum of the deltas of releases that are stated as (epsilon, delta)."""
    match event:
        case EpsilonDelta(_, delta):
            return Fraction(delta)
        case SelfComposed(inner, count):
            return count * stated_delta(inner)
        case Composed(events):
            return sum(map(stated_delta, events))
        case _:
            return 0


def without_deltas(event: Event) -> Event:
    """Return the event as it is where no (epsilon, delta) release fails, which has probability
    delta.

    Each such release is pure there (docs/accounting.md, 3.6). Alternatives stay as they are.
    """
    match event:
        case EpsilonDelta(epsilon, delta) if delta:
            return EpsilonDelta(epsilon, 0.0)
        case SelfComposed(inner, count):
            return SelfComposed(without_deltas(inner), count)
        case Composed(events):
            return Composed(tuple(map(without_deltas, events)))
        case _:
            return event


def from_releases(counts: Counter[Event]) -> Event:
    """Return the event of these releases, in the order in which they were first counted."""
    parts = [SelfComposed(leaf, n) if n > 1 else leaf for leaf, n in counts.items() if n]
    return parts[0] if len(parts) == 1 else Composed(tuple(parts))


# --- JSON ---------------------------------------------------------------------------------------


def to_json(event: Event) -> dict[str, Any]:
    """Return a JSON object that `from_json` reads back as an equal event."""
    match event:
        case Gaussian(multiplier):
            return {"type": "gaussian", "noise_multiplier": float(multiplier)}
        case Laplace(multiplier):
            return {"type": "laplace", "noise_multiplier": float(multiplier)}
        case Exponential(shift):
            return {"type": "exponential", "shift": float(shift)}
        case ZCDp(rho):
            return {"type": "zcdp", "rho": float(rho)}
        case EpsilonDelta(epsilon, delta):
            return {"type": "epsilon_delta", "epsilon": float(epsilon), "delta": float(delta)}
        case SelfComposed(inner, count):
            return {"type": "self_composed", "event": to_json(inner), "count": count}
        case Composed(events):
            return {"type": "composed", "events": [to_json(part) for part in events]}
        case WorstOf(events):
            return {"type": "worst_of", "events": [to_json(part) for part in events]}
        case PoissonSampled(q, inner) | PoissonReplaced(q, inner) | PoissonSwapped(q, inner):
            name = next(name for name, (kind, _) in _FIELDS.items() if kind is type(event))
            return {"type": name, "probability": float(q), "event": to_json(inner)}
        case SampledWithoutReplacement(size, population, inner):
            counts = {"sample_size": size, "population": population}
            return {"type": "sampled_without_replacement", **counts, "event": to_json(inner)}
        case Allocated(batches, run, tokens, draw) | AllocatedReplaced(batches, run, tokens, draw):
            kind = "allocated" if isinstance(event, Allocated) else "allocated_replaced"
            counts = {"batches": batches, "run": run, "tokens": tokens}
            return {"type": kind, **counts, "draw": to_json(draw)}


_FIELDS: dict[str, tuple[Callable[..., Event], tuple[str, ...]]] = {
    "gaussian": (Gaussian, ("noise_multiplier",)),
    "laplace": (Laplace, ("noise_multiplier",)),
    "exponential": (Exponential, ("shift",)),
    "zcdp": (ZCDp, ("rho",)),
    "epsilon_delta": (EpsilonDelta, ("epsilon", "delta")),
    "self_composed": (SelfComposed, ("event", "count")),
    "composed": (Composed, ("events",)),
    "worst_of": (WorstOf, ("events",)),
    "poisson_sampled": (PoissonSampled, ("probability", "event")),
    "poisson_replaced": (PoissonReplaced, ("probability", "event")),
    "poisson_swapped": (PoissonSwapped, ("probability", "event")),
    "sampled_without_replacement": (
        SampledWithoutReplacement,
        ("sample_size", "population", "event"),
    ),
    "allocated": (Allocated, ("batches", "run", "tokens", "draw")),
    "allocated_replaced": (AllocatedReplaced, ("batches", "run", "tokens", "draw")),
}


def from_json(value: object, depth: int = 0) -> Event:
    """Decode an event. Raises InvalidRequest for unknown types, fields, numbers or depth."""
    if depth > MAX_DEPTH:
        raise invalid("event", "nested too deeply", f"at most {MAX_DEPTH} levels")
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise invalid("event", "not an object with a type", ", ".join(_FIELDS))
    if value["type"] not in _FIELDS:
        raise invalid("event.type", f"unknown type {value['type']!r}", ", ".join(_FIELDS))
    build, fields = _FIELDS[value["type"]]
    if set(value) != {"type", *fields}:
        raise invalid("event", f"fields {sorted(value)}", f"type, {', '.join(fields)}")
    arguments: dict[str, Any] = {name: value[name] for name in fields}
    for name in {"event", "draw"} & set(arguments):
        arguments[name] = from_json(arguments[name], depth + 1)
    if "events" in arguments:
        if not isinstance(arguments["events"], list):
            raise invalid("event.events", "not a list")
        arguments["events"] = tuple(from_json(part, depth + 1) for part in arguments["events"])
    for name in ("noise_multiplier", "shift", "rho", "epsilon", "delta", "probability"):
        value = arguments.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_WHOLE:
            arguments[name] = float(value)  # JSON writes 2.0 as 2
    return build(**arguments)
