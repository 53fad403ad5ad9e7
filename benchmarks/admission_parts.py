"""The cost, per admission, of the indexes and triggers that pages and notices need.

    python -m benchmarks.admission_parts [--rounds 6] [--each 150]

On one embedded PostgreSQL, in turn: admissions as they are, then without some indexes or triggers.
Counted is processor time, of this process and of the server's, and bytes of the write-ahead log:
neither grows when other work shares the machine. The server's is that of all its processes. Figures
are medians of the rounds.
"""

import argparse
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, create_engine, text

from benchmarks.admission import Ground, new_ground, server
from benchmarks.admission_history import fill

#: What is taken away: (indexes, triggers by table).
PARTS: dict[str, tuple[tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    "as it is": ((), ()),
    "without the triggers of notices": (
        (),
        (("hook_new_jobs", "jobs"), ("hook_account", "accounts")),
    ),
    "without kept balances": ((), (("accounts_standing", "accounts"),)),
    "without entries by time and person": (("ix_entries_at", "ix_entries_actor"), ()),
    "without entries by job": (("ix_entries_job_id",), ()),
    "without lists of jobs": (("ix_jobs_state", "ix_jobs_mechanism", "ix_jobs_created_at"), ()),
}
PARTS["without all of these"] = (
    tuple(name for indexes, _ in PARTS.values() for name in indexes),
    tuple(each for _, triggers in PARTS.values() for each in triggers),
)


@dataclass(frozen=True)
class Cost:
    """Of one admission: milliseconds of processor time here and in the server, bytes of log."""

    here: float
    server: float
    log: float


def postmaster_of(folder: Path) -> int:
    """The process of the server whose files lie in `folder`."""
    (written,) = folder.rglob("postmaster.pid")
    return int(written.read_text().split()[0])


def server_seconds(postmaster: int) -> float:
    """Processor time of all processes of a PostgreSQL server so far."""
    total = 0
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == postmaster or int(each.name) == postmaster:
                total += int((each / "schedstat").read_text().split()[0])
        except OSError:  # it ended while we looked
            continue
    return total / 1e9


def without(owner: Engine, name: str) -> list[str]:
    """Take a part away; returns the statements that put it back."""
    indexes, triggers = PARTS[name]
    back = []
    with owner.begin() as connection:
        for index in indexes:
            found = connection.execute(
                text("SELECT indexdef FROM pg_indexes WHERE indexname = :name"), {"name": index}
            )
            back.append(str(found.scalar_one()))
            connection.execute(text(f"DROP INDEX {index}"))
        for trigger, table in triggers:
            connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}"))
            back.append(f"ALTER TABLE {table} ENABLE TRIGGER {trigger}")
    return back


def measure(ground: Ground, owner: Engine, postmaster: int, each: int) -> Cost:
    """`each` admissions one after the other, after ten that aren't counted."""
    for number in range(10):
        ground.submit(ground.datasets[1], number)
    with owner.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        at = text("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
        log = connection.execute(at).scalar_one()
        began, here = server_seconds(postmaster), time.process_time()
        for number in range(each):
            ground.submit(ground.datasets[1], number)
        ended, here = server_seconds(postmaster), time.process_time() - here
        log = connection.execute(at).scalar_one() - log
    return Cost(1e3 * here / each, 1e3 * (ended - began) / each, float(log) / each)


def main() -> None:
    """Each part in turn, then the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--each", type=int, default=150, help="admissions of one measurement")
    parser.add_argument("--entries", type=int, default=20_000, help="what the ledger holds before")
    asked = parser.parse_args()
    found: dict[str, list[Cost]] = {name: [] for name in PARTS}
    with server(None) as (servers, folder):
        ground = new_ground(servers, folder, 3)
        fill(ground, ground.datasets[1], asked.entries)
        owner = create_engine(ground.owner_url)
        with owner.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        postmaster = postmaster_of(folder)
        for _ in range(asked.rounds):
            for name, costs in found.items():
                back = without(owner, name)
                costs.append(measure(ground, owner, postmaster, asked.each))
                with owner.begin() as connection:
                    for statement in back:
                        connection.execute(text(statement))
        owner.dispose()
        ground.engine.dispose()
    machine = f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    print(f"medians of {asked.rounds} x {asked.each} admissions, {machine}")
    whole = middle(found["as it is"])
    for name, costs in found.items():
        each = middle(costs)
        share = (each.here + each.server) / (whole.here + whole.server) - 1
        print(
            f"{name:36} {each.here:5.2f} ms here, {each.server:5.2f} ms in the server "
            f"({share:+.0%}), "
            f"{each.log:6.0f} bytes"
        )


def middle(costs: list[Cost]) -> Cost:
    return Cost(
        *(
            statistics.median(getattr(each, name) for each in costs)
            for name in ("here", "server", "log")
        )
    )


if __name__ == "__main__":
    main()
