"""What an auditor reads: entries over all datasets, refusals, checkpoints. Reads only.

Lists are paged by key: a page is asked for by the last row of the one before, named as people name it
(`notes:812`), so a page costs the same however far down it lies, and its address means the same for ever.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, Select, func, select, tuple_

from accountant import tables
from accountant.artifacts import OVERSEERS
from accountant.core.chain import opened
from accountant.core.checkpoints import Key, key_id, read_checkpoint, read_keys
from accountant.core.errors import NotFound, VerificationFailed, invalid
from accountant.core.verification import read_document
from accountant.requests import Actor

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


def require_overseer(viewer: Actor) -> None:
    """Raise NotPermitted for anybody but stewards and auditors."""
    viewer.require(*OVERSEERS)


def names(engine: Engine, viewer: Actor) -> list[str]:
    """The names of all datasets, for a choice."""
    require_overseer(viewer)
    with engine.connect() as connection:
        return list(
            connection.execute(select(tables.datasets.c.name).order_by(tables.datasets.c.name)).scalars()
        )


# --- entries ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """Which entries are asked for; None: all. `since` and `until` bound the time, the second exclusive."""

    dataset: str | None = None
    kind: str | None = None
    actor: str | None = None
    mechanism: str | None = None
    job: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None


def entries(
    engine: Engine, viewer: Actor, wanted: Wanted, *, before: str | None = None, limit: int = 50
) -> list[dict[str, Any]]:
    """Entries in plain values, newest first, each with its hash and its job's mechanism.

    `before`: the last entry of the page above, as `dataset:number`. Raises InvalidRequest where it names
    no entry, NotFound for a dataset that there is not, NotPermitted for anybody but stewards and auditors.
    """
    require_overseer(viewer)
    with engine.connect() as connection:
        rows = connection.execute(_page_of_entries(connection, wanted, before, limit)).all()
    return [_entry(row) for row in rows]


def _page_of_entries(connection: Connection, wanted: Wanted, before: str | None, limit: int) -> Select[Any]:
    table = tables.entries
    query = select(table, tables.datasets.c.name.label("dataset"), tables.jobs.c.mechanism).join(
        tables.datasets, tables.datasets.c.id == table.c.dataset_id
    )
    query = query.outerjoin(tables.jobs, tables.jobs.c.id == table.c.job_id).limit(limit)
    if wanted.kind is not None:
        query = query.where(table.c.kind == wanted.kind)
        if wanted.kind in tables.RARE_KINDS:  # said as the partial index says it, or it can't be used
            query = query.where(table.c.kind.in_(tables.RARE_KINDS))
    if wanted.actor is not None:
        query = query.where(table.c.actor == wanted.actor)
    if wanted.mechanism is not None:
        query = query.where(tables.jobs.c.mechanism == wanted.mechanism)
    if wanted.job is not None:
        query = query.where(table.c.job_id == wanted.job)
    if wanted.since is not None:
        query = query.where(table.c.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(table.c.at < wanted.until)
    last = None if before is None else _named_entry(connection, before)
    if wanted.dataset is None:
        key = tuple_(table.c.at, table.c.dataset_id, table.c.seq)
        if last is not None:
            query = query.where(key < tuple_(last.at, last.dataset_id, last.seq))
        return query.order_by(table.c.at.desc(), table.c.dataset_id.desc(), table.c.seq.desc())
    query = query.where(table.c.dataset_id == dataset_id(connection, wanted.dataset))
    if last is not None:  # times never fall along a chain, so its numbers give the same order
        query = query.where(table.c.seq < last.seq)
    return query.order_by(table.c.seq.desc())


def _named_entry(connection: Connection, reference: str) -> Row[Any]:
    """Where the entry `dataset:number` stands in the order of all entries."""
    name, _, number = reference.rpartition(":")
    table = tables.entries
    found = None
    if number.isascii() and number.isdigit() and len(number) < 19:
        query = select(table.c.at, table.c.dataset_id, table.c.seq).join(
            tables.datasets, tables.datasets.c.id == table.c.dataset_id
        )
        named = query.where(tables.datasets.c.name == name, table.c.seq == int(number))
        found = connection.execute(named).one_or_none()
    if found is None:
        raise invalid("before", f"{reference[:80]!r} names no entry", "dataset:number, as notes:812")
    return found


def _entry(row: Row[Any]) -> dict[str, Any]:
    plain = opened(read_document(row.document))
    return {**plain, "hash": row.hash, "mechanism": row.mechanism}


def dataset_id(connection: Connection, name: str) -> UUID:
    """The id of a dataset. Raises NotFound."""
    found = connection.execute(select(tables.datasets.c.id).where(tables.datasets.c.name == name)).scalar()
    if found is None:
        raise NotFound("dataset", name)
    return UUID(str(found))


# --- refusals -----------------------------------------------------------------------------------


def refusals(
    engine: Engine,
    viewer: Actor,
    *,
    dataset: str | None = None,
    cap: str | None = None,
    analyst: str | None = None,
    mechanism: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Refused requests, newest first: who asked for what, what was binding, asked and left.

    `before`: the last job of the page above. Raises NotFound and NotPermitted.
    """
    require_overseer(viewer)
    jobs, users = tables.jobs, tables.users
    query = (
        select(
            jobs.c.id,
            jobs.c.mechanism,
            jobs.c.purpose,
            jobs.c.project,
            jobs.c.refusal,
            jobs.c.epsilon_alone,
            jobs.c.created_at,
            jobs.c.finished_at,
            tables.datasets.c.name.label("dataset"),
            users.c.name.label("analyst"),
        )
        .join(tables.datasets, tables.datasets.c.id == jobs.c.dataset_id)
        .join(users, users.c.id == jobs.c.analyst_id)
        .where(jobs.c.state == "refused")
        .order_by(jobs.c.finished_at.desc(), jobs.c.id.desc())
        .limit(limit)
    )
    equal = ((jobs.c.refusal["cap"].astext, cap), (users.c.name, analyst), (jobs.c.mechanism, mechanism))
    for column, value in equal:
        if value is not None:
            query = query.where(column == value)
    with engine.connect() as connection:
        if dataset is not None:
            query = query.where(jobs.c.dataset_id == dataset_id(connection, dataset))
        if before is not None:
            last = select(jobs.c.finished_at).where(jobs.c.id == before, jobs.c.state == "refused")
            at = connection.execute(last).scalar_one_or_none()
            if at is None:
                raise invalid("before", f"{before} is no refused job", "the last job of the page above")
            query = query.where(tuple_(jobs.c.finished_at, jobs.c.id) < tuple_(at, before))
        return [_refusal(row) for row in connection.execute(query)]


