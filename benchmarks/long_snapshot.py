"""The lock of an account's row while somebody reads for long: `python -m benchmarks.long_snapshot`.

An account's row is rewritten by every entry. While a snapshot is open, PostgreSQL keeps all
versions of it, and whoever locks the row goes through them. Timed, after so many rewrites: the
statement that locks it, with nobody reading, with an export half downloaded, and with a snapshot
held open (as pg_dump and `exchequer ledger check` hold one).
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from accountant.database import reading
from accountant.queries import entries
from benchmarks.admission import Ground, new_ground, server

ROUNDS = 200
Reader = Callable[[Ground], AbstractContextManager[Any]]


def nobody(_: Ground) -> AbstractContextManager[Any]:
    return nullcontext()


def half_downloaded(ground: Ground) -> AbstractContextManager[Any]:
    export = entries.export(ground.engine, ground.datasets[0], ground.steward, "jsonl")
    next(iter(export))
    return closing(export)  # type: ignore[type-var]


def snapshot(ground: Ground) -> AbstractContextManager[Any]:
    connection = reading(ground.engine, snapshot=True)
    connection.execute(text("SELECT count(*) FROM accounts"))
    return connection


def lock_ms(ground: Ground, reader: Reader, rewrites: int) -> float:
    """Median milliseconds of the statement that locks the row, after so many rewrites under
    `reader`.
    """
    find = "SELECT dataset_id FROM accounts ORDER BY dataset_id LIMIT 1"
    with create_engine(ground.owner_url, isolation_level="AUTOCOMMIT").connect() as owner:
        owner.execute(text("VACUUM FULL accounts"))
        with reader(ground):
            one = owner.execute(text(find)).scalar_one()
            rewrite = text("UPDATE accounts SET chain_seq = chain_seq WHERE dataset_id = :id")
            for _ in range(rewrites):
                owner.execute(rewrite, {"id": one})
            taken = []
            for _ in range(ROUNDS):
                owner.execute(text("BEGIN"))
                start = time.perf_counter()
                owner.execute(
                    text("SELECT * FROM accounts WHERE dataset_id = :id FOR UPDATE"), {"id": one}
                )
                taken.append(1000 * (time.perf_counter() - start))
                owner.execute(text("ROLLBACK"))
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rewrites", type=int, default=6000)
    parser.add_argument("--home", type=Path, help="folder for the database")
    given = parser.parse_args()
    with server(given.home) as (servers, folder):
        ground = new_ground(servers, folder, datasets=1)
        for name, reader in (
            ("nobody reads", nobody),
            ("an export half downloaded", half_downloaded),
            ("a snapshot held open", snapshot),
        ):
            print(f"{name:28} {lock_ms(ground, reader, given.rewrites):7.3f} ms")


if __name__ == "__main__":
    main()
