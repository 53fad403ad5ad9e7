"""The base of every mechanism's price: parameters, description and quote.

A price is a pure function of the parameters and of the dataset's public terms. It lives here, not
in the workers, because the web must price without torch and a runner must not price itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from accountant.core.errors import FieldProblem, InvalidRequest
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.divergences import pure_epsilon, quoted_renyi
from accountant.core.privacy.events import Event, Laplace, releases, to_json
from accountant.core.privacy.price import Price, Terms
from accountant.core.privacy.secret_batches import has_secret_batches, with_known_batches

# --- What a job writes: how many texts and how long, told before it is asked for ---------------

Bound = Literal["exactly", "at least", "at most"]


@dataclass(frozen=True)
class Yield:
    """The output of a job in public numbers: `number` of `what`, each of at most `tokens` (None: no
    tokens).

    `bound` says how sure the number is: texts that end early make room for more of them ("at
    least"), and texts may be dropped for their quality ("at most").
    """

    what: str
    number: int
    tokens: int | None = None
    bound: Bound = "exactly"

    def sentence(self) -> str:
        """Return the same in words: "at least 44 texts, of at most 128 tokens each"."""
        start = "" if self.bound == "exactly" else f"{self.bound} "
        what = self.what.removesuffix("s") if self.number == 1 else self.what
        tokens = "1 token" if self.tokens == 1 else f"{self.tokens or 0:,} tokens"
        long = "" if self.tokens is None else f", of at most {tokens}"
        suffix = " each" if long and self.number != 1 else ""
        return f"{start}{self.number:,} {what}{long}{suffix}"


def by_label(each: int, labels: tuple[str, ...]) -> int:
    """So many of each label; of a dataset without labels so many in all."""
    return each * max(1, len(labels))


def texts(each: int, labels: tuple[str, ...], tokens: int, bound: Bound = "exactly") -> Yield:
    """So many texts of each label."""
    return Yield("texts", by_label(each, labels), tokens, bound)


class Parameters(BaseModel):
    """Base of every mechanism's parameters: unknown fields, text for numbers and NaN are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    #: Pairs of fields of which a request gives one; fitting one takes the other out.
    either: ClassVar[tuple[tuple[str, str], ...]] = ()


P = TypeVar("P", bound=Parameters)

#: What the parameters of other jobs, by field, lack for a request.
UnfitSources = Callable[[P, Mapping[str, Mapping[str, Any]]], FieldProblem | None]

#: What somebody may want of a dataset, in the order of menus, as a form calls it.
GOALS = {
    "texts": "Texts like those in the data",
    "counts": "Counts",
    "summaries": "Summaries of groups",
    "phrases": "Key phrases",
    "evaluation": "A look at texts that a job published",
    "preparation": "Something public that other jobs read",
}

#: What a job for each goal makes, in the name of a job.
NOUNS = {
    "texts": "Texts",
    "counts": "Counts",
    "summaries": "Summaries",
    "phrases": "Key phrases",
    "evaluation": "Evaluation",
    "preparation": "Preparation",
    "charge": "Charge",
}

#: The heading of fields that no group names.
REST = "More"


@dataclass(frozen=True)
class Mechanism(Generic[P]):
    """A mechanism as the accountant sees it.

    `runner`: the module whose class Runner runs it, None where there is a price and no algorithm
    yet; `groups`: heading -> names of fields, parted by blanks, as a form shows them, the rest
    under `REST`; `order`: its place in menus, then by id; `example`: parameters of a small run,
    which its page prices and the conformance kit varies; `artifacts`: name -> content of what a job
    may release besides texts.

    `price` states the cost; `resolve` fills in parameters that depend on the dataset's public
    terms; `context_tokens` says how long a context gets, given the tokens of the template;
    `size_field` is the field by which a request is made smaller when it does not fit; `missing`
    names what a price can do without and a run can't; `unfit` names what the public facts of a
    model lack for a request; `uses_model` says whether a job names a model; `progress_unit` is what
    its public progress counts; `artifacts_need_model`: what a job releases serves only the model
    that it ran with; `batches` is how many batches of its data a run works on independently, so
    that several workers may share them (records.Records.share), 1 where any release is from all the
    data; `resources` tells which fields name a registered public thing, and its kind (corpus,
    embedding or model); `unfit_public` names what the public facts of these, by field, lack for a
    request; `reads_output`: a job reads the published texts of the job in `from_job`; `public`: a
    job reads public things only, never records, and costs nothing; `stops_early`: a run may make
    fewer of its repeated releases because of what it had already released, one of each kind at
    least, and is charged for those; any other run is charged whole; `sources` tells which further
    fields name a job, and the kind of artifact that is read there, of whichever mechanism;
    `unfit_sources` names what the parameters of these jobs, and of the one in `from_job`, by field,
    lack for a request; `releases` lists the kinds that it leaves; `needs` names the fields, parted
    by blanks, that are used under a condition alone (`used_fields`).

    `goal` is what somebody wants who takes it (of GOALS), `advice` says in a clause why, `plain`
    names the fields, parted by blanks, that a form shows to everybody, `begins` values that a form
    begins with instead of defaults, and `yields` what a job writes, None where nothing public
    tells. `rehearses` is set on a rehearsal alone (rehearsal.py): the id of what it rehearses.
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
    runner: str | None = None
    groups: Mapping[str, str] = field(default_factory=dict, hash=False)
    order: int = 100
    example: Mapping[str, Any] = field(default_factory=dict, hash=False)
    artifacts: Mapping[str, str] = field(default_factory=dict, hash=False)
    missing: Callable[[P], FieldProblem | None] = lambda _: None
    unfit: Callable[[P, Mapping[str, Any]], FieldProblem | None] = lambda _parameters, _facts: None
    uses_model: bool = True
    progress_unit: str = "tokens"
    artifacts_need_model: bool = True
    batches: Callable[[P, Terms], int] = lambda *_: 1
    resources: Callable[[P], Mapping[str, str]] = lambda _: {}
    unfit_public: Callable[[P, Terms, Mapping[str, Mapping[str, Any]]], FieldProblem | None] = (
        lambda *_: None
    )
    reads_output: bool = False
    public: bool = False
    stops_early: bool = False
    sources: Callable[[P], Mapping[str, str]] = lambda _: {}
    unfit_sources: UnfitSources[P] = lambda *_: None
    releases: tuple[str, ...] = ()
    needs: Mapping[str, str] = field(default_factory=dict, hash=False)
    goal: str = "texts"
    advice: str = ""
    plain: str = ""
    begins: Mapping[str, Any] = field(default_factory=dict, hash=False)
    yields: Callable[[P, Terms], Yield | None] = lambda *_: None
    rehearses: str | None = None
    fields: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.parameters.model_fields))

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the parameters, in the order of their groups; nobody may change it.

        Each property has a key `group`, the heading that a form shows it under.
        """
        json_schema = self.parameters.model_json_schema()
        groups = {name: title for title, names in self.groups.items() for name in names.split()}
        properties = json_schema.get("properties", {})
        order = [*groups, *(name for name in properties if name not in groups)]
        json_schema["properties"] = {
            name: properties[name] | {"group": groups.get(name, REST)} for name in order
        }
        return json_schema

    @property
    def admitted_as(self) -> str:
        """The id by which a policy admits it: a rehearsal is admitted with its mechanism."""
        return self.rehearses or self.id

    @property
    def noun(self) -> str:
        """Return what a job makes, as the name of a job begins."""
        return f"Rehearsal of {NOUNS[self.goal].lower()}" if self.rehearses else NOUNS[self.goal]

    def used_fields(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the fields that a request with these values uses, in their order.

        A condition of `needs` is `other=value`, `other=` (it is not given) or `other` (it is). A
        field that several name needs one of them; one that is unused itself fulfils none. Values
        may be texts of a form; a field that is left out has its default.
        """

        def shown(name: str) -> str:
            value = (
                values.get(name, self.parameters.model_fields[name].default) if used(name) else None
            )
            return "" if value is None else str(value).strip()

        def used(name: str) -> bool:
            conditions = [value for value, names in self.needs.items() if name in names.split()]
            return not conditions or any(map(holds, conditions))

        def holds(condition: str) -> bool:
            other, compared, wanted = condition.partition("=")
            return shown(other) == wanted if compared else bool(shown(other))

        return tuple(name for name in self.fields if used(name))

    def recorded(self, parameters: Parameters) -> dict[str, Any]:
        """Return parsed parameters as a job keeps and shows them: plain, and only those used."""
        values = parameters.model_dump(mode="json")
        return {name: values[name] for name in self.used_fields(values)}

    def parse(self, raw: Mapping[str, Any], terms: Terms) -> P:
        """Return validated, resolved parameters. Raises InvalidRequest naming each wrong field."""
        try:
            parsed = self.parameters.model_validate(dict(raw))
        except ValidationError as error:
            raise InvalidRequest(_problems(error, self)) from None
        return self.resolve(parsed, terms)


def _problems(error: ValidationError, mechanism: "Mechanism[Any]") -> list[FieldProblem]:
    schema = mechanism.schema["properties"]
    problems = []
    for problem in error.errors(include_url=False):
        name = ".".join(str(part) for part in problem["loc"][:1]) or "parameters"
        if problem["type"] == "extra_forbidden":
            allowed = ", ".join(mechanism.fields)
            problems.append(FieldProblem(name, "unknown parameter", allowed))
        elif problem["type"] == "missing":  # pydantic's input is then the whole object
            problems.append(FieldProblem(name, "not given", allowed_values(schema[name])))
        else:
            shown = repr(problem["input"])[:80]
            message = problem["msg"][:1].lower() + problem["msg"][1:]
            problems.append(FieldProblem(name, f"{shown}: {message}", allowed_values(schema[name])))
    return problems


def allowed_values(schema: Mapping[str, Any]) -> str:
    """Return the bounds of one field of a JSON Schema in words."""
    options = [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]
    part = options[0]
    if "enum" in part or "const" in part:
        return ", ".join(str(value) for value in part.get("enum", [part.get("const")]))
    kind = {
        "integer": "a whole number",
        "number": "a number",
        "string": "text",
        "boolean": "true or false",
    }
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


def pure(event: Event) -> float | None:
    """Return the ε of a cost that has no δ at any price: noise that is pure by itself. None for any
    other.

    A token that is drawn is pure too, but a job of many is told by its far smaller ε at a δ.
    """
    leaves = releases(event)
    total = pure_epsilon(event)
    if not leaves or total is None or not all(isinstance(leaf, Laplace) for leaf in leaves):
        return None
    return float(total)


def quoted(
    event: Event, delta: float, alone: Callable[[Event, float], tuple[float, str]] = epsilon_alone
) -> dict[str, Any]:
    """Return the `dp` part of a quote: what an event costs by itself."""
    epsilon, accountant = alone(event, delta)
    known = alone(with_known_batches(event), delta)[0] if has_secret_batches(event) else None
    curve = {str(float(order)): quoted_renyi(event, order) for order in QUOTED_ORDERS}
    return {
        "epsilon": epsilon,
        "delta": delta,
        "pure": pure(event),
        "to_key_holders": known,
        "accountant": accountant,
        "rdp": {order: float(cost) for order, cost in curve.items() if cost is not None},
        "event": to_json(event),
    }


def quote(
    mechanism: Mechanism[Any],
    parameters: Parameters,
    terms: Terms,
    price: Price | None = None,
    alone: Callable[[Event, float], tuple[float, str]] = epsilon_alone,
) -> dict[str, Any]:
    """Return the price as the contract of DESIGN section 9 prints it; `price` where it is known
    already.

    `alone`: the accountants that find epsilon; a server has more of them.
    """
    price = mechanism.price(parameters, terms) if price is None else price
    dp = None if price.dp is None else quoted(price.dp, terms.delta, alone)
    return {
        "mechanism": mechanism.id,
        "parameters": mechanism.recorded(parameters),
        "neighbours": str(terms.neighbours),
        "dp": dp,
        "ex_post": None if price.ex_post_cap is None else {"cap": float(price.ex_post_cap)},
        "secret": price.secret,
        "breakdown": list(price.breakdown),
    }


# --- fitting ------------------------------------------------------------------------------------
