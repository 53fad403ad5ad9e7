"""All datasets that somebody oversees, in one table: what is left, how fast it goes, what waits.

Two statements of one moment, however many datasets there are.
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, Engine, Numeric, Select, Subquery, case, cast, func, select
from sqlalchemy.dialects.postgresql import JSONB, distinct_on

from accountant import tables
from accountant.core.privacy.filters import Kind
from accountant.core.privacy.units import EPSILON_UNITS
from accountant.database import one_moment, reading
from accountant.identities.actor import Actor
from accountant.queries import datasets
from accountant.queries.dataset_rows import require_overseer
from accountant.transactions import owners
from accountant.transactions.artifacts import OVERSEERS

PACE_DAYS = 90
#: A request that expires in fewer days is warned of, and an allowance with less left.
SOON_DAYS = 3
LITTLE = 0.1


def overview(
    engine: Engine, viewer: Actor, wanted: datasets.Wanted = datasets.EVERY_DATASET
) -> list[dict[str, Any]]:
    """Return the datasets that `viewer` oversees, by name. Raises NotPermitted.

    `pace` is the share of the filter with most room that went in the last PACE_DAYS, reservations
    of live jobs among it.
    """
    require_overseer(viewer)
    with one_moment(engine):
        facts = _facts(engine, viewer)
        listed = datasets.datasets(engine, viewer, wanted)
    documents = [dataset.document() for dataset in listed if dataset.name in facts]
    return [_row(document, facts[document["name"]]) for document in documents]


def _facts(engine: Engine, viewer: Actor) -> dict[str, Any]:
    """Return by name what waits for a decision, what was released last, and what was spent."""
    jobs, own = tables.jobs, tables.datasets.c.id
    waits = jobs.c.state == "awaiting_approval"
    of_jobs = (
        select(
            jobs.c.dataset_id,
            func.count().filter(waits).label("waiting"),
            func.min(jobs.c.approval_expires).filter(waits).label("expires"),
            func.max(jobs.c.finished_at).filter(jobs.c.state == "succeeded").label("released"),
        )
        .group_by(jobs.c.dataset_id)
        .subquery()
    )
    spent = _spent(datetime.now(UTC) - timedelta(days=PACE_DAYS)).subquery()
    query = (
        select(tables.datasets.c.name, of_jobs, spent)
        .outerjoin(of_jobs, of_jobs.c.dataset_id == own)
        .outerjoin(spent, spent.c.dataset_id == own)
        .where(owners.overseen(viewer, OVERSEERS))
    )
    with reading(engine) as connection:
        return {row["name"]: row for row in connection.execute(query).mappings()}


def _spent(since: datetime) -> Select[Any]:
    """Return what jobs were charged since then, by dataset and filter; reservations count.

    A job's charge is that of its last entry. What its last entry before `since` held is taken off.
    """
    entries = tables.entries
    recent = select(entries.c.job_id).where(entries.c.at > since)

    def last(*conditions: ColumnElement[bool]) -> Subquery:
        key = (entries.c.dataset_id, entries.c.job_id)
        rows = select(*key, entries.c.kind, cast(entries.c.document, JSONB).label("document"))
        rows = rows.where(entries.c.job_id.is_not(None), *conditions).ext(distinct_on(*key))
        return rows.order_by(*key, entries.c.seq.desc()).subquery()

    def charge(row: Subquery, kind: Kind) -> ColumnElement[Any]:
        amount = cast(row.c.document["body"]["costs"][str(kind)]["main"].astext, Numeric)
        return case((row.c.kind == "VOID", 0), else_=func.coalesce(amount, 0))

    now, before = (
        last(entries.c.at > since),
        last(entries.c.at <= since, entries.c.job_id.in_(recent)),
    )
    sums = (func.sum(charge(now, kind) - charge(before, kind)).label(str(kind)) for kind in Kind)
    joined = now.outerjoin(before, before.c.job_id == now.c.job_id)
    return select(now.c.dataset_id, *sums).select_from(joined).group_by(now.c.dataset_id)


def _row(dataset: dict[str, Any], facts: Any) -> dict[str, Any]:
    account = dataset["account"]
    filters = [] if account is None else account["filters"]
    best = next((one for one in filters if one["kind"] == account["best_filter"]), None)
    pace = None
    if best is not None and Decimal(best["limit"]):
        share = int(facts[best["kind"]] or 0) / (Decimal(best["limit"]) * EPSILON_UNITS)
        pace = max(float(share), 0.0)
    left = None if account is None else max(1 - account["used_share"], 0.0)
    return {
        "name": dataset["name"],
        "epsilon": account and account["epsilon"],
        "delta": account and account["delta"],
        "left": left,
        "pace": pace,
        "waiting": facts["waiting"] or 0,
        "last_release": facts["released"] and facts["released"].isoformat(),
        "expires": facts["expires"] and facts["expires"].isoformat(),
        "warnings": _warnings(dataset, left, facts["expires"]),
    }


def _warnings(dataset: dict[str, Any], left: float | None, expires: datetime | None) -> list[str]:
    soon = datetime.now(UTC) + timedelta(days=SOON_DAYS)
    known = {
        "data refused": dataset["state"] == "invalid",
        "no allowance": left is None,
        "overdrawn": dataset["overdrawn"],
        "little left": left is not None and left < LITTLE,
        "a request expires soon": expires is not None and expires < soon,
    }
    return [warning for warning, holds in known.items() if holds]
