"""Registered models as a viewer may see them."""

from typing import Any

from sqlalchemy import Engine, Select, select

from accountant import tables
from accountant.core.errors import NotFound
from accountant.identities.actor import Actor
from accountant.tables import paging


def models(
    engine: Engine, viewer: Actor, *, limit: int | None = None, after: paging.After = None
) -> list[dict[str, Any]]:
    """Registered models by name, with the public facts that a worker found."""
    query = paging.window(select(tables.models), [tables.models.c.name], limit, after, descending=False)
    return _models(engine, viewer, query)


def model(engine: Engine, name: str, viewer: Actor) -> dict[str, Any]:
    """One model. Raises NotFound."""
    found = _models(engine, viewer, select(tables.models).where(tables.models.c.name == name))
    if not found:
        raise NotFound("model", name)
    return found[0]


def _models(engine: Engine, viewer: Actor, query: Select[Any]) -> list[dict[str, Any]]:
    with engine.connect() as connection:
        rows = connection.execute(query).all()
    steward = "steward" in viewer.roles
    return [
        {
            "name": row.name,
            "kind": row.kind,
            "state": row.state,
            "trained_on": row.trained_on,
            "facts": row.facts,
            **({"path": row.path, "error": row.error} if steward else {}),
        }
        for row in rows
    ]
