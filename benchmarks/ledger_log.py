"""What the log outside the database costs an admission: `python -m benchmarks.ledger_log`.

Two engines on one embedded PostgreSQL with fsync on, one with a log in the same file system, each on datasets
of its own, in turn. Then the log alone: an append and sync of 1 and of 20 entries, and the look before an
admission.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from accountant.core.ledger.canonical_json import canonical
from accountant.core.ledger.hash_chain import GENESIS, digest
from accountant.database import connect, logging_to
from accountant.ledger_log.files import LedgerLog
from accountant.ledger_log.lines import Logged
from benchmarks.admission import DOCUMENT, Rate, admission, median, new_ground, server

DATASETS = 20
SHAPES = ((1, 1), (1, 20), (DATASETS, 20))  # (datasets, clients)


def entry(seq: int, previous: str) -> Logged:
    """An entry of the size of a RESERVE."""
    document = {"version": 1, "dataset": "alone", "body": "d" * DOCUMENT, "previous": previous}
    return Logged(seq, previous, digest(document), canonical(document).decode())


def alone(folder: Path, batch: int, count: int) -> float:
    """Median milliseconds of one append of `batch` entries, synced."""
    log = LedgerLog(folder)
    log.begin()
    seq, previous, taken = 0, GENESIS, []
    for _ in range(count):
        entries = []
        for _ in range(batch):
            seq += 1
            entries.append(entry(seq, previous))
            previous = entries[-1].hash
        start = time.perf_counter()
        log.append([("alone", entries)])
        taken.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken)


def timed(step: Callable[[], object], count: int) -> float:
    """Mean microseconds of `step`."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    return 1e6 * (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--home", type=Path, help="where the server's folder is made: a real disk")
    asked = parser.parse_args()
    with server(asked.home) as (servers, folder):
        every = new_ground(servers, folder, 2 * DATASETS)
        without = replace(every, datasets=every.datasets[:DATASETS])
        logged = logging_to(connect(every.url, pool_size=30), folder / "log")
        beside = replace(every, engine=logged, datasets=every.datasets[DATASETS:])
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(f"{os.cpu_count()} CPUs, load {load}; {asked.seconds:g} s each, medians of {asked.repeats}")
        print("datasets  clients  without/s  with/s  ratio  CPU ms without  with", flush=True)
        for datasets, clients in SHAPES:
            found: dict[str, list[Rate]] = {"without": [], "with": []}
            for _ in range(asked.repeats):
                found["without"].append(admission(without, datasets, clients, asked.seconds))
                found["with"].append(admission(beside, datasets, clients, asked.seconds))
            a, b = median(found["without"]), median(found["with"])
            rates = f"{a.per_second:10.0f} {b.per_second:7.0f} {b.per_second / a.per_second:6.2f}"
            print(f"{datasets:8} {clients:8} {rates} {a.cpu_ms:15.2f} {b.cpu_ms:5.2f}", flush=True)
        for batch in (1, 20):
            print(
                f"append and sync of {batch:2} entries: {alone(folder / f'alone-{batch}', batch, 200):.2f} ms"
            )
        log = LedgerLog(folder / "alone-20")
        print(f"look at a dataset's head: {timed(lambda: log.head('alone'), 20_000):.1f} µs")
        logged.dispose()
        every.engine.dispose()


if __name__ == "__main__":
    main()
