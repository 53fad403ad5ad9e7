"""Exports of a long ledger from a live database: time and peak memory of the exporting process.

    python -m benchmarks.export [--entries 1000000]

Fills a dataset of an embedded PostgreSQL with entries (a chain and balances that verify), exports
it in each format by a process of its own, as the web does, and has `exchequer verify` check the
JSON Lines.
"""

import argparse
import os
import sys
from pathlib import Path

from sqlalchemy import text

from accountant.database import connect
from accountant.identities.actor import Actor
from accountant.queries import entries
from benchmarks.admission import new_ground, server
from benchmarks.admission_history import fill
from benchmarks.verify import measured

FORMS = ("jsonl", "csv", "parquet")


def export(url: str, dataset: str, form: str, path: Path) -> None:
    """Write one export, piece by piece."""
    engine = connect(url)
    with engine.connect() as connection:
        found = connection.execute(text("SELECT id, name FROM users WHERE name = 'steward'")).one()
    viewer = Actor(found.id, found.name, frozenset({"steward"}))
    with path.open("wb") as file:
        for piece in entries.export(engine, dataset, viewer, form):
            file.write(piece.encode() if isinstance(piece, str) else piece)


def main() -> None:
    """Fill, export, verify, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--home", type=Path, help="where the server's folder is made: a real disk")
    parser.add_argument(
        "--child", nargs=4, metavar=("URL", "DATASET", "FORM", "FILE"), help=argparse.SUPPRESS
    )
    asked = parser.parse_args()
    if asked.child:
        url, dataset, form, path = asked.child
        export(url, dataset, form, Path(path))
        return
    with server(asked.home) as (servers, folder):
        ground = new_ground(servers, folder, 3)
        dataset = ground.datasets[1]
        fill(ground, dataset, asked.entries)
        print(f"{asked.entries:,} entries, load {os.getloadavg()[0]:.1f}", flush=True)
        for form in FORMS:
            path = folder / f"ledger.{form}"
            command = [sys.executable, "-m", "benchmarks.export", "--child"]
            seconds, peak = measured([*command, ground.url, dataset, form, str(path)])
            size = path.stat().st_size / 1e6
            print(
                f"export {form:8} {size:7,.0f} MB {seconds:8.1f} s  {peak:6.0f} MB at most",
                flush=True,
            )
        path = folder / "ledger.jsonl"
        hashed, _ = measured(["sha256sum", str(path)])
        seconds, peak = measured([sys.executable, "-m", "web.cli", "verify", "--json", str(path)])
        print(
            f"verify jsonl    {seconds:16.1f} s  {peak:6.0f} MB at most; sha256sum {hashed:.1f} s"
        )
        ground.engine.dispose()


if __name__ == "__main__":
    main()
