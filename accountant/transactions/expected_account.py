"""Admission without a lock taken beforehand: decide on what is known, write it only if that is
still so.

    known (after an earlier answer) ── decide, post ──▶ one statement (swaps.py): hold the row if
      number,
    head, dataset, version, models and clock are as known ──▶ balances, entries, jobs …    else
      nothing

What is known may be what the batch before will leave, while that one is just being written
(`Turn`): the next is decided meanwhile, and written after it or not at all.

Whatever the decision would have to look up is not known here: `Unknown` is raised, and the caller
takes the account's row first (locked_account.py). So does whoever finds that nothing was written.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Event
from typing import Any, NoReturn, cast
from uuid import UUID

from sqlalchemy import Connection, Engine, Table

from accountant import tables
from accountant.core.ledger.books import Books
from accountant.core.ledger.rules import Rules
from accountant.ledger_log.lines import Head
from accountant.tables.accounts_row import book_columns
from accountant.transactions import cap_usage, ledger_log
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.swaps import Swap


class Unknown(Exception):
    """The decision needs what is not known without the database."""


class Clock:
    """The database's time, by what it said last."""

    def __init__(self, now: datetime) -> None:
        self.told(now)

    def told(self, now: datetime) -> None:
        """Take in an answer that said `now` and has just come."""
        self._at_zero = now - timedelta(seconds=time.monotonic())

    @property
    def now(self) -> datetime:
        """No later than it is."""
        return self._at_zero + timedelta(seconds=time.monotonic())


class Turn:
    """Whether what a batch makes of the account has come true."""

    def __init__(self) -> None:
        self._ended = Event()
        self._written = False

    def end(self, written: bool) -> None:
        """Tell whoever decided on it meanwhile."""
        self._written = written
        self._ended.set()

    def ended(self, seconds: float = 0.0) -> bool:
        """Return whether it is over, within so many seconds."""
        return self._ended.is_set() if not seconds else self._ended.wait(seconds)

    @property
    def written(self) -> bool:
        """True if it is over, and the batch is in the ledger and its log."""
        return self._ended.is_set() and self._written


def written() -> Turn:
    """Return the turn of what stands in the ledger already."""
    turn = Turn()
    turn.end(True)
    return turn


@dataclass(frozen=True)
class Known:
    """An account as its last writer in this process left it, and what its next decision goes by.

    `at`: no earlier than its last entry. `facts`: what was looked up of dataset, version and
    models; `stand`: what account_stand said of them. `turn`: of the last writer, which may still
    write.
    """

    dataset_id: UUID
    dataset: str
    head: Head
    books: Books
    rules: Rules
    at: datetime
    clock: Clock
    stand: str
    facts: Any
    turn: Turn = field(default_factory=written)

    @property
    def now(self) -> datetime:
        """The database's time, no later than it is and after the last entry."""
        return max(self.at, self.clock.now)


class _Nowhere:
    """In place of a connection: whoever would ask the database does not know enough."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Unknown(name)


_NOWHERE = cast(Connection, _Nowhere())


class ExpectedAccount(LockedAccount):
    """A dataset's account as it is known, with no row held. Entries are posted as to a locked
    one.
    """

    def __init__(self, known: Known) -> None:
        self.connection = _NOWHERE
        self.dataset_id, self.dataset = known.dataset_id, known.dataset
        self.seq, self.head, self.now = known.head.seq, known.head.hash, known.now
        self.books, self._rules = known.books, known.rules
        self.usage = cap_usage.Sheet(_NOWHERE, known.dataset_id)
        self._known, self._began = known, self.now
        self._posted: list[dict[str, Any]] = []

    @property
    def posts(self) -> bool:
        """True if there is an entry to be written."""
        return bool(self._posted)

    def swap(
        self,
        besides: Sequence[tuple[Table, Sequence[Mapping[str, Any]]]],
        models: Sequence[str],
        keys: Sequence[tuple[UUID, str]],
        waiting: tuple[Mapping[UUID, int], int],
    ) -> Swap:
        """Return all that was posted and counted, and other rows, to be written if the account is
        as it was known.

        `models`: the names that `stand` was made of; `keys`: (analyst, idempotency key) that must
        be new. `waiting`: how many jobs of whom are among the rows, and how many of one may wait
        besides (may_wait).
        """
        known = self._known
        held = {
            **{"dataset_id": self.dataset_id, "seq": known.head.seq, "head": known.head.hash},
            **{"stand": known.stand, "models": list(models), "at": self._began},
            **{"analysts": [analyst for analyst, _ in keys], "keys": [key for _, key in keys]},
        }
        account = {"chain_seq": self.seq, "chain_head": self.head, **book_columns(self.books)}
        written = (*besides, (tables.usage, self.usage.take()), (tables.entries, self._posted))
        groups = tuple((table.name, rows) for table, rows in written if rows)
        return Swap(held, {"dataset_id": self.dataset_id, **account}, groups, *waiting)

    def swapped(self, engine: Engine, at: datetime) -> None:
        """Take in that the swap was written at this time, and put the entries into the log,
        synced.
        """
        self._known.clock.told(at)
        self._writing = ledger_log.Writing(ledger_log.log_of(engine))
        self._tell(self._posted)
        ledger_log.committed(engine, self._writing)

    def after(self, turn: Turn) -> Known:
        """Return what is known once `swap` has written in this turn."""
        return replace(
            self._known, head=Head(self.seq, self.head), books=self.books, at=self.now, turn=turn
        )
