"""Admission, the relay's sweep and pages in a small service and in a crowded one, in one run.

    python -m benchmarks.crowded [--datasets 10000] [--entries 1000000] [--waiting 16000]

Each figure is measured in a small service, in which every list fills one page, then in a crowded
one: entries (long_history.py), so many datasets, and jobs that wait for workers. Both have an
embedded PostgreSQL and a log outside it. A ratio above 1.5 is what this looks for. Milliseconds,
medians of `--rounds`.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from secrets import token_bytes
from typing import Any
from uuid import uuid4

from sqlalchemy import create_engine, text

from accountant.catalogue import datasets
from accountant.core.ledger.export_formats import read_document
from accountant.core.ledger.hash_chain import GENESIS, SALT_BYTES, canonical, digest, read_entry
from accountant.database import logging_to
from accountant.queries import integrity
from accountant.settings import Settings
from accountant.transactions import messages, spending_sums
from benchmarks.admission import Ground, found_right, new_ground, server
from benchmarks.long_history import (
    KINDS,
    before_the_history,
    one,
    past_guards,
    person_named,
    shape,
    tell_log,
    write_jobs,
)
from benchmarks.pages import Asker, known_ground, sizes
from web.app import create_app
from web.local import Servers
from workers.jobs import relay

GOAL = 1.5
#: A service in which each list fills one page: a page of 50 rows takes longer than an empty one.
SMALL = argparse.Namespace(datasets=60, entries=400, waiting=60)
SIZE = {"public_size": 1000}
PAGES = ("/", "/datasets/data-3", "/jobs", "/ledger?dataset=data-3", "/inbox")


def main() -> None:
    """Measure, fill, measure again, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--datasets", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=16_000)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--keep", type=Path, help="folder where the filled service stays")
    given = parser.parse_args()
    begun = time.monotonic()
    with server(None) as (servers, home):
        before = measured(fill(servers, home, SMALL), given.rounds)
    with kept(given) as ground:
        load = os.getloadavg()[0]
        print(f"medians of {given.rounds}, {os.cpu_count()} CPUs, load {load:.1f}")
        print(f"{'milliseconds':32} {'small':>8} {'crowded':>8} {'ratio':>6}", flush=True)
        after = measured(ground, given.rounds)
        for name, first in before.items():
            told = "" if after[name] <= GOAL * first else f"  above {GOAL}"
            print(f"{name:32} {first:8.1f} {after[name]:8.1f} {after[name] / first:6.2f}{told}")
    print(f"all of it: {time.monotonic() - begun:.0f} s")


@contextmanager
def kept(given: argparse.Namespace) -> Iterator[Ground]:
    """A filled service; where its folder is named, it stays there for the next run."""
    with ExitStack() as block:
        if given.keep is None:
            servers, home = block.enter_context(server(None))
        else:
            home = given.keep
            servers = block.enter_context(Servers(home, valkey=False))
        if (home / "filled").exists():
            ground = known_ground(servers, home)
            logging_to(ground.engine, home / "log")
        else:
            ground = fill(servers, home, given)
            (home / "filled").touch()
        print(sizes(ground), flush=True)
        yield ground
        ground.engine.dispose()


def measured(ground: Ground, rounds: int) -> dict[str, float]:
    """Return milliseconds by what was done; the first round warms."""
    log = ground.home / "log"
    configured = Settings(home=ground.home / "web", DATABASE_URL=ground.url, ledger_log=log)
    app = create_app(configured)
    asker, numbers = Asker(app, ground.engine, "steward"), count()
    steps: dict[str, Callable[[], Any]] = {
        "an admission": lambda: ground.submit("data-4", next(numbers)),
        "a sweep": lambda: relay.sweep(ground.engine, configured, 1e9),
        "a delivery": lambda: messages.deliver(ground.engine, lambda *_: None, ahead=2),
        **{page: partial(whole, asker.ask(page)) for page in PAGES},
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


def whole(ask: Callable[[], Any]) -> None:
    """Read all of an answer."""
    answer = ask()
    if answer.status_code != 200 or not answer.get_data():
        raise SystemExit(f"{answer.request.path}: {answer.status}")


def fill(servers: Servers, home: Path, given: argparse.Namespace) -> Ground:
    """Make a service of entries, datasets and jobs that wait; bring to its place what the relay
    brings there.
    """
    ground = new_ground(servers, home, 5, log=True, dated=before_the_history())
    shapes = [shape(ground, mechanism, parameters) for mechanism, parameters in KINDS]
    analysts = [person_named(ground.engine, f"analyst-{number}") for number in range(4)]

    def jobs() -> None:
        for number in range(given.waiting):
            ground.submit(f"data-{number % 2}", number)

    def sums() -> None:
        while spending_sums.roll(ground.engine):
            pass

    people = [ground.analyst, *analysts]
    steps: dict[str, Callable[[], None]] = {
        "entries": lambda: write_jobs(ground, "data-3", given.entries, shapes, people),
        "datasets": lambda: write_datasets(ground, given.datasets),
        "jobs that wait": jobs,
        "sums of what was spent": sums,
    }
    for name, step in steps.items():
        began = time.monotonic()
        step()
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    with create_engine(ground.owner_url).connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))
    return ground


def write_datasets(ground: Ground, count: int) -> None:
    """Add datasets like one that the service registers, each with a ledger of its own."""
    spec = datasets.read_dataset({"name": "more", "uri": "/x.csv", **SIZE})
    found_right(ground.engine, datasets.add_dataset(ground.engine, spec, ground.steward))
    with ground.engine.connect() as connection:
        entries = [
            read_entry(read_document(row.document), row.seq)
            for row in connection.execute(text(f"SELECT * FROM entries e {_MORE} ORDER BY seq"))
        ]
        rows = {
            table: one(connection, f"SELECT row_to_json(e) FROM {table} e {_MORE}")
            for table in ("dataset_versions", "accounts")
        }
        dataset = one(connection, "SELECT row_to_json(d) FROM datasets d WHERE name = 'more'")
    for first in range(0, count, 1_000):
        new: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("datasets", "dataset_versions", "accounts", "entries")
        }
        for number in range(first, min(count, first + 1_000)):
            key, name, head = uuid4(), f"more-{number:05}", GENESIS
            for entry in entries:
                made = replace(entry, dataset=name, previous=head, salt=token_bytes(SALT_BYTES))
                document = made.document()
                row = {name: getattr(made, name) for name in ("seq", "kind", "at", "actor")}
                row |= {"dataset_id": key, "job_id": None, "previous": head}
                head = digest(document)
                row |= {"hash": head, "document": canonical(document).decode()}
                new["entries"].append(row)
            tell_log(ground, name, new["entries"][-len(entries) :])
            new["datasets"].append({**dataset, "id": key, "name": name})
            ids = {"id": uuid4(), "dataset_id": key}
            new["dataset_versions"].append({**rows["dataset_versions"], **ids})
            new["accounts"].append({**rows["accounts"], "dataset_id": key, "chain_head": head})
        past_guards(ground, new)
    wrong = integrity.check(ground.engine, f"more-{count - 1:05}")
    assert not wrong, wrong[:3]


#: Of the dataset that the others are like.
_MORE = "WHERE dataset_id = (SELECT id FROM datasets WHERE name = 'more')"


if __name__ == "__main__":
    main()
