"""Forms made from JSON Schemas: inputs for every kind of field, and the values typed into them.

    schema ──inputs──▶ inputs in groups    texts ──stated──▶ JSON values ──typed──▶ texts again

A blank input of a field that may be nothing states nothing; any other blank is a mistake that the
mechanism's own check names. A text that is no number goes on as a text for the same reason.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from accountant.core.mechanisms.base import REST
from accountant.core.privacy.units import is_plain

PREFIX = "parameters."
Schema = Mapping[str, Any]
Option = tuple[str, str]

_WHOLE = re.compile(r"-?[0-9]{1,15}")
_SCALARS = ("string", "integer", "number", "boolean")


@dataclass(frozen=True)
class Input:
    """One input: a number, text, area, choice, lines (an item a line), json or fixed."""

    name: str
    label: str
    help: str
    kind: str
    default: str
    step: str = "any"
    minimum: str = ""
    maximum: str = ""
    required: bool = True
    options: tuple[Option, ...] = ()
    group: str = REST


@dataclass(frozen=True)
class Group:
    """Inputs under one heading, open or not; `changed`: what differs, by its name."""

    title: str
    inputs: tuple[Input, ...]
    is_open: bool
    changed: Mapping[str, str]


# --- schemas ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Field:
    """A field without its null: `kind` as of Input, or object with fields of its own."""

    kind: str
    part: Schema
    optional: bool


def _resolved(schema: Schema, definitions: Schema) -> Schema:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    definition: Schema = definitions[str(reference).rsplit("/", 1)[-1]]
    return definition


def _read(schema: Schema, definitions: Schema) -> _Field:
    schema = _resolved(schema, definitions)
    options = [_resolved(option, definitions) for option in schema.get("anyOf", [schema])]
    parts = [option for option in options if option.get("type") != "null"]
    optional = len(parts) < len(options)
    if len(parts) != 1:
        plain = all(schema_part.get("type") in _SCALARS for schema_part in parts)
        return _Field("text" if plain else "json", {"anyOf": parts}, optional)
    (part,) = parts
    return _Field(_kind(part, definitions), part, optional)


def _kind(part: Schema, definitions: Schema) -> str:
    if "const" in part:
        return "fixed"
    if "enum" in part:
        return "choice"
    match part.get("type"):
        case "integer" | "number":
            return "number"
        case "boolean":
            return "choice"
        case "string":
            long = part.get("maxLength", 0) > 200 or part.get("format") == "textarea"
            return "area" if long else "text"
        case "array":
            items = _resolved(part.get("items", {}), definitions)
            return "lines" if items.get("type") in _SCALARS else "json"
        case "object" if part.get("properties"):
            return "object"
        case _:
            return "json"


# --- inputs -------------------------------------------------------------------------------------


def inputs(schema: Schema, prefix: str = PREFIX) -> tuple[Input, ...]:
    """Return the inputs for an object's schema, those of nested objects in a row."""
    return tuple(_inputs(schema, schema.get("$defs", {}), prefix, "", None))


def _inputs(
    schema: Schema, definitions: Schema, prefix: str, label: str, default: Any
) -> Iterator[Input]:
    for name, part in schema.get("properties", {}).items():
        field = _read(part, definitions)
        shown = f"{label}{name.replace('ex_post', 'ex-post').replace('_', ' ')}"
        initial = default.get(name) if isinstance(default, Mapping) else part.get("default")
        if field.kind == "object":
            yield from _inputs(field.part, definitions, f"{prefix}{name}.", f"{shown}: ", initial)
        else:
            yield _input(prefix + name, shown, part, field, initial)


def _input(name: str, label: str, schema: Schema, field: _Field, default: Any) -> Input:
    part = field.part
    whole = part.get("type") == "integer"
    low = part.get("minimum", "" if whole else part.get("exclusiveMinimum", ""))
    values = part.get("enum", ("true", "false") if part.get("type") == "boolean" else ())
    options = tuple((str(value), str(value)) for value in values)
    blank: tuple[Option, ...] = (("", "—"),) if field.optional and options else ()
    written = {"lines": "; one a line", "json": "; as JSON"}.get(field.kind, "")
    return Input(
        name=name,
        label=label[:1].upper() + label[1:],
        help=schema.get("description", part.get("description", "")) + written,
        kind=field.kind,
        default=_typed(default, field.kind),
        step="1" if whole else "any",
        minimum=str(low),
        maximum=str(part.get("maximum", "")),
        required=not field.optional and default != [],  # an empty list is an answer
        options=(*blank, *options),
        group=schema.get("group", REST),
    )


