"""Entries in one table, or in parts by dataset: `python -m benchmarks.partitions [--entries N] [--parts 16]`.

Two copies of the table of entries with all its indexes, the second split by hash of the dataset (a unique
index of such a table has to name the dataset, so those by job do). Both are filled alike; then each in turn
takes single entries, answers by place in a ledger and by job, and is vacuumed after a tenth more came.
Counted is processor time of the server (decision 0051).
"""

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from sqlalchemy import make_url

from accountant.database import migrate
from benchmarks.admission import server
from benchmarks.admission_parts import postmaster_of, server_seconds

LEDGERS = 1_000
DOCUMENT = 1_150  # characters
COPIES = ("one table", "in parts")
TABLES = dict(zip(COPIES, ("whole", "parted"), strict=True))

FILL = """INSERT INTO {table} (dataset_id, seq, kind, at, actor, job_id, previous, document, hash)
SELECT ledger, seq, 'RESERVE', now(), 'analyst', gen_random_uuid(), md5(random()::text), repeat('d', {size}),
    md5(random()::text)
FROM generate_series({first}, {last}) AS seq, ledgers"""
INSERT = """INSERT INTO {table} (dataset_id, seq, kind, at, actor, job_id, previous, document, hash)
VALUES (%s, %s, 'RESERVE', now(), 'analyst', %s, %s, %s, %s)"""


def make(connection: psycopg.Connection[Any], parts: int) -> None:
    """Both tables, and the ledgers whose entries they hold."""
    connection.execute("CREATE TABLE whole (LIKE entries INCLUDING DEFAULTS)")
    connection.execute("CREATE TABLE parted (LIKE entries INCLUDING DEFAULTS) PARTITION BY HASH (dataset_id)")
    for part in range(parts):
        of = f"FOR VALUES WITH (MODULUS {parts}, REMAINDER {part})"
        connection.execute(f"CREATE TABLE parted_{part} PARTITION OF parted {of}")
    query = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'entries'"
    for name, definition in connection.execute(query).fetchall():
        for table in TABLES.values():
            own = definition.replace(f"INDEX {name} ", f"INDEX {table}_{name} ")
            own = re.sub(r" ON (public\.)?entries ", f" ON {table} ", own)
            if table == "parted" and "UNIQUE" in own and "dataset_id" not in own:
                own = own.replace("(job_id)", "(dataset_id, job_id)")
            connection.execute(own)
    connection.execute(
        f"CREATE TABLE ledgers AS SELECT gen_random_uuid() AS ledger FROM generate_series(1, {LEDGERS})"
    )


class Copy:
    """One of both tables."""

    def __init__(self, connection: psycopg.Connection[Any], table: str, postmaster: int) -> None:
        self.connection, self.table, self.postmaster = connection, table, postmaster
        self.ledgers = [row[0] for row in connection.execute("SELECT ledger FROM ledgers")]
        self.next = 0

    def fill(self, first: int, last: int) -> None:
        self.connection.execute(FILL.format(table=self.table, size=DOCUMENT, first=first, last=last))
        self.next = last + 1

    def insert(self, number: int) -> None:
        ledger, seq = self.ledgers[number % LEDGERS], self.next + number // LEDGERS
        values = (ledger, seq, uuid4(), uuid4().hex, "d" * DOCUMENT, uuid4().hex)
        self.connection.execute(INSERT.format(table=self.table), values)

    def by_place(self, number: int) -> None:
        query = f"SELECT document FROM {self.table} WHERE dataset_id = %s AND seq = %s"
        self.connection.execute(query, (self.ledgers[number % LEDGERS], 1 + number % 50)).fetchone()

    def by_job(self, _: int) -> None:
        query = f"SELECT document FROM {self.table} WHERE job_id = %s AND kind = 'RESERVE'"
        self.connection.execute(query, (uuid4(),)).fetchone()

    def vacuum(self, _: int) -> None:
        self.connection.execute(f"VACUUM (FREEZE) {self.table}")

    def cost(self, work: Callable[[int], None], times: int) -> float:
        """Milliseconds of the server's processor time, each."""
        for number in range(10 if times > 1 else 0):
            work(number)
        began = server_seconds(self.postmaster)
        for number in range(10, 10 + times):
            work(number)
        return 1e3 * (server_seconds(self.postmaster) - began) / times

    def megabytes(self) -> float:
        """Of all indexes."""
        query = "SELECT sum(pg_indexes_size(c.oid)) FROM pg_class c WHERE c.relname ~ %s AND c.relkind = 'r'"
        found = self.connection.execute(query, (rf"^{self.table}(_\d+)?$",)).fetchone()
        assert found is not None
        return float(found[0]) / 1e6


def main() -> None:
    """Fill both, measure each in turn, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--parts", type=int, default=16)
    parser.add_argument("--each", type=int, default=2_000)
    parser.add_argument("--home", type=Path, help="where the server's folder is made")
    asked = parser.parse_args()
    with server(asked.home) as (servers, folder):
        migrate(servers.owner_url, servers.database_url)
        superuser = make_url(servers.owner_url).set(drivername="postgresql", username="postgres")
        text = superuser.render_as_string(hide_password=False)
        with psycopg.connect(text, autocommit=True) as connection:
            make(connection, asked.parts)
            copies = {name: Copy(connection, TABLES[name], postmaster_of(folder)) for name in COPIES}
            last = asked.entries // LEDGERS
            for copy in copies.values():
                copy.fill(1, last)
            connection.execute("VACUUM (FREEZE, ANALYZE)")
            connection.execute("CHECKPOINT")
            print(f"{last * LEDGERS} entries, {asked.parts} parts, {asked.each} of each; server ms")
            print("| | " + " | ".join(COPIES) + " |\n|---|---|---|")
            for what, work, times in (
                ("a single entry", "insert", asked.each),
                ("an entry by its place", "by_place", asked.each),
                ("an entry by its job", "by_job", asked.each),
            ):
                figures = [f"{copy.cost(getattr(copy, work), times):.3f}" for copy in copies.values()]
                print(f"| {what} | " + " | ".join(figures) + " |", flush=True)
            for copy in copies.values():
                copy.fill(last + 100, last + 100 + last // 10)
            figures = [f"{copy.cost(copy.vacuum, 1):.0f}" for copy in copies.values()]
            print("| a vacuum after a tenth more | " + " | ".join(figures) + " |")
            figures = [f"{copy.megabytes():.0f} MB" for copy in copies.values()]
            print("| indexes | " + " | ".join(figures) + " |", flush=True)


if __name__ == "__main__":
    began = time.perf_counter()
    main()
    print(f"{time.perf_counter() - began:.0f} s")
