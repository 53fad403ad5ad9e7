"""Models and mechanisms: what a job can be asked with."""

from typing import Literal

from flask import Response, jsonify
from pydantic import Field

from accountant.catalogue import models as model_catalogue
from accountant.core import names
from accountant.core.mechanisms import MECHANISMS
from accountant.queries import models as model_queries
from accountant.schema.models import Mechanism, Model
from web.api.blueprint import api
from web.api.openapi import Operation, describe, listing
from web.api.paging import BY_NAME, Order, page, read_window
from web.api.parsing import MAX_PAGE, Body, made, read, read_once
from web.auth import current_actor
from web.context import engine

ORDER = Order("models", BY_NAME, MAX_PAGE)


class NewModel(Body):
    """A model to register."""

    name: str = Field(pattern=names.NAME, description="what requests call it")
    path: str = Field(
        max_length=2000, description="a folder under a model root, or an endpoint's https address"
    )
    trained_on: str = Field(
        max_length=4000,
        description="a sentence that you vouch for. If it saw the private records, no promise "
        "holds",
    )
    kind: Literal["language", "embedding", "endpoint"] = Field(
        "language",
        description="language: it writes texts. embedding: it says which are alike. endpoint: it "
        "is asked by its address",
    )
    endpoint: model_catalogue.EndpointSpec | None = None


@api.get("/models")
@describe(Operation(answer=listing("models", Model, paged=ORDER)))
def models() -> Response:
    """Registered models, by name."""
    window = read_window(ORDER)
    return page("models", model_queries.models(engine(), current_actor(), **window.reads), window)


@api.get("/models/<name>")
@describe(Operation(answer=Model))
def model(name: str) -> Response:
    """One model."""
    return jsonify(model_queries.model(engine(), name, current_actor()))


@api.post("/models")
@describe(
    Operation(body=NewModel, keyed=True, status=201, located=True, answer=Model, roles=("steward",))
)
def add_model() -> tuple[Response, int]:
    """Register a model.

    A worker then looks at its files; `state` says what it found.
    """
    actor = current_actor()
    actor.require("steward")
    body = read(NewModel)
    model_catalogue.add_model(
        engine(),
        body.name,
        body.path,
        body.trained_on,
        actor,
        body.kind,
        read_once(body),
        body.endpoint,
    )
    return made(model_queries.model(engine(), body.name, actor), "model", name=body.name)


@api.get("/mechanisms")
@describe(Operation(answer=listing("mechanisms", Mechanism)))
def mechanisms() -> Response:
    """Every mechanism, with the JSON Schema of its parameters.

    In one piece: the list is the program's, and does not grow with use.
    """
    return jsonify(
        mechanisms=[
            {
                "id": mechanism.id,
                "title": mechanism.title,
                "summary": mechanism.summary,
                "source": mechanism.source,
                "size_field": mechanism.size_field,
                "uses_model": mechanism.uses_model,
                "runnable": mechanism.runner is not None,
                "parameters": mechanism.schema,
            }
            for mechanism in MECHANISMS.values()
        ]
    )
