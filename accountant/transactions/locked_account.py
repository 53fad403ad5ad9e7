"""Appending to the ledger: lock the account's row, judge and apply the entry, write it, move the
balances.

Only the writers call this, inside a transaction. An entry is judged (judgement.py) and applied
(core.ledger.books) by the code with which an auditor verifies an export. So no writer can write
what `verify` refuses, and the cached balances can't say anything else.
"""

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Table, select

from accountant import tables
from accountant.core.errors import NotFound, UnderMaintenance
from accountant.core.ledger import reversals
from accountant.core.ledger.accounts import Accounts
from accountant.core.ledger.commitments import hidden
from accountant.core.ledger.entry_forms import EntryForm
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.hash_chain import (
    JOBLESS,
    SALT_BYTES,
    Entry,
    EntryKind,
    canonical,
    digest,
    read_entry,
)
from accountant.core.ledger.reservations import Reservation, read_reservation
from accountant.core.ledger.rules import Rules
from accountant.core.ledger.verifier import check_hidden, check_not_negative
from accountant.database import run_by_driver
from accountant.ledger_log.lines import Head, Logged
from accountant.tables.accounts_row import book_columns, read_books
from accountant.transactions import cap_usage, ledger_log
from accountant.transactions.judgement import judge, rules_of


def _locking(column: str) -> str:
    """Return the statement that locks the account of the dataset with this id or name."""
    # The time is the database's, and outside the subquery: it is taken when the row is held, not
    # before. One column of JSON: its numbers arrive digit by digit.
    return f"""
        SELECT row_to_json(account) AS account, greatest(clock_timestamp(), (
            SELECT at FROM entries
            WHERE dataset_id = account.dataset_id AND seq = account.chain_seq)) AS now,
            (SELECT reason FROM maintenance)
        FROM (
            SELECT accounts.*, datasets.name
            FROM accounts JOIN datasets ON datasets.id = accounts.dataset_id
            WHERE datasets.{column} = %s
            FOR UPDATE OF accounts) AS account
    """  # noqa: S608


_LOCK_BY_ID, _LOCK_BY_NAME = _locking("id"), _locking("name")


