"""The effect of admitting a job or an offer now, for whoever decides on it.

A page of them takes a fixed number of statements, however many it shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, select

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import Conflict, ExchequerError, VerificationFailed
from accountant.core.ledger import charges
from accountant.core.ledger.accounts import Accounts
from accountant.core.ledger.admission import Refused
from accountant.core.ledger.allowances import Allowance, allowance_body, raises
from accountant.core.ledger.books import Books
from accountant.core.ledger.caps import ANALYST, PROJECT, Usage, limits
from accountant.core.ledger.fair_use import Shared
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy
from accountant.core.mechanisms.outlooks import outlook
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries.dataset_rows import dataset_query, dataset_row, seen_by
from accountant.queries.quotes import facts_of, outlook_of, output_of
from accountant.queries.standing import Shape, Standing, refusal_shown
from accountant.schema.datasets import FilterChange, Preview
from accountant.schema.decisions import OfferQuote
from accountant.schema.quotes import Effect
from accountant.tables.accounts_row import read_books
from accountant.transactions import cap_usage, job_requests, offers, owners
from accountant.transactions.artifacts import OVERSEERS
from accountant.transactions.job_requests import Candidate, JobRequest


def effects(
    engine: Engine, viewer: Actor, items: Sequence[Mapping[str, Any]], with_largest: bool = True
) -> list[Effect | None]:
    """Return the effect of each of these jobs or offers on its dataset, were a steward to approve
    it now.

    Each names its dataset, mechanism, model, parameters, terms, analyst and project.
    `with_largest`: of what would be refused, the largest size that fits; a search over prices each.
    """
    if not items:
        return []
    with reading(engine) as connection:
        found = _datasets(connection, {item["dataset"] for item in items})
        used = _usage(connection, found)
        facts = facts_of(connection, {item["model"] for item in items})
    return [
        _effect(item, found[item["dataset"]], used, facts, viewer, with_largest) for item in items
    ]


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
        found = _datasets(connection, {job["dataset"]})
        dataset = found[job["dataset"]]
        owners.require(viewer, dataset.policy, "steward")
        used = _usage(connection, found)
        of_models = facts_of(connection, {job["model"]})
    parameters = offers.changed(job["parameters"], changes)
    request = JobRequest(job["dataset"], job["mechanism"], None, parameters)
    priced = job_requests.priced(request, job_requests.terms_of(dataset.row, dataset.accounts))
    facts = {
        name: priced.columns[name] for name in ("parameters", "terms", "epsilon_alone", "breakdown")
    }
    candidate = job_requests.candidate_of(SimpleNamespace(**{name: job[name] for name in _PRICED}))  # type: ignore[arg-type]
    return OfferQuote(
        **facts,
        delta=facts["terms"]["delta"],
        larger=offers.beyond(dataset.accounts, priced.candidate, candidate),
        effect=_effect({**job, **facts}, dataset, used, of_models, viewer),
    )


_PRICED = ("mechanism", "parameters", "terms", "epsilon_alone")


class _Dataset(NamedTuple):
    """A dataset's row with what is read of it."""

    row: Row[Any]
    accounts: Accounts
    policy: Policy


def _datasets(connection: Connection, names: set[str]) -> dict[str, _Dataset]:
    """Return datasets with their accounts, by name."""
    query = dataset_query().where(tables.datasets.c.name.in_(names))
    return {
        row.name: _Dataset(row, read_books(row).accounts, Policy.model_validate(row.policy))
        for row in connection.execute(query)
    }


class _Used(NamedTuple):
    """The use of datasets that cap it, by people's names and by projects, and of shared ε."""

    sums: Mapping[tuple[UUID, str, str], int]
    shared: Mapping[UUID, Shared]


def _usage(connection: Connection, datasets: Mapping[str, _Dataset]) -> _Used:
    """Return the use of these datasets."""
    policies = {dataset.row.id: dataset.policy for dataset in datasets.values()}
    capped, now = [key for key, policy in policies.items() if limits(policy)], datetime.now(UTC)
    if not capped:
        return _Used({}, {})
    found = {key: cap_usage.shared(connection, key, policies[key], now) for key in capped}
    table = tables.usage
    usage_rows = connection.execute(select(table).where(table.c.dataset_id.in_(capped))).all()
    people = {UUID(row.holder) for row in usage_rows if row.kind == ANALYST}
    users = select(tables.users.c.id, tables.users.c.name).where(tables.users.c.id.in_(people))
    names = {str(row.id): row.name for row in connection.execute(users)}
    sums = {
        (row.dataset_id, row.kind, names.get(row.holder, row.holder)): row.spent + row.reserved
        for row in usage_rows
    }
    return _Used(sums, {key: shared for key, shared in found.items() if shared is not None})


