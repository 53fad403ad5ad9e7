"""Checks of a request before it is submitted, so that a form can show beforehand what is wrong.

Every check is the one that `admitting` makes, here without a lock and without effect. What it says
may have changed by the time of asking; the ledger decides then.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Engine,
    Row,
    Select,
    cast,
    literal,
    or_,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import JSONB

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import FieldProblem, InvalidRequest, NotPermitted
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms import rehearsal
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries.dataset_rows import dataset_row, language_model_row
from accountant.tables.accounts_row import read_books
from accountant.transactions import artifacts, job_requests, owners, public_resources, sources
from accountant.transactions.artifacts import OVERSEERS
from accountant.transactions.job_requests import JobRequest, Priced


def problems(engine: Engine, request: JobRequest, asker: Actor) -> tuple[FieldProblem, ...]:
    """Return the problems of a request, each with its field as a request names it; nothing where
    there is none.

    Raises NotFound where there is no such dataset. What costs too much is no problem here: a quote
    says so.
    """
    with reading(engine) as connection:
        dataset = dataset_row(connection, request.dataset)
        policy = Policy.model_validate(dataset.policy)
        problems = [
            *_told("policy", lambda: job_requests.check_policy(policy, request, asker.name))
        ]
        problems += _told(
            "mechanism", lambda: job_requests.check_data(request.mechanism, dataset.data_is_here)
        )
        if not dataset.ready:
            problems.append(
                FieldProblem("dataset", "its data has not been checked yet", "a ready one")
            )
        terms = job_requests.terms_of(dataset, read_books(dataset).accounts)
        try:
            priced = job_requests.priced(request, terms)
        except InvalidRequest as error:
            return (*problems, *error.problems)
        model = None
        if mechanisms.get(request.mechanism).uses_model:
            model = language_model_row(connection, request.model)
        problems += _of_model(request, priced, model)
        model_id = None if model is None else model.id
        problems += _told(
            "policy", lambda: public_resources.resolve(connection, priced.candidate, policy)
        )
        problems += _told(
            "policy", lambda: artifacts.source(connection, dataset.id, model_id, priced, asker)
        )
        problems += _told(
            "policy",
            lambda: sources.resolve(connection, dataset.id, model_id, priced.candidate, asker),
        )
    return tuple(problems)


def _told(field: str, check: Callable[[], object]) -> tuple[FieldProblem, ...]:
    """Return the problems that a check raises; a refusal by the policy stands under `field`."""
    try:
        check()
    except InvalidRequest as error:
        return error.problems
    except NotPermitted as error:
        return (FieldProblem(field, str(error)),)
    return ()


def _of_model(request: JobRequest, priced: Priced, model: Row[Any] | None) -> list[FieldProblem]:
    """Return problems with the model: not ready, or unable to run the request in any case."""
    if not mechanisms.get(request.mechanism).uses_model:
        return []
    if model is None or model.state != "ready":
        return [FieldProblem("model", "none that is ready is named", "a registered model")]
    refused = job_requests.context_problem(priced.candidate, model.facts, job_requests.NO_TEMPLATE)
    return [] if refused is None else [FieldProblem("model", refused.why)]


#: The facts of a request by which a rehearsal is found.
FACTS = ("dataset", "mechanism", "model", "parameters")


def latest_rehearsals(
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


def other_rehearsals(
    engine: Engine, viewer: Actor, item: Mapping[str, Any], limit: int
) -> Sequence[Row[Any]]:
    """Return the newest rehearsals of this mechanism and model on the dataset."""
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
    """Return clauses by which a rehearsal's parameters, without its own fields, are these."""
    parameters: Any = tables.jobs.c.parameters
    for field in rehearsal.FIELDS:
        parameters = parameters.op("-")(field)
    same = parameters == cast(item["parameters"], JSONB)
    return (same,) if of_job is None else (same, tables.jobs.c.id == UUID(of_job))
