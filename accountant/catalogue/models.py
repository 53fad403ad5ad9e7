"""Models as stewards declare them."""

import re
from uuid import UUID

from sqlalchemy import Engine

from accountant.catalogue import registration
from accountant.core.errors import FieldProblem, InvalidRequest
from accountant.core.names import NAME
from accountant.identities.actor import Actor
from accountant.transactions.idempotency import Once

MODEL_KINDS = ("language", "embedding")


def add_model(
    engine: Engine,
    name: str,
    path: str,
    trained_on: str,
    actor: Actor,
    kind: str = "language",
    once: Once | None = None,
) -> UUID:
    """Register a model; a worker checks its files first. `trained_on` is the steward's declaration.

    `kind`: `language` writes texts, `embedding` places them in a space.
    """
    actor.require("steward")
    problems = []
    if kind not in MODEL_KINDS:
        problems.append(FieldProblem("kind", repr(kind), ", ".join(MODEL_KINDS)))
    if not re.fullmatch(NAME, name):
        problems.append(FieldProblem("name", repr(name), "lower case letters, digits, '.', '_' and '-'"))
    if not path.strip():
        problems.append(FieldProblem("path", "empty", "a folder under a model root, or a hub name"))
    if not trained_on.strip():
        problems.append(FieldProblem("trained_on", "empty", "a sentence: what the model was trained on"))
    if problems:
        raise InvalidRequest(problems)
    values = {"name": name, "kind": kind, "path": path, "trained_on": trained_on}
    return registration.register(engine, "model", values, actor, once, trained_on=trained_on)
