"""Saved requests: what a form held, under a name, to start others from. The purpose is never among it.

A person's own on a dataset, or shared with those who may ask there and with its stewards.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, Select, delete, func, or_, select
from sqlalchemy.dialects.postgresql import insert

from accountant import tables
from accountant.core.errors import invalid
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.tables.lookup import one
from accountant.transactions import owners
from accountant.transactions.access import may_ask
from accountant.transactions.rows import policy_of

templates, datasets, users = tables.request_templates, tables.datasets, tables.users

MOST_CHARACTERS = 80
#: Of one person on one dataset, and as many shared ones that a form lists.
MOST = 50
MOST_BYTES = 40_000


@dataclass(frozen=True)
class SavedRequest:
    """A request without its purpose and project. `mine`: the reader saved it."""

    id: UUID
    name: str
    owner: str
    mechanism: str
    model: str | None
    parameters: Mapping[str, Any]
    shared: bool
    mine: bool


def save(
    engine: Engine,
    dataset: str,
    actor: Actor,
    name: str,
    mechanism: str,
    model: str | None,
    parameters: Mapping[str, Any],
    shared: bool,
) -> UUID:
    """Save a request under a name, in place of one's own of that name; returns its id.

    Raises NotFound, and InvalidRequest for a name that is empty or too long, parameters that are too large,
    or more than MOST of them.
    """
    called = name.strip()
    if not 1 <= len(called) <= MOST_CHARACTERS or not called.isprintable():
        raise invalid("template_name", repr(called[:40]), f"from 1 to {MOST_CHARACTERS} characters in a line")
    size = len(json.dumps(parameters, ensure_ascii=False).encode())
    if size > MOST_BYTES:
        raise invalid("parameters", f"{size:,} bytes in all", f"at most {MOST_BYTES:,} in a saved request")
    with engine.begin() as connection:
        connection.execute(select(users.c.id).where(users.c.id == actor.id).with_for_update())  # so many each
        found = _dataset(connection, dataset)
        own = (templates.c.dataset_id == found.id, templates.c.owner_id == actor.id)
        others = select(func.count()).where(*own, templates.c.name != called)
        if connection.execute(others).scalar_one() >= MOST:
            raise invalid("template_name", f"you have {MOST} on this dataset", "delete one of them first")
        values = {"mechanism": mechanism, "model": model, "parameters": dict(parameters), "shared": shared}
        row = insert(templates).values(
            id=uuid4(), dataset_id=found.id, owner_id=actor.id, name=called, **values
        )
        kept = row.on_conflict_do_update(
            index_elements=["dataset_id", "owner_id", "name"],
            set_={**values, "created_at": func.clock_timestamp()},
        )
        made: UUID = connection.execute(kept.returning(templates.c.id)).scalar_one()
    return made


def listing(engine: Engine, dataset: str, viewer: Actor) -> list[SavedRequest]:
    """One's own saved requests on a dataset, then those that others share, each by name."""
    with reading(engine) as connection:
        query = _visible(_dataset(connection, dataset), viewer)
        order = ((templates.c.owner_id != viewer.id), templates.c.name, templates.c.id)
        return [_read(row, viewer) for row in connection.execute(query.order_by(*order).limit(2 * MOST))]


def show(engine: Engine, dataset: str, template_id: UUID, viewer: Actor) -> SavedRequest:
    """One of those that `listing` shows. Raises NotFound."""
    with reading(engine) as connection:
        query = _visible(_dataset(connection, dataset), viewer).where(templates.c.id == template_id)
        return _read(one(connection, query, "saved request", template_id), viewer)


def remove(engine: Engine, dataset: str, template_id: UUID, actor: Actor) -> None:
    """Delete one's own; the dataset's stewards may delete a shared one. Raises NotFound."""
    with engine.begin() as connection:
        found = _dataset(connection, dataset)
        mine = templates.c.owner_id == actor.id
        if "steward" in owners.on(actor, policy_of(found)).roles:
            mine = or_(mine, templates.c.shared)
        wanted = select(templates.c.id).where(
            templates.c.id == template_id, templates.c.dataset_id == found.id, mine
        )
        one(connection, wanted, "saved request", template_id)
        connection.execute(delete(templates).where(templates.c.id == template_id))


def _dataset(connection: Connection, name: str) -> Row[Any]:
    return one(connection, select(datasets).where(datasets.c.name == name), "dataset", name)


def _visible(dataset: Row[Any], viewer: Actor) -> Select[Any]:
    policy = policy_of(dataset)
    of_the_dataset = may_ask(policy, viewer.name) or "steward" in owners.on(viewer, policy).roles
    mine = templates.c.owner_id == viewer.id
    return (
        select(templates, users.c.name.label("owner"))
        .join(users, users.c.id == templates.c.owner_id)
        .where(
            templates.c.dataset_id == dataset.id, or_(mine, templates.c.shared) if of_the_dataset else mine
        )
    )


def _read(row: Row[Any], viewer: Actor) -> SavedRequest:
    return SavedRequest(
        id=row.id,
        name=row.name,
        owner=row.owner,
        mechanism=row.mechanism,
        model=row.model,
        parameters=row.parameters,
        shared=row.shared,
        mine=row.owner_id == viewer.id,
    )
