"""Accounts that are compared and written: the swaps of many accounts in one statement.

    write ── queue of the engine ──▶ leader: all who wait by now ──▶ one statement: hold each row if
             it is
             as it was known ──▶ balances, entries, jobs … of all    else nothing; then each by
                                                                     itself

While one statement is under way the decisions on other accounts are made, and the next statement
takes them along: with many accounts as with one (group_commit.py), the more there is to do, the
less each costs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from accountant.transactions.group_commit import Combiner, Take, Ticket
from accountant.transactions.locked_account import as_json, insert

#: Most accounts in one statement, and most entries unless one account brings more: their rows are
#: held while it runs, some tens of milliseconds.
MOST_AT_ONCE, MOST_ENTRIES = 16, 100


@dataclass(frozen=True)
class Swap:
    """What is written of one account if it is as it was known.

    `held`: what `hold_account` compares. `account`: the row after it. `groups`: rows to be
    inserted, by the name of their table, alike within it. `more`: how many jobs of whom are among
    them that wait, of whom no more than `most` may.
    """

    held: Mapping[str, Any]
    account: Mapping[str, Any]
    groups: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]
    more: Mapping[UUID, int]
    most: int

    @property
    def entries(self) -> int:
        """How many rows its longest group has."""
        return max(len(rows) for _, rows in self.groups)

    @property
    def shape(self) -> tuple[Any, ...]:
        """What two of them have in common if one statement can write both."""
        tables = tuple((name, tuple(rows[0])) for name, rows in self.groups)
        return tuple(self.account), tables, self.most


Waiting = Ticket[Swap, datetime | None]


def write(engine: Engine, swap: Swap) -> datetime | None:
    """Write a swap, committed when this returns: when its row was held; None: nothing was written.

    Raises what the database raises, which may have written it all the same where the connection
    broke.
    """
    return _writing.ask(engine, swap)


def _statements(waiting: Iterable[Waiting]) -> list[list[Waiting]]:
    """Those that one statement writes together, in the order of their arrival."""
    found: list[list[Waiting]] = []
    last: dict[tuple[Any, ...], tuple[list[Waiting], int]] = {}
    for ticket in waiting:
        swap = ticket.question
        together, entries = last.get(swap.shape, ([], MOST_ENTRIES))
        if entries + swap.entries > MOST_ENTRIES:
            together, entries = [], 0
            found.append(together)
        together.append(ticket)
        last[swap.shape] = together, entries + swap.entries
    return found


def _write_all(engine: Engine, take: Take[Swap, datetime | None]) -> None:
    for tickets in _statements(take()):
        try:
            at = _write(engine, [each.question for each in tickets])
            for ticket in tickets:
                alone = at is None and len(tickets) > 1
                ticket.answer(_write(engine, [ticket.question]) if alone else at)
        except Exception as error:
            for ticket in tickets:
                if not ticket.done:
                    ticket.fail(error)


_writing: Combiner[Engine, Swap, datetime | None] = Combiner(_write_all, MOST_AT_ONCE)


def _write(engine: Engine, swaps: Sequence[Swap]) -> datetime | None:
    """Write swaps that are alike, all or none; by the driver alone, without SQLAlchemy's own
    work.
    """
    more = sum((Counter(each.more) for each in swaps), Counter())
    statement = _statement(
        tuple(swaps[0].account), tuple((name, tuple(rows[0])) for name, rows in swaps[0].groups)
    )
    rows = [
        [row for swap in swaps for row in swap.groups[n][1]] for n in range(len(swaps[0].groups))
    ]
    values = (
        *(as_json([each.held for each in swaps]), list(more), list(more.values()), swaps[0].most),
        *(as_json([each.account for each in swaps]), len(swaps)),
        *map(as_json, rows),
        len(swaps),
    )
    taken = engine.raw_connection()
    try:
        connection: Any = taken.driver_connection
        connection.autocommit = True
        found = connection.execute(statement, values).fetchone()
        connection.autocommit = False
    except BaseException:
        taken.invalidate()  # whatever state it is in, nobody meets it
        raise
    finally:
        taken.close()
    at: datetime | None = None if found is None else found[0]
    return at


@lru_cache(maxsize=32)
def _statement(account: tuple[str, ...], groups: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    listed = ", ".join(name for name in account if name != "dataset_id")
    parts = [
        "held AS MATERIALIZED (SELECT dataset_id, seq, head, "
        "hold_account(dataset_id, seq, head, stand, models, at, analysts, keys) AS at "
        "FROM json_to_recordset(%s::json) AS known(dataset_id uuid, seq bigint, head text, stand "
        "text, "
        "models text[], at timestamptz, analysts uuid[], keys text[]) WHERE (SELECT may_wait(%s, "
        "%s, %s)))",
        f"moved AS MATERIALIZED (UPDATE accounts SET ({listed}) = (SELECT {listed} "  # noqa: S608
        "FROM json_populate_recordset(NULL::accounts, %s::json) AS after "
        "WHERE after.dataset_id = accounts.dataset_id) FROM held WHERE (SELECT count(at) FROM "
        "held) = %s "
        "AND accounts.dataset_id = held.dataset_id AND chain_seq = held.seq AND chain_head = "
        "held.head "
        "RETURNING 1 AS one)",
        *(
            f"new_{number} AS ({insert(name, columns, ' WHERE EXISTS (SELECT FROM moved)')})"
            for number, (name, columns) in enumerate(groups)
        ),
    ]
    # Rows that are held are as they are compared: that one is moved and another is not ends the
    # statement.
    moved = "(SELECT count(*) FROM moved)"
    whole = f"CASE {moved} WHEN 0 THEN false WHEN %s THEN true ELSE {moved} / 0 = 1 END"
    return f"WITH {', '.join(parts)} SELECT min(at) FROM held HAVING {whole}"  # noqa: S608