def _effect(
    item: Mapping[str, Any],
    dataset: _Dataset,
    usage: _Used,
    of_models: Mapping[str, Mapping[str, Any]],
    viewer: Actor,
    with_largest: bool = True,
) -> Effect | None:
    row, accounts, policy = dataset
    facts = {name: item[name] for name in _PRICED}
    try:
        candidate = job_requests.candidate_of(SimpleNamespace(**facts))  # type: ignore[arg-type]
        used = Usage(
            usage.sums.get((row.id, ANALYST, item["analyst"]), 0),
            usage.sums.get((row.id, PROJECT, item["project"] or ""), 0),
        )
        vouched = charges.level(item["mechanism"], item["parameters"])
        if vouched != charges.MEASURED:
            of_level: dict[str, Any] = {vouched: usage.sums.get((row.id, vouched, "charges"), 0)}
            used = replace(used, **of_level)
        sharer = cap_usage.sharer(policy, item["analyst"], item["project"])
        used = used.sharing(usage.shared.get(row.id), sharer)
        shown = bool(seen_by(viewer, row).roles & OVERSEERS)
        standing = Standing(accounts, used, policy)
        found = _refusal(candidate, standing, with_largest)
        refusal = refusal_shown(found, accounts.ex_post.settlement, shown)
        job = Shape(candidate.asked, candidate.epsilon_alone)
        effect = standing.effect(job, terms=candidate.terms, realized_shown=shown, refusal=refusal)
        mechanism = mechanisms.get(candidate.mechanism)
        asked = (candidate.resolved, candidate.terms)
        of_model = of_models.get(item["model"] or "")
        told = {
            "unit": row.unit_column or "record",
            "output": output_of(mechanism.yields(*asked)),
            "outlook": outlook_of(outlook(mechanism, *asked, of_model)),
        }
        return effect.model_copy(update=told)
    except (ExchequerError, ArithmeticError, ValueError):
        return None


def _refusal(job: Candidate, standing: Standing, with_largest: bool) -> dict[str, Any] | None:
    decision = standing.decide(Shape(job.asked, job.epsilon_alone), approved=True)
    if not isinstance(decision, Refused):
        return None
    if with_largest:
        account_facts = standing.accounts, standing.policy, standing.used
        decision = job_requests.with_largest(decision, job, *account_facts)
    return decision.to_json()


# --- The changes that an allowance would make. Reads only ----------------------------------------


def preview(engine: Engine, dataset: str, allowance: Allowance, actor: Actor) -> Preview:
    """Return the changes that an allowance would make: each limit before and after; whether two
    people are needed.

    `filters` and `others` have what is used beside the limits; amounts are decimals. Raises
    InvalidRequest, NotFound, and Conflict where it would be less than is spent and reserved.
    Nothing is written.
    """
    actor.require("steward")
    with reading(engine) as connection:
        row = dataset_row(connection, dataset)
        owners.require(actor, Policy.model_validate(row.policy), "steward")
    return effect_of(
        row, allowance_body(allowance, read_books(row), row.neighbours, row.unit_column)
    )


def effect_of(row: Row[Any], body: Mapping[str, Any]) -> Preview:
    """Return the changes by an ALLOW with this body to an account's row.

    Raises Conflict if less would be allowed than is spent and reserved.
    """
    books = read_books(row)
    try:
        after = books.apply(EntryKind.ALLOW, None, body, None)
    except VerificationFailed:
        raise Conflict("more than that is already spent or reserved") from None
    is_raise = raises(books, body)
    return Preview(
        neighbours=row.neighbours,
        unit=row.unit_column or "record",
        is_raise=is_raise,
        two_people=is_raise and Policy.model_validate(row.policy).two_people,
        after_release=is_raise and books.history.jobs > 0,
        filters=_filter_changes(books, after),
        others=_other_changes(books, after),
    )


def _filter_changes(before: Books, after: Books) -> list[FilterChange]:
    old = (
        {}
        if before.account is None
        else {filter_.filter.kind: filter_ for filter_ in before.account.filters}
    )
    return [
        FilterChange(
            kind=str(filter_.filter.kind),
            share=float(filter_.filter.share),
            used=to_decimal(filter_.used.main, EPSILON_UNITS),
            before=to_decimal(old[filter_.filter.kind].limit.main, EPSILON_UNITS) if old else None,
            after=to_decimal(filter_.limit.main, EPSILON_UNITS),
            holds=filter_.holds,
        )
        for filter_ in (() if after.account is None else after.account.filters)
    ]


def _other_changes(before: Books, after: Books) -> list[dict[str, Any]]:
    """Return the limits of the other two currencies, where they differ."""
    changes: list[dict[str, Any]] = []
    if (before.ex_post.limit, before.ex_post.settlement) != (
        after.ex_post.limit,
        after.ex_post.settlement,
    ):
        stated = [
            f"{to_decimal(books.ex_post.limit, EPSILON_UNITS)}, {books.ex_post.settlement}"
            for books in (before, after)
        ]
        changes.append({"name": "ex-post caps", "before": stated[0], "after": stated[1]})
    bounds = [
        None if books.secret is None else f"{books.secret.terms.bound:g}"
        for books in (before, after)
    ]
    if bounds[0] != bounds[1]:
        changes.append({"name": "bound on secrets", "before": bounds[0], "after": bounds[1]})
    return changes
