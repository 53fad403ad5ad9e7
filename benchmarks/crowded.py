"""Admission, the relay's sweep and pages in an empty service and in a crowded one, in one run.

    python -m benchmarks.crowded [--datasets 10000] [--entries 1000000] [--waiting 16000]

One embedded PostgreSQL. Each figure is measured while the service is nearly empty, then again after
it was filled: entries (long_history.py), so many datasets, and jobs that wait for workers.
A ratio above 1.5 is what this looks for. Milliseconds, medians of `--rounds`.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from sqlalchemy import create_engine, text

from accountant.catalogue import datasets
from accountant.settings import Settings
from accountant.transactions import messages
from benchmarks.admission import Ground, found_right, new_ground, server
from benchmarks.long_history import KINDS, person_named, shape, write_jobs
from benchmarks.pages import Asker, sizes
from web.app import create_app
from workers.jobs import relay

GOAL = 1.5
SIZE = {"public_size": 1000}
PAGES = ("/", "/datasets/data-3", "/jobs", "/datasets/data-3/ledger", "/decisions")


def main() -> None:
    """Measure, fill, measure again, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--datasets", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=16_000)
    parser.add_argument("--rounds", type=int, default=21)
    given = parser.parse_args()
    with server(None) as (servers, home):
        ground = new_ground(servers, home, 5)
        before = measured(ground, given.rounds)
        began = time.monotonic()
        fill(ground, given)
        print(f"filled in {time.monotonic() - began:.0f} s: {sizes(ground)}", flush=True)
        print(f"{'milliseconds':32} {'empty':>8} {'crowded':>8} {'ratio':>6}")
        after = measured(ground, given.rounds)
        for name, first in before.items():
            told = "" if after[name] <= GOAL * first else f"  above {GOAL}"
            print(f"{name:32} {first:8.1f} {after[name]:8.1f} {after[name] / first:6.2f}{told}")
        ground.engine.dispose()


def measured(ground: Ground, rounds: int) -> dict[str, float]:
    """Return milliseconds by what was done; the first round warms."""
    app = create_app(Settings(home=ground.home / "web", DATABASE_URL=ground.url))
    asker, numbers = Asker(app, ground.engine, "steward"), count()
    configured = Settings(home=ground.home / "web", DATABASE_URL=ground.url)
    steps: dict[str, Callable[[], Any]] = {
        "an admission": lambda: ground.submit("data-4", next(numbers)),
        "a sweep": lambda: relay.sweep(ground.engine, configured, 1e9),
        "a delivery": lambda: messages.deliver(ground.engine, lambda *_: None, ahead=2),
        **{page: asker.ask(page) for page in PAGES},
    }
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            if number:
                taken[name].append(1000 * (time.perf_counter() - began))
    app.extensions["exchequer"]["engine"].dispose()
    return {name: statistics.median(each) for name, each in taken.items()}


def fill(ground: Ground, given: argparse.Namespace) -> None:
    """Add entries, datasets and jobs that wait."""
    shapes = [shape(ground, mechanism, parameters) for mechanism, parameters in KINDS]
    analysts = [person_named(ground.engine, f"analyst-{number}") for number in range(4)]
    write_jobs(ground, "data-3", given.entries, shapes, [ground.analyst, *analysts])
    for number in range(given.datasets):
        spec = datasets.read_dataset({"name": f"more-{number:05}", "uri": "/x.csv", **SIZE})
        found_right(ground.engine, datasets.add_dataset(ground.engine, spec, ground.steward))
    for number in range(given.waiting):
        ground.submit(f"data-{number % 2}", number)
    with create_engine(ground.owner_url).connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))


if __name__ == "__main__":
    main()