class LockedAccount:
    """A dataset's account, its row held until the transaction ends.

    `post` applies entries to the books in memory; `write` puts all that was posted into the
    database in one statement. `now` is the time of the entries: taken while the row is held. A
    dataset is found by its id or its name. Raises LedgerBehind where the row is not what the log
    outside holds; whoever recovers it from there (`recovering`) may have it nevertheless.
    """

    def __init__(
        self, connection: Connection, dataset: UUID | str, *, recovering: bool = False
    ) -> None:
        self.connection = connection
        lock = _LOCK_BY_NAME if isinstance(dataset, str) else _LOCK_BY_ID
        row = run_by_driver(connection, lock, (dataset,))
        if row is None:
            raise NotFound("dataset", str(dataset))
        account: dict[str, Any] = row[0]
        self.now: datetime = row[1]
        self._maintenance: str | None = row[2]
        self.dataset_id = UUID(account["dataset_id"])
        self.dataset: str = account["name"]
        self.seq: int = account["chain_seq"]
        self.head: str = account["chain_head"]
        self._recovering = recovering
        self._writing = ledger_log.transaction_of(connection)
        if not recovering:
            ledger_log.compare(connection, self.dataset_id, self.dataset, Head(self.seq, self.head))
            self._tell([])
        self.books = read_books(account)
        self._rules: Rules | None = None
        self.usage = cap_usage.Sheet(connection, self.dataset_id)
        self._posted: list[dict[str, Any]] = []

    @property
    def accounts(self) -> Accounts:
        return self.books.accounts

    @property
    def rules(self) -> Rules:
        """The rules in force, by the entries that state them."""
        if self._rules is None:
            self._rules = rules_of(self.connection, self.dataset_id)
        return self._rules

    def require_open(self) -> None:
        """Raise UnderMaintenance while nothing is admitted."""
        if self._maintenance is not None:
            raise UnderMaintenance(self._maintenance)

    def use_rules(self, newest: str | None) -> None:
        """Take the rules in force from the hash of the newest entry that states one."""
        self._rules = rules_of(self.connection, self.dataset_id, newest)

    def append(
        self, kind: EntryKind, actor: str, job_id: UUID | None, body: Mapping[str, Any]
    ) -> Entry:
        """Write the next entry and move the balances. Raises where the entry can't stand."""
        entry = self.post(kind, actor, job_id, body)
        self.write()
        return entry

    def post_form(
        self,
        kind: EntryKind,
        actor: str,
        job_id: UUID,
        body: Mapping[str, Any],
        held: Reservation,
        form: EntryForm,
    ) -> None:
        """Post a RESERVE like others before it, whose text is `form`; its job reads a version of
        the data.

        `held`: the reservation that its body makes.
        """
        entry = Entry(
            self.dataset, self.seq + 1, kind, self.now, actor, str(job_id), body, self.head, b""
        )
        # All that the judgement of such a body depends on; rules never change, others take their
        # place.
        account, secret = self.books.account, self.books.secret
        judged_by = self.rules, account and account.delta, secret and secret.terms
        if form.judged_by != judged_by:
            document = entry.document()
            check_hidden(document, canonical(hidden(document)).decode())
            judge(self.connection, self.dataset_id, self.rules, entry, self.books)
            form.judged_by = judged_by
        self.books = self.books.apply(kind, entry.job, body, held)
        salt = secrets.token_bytes(SALT_BYTES)
        self._post(entry, job_id, *form.write(entry.seq, self.now, str(job_id), self.head, salt))

    def post(
        self, kind: EntryKind, actor: str, job_id: UUID | None, body: Mapping[str, Any]
    ) -> Entry:
        """Apply the next entry, for `write`. Raises, and changes nothing, if it can't stand."""
        job = None if job_id is None else str(job_id)
        made = Entry(self.dataset, self.seq + 1, kind, self.now, actor, job, body, self.head)
        text = canonical(made.document()).decode()
        document = read_document(text)  # what is judged is what is written
        entry, recorded = read_entry(document, made.seq), digest(document)
        check_hidden(document, canonical(hidden(document)).decode())
        rules = self.rules.copy()
        held = judge(self.connection, self.dataset_id, rules, entry, self.books)
        books = reversals.apply(self.books, kind, job, entry.body, held)
        if kind is not EntryKind.RESERVE:
            check_not_negative(books)
        rules.acts.written(entry, recorded)
        self.books, self._rules = books, rules
        self._post(entry, job_id, text, recorded)
        return entry

    def _post(self, entry: Entry, job_id: UUID | None, text: str, recorded: str) -> None:
        if entry.kind is EntryKind.RESERVE and not self._recovering:
            self.require_open()
        row = {"seq": entry.seq, "kind": str(entry.kind), "at": entry.at, "actor": entry.actor}
        place = {"dataset_id": self.dataset_id, "job_id": job_id, "previous": self.head}
        self._posted.append({**row, **place, "document": text, "hash": recorded})
        self.seq, self.head = entry.seq, recorded

    def restore(
        self, document: Mapping[str, Any], recorded: Logged, beforehand: Callable[[Entry], None]
    ) -> Entry:
        """Write an entry that the log outside holds and the database lacks; it was verified there.

        `beforehand` makes the rows to which the entry refers.
        """
        entry = read_entry(document, self.seq + 1)
        beforehand(entry)
        job_id = None if entry.job is None else UUID(entry.job)
        settles = entry.kind in (EntryKind.COMMIT, EntryKind.VOID) and job_id is not None
        held = read_reservation(self.reservation(job_id)) if settles else None  # type: ignore[arg-type]
        self.books = reversals.apply(self.books, entry.kind, entry.job, entry.body, held)
        self._post(entry, job_id, recorded.text, recorded.hash)
        self.write()
        if entry.kind in JOBLESS:
            self._rules = None
        self.now = max(self.now, entry.at)
        return entry

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Return a block that posts all of its entries and counts, or none where it raises."""
        before = (self.books, self.seq, self.head, self.now, self._rules)
        counted, posted = self.usage.snapshot(), len(self._posted)
        try:
            yield
        except BaseException:
            self.books, self.seq, self.head, self.now, self._rules = before
            self.usage.restore(counted)
            del self._posted[posted:]
            raise

    def write(self, besides: Sequence[tuple[Table, Sequence[Mapping[str, Any]]]] = ()) -> None:
        """Write what was posted and counted, the balances after it, and other rows, in one
        statement.

        Entries need a transaction of `ledger_log.writing`, which puts them into the log outside.
        """
        if self._posted:
            self._tell(self._posted)
        written = (*besides, (tables.usage, self.usage.take()), (tables.entries, self._posted))
        groups = [(table, rows) for table, rows in written if rows]
        account = None
        if self._posted:
            account = {"chain_seq": self.seq, "chain_head": self.head, **book_columns(self.books)}
        if groups:
            shape = tuple((table.name, tuple(rows[0])) for table, rows in groups)
            statement = _statement(shape, None if account is None else tuple(account))
            values: list[object] = [as_json(rows) for _, rows in groups]
            values += [] if account is None else [as_json(account), self.dataset_id]
            run_by_driver(self.connection, statement, tuple(values))
        self._posted = []

    def _tell(self, posted: Sequence[Mapping[str, Any]]) -> None:
        """Say to the transaction what the log has to hold before anybody is answered."""
        if self._writing is None:
            if posted:
                raise RuntimeError(
                    "entries are posted in a transaction of ledger_log.writing alone"
                )
            return
        self._writing.heads[self.dataset_id] = self.dataset, Head(self.seq, self.head)
        known = self._writing.entries.setdefault(self.dataset_id, [])
        known += [
            Logged(row["seq"], row["previous"], row["hash"], row["document"]) for row in posted
        ]

    def reservation(self, job_id: UUID) -> dict[str, Any]:
        """Return the body of the job's RESERVE entry."""
        query = select(tables.entries.c.document).where(
            tables.entries.c.job_id == job_id, tables.entries.c.kind == str(EntryKind.RESERVE)
        )
        text = self.connection.execute(query).scalar_one_or_none()
        if text is None:
            raise NotFound("reservation", str(job_id))
        body: dict[str, Any] = read_document(text)["body"]
        return body