def _refusal(row: Row[Any]) -> dict[str, Any]:
    return {
        "job": str(row.id),
        "dataset": row.dataset,
        "analyst": row.analyst,
        "mechanism": row.mechanism,
        "purpose": row.purpose,
        "project": row.project,
        "epsilon_alone": row.epsilon_alone,
        "refusal": row.refusal,
        "submitted_at": row.created_at.isoformat(),
        "refused_at": row.finished_at.isoformat(),
    }


# --- checkpoints --------------------------------------------------------------------------------


def checkpoints(
    engine: Engine,
    viewer: Actor,
    *,
    dataset: str | None = None,
    before: str | None = None,
    limit: int = 50,
) -> list[dict[str, Any]]:
    """Signed checkpoints, newest first, each checked now.

    `problem` is None where its signature holds and the entry that it names has the hash that was signed.
    The balances that it states are compared by a whole replay only (reports.check, `exchequer verify`).
    """
    require_overseer(viewer)
    table, entry = tables.checkpoints, tables.entries
    query = (
        select(table, tables.datasets.c.name.label("dataset"), entry.c.hash)
        .join(tables.datasets, tables.datasets.c.id == table.c.dataset_id)
        .outerjoin(entry, (entry.c.dataset_id == table.c.dataset_id) & (entry.c.seq == table.c.seq))
        .order_by(table.c.at.desc(), table.c.dataset_id.desc(), table.c.seq.desc(), table.c.key_id.desc())
        .limit(limit)
    )
    key = tuple_(table.c.at, table.c.dataset_id, table.c.seq, table.c.key_id)
    with engine.connect() as connection:
        if dataset is not None:
            query = query.where(table.c.dataset_id == dataset_id(connection, dataset))
        if before is not None:
            last = _named_checkpoint(connection, before)
            query = query.where(key < tuple_(last.at, last.dataset_id, last.seq, last.key_id))
        return [_checkpoint(row) for row in connection.execute(query)]


