"""Registered models as a viewer may see them."""

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
