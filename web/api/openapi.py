"""OpenAPI 3.1 of /api/v1, made from the routes themselves: `describe` says what each takes and answers.

Bodies are the pydantic models that the views read with, so the description can't ask for anything else. A
route without `describe` is an error at start, found by a test.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from flask import Flask, Response, current_app, jsonify
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from web.api import api
from web.scopes import MEANINGS, needed

F = TypeVar("F", bound=Callable[..., Any])
Schema = Mapping[str, Any]

REFERENCE = "#/components/schemas/{model}"
_PROBLEM = "application/problem+json"
LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}
TIME: Schema = {"type": "string", "format": "date-time"}
TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1}
ID: Schema = {"type": "string", "format": "uuid"}

PROBLEM: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "problems"],
    "properties": {
        "type": TEXT,
        "title": TEXT,
        "status": {"type": "integer"},
        "detail": TEXT,
        "code": {"type": "string", "description": "stable: programs may branch on it"},
        "problems": {
            "type": "array",
            "description": "one for each wrong field",
            "items": {
                "type": "object",
                "required": ["field", "problem", "allowed"],
                "properties": {"field": TEXT, "problem": TEXT, "allowed": TEXT},
            },
        },
    },
}


def listing(name: str) -> Schema:
    """An object with one list of objects."""
    items = {"type": "array", "items": {"type": "object"}}
    return {"type": "object", "required": [name], "properties": {name: items}}


OBJECT: Schema = {"type": "object"}


@dataclass(frozen=True)
class Operation:
    """What one route takes and answers beside its address."""

    body: type[BaseModel] | None = None
    file: bool = False  # the body is a file, taken as it comes
    query: Mapping[str, Schema] = field(default_factory=dict)
    headers: Mapping[str, Schema] = field(default_factory=dict)
    status: int = 200
    or_status: int | None = None  # another success, as where something is proposed and not yet done
    answer: Schema = field(default_factory=lambda: OBJECT)
    media_types: tuple[str, ...] = ("application/json",)
    refusals: tuple[int, ...] = ()
    public: bool = False


def describe(operation: Operation) -> Callable[[F], F]:
    """Attach the description of a route to its view."""

    def attach(view: F) -> F:
        view.operation = operation  # type: ignore[attr-defined]
        return view

    return attach


@api.get("/openapi.json")
@describe(Operation(public=True))
def openapi() -> Response:
    """This description."""
    return jsonify(document(current_app._get_current_object()))  # type: ignore[attr-defined]


@lru_cache(maxsize=2)
def document(app: Flask) -> dict[str, Any]:
    """The description of every route below /api/v1. Raises LookupError naming a view that has none."""
    paths: dict[str, dict[str, Any]] = {}
    models: dict[str, type[BaseModel]] = {}
    for rule in sorted(app.url_map.iter_rules(), key=lambda each: each.rule):
        if not rule.endpoint.startswith("api."):
            continue
        view = app.view_functions[rule.endpoint]
        operation: Operation | None = getattr(view, "operation", None)
        if operation is None:
            raise LookupError(f"the route {rule.rule} has no description")
        if operation.body is not None:
            models[operation.body.__name__] = operation.body
        path = re.sub(r"<(?:[^:<>]+:)?([^<>]+)>", r"{\1}", rule.rule)
        method = next(each for each in ("GET", "POST", "PUT", "DELETE") if each in (rule.methods or ()))
        paths.setdefault(path, {})[method.lower()] = _operation(operation, view, rule.endpoint, path, method)
    pairs = [(model, "validation") for model in models.values()]
    _, schemas = models_json_schema(pairs, ref_template=REFERENCE)  # type: ignore[arg-type]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Exchequer",
            "version": "1",
            "description": "Privacy budgets of sensitive text datasets, and the jobs that spend them. "
            "Errors are problem details (RFC 9457) that name every wrong field.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": _SCOPES}},
            "schemas": {**schemas.get("$defs", {}), "Problem": PROBLEM},
        },
    }


_SCOPES = "A token may do what its owner's roles allow, as far as its scopes go: " + "; ".join(
    f"`{scope}`: {meaning}" for scope, meaning in MEANINGS.items()
)


def _operation(
    operation: Operation, view: Callable[..., Any], endpoint: str, path: str, method: str
) -> dict[str, Any]:
    told = inspect.getdoc(view) or ""
    names = re.findall(r"\{([^{}]+)\}", path)
    found: dict[str, Any] = {
        "operationId": endpoint.removeprefix("api."),
        "summary": told.split("\n")[0],
        "tags": [path.split("/")[3]],
        "parameters": [
            *({"name": each, "in": "path", "required": True, "schema": NAME} for each in names),
            *({"name": n, "in": "query", "schema": dict(s)} for n, s in operation.query.items()),
            *({"name": n, "in": "header", "schema": dict(s)} for n, s in operation.headers.items()),
        ],
        "responses": _responses(operation, bool(names)),
    }
    found["security"] = [] if operation.public else [{"token": list(needed(endpoint, method))}]
    if operation.body is not None:
        schema = {"$ref": REFERENCE.format(model=operation.body.__name__)}
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if operation.file:
        binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        found["requestBody"] = {"required": True, "content": binary}
    return found


def _responses(operation: Operation, names_something: bool) -> dict[str, Any]:
    content = {
        media_type: {"schema": dict(operation.answer) if media_type == "application/json" else {}}
        for media_type in operation.media_types
    }
    refusals = {*operation.refusals, 401, 503}
    if not operation.public:
        refusals |= {403}
    if names_something:
        refusals |= {404}
    if operation.body is not None:
        refusals |= {409, 413, 422}
    if operation.query or operation.headers or names_something:
        refusals |= {422}
    problem = {"content": {_PROBLEM: {"schema": {"$ref": REFERENCE.format(model="Problem")}}}}
    done = [status for status in (operation.status, operation.or_status) if status is not None]
    return {
        **{str(status): {"description": "done", "content": content} for status in done},
        **{str(status): {"description": _MEANINGS[status], **problem} for status in sorted(refusals)},
    }


_MEANINGS = {
    401: "not signed in",
    403: "the role or the policy forbids it",
    404: "no such thing, or not for you",
    409: "the state of the thing, or of the idempotency key, forbids it",
    413: "more than 1 MiB, or than a file may have",
    422: "the fields that are wrong, and what is allowed",
    429: "too many failures: `Retry-After` says how many seconds to wait",
    503: "the server is not ready",
    507: "the disk is full",
}
