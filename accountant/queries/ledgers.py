"""The lists that an auditor reads: entries over all datasets, refusals, checkpoints. Reads only.

Entries and checkpoints are continued by what people name them by (`notes`, 812). Neither ever goes,
so the place behind one means the same for ever.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, Select, func, or_, select

from accountant import tables
from accountant.core.errors import NotFound, VerificationFailed
from accountant.core.ledger.checkpoints import Key, key_id, read_checkpoint, read_keys
from accountant.core.ledger.commitments import opened
from accountant.core.ledger.export_formats import read_document
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries import jobs as job_queries
from accountant.queries.dataset_rows import dataset_row, require_overseer
from accountant.schema.ledgers import EntryInList, RefusedJob, SignedCheckpoint
from accountant.tables import paging
from accountant.transactions import owners

#: Caps that a recorded refusal may name.
CAPS = (
    "renyi",
    "gaussian",
    "renyi2",
    "basic",
    "ex-post",
    "secret",
    "allowance",
    "overdrawn",
    "analyst",
    "project",
    "model",
    "model context",
    "policy",
    "steward",
)


#: Nobody looks through more names for one.
MOST_NAMES = 200


def names(engine: Engine, viewer: Actor) -> list[str] | None:
    """Return the names of the datasets that `viewer` oversees, for a choice.

    Returns None if there are more than MOST_NAMES: one is typed then.
    """
    require_overseer(viewer)
    name = tables.datasets.c.name
    query = select(name).where(owners.overseen(viewer)).order_by(name).limit(MOST_NAMES + 1)
    with reading(engine) as connection:
        found = list(connection.execute(query).scalars())
    return found if len(found) <= MOST_NAMES else None


# --- entries ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """Search terms for entries (None: all). `since` and `until` bound times; `until` is outside."""

    dataset: str | None = None
    kind: str | None = None
    actor: str | None = None
    mechanism: str | None = None
    job: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None


def entries(
    engine: Engine, viewer: Actor, wanted: Wanted, *, after: paging.After = None, limit: int = 50
) -> list[EntryInList]:
    """Return entries in plain values, newest first, each with its hash and its job's mechanism.

    `after` (dataset, number) continues a listing. Raises InvalidRequest where that names no entry,
    NotFound for a dataset that there is not, NotPermitted for anybody but stewards and auditors.
    """
    require_overseer(viewer)
    with reading(engine) as connection:
        rows = connection.execute(_page_of_entries(connection, viewer, wanted, after, limit)).all()
    return [_listed(row) for row in rows]


def stated(row: Any) -> dict[str, Any]:
    """Return an entry in plain values, of a row with its job's columns `jobs.NAMED`."""
    name = None if row.mechanism is None else job_queries.name_of(row)
    return {**opened(read_document(row.document)), "hash": row.hash, "job_name": name}


def _listed(row: Any) -> EntryInList:
    return EntryInList(**stated(row), mechanism=row.mechanism)


def newest(
    connection: Connection, dataset_id: UUID, kinds: Sequence[str], limit: int
) -> list[EntryInList]:
    """Return a dataset's newest entries, and below them more of each of `kinds`, newest first.

    Of all entries and of each kind there are `limit`, or all. The caller has asked who reads.
    """
    table, jobs = tables.entries, tables.jobs
    of_dataset = select(table.c.seq).where(table.c.dataset_id == dataset_id)
    rare = of_dataset.where(table.c.kind.in_(tables.RARE_KINDS))
    lists = (of_dataset, *(rare.where(table.c.kind == kind) for kind in kinds))
    wanted = (table.c.seq.in_(rows.order_by(table.c.seq.desc()).limit(limit)) for rows in lists)
    query = (
        select(table.c.document, table.c.hash, *job_queries.NAMED)
        .outerjoin(jobs, jobs.c.id == table.c.job_id)
        .where(table.c.dataset_id == dataset_id, or_(*wanted))
        .order_by(table.c.seq.desc())
    )
    return [_listed(row) for row in connection.execute(query).all()]


