"""What many datasets and entries need, from sizes and rates measured here: `python -m
benchmarks.capacity`.

Some jobs go the whole way of the service, one in ten is cancelled. Measured: bytes by table, a
request admitted, an entry exported and verified. From these follow, for 10,000 datasets and
100,000,000 entries in a year, whose requests fall on datasets as 1/rank (Zipf): the disk, the
busiest one, how long exports take, their verification, and that of all. A projection: nobody ran so
many.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text

from accountant.core.ledger.export_formats import verify_lines
from accountant.core.privacy.events import from_json
from accountant.queries import entries, jobs
from accountant.transactions import leases, messages, settlement
from benchmarks.admission import Ground, new_ground, rate, server

YEAR_SECONDS = 365 * 86_400
PEAK = 10  # the busiest hour beside the mean
#: What grows with entries; people's usage, sums by day and messages that wait do not.
SHOWN = ("entries", "jobs", "parts", "standings")


@dataclass(frozen=True)
class Measured:
    """Bytes an entry by table with its indexes, and seconds an entry or a request takes."""

    tables: dict[str, float]
    admit_seconds: float
    export_seconds: float
    verify_seconds: float


def whole_way(ground: Ground, dataset: str, number: int) -> None:
    """One job from its request to its end."""
    job_id = ground.submit(dataset, 1 + number % 10)
    if number % 10 == 0:
        settlement.cancel(ground.engine, job_id, ground.analyst)
        return
    claim = leases.claim(ground.engine, job_id, 1, "worker", 600)
    assert claim is not None
    leases.begin_reading(ground.engine, claim)
    event = from_json(jobs.job(ground.engine, job_id, ground.steward)["event"])
    settlement.publish(ground.engine, claim, event, settlement.Output("/o", "0" * 64), "worker")


def measure(ground: Ground, size: int) -> Measured:
    dataset = ground.datasets[0]
    for number in range(size // 2):
        whole_way(ground, dataset, number)
    messages.deliver(ground.engine, lambda *_: None, limit=size)
    messages.resend(ground.engine, 1e6)
    with create_engine(ground.owner_url, isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("VACUUM ANALYZE"))
    with create_engine(ground.owner_url).connect() as connection:
        count = connection.execute(text("SELECT count(*) FROM entries")).scalar_one()
        query = text("SELECT pg_total_relation_size(CAST(:name AS regclass))")
        tables = {
            name: connection.execute(query, {"name": name}).scalar_one() / count for name in SHOWN
        }
    start = time.perf_counter()
    lines = list(entries.export(ground.engine, dataset, ground.steward, "jsonl"))
    exported = time.perf_counter() - start
    start = time.perf_counter()
    found = verify_lines(lines)
    verified = time.perf_counter() - start
    asked = rate(lambda *_: ground.submit(ground.datasets[1], 1), clients=1, seconds=5.0)
    return Measured(
        tables, 1 / asked.per_second, exported / found.entries, verified / found.entries
    )


def report(measured: Measured, datasets: int, total: int) -> None:
    whole = sum(measured.tables.values())
    for name, size in measured.tables.items():
        print(f"{name:10} {size:8.0f} bytes an entry {size * total / 1e9:10,.0f} GB")
    print(f"{'together':10} {whole:8.0f} bytes an entry {whole * total / 1e9:10,.0f} GB")
    mean = total / 2 / YEAR_SECONDS  # a request makes two entries
    harmonic = sum(1 / rank for rank in range(1, datasets + 1))
    busiest, median = total / harmonic, total / harmonic / (datasets // 2)
    print(f"requests: {mean:.1f} a second over the year, {PEAK * mean:.0f} in the busiest hour")
    print(f"a request takes {1000 * measured.admit_seconds:.1f} ms here, one after the other")
    share = PEAK * mean / harmonic * measured.admit_seconds
    print(
        f"the busiest dataset ({1 / harmonic:.0%} of all): its row in use {share:.1%} of the "
        "busiest hour"
    )
    for name, size in (("busiest", busiest), ("median", median)):
        seconds = size * measured.export_seconds, size * measured.verify_seconds
        print(
            f"{name} dataset, {size:,.0f} entries: export {seconds[0]:,.1f} s, verify "
            f"{seconds[1]:,.1f} s"
        )
    days = total * measured.verify_seconds / 86_400
    print(
        f"verification of all: {days:.1f} processor days at {1e6 * measured.verify_seconds:.0f} µs "
        "an entry"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--measured", type=int, default=4_000, help="entries that are made and measured"
    )
    parser.add_argument("--datasets", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=100_000_000)
    parser.add_argument("--home", type=Path, help="folder for the database")
    given = parser.parse_args()
    with server(given.home) as (servers, folder):
        ground = new_ground(servers, folder, datasets=2)
        report(measure(ground, given.measured), given.datasets, given.entries)


if __name__ == "__main__":
    main()
