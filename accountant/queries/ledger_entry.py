"""One entry of a ledger: as it is hashed, in its chain, priced anew, with the balances after it.

Balances after an entry are a replay from the nearest kept standing at or before it
(tables.standings), or from the beginning: at most LONGEST entries, whatever the ledger's length.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, select

from accountant import tables
from accountant.core.errors import ExchequerError, NotFound, VerificationFailed
from accountant.core.ledger import reversals
from accountant.core.ledger.books import Books
from accountant.core.ledger.commitments import hidden, opened
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.hash_chain import GENESIS, EntryKind, canonical, digest
from accountant.core.ledger.repricing import reprice
from accountant.core.ledger.reservations import read_reservation
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries import jobs, ledgers
from accountant.queries.account_views import account_view, ex_post_view, secret_view
from accountant.queries.dataset_rows import dataset_row, require_overseer
from accountant.schema.ledgers import Chain, EntryPage, Figure, NumberedEntry, Repriced, Standing
from accountant.tables.accounts_row import read_books

#: More entries than this are not replayed for a page; ledgers older than the kept standings may
#: have them.
LONGEST = 2048


def show(engine: Engine, name: str, seq: int, viewer: Actor) -> EntryPage:
    """Return an entry for stewards and auditors. Raises NotFound and NotPermitted.

    `hashed`: the canonical text that its hash covers, private values as commitments. `chain`: what
    was checked of its place. `price`: each figure charged and computed now. `after`: the balances
    after it.
    """
    require_overseer(viewer)
    with reading(engine, snapshot=True) as connection:
        dataset_row(connection, name, viewer)
        account = connection.execute(
            select(tables.accounts)
            .join(tables.datasets, tables.datasets.c.id == tables.accounts.c.dataset_id)
            .where(tables.datasets.c.name == name)
        ).one()
        row, previous = _with_previous(connection, account.dataset_id, seq)
        if row is None:
            raise NotFound("entry", f"{name}:{seq}")
        siblings = _entries_of_job(connection, row)
        replayed = _replayed(connection, account, seq)
        decisions = tables.decisions.c
        of_entry = (decisions.dataset_id == account.dataset_id) & (decisions.entry_seq == seq)
        decided = connection.scalar(select(decisions.id).where(of_entry))
    document = read_document(row.document)
    return EntryPage(
        **ledgers.stated(row),
        entries=account.chain_seq,
        hashed=canonical(hidden(document)).decode(),
        chain=_chain(document, row, previous),
        price=_price(document, siblings, read_books(account)),
        job_entries=[NumberedEntry(seq=sibling.seq, kind=sibling.kind) for sibling in siblings],
        decision=None if decided is None else str(decided),
        after=replayed,
    )


def _with_previous(
    connection: Connection, dataset_id: UUID, seq: int
) -> tuple[Row[Any] | None, Row[Any] | None]:
    table = tables.entries
    query = (
        select(table, *jobs.NAMED)
        .outerjoin(tables.jobs, tables.jobs.c.id == table.c.job_id)
        .where(table.c.dataset_id == dataset_id, table.c.seq.in_((seq - 1, seq)))
    )
    rows = {row.seq: row for row in connection.execute(query)}
    return rows.get(seq), rows.get(seq - 1)


def _entries_of_job(connection: Connection, row: Row[Any]) -> list[Row[Any]]:
    """Return all entries of the entry's job, in order; nothing for an ALLOW."""
    table = tables.entries
    if row.job_id is None:
        return []
    query = select(table.c.seq, table.c.kind, table.c.document).where(table.c.job_id == row.job_id)
    return list(connection.execute(query.order_by(table.c.seq)))


def _chain(document: dict[str, Any], row: Row[Any], previous: Row[Any] | None) -> Chain:
    """Check the entry's place here and now. `problems` is empty where all of it holds."""
    problems = []
    before = GENESIS if row.seq == 1 else None if previous is None else previous.hash
    if digest(document) != row.hash:
        problems.append("its content does not give its hash")
    if before is None:
        problems.append(f"entry {row.seq - 1} is missing")
    elif document["previous"] != before:
        problems.append(f"it does not name the hash of entry {row.seq - 1}")
    if (document["seq"], document["kind"]) != (row.seq, row.kind):
        problems.append("its columns are not those of its content")
    return Chain(previous=document["previous"], hash=row.hash, problems=problems)


def _price(document: dict[str, Any], others: list[Row[Any]], books: Books) -> Repriced:
    reserve = next(
        (
            read_document(sibling.document)["body"]
            for sibling in others
            if sibling.kind == "RESERVE"
        ),
        None,
    )
    charge = reprice(EntryKind(document["kind"]), opened(document)["body"], books.accounts, reserve)
    figures = [
        Figure(name=e.name, charged=e.charged, computed=e.computed, equal=e.equal)
        for e in charge.figures
    ]
    return Repriced(equal=charge.equal, problem=charge.problem, figures=figures)


# --- balances -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Start:
    books: Books
    seq: int


def _replayed(connection: Connection, account: Row[Any], seq: int) -> Standing:
    """Return the balances after entry `seq`, and from where they were replayed; or why not."""
    start = _start(connection, account.dataset_id, seq)
    if seq - start.seq > LONGEST:
        reason = (
            f"the nearest balances that were kept are {seq - start.seq:,} entries before this one"
        )
        return Standing(start=start.seq, problem=reason, account=None, ex_post=None, secret=None)
    try:
        books = replay(connection, account.dataset_id, start.books, start.seq, seq)
    except ExchequerError as error:
        return Standing(
            start=start.seq, problem=str(error), account=None, ex_post=None, secret=None
        )
    return Standing(
        start=start.seq,
        problem=None,
        account=account_view(books),
        ex_post=ex_post_view(books.ex_post, True),
        secret=secret_view(books.secret),
        overdrawn=books.overdrawn,
    )


def _start(connection: Connection, dataset_id: UUID, seq: int) -> _Start:
    table = tables.standings
    query = select(table).where(table.c.dataset_id == dataset_id, table.c.seq <= seq)
    row = connection.execute(query.order_by(table.c.seq.desc()).limit(1)).one_or_none()
    return _Start(Books(), 0) if row is None else _Start(read_books(row.account), row.seq)


def books_after(connection: Connection, dataset_id: UUID, seq: int) -> Books:
    """Return the books after an entry, replayed from a standing. Raises VerificationFailed."""
    start = _start(connection, dataset_id, seq)
    return replay(connection, dataset_id, start.books, start.seq, seq)


def replay(connection: Connection, dataset_id: UUID, books: Books, after: int, until: int) -> Books:
    """Return the books after entry `until`, from those after `after`. Raises VerificationFailed."""
    table, reserve = tables.entries, tables.entries.alias()
    within = (table.c.dataset_id == dataset_id, table.c.seq > after, table.c.seq <= until)
    query = (
        select(table.c.seq, table.c.kind, table.c.document, reserve.c.document.label("reserve"))
        .outerjoin(
            reserve,
            (reserve.c.job_id == table.c.job_id)
            & (reserve.c.kind == "RESERVE")
            & table.c.kind.in_(("COMMIT", "VOID")),
        )
        .where(*within)
        .order_by(table.c.seq)
    )
    for row in connection.execute(query):
        document = opened(read_document(row.document))
        held = None if row.reserve is None else read_reservation(read_document(row.reserve)["body"])
        try:
            books = reversals.apply(
                books, EntryKind(row.kind), document["job"], document["body"], held
            )
        except VerificationFailed as error:
            raise VerificationFailed(str(error), row.seq) from None
    return books
