"""The cost of keeping draws, and the work that an attempt repeats which goes on after another.

    python -m benchmarks.kept_draws [--steps 300]

Keeping: one row and one commit for each step of a group of batches, on an embedded PostgreSQL that waits for
its disk; milliseconds at the median, and the bytes of a row. Taking: reading all of it back. Going on:
private-prediction with the bundled model, stopped after four fifths of its passes; passes and seconds of the
attempt after it, and of a whole run.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import func, select

import workers
from accountant import tables
from accountant.core import mechanisms
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Terms
from accountant.database import connect, migrate
from accountant.transactions import leases
from tests.support import Bench
from web.local import Servers
from workers import interruption, models
from workers.data.records import Record, Records
from workers.interface import Progress
from workers.jobs.journal import Journal
from workers.mechanisms.private_prediction import Runner
from workers.noise.kept_draws import KeptDraws
from workers.noise.meter import Meter


class Memory:
    """A store without a database."""

    def __init__(self) -> None:
        self.draws: list = []

    def kept(self) -> Iterator:
        return iter(self.draws)

    def keep(self, draws) -> None:
        self.draws += draws


def keeping(engine, bench: Bench, batches: int, steps: int) -> None:
    """Print what a step of so many batches costs."""
    job_id = bench.submit(10)
    claim = leases.claim(engine, job_id, 1, "benchmark", 3600, 0, os.urandom(32))
    assert claim is not None
    kept = KeptDraws(Journal(engine, claim, lambda step: step()))
    parts = [("a label of some length", number) for number in range(batches)]
    seconds = []
    for step in range(steps):
        for number, part in enumerate(parts):
            kept.add(part, (7919 * (step + number)) % 128_256)
        begin = time.perf_counter()
        kept.keep()
        seconds.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    again = KeptDraws(Journal(engine, claim, lambda step: step()))
    assert all(again.take(part) is not None for part in parts)
    back = time.perf_counter() - begin
    size = select(func.avg(func.length(tables.kept_draws.c.sealed))).where(
        tables.kept_draws.c.job_id == job_id
    )
    with engine.connect() as connection:
        row = float(connection.execute(size).scalar_one())
    median = 1000 * statistics.median(seconds)
    print(f"| {batches} | {median:.2f} | {row:,.0f} | {1e6 * back / (steps * batches):.1f} |")


class Stopped(Exception):
    """The attempt ends here."""


def attempt(model, batches: int, store: Memory, most: int | None = None) -> tuple[int, float]:
    """(passes, seconds) of one attempt, stopped before its pass after `most`."""
    mechanism, terms = mechanisms.get("private-prediction"), Terms()
    raw = {"tokens_per_batch": 64, "batches_per_label": batches, "batch_size": 16, "record_tokens": 48}
    parameters = mechanism.parse(raw, terms)
    texts = tuple(
        Record(f"u{n}", None, f"On day {n} the soup was cold, and so was I. " * 4)
        for n in range(16 * batches)
    )
    price = mechanism.price(parameters, terms)
    meter, count = Meter(price.dp or FREE, kept=KeptDraws(store)), 0

    def look() -> None:
        meter.kept.keep()

    def passed(*_) -> None:
        nonlocal count
        count += 1
        if most is not None and count > most:
            raise Stopped

    hook = model.structure.base.register_forward_pre_hook(passed)
    begin = time.perf_counter()
    try:
        with interruption.watching(look):
            runner = Runner()
            list(runner.run(parameters, terms, Records((None,), texts, b"k" * 32), model, meter, Progress(0)))
        meter.kept.keep()
    except Stopped:
        pass
    finally:
        hook.remove()
    return count, time.perf_counter() - begin


def going_on(gib: float, batches: int) -> None:
    """Print passes and seconds of a whole run, and of the attempt that ends one stopped at four fifths."""
    folder = Path(workers.__file__).parent / "sample" / "model"
    model = models.load(folder, models.digest(folder), "float32", gib)
    passes, seconds = attempt(model, batches, Memory())
    store = Memory()
    attempt(model, batches, store, passes * 4 // 5)
    later, rest = attempt(model, batches, store)
    print(f"| {gib:g} | {passes} | {seconds:.1f} s | {later} | {rest:.1f} s | {later / passes:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    print("| batches in a step | ms to keep it | bytes of a row | µs to take a draw |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, Servers(Path(folder)) as servers:
        migrate(servers.owner_url, servers.database_url)
        engine = connect(servers.database_url)
        bench = Bench(engine, policy={"auto_approve_epsilon": "10", "results_every_seconds": None})
        bench.allow()
        bench.warm()
        for batches in (1, 16, 64):
            keeping(engine, bench, batches, steps)
        engine.dispose()
    print("\n| GiB for contexts | passes | whole run | passes after four fifths | takes | share |")
    print("|---|---|---|---|---|---|")
    for gib in (0.02, 0.2):
        going_on(gib, 12)


if __name__ == "__main__":
    main()
