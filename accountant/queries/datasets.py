"""Datasets as a viewer may see them: terms, accounts, caps and statements.

One statement per page. Pages go by key, so that one deep in a list is as quick as the first.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Text,
    cast,
    func,
    or_,
    select,
)

from accountant import tables
from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest
from accountant.core.ledger.books import Books
from accountant.core.ledger.caps import ANALYST, NO_USAGE, RELEASE, limits
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.statements import statements
from accountant.core.privacy.price import Terms
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.database import kept, reading
from accountant.identities.actor import Actor
from accountant.queries.account_views import account_view, ex_post_view, secret_view
from accountant.queries.dataset_rows import dataset_row, seen_by, whole_query
from accountant.queries.standing import Shape, Standing
from accountant.schema.datasets import (
    Cap,
    Dataset,
    DatasetInCatalogue,
    Remaining,
    Statement,
    Version,
)
from accountant.tables import paging
from accountant.tables.accounts_row import read_books
from accountant.transactions import cap_usage, unit_fingerprints
from accountant.transactions.artifacts import OVERSEERS
from accountant.transactions.job_requests import price_of, terms_of


@dataclass(frozen=True)
class Wanted:
    """Search terms for datasets: `text` in name, description or a label; the policy admits
    `mechanism`; `open` to the reader, with an allowance and data that is ready.
    """

    text: str = ""
    mechanism: str | None = None
    open: bool = False


EVERY_DATASET = Wanted()


def datasets(
    engine: Engine,
    viewer: Actor,
    wanted: Wanted = EVERY_DATASET,
    *,
    limit: int | None = None,
    after: paging.After = None,
) -> list[DatasetInCatalogue]:
    """Return the catalogue, by name; `after` (name,) continues a listing."""
    narrowed = whole_query().where(*_conditions(wanted, viewer))
    query = paging.window(narrowed, [tables.datasets.c.name], limit, after, descending=False)
    with reading(engine) as connection:
        return [
            DatasetInCatalogue(**_fields(connection, row, viewer))
            for row in connection.execute(query)
        ]


@kept
def dataset(engine: Engine, name: str, viewer: Actor) -> Dataset:
    """Return one dataset. Raises NotFound."""
    with reading(engine) as connection:
        found = dataset_row(connection, name)
        return Dataset(
            **_fields(connection, found, viewer),
            caps=_caps(connection, found, viewer),
            remaining=_remaining(connection, found, viewer),
        )


def roles_on(engine: Engine, name: str, viewer: Actor) -> frozenset[str]:
    """Return the roles of `viewer` on a dataset, which may have owners. Raises NotFound."""
    with reading(engine) as connection:
        return seen_by(viewer, dataset_row(connection, name)).roles


def labels(engine: Engine, name: str) -> list[str]:
    """Return the labels of a dataset, which are public."""
    with reading(engine) as connection:
        return list(dataset_row(connection, name).labels)


def _caps(connection: Connection, row: Row[Any], viewer: Actor) -> list[Cap]:
    """Return the room under the policy's caps: an analyst sees their own and their projects'."""
    policy = Policy.model_validate(row.policy)
    set_by = limits(policy)
    if not set_by:
        return []
    table, users = tables.usage, tables.users
    holders = {str(viewer.id), *_projects(connection, row.id, viewer)}
    names = {
        str(user.id): user.name for user in connection.execute(select(users.c.id, users.c.name))
    }
    query = select(table).where(table.c.dataset_id == row.id).order_by(table.c.kind, table.c.holder)
    used = {
        (usage_row.kind, usage_row.holder): usage_row.spent + usage_row.reserved
        for usage_row in connection.execute(query)
    }
    if ANALYST in set_by and viewer.roles & {"analyst", "steward"}:
        used.setdefault((ANALYST, str(viewer.id)), 0)
    caps = [
        (kind, names.get(holder, holder) if kind == ANALYST else holder, amount)
        for (kind, holder), amount in used.items()
        if kind in set_by and (seen_by(viewer, row).roles & OVERSEERS or holder in holders)
    ]
    shared = cap_usage.shared(connection, row.id, policy, datetime.now(UTC))
    if shared is not None:
        own = holders if policy.share_by_project else {viewer.name}
        seen = {*shared.sharing.weights, *own} if seen_by(viewer, row).roles & OVERSEERS else own
        sharers = sorted(seen - {str(viewer.id)})
        caps += [(RELEASE, name, set_by[RELEASE] - shared.room(name)) for name in sharers]
    return [
        Cap(
            kind=kind,
            name=name,
            limit=to_decimal(set_by[kind], EPSILON_UNITS),
            used=to_decimal(amount, EPSILON_UNITS),
            left=to_decimal(max(set_by[kind] - amount, 0), EPSILON_UNITS),
        )
        for kind, name, amount in caps
    ]


#: Of such jobs one is what "another like the last" means.
_CHARGED = ("queued", "running", "settling", "succeeded", "failed", "cancelled")


def _remaining(connection: Connection, row: Row[Any], viewer: Actor) -> Remaining | None:
    """Return what is left and buys: jobs like the last charged one that `viewer` may see."""
    accounts, policy = read_books(row).accounts, Policy.model_validate(row.policy)
    terms = terms_of(row, accounts)
    used = NO_USAGE
    if limits(policy):
        used = cap_usage.used(connection, row.id, cap_usage.holders_of(viewer.id, None))
        shared = cap_usage.shared(connection, row.id, policy, datetime.now(UTC))
        used = used.sharing(shared, cap_usage.sharer(policy, viewer.name, None))
    shown = Standing(accounts, used, policy).shown(bool(seen_by(viewer, row).roles & OVERSEERS))
    return shown.remaining(terms, _last_job(connection, row, viewer, terms), "the last")


def _last_job(connection: Connection, row: Row[Any], viewer: Actor, terms: Terms) -> Shape | None:
    """Return what the newest charged job that the viewer may see would ask today, or None."""
    jobs, entries = tables.jobs, tables.entries
    reserved = select(entries.c.seq).where(
        entries.c.job_id == jobs.c.id, entries.c.kind == "RESERVE"
    )
    query = select(jobs.c.mechanism, jobs.c.parameters).where(
        jobs.c.dataset_id == row.id,
        jobs.c.state.in_(_CHARGED),
        jobs.c.reads_records,
        reserved.exists(),
    )
    if not seen_by(viewer, row).roles & OVERSEERS:
        query = query.where(jobs.c.analyst_id == viewer.id)
    job = connection.execute(
        query.order_by(jobs.c.created_at.desc(), jobs.c.id).limit(1)
    ).one_or_none()
    mechanism = None if job is None else mechanisms.MECHANISMS.get(job.mechanism)
    if job is None or mechanism is None:
        return None
    try:
        price = price_of(mechanism, mechanism.parse(job.parameters, terms), terms)
        return Shape.of(price, terms.delta)
    except (InvalidRequest, ArithmeticError, ValueError):
        return None  # under today's terms it has no price


def _projects(connection: Connection, dataset_id: UUID, viewer: Actor) -> set[str]:
    """Return the projects for which somebody asked on a dataset."""
    mine = (tables.jobs.c.dataset_id == dataset_id, tables.jobs.c.analyst_id == viewer.id)
    query = select(tables.jobs.c.project).where(*mine, tables.jobs.c.project.is_not(None))
    return set(connection.execute(query.distinct()).scalars())


def _conditions(wanted: Wanted, viewer: Actor) -> list[ColumnElement[bool]]:
    """Return the clauses that narrow a query of datasets with their accounts."""
    datasets = tables.datasets
    terms: list[ColumnElement[bool]] = []
    for word in wanted.text.split():
        labels = func.lower(cast(datasets.c.labels, Text))
        lowered = word.lower()
        terms.append(
            or_(
                func.strpos(func.lower(datasets.c.name), lowered) > 0,
                func.strpos(func.lower(datasets.c.description), lowered) > 0,
                func.strpos(labels, lowered) > 0,
            )
        )
    if wanted.mechanism is not None:
        terms.append(_allows("mechanisms", wanted.mechanism))
    if wanted.open:
        versions = tables.dataset_versions
        ready = select(versions.c.id).where(
            versions.c.dataset_id == datasets.c.id, versions.c.state == "ready"
        )
        terms += [_allows("analysts", viewer.name), ready.exists(), tables.accounts.c.epsilon > 0]
    return terms


def _allows(name: str, value: str) -> ColumnElement[bool]:
    """Return the condition that a list in the policy holds the value, or is empty (all allowed)."""
    listed = tables.datasets.c.policy[name]
    return or_(func.coalesce(func.jsonb_array_length(listed), 0) == 0, listed.has_key(value))


def _books(row: Row[Any]) -> Books:
    """Return a row's books, with each closed filter's closer: the first job not voided since."""
    books = read_books(row)
    filters = () if books.account is None else books.account.filters
    kinds = [filter_.filter.kind for filter_ in filters if filter_.closed]
    closers = tuple((kind, str(getattr(row, f"{kind}_closer"))) for kind in kinds)
    return replace(books, history=books.history._replace(closers=closers))


def _error(connection: Connection, version: dict[str, Any], viewer: Actor) -> str | None:
    return unit_fingerprints.told(connection, viewer, SimpleNamespace(**version), False)


def _fields(connection: Connection, row: Row[Any], viewer: Actor) -> dict[str, Any]:
    """Return the fields that `viewer` may see; the others are not among them."""
    asks, viewer, policy = viewer.roles, seen_by(viewer, row), Policy.model_validate(row.policy)
    books, unit = _books(row), row.unit_column or "record"
    versions = row.versions or []
    states = [version["state"] for version in versions]
    vouched = {level: int(amount) for level, amount in (row.vouched or {}).items()}
    about = books.history, row.neighbours, unit, vouched, row.data_is_here
    sentences = statements(books.accounts, *about)
    fields = {
        **{name: getattr(row, name) for name in _PUBLIC},
        "state": "ready" if "ready" in states else states[-1] if states else "checking",
        "unit": unit,
        "policy": policy,
        "overdrawn": books.overdrawn,
        "account": account_view(books),
        "ex_post": ex_post_view(books.ex_post, bool(viewer.roles & OVERSEERS)),
        "secret": secret_view(books.secret),
        "statements": [
            Statement(currency=e.currency, text=e.text, unqualified=e.unqualified)
            for e in sentences
        ],
        "entries": row.chain_seq,
        "may_ask": bool(asks & {"analyst", "steward"})
        and viewer.name in (policy.analysts or (viewer.name,)),
    }
    if "steward" in viewer.roles:
        fields["versions"] = [
            Version.model_validate(version | {"error": _error(connection, version, viewer)})
            for version in versions
        ]
        layout = ("text_template", "label_column", "group_column", "secret_column")
        fields |= {name: versions[-1][name] for name in layout}
        fields |= {name: getattr(row, name) for name in ("secret_patterns", "secret_terms")}
    return fields


_PUBLIC = (
    "name",
    "description",
    "neighbours",
    "max_records_per_unit",
    "unit_spelling",
    "missing_units",
    "public_size",
    "labels",
    "groups",
)
