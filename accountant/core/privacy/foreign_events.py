"""Events of other tools, read as ours, and ours written as dp-accounting's.

Four forms are read: our own JSON; a `DpEvent` of dp-accounting, as the object itself or as an
object of its fields (`{"class_name": "GaussianDpEvent", "noise_multiplier": 2.0}`); the history of
Opacus, `[[sigma, q, steps], ...]`; and a stated guarantee, `{"epsilon": e, "delta": d}` or
`{"rho": r}`.

dp-accounting and Opacus divide noise by the most that one record adds. Under replace-one a record
leaves and another comes, so results move twice as far, and multipliers are halved. A guarantee
must be stated under the dataset's own relation.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from accountant.core.errors import FieldProblem, InvalidRequest, invalid
from accountant.core.privacy.events import (
    MAX_DEPTH,
    MAX_PARTS,
    MOST_WHOLE,
    Allocated,
    AllocatedReplaced,
    Composed,
    EpsilonDelta,
    Event,
    Gaussian,
    Laplace,
    PoissonReplaced,
    PoissonSampled,
    PoissonSwapped,
    SampledWithoutReplacement,
    SelfComposed,
    WorstOf,
    ZCDp,
    from_json,
    from_releases,
    to_json,
)
from accountant.core.privacy.price import Neighbours
from accountant.core.privacy.units import float_up, measured_up

#: Different kinds of releases that one event of another tool may have.
MOST_KINDS = MAX_PARTS**2
_FORMS = (
    "our event with its type, a DpEvent with its class_name, Opacus' [[sigma, q, steps], ...], "
    '{"epsilon": e, "delta": d} or {"rho": r}'
)
_MODULE = "dp_accounting.dp_event"
_WHOLE = frozenset({"count", "num_buckets", "sample_size", "source_dataset_size", "sensitivity"})

Counts = Counter[Event]


def read_event(value: object, neighbours: Neighbours, field: str = "event") -> Event:
    """Return the event that `value` states, in normal form under the dataset's relation.

    Raises InvalidRequest that names the field: an unknown form, a number out of range, an event of
    the other relation, or a secret coin, for which nobody outside this service can vouch.
    """
    value = _opened(value)
    if isinstance(value, Mapping) and "class_name" in value:
        return _event_of(_read_dp_event(value, neighbours, field), field)
    if isinstance(value, Mapping) and "type" in value:
        event = _at(field, from_json, dict(value))
        _check_relation(event, neighbours, field)
        return event
    if isinstance(value, Mapping) and "rho" in value:
        stated = _fields(value, field, ("rho",))
        return _at(field, ZCDp, stated["rho"])
    if isinstance(value, Mapping) and "epsilon" in value:
        stated = {"delta": 0.0} | _fields(value, field, ("epsilon",), ("delta",))
        return _at(field, EpsilonDelta, stated["epsilon"], stated["delta"])
    if _is_list(value):
        return _event_of(_read_history(value, neighbours, field), field)
    raise invalid(field, "no form of an event", _FORMS)


def _opened(value: Any) -> Any:
    """Return a DpEvent, or its named tuple, as an object of its fields."""
    if hasattr(value, "to_named_tuple"):
        value = value.to_named_tuple()
    return value._asdict() if hasattr(value, "_asdict") else value


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _at(field: str, build: Callable[..., Event], *arguments: Any) -> Event:
    """Return the event that `build` makes. Its errors name their fields from `field` on."""
    try:
        return build(*arguments)
    except InvalidRequest as error:
        raise InvalidRequest(
            FieldProblem(f"{field}.{each.field.removeprefix('event.')}", each.problem, each.allowed)
            for each in error.problems
        ) from None


def _number(value: Any) -> Any:
    """Return a whole number as a float: JSON writes 2.0 as 2."""
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_WHOLE
    return float(value) if whole else value


def _fields(
    value: Mapping[str, Any], field: str, needed: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the fields of an object. Raises InvalidRequest for a missing or an unknown one."""
    known = ", ".join((*needed, *optional))
    for name in sorted(map(str, set(value) - {*needed, *optional})):
        raise invalid(f"{field}.{name}", "unknown field", known or "no field")
    for name in needed:
        if name not in value:
            raise invalid(f"{field}.{name}", "missing", known)
    return {name: each if name in _WHOLE else _number(each) for name, each in value.items()}


