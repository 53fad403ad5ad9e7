"""Ledger entries, exports and signed checkpoints, for those who oversee."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from accountant import tables
from accountant.database import reading
from accountant.identities import activity_log
from accountant.identities.actor import Actor
from accountant.queries import exports, jobs, ledgers
from accountant.queries.dataset_rows import dataset_row, require_overseer
from accountant.schema.ledgers import Entry
from accountant.tables import paging
from accountant.transactions.signing import listed as stored_checkpoints


def require(engine: Engine, name: str, viewer: Actor) -> None:
    """Raise NotFound for no dataset, and NotPermitted for whoever does not oversee it."""
    with reading(engine) as connection:
        dataset_row(connection, name, viewer)


def entries(
    engine: Engine,
    name: str,
    viewer: Actor,
    *,
    before: int | None = None,
    limit: int = 50,
    after: paging.After = None,
) -> list[Entry]:
    """Return ledger entries in plain values, newest first, with their hashes; `after` (seq,)
    continues a listing.

    The hash covers commitments to the private values: an export holds what is needed to check it.
    """
    require_overseer(viewer)
    table = tables.entries
    with reading(engine) as connection:
        row = dataset_row(connection, name, viewer)
        query = (
            select(table.c.document, table.c.hash, *jobs.NAMED)
            .outerjoin(tables.jobs, tables.jobs.c.id == table.c.job_id)
            .where(table.c.dataset_id == row.id)
        )
        if before is not None:
            query = query.where(table.c.seq < before)
        rows = connection.execute(paging.window(query, [table.c.seq], limit, after)).all()
    return [Entry(**ledgers.stated(entry_row)) for entry_row in rows]


def export(
    engine: Engine,
    name: str,
    viewer: Actor,
    form: str,
    *,
    public: bool = False,
    seed: bytes | None = None,
    log: Path | str | None = None,
) -> Iterator[str]:
    """Return pieces of an export, `jsonl` or `csv`, of one moment.

    Memory does not grow with the ledger. `seed` signs a checkpoint of that moment, which the
    export carries, as it does a proof of the published `log`.

    Raises NotFound, Conflict, and InvalidRequest before the first piece.
    """
    require_overseer(viewer)
    with reading(engine) as connection:
        row = dataset_row(connection, name, viewer)
    pieces = exports.export(engine, row.id, form, public=public, seed=seed, log=log)
    activity_log.note(
        engine, viewer, "ledger exported", "dataset", row.name, format=form, public=public
    )
    return pieces


def checkpoint(engine: Engine, name: str, viewer: Actor, seed: bytes) -> dict[str, Any]:
    """Return a signed checkpoint of this moment."""
    require_overseer(viewer)
    with reading(engine) as connection:
        row = dataset_row(connection, name, viewer)
    checkpoint = exports.checkpoint(engine, row.id, seed)
    activity_log.note(
        engine,
        viewer,
        "checkpoint signed",
        "dataset",
        row.name,
        entry=checkpoint["checkpoint"]["seq"],
    )
    return checkpoint


def checkpoints(
    engine: Engine, name: str, viewer: Actor, limit: int = 50, after: paging.After = None
) -> list[dict[str, Any]]:
    """Return checkpoints that were handed out, newest first."""
    require_overseer(viewer)
    with reading(engine) as connection:
        return stored_checkpoints(
            connection, dataset_row(connection, name, viewer).id, limit, after
        )
