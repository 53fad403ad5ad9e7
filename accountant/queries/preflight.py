"""Checks of a request before it is submitted, so that a form can show beforehand what is wrong.

Every check is the one that `admitting` makes, here without a lock and without effect. What it says
may have changed by the time of asking; the ledger decides then.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, Row, select

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import FieldProblem, InvalidRequest, NotFound, NotPermitted
from accountant.core.ledger.policy import Policy
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries.dataset_rows import dataset_query
from accountant.tables.accounts_row import read_books
from accountant.transactions import artifacts, job_requests, public_resources, sources
from accountant.transactions.job_requests import JobRequest, Priced


def problems(engine: Engine, request: JobRequest, asker: Actor) -> tuple[FieldProblem, ...]:
    """Return the problems of a request, each with its field as a request names it; nothing where
    there is none.

    Raises NotFound where there is no such dataset. What costs too much is no problem here: a quote
    says so.
    """
    with reading(engine) as connection:
        dataset = _dataset(connection, request.dataset)
        policy = Policy.model_validate(dataset.policy)
        problems = [
            *_told("policy", lambda: job_requests.check_policy(policy, request, asker.name))
        ]
        if not dataset.ready:
            problems.append(
                FieldProblem("dataset", "its data has not been checked yet", "a ready one")
            )
        terms = job_requests.terms_of(dataset, read_books(dataset).accounts)
        try:
            priced = job_requests.priced(request, terms)
        except InvalidRequest as error:
            return (*problems, *error.problems)
        model = _model(connection, request)
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


def _dataset(connection: Connection, name: str) -> Row[Any]:
    versions = tables.dataset_versions
    ready = (
        select(versions.c.id)
        .where(versions.c.dataset_id == tables.datasets.c.id, versions.c.state == "ready")
        .exists()
    )
    query = dataset_query().add_columns(ready.label("ready")).where(tables.datasets.c.name == name)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound("dataset", name)
    return row


def _model(connection: Connection, request: JobRequest) -> Row[Any] | None:
    if request.model is None or not mechanisms.get(request.mechanism).uses_model:
        return None
    models = tables.models
    query = select(models).where(models.c.name == request.model, models.c.kind == "language")
    return connection.execute(query).one_or_none()


def _of_model(request: JobRequest, priced: Priced, model: Row[Any] | None) -> list[FieldProblem]:
    """Return problems with the model: it is not ready, or can't run the request even without a
    template.
    """
    if not mechanisms.get(request.mechanism).uses_model:
        return []
    if model is None or model.state != "ready":
        return [FieldProblem("model", "none that is ready is named", "a registered model")]
    refused = job_requests.context_problem(priced.candidate, model.facts, job_requests.NO_TEMPLATE)
    return [] if refused is None else [FieldProblem("model", refused.why)]
