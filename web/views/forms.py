"""Forms: what was typed stays, errors stand beside their fields, texts become JSON values by schema."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flask import request

from accountant.core.errors import FieldProblem, InvalidRequest
from accountant.core.pricing import Mechanism, allowed_values

PREFIX = "parameters."
_WHOLE = re.compile(r"[+-]?[0-9]{1,15}")


@dataclass(frozen=True)
class Input:
    """One input of a form, made from a field of a JSON Schema."""

    name: str
    label: str
    help: str
    kind: str  # number, text, area, choice or fixed
    default: str
    bounds: str
    step: str = "any"
    minimum: str = ""
    maximum: str = ""
    required: bool = True
    options: tuple[str, ...] = ()


@dataclass
class Form:
    """Values as they were typed, and what was wrong with each."""

    values: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[FieldProblem, ...] = ()
    general: str = ""

    def value(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def problem(self, name: str) -> FieldProblem | None:
        """The first problem of a field, or of something inside it."""
        return next((each for each in self.problems if f"{each.field}.".startswith(f"{name}.")), None)

    def elsewhere(self, names: Iterable[str]) -> list[FieldProblem]:
        """Problems of fields that the form does not show: they go to its top."""
        shown = tuple(names)
        return [
            p for p in self.problems if not any(p.field == n or p.field.startswith(f"{n}.") for n in shown)
        ]


def sent() -> dict[str, str]:
    """The form that came, line ends as they are on this side."""
    return {name: value.replace("\r\n", "\n") for name, value in request.form.items()}


def rejected(error: InvalidRequest) -> Form:
    """The form that came, with the errors beside its fields."""
    return Form(sent(), error.problems)


def inputs(mechanism: Mechanism[Any]) -> list[Input]:
    """The inputs for a mechanism's parameters."""
    schema = mechanism.parameters.model_json_schema()["properties"]
    return [_input(name, each) for name, each in schema.items()]


def _type(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The part of a field's schema that is not null, and whether null is allowed."""
    options = schema.get("anyOf", [schema])
    part = next(each for each in options if each.get("type") != "null")
    return dict(part), len(options) > 1


def _input(name: str, schema: Mapping[str, Any]) -> Input:
    part, optional = _type(schema)
    default = schema.get("default")
    numeric = part.get("type") in ("integer", "number")
    long = part.get("type") == "string" and part.get("maxLength", 0) > 200
    options = tuple(str(each) for each in part.get("enum", ()))
    kind = "fixed" if "const" in part else "number" if numeric else "area" if long else "text"
    kind = "choice" if options else kind
    low = part.get("minimum", "" if part.get("type") == "integer" else part.get("exclusiveMinimum", ""))
    return Input(
        name=PREFIX + name,
        label=name.replace("_", " ").capitalize(),
        help=schema.get("description", ""),
        kind=kind,
        default="" if default is None else f"{default:g}" if isinstance(default, float) else str(default),
        bounds=allowed_values(schema),
        step="1" if part.get("type") == "integer" else "any",
        minimum=str(low),
        maximum=str(part.get("maximum", "")),
        required=not optional,
        options=(*([""] if optional else []), *options),
    )


def parameters(mechanism: Mechanism[Any], values: Mapping[str, str]) -> dict[str, Any]:
    """The parameters that a form states; empty inputs are left to their defaults.

    A text that is no number goes on as a text: the mechanism's own check then names the field.
    """
    found = {}
    for name, schema in mechanism.parameters.model_json_schema()["properties"].items():
        text = values.get(PREFIX + name, "")
        if text.strip():
            found[name] = _value(text, _type(schema)[0])
    return found


def _value(text: str, schema: Mapping[str, Any]) -> Any:
    match schema.get("type"):
        case "integer" if _WHOLE.fullmatch(text.strip()):
            return int(text)
        case "number":
            try:
                return float(text)
            except ValueError:
                return text
        case _:
            return text


def lines(text: str) -> list[str]:
    """A list that was typed one item per line."""
    return [line.strip() for line in text.splitlines() if line.strip()]


def whole(text: str) -> int | str | None:
    """A whole number, nothing, or the text itself for the check to name."""
    return int(text) if _WHOLE.fullmatch(text.strip()) else text.strip() or None
