"""Holds answers against the API's description: status, media type, headers, schema, and nothing
beyond it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
from flask import Flask, Response, request

from web.api.openapi import document

PROBLEM = "application/problem+json"
ADDRESS = "urn:api"


def absolute(value: Any) -> Any:
    """The same, with references that lead into the description from anywhere."""
    if isinstance(value, dict):
        reference = value.get("$ref")
        made = {key: absolute(each) for key, each in value.items()}
        return made | {"$ref": ADDRESS + reference} if isinstance(reference, str) else made
    return [absolute(each) for each in value] if isinstance(value, list) else value


class Description:
    """The description of an application, as something that answers are held against."""

    def __init__(self, app: Flask) -> None:
        self.document = document(app)
        # Read once: a validator of a schema that held all others would read them again for each.
        components = absolute({"components": self.document["components"]})
        self._registry = jsonschema_rs.Registry([(ADDRESS, components)])
        self._validators: dict[int, tuple[Any, Any]] = {}

    def operation(self, method: str, path: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.document["paths"][path][method.lower()]
        return found

    def problems(
        self, method: str, path: str, response: Any, *, strict: bool = True
    ) -> Iterator[str]:
        """Yield what is wrong with an answer to `method` at the described `path`.

        `strict`: also what it holds that its schema does not name.
        """
        told = self.operation("GET" if method == "HEAD" else method, path)["responses"]
        found = told.get(str(response.status_code))
        if found is None:
            yield f"status {response.status_code} is not described"
            return
        for name, header in found.get("headers", {}).items():
            if self.resolved(header).get("required") and name not in response.headers:
                yield f"{response.status_code} lacks the header {name}"
        content = found.get("content")
        if content is None or method == "HEAD":
            return
        if response.mimetype not in content:
            yield f"{response.status_code} is {response.mimetype}"
        elif response.mimetype in ("application/json", PROBLEM):
            yield from self.misfits(
                content[response.mimetype]["schema"], response.get_json(), strict
            )

    def misfits(
        self, schema: Mapping[str, Any], value: object, strict: bool = True
    ) -> Iterator[str]:
        """Yield places where `value` does not fit its schema, and members that the schema doesn't
        name.
        """
        _, validator = self._validators.get(id(schema)) or self._add(schema)
        errors = [
            f"{error.instance_path}: {error.message}" for error in validator.iter_errors(value)
        ]
        yield from errors
        if strict and not errors:
            yield from (f"{path} is not described" for path in self.beyond(schema, value, ""))

    def _add(self, schema: Mapping[str, Any]) -> tuple[Any, Any]:
        validator = jsonschema_rs.Draft202012Validator(absolute(schema), registry=self._registry)
        # The schema is kept with its validator: its id names it as long as it lives.
        self._validators[id(schema)] = schema, validator
        return self._validators[id(schema)]

    def resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            _, kind, name = schema["$ref"].removeprefix("#/").split("/")
            schema = self.document["components"][kind][name]
        return schema

    def beyond(self, schema: Mapping[str, Any], value: object, path: str) -> Iterator[str]:
        """Members of `value` that no schema names. A schema without properties names whatever there
        is.
        """
        schema = self.resolved(schema)
        for option in ("anyOf", "oneOf"):
            if option in schema:
                found = [
                    list(self.beyond(each, value, path))
                    for each in schema[option]
                    if self._fits(each, value)
                ]
                yield from min(found, key=len, default=[])
                return
        if isinstance(value, dict) and "properties" in schema:
            for name, inner in value.items():
                if name in schema["properties"]:
                    yield from self.beyond(schema["properties"][name], inner, f"{path}.{name}")
                elif "additionalProperties" not in schema:
                    yield f"{path}.{name}"
        elif isinstance(value, list) and "items" in schema:
            for inner in value:
                yield from self.beyond(schema["items"], inner, f"{path}[]")

    def _fits(self, schema: Mapping[str, Any], value: object) -> bool:
        validator = (self._validators.get(id(schema)) or self._add(schema))[1]
        return bool(validator.is_valid(value))


def watch(app: Flask) -> list[str]:
    """Hold every answer of `app` against its description from now on; returns what will be
    wrong.
    """
    wrong: list[str] = []
    description = Description(app)

    def look(response: Response) -> Response:
        rule = request.url_rule
        if rule is not None and rule.endpoint.startswith("api.") and request.method != "OPTIONS":
            path = rule.rule.replace("<", "{").replace(">", "}")
            found = description.problems(request.method, path, response, strict=False)
            wrong.extend(f"{request.method} {path}: {problem}" for problem in found)
        return response

    # First in, last called: what the application itself adds is there by then.
    app.after_request_funcs.setdefault(None, []).insert(0, look)
    return wrong
