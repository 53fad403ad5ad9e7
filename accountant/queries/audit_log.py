"""The audit log: one list of acts over every table that holds actor and time. Reads only.

    jobs ─ submitted, approved or refused      entries ─ allowances, corrections, voids
    decisions ─ asked for, accepted, refused, withdrawn
    activity ─ everything that no other table tells             sign_ins ─ tries to sign in

Nothing is written twice for this list. Each source is read from its own index, newest first, up to
one page; the pages are then merged, so a page costs the same however long the sources are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    Text,
    case,
    cast,
    false,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import JSONB

from accountant import tables
from accountant.core.errors import NotFound, NotPermitted
from accountant.core.ledger.commitments import opened
from accountant.core.ledger.export_formats import read_document
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries.decisions import OF_STEWARDS
from accountant.schema.ledgers import Act
from accountant.tables import paging
from accountant.transactions import owners

LEDGER_READERS = frozenset({"steward", "auditor"})
ACCOUNT_READERS = frozenset({"auditor", "administrator"})
#: What the log holds of things that are not people's accounts.
THINGS = ("dataset", "model", "corpus", "job", "artifact", "upload")


@dataclass(frozen=True)
class Wanted:
    """Search terms for acts; None: all. `what` is one of WHAT; `until` is exclusive."""

    what: str | None = None
    actor: str | None = None
    dataset: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class _Ids:
    """The ids of the wanted names; None: not asked for, or unknown."""

    dataset: UUID | None
    actor: UUID | None


@dataclass(frozen=True)
class _Source:
    """One table's acts: at, key, actor, action, kind, object, dataset, reason, detail, document."""

    what: str
    readers: frozenset[str]
    query: Callable[[Wanted, _Ids, Actor], Select[Any]]


def _columns(
    at: Any,
    key: Any,
    actor: Any,
    action: Any,
    kind: Any,
    thing: Any,
    dataset: Any,
    reason: Any = None,
    detail: Any = None,
    document: Any = None,
) -> list[ColumnElement[Any]]:
    """Return the columns that all sources have, with types that a UNION agrees on."""

    def text(value: Any) -> ColumnElement[Any]:
        if value is None:
            return cast(null(), Text)
        return cast(literal(value) if isinstance(value, str) else value, Text)

    shown = zip(
        ("key", "actor", "action", "kind", "object", "dataset", "reason", "document"),
        (key, actor, action, kind, thing, dataset, reason, document),
        strict=True,
    )
    extra = cast(null(), JSONB) if detail is None else detail
    return [
        at.label("at"),
        *(text(value).label(name) for name, value in shown),
        extra.label("detail"),
    ]


# --- sources ------------------------------------------------------------------------------------

_jobs, _users, _datasets = tables.jobs, tables.users, tables.datasets


def _submitted(wanted: Wanted, ids: _Ids, viewer: Actor) -> Select[Any]:
    columns = _columns(
        _jobs.c.created_at,
        _jobs.c.id,
        _users.c.name,
        "job submitted",
        "job",
        _jobs.c.id,
        _datasets.c.name,
        _jobs.c.purpose,
    )
    return _of_jobs(columns, _jobs.c.analyst_id, wanted, ids, viewer)


def _decided(wanted: Wanted, ids: _Ids, viewer: Actor) -> Select[Any]:
    action = case((_jobs.c.refusal["cap"].astext == "steward", "job refused"), else_="job approved")
    columns = _columns(
        _jobs.c.decided_at,
        _jobs.c.id,
        _users.c.name,
        action,
        "job",
        _jobs.c.id,
        _datasets.c.name,
        _jobs.c.decision_reason,
    )
    return _of_jobs(columns, _jobs.c.decided_by, wanted, ids, viewer).where(
        _jobs.c.decided_by.is_not(None)
    )


def _of_jobs(
    columns: list[ColumnElement[Any]],
    person: ColumnElement[Any],
    wanted: Wanted,
    ids: _Ids,
    viewer: Actor,
) -> Select[Any]:
    query = select(*columns).join(_users, _users.c.id == person)
    query = query.join(_datasets, _datasets.c.id == _jobs.c.dataset_id).where(
        owners.overseen(viewer)
    )
    query = query if ids.dataset is None else query.where(_jobs.c.dataset_id == ids.dataset)
    return _by(query, person, wanted, ids)


def _by(query: Select[Any], person: ColumnElement[Any], wanted: Wanted, ids: _Ids) -> Select[Any]:
    """Restrict a query to the acts of the wanted actor; an unknown name has none."""
    if wanted.actor is None:
        return query
    return query.where(false() if ids.actor is None else person == ids.actor)


