"""What every mechanism's price has in common: parameters, terms, prices and fitting.

A price is a pure function of the parameters and of the dataset's public terms. It lives here, not in
the workers, because the web must price without torch and a runner must not price itself.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from accountant.core.errors import FieldProblem, InvalidRequest, invalid
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.divergences import renyi
from accountant.core.privacy.events import Event, to_json
from accountant.core.privacy.secrets import SecretTerms


class Neighbours(StrEnum):
    """When two datasets are neighbours: one privacy unit added or removed, or one replaced."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


@dataclass(frozen=True)
class Terms:
    """The public facts of a dataset that a price may use.

    `delta` is the one at which epsilon is quoted; `public_size` is the steward's declared round
    figure, never a copied count; `labels` are the declared names, empty where there is no label.
    `label_sizes`, in the order of the labels, are exact and public: only where a replaced unit keeps its
    label does a steward declare them, and only then may a fixed number be drawn per label. `secret` is
    what the steward declares about secrets.
    """

    neighbours: Neighbours = Neighbours.ADD_REMOVE
    delta: float = 1e-6
    max_records_per_unit: int = 1
    public_size: int | None = None
    labels: tuple[str, ...] = ()
    label_sizes: tuple[int, ...] = ()
    secret: SecretTerms | None = None

    def to_json(self) -> dict[str, Any]:
        """The form kept in a RESERVE entry, from which a verifier recomputes the price."""
        sizes = {"label_sizes": list(self.label_sizes)} if self.label_sizes else {}
        secret = {} if self.secret is None else {"secret": self.secret.to_json()}
        return {
            **sizes,
            **secret,
            "neighbours": str(self.neighbours),
            "delta": self.delta,
            "max_records_per_unit": self.max_records_per_unit,
            "public_size": self.public_size,
            "labels": list(self.labels),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Terms":
        return cls(
            Neighbours(value["neighbours"]),
            float(value["delta"]),
            int(value["max_records_per_unit"]),
            value["public_size"],
            tuple(value["labels"]),
            tuple(value.get("label_sizes", ())),
            SecretTerms.from_json(value["secret"]) if "secret" in value else None,
        )


class Parameters(BaseModel):
    """Base of every mechanism's parameters: unknown fields, text for numbers and NaN are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    #: Pairs of fields of which a request gives one; fitting one takes the other out.
    either: ClassVar[tuple[tuple[str, str], ...]] = ()


@dataclass(frozen=True)
class Price:
    """What one job costs, in the three currencies, with an account of it that a person can read.

    `dp` is None where the job has no (epsilon, delta) price at all, which is not the same as
    `events.FREE`: the event of a job that reads nothing private. `ex_post_draws` goes with a cap: how
    many draws with an ex-post cost each disjoint part of the data makes, fixed before the job starts.
    """

    dp: Event | None
    breakdown: tuple[str, ...] = ()
    ex_post_cap: Fraction | None = None
    ex_post_draws: int = 0
    secret: dict[str, Any] | None = None


P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True)
class Mechanism(Generic[P]):
    """A mechanism as the accountant sees it.

    `price` states the cost; `resolve` fills in parameters that depend on the dataset's public terms;
    `context_tokens` says how long a context gets, given the tokens of the template; `size_field` is the
    field by which a request is made smaller when it does not fit; `missing` names what a price can do
    without and a run can't; `unfit` names what the public facts of a model lack for a request; `uses_model`
    says whether a job names a model; `progress_unit` is what its public progress counts;
    `artifacts_need_model`: what a job releases serves
    only the model that it ran with; `batches` is how many batches of its data a run works on
    independently, so that several workers may share them (records.Records.share), 1 where any release is
    from all the data; `resources` tells which fields name a registered public thing, and its kind (corpus,
    embedding or model); `unfit_public` names what the public facts of these, by field, lack for a request;
    `reads_output`: a job reads the published texts of the job in `from_job`.
    """

    id: str
    title: str
    summary: str
    source: str
    parameters: type[P]
    price: Callable[[P, Terms], Price]
    resolve: Callable[[P, Terms], P]
    context_tokens: Callable[[P, int], int]
    size_field: str
    missing: Callable[[P], FieldProblem | None] = lambda _: None
    unfit: Callable[[P, Mapping[str, Any]], FieldProblem | None] = lambda _parameters, _facts: None
    uses_model: bool = True
    progress_unit: str = "tokens"
    artifacts_need_model: bool = True
    batches: Callable[[P, Terms], int] = lambda *_: 1
    resources: Callable[[P], Mapping[str, str]] = lambda _: {}
    unfit_public: Callable[[P, Terms, Mapping[str, Mapping[str, Any]]], FieldProblem | None] = lambda *_: None
    reads_output: bool = False
    fields: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.parameters.model_fields))

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the parameters, made once: nobody may change it."""
        return self.parameters.model_json_schema()

    def parse(self, raw: Mapping[str, Any], terms: Terms) -> P:
        """Validated, resolved parameters. Raises InvalidRequest naming each wrong field."""
        try:
            parsed = self.parameters.model_validate(dict(raw))
        except ValidationError as error:
            raise InvalidRequest(_problems(error, self)) from None
        return self.resolve(parsed, terms)


def _problems(error: ValidationError, mechanism: "Mechanism[Any]") -> list[FieldProblem]:
    schema = mechanism.schema["properties"]
    problems = []
    for each in error.errors(include_url=False):
        name = ".".join(str(part) for part in each["loc"][:1]) or "parameters"
        if each["type"] == "extra_forbidden":
            allowed = ", ".join(mechanism.fields)
            problems.append(FieldProblem(name, "unknown parameter", allowed))
        else:
            shown = repr(each["input"])[:80]
            message = each["msg"][:1].lower() + each["msg"][1:]
            problems.append(FieldProblem(name, f"{shown}: {message}", allowed_values(schema[name])))
    return problems


def allowed_values(schema: Mapping[str, Any]) -> str:
    """The bounds of one field of a JSON Schema in words."""
    options = [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
    part = options[0]
    if "enum" in part or "const" in part:
        return ", ".join(str(value) for value in part.get("enum", [part.get("const")]))
    kind = {"integer": "a whole number", "number": "a number", "string": "text", "boolean": "true or false"}
    words = kind.get(part.get("type", ""), "see the schema")
    low = f"from {part['minimum']}" if "minimum" in part else ""
    low = f"above {part['exclusiveMinimum']}" if "exclusiveMinimum" in part else low
    high = f"to {part['maximum']}" if "maximum" in part else ""
    bounds = " ".join(piece for piece in (low, high) if piece)
    optional = ", or nothing" if len(schema.get("anyOf", [])) > 1 else ""
    return " ".join(piece for piece in (words, bounds) if piece) + optional


# --- quoting ------------------------------------------------------------------------------------

#: Orders at which a quote lists Rényi divergence, for people who compose by other means.
QUOTED_ORDERS = (
    Fraction(3, 2),
    Fraction(2),
    Fraction(4),
    Fraction(8),
    Fraction(16),
    Fraction(32),
    Fraction(64),
)


def quote(mechanism: Mechanism[Any], parameters: Parameters, terms: Terms) -> dict[str, Any]:
    """The price as the contract of DESIGN section 9 prints it."""
    price = mechanism.price(parameters, terms)
    dp = None
    if price.dp is not None:
        epsilon, accountant = epsilon_alone(price.dp, terms.delta)
        curve = {str(float(order)): renyi(price.dp, order) for order in QUOTED_ORDERS}
        dp = {
            "epsilon": epsilon,
            "delta": terms.delta,
            "accountant": accountant,
            "rdp": {order: float(cost) for order, cost in curve.items() if cost is not None},
            "event": to_json(price.dp),
        }
    return {
        "mechanism": mechanism.id,
        "parameters": parameters.model_dump(mode="json"),
        "neighbours": str(terms.neighbours),
        "dp": dp,
        "ex_post": None if price.ex_post_cap is None else {"cap": float(price.ex_post_cap)},
        "secret": price.secret,
        "breakdown": list(price.breakdown),
    }


# --- fitting ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitted:
    """The value of the fitted field, and the parameters with it in place."""

    value: int | float
    parameters: Parameters


def fit(
    mechanism: Mechanism[Any],
    raw: Mapping[str, Any],
    terms: Terms,
    name: str,
    affordable: Callable[[Price], bool],
) -> Fitted | None:
    """The value of field `name` that spends as much as possible while `affordable` says yes.

    The price must be monotone in the field; the direction is found from the ends of its range, which
    is first narrowed to the values that the mechanism accepts beside the other parameters.
    None when no value in the range fits. Raises InvalidRequest where the field is not a number or
    does not move the price.
    """
    low, high, whole = _range(mechanism, name)
    others = {b if name == a else a: None for a, b in mechanism.parameters.either if name in (a, b)}

    def parse(value: float) -> Parameters:
        request = {**raw, **others, name: int(value) if whole else value}
        resolved: Parameters = mechanism.parse(request, terms)
        return resolved

    def fits(value: float) -> bool:
        return affordable(mechanism.price(parse(value), terms))

    default = mechanism.parameters.model_fields[name].default
    low, high = _accepted(parse, (low, high), (raw.get(name), default), whole)
    rising = _rises(mechanism, terms, parse(low), parse(high))
    if rising is None:
        raise invalid(name, "does not move the price", "a field that the price depends on")
    good, bad = (low, high) if rising else (high, low)
    if not fits(good):
        return None
    if fits(bad):
        return Fitted(int(bad) if whole else bad, parse(bad))
    good = _bisect_whole(int(good), int(bad), fits) if whole else _bisect(good, bad, fits)
    return Fitted(int(good) if whole else good, parse(good))


def _accepted(
    parse: Callable[[float], Parameters], ends: tuple[float, float], likely: tuple[object, ...], whole: bool
) -> tuple[float, float]:
    """The part of the range that the mechanism accepts: an interval around a value known to be good.

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
    known = [v for v in (*likely, *ends) if isinstance(v, int | float) and accepted(v)]
    start = known[0] if known else ends[0]
    if not known:
        parse(start)
    search = _bisect_whole if whole else _bisect
    low, high = (e if accepted(e) else search(start, e, accepted) for e in ends)  # type: ignore[arg-type]
    return low, high


def _range(mechanism: Mechanism[Any], name: str) -> tuple[float, float, bool]:
    schema = mechanism.schema["properties"].get(name)
    if schema is None:
        raise invalid("fit", f"{name!r} is no parameter of {mechanism.id}", ", ".join(mechanism.fields))
    part = next(p for p in schema.get("anyOf", [schema]) if p.get("type") != "null")
    if part.get("type") not in ("integer", "number") or "maximum" not in part:
        raise invalid("fit", f"{name!r} is not a bounded number", "a numeric parameter")
    low = part.get("minimum", part.get("exclusiveMinimum"))
    if low is None:
        raise invalid("fit", f"{name!r} has no lower bound", "a numeric parameter")
    if "exclusiveMinimum" in part:  # the smallest value that means anything beside the largest
        low = low + (1 if part["type"] == "integer" else part["maximum"] * 1e-9)
    return low, part["maximum"], part["type"] == "integer"


def _rises(mechanism: Mechanism[Any], terms: Terms, low: Parameters, high: Parameters) -> bool | None:
    """Whether the price rises from `low` to `high`; None where it does not move at all."""
    ends = [mechanism.price(each, terms) for each in (low, high)]
    if ends[0].ex_post_cap != ends[1].ex_post_cap:
        return (ends[1].ex_post_cap or 0) > (ends[0].ex_post_cap or 0)
    secrets = [each.secret["bound"] for each in ends if each.secret is not None]
    if len(secrets) == 2 and secrets[0] != secrets[1]:
        return bool(secrets[1] > secrets[0])
    events = [each.dp for each in ends if each.dp is not None]
    if len(events) < 2 or events[0] == events[1]:
        return None
    costs = [renyi(event, Fraction(2)) for event in events]
    if costs[0] is None or costs[1] is None or costs[0] == costs[1]:
        figures = [epsilon_alone(event, terms.delta)[0] for event in events]
        return None if figures[0] == figures[1] else figures[1] > figures[0]
    return costs[1] > costs[0]


def _bisect_whole(good: int, bad: int, fits: Callable[[float], bool]) -> int:
    """The last whole number from `good` towards `bad` that fits; found from the good end outward."""
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
    """The same for a real field, to a relative 1e-9, as short a decimal as still fits."""
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
