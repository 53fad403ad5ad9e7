"""Rows that several readers share, and the roles that they ask for."""

from typing import Any

from sqlalchemy import Connection, Row, Select, select

from accountant import tables
from accountant.core.errors import NotFound, NotPermitted
from accountant.core.ledger.policy import Policy
from accountant.database import kept
from accountant.identities.actor import Actor
from accountant.transactions import owners
from accountant.transactions.artifacts import OVERSEERS


def dataset_query() -> Select[Any]:
    """Return datasets, each with its account, and whether a version of its data is ready."""
    columns = [column for column in tables.accounts.c if column.name != "dataset_id"]
    versions = tables.dataset_versions
    ready = (
        select(versions.c.id)
        .where(versions.c.dataset_id == tables.datasets.c.id, versions.c.state == "ready")
        .exists()
    )
    return select(tables.datasets, *columns, ready.label("ready")).join(
        tables.accounts, tables.accounts.c.dataset_id == tables.datasets.c.id
    )


@kept
def dataset_row(connection: Connection, name: str, viewer: Actor | None = None) -> Row[Any]:
    """Return a dataset with its account. Raises NotFound, NotPermitted (others' overseers)."""
    row = connection.execute(dataset_query().where(tables.datasets.c.name == name)).one_or_none()
    if row is None:
        raise NotFound("dataset", name)
    if viewer is not None:
        owners.require(viewer, Policy.model_validate(row.policy), *sorted(OVERSEERS))
    return row


@kept
def language_model_row(connection: Connection, name: str | None) -> Row[Any] | None:
    """Return a registered language model, or None if there is none of this name."""
    models = tables.models
    query = select(models).where(models.c.name == name, models.c.kind == "language")
    return None if name is None else connection.execute(query).one_or_none()


def seen_by(viewer: Actor, row: Any) -> Actor:
    """Return the viewer with the roles that they have on the dataset of a row with its `policy`."""
    return owners.on(viewer, Policy.model_validate(row.policy))


def require_overseer(viewer: Actor) -> None:
    """Raise NotPermitted for anybody but stewards and auditors."""
    if not viewer.roles & OVERSEERS:
        raise NotPermitted("the ledger is for stewards and auditors")