def _refused(wanted: Wanted, ids: _Ids, viewer: Actor) -> Select[Any]:
    """Return refusals by the account or the policy, by no person."""
    by = _jobs.c.refusal["by"].astext
    columns = _columns(
        _jobs.c.finished_at,
        _jobs.c.id,
        func.concat("the ", by),
        "job refused",
        "job",
        _jobs.c.id,
        _datasets.c.name,
        _jobs.c.refusal["why"].astext,
    )
    query = select(*columns).join(_datasets, _datasets.c.id == _jobs.c.dataset_id)
    query = query.where(owners.overseen(viewer))
    query = query.where(_jobs.c.state == "refused", _jobs.c.refusal["cap"].astext != "steward")
    query = query if ids.dataset is None else query.where(_jobs.c.dataset_id == ids.dataset)
    if wanted.actor is None:
        return query
    who = wanted.actor.removeprefix("the ")
    return query.where(by == who if who in ("account", "policy") else false())


def _entries(kind: str, action: str) -> Callable[[Wanted, _Ids, Actor], Select[Any]]:
    def source(wanted: Wanted, ids: _Ids, viewer: Actor) -> Select[Any]:
        table = tables.entries
        name = func.concat(_datasets.c.name, ":", table.c.seq)
        columns = _columns(
            table.c.at,
            func.concat(
                cast(table.c.dataset_id, Text), ":", func.lpad(cast(table.c.seq, Text), 20, "0")
            ),
            table.c.actor,
            action,
            "entry",
            name,
            _datasets.c.name,
            document=table.c.document,
        )
        query = select(*columns).join(_datasets, _datasets.c.id == table.c.dataset_id)
        query = query.where(table.c.kind == kind, table.c.kind.in_(tables.RARE_KINDS))
        query = query.where(owners.overseen(viewer))
        query = query if ids.dataset is None else query.where(table.c.dataset_id == ids.dataset)
        return query if wanted.actor is None else query.where(table.c.actor == wanted.actor)

    return source


def _second_people(answered: bool) -> Callable[[Wanted, _Ids, Actor], Select[Any]]:
    """Return what second people were asked, or answered; nobody is who lets a decision expire."""

    def source(wanted: Wanted, ids: _Ids, viewer: Actor) -> Select[Any]:
        table = tables.decisions
        person = table.c.answered_by if answered else table.c.asked_by
        # What stewards alone see has its reasons for them.
        reason = case(
            (table.c.kind.in_(OF_STEWARDS), null()),
            else_=table.c.answer if answered else table.c.reason,
        )
        columns = _columns(
            table.c.answered_at if answered else table.c.created_at,
            table.c.id,
            _users.c.name,
            func.concat(table.c.kind, " ", table.c.state)
            if answered
            else func.concat(table.c.kind, " asked for"),
            "decision",
            table.c.id,
            _datasets.c.name,
            reason,
            detail=func.jsonb_strip_nulls(
                func.jsonb_build_object("job", table.c.job_id, "made_job", table.c.made_job)
            ),
        )
        query = select(*columns).join(_users, _users.c.id == person)
        query = query.join(_datasets, _datasets.c.id == table.c.dataset_id).where(
            owners.overseen(viewer)
        )
        query = query if ids.dataset is None else query.where(table.c.dataset_id == ids.dataset)
        return _by(query, person, wanted, ids)

    return source


def _activity(wanted: Wanted, ids: _Ids, viewer: Actor) -> Select[Any]:  # noqa: ARG001
    table = tables.activity
    of_dataset: Any = literal_column(tables.ACTIVITY_DATASET.text, Text)
    columns = _columns(
        table.c.at,
        func.lpad(cast(table.c.id, Text), 20, "0"),
        table.c.actor_name,
        table.c.action,
        table.c.object_kind,
        table.c.object_id,
        of_dataset,
        detail=table.c.detail,
    )
    query = select(*columns)
    if not viewer.roles & ACCOUNT_READERS:
        query = query.where(table.c.object_kind.in_(THINGS))
    elif not viewer.roles & LEDGER_READERS:
        query = query.where(table.c.object_kind.not_in(THINGS))
    mine = select(_datasets.c.name).where(owners.overseen(viewer))
    query = query.where(or_(of_dataset.is_(None), of_dataset.in_(mine)))
    query = query if wanted.dataset is None else query.where(of_dataset == wanted.dataset)
    return query if wanted.actor is None else query.where(table.c.actor_name == wanted.actor)


def _sign_ins(wanted: Wanted, ids: _Ids, viewer: Actor) -> Select[Any]:  # noqa: ARG001
    table = tables.sign_ins
    detail = func.jsonb_build_object("method", table.c.method, "address", table.c.address)
    columns = _columns(
        table.c.at,
        func.lpad(cast(table.c.id, Text), 20, "0"),
        table.c.name,
        case(
            (table.c.outcome == "signed in", "signed in"),
            else_=func.concat("not signed in: ", table.c.outcome),
        ),
        "account",
        table.c.name,
        None,
        detail=detail,
    )
    query = select(*columns)
    query = query if wanted.dataset is None else query.where(false())
    return query if wanted.actor is None else query.where(table.c.name == wanted.actor)