def _check_relation(event: Event, neighbours: Neighbours, field: str) -> None:
    """Raise InvalidRequest for a secret coin, and for a sample of the other relation."""
    match event:
        case SelfComposed(inner, _):
            _check_relation(inner, neighbours, f"{field}.event")
        case Composed(events) | WorstOf(events):
            for place, part in enumerate(events):
                _check_relation(part, neighbours, f"{field}.events[{place}]")
        case Allocated() | AllocatedReplaced():
            raise invalid(
                f"{field}.type",
                "a secret coin from outside: only this service's workers keep one secret",
                "an event that holds for whoever knows the coin",
            )
        case PoissonSampled() if neighbours is not Neighbours.ADD_REMOVE:
            raise invalid(
                f"{field}.type",
                "it holds where a unit is added or removed, and the dataset's relation is another",
                "poisson_replaced, poisson_swapped, sampled_without_replacement",
            )
        case PoissonReplaced() | PoissonSwapped() | SampledWithoutReplacement() if (
            neighbours is not Neighbours.REPLACE_ONE
        ):
            raise invalid(
                f"{field}.type",
                "it holds where a unit is replaced, and the dataset's relation is another",
                "poisson_sampled",
            )
        case _:
            return


def _event_of(counts: Counts, field: str) -> Event:
    """Return the event of these releases, in groups where there are more than one list may have."""
    if len(counts) > MOST_KINDS:
        raise invalid(field, f"{len(counts):,} kinds of releases", f"at most {MOST_KINDS:,}")
    kinds = list(counts.items())
    groups = [Counter(dict(kinds[at : at + MAX_PARTS])) for at in range(0, len(kinds), MAX_PARTS)]
    parts = [_at(field, from_releases, group) for group in groups]
    return parts[0] if len(parts) == 1 else Composed(tuple(parts))


# --- Opacus -------------------------------------------------------------------------------------


def _read_history(history: Any, neighbours: Neighbours, field: str) -> Counts:
    """Return DP-SGD steps on Poisson samples: (noise multiplier, sampling rate, steps)."""
    counts: Counts = Counter()
    for place, row in enumerate(history):
        here = f"{field}[{place}]"
        if not _is_list(row) or len(row) != 3:
            raise invalid(here, "not three numbers", "[sigma, q, steps]")
        noise = _at(here, _moved, Gaussian, _number(row[0]), neighbours)
        step = _at(here, _on_a_sample, _number(row[1]), noise, neighbours)
        _at(here, SelfComposed, step, row[2])
        counts[step] += row[2]
    return counts


def _moved(kind: type[Gaussian | Laplace], multiplier: Any, neighbours: Neighbours) -> Event:
    """Return a release whose noise was divided by the most that one record adds, in normal form."""
    release = kind(multiplier)
    if neighbours is Neighbours.ADD_REMOVE:
        return release
    return kind(release.noise_multiplier / 2)


def _on_a_sample(rate: Any, event: Event, neighbours: Neighbours) -> Event:
    """Return noisy sums of bounded vectors on a Poisson sample."""
    if neighbours is Neighbours.ADD_REMOVE:
        return PoissonSampled(rate, event)
    return PoissonSwapped(rate, event)


# --- dp-accounting ------------------------------------------------------------------------------

#: The classes that are read, with their fields: those needed, and those with a default.
_DP_EVENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "NoOpDpEvent": ((), ()),
    "GaussianDpEvent": (("noise_multiplier",), ()),
    "LaplaceDpEvent": (("noise_multiplier",), ()),
    "DiscreteLaplaceDpEvent": (("noise_parameter", "sensitivity"), ()),
    "RandomizedResponseDpEvent": (("noise_parameter", "num_buckets"), ()),
    "ZCDpEvent": (("rho",), ("xi",)),
    "SelfComposedDpEvent": (("event", "count"), ()),
    "ComposedDpEvent": (("events",), ()),
    "PoissonSampledDpEvent": (("sampling_probability", "event"), ()),
    "SampledWithoutReplacementDpEvent": (("source_dataset_size", "sample_size", "event"), ()),
}


def _read_dp_event(value: Any, neighbours: Neighbours, field: str, depth: int = 0) -> Counts:
    """Return the releases of an event of dp-accounting. No module is imported by its name."""
    value = _opened(value)
    if depth > MAX_DEPTH:
        raise invalid(field, "nested too deeply", f"at most {MAX_DEPTH} levels")
    if not isinstance(value, Mapping) or not isinstance(value.get("class_name"), str):
        raise invalid(field, "not an object with a class_name", ", ".join(_DP_EVENTS))
    name = value["class_name"]
    if name not in _DP_EVENTS or value.get("module_name", _MODULE) != _MODULE:
        raise invalid(f"{field}.class_name", f"{name!r} has no price here", ", ".join(_DP_EVENTS))
    stated = {key: each for key, each in value.items() if key not in ("module_name", "class_name")}
    fields = _fields(stated, field, *_DP_EVENTS[name])
    if name == "ComposedDpEvent":
        if not _is_list(fields["events"]):
            raise invalid(f"{field}.events", "not a list")
        total: Counts = Counter()
        for place, part in enumerate(fields["events"]):
            total.update(_read_dp_event(part, neighbours, f"{field}.events[{place}]", depth + 1))
        return total
    if "event" in fields:
        inner = _read_dp_event(fields["event"], neighbours, f"{field}.event", depth + 1)
        if name == "SelfComposedDpEvent":
            return _repeated(inner, fields["count"], field)
        event = _event_of(inner, field)
        return Counter({_at(field, _sampled, fields, event, neighbours): 1}) if inner else inner
    if name == "NoOpDpEvent":
        return Counter()
    return Counter({_at(field, _release, name, fields, neighbours): 1})


