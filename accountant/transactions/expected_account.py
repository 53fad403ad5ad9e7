"""Admission without a lock taken beforehand: decide on what is known, write it only if that is still so.

    known (after an earlier answer) ── decide, post ──▶ one statement: hold the row if number, head, dataset,
    version, models and clock are as known ──▶ balances, entries, jobs … ──▶ known    else nothing is written

Whatever the decision would have to look up is not known here: `Unknown` is raised, and the caller takes the
account's row first (locked_account.py). So does whoever finds that nothing was written.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, cast
from uuid import UUID

from sqlalchemy import Connection, Table

from accountant import tables
from accountant.core.ledger.books import Books
from accountant.ledger_log.lines import Head
from accountant.tables.accounts_row import book_columns
from accountant.transactions import cap_usage, ledger_log
from accountant.transactions.locked_account import LockedAccount, as_json, inserts


class Unknown(Exception):
    """The decision needs what is not known without the database."""


@dataclass(frozen=True)
class Known:
    """An account as its last writer in this process left it, and what its next decision goes by.

    `at`: no earlier than its last entry; `clock`: the database's time where time.monotonic() was 0.
    `facts`: what was looked up of dataset, version and models; `stand`: what account_stand said of them.
    """

    dataset_id: UUID
    dataset: str
    head: Head
    books: Books
    at: datetime
    clock: datetime
    stand: str
    facts: Any

    @property
    def now(self) -> datetime:
        """The database's time, no later than it is and after the last entry."""
        return max(self.at, self.clock + timedelta(seconds=time.monotonic()))


def clock_at(now: datetime) -> datetime:
    """The database's time where time.monotonic() was 0, by an answer that said `now` and has just come."""
    return now - timedelta(seconds=time.monotonic())


class _Nowhere:
    """In place of a connection: whoever would ask the database does not know enough."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Unknown(name)


_NOWHERE = cast(Connection, _Nowhere())


class ExpectedAccount(LockedAccount):
    """A dataset's account as it is known, with no row held. Entries are posted as to a locked one."""

    def __init__(self, known: Known) -> None:
        self.connection = _NOWHERE
        self.dataset_id, self.dataset = known.dataset_id, known.dataset
        self.seq, self.head, self.now = known.head.seq, known.head.hash, known.now
        self.books = known.books
        self.usage = cap_usage.Sheet(_NOWHERE, known.dataset_id)
        self._known, self._began = known, self.now
        self._posted: list[dict[str, Any]] = []

    @property
    def posts(self) -> bool:
        """True if there is an entry to be written."""
        return bool(self._posted)

    def swap(
        self,
        connection: Connection,
        besides: Sequence[tuple[Table, Sequence[Mapping[str, Any]]]],
        models: Sequence[str],
        keys: Sequence[tuple[UUID, str]],
        waiting: tuple[Mapping[UUID, int], int],
    ) -> datetime | None:
        """Write all that was posted and counted, and other rows, if the account is as it was known.

        `models`: the names that `stand` was made of; `keys`: (analyst, idempotency key) that must be new.
        `waiting`: how many jobs of whom are among the rows, and how many of one may wait besides (may_wait).
        `connection`: of `ledger_log.writing`, in one statement. Returns the database's time; None: nothing
        was written.
        """
        groups = [(t.name, rows) for t, rows in (*besides, (tables.usage, self.usage.take())) if rows]
        groups.append((tables.entries.name, self._posted))
        account = {"chain_seq": self.seq, "chain_head": self.head, **book_columns(self.books)}
        listed, known = ", ".join(account), self._known
        parts = [
            "held AS MATERIALIZED (SELECT CASE WHEN may_wait(%s, %s, %s) "
            "THEN hold_account(%s, %s, %s, %s, %s, %s, %s, %s) END AS at)",
            f"moved AS (UPDATE accounts SET ({listed}) = "  # noqa: S608
            f"(SELECT {listed} FROM json_populate_record(NULL::accounts, %s::json)) "
            "WHERE dataset_id = %s AND chain_seq = %s AND chain_head = %s "
            "AND (SELECT at FROM held) IS NOT NULL RETURNING 1)",
            *inserts(groups, "moved, "),
        ]
        place = (self.dataset_id, known.head.seq, known.head.hash)
        more, most = waiting
        values = (
            *(list(more), list(more.values()), most),
            *(*place, known.stand, list(models), self._began),
            *([analyst for analyst, _ in keys], [key for _, key in keys]),
            *(as_json(account), *place),
            *(as_json(rows) for _, rows in groups),
        )
        statement = f"WITH {', '.join(parts)} SELECT held.at FROM held, moved"  # noqa: S608
        at = connection.exec_driver_sql(statement, values).scalar_one_or_none()
        if at is None:
            return None
        self._writing = ledger_log.transaction_of(connection)
        self._tell(self._posted)
        return cast(datetime, at)

    def after(self, now: datetime) -> Known:
        """What is known once `swap` has written; `now` is what it returned."""
        known = self._known
        head, clock = Head(self.seq, self.head), clock_at(now)
        return replace(known, head=head, books=self.books, at=self.now, clock=clock)
