"""The cost of checking a dataset: fingerprints of its units, and claiming them against all others.

    python -m benchmarks.fingerprints [--records 1000000]

On an embedded PostgreSQL of its own: a CSV file of made-up records is read through as a worker
does, alone; then with fingerprints; then with their claim; then a second dataset that shares a
hundredth of its records, which is refused. Seconds, the ratio to reading alone, and the peak memory
of this process.
"""

import argparse
import csv
import random
import resource
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path

from accountant.catalogue import datasets
from accountant.database import connect, migrate
from accountant.identities import credentials
from accountant.transactions import unit_fingerprints
from web.local import Servers
from workers.data import records
from workers.data.fingerprints import fingerprints, proof

WORDS = (
    "the",
    "gym",
    "was",
    "clean",
    "quiet",
    "but",
    "showers",
    "cold",
    "left",
    "early",
    "better",
    "place",
)
KEY = b"k" * 32
LAYOUT = records.Layout("{text}")


def made(path: Path, count: int, tag: str, shared: str) -> None:
    """A file of `count` records of about 100 characters, and of a hundredth more, `shared`."""
    draw = random.Random(tag)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text"])
        rows.writerows([f"{tag} {n} {' '.join(draw.choices(WORDS, k=18))}"] for n in range(count))
        rows.writerows([[shared.format(n)] for n in range(count // 100)])


def timed(what: str, act: Callable[[], object], base: float | None = None) -> float:
    begin = time.perf_counter()
    act()
    seconds = time.perf_counter() - begin
    ratio = "" if base is None else f"{seconds / base:8.2f}"
    print(f"{what:44s}{seconds:8.1f} s{ratio}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    count = parser.parse_args().records
    print(f"{count:,} records")
    with tempfile.TemporaryDirectory() as folder, Servers(Path(folder)) as servers:
        migrate(servers.owner_url, servers.database_url)
        engine = connect(servers.database_url)
        user = credentials.add_user(engine, "steward", None, ["steward"])
        steward = credentials.actor_of(credentials.find_user(engine, user_id=user))  # type: ignore[arg-type]

        def waiting() -> uuid.UUID:
            raw = {"name": f"data-{uuid.uuid4().hex[:8]}", "uri": "/nowhere.csv"}
            return datasets.add_dataset(engine, datasets.read_dataset(raw), steward)

        def claim(path: Path) -> None:
            unit_fingerprints.claim(
                engine, waiting(), proof(KEY), fingerprints(str(path), LAYOUT, KEY)
            )

        one, two = Path(folder, "one.csv"), Path(folder, "two.csv")
        made(
            one,
            count,
            "one",
            "number {} of the people who wrote the same text to both of us, that we waited",
        )
        made(
            two,
            count,
            "two",
            "Number {} of the people, who wrote the same text to both of us: that we waited!",
        )
        base = timed("read through", lambda: deque(records.records(str(one), LAYOUT), maxlen=0))
        streamed = lambda: deque(fingerprints(str(one), LAYOUT, KEY), maxlen=0)  # noqa: E731
        timed("read through with fingerprints", streamed, base)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        timed("claimed: the first dataset", lambda: claim(one), base)
        timed("refused: another, with a hundredth in common", lambda: claim(two), base)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"peak memory {peak / 1024:.0f} MB, {(peak - before) / 1024:.0f} MB of it for claiming"
        )
        with engine.connect() as connection:
            query = "SELECT pg_size_pretty(pg_total_relation_size('fingerprints'))"
            print(
                "fingerprints with their indexes:", connection.exec_driver_sql(query).scalar_one()
            )
        engine.dispose()


if __name__ == "__main__":
    main()
