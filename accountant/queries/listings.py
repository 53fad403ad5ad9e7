"""Lists that people page through: the catalogue of datasets and the list of jobs.

One query a page, whatever it holds. Pages go by key, so that one deep in a list is as quick as the first,
and a page is the same for whoever follows its link while rows are added before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Engine, Row, Select, Text, cast, func, or_, select
from sqlalchemy.dialects.postgresql import aggregate_order_by

from accountant import tables
from accountant.core.ledger.policy import Policy
from accountant.identities.actor import Actor
from accountant.queries.account_views import account_view
from accountant.tables import paging
from accountant.tables.accounts_row import read_books
from accountant.transactions.artifacts import OVERSEERS

# --- datasets -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """Which datasets: with `text` in name, description or a label; that admit `mechanism`; that are `open`
    to whoever looks, with an allowance and data that is ready."""

    text: str = ""
    mechanism: str | None = None
    open: bool = False


EVERY_DATASET = Wanted()


def catalogue(
    engine: Engine, viewer: Actor, wanted: Wanted, *, after: paging.After = None, limit: int = 50
) -> list[dict[str, Any]]:
    """Datasets by name, with public facts and what is left; `after` (name,) continues a listing."""
    datasets, versions = tables.datasets, tables.dataset_versions
    states = (
        select(func.array_agg(aggregate_order_by(versions.c.state, versions.c.number)))
        .where(versions.c.dataset_id == datasets.c.id)
        .scalar_subquery()
    )
    columns = [column for column in tables.accounts.c if column.name != "dataset_id"]
    query = (
        select(datasets, *columns, states.label("states"))
        .join(tables.accounts, tables.accounts.c.dataset_id == datasets.c.id)
        .where(*conditions(wanted, viewer))
    )
    query = paging.window(query, [datasets.c.name], limit, after, descending=False)
    with engine.connect() as connection:
        return [_dataset(row, viewer) for row in connection.execute(query)]


def conditions(wanted: Wanted, viewer: Actor) -> list[ColumnElement[bool]]:
    """What a query of datasets with their accounts is narrowed by."""
    datasets = tables.datasets
    found: list[ColumnElement[bool]] = []
    for word in wanted.text.split():
        labels = func.lower(cast(datasets.c.labels, Text))
        lowered = word.lower()
        found.append(
            or_(
                func.strpos(func.lower(datasets.c.name), lowered) > 0,
                func.strpos(func.lower(datasets.c.description), lowered) > 0,
                func.strpos(labels, lowered) > 0,
            )
        )
    if wanted.mechanism is not None:
        found.append(_allows("mechanisms", wanted.mechanism))
    if wanted.open:
        versions = tables.dataset_versions
        ready = select(versions.c.id).where(
            versions.c.dataset_id == datasets.c.id, versions.c.state == "ready"
        )
        found += [_allows("analysts", viewer.name), ready.exists(), tables.accounts.c.epsilon > 0]
    return found


def _allows(name: str, value: str) -> ColumnElement[bool]:
    """Whether a list of the policy is empty, which allows everything, or holds the value."""
    listed = tables.datasets.c.policy[name]
    return or_(func.coalesce(func.jsonb_array_length(listed), 0) == 0, listed.has_key(value))


def _dataset(row: Row[Any], viewer: Actor) -> dict[str, Any]:
    policy = Policy.model_validate(row.policy)
    account = account_view(read_books(row))
    best = None
    if account is not None:
        best = next((e for e in account["filters"] if e["kind"] == account["best_filter"]), None)
    states = row.states or []
    return {
        "name": row.name,
        "description": row.description,
        "state": "ready" if "ready" in states else states[-1] if states else "checking",
        "unit": row.unit_column or "record",
        "neighbours": row.neighbours,
        "public_size": row.public_size,
        "labels": row.labels,
        "account": account,
        "best": best,
        "overdrawn": row.overdrawn,
        "may_ask": not policy.analysts or viewer.name in policy.analysts,
    }


# --- jobs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WantedJobs:
    """Which jobs; None: all. `since` is included, `until` is not."""

    dataset: str | None = None
    mechanism: str | None = None
    state: str | None = None
    analyst: str | None = None
    since: datetime | None = None
    until: datetime | None = None


EVERY_JOB = WantedJobs()


def jobs(
    engine: Engine,
    viewer: Actor,
    wanted: WantedJobs = EVERY_JOB,
    *,
    after: paging.After = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Jobs that `viewer` may see, newest first, as rows of a list.

    `after` (created_at, id) continues a listing.
    """
    table = tables.jobs
    narrowed = _rows().where(*job_conditions(wanted, viewer))
    query = paging.window(narrowed, [table.c.created_at, table.c.id], limit, after)
    with engine.connect() as connection:
        return [_job(row._mapping) for row in connection.execute(query)]


def job_conditions(wanted: WantedJobs, viewer: Actor) -> list[ColumnElement[bool]]:
    """What a query of jobs is narrowed by: those wanted, of those that `viewer` may see."""
    table = tables.jobs
    found: list[ColumnElement[bool]] = []
    names = {"dataset_id": (tables.datasets, wanted.dataset), "analyst_id": (tables.users, wanted.analyst)}
    for column, (named, name) in names.items():
        if name is not None:
            owner = select(named.c.id).where(named.c.name == name).scalar_subquery()
            found.append(table.c[column] == owner)
    if wanted.mechanism is not None:
        found.append(table.c.mechanism == wanted.mechanism)
    if wanted.state is not None:
        found.append(table.c.state == wanted.state)
    if wanted.since is not None:
        found.append(table.c.created_at >= wanted.since)
    if wanted.until is not None:
        found.append(table.c.created_at < wanted.until)
    if not viewer.roles & OVERSEERS:
        found.append(table.c.analyst_id == viewer.id)
    return found


def _rows() -> Select[Any]:
    """What a row of the list shows: the long columns of a job stay where they are."""
    table = tables.jobs
    return (
        select(
            *[table.c[name] for name in ("id", "state", "mechanism", "epsilon_alone", "purpose", "project")],
            table.c.created_at,
            table.c.parameters["ex_post_cap"].label("ex_post_cap"),
            tables.datasets.c.name.label("dataset"),
            tables.users.c.name.label("analyst"),
        )
        .join(tables.datasets, tables.datasets.c.id == table.c.dataset_id)
        .join(tables.users, tables.users.c.id == table.c.analyst_id)
    )


def _job(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {**row, "id": str(row["id"]), "created_at": row["created_at"].isoformat()}
