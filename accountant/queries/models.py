"""Registered models as a viewer may see them."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Engine, Select, select

from accountant import tables
from accountant.core.errors import NotFound
from accountant.database import kept, reading
from accountant.identities.actor import Actor
from accountant.schema.models import Model
from accountant.tables import paging


@kept
def models(
    engine: Engine, viewer: Actor, *, limit: int | None = None, after: paging.After = None
) -> list[Model]:
    """Return registered models by name, with the public facts that a worker found."""
    query = paging.window(
        select(tables.models), [tables.models.c.name], limit, after, descending=False
    )
    return _models(engine, viewer, query)


def serving(
    engine: Engine, viewer: Actor, admitted: Collection[str], kinds: Collection[str]
) -> list[Model]:
    """Return the models of these kinds that are ready, the largest first: it writes best.

    `admitted`: the names that a policy admits; none of them: all.
    """
    admissible = [
        model
        for model in models(engine, viewer)
        if model.state == "ready"
        and model.kind in kinds
        and model.name in (admitted or [model.name])
    ]
    return sorted(admissible, key=lambda model: -((model.facts or {}).get("parameters") or 0))


def model(engine: Engine, name: str, viewer: Actor) -> Model:
    """Return one model. Raises NotFound."""
    models = _models(engine, viewer, select(tables.models).where(tables.models.c.name == name))
    if not models:
        raise NotFound("model", name)
    return models[0]


def _models(engine: Engine, viewer: Actor, query: Select[Any]) -> list[Model]:
    with reading(engine) as connection:
        rows = connection.execute(query).all()
    shown = _PUBLIC + (_STEWARDS if "steward" in viewer.roles else ())
    return [Model(**{name: getattr(row, name) for name in shown}) for row in rows]


_PUBLIC = ("name", "kind", "state", "trained_on", "facts", "endpoint")
_STEWARDS = ("path", "error")
