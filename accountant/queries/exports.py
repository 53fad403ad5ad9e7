"""Exports of a live ledger: of one moment, streamed, with a checkpoint signed for that moment."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, func, select

from accountant import tables
from accountant.core.errors import Conflict
from accountant.core.files import parquet
from accountant.core.ledger import export_formats, parquet_exports
from accountant.core.ledger.export_formats import read_document, summary
from accountant.database import reading
from accountant.tables.accounts_row import read_books
from accountant.transactions import signing


def export(
    engine: Engine, dataset_id: UUID, form: str, *, public: bool, seed: bytes | None
) -> Iterator[str | bytes]:
    """Yield the pieces of an export; memory does not grow with the ledger.

    `seed`: the secret that signs a checkpoint into it. Whatever can be refused is refused before the first
    piece: a missing pyarrow, and a public export of entries that predate commitments (Conflict).
    """
    if form == "parquet":
        parquet.available()
    if public:
        _check_publishable(engine, dataset_id)
    return _export(engine, dataset_id, form, public, seed)


def _export(
    engine: Engine, dataset_id: UUID, form: str, public: bool, seed: bytes | None
) -> Iterator[str | bytes]:
    with reading(engine, snapshot=True) as connection:
        row = account_row(connection, dataset_id)
        books, live = read_books(row), live_reservations(connection, dataset_id)
        signed = None if seed is None else _signed(engine, row, summary(books, live, public=True), seed)
        claimed = export_formats.header(
            row.name, row.chain_seq, row.chain_head, books, live, public=public, checkpoint=signed
        )
        rows = (
            (recorded, *export_formats.shown(text, public))
            for text, recorded in entries(connection, dataset_id)
        )
        if form == "parquet":
            columns = (export_formats.columns(document, recorded, text) for recorded, document, text in rows)
            yield from parquet_exports.write(claimed, columns)
        elif form == "csv":
            yield export_formats.CSV_HEADER
            yield from (export_formats.csv_row(document, recorded, text) for recorded, document, text in rows)
            yield export_formats.csv_totals(claimed)
        else:
            yield export_formats.json_header(claimed)
            yield from (export_formats.json_row(recorded, text) for recorded, _, text in rows)


def checkpoint(engine: Engine, dataset_id: UUID, seed: bytes) -> dict[str, Any]:
    """A checkpoint of this moment."""
    with reading(engine, snapshot=True) as connection:
        row = account_row(connection, dataset_id)
        balances = summary(read_books(row), live_reservations(connection, dataset_id), public=True)
    return _signed(engine, row, balances, seed)


def account_row(connection: Connection, dataset_id: UUID) -> Row[Any]:
    """A dataset's name and account."""
    query = (
        select(tables.accounts, tables.datasets.c.name)
        .join(tables.datasets, tables.datasets.c.id == tables.accounts.c.dataset_id)
        .where(tables.accounts.c.dataset_id == dataset_id)
    )
    return connection.execute(query).one()


def live_reservations(connection: Connection, dataset_id: UUID) -> int:
    """Return the number of reservations that are not settled yet."""
    table = tables.entries
    resolves = table.c.kind.in_(("COMMIT", "VOID"))
    query = select(func.count().filter(table.c.kind == "RESERVE") - func.count().filter(resolves)).where(
        table.c.dataset_id == dataset_id
    )
    return int(connection.execute(query).scalar_one())


def _signed(engine: Engine, row: Row[Any], balances: dict[str, Any], seed: bytes) -> dict[str, Any]:
    return signing.make(engine, row.dataset_id, row.name, row.chain_seq, row.chain_head, balances, seed)


def entries(connection: Connection, dataset_id: UUID) -> Iterator[tuple[str, str]]:
    """Stored documents with their hashes, in order, fetched as they are read."""
    table = tables.entries
    query = select(table.c.document, table.c.hash).where(table.c.dataset_id == dataset_id)
    options = {"stream_results": True, "yield_per": 500}
    for each in connection.execute(query.order_by(table.c.seq), execution_options=options):
        yield each.document, each.hash


def _check_publishable(engine: Engine, dataset_id: UUID) -> None:
    """Versions only rise along a chain, so the first entry tells."""
    table = tables.entries
    query = select(table.c.document).where(table.c.dataset_id == dataset_id, table.c.seq == 1)
    with reading(engine) as connection:
        first = connection.execute(query).scalar_one_or_none()
    if first is not None and read_document(first)["version"] == 1:
        raise Conflict(
            "the first entries were written before private values were committed to: their hashes cover "
            "names as they are, so they can't be published"
        )
