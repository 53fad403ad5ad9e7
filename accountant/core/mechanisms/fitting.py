"""Fitting: the value of one parameter that spends as much as is allowed and no more."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from accountant.core.errors import InvalidRequest, invalid
from accountant.core.mechanisms.base import Mechanism, Parameters
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.divergences import renyi
from accountant.core.privacy.price import Price, Terms


@dataclass(frozen=True)
class Fitted:
    """The value of the fitted field, and the parameters with it in place."""

    value: int | float
    parameters: Parameters


def size_of(mechanism: Mechanism[Any], raw: Mapping[str, Any]) -> str:
    """Return the field that sets the size of such a request: rounds, if batches are secret."""
    amplified = raw.get("amplification") == "allocation" and "rounds" in mechanism.fields
    return "rounds" if amplified else mechanism.size_field


def sizes_of(mechanism: Mechanism[Any], raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields to shrink until a request fits, each once the one before is least."""
    sizes = [size_of(mechanism, raw), mechanism.size_field]
    if mechanism.size_field == "texts_per_batch":  # one text a batch: a shorter one
        sizes.append("max_tokens")
    return tuple(dict.fromkeys(sizes))


def fit(
    mechanism: Mechanism[Any],
    raw: Mapping[str, Any],
    terms: Terms,
    name: str,
    affordable: Callable[[Price], bool],
) -> Fitted | None:
    """Return the value of field `name` that spends as much as possible while `affordable` says yes.

    The price must be monotone in the field; the direction is found from the ends of its range,
    which is first narrowed to the values that the mechanism accepts beside the other parameters.
    None when no value in the range fits. Raises InvalidRequest where the field is not a number or
    does not move the price.
    """
    *ends, whole = _range(mechanism, name)
    exclusive = {
        b if name == a else a: None for a, b in mechanism.parameters.either if name in (a, b)
    }

    def parse(value: float) -> Parameters:
        request = {**raw, **exclusive, name: int(value) if whole else value}
        resolved: Parameters = mechanism.parse(request, terms)
        return resolved

    def fits(value: float) -> bool:
        return affordable(mechanism.price(parse(value), terms))

    default = mechanism.parameters.model_fields[name].default
    low, high = _accepted(parse, (ends[0], ends[1]), (raw.get(name), default), whole)
    rising = _rises(mechanism, terms, parse(low), parse(high))
    if rising is None:
        for end in ends:
            parse(end)  # says why the field can be nothing else, where it can't
        raise invalid(name, "does not move the price", "a field that the price depends on")
    good, bad = (low, high) if rising else (high, low)
    if not fits(good):
        return None
    if fits(bad):
        return Fitted(int(bad) if whole else bad, parse(bad))
    good = bisect_whole(int(good), int(bad), fits) if whole else _bisect(good, bad, fits)
    return Fitted(int(good) if whole else good, parse(good))


def _accepted(
    parse: Callable[[float], Parameters],
    ends: tuple[float, float],
    likely: tuple[object, ...],
    whole: bool,
) -> tuple[float, float]:
    """Return the part of the range that the mechanism accepts: an interval around a value known to
    be good.

    Raises what the mechanism says where neither the ends nor the `likely` values are accepted.
    """

    def accepted(value: float) -> bool:
        try:
            parse(value)
        except InvalidRequest:
            return False
        return True

    if accepted(ends[0]) and accepted(ends[1]):
        return ends
    accepted_values = [v for v in (*likely, *ends) if isinstance(v, int | float) and accepted(v)]
    start = accepted_values[0] if accepted_values else ends[0]
    if not accepted_values:
        parse(start)
    search = bisect_whole if whole else _bisect
    low, high = (e if accepted(e) else search(start, e, accepted) for e in ends)  # type: ignore[arg-type]
    return low, high


def _range(mechanism: Mechanism[Any], name: str) -> tuple[float, float, bool]:
    schema = mechanism.schema["properties"].get(name)
    if schema is None:
        raise invalid(
            "fit", f"{name!r} is no parameter of {mechanism.id}", ", ".join(mechanism.fields)
        )
    part = next(p for p in schema.get("anyOf", [schema]) if p.get("type") != "null")
    if part.get("type") not in ("integer", "number") or "maximum" not in part:
        raise invalid("fit", f"{name!r} is not a bounded number", "a numeric parameter")
    low = part.get("minimum", part.get("exclusiveMinimum"))
    if low is None:
        raise invalid("fit", f"{name!r} has no lower bound", "a numeric parameter")
    if "exclusiveMinimum" in part:  # the smallest value that means anything beside the largest
        low = low + (1 if part["type"] == "integer" else part["maximum"] * 1e-9)
    return low, part["maximum"], part["type"] == "integer"


def _rises(
    mechanism: Mechanism[Any], terms: Terms, low: Parameters, high: Parameters
) -> bool | None:
    """Return True if the price rises from `low` to `high`, False if it falls, None if neither."""
    ends = [mechanism.price(value, terms) for value in (low, high)]
    if ends[0].ex_post_cap != ends[1].ex_post_cap:
        return (ends[1].ex_post_cap or 0) > (ends[0].ex_post_cap or 0)
    secrets = [end.secret["bound"] for end in ends if end.secret is not None]
    if len(secrets) == 2 and secrets[0] != secrets[1]:
        return bool(secrets[1] > secrets[0])
    events = [end.dp for end in ends if end.dp is not None]
    if len(events) < 2 or events[0] == events[1]:
        return None
    costs = [renyi(event, Fraction(2)) for event in events]
    if costs[0] is None or costs[1] is None or costs[0] == costs[1]:
        figures = [epsilon_alone(event, terms.delta)[0] for event in events]
        return None if figures[0] == figures[1] else figures[1] > figures[0]
    return costs[1] > costs[0]


def bisect_whole(good: int, bad: int, fits: Callable[[float], bool]) -> int:
    """Return the last whole number from `good` towards `bad` that fits."""
    step = 1 if bad > good else -1
    reach = 1
    while (bad - good) * step > reach:  # gallop: ranges are wide and answers mostly small
        if not fits(good + step * reach):
            bad = good + step * reach
            break
        good += step * reach
        reach *= 2
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def _bisect(good: float, bad: float, fits: Callable[[float], bool]) -> float:
    """Return the same for a real field, to a relative 1e-9, as short a decimal as still fits."""
    while abs(bad - good) > 1e-9 * max(abs(good), abs(bad)):
        # Ranges span decades: halve the ratio first, the difference last.
        wide = good > 0 and bad > 0 and max(good / bad, bad / good) > 4
        middle = math.sqrt(good * bad) if wide else (good + bad) / 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    for digits in range(3, 12):
        short = float(f"{good:.{digits}g}")
        if abs(short - good) <= 1e-4 * abs(good) and fits(short):
            return short
    return good