#: In the order in which acts of the same moment are told apart.
SOURCES = (
    _Source("requests", LEDGER_READERS, _submitted),
    _Source("decisions", LEDGER_READERS, _decided),
    _Source("refusals", LEDGER_READERS, _refused),
    _Source("ledger", LEDGER_READERS, _entries("ALLOW", "allowance set")),
    _Source("ledger", LEDGER_READERS, _entries("REVERSAL", "charge corrected")),
    _Source("ledger", LEDGER_READERS, _entries("LOSS", "entries lost")),
    _Source("ledger", LEDGER_READERS, _entries("VOID", "reservation voided")),
    _Source("decisions", LEDGER_READERS, _second_people(False)),
    _Source("decisions", LEDGER_READERS, _second_people(True)),
    _Source("other acts", LEDGER_READERS | ACCOUNT_READERS, _activity),
    _Source("sign-ins", ACCOUNT_READERS, _sign_ins),
)
WHAT = tuple(dict.fromkeys(source.what for source in SOURCES))


# --- reading ------------------------------------------------------------------------------------


def listing(
    engine: Engine, viewer: Actor, wanted: Wanted, *, after: paging.After = None, limit: int = 50
) -> list[Act]:
    """Return acts, newest first. Stewards see none of people's accounts, administrators nothing
    else.

    `after` (at, source, key) continues a listing. Raises NotPermitted, and NotFound for a dataset
    that there is not.
    """
    if not viewer.roles & (LEDGER_READERS | ACCOUNT_READERS):
        raise NotPermitted(
            "who did what is for auditors; stewards and administrators see their part of it"
        )
    with reading(engine) as connection:
        ids = _ids(connection, wanted)
        pages = [
            _page(number, source.query(wanted, ids, viewer), wanted, after, limit)
            for number, source in enumerate(SOURCES)
            if viewer.roles & source.readers and wanted.what in (None, source.what)
        ]
        if not pages:
            return []
        merged = union_all(*pages).subquery()
        columns = merged.c
        query = select(merged).order_by(
            columns.at.desc(), columns.source.desc(), columns.key.desc()
        )
        rows = connection.execute(query.limit(limit)).all()
    return [_act(row) for row in rows]


def _ids(connection: Connection, wanted: Wanted) -> _Ids:
    def found(table: Any, name: str | None) -> UUID | None:
        query = select(table.c.id).where(table.c.name == name)
        return None if name is None else connection.execute(query).scalar_one_or_none()

    dataset = found(_datasets, wanted.dataset)
    if wanted.dataset is not None and dataset is None:
        raise NotFound("dataset", wanted.dataset)
    return _Ids(dataset, found(_users, wanted.actor))


def _page(
    number: int, query: Select[Any], wanted: Wanted, after: paging.After, limit: int
) -> Select[Any]:
    """Return one page of one source, newest first."""
    rows = query.add_columns(literal(number).label("source"))
    at, key = (rows.selected_columns[name] for name in ("at", "key"))
    at, key = (column.element if hasattr(column, "element") else column for column in (at, key))
    if wanted.since is not None:
        rows = rows.where(at >= wanted.since)
    if wanted.until is not None:
        rows = rows.where(at < wanted.until)
    return select(paging.window(rows, [at, literal(number), key], limit, after).subquery())


def _act(row: Row[Any]) -> Act:
    reason, detail = row.reason, dict(row.detail or {})
    job = row.object if row.kind == "job" else None
    if row.document is not None:
        entry = opened(read_document(row.document))
        job, reason = entry["job"], entry["body"].get("reason")
        detail = _of_entry(entry["body"])
    same = ("at", "actor", "action", "kind", "object", "dataset", "source", "key")
    return Act(**{name: getattr(row, name) for name in same}, job=job, reason=reason, detail=detail)


def _of_entry(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of an entry that says what was done, beside the reason."""
    return {
        name: body[name] for name in ("epsilon", "delta", "proposed_by", "outcome") if name in body
    }


def policies(connection: Connection, dataset: str, limit: int) -> list[dict[str, Any]]:
    """Return the newest policies of a dataset that the log holds: who set each, and when.

    The caller has asked who reads.
    """
    table = tables.activity
    query = select(table).where(
        table.c.object_kind == "dataset",
        table.c.object_id == dataset,
        or_(table.c.action == "policy set", table.c.action == "dataset registered"),
    )
    rows = connection.execute(query.order_by(table.c.id.desc()).limit(limit)).all()
    return [
        {"at": row.at.isoformat(), "actor": row.actor_name, "action": row.action, **row.detail}
        for row in rows
    ]