def _named_checkpoint(connection: Connection, reference: str) -> Row[Any]:
    """The checkpoint `dataset:number:key`."""
    name, number, own = (*reference.rsplit(":", 2), "", "")[:3]
    table = tables.checkpoints
    found = None
    if number.isascii() and number.isdigit() and len(number) < 19:
        query = select(table).join(tables.datasets, tables.datasets.c.id == table.c.dataset_id)
        named = query.where(tables.datasets.c.name == name, table.c.seq == int(number), table.c.key_id == own)
        found = connection.execute(named).one_or_none()
    if found is None:
        raise invalid("before", f"{reference[:80]!r} names no checkpoint", "dataset:number:key")
    return found


def checkpoint_file(engine: Engine, viewer: Actor, reference: str) -> str:
    """The file of one checkpoint, `dataset:number:key`, as it was handed out. Raises NotFound."""
    require_overseer(viewer)
    with engine.connect() as connection:
        try:
            document: str = _named_checkpoint(connection, reference).document
        except Exception as error:
            raise NotFound("checkpoint", reference[:80]) from error
    return document


def _checkpoint(row: Row[Any]) -> dict[str, Any]:
    file = read_document(row.document)
    return {
        "reference": f"{row.dataset}:{row.seq}:{row.key_id}",
        "dataset": row.dataset,
        "seq": row.seq,
        "head": file["checkpoint"]["head"],
        "key": row.key_id,
        "at": row.at.isoformat(),
        "problem": _checkpoint_problem(file, row),
    }


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
    """Public keys, oldest first, with the time from and until which each signed."""
    keys: tuple[Key, ...] = read_keys(introductions)
    return [
        {
            "id": each.id,
            "public": each.public.hex(),
            "since": each.since.isoformat(),
            "until": None if each.until is None else each.until.isoformat(),
            "introduced_by": None if number == 0 else key_id(keys[number - 1].public),
        }
        for number, each in enumerate(keys)
    ]


def counts(connection: Connection, dataset: UUID) -> dict[str, int]:
    """How many entries of each kind a dataset has."""
    table = tables.entries
    query = select(table.c.kind, func.count()).where(table.c.dataset_id == dataset).group_by(table.c.kind)
    return {kind: count for kind, count in connection.execute(query)}


def exports_made(
    engine: Engine, viewer: Actor, *, dataset: str | None = None, limit: int = 20
) -> list[dict[str, Any]]:
    """The newest exports, and who made them."""
    require_overseer(viewer)
    table = tables.activity
    query = select(table).where(table.c.action == "ledger exported", table.c.object_kind == "dataset")
    if dataset is not None:
        query = query.where(table.c.object_id == dataset)
    with engine.connect() as connection:
        rows = connection.execute(query.order_by(table.c.id.desc()).limit(limit)).all()
    return [
        {"at": row.at.isoformat(), "actor": row.actor_name, "dataset": row.object_id, **row.detail}
        for row in rows
    ]
