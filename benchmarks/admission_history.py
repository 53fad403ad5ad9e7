"""A ledger of any length by COPY, and one request at a time after a short and a long one."""

import json
import statistics
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import text

from accountant.core.ledger.commitments import opened
from accountant.core.ledger.hash_chain import Entry, EntryKind, canonical, digest
from accountant.queries import integrity
from accountant.transactions.locked_account import LockedAccount
from benchmarks.admission import Ground, take_up


def fill(ground: Ground, dataset: str, entries: int) -> None:
    """Load RESERVE entries and their jobs by COPY, with a chain and balances that verify."""
    with ground.engine.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))  # a million rows take minutes
        locked = LockedAccount(connection, dataset)
        sample = ground_sample(ground, dataset)
        job_columns = ", ".join(sample.job)
        entry_columns = "dataset_id, seq, kind, at, actor, job_id, document, previous, hash"
        cursor = connection.connection.driver_connection.cursor()  # type: ignore[union-attr]
        first, head, now = locked.seq, locked.head, datetime.now(UTC)
        ids = [uuid4() for _ in range(entries)]
        with cursor.copy(f"COPY jobs ({job_columns}) FROM STDIN") as copy:
            for job_id in ids:
                copy.write_row(list({**sample.job, "id": job_id, "queued_at": now}.values()))
        with cursor.copy(f"COPY entries ({entry_columns}) FROM STDIN") as copy:
            for number, job_id in enumerate(ids):
                seq = first + 1 + number
                entry = Entry(
                    dataset, seq, EntryKind.RESERVE, now, "analyst", str(job_id), sample.body, head
                )
                stored = entry.document()
                document, recorded = canonical(stored), digest(stored)
                copy.write_row(
                    [
                        locked.dataset_id,
                        seq,
                        "RESERVE",
                        now,
                        "analyst",
                        job_id,
                        document.decode(),
                        head,
                        recorded,
                    ]
                )
                head = recorded
        moves = ", ".join(
            f"{name} = {name} + {entries} * {units}" for name, units in sample.moved.items()
        )
        cursor.execute(
            f"UPDATE accounts SET chain_seq = {first + entries}, chain_head = '{head}', {moves} "
            "WHERE dataset_id = %s",
            [locked.dataset_id],
        )
        cursor.execute(
            "INSERT INTO usage (dataset_id, kind, holder, reserved) VALUES (%s, 'analyst', %s, %s)",
            [locked.dataset_id, sample.holder, entries * sample.counted],
        )


@dataclass(frozen=True)
class Sample:
    """A real admission: its job's row, its entry's body, how it moved the account, whose cap it
    counts on.
    """

    job: dict[str, Any]
    body: dict[str, Any]
    moved: dict[str, int]
    holder: str
    counted: int


def ground_sample(ground: Ground, dataset: str) -> Sample:
    other = ground.datasets[-1]
    assert other != dataset
    query = text(
        "SELECT a.* FROM accounts a JOIN datasets d ON d.id = a.dataset_id WHERE d.name = :name"
    )
    with ground.engine.connect() as connection:
        before = connection.execute(query, {"name": other}).one()._mapping
    job_id = ground.submit(other, 0)
    with ground.engine.connect() as connection:
        after = connection.execute(query, {"name": other}).one()._mapping
        job = dict(
            connection.execute(text("SELECT * FROM jobs WHERE id = :id"), {"id": job_id})
            .one()
            ._mapping
        )
        stored = connection.execute(
            text("SELECT document FROM entries WHERE job_id = :id"), {"id": job_id}
        )
        body = opened(json.loads(stored.scalar_one()))["body"]
        counted = text("SELECT holder, reserved FROM usage WHERE dataset_id = :id")
        used = connection.execute(counted, {"id": job["dataset_id"]}).one()
        ids = text("SELECT id FROM datasets WHERE name = :name")
        job["dataset_id"] = connection.execute(ids, {"name": dataset}).scalar_one()
        versions = text("SELECT id FROM dataset_versions WHERE dataset_id = :id")
        job["version_id"] = connection.execute(versions, {"id": job["dataset_id"]}).scalar_one()
    job["idempotency_key"] = None
    for name in ("parameters", "terms", "event", "breakdown", "resources", "sources"):
        job[name] = json.dumps(job[name])
    kept = {name: value for name, value in job.items() if value is not None}
    moved = {
        name: int(after[name] - before[name])
        for name in after
        if name.endswith(("_reserved", "_closed", "job_count")) and after[name] != before[name]
    }
    return Sample(kept, body, moved, used.holder, int(used.reserved))


def history(ground: Ground, entries: int, rounds: int) -> tuple[float, float]:
    """Median milliseconds of one request, with 1,000 and with `entries` entries, in turn."""
    short, long = ground.datasets[1], ground.datasets[2]
    fill(ground, short, 1_000)
    fill(ground, long, entries)
    take_up(ground)  # nobody may have a million jobs waiting
    with ground.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    assert integrity.check(ground.engine, short) == []
    taken: dict[str, list[float]] = {short: [], long: []}
    for number in range(rounds + 20):
        for dataset in (short, long):
            start = time.perf_counter()
            ground.submit(dataset, number)
            if number >= 20:
                taken[dataset].append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken[short]), statistics.median(taken[long])
