"""Benches that the code made once, and whose rows are copied from then on.

A bench takes some hundred statements, and hundreds of tests begin with one. Each that is asked for
is made in a database of its own, and its rows are kept, in a folder for the other processes of the
run too; every other database gets them once. So no two benches of a database share a name, an id or
a hash.
"""

import copy
import os
import pickle
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import Engine, Table

from accountant import tables
from accountant.transactions import decision
from accountant.transactions.ledger_log import log_of
from tests.support import Bench


def with_allowance(engine: Engine) -> Bench:
    made = Bench(engine)
    made.allow()
    return made


def that_approves(engine: Engine) -> Bench:
    made = Bench(engine, policy={"auto_approve_epsilon": "10"})
    made.allow()
    made.warm()
    return made


def with_probe(engine: Engine) -> Bench:
    made = with_allowance(engine)
    made.warm()
    return made


Making = Callable[[Engine], Bench]
Connection = psycopg.Connection[Any]


class Recorded:
    """The benches of one database, `engine`'s, by the function that made them.

    Those that another process keeps in `folder` are read from there.
    """

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.made: dict[Making, list[tuple[Bench, str]]] = defaultdict(list)
        self.taken: Counter[tuple[Making, str | None]] = Counter()
        self.admin: tuple[str | None, Connection] | None = None

    def bench(self, engine: Engine, making: Making) -> Bench:
        """Put a bench into the database of `engine`, where none is like it, and return it."""
        if log_of(engine) is not None:  # its entries go to a log outside the database too
            return making(engine)
        place = making, engine.url.database
        if self.taken[place] == len(self.made[making]):
            self.made[making].append(self._kept(making) or self._record(making))
        recorded, rows = self.made[making][self.taken[place]]
        self.taken[place] += 1
        self._as_superuser(engine).execute(rows)
        decision._probes.clear()  # another database that has the bench may know its probe
        bench = copy.copy(recorded)
        bench.engine = engine
        return bench

    def _file(self, making: Making) -> Path:
        """Return the file of the next bench that is not made here."""
        return self.folder / f"{making.__name__}-{len(self.made[making])}"

    def _kept(self, making: Making) -> tuple[Bench, str] | None:
        """Return the next bench as another process made it, or None."""
        try:
            kept: tuple[Bench, str] = pickle.loads(self._file(making).read_bytes())
        except FileNotFoundError:
            return None
        return kept

    def _record(self, making: Making) -> tuple[Bench, str]:
        """Make a bench, and the statements that write its rows past the triggers: those judged
        them here.
        """
        admin = self._as_superuser(self.engine)
        before = admin.execute("SELECT txid_current()").fetchone()
        made = making(self.engine)
        rows = [
            row for table in tables.metadata.sorted_tables for row in _new(admin, table, before)
        ]
        whole = sql.SQL("SET session_replication_role = replica; {}")
        del made.engine
        kept = made, whole.format(sql.SQL("; ").join(rows)).as_string(admin)
        file = self._file(making)
        written = file.with_suffix(f".{os.getpid()}")  # whoever reads the file finds all of it
        written.write_bytes(pickle.dumps(kept))
        written.replace(file)
        return kept

    def _as_superuser(self, engine: Engine) -> Connection:
        """Return a connection to the database of `engine`, kept until another one is asked for."""
        if self.admin is None or self.admin[0] != engine.url.database:
            if self.admin is not None:
                self.admin[1].close()
            address = engine.url.set(username="postgres")
            _, options = engine.dialect.create_connect_args(address)
            self.admin = engine.url.database, psycopg.connect(**options, autocommit=True)
        return self.admin[1]


def _new(admin: Connection, table: Table, before: Any) -> Iterator[sql.Composed]:
    """Yield an INSERT for each row of a table that was written since the transaction `before`.

    Numbers that the database counts by itself it counts again.
    """
    names = [column.name for column in table.columns if column.identity is None]
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    as_text = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
    into = sql.Identifier(table.name)
    found = admin.execute(
        sql.SQL("SELECT {} FROM {} WHERE xmin::text::bigint > %s").format(as_text, into), before
    )
    for row in found.fetchall():
        values = sql.SQL(", ").join(map(sql.Literal, row))
        yield sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(into, columns, values)