def _repeated(inner: Counts, count: Any, field: str) -> Counts:
    """Return the releases `count` times."""
    for kind, copies in inner.items():
        once = _at(field, SelfComposed, kind, count)
        _at(field, SelfComposed, kind, once.count * copies)  # type: ignore[union-attr]
    return Counter({kind: copies * count for kind, copies in inner.items()})


def _sampled(fields: Mapping[str, Any], event: Event, neighbours: Neighbours) -> Event:
    """Return an event on a sample. Raises InvalidRequest if it does not consist of Gaussians."""
    if "sampling_probability" in fields:
        return _on_a_sample(fields["sampling_probability"], event, neighbours)
    if neighbours is Neighbours.ADD_REMOVE:
        raise invalid("class_name", "an added unit displaces another", "PoissonSampledDpEvent")
    return SampledWithoutReplacement(fields["sample_size"], fields["source_dataset_size"], event)


def _release(name: str, fields: Mapping[str, Any], neighbours: Neighbours) -> Event:
    """Return a release that stands alone."""
    if name in ("GaussianDpEvent", "LaplaceDpEvent"):
        kind = Gaussian if name == "GaussianDpEvent" else Laplace
        return _moved(kind, fields["noise_multiplier"], neighbours)
    if name == "ZCDpEvent":
        if fields.get("xi", 0.0) != 0:
            raise invalid("xi", f"{fields['xi']!r} has no price here", "0")
        return ZCDp(fields["rho"])
    noise = fields["noise_parameter"]
    outcomes = name == "RandomizedResponseDpEvent"
    whole = fields["num_buckets" if outcomes else "sensitivity"]
    if isinstance(whole, bool) or not isinstance(whole, int) or not outcomes < whole <= MOST_WHOLE:
        allowed = f"a whole number from {1 + outcomes}"
        raise invalid("num_buckets" if outcomes else "sensitivity", f"{whole!r}", allowed)
    most = 1.0 if outcomes else 1e50
    if not isinstance(noise, float) or not 1e-50 <= noise <= most:
        raise invalid("noise_parameter", f"{noise!r} is out of range", f"1e-50 to {most:g}")
    if not outcomes:
        moves = whole if neighbours is Neighbours.ADD_REMOVE else 2 * whole
        return EpsilonDelta(float_up(Fraction(noise) * moves), 0.0)
    if neighbours is Neighbours.ADD_REMOVE:
        raise invalid("class_name", "answers of records show their number", "use under replace-one")
    return EpsilonDelta(float_up(measured_up(math.log1p(whole * (1 - noise) / noise))), 0.0)


# --- ours as theirs -----------------------------------------------------------------------------


def as_dp_event(event: Event, field: str = "event") -> dict[str, Any]:
    """Return the event of dp-accounting that is equal under ADD_OR_REMOVE_ONE, as its fields.

    Our multipliers are relative to the sensitivity under the dataset's own relation, so the result
    is composed under ADD_OR_REMOVE_ONE whatever that relation is. Raises InvalidRequest that names
    the first part without an equal.
    """

    def written(name: str, **fields: Any) -> dict[str, Any]:
        return {"module_name": _MODULE, "class_name": name, **fields}

    match event:
        case Gaussian(multiplier):
            return written("GaussianDpEvent", noise_multiplier=multiplier)
        case Laplace(multiplier):
            return written("LaplaceDpEvent", noise_multiplier=multiplier)
        case ZCDp(rho):
            return written("ZCDpEvent", rho=rho, xi=0.0)
        case PoissonSampled(probability, inner):
            drawn = as_dp_event(inner, f"{field}.event")
            return written("PoissonSampledDpEvent", sampling_probability=probability, event=drawn)
        case SelfComposed(inner, count):
            once = as_dp_event(inner, f"{field}.event")
            return written("SelfComposedDpEvent", event=once, count=count)
        case Composed(events):
            parts = [as_dp_event(part, f"{field}.events[{i}]") for i, part in enumerate(events)]
            return written("ComposedDpEvent", events=parts)
        case _:
            raise invalid(
                field,
                f"dp-accounting has no event equal to {to_json(event)['type']!r}",
                "gaussian, laplace, zcdp, poisson_sampled and compositions of them",
            )