#: What an insert does where its row is there already: what people use is added to.
_WHERE_THERE = {
    "usage": " ON CONFLICT (dataset_id, kind, holder)"
    " DO UPDATE SET reserved = usage.reserved + excluded.reserved, cap = excluded.cap"
}


@lru_cache(maxsize=32)
def _statement(
    groups: tuple[tuple[str, tuple[str, ...]], ...], account: tuple[str, ...] | None
) -> str:
    """Return one statement that inserts rows given as JSON, table by table, and updates the
    account's row.

    The tables' own types read the JSON: a number becomes NUMERIC digit by digit, never a float.
    Columns that a row does not name get their defaults. Foreign keys are checked when the statement
    ends.
    """
    added = [insert(name, columns) for name, columns in groups]
    if account is None:
        last = added.pop()
    else:
        listed = ", ".join(account)
        source = "json_populate_record(NULL::accounts, %s::json)"
        row = f"SELECT {listed} FROM {source}"  # noqa: S608
        last = f"UPDATE accounts SET ({listed}) = ({row}) WHERE dataset_id = %s"  # noqa: S608
    parts = ", ".join(f"new_{number} AS ({each})" for number, each in enumerate(added))
    return f"WITH {parts} {last}" if parts else last


def insert(name: str, columns: Sequence[str], where: str = "") -> str:
    """Return an INSERT of a table's rows, given as JSON; `where` decides if any is inserted."""
    listed = ", ".join(columns)
    source = f"json_populate_recordset(NULL::{name}, %s::json)"
    rows = f"SELECT {listed} FROM {source}{where}"  # noqa: S608
    return f"INSERT INTO {name} ({listed}) {rows}" + _WHERE_THERE.get(name, "")


def as_json(value: object) -> str:
    """Return JSON for `json_populate_record` and its like; times and ids are text."""
    return json.dumps(value, default=str, ensure_ascii=False)