def _page_of_entries(
    connection: Connection, viewer: Actor, wanted: Wanted, after: paging.After, limit: int
) -> Select[Any]:
    table, jobs, datasets = tables.entries, tables.jobs, tables.datasets
    query = (
        select(table, datasets.c.name.label("dataset"), *job_queries.NAMED)
        .join(datasets, datasets.c.id == table.c.dataset_id)
        .outerjoin(jobs, jobs.c.id == table.c.job_id)
        .where(owners.overseen(viewer))
    )
    equal = (
        (table.c.kind, wanted.kind),
        (table.c.actor, wanted.actor),
        (table.c.job_id, wanted.job),
    )
    for column, value in (*equal, (jobs.c.mechanism, wanted.mechanism)):
        query = query if value is None else query.where(column == value)
    if wanted.kind in tables.RARE_KINDS:  # said as the partial index says it, or it can't be used
        query = query.where(table.c.kind.in_(tables.RARE_KINDS))
    if wanted.since is not None:
        query = query.where(table.c.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(table.c.at < wanted.until)
    if wanted.dataset is not None:
        query = query.where(
            table.c.dataset_id == dataset_row(connection, wanted.dataset, viewer).id
        )
    key = ("seq",) if _by_number(wanted) else ("at", "dataset_id", "seq")
    columns: Any = table.c
    if wanted.mechanism is not None and _few_jobs(connection, wanted.mechanism):
        # Its entries first, then their order: in the order of all entries a few old ones come very
        # late.
        page_query = query.offset(0).subquery()
        query, columns = select(page_query), page_query.c
    last = None if after is None else _place_of_entry(connection, *after)
    place = None if last is None else [getattr(last, name) for name in key]
    return paging.window(query, [columns[name] for name in key], limit, place)


#: Entries of so many jobs are fetched and sorted in the time that a page may take.
_FEW = 5_000


def _few_jobs(connection: Connection, mechanism: str) -> bool:
    jobs = tables.jobs
    some = select(jobs.c.id).where(jobs.c.mechanism == mechanism).limit(_FEW + 1).subquery()
    return bool(connection.execute(select(func.count()).select_from(some)).scalar_one() <= _FEW)


def _by_number(wanted: Wanted) -> bool:
    """Return True if the chain's order can be used: times never fall along it, so both orders are
    one.

    A search that another index serves faster (actor, time, rare kinds) uses that index's order.
    """
    timed = wanted.since is not None or wanted.until is not None
    few = wanted.actor is not None or wanted.kind in tables.RARE_KINDS
    return wanted.dataset is not None and not timed and not few


def _place_of_entry(connection: Connection, dataset: str, seq: int) -> Any:
    """Return an entry's place in the order of all entries."""
    table, datasets = tables.entries, tables.datasets
    query = select(table.c.at, table.c.dataset_id, table.c.seq).join(
        datasets, datasets.c.id == table.c.dataset_id
    )
    named = query.where(datasets.c.name == dataset, table.c.seq == seq)
    row = connection.execute(named).one_or_none()
    if row is None:
        raise paging.unknown("entry")
    return row


# --- refusals -----------------------------------------------------------------------------------


def refusals(
    engine: Engine,
    viewer: Actor,
    *,
    dataset: str | None = None,
    cap: str | None = None,
    analyst: str | None = None,
    mechanism: str | None = None,
    after: paging.After = None,
    limit: int = 50,
) -> list[RefusedJob]:
    """Return refused requests, newest first: who asked for what, what was binding, asked and left.

    `after` (refused_at, job) continues a listing. Raises NotFound and NotPermitted.
    """
    require_overseer(viewer)
    jobs, users = tables.jobs, tables.users
    every = (
        select(
            *job_queries.NAMED,
            jobs.c.id,
            jobs.c.project,
            jobs.c.refusal,
            jobs.c.epsilon_alone,
            jobs.c.finished_at,
            tables.datasets.c.name.label("dataset"),
            users.c.name.label("analyst"),
        )
        .join(tables.datasets, tables.datasets.c.id == jobs.c.dataset_id)
        .join(users, users.c.id == jobs.c.analyst_id)
        .where(jobs.c.state == "refused", owners.overseen(viewer))
    )
    query = paging.window(every, [jobs.c.finished_at, jobs.c.id], limit, after)
    equal = (
        (jobs.c.refusal["cap"].astext, cap),
        (users.c.name, analyst),
        (jobs.c.mechanism, mechanism),
    )
    for column, value in equal:
        if value is not None:
            query = query.where(column == value)
    with reading(engine) as connection:
        if dataset is not None:
            query = query.where(jobs.c.dataset_id == dataset_row(connection, dataset, viewer).id)
        return [_refusal(row) for row in connection.execute(query)]


def _refusal(row: Any) -> RefusedJob:
    same = ("dataset", "analyst", "mechanism", "purpose", "project", "epsilon_alone", "refusal")
    return RefusedJob(
        job=str(row.id),
        job_name=job_queries.name_of(row),
        **{name: getattr(row, name) for name in same},
        submitted_at=row.created_at,
        refused_at=row.finished_at,
    )


# --- checkpoints --------------------------------------------------------------------------------


def checkpoints(
    engine: Engine,
    viewer: Actor,
    *,
    dataset: str | None = None,
    after: paging.After = None,
    limit: int = 50,
) -> list[SignedCheckpoint]:
    """Return signed checkpoints, newest first, each checked now; `after` (dataset, number, key)
    continues a listing.

    `problem` is None where its signature holds and the entry that it names has the hash that was
    signed. The balances that it states are compared by a whole replay only (integrity.check,
    `exchequer verify`).
    """
    require_overseer(viewer)
    table, entry = tables.checkpoints, tables.entries
    query = (
        select(table, tables.datasets.c.name.label("dataset"), entry.c.hash)
        .join(tables.datasets, tables.datasets.c.id == table.c.dataset_id)
        .outerjoin(entry, (entry.c.dataset_id == table.c.dataset_id) & (entry.c.seq == table.c.seq))
        .where(owners.overseen(viewer))
    )
    key = [table.c.at, table.c.dataset_id, table.c.seq, table.c.key_id]
    with reading(engine) as connection:
        if dataset is not None:
            query = query.where(table.c.dataset_id == dataset_row(connection, dataset, viewer).id)
        last = None if after is None else _named_checkpoint(connection, viewer, *after)
        if after is not None and last is None:
            raise paging.unknown("checkpoint")
        place = None if last is None else [last.at, last.dataset_id, last.seq, last.key_id]
        rows = connection.execute(paging.window(query, key, limit, place))
        return [_checkpoint(row) for row in rows]


def _named_checkpoint(
    connection: Connection, viewer: Actor, dataset: str, seq: int, key: str
) -> Row[Any] | None:
    table = tables.checkpoints
    query = select(table).join(tables.datasets, tables.datasets.c.id == table.c.dataset_id)
    named = query.where(
        tables.datasets.c.name == dataset, table.c.seq == seq, table.c.key_id == key
    )
    named = named.where(owners.overseen(viewer))
    return connection.execute(named).one_or_none()


def checkpoint_file(engine: Engine, viewer: Actor, reference: str) -> str:
    """Return a checkpoint's file, `dataset:number:key`, as handed out. Raises NotFound."""
    require_overseer(viewer)
    name, number, key = (*reference.rsplit(":", 2), "", "")[:3]
    document = None
    if number.isascii() and number.isdigit() and len(number) < 19:
        with reading(engine) as connection:
            document = _named_checkpoint(connection, viewer, name, int(number), key)
    if document is None:
        raise NotFound("checkpoint", reference[:80])
    return str(document.document)


def _checkpoint(row: Row[Any]) -> SignedCheckpoint:
    file = read_document(row.document)
    return SignedCheckpoint(
        reference=f"{row.dataset}:{row.seq}:{row.key_id}",
        dataset=row.dataset,
        seq=row.seq,
        head=file["checkpoint"]["head"],
        key=row.key_id,
        at=row.at,
        problem=_checkpoint_problem(file, row),
    )


def _checkpoint_problem(file: Mapping[str, Any], row: Row[Any]) -> str | None:
    try:
        signed = read_checkpoint(file)
    except VerificationFailed as error:
        return str(error)
    if (signed.dataset, signed.seq) != (row.dataset, row.seq):
        return "it was signed for another entry"
    if signed.seq and signed.head != row.hash:
        return f"entry {signed.seq} has another hash than the one that was signed"
    return None


def read_validity(introductions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return public keys, oldest first, with the time from and until which each signed."""
    keys: tuple[Key, ...] = read_keys(introductions)
    return [
        {
            "id": part.id,
            "public": part.public.hex(),
            "since": part.since.isoformat(),
            "until": None if part.until is None else part.until.isoformat(),
            "introduced_by": None if number == 0 else key_id(keys[number - 1].public),
        }
        for number, part in enumerate(keys)
    ]


def exports_made(
    engine: Engine, viewer: Actor, *, dataset: str | None = None, limit: int = 20
) -> list[dict[str, Any]]:
    """Return the newest exports, and who made them."""
    require_overseer(viewer)
    table = tables.activity
    mine = select(tables.datasets.c.name).where(owners.overseen(viewer))
    query = select(table).where(
        table.c.action == "ledger exported",
        table.c.object_kind == "dataset",
        table.c.object_id.in_(mine),
    )
    if dataset is not None:
        query = query.where(table.c.object_id == dataset)
    with reading(engine) as connection:
        rows = connection.execute(query.order_by(table.c.id.desc()).limit(limit)).all()
    return [
        {"at": row.at.isoformat(), "actor": row.actor_name, "dataset": row.object_id, **row.detail}
        for row in rows
    ]
