"""OpenAPI 3.1 of /api/v1, made from the routes themselves: `describe` says what each takes and
answers.

Bodies are the pydantic models that the views read with, so the description can't ask for anything
else. Answers are the models of `accountant.schema`; examples were recorded from a real server
(`examples.json`). A route without `describe` is an error at start, found by a test.
"""

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from flask import Flask, Response, current_app, jsonify, request
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from web.api.blueprint import api
from web.api.paging import Order
from web.api.parsing import MAX_PAGE
from web.scopes import MEANINGS, needed

F = TypeVar("F", bound=Callable[..., Any])
Schema = Mapping[str, Any]

REFERENCE = "#/components/schemas/{model}"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_JSON = "application/json"
_PROBLEM = "application/problem+json"
LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}
CURSOR: Schema = {"type": "string", "description": "`next` of the page before"}
KEY: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "pattern": "^[\\x21-\\x7e]+$",
    "description": "the same key with the same request acts once, whatever is lost on the way",
}
TIME: Schema = {"type": "string", "format": "date-time"}
WHEN: Schema = {
    "type": "string",
    "description": "a day as 2026-01-31, or a time as 2026-01-31T12:00:00Z",
}
TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1}
ID: Schema = {"type": "string", "format": "uuid"}
ETAG: Schema = {"type": "string"}


class Problem(BaseModel):
    """A problem (RFC 9457)."""

    class Field(BaseModel):
        """One wrong field."""

        field: str
        problem: str
        allowed: str

    type: str
    title: str
    status: int
    detail: str
    code: str
    problems: list[Field]


OBJECT: Schema = {"type": "object"}


@dataclass(frozen=True)
class Listing:
    """An object with one list, `name`, of `item`s; a paged one says where the next begins."""

    name: str
    item: type[BaseModel] | None = None
    paged: Order | None = None
    others: Mapping[str, Schema] = field(default_factory=dict)


def listing(
    name: str, item: type[BaseModel] | None = None, *, paged: Order | None = None, **others: Schema
) -> Listing:
    """Return an answer {name: [item, ...]}, with `next` and `Link` if it is `paged`."""
    return Listing(name, item, paged, others)


Answer = Schema | type[BaseModel] | Listing


@dataclass(frozen=True)
class Operation:
    """The request and answer of one route beside its address.

    The first paragraph of the view's docstring is the summary; what follows it, the description.
    """

    body: type[BaseModel] | None = None
    file: bool = False  # the body is a file, taken as it comes
    query: Mapping[str, Schema] = field(default_factory=dict)
    headers: Mapping[str, Schema] = field(default_factory=dict)
    status: int = 200
    or_status: int | None = None  # another success, as where something is proposed and not yet done
    answer: Answer = field(default_factory=lambda: OBJECT)
    or_answer: Answer | None = None  # of or_status, where it is another
    media_types: tuple[str, ...] = (_JSON,)
    refusals: tuple[int, ...] = ()
    public: bool = False
    roles: tuple[str, ...] = ()  # who may; nothing: whoever has a token
    keyed: bool = False  # takes an Idempotency-Key (web.api.parsing)
    if_match: bool = False  # takes an If-Match (web.api.etags)
    located: bool = False  # its 201 names the address of what was made (web.api.parsing.made)


def describe(operation: Operation) -> Callable[[F], F]:
    """Attach the description of a route to its view."""

    def attach(view: F) -> F:
        view.operation = operation  # type: ignore[attr-defined]
        return view

    return attach


@api.get("/openapi.json")
@describe(Operation(public=True))
def openapi() -> Response:
    """This description, OpenAPI 3.1."""
    description = document(current_app._get_current_object())  # type: ignore[attr-defined]
    return jsonify(description | {"servers": [{"url": request.script_root or "/"}]})


@lru_cache(maxsize=1)
def examples() -> dict[str, Any]:
    """Return requests to a real server and its answers, by operation: {"GET /api/v1/me": {...},
    ...}.

    `EXCHEQUER_RECORD=1 python -m pytest tests/web/api/test_examples.py` records them anew.
    """
    recorded: dict[str, Any] = json.loads((Path(__file__).parent / "examples.json").read_text())
    return recorded


