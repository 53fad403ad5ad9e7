"""Registered models: what a steward declares and what a worker found."""

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Engine, Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from accountant import tables
from accountant.core.errors import Conflict, FieldProblem, InvalidRequest
from accountant.core.names import NAME
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.transactions import idempotency
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
    model_id = uuid4()
    try:
        with engine.begin() as connection:
            earlier = idempotency.claim(connection, once, model_id)
            if earlier != model_id:
                return earlier
            connection.execute(
                insert(tables.models).values(
                    id=model_id,
                    name=name,
                    kind=kind,
                    path=path,
                    trained_on=trained_on,
                    state="checking",
                    created_by=actor.id,
                )
            )
            connection.execute(insert(tables.outbox).values(task="check_model", subject=model_id))
            activity_log.record(connection, actor, "model registered", "model", name, trained_on=trained_on)
    except IntegrityError:
        raise Conflict(f"there is a model {name!r} already") from None
    return model_id


def model_row(engine: Engine, model_id: UUID) -> Row[Any] | None:
    """A model by id."""
    with engine.connect() as connection:
        return connection.execute(select(tables.models).where(tables.models.c.id == model_id)).one_or_none()


def model_checked(engine: Engine, model_id: UUID, facts: Mapping[str, Any] | None, error: str | None) -> None:
    """A worker has looked at the files: ready with public facts, or an error."""
    models = tables.models
    with engine.begin() as connection:
        connection.execute(
            update(models)
            .where(models.c.id == model_id, models.c.state == "checking")
            .values(
                state="ready" if error is None else "invalid",
                facts=None if facts is None else dict(facts),
                error=error,
            )
        )