def with_choices(found: Input, options: Sequence[Option], value: str) -> Input:
    """Return the input as a choice among what is registered, and what was typed."""
    values = {option for option, _ in options}
    extra = ((value, f"{value} (not there)"),) if value and value not in values else ()
    blank: tuple[Option, ...] = (("", "—" if not found.required else "choose one"),)
    return replace(found, kind="choice", options=(*blank, *options, *extra))


def grouped(
    found: Sequence[Input], wanting: frozenset[str], changed: Mapping[str, str]
) -> list[Group]:
    """Return the inputs under their headings, open where one is `wanting`."""
    groups = []
    for title in dict.fromkeys((*(field.group for field in found if field.group != REST), REST)):
        members = [field for field in found if field.group == title]
        if members:
            names = {field.name: field.label.lower() for field in members}
            differing = {names[name]: text for name, text in changed.items() if name in names}
            groups.append(Group(title, tuple(members), not wanting.isdisjoint(names), differing))
    return groups


# --- values -------------------------------------------------------------------------------------


def stated(schema: Schema, values: Mapping[str, str], prefix: str = PREFIX) -> dict[str, Any]:
    """Return the object that a form states; fields that it does not hold keep their defaults."""
    return _object(schema, schema.get("$defs", {}), values, prefix)


def _object(
    schema: Schema, definitions: Schema, values: Mapping[str, str], prefix: str
) -> dict[str, Any]:
    typed_values: dict[str, Any] = {}
    for name, part in schema.get("properties", {}).items():
        field, key = _read(part, definitions), prefix + name
        if field.kind == "object":
            inside = _object(field.part, definitions, values, f"{key}.")
            if any(value not in (None, "", []) for value in inside.values()):
                typed_values[name] = inside
        elif key in values:
            blank = field.optional and not values[key].strip()
            typed_values[name] = None if blank else _value(values[key], field, definitions)
    return typed_values


def _value(text: str, field: _Field, definitions: Schema) -> Any:
    match field.kind:
        case "json":
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                return text
        case "lines":
            items = _read(field.part.get("items", {}), definitions)
            lines = [line.strip() for line in text.splitlines()]
            return [_value(line, items, definitions) for line in lines if line]
        case _ if "anyOf" in field.part:
            return _scalar(text, [str(option.get("type")) for option in field.part["anyOf"]])
        case _ if "enum" in field.part or "const" in field.part:
            enum = field.part.get("enum", [field.part.get("const")])
            return next((value for value in enum if str(value) == text.strip()), text)
        case _:
            return _scalar(text, [str(field.part.get("type"))])


def _scalar(text: str, kinds: Sequence[str]) -> Any:
    """Return the text as the first kind that it can be."""
    bare = text.strip()
    if "boolean" in kinds and bare in ("true", "false"):
        return bare == "true"
    if "integer" in kinds and _WHOLE.fullmatch(bare):
        return int(bare)
    if "number" in kinds and is_plain(bare):
        return float(bare)
    return text


def typed(found: Mapping[str, Any], schema: Schema, prefix: str = PREFIX) -> dict[str, str]:
    """Return parameters as the texts of a form: what `stated` makes of them is the same again."""
    return dict(_texts(schema, schema.get("$defs", {}), found, prefix))


def _texts(
    schema: Schema, definitions: Schema, found: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, str]]:
    for name, part in schema.get("properties", {}).items():
        if name not in found:
            continue
        field, value = _read(part, definitions), found[name]
        if field.kind == "object" and isinstance(value, Mapping):
            yield from _texts(field.part, definitions, value, f"{prefix}{name}.")
        elif field.kind != "object":
            yield prefix + name, _typed(value, field.kind)


def _typed(value: Any, kind: str) -> str:
    if value is None:
        return ""
    if kind == "json":
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if kind == "lines":
        return "\n".join(_typed(item, "text") for item in value)
    return str(value)
