"""The effect of admitting a job or an offer now, for whoever decides on it.

A page of them takes a fixed number of statements, however many it shows.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, select

from accountant import tables
from accountant.core.errors import ExchequerError
from accountant.core.ledger.admission import Refused
from accountant.core.ledger.caps import ANALYST, PROJECT, Usage, limits
from accountant.core.ledger.policy import Policy
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries.rows import dataset_query, seen_by
from accountant.queries.standing import Shape, Standing, refusal_shown
from accountant.schema.decisions import OfferQuote
from accountant.schema.quotes import Effect
from accountant.tables.accounts_row import read_books
from accountant.transactions import job_requests, offers, owners
from accountant.transactions.artifacts import OVERSEERS
from accountant.transactions.job_requests import Candidate, JobRequest


def effects(
    engine: Engine, viewer: Actor, items: Sequence[Mapping[str, Any]]
) -> list[Effect | None]:
    """Return the effect of each of these jobs or offers on its dataset, were a steward to approve
    it now.

    Each names its dataset, mechanism, parameters, terms, analyst and project.
    """
    if not items:
        return []
    with reading(engine) as connection:
        rows = _datasets(connection, {each["dataset"] for each in items})
        used = _usage(connection, rows)
    return [_effect(each, rows[each["dataset"]], used, viewer) for each in items]


def price_offer(
    engine: Engine, viewer: Actor, job: Mapping[str, Any], changes: Mapping[str, Any]
) -> OfferQuote:
    """Return the price and the effect of `job` with these changed parameters, were a steward to
    offer it now.

    `larger`: where it costs more than what was asked, so that it can't be offered. Raises
    InvalidRequest.
    """
    viewer.require("steward")
    with reading(engine) as connection:
        row = _datasets(connection, {job["dataset"]})[job["dataset"]]
        owners.require(viewer, Policy.model_validate(row.policy), "steward")
        used = _usage(connection, {row.name: row})
    accounts = read_books(row).accounts
    parameters = offers.changed(job["parameters"], changes)
    request = JobRequest(job["dataset"], job["mechanism"], None, parameters)
    priced = job_requests.priced(request, job_requests.terms_of(row, accounts))
    facts = {
        name: priced.columns[name] for name in ("parameters", "terms", "epsilon_alone", "breakdown")
    }
    asked = job_requests.candidate_of(SimpleNamespace(**{name: job[name] for name in _PRICED}))  # type: ignore[arg-type]
    return OfferQuote(
        **facts,
        delta=facts["terms"]["delta"],
        larger=offers.beyond(accounts, priced.candidate, asked),
        effect=_effect({**job, **facts}, row, used, viewer),
    )


_PRICED = ("mechanism", "parameters", "terms", "epsilon_alone")


def _datasets(connection: Connection, names: set[str]) -> dict[str, Row[Any]]:
    """Return the rows of datasets with their accounts, by name."""
    query = dataset_query().where(tables.datasets.c.name.in_(names))
    return {row.name: row for row in connection.execute(query)}


def _usage(
    connection: Connection, rows: Mapping[str, Row[Any]]
) -> dict[tuple[UUID, str, str], int]:
    """Return the use, by people's names and by projects, of the datasets that cap it."""
    capped = [row.id for row in rows.values() if limits(Policy.model_validate(row.policy))]
    if not capped:
        return {}
    table = tables.usage
    found = connection.execute(select(table).where(table.c.dataset_id.in_(capped))).all()
    people = {UUID(each.holder) for each in found if each.kind == ANALYST}
    users = select(tables.users.c.id, tables.users.c.name).where(tables.users.c.id.in_(people))
    names = {str(row.id): row.name for row in connection.execute(users)}
    return {
        (each.dataset_id, each.kind, names.get(each.holder, each.holder)): each.spent
        + each.reserved
        for each in found
    }


def _effect(
    item: Mapping[str, Any],
    row: Row[Any],
    usage: Mapping[tuple[UUID, str, str], int],
    viewer: Actor,
) -> Effect | None:
    accounts, policy = read_books(row).accounts, Policy.model_validate(row.policy)
    facts = {name: item[name] for name in _PRICED}
    try:
        candidate = job_requests.candidate_of(SimpleNamespace(**facts))  # type: ignore[arg-type]
        used = Usage(
            usage.get((row.id, ANALYST, item["analyst"]), 0),
            usage.get((row.id, PROJECT, item["project"] or ""), 0),
        )
        shown = bool(seen_by(viewer, row).roles & OVERSEERS)
        standing = Standing(accounts, used, policy)
        told = refusal_shown(_refusal(candidate, standing), accounts.ex_post.settlement, shown)
        job = Shape(candidate.asked, candidate.epsilon_alone)
        return standing.effect(job, terms=candidate.terms, realized_shown=shown, refusal=told)
    except (ExchequerError, ArithmeticError, ValueError):
        return None


def _refusal(job: Candidate, standing: Standing) -> dict[str, Any] | None:
    decision = standing.decide(Shape(job.asked, job.epsilon_alone), approved=True)
    if not isinstance(decision, Refused):
        return None
    accounts, policy, used = standing.accounts, standing.policy, standing.used
    return job_requests.with_largest(decision, job, accounts, policy, used).to_json()