@dataclass(frozen=True)
class Route:
    """A described route."""

    path: str
    method: str
    endpoint: str
    operation: Operation
    view: Callable[..., Any]

    @property
    def label(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def names(self) -> list[str]:
        """The parameters in its path."""
        return re.findall(r"\{([^{}]+)\}", self.path)

    @property
    def answers(self) -> dict[int, Answer]:
        """Each status of success, with what is answered."""
        operation = self.operation
        by_status = {operation.status: operation.answer}
        if operation.or_status is not None:
            by_status[operation.or_status] = operation.or_answer or operation.answer
        return by_status


def routes(app: Flask) -> list[Route]:
    """Return all routes below /api/v1, by path. Raises LookupError without a description."""
    routes = []
    for rule in sorted(app.url_map.iter_rules(), key=lambda each: each.rule):
        if not rule.endpoint.startswith("api."):
            continue
        view = app.view_functions[rule.endpoint]
        operation: Operation | None = getattr(view, "operation", None)
        if operation is None:
            raise LookupError(f"the route {rule.rule} has no description")
        path = re.sub(r"<(?:[^:<>]+:)?([^<>]+)>", r"{\1}", rule.rule)
        for method in METHODS:
            if method in (rule.methods or ()):
                routes.append(Route(path, method, rule.endpoint, operation, view))
    return routes


@lru_cache(maxsize=2)
def document(app: Flask) -> dict[str, Any]:
    """Describe all routes below /api/v1. Raises LookupError naming a view without one."""
    every = routes(app)
    schemas, shared = _schemas(every)
    paths: dict[str, dict[str, Any]] = {}
    for route in every:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://spec.openapis.org/oas/3.1/dialect/base",
        "info": {
            "title": "Exchequer",
            "version": "1",
            "summary": "Privacy budgets of sensitive text datasets, and the jobs that spend them.",
            "description": _ABOUT,
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "tags": [{"name": name} for name in sorted({_tag(route) for route in every})],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "`POST /api/v1/session` gives a token for a name and password. "
                    f"{_SCOPES}",
                }
            },
            "headers": _HEADERS,
            "schemas": shared,
        },
    }


_ABOUT = (
    "Errors are problem details (RFC 9457) that name every wrong field. Times are RFC 3339 in UTC; "
    "amounts of budget are decimal texts. Listings come in pages: `limit` rows, and `next`, which "
    "`cursor` takes. Answers to GET carry strong ETags. Requests that make something take an "
    "`Idempotency-Key`. Unknown fields in a body are refused; readers must bear unknown fields in "
    "an answer."
)


_SCOPES = "A token may do what its owner's roles allow, as far as its scopes go: " + "; ".join(
    f"`{scope}`: {meaning}" for scope, meaning in MEANINGS.items()
)


def _tag(route: Route) -> str:
    return route.path.split("/")[3]


# --- schemas ------------------------------------------------------------------------------------


def _models_of(answer: Answer) -> list[type[BaseModel]]:
    if isinstance(answer, Listing):
        return [] if answer.item is None else [answer.item]
    return [answer] if isinstance(answer, type) else []


def _schemas(every: list[Route]) -> tuple[dict[type[BaseModel], Schema], dict[str, Any]]:
    """Return a reference to the schema of each model, and the schemas."""
    models: dict[type[BaseModel], None] = {Problem: None}
    for route in every:
        if route.operation.body is not None:
            models[route.operation.body] = None
        for answer in route.answers.values():
            models.update(dict.fromkeys(_models_of(answer)))
    return _schemas_of(tuple(models))


@lru_cache(maxsize=2)
def _schemas_of(
    models: tuple[type[BaseModel], ...],
) -> tuple[dict[type[BaseModel], Schema], dict[str, Any]]:
    pairs = [(model, "validation") for model in models]
    names_used, schemas = models_json_schema(pairs, ref_template=REFERENCE)  # type: ignore[arg-type]
    references: Any = {model: reference for (model, _), reference in names_used.items()}
    return references, schemas["$defs"]


def _schema(answer: Answer, schemas: Mapping[type[BaseModel], Schema]) -> dict[str, Any]:
    if isinstance(answer, Listing):
        item = OBJECT if answer.item is None else schemas[answer.item]
        properties: dict[str, Any] = {answer.name: {"type": "array", "items": dict(item)}}
        if answer.paged:
            properties["next"] = {
                "type": ["string", "null"],
                "description": "`cursor` of the next page",
            }
        properties |= {name: dict(schema) for name, schema in answer.others.items()}
        return {"type": "object", "required": list(properties), "properties": properties}
    return dict(schemas[answer] if isinstance(answer, type) else answer)


# --- one operation ------------------------------------------------------------------------------


def _operation(route: Route, schemas: Mapping[type[BaseModel], Schema]) -> dict[str, Any]:
    operation = route.operation
    summary, _, rest = (inspect.getdoc(route.view) or "").partition("\n\n")
    described: dict[str, Any] = {
        "operationId": route.endpoint.removeprefix("api."),
        "summary": " ".join(summary.split()),
        "description": " ".join([*rest.split(), _who(operation)]),
        "tags": [_tag(route)],
        "parameters": _parameters(route),
        "responses": _responses(route, schemas),
    }
    described["security"] = (
        [] if operation.public else [{"token": list(needed(route.endpoint, route.method))}]
    )
    if operation.roles:
        described["x-roles"] = list(operation.roles)
    if operation.body is not None:
        content: dict[str, Any] = {"schema": dict(schemas[operation.body])}
        recorded = examples().get(route.label, {})
        if "request" in recorded:
            content["example"] = recorded["request"]
        described["requestBody"] = {"required": True, "content": {_JSON: content}}
    if operation.file:
        binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        described["requestBody"] = {"required": True, "content": binary}
    return described


def _who(operation: Operation) -> str:
    if operation.public:
        return "For everybody, without a token."
    if operation.roles:
        return f"Needs the role {' or '.join(operation.roles)}."
    return "For everybody with a token; what is answered depends on the role."


