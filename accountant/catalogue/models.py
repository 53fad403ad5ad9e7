"""Models as stewards declare them."""

import re
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Engine

from accountant.catalogue import registration
from accountant.core.errors import FieldProblem, InvalidRequest
from accountant.core.names import NAME
from accountant.identities.actor import Actor
from accountant.transactions.idempotency import Once

MODEL_KINDS = ("language", "embedding", "endpoint")


class EndpointSpec(BaseModel):
    """A steward's declaration of an OpenAI-compatible endpoint, apart from its address."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    model: str = Field(
        min_length=1, max_length=200, description="the model's name, as it is asked for there"
    )
    version: str = Field(
        min_length=1, max_length=200, description="its version or date, as declared"
    )
    chat: bool = Field(True, description="whether it takes messages, not texts to go on with")
    requests: int = Field(
        10_000, ge=1, le=10**7, description="most requests of one attempt at a job"
    )
    tokens: int = Field(
        2_000_000, ge=1, le=10**10, description="most tokens that these may read and write together"
    )


def add_model(
    engine: Engine,
    name: str,
    path: str,
    trained_on: str,
    actor: Actor,
    kind: str = "language",
    once: Once | None = None,
    endpoint: EndpointSpec | None = None,
) -> UUID:
    """Register a model; a worker checks its files first. `trained_on` is the steward's declaration.

    `kind`: `language` writes texts, `embedding` places them in a space, `endpoint` writes texts
    elsewhere: `path` is its https address then. No key of it is kept: the workers' settings have
    it.
    """
    actor.require("steward")
    problems = []
    if kind not in MODEL_KINDS:
        problems.append(FieldProblem("kind", repr(kind), ", ".join(MODEL_KINDS)))
    if not re.fullmatch(NAME, name):
        problems.append(
            FieldProblem("name", repr(name), "lower case letters, digits, '.', '_' and '-'")
        )
    if not path.strip():
        problems.append(FieldProblem("path", "empty", "a folder under a model root, or a hub name"))
    if (kind == "endpoint") != (endpoint is not None):
        problem = "goes with the kind endpoint, and with no other"
        problems.append(FieldProblem("endpoint", problem, "model and version; or nothing"))
    if kind == "endpoint" and "?" in path:
        problems.append(
            FieldProblem(
                "path", "has a query", "an address without one: a key stands in no address"
            )
        )
    if not trained_on.strip():
        problems.append(
            FieldProblem("trained_on", "empty", "a sentence: what the model was trained on")
        )
    if problems:
        raise InvalidRequest(problems)
    declared = None if endpoint is None else endpoint.model_dump(mode="json")
    values = {
        "name": name,
        "kind": kind,
        "path": path,
        "endpoint": declared,
        "trained_on": trained_on,
    }
    return registration.register(engine, "model", values, actor, once, trained_on=trained_on)
