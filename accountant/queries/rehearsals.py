"""Rehearsals of a request: the latest with its very parameters, and others of its mechanism."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Engine, Row, Select, cast, literal, or_, select, union_all
from sqlalchemy.dialects.postgresql import JSONB

from accountant import tables
from accountant.core.mechanisms import rehearsal
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.transactions import owners
from accountant.transactions.artifacts import OVERSEERS

#: The facts of a request by which a rehearsal is found.
FACTS = ("dataset", "mechanism", "model", "parameters")


def latest(
    engine: Engine, viewer: Actor, items: Sequence[Mapping[str, Any]], of_job: str | None = None
) -> list[Row[Any] | None]:
    """For each request (`FACTS`) the newest rehearsal with its parameters that the viewer may see,
    or None.

    `of_job`: no other than this one. A row has the job's id, its corpus, when it was asked for, and
    the SHA-256 of its report.
    """
    if not items:
        return []
    newest = [_of(item, viewer).where(*_same(item, of_job)).limit(1).subquery() for item in items]
    every = union_all(
        *(select(literal(number).label("item"), item) for number, item in enumerate(newest))
    )
    with reading(engine) as connection:
        rows = {row.item: row for row in connection.execute(every)}
    return [rows.get(number) for number in range(len(items))]


def others(
    engine: Engine, viewer: Actor, item: Mapping[str, Any], limit: int
) -> Sequence[Row[Any]]:
    """Return the newest rehearsals of the request's mechanism and model on its dataset, of any
    parameters.
    """
    with reading(engine) as connection:
        return connection.execute(_of(item, viewer).limit(limit)).all()


def _of(item: Mapping[str, Any], viewer: Actor) -> Select[Any]:
    jobs, rows = tables.jobs, tables.artifacts
    query = (
        select(
            jobs.c.id,
            jobs.c.created_at,
            jobs.c.parameters[rehearsal.CORPUS].astext.label("corpus"),
            jobs.c.output_sha256,
            rows.c.sha256,
            rows.c.size,
        )
        .join(tables.datasets, tables.datasets.c.id == jobs.c.dataset_id)
        .outerjoin(tables.models, tables.models.c.id == jobs.c.model_id)
        .join(rows, rows.c.job_id == jobs.c.id)
        .where(
            tables.datasets.c.name == item["dataset"],
            jobs.c.mechanism == rehearsal.PREFIX + item["mechanism"],
            tables.models.c.name.is_not_distinct_from(item["model"]),
            jobs.c.state == "succeeded",
            rows.c.kind == rehearsal.REPORT,
        )
        .order_by(jobs.c.created_at.desc(), jobs.c.id)
    )
    mine = jobs.c.analyst_id == viewer.id
    return query.where(or_(mine, owners.overseen(viewer)) if viewer.roles & OVERSEERS else mine)


def _same(item: Mapping[str, Any], of_job: str | None) -> tuple[ColumnElement[bool], ...]:
    """Return the clauses by which a rehearsal's parameters, without its own fields, are the
    request's.
    """
    parameters: Any = tables.jobs.c.parameters
    for field in rehearsal.FIELDS:
        parameters = parameters.op("-")(field)
    same = parameters == cast(item["parameters"], JSONB)
    return (same,) if of_job is None else (same, tables.jobs.c.id == UUID(of_job))
