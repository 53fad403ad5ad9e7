"""Exports of a live ledger: up to the last entry of one moment, streamed, with a checkpoint signed
for it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, func, select

from accountant import tables
from accountant.core.errors import Conflict, NotFound, VerificationFailed
from accountant.core.ledger import export_formats
from accountant.core.ledger.export_formats import summary
from accountant.core.ledger.hash_chain import GENESIS
from accountant.database import reading
from accountant.ledger_log.publication import log_proof
from accountant.queries.ledger_entry import books_after
from accountant.tables.accounts_row import read_books
from accountant.transactions import signing
from accountant.transactions.ledger_log import ensure


def export(
    engine: Engine,
    dataset_id: UUID,
    form: str,
    *,
    public: bool,
    seed: bytes | None,
    log: Path | str | None = None,
) -> Iterator[str]:
    """Yield the pieces of an export; memory does not grow with the ledger.

    `seed`: the secret that signs a checkpoint into it. `log`: the published log, of which it has a
    proof. A signer that does not answer (SignerSilent) is told before the first piece. What the
    log outside the database does not hold is neither exported nor signed
    (LedgerBehind, LogUnusable).
    """
    with reading(engine, snapshot=True) as connection:
        row = account_row(connection, dataset_id)
        live = live_reservations(connection, dataset_id)
    # after it was read: what came between would leave without being in the log
    ensure(engine, dataset_id)
    proof = None if log is None else _proof(row, log)
    books = read_books(row)
    # before the first piece: who signs may not answer
    signed = None if seed is None else _signed(engine, row, summary(books, live, public=True), seed)
    totals = row.name, row.chain_seq, row.chain_head, books, live
    claimed = export_formats.header(*totals, public=public, checkpoint=signed, log_proof=proof)
    return _export(engine, row, form, public, claimed)


def _proof(row: Row[Any], log: Path | str) -> dict[str, object] | None:
    try:
        return log_proof(log, row.name, row.chain_seq)
    except VerificationFailed as error:
        raise Conflict(f"the published log can't prove anything: {error}") from None


def _export(
    engine: Engine, row: Row[Any], form: str, public: bool, claimed: dict[str, Any]
) -> Iterator[str]:
    export_rows = entries(engine, row.dataset_id, row.chain_seq)
    rows = ((recorded, *export_formats.shown(text, public)) for text, recorded in export_rows)
    if form == "csv":
        yield export_formats.CSV_HEADER
        yield from (
            export_formats.csv_row(document, recorded, text) for recorded, document, text in rows
        )
        yield export_formats.csv_totals(claimed)
    else:
        yield export_formats.json_header(claimed)
        yield from (export_formats.json_row(recorded, text) for recorded, _, text in rows)


def checkpoint(engine: Engine, dataset_id: UUID, seed: bytes) -> dict[str, Any]:
    """Return a checkpoint of this moment, which the log outside the database holds too."""
    with reading(engine, snapshot=True) as connection:
        row = account_row(connection, dataset_id)
        balances = summary(read_books(row), live_reservations(connection, dataset_id), public=True)
    ensure(engine, dataset_id)  # after it was read, here too
    return _signed(engine, row, balances, seed)


def checkpoint_at(engine: Engine, dataset_id: UUID, seq: int, seed: bytes) -> dict[str, Any]:
    """Return a checkpoint at an entry: the balances are those that a replay of the entries up to it
    gives.

    Raises NotFound where there is no such entry, and VerificationFailed where the entries do not
    hold; LedgerBehind and LogUnusable where the log outside the database does not hold them.
    """
    table = tables.entries
    at = (table.c.dataset_id == dataset_id, table.c.seq == seq)
    with reading(engine, snapshot=True) as connection:
        row = account_row(connection, dataset_id)
        head = (
            connection.execute(select(table.c.hash).where(*at)).scalar_one_or_none()
            if seq
            else GENESIS
        )
        if head is None:
            raise NotFound("entry", f"{row.name}:{seq}")
        live = live_reservations(connection, dataset_id, seq)
        balances = summary(books_after(connection, dataset_id, seq), live, public=True)
    ensure(engine, dataset_id)
    return signing.make(engine, dataset_id, row.name, seq, head, balances, seed)


def account_row(connection: Connection, dataset_id: UUID) -> Row[Any]:
    """Return a dataset's name and account."""
    query = (
        select(tables.accounts, tables.datasets.c.name)
        .join(tables.datasets, tables.datasets.c.id == tables.accounts.c.dataset_id)
        .where(tables.accounts.c.dataset_id == dataset_id)
    )
    return connection.execute(query).one()


def live_reservations(connection: Connection, dataset_id: UUID, until: int | None = None) -> int:
    """Count the reservations that are not settled, now or after entry `until`."""
    table = tables.entries
    resolves = table.c.kind.in_(("COMMIT", "VOID"))
    query = select(
        func.count().filter(table.c.kind == "RESERVE") - func.count().filter(resolves)
    ).where(table.c.dataset_id == dataset_id)
    if until is not None:
        query = query.where(table.c.seq <= until)
    return int(connection.execute(query).scalar_one())


def _signed(engine: Engine, row: Row[Any], balances: dict[str, Any], seed: bytes) -> dict[str, Any]:
    return signing.make(
        engine, row.dataset_id, row.name, row.chain_seq, row.chain_head, balances, seed
    )


#: Entries that are read at a time.
PAGE = 1000


def entries(engine: Engine, dataset_id: UUID, last: int) -> Iterator[tuple[str, str]]:
    """Yield stored documents with their hashes, in order, up to the entry `last`.

    Entries never change, so each page may be of its own moment. A snapshot held for as long as
    somebody downloads would keep every version that the account's row has meanwhile, and each
    admission would go through all of them to lock it.
    """
    table = tables.entries
    query = select(table.c.seq, table.c.document, table.c.hash).where(
        table.c.dataset_id == dataset_id, table.c.seq <= last
    )
    read = 0
    while read < last:
        with reading(engine) as connection:
            page = connection.execute(
                query.where(table.c.seq > read).order_by(table.c.seq).limit(PAGE)
            ).all()
        if not page:
            return
        yield from ((row.document, row.hash) for row in page)
        read = page[-1].seq