def _parameters(route: Route) -> list[dict[str, Any]]:
    operation = route.operation
    query, headers = dict(operation.query), dict(operation.headers)
    if isinstance(operation.answer, Listing) and operation.answer.paged:
        query |= {"limit": {**LIMIT, "default": operation.answer.paged.rows}, "cursor": CURSOR}
    if operation.keyed:
        headers["Idempotency-Key"] = KEY
    if operation.if_match:
        headers["If-Match"] = ETAG
    if _is_conditional(route):
        headers["If-None-Match"] = ETAG
    return [
        *({"name": name, "in": "path", "required": True, "schema": NAME} for name in route.names),
        *(_parameter(name, "query", schema) for name, schema in query.items()),
        *(_parameter(name, "header", schema) for name, schema in headers.items()),
    ]


def _parameter(name: str, place: str, schema: Schema) -> dict[str, Any]:
    parameter = {"name": name, "in": place, "required": False, "schema": dict(schema)}
    about = schema.get("description") or _ABOUT_PARAMETERS.get(name)
    return parameter | ({"description": about} if about else {})


_ABOUT_PARAMETERS = {
    "limit": "rows of a page",
    "If-Match": "the ETag of what is changed: 412 where somebody has changed it since",
    "If-None-Match": "the ETag of what the asker has: 304 where it is still so",
}


def _is_conditional(route: Route) -> bool:
    return route.method == "GET" and _JSON in route.operation.media_types


def _responses(route: Route, schemas: Mapping[type[BaseModel], Schema]) -> dict[str, Any]:
    operation = route.operation
    recorded = examples().get(route.label, {}).get("responses", {})
    responses: dict[str, Any] = {}
    for status, answer in route.answers.items():
        content: dict[str, Any] = {}
        for media_type in operation.media_types:
            content[media_type] = {
                "schema": _schema(answer, schemas) if media_type == _JSON else {}
            }
            if media_type == _JSON and str(status) in recorded:
                content[media_type]["example"] = recorded[str(status)]
        responses[str(status)] = {"description": _MEANINGS.get(status) or HTTPStatus(status).phrase}
        responses[str(status)] |= {"headers": _headers(route, status), "content": content}
    if _is_conditional(route):
        responses["304"] = {"description": _MEANINGS[304], "headers": _references("ETag")}
    for status in sorted(_refusals(route)):
        content = {"schema": dict(schemas[Problem])}
        content["example"] = recorded.get(str(status)) or _example_problem(status)
        responses[str(status)] = {"description": _MEANINGS[status], "content": {_PROBLEM: content}}
        if status in _REFUSAL_HEADERS:
            responses[str(status)]["headers"] = _references(_REFUSAL_HEADERS[status])
    return responses


def _refusals(route: Route) -> set[int]:
    operation = route.operation
    refusals = {*operation.refusals, 429, 500, 503}
    if not operation.public:
        refusals |= {401, 403}
    if route.names:
        refusals |= {404}
    if operation.body is not None:
        refusals |= {409, 413, 415, 422}
    if operation.query or operation.headers or route.names or operation.keyed:
        refusals |= {422}
    if isinstance(operation.answer, Listing) and operation.answer.paged:
        refusals |= {422}
    if operation.keyed:
        refusals |= {409}
    if operation.if_match:
        refusals |= {412}
    return refusals


def _headers(route: Route, status: int) -> dict[str, Any]:
    names = []
    if _is_conditional(route):
        names.append("ETag")
    if isinstance(route.operation.answer, Listing) and route.operation.answer.paged:
        names.append("Link")
    if status == 201 and route.operation.located:
        names.append("Location")
    return _references(*names)


def _references(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _header(description: str, *, required: bool = False) -> dict[str, Any]:
    return {"description": description, "required": required, "schema": TEXT}


_HEADERS = {
    "ETag": _header("strong: names these very bytes", required=True),
    "Link": _header("the address of the next page, rel=next; absent on the last page"),
    "Location": _header("the address of what was made", required=True),
    "Retry-After": _header("seconds to wait", required=True),
    "WWW-Authenticate": _header("Bearer", required=True),
}
_REFUSAL_HEADERS = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}


def _example_problem(status: int) -> dict[str, Any]:
    from web.errors import problem

    return problem(status)


_MEANINGS = {
    200: "done",
    201: "made",
    202: "accepted: it takes effect later",
    304: "what the asker has is still so",
    401: "not signed in",
    403: "the role or the policy forbids it",
    404: "no such thing, or not for you",
    409: "the state of the thing, or of the idempotency key, forbids it",
    412: "it was changed since the asker looked: read it again",
    413: "more than 1 MiB, or than a file may have",
    415: "the body is not sent as application/json",
    422: "the fields that are wrong, and what is allowed",
    429: "too many requests, or failures to sign in: `Retry-After` says how long to wait",
    500: "not foreseen; the log has it under the reference that the answer names",
    503: "the database is away: try again in a moment",
    507: "the disk is full",
}
