"""Models and mechanisms: what a job can be asked with."""

from typing import Any, Literal

from flask import Response, jsonify
from pydantic import Field

from accountant import registry, reports
from accountant.core.mechanisms import MECHANISMS, RUNNABLE
from web.api import api
from web.api.bodies import Body, read
from web.api.openapi import Operation, describe, listing
from web.app import engine
from web.auth import current_actor


class NewModel(Body):
    """A model to register."""

    name: str = Field(pattern=registry.NAME)
    path: str = Field(max_length=2000)
    trained_on: str = Field(max_length=4000)
    kind: Literal["language", "embedding"] = "language"


@api.get("/models")
@describe(Operation(answer=listing("models")))
def models() -> Response:
    """Registered models."""
    return jsonify(models=reports.models(engine(), current_actor()))


@api.post("/models")
@describe(Operation(body=NewModel, status=201))
def add_model() -> tuple[Response, int]:
    """Register a model; a worker then looks at its files."""
    actor = current_actor()
    actor.require("steward")
    body = read(NewModel)
    registry.add_model(engine(), body.name, body.path, body.trained_on, actor, body.kind)
    return jsonify(_model(body.name)), 201


def _model(name: str) -> dict[str, Any]:
    return next(each for each in reports.models(engine(), current_actor()) if each["name"] == name)


@api.get("/mechanisms")
@describe(Operation(answer=listing("mechanisms")))
def mechanisms() -> Response:
    """Every mechanism with the JSON Schema of its parameters."""
    return jsonify(
        mechanisms=[
            {
                "id": each.id,
                "title": each.title,
                "summary": each.summary,
                "source": each.source,
                "size_field": each.size_field,
                "uses_model": each.uses_model,
                "runnable": each.id in RUNNABLE,
                "parameters": each.parameters.model_json_schema(),
            }
            for each in MECHANISMS.values()
        ]
    )
