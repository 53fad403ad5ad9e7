"""Rows that several readers share, and the roles that they ask for."""

from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, Select, case, cast, func, select
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by

from accountant import tables
from accountant.core.errors import NotFound, NotPermitted
from accountant.core.ledger.caps import SIGNED, STATED
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.filters import Kind
from accountant.database import kept
from accountant.identities.actor import Actor
from accountant.transactions import owners
from accountant.transactions.artifacts import OVERSEERS


def dataset_query() -> Select[Any]:
    """Return datasets, each with its account, whether a version of its data is ready, and whether
    its data comes here.
    """
    columns = [column for column in tables.accounts.c if column.name != "dataset_id"]
    versions = tables.dataset_versions
    ready = (
        select(versions.c.id)
        .where(versions.c.dataset_id == tables.datasets.c.id, versions.c.state == "ready")
        .exists()
    )
    elsewhere = (
        select(versions.c.id)
        .where(versions.c.dataset_id == tables.datasets.c.id, versions.c.uri.is_(None))
        .exists()
    )
    facts = ready.label("ready"), (~elsewhere).label("data_is_here")
    return select(tables.datasets, *columns, *facts).join(
        tables.accounts, tables.accounts.c.dataset_id == tables.datasets.c.id
    )


@cache
def whole_query() -> Select[Any]:
    """Return datasets with accounts, versions, sums, and the job that closed each closed filter."""
    versions = tables.dataset_versions
    whole = func.to_jsonb(versions.table_valued())
    rows = select(func.jsonb_agg(aggregate_order_by(whole, versions.c.number)))
    mine = rows.where(versions.c.dataset_id == tables.datasets.c.id).correlate(tables.datasets)
    closers = (
        case((tables.accounts.c[f"{kind}_closed"] > 0, _closing_job(kind))).label(f"{kind}_closer")
        for kind in Kind
    )
    usage = tables.usage
    sums = select(func.jsonb_object_agg(usage.c.kind, usage.c.spent + usage.c.reserved))
    vouched = sums.where(
        usage.c.dataset_id == tables.datasets.c.id, usage.c.kind.in_((STATED, SIGNED))
    ).correlate(tables.datasets)
    marks = tables.spending_marks
    query = dataset_query().outerjoin(marks, marks.c.dataset_id == tables.datasets.c.id)
    return query.add_columns(
        mine.scalar_subquery().label("versions"),
        vouched.scalar_subquery().label("vouched"),
        marks.c.through,
        *closers,
    )


def _closing_job(kind: Kind) -> ColumnElement[UUID]:
    table, later = tables.entries.alias(), tables.entries.alias()
    cost = cast(table.c.document, JSONB)["body"]["costs"][str(kind)]
    later_cost = cast(later.c.document, JSONB)["body"]["costs"][str(kind)]
    # A VOID opens it again, and so does a correction that charges the job an amount there, or
    # nothing.
    opened = (later.c.kind == "VOID") | (
        (later.c.kind == "REVERSAL") & (func.coalesce(func.jsonb_typeof(later_cost), "") != "null")
    )
    voided = (
        select(later.c.seq)
        .where(later.c.job_id == table.c.job_id, later.c.seq > table.c.seq, opened)
        .exists()
    )
    return (
        select(table.c.job_id)
        .where(table.c.dataset_id == tables.datasets.c.id)
        .where(table.c.kind.in_(("RESERVE", "REVERSAL")), ~voided)
        .where(func.jsonb_typeof(cost) == "null")
        .order_by(table.c.seq)
        .limit(1)
        .correlate(tables.datasets)
        .scalar_subquery()
    )


@kept
def dataset_row(connection: Connection, name: str, viewer: Actor | None = None) -> Row[Any]:
    """Return a dataset with its account. Raises NotFound, NotPermitted (others' overseers)."""
    if viewer is not None:
        row = dataset_row(connection, name)
        owners.require(viewer, Policy.model_validate(row.policy), *sorted(OVERSEERS))
        return row
    query = whole_query().where(tables.datasets.c.name == name)
    found = connection.execute(query).one_or_none()
    if found is None:
        raise NotFound("dataset", name)
    return found


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
