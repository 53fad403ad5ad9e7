"""Datasets as a viewer may see them: terms, accounts, caps and statements."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, cast, func, select
from sqlalchemy.dialects.postgresql import JSONB

from accountant import tables
from accountant.core.ledger.books import Books
from accountant.core.ledger.caps import ANALYST, limits
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.statements import statements
from accountant.core.privacy.filters import Kind
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.identities.actor import Actor
from accountant.queries.account_views import account_view, ex_post_view, secret_view
from accountant.queries.listings import (
    EVERY_DATASET,
    Wanted,
    conditions,
)
from accountant.queries.rows import dataset_query, dataset_row, time_text
from accountant.tables import paging
from accountant.tables.accounts_row import read_books
from accountant.transactions.artifacts import OVERSEERS


def datasets(
    engine: Engine,
    viewer: Actor,
    wanted: Wanted = EVERY_DATASET,
    *,
    limit: int | None = None,
    after: paging.After = None,
) -> list[dict[str, Any]]:
    """The catalogue, by name."""
    narrowed = dataset_query().where(*conditions(wanted, viewer))
    query = paging.window(narrowed, [tables.datasets.c.name], limit, after, descending=False)
    with engine.connect() as connection:
        rows = connection.execute(query).all()
        states = _version_states(connection)
        return [_dataset(row, _books(connection, row), states.get(row.id, []), viewer) for row in rows]


def dataset(engine: Engine, name: str, viewer: Actor) -> dict[str, Any]:
    """One dataset. Raises NotFound."""
    with engine.connect() as connection:
        row = dataset_row(connection, name)
        versions = _version_states(connection, row.id).get(row.id, [])
        facts = _dataset(row, _books(connection, row), versions, viewer)
        return facts | {"caps": _caps(connection, row, viewer)}


def _caps(connection: Connection, row: Row[Any], viewer: Actor) -> list[dict[str, str]]:
    """What the caps of the policy leave: to an analyst their own, and the projects that they work in."""
    set_by = limits(Policy.model_validate(row.policy))
    if not set_by:
        return []
    table, users = tables.usage, tables.users
    own = {str(viewer.id), *_projects(connection, row.id, viewer)}
    names = {str(user.id): user.name for user in connection.execute(select(users.c.id, users.c.name))}
    query = select(table).where(table.c.dataset_id == row.id).order_by(table.c.kind, table.c.holder)
    used = {(each.kind, each.holder): each.spent + each.reserved for each in connection.execute(query)}
    if ANALYST in set_by and viewer.roles & {"analyst", "steward"}:
        used.setdefault((ANALYST, str(viewer.id)), 0)
    return [
        {
            "kind": kind,
            "name": names.get(holder, holder) if kind == ANALYST else holder,
            "limit": to_decimal(set_by[kind], EPSILON_UNITS),
            "used": to_decimal(amount, EPSILON_UNITS),
            "left": to_decimal(max(set_by[kind] - amount, 0), EPSILON_UNITS),
        }
        for (kind, holder), amount in used.items()
        if kind in set_by and (viewer.roles & OVERSEERS or holder in own)
    ]


def _projects(connection: Connection, dataset_id: UUID, viewer: Actor) -> set[str]:
    """The projects for which somebody asked on a dataset."""
    mine = (tables.jobs.c.dataset_id == dataset_id, tables.jobs.c.analyst_id == viewer.id)
    query = select(tables.jobs.c.project).where(*mine, tables.jobs.c.project.is_not(None))
    return set(connection.execute(query.distinct()).scalars())


def _books(connection: Connection, row: Row[Any]) -> Books:
    """The books in a row, with the job that closed each closed filter: the first not voided since."""
    books = read_books(row)
    closers = []
    for each in () if books.account is None else books.account.filters:
        if each.closed:
            closers.append((each.filter.kind, _closing_job(connection, row.id, each.filter.kind)))
    return replace(books, history=replace(books.history, closers=tuple(closers)))


def _closing_job(connection: Connection, dataset_id: UUID, kind: Kind) -> str:
    table, later = tables.entries, tables.entries.alias()
    cost = cast(table.c.document, JSONB)["body"]["costs"][str(kind)]
    later_cost = cast(later.c.document, JSONB)["body"]["costs"][str(kind)]
    # A VOID opens it again, and so does a correction that charges the job an amount there, or nothing.
    opened = (later.c.kind == "VOID") | (
        (later.c.kind == "REVERSAL") & (func.coalesce(func.jsonb_typeof(later_cost), "") != "null")
    )
    voided = (
        select(later.c.seq)
        .where(later.c.job_id == table.c.job_id, later.c.seq > table.c.seq, opened)
        .exists()
    )
    query = (
        select(table.c.job_id)
        .where(table.c.dataset_id == dataset_id, table.c.kind.in_(("RESERVE", "REVERSAL")), ~voided)
        .where(func.jsonb_typeof(cost) == "null")
        .order_by(table.c.seq)
        .limit(1)
    )
    return str(connection.execute(query).scalar_one())


def _version_states(connection: Connection, dataset_id: UUID | None = None) -> dict[UUID, list[Row[Any]]]:
    versions = tables.dataset_versions
    query = select(versions).order_by(versions.c.number)
    if dataset_id is not None:
        query = query.where(versions.c.dataset_id == dataset_id)
    found: dict[UUID, list[Row[Any]]] = {}
    for row in connection.execute(query):
        found.setdefault(row.dataset_id, []).append(row)
    return found


def _dataset(row: Row[Any], books: Books, versions: list[Row[Any]], viewer: Actor) -> dict[str, Any]:
    ready = any(version.state == "ready" for version in versions)
    state = "ready" if ready else versions[-1].state if versions else "checking"
    facts = {
        "name": row.name,
        "description": row.description,
        "state": state,
        "neighbours": row.neighbours,
        "unit": row.unit_column or "record",
        "max_records_per_unit": row.max_records_per_unit,
        "public_size": row.public_size,
        "labels": row.labels,
        "policy": Policy.model_validate(row.policy).model_dump(mode="json"),
        "overdrawn": books.overdrawn,
        "account": account_view(books),
        "ex_post": ex_post_view(books.ex_post, bool(viewer.roles & OVERSEERS)),
        "secret": secret_view(books.secret),
        "statements": [
            {"currency": each.currency, "text": each.text, "unqualified": each.unqualified}
            for each in statements(books.accounts, books.history, row.neighbours, row.unit_column or "record")
        ],
        "entries": row.chain_seq,
    }
    if "steward" in viewer.roles:
        facts["versions"] = [
            {
                "number": version.number,
                "uri": version.uri,
                "text_template": version.text_template,
                "unit_column": version.unit_column,
                "label_column": version.label_column,
                "state": version.state,
                "error": version.error,
                "created_at": time_text(version.created_at),
            }
            for version in versions
        ]
        newest = versions[-1]
        facts["text_template"] = newest.text_template
        facts["label_column"] = newest.label_column
    return facts
