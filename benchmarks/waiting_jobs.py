"""What a sweep costs where many jobs wait: `python -m benchmarks.waiting_jobs [--jobs 16000]`.

Queued jobs are copies of one that admission wrote, each with its part and its message. Timed: the relay's
look for messages to send again, delivery of all of them to a broker that takes no time, and the look of a
worker's watchdog. Before, an hour of sweeps is counted, every half minute of
a clock that is set on: how many rows and messages 50 waiting jobs make.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine, create_engine, text

from accountant import tables
from accountant.transactions import messages
from benchmarks.admission import Ground, new_ground, server

RESEND_SECONDS = 120.0


def fill(ground: Ground, jobs: int) -> None:
    """So many queued jobs; nothing is spent by them, so the ledger is not that of a real service."""
    first = ground.submit(ground.datasets[0], 1)
    with create_engine(ground.owner_url).begin() as connection:
        connection.execute(
            text("CREATE TEMPORARY TABLE made AS SELECT * FROM jobs WHERE id = :id"), {"id": first}
        )
        connection.execute(text("UPDATE made SET idempotency_key = NULL"))
        connection.execute(
            text(
                "CREATE TEMPORARY TABLE ids AS SELECT gen_random_uuid() AS fresh "
                "FROM generate_series(1, :count)"
            ),
            {"count": jobs - 1},
        )
        listed = ", ".join(column.name for column in tables.jobs.columns if column.name != "id")
        connection.execute(text(f"INSERT INTO jobs (id, {listed}) SELECT fresh, {listed} FROM ids, made"))
        connection.execute(
            text("INSERT INTO parts (job_id, number, state, attempt) SELECT fresh, 0, 'queued', 1 FROM ids")
        )
        connection.execute(
            text("INSERT INTO outbox (task, subject, attempt, part) SELECT 'generate', fresh, 1, 0 FROM ids")
        )
    with create_engine(ground.owner_url).connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))


def seconds(work: Callable[[], object], rounds: int = 3) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def deliver_all(engine: Engine) -> int:
    """Send all that is due to nobody; returns how many messages."""
    sent = 0
    while count := messages.deliver(engine, lambda *_: None):
        sent += count
    return sent


def an_hour(ground: Ground) -> tuple[int, int]:
    """(rows at its end, messages sent) of an hour in which nothing is claimed."""
    sent = deliver_all(ground.engine)
    with create_engine(ground.owner_url, isolation_level="AUTOCOMMIT").connect() as owner:
        for _ in range(120):
            back = "created_at = created_at - interval '30 s', sent_at = sent_at - interval '30 s'"
            owner.execute(text(f"UPDATE outbox SET {back}"))
            messages.resend(ground.engine, RESEND_SECONDS)
            sent += deliver_all(ground.engine)
        rows = owner.execute(text("SELECT count(*) FROM outbox")).scalar_one()
    return rows, sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=16_000)
    parser.add_argument("--home", type=Path, help="folder for the database")
    given = parser.parse_args()
    with server(given.home) as (servers, folder):
        ground = new_ground(servers, folder, datasets=1)
        fill(ground, 50)
        rows, sent = an_hour(ground)
        print(f"50 waiting jobs for an hour: {rows:,} rows, {sent:,} messages")
        fill(ground, given.jobs)
        print(f"{given.jobs:,} waiting jobs:")
        print(f"  delivery of all      {seconds(lambda: deliver_all(ground.engine), 1):8.3f} s")
        print(
            f"  a look for resending {seconds(lambda: messages.resend(ground.engine, RESEND_SECONDS)):8.3f} s"
        )
        watch = seconds(lambda: messages.longest_wait(ground.engine, {"generate", "free"}))
        print(f"  a watchdog's look    {watch:8.3f} s")


if __name__ == "__main__":
    main()
