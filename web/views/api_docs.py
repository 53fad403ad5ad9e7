"""The description of the API as a page, `/api/docs`: no scripts, an anchor for each operation."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from flask import Blueprint, Flask, current_app, render_template
from markupsafe import Markup, escape

from web.api.openapi import document
from web.errors import CODES, problem

pages = Blueprint("api_docs", __name__)

_METHODS = ("get", "post", "put", "patch", "delete")
_MOST_DEPTH = 3
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Row:
    """One member of a body or an answer, for a table."""

    name: str
    type: str
    about: str
    required: bool


@pages.get("/api/docs")
def show() -> str:
    """Every operation of the API."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    description = document(app)
    return render_template(
        "api_docs.html",
        info=description["info"],
        groups=operations_by_tag(app),
        problems=[problem(status) for status in CODES],
        marked=marked,
    )


def marked(text: str) -> Markup:
    """Return text whose `code` stands between grave accents, as docstrings have it."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 (escaped before)


@lru_cache(maxsize=2)
def operations_by_tag(app: Flask) -> dict[str, list[dict[str, Any]]]:
    """Return operations by tag, as the page shows them."""
    description = document(app)
    operations_by_tag: dict[str, list[dict[str, Any]]] = {}
    for path, operations in description["paths"].items():
        for method in _METHODS:
            if method in operations:
                shown = _operation(description, path, method, operations[method])
                operations_by_tag.setdefault(shown["tag"], []).append(shown)
    return operations_by_tag


def _operation(
    told: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]
) -> dict[str, Any]:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    parameters = [
        Row(
            parameter["name"],
            _type(told, parameter["schema"]),
            parameter.get("description", ""),
            parameter["required"],
        )
        for parameter in operation["parameters"]
    ]
    return {
        "id": operation["operationId"],
        "tag": operation["tags"][0],
        "path": path,
        "method": method.upper(),
        "summary": operation["summary"],
        "description": operation["description"],
        "parameters": parameters,
        "body": [] if body is None else list(_rows(told, body["schema"])),
        "curl": _curl(path, method, operation, body),
        "answers": [_answer(told, *response) for response in operation["responses"].items()],
    }


def _answer(told: Mapping[str, Any], status: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    content = answer.get("content", {})
    spoken = content.get("application/json", {})
    example = next((media["example"] for media in content.values() if "example" in media), None)
    return {
        "status": status,
        "description": answer["description"],
        "good": int(status) < 300,
        "media_types": list(content),
        "headers": list(answer.get("headers", {})),
        "rows": list(_rows(told, spoken.get("schema", {}))) if int(status) < 300 else [],
        "example": None if example is None else json.dumps(example, indent=2, ensure_ascii=False),
    }


def _curl(
    path: str, method: str, operation: Mapping[str, Any], body: Mapping[str, Any] | None
) -> str:
    """Return a command that asks for it; names in braces are for the reader to fill in."""
    lines = ["curl" if method == "get" else f"curl -X {method.upper()}"]
    query = "&".join(
        f"{parameter['name']}={parameter['schema']['examples'][0]}"
        for parameter in operation["parameters"]
        if parameter["in"] == "query" and "examples" in parameter.get("schema", {})
    )
    lines[0] += f' "$URL{quote(path, safe="/{}")}{"?" if query else ""}{query}"'
    if operation.get("security") != []:
        lines.append('-H "Authorization: Bearer $TOKEN"')
    if any(parameter["name"] == "Idempotency-Key" for parameter in operation["parameters"]):
        lines.append('-H "Idempotency-Key: $KEY"')
    if body is not None:
        lines.append('-H "Content-Type: application/json"')
        text = json.dumps(body.get("example", {}), ensure_ascii=False)
        lines.append(f"-d '{text.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'")
    return " \\\n  ".join(lines)


# --- schemas as rows ----------------------------------------------------------------------------


def _resolved(told: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        definition = told["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        schema = {**definition, **{name: value for name, value in schema.items() if name != "$ref"}}
    return schema


def _rows(
    told: Mapping[str, Any], schema: Mapping[str, Any], prefix: str = "", depth: int = 0
) -> Iterator[Row]:
    schema = _resolved(told, schema)
    required = schema.get("required", ())
    for name, member in schema.get("properties", {}).items():
        inner = _resolved(told, member)
        about = inner.get("description", "")
        yield Row(prefix + name, _type(told, inner), about, name in required)
        below, mark = _object_in(told, inner)
        if depth < _MOST_DEPTH and below is not None:
            yield from _rows(told, below, f"{prefix}{name}{mark}.", depth + 1)


def _object_in(
    told: Mapping[str, Any], schema: Mapping[str, Any]
) -> tuple[Mapping[str, Any] | None, str]:
    """Return the object that a member is or lists; None if it has no known members."""
    for option in (_resolved(told, part) for part in [schema, *schema.get("anyOf", ())]):
        if "properties" in option:
            return option, ""
        if "items" in option and "properties" in (item := _resolved(told, option["items"])):
            return item, "[]"
    return None, ""


def _type(told: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return a schema's type in a few words."""
    schema = _resolved(told, schema)
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(told, option) for option in schema["anyOf"]))
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " | ".join(kind)
    if kind == "array":
        return f"list of {_type(told, schema.get('items', {}))}"
    bounds = [f"≥ {schema['minimum']:,}"] if "minimum" in schema else []
    bounds += [f"≤ {schema['maximum']:,}"] if "maximum" in schema else []
    bounds += [f"at most {schema['maxLength']:,} characters"] if "maxLength" in schema else []
    return ", ".join([schema.get("format", kind), *bounds])
