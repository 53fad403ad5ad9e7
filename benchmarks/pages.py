"""How long a page takes with a long history behind it, and how many statements it costs.

    python -m benchmarks.pages [--jobs 1000000] [--rounds 21] [--only jobs.listing …]

Fills an embedded PostgreSQL with one RESERVE entry for each job over two datasets, in all states and over a
year, then asks every page and every API route that reads, as each role that may, in turn. Time is that of
the application in this process, database included, network not: median and the slowest of ten. Statements
are those of one answer.

A page of 50 rows should take less than 100 ms, and no page may cost a statement for each row: the same
routes are asked for 5 rows and for 50, and must cost as many statements.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flask import Flask, session
from sqlalchemy import Engine, create_engine, event, text

from accountant import ledger, registry
from accountant.settings import Settings
from benchmarks.admission import Ground, fill, new_ground, person, server
from web.app import create_app
from web.auth import start_session

GOAL_MS = 100

_STATES = """
WITH numbered AS (SELECT id, row_number() OVER () AS n FROM jobs WHERE purpose = 'benchmark'),
assigned AS (
    SELECT id, n, CASE WHEN n <= 60 THEN 'awaiting_approval' WHEN n <= 80 THEN 'queued'
        WHEN n % 20 = 0 THEN 'refused' WHEN n % 10 = 1 THEN 'failed' WHEN n % 10 = 2 THEN 'cancelled'
        ELSE 'succeeded' END AS state FROM numbered)
UPDATE jobs SET state = assigned.state,
    created_at = clock_timestamp() - interval '1 year' + n * (interval '1 year' / :jobs),
    finished_at = CASE WHEN n > 80 THEN clock_timestamp() END,
    refusal = CASE WHEN assigned.state = 'refused' THEN cast(:refusal AS jsonb) END,
    output_uri = CASE WHEN assigned.state = 'succeeded' THEN '/nowhere' END,
    output_sha256 = CASE WHEN assigned.state = 'succeeded' THEN repeat('0', 64) END
FROM assigned WHERE jobs.id = assigned.id
"""


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one route for one role, and the statements of one answer."""

    route: str
    role: str
    status: int
    median: float
    slowest: float
    statements: int


def refusal_of(ground: Ground) -> str:
    """What the service wrote of a request that does not fit, as JSON text."""
    request = ground.request(ground.datasets[0], 0)
    request.parameters.update(tokens_per_batch=10**7, clip=10.0, temperature=0.1)
    job = ledger.submit(ground.engine, request, ground.analyst, None)
    with ground.engine.connect() as connection:
        found = connection.execute(text("SELECT refusal::text FROM jobs WHERE id = :id"), {"id": job})
        return str(found.scalar_one())


def filled(ground: Ground, jobs: int) -> None:
    """A year of jobs: a tenth on one dataset, the others on another."""
    refusal = refusal_of(ground)
    fill(ground, ground.datasets[2], jobs // 10)
    fill(ground, ground.datasets[1], jobs - jobs // 10)
    owner = create_engine(ground.owner_url)
    with owner.begin() as connection:
        connection.execute(text(_STATES), {"jobs": jobs, "refusal": refusal})
    with owner.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    owner.dispose()


class Asker:
    """One role, on the API by token and on pages by session."""

    def __init__(self, app: Flask, engine: Engine, role: str, name: str | None = None) -> None:
        if name is None:
            actor = person(engine, role)
        else:
            user = registry.find_user(engine, name=name)
            assert user is not None
            actor = registry.actor_of(user)
        registry_token = registry.add_token(engine, actor.id, "benchmark", None)
        self.app, self.role = app, role
        self.headers = {"Authorization": f"Bearer {registry_token}"}
        self.client = app.test_client()
        with app.test_request_context():
            start_session(registry.find_user(engine, user_id=actor.id))
            state = dict(session)
        with self.client.session_transaction() as kept:
            kept.update(state)

    def ask(self, path: str) -> Callable[[], Any]:
        """A request to be sent."""
        headers = self.headers if path.startswith("/api/") else {}
        return lambda: self.client.get(path, headers=headers)


def timed(ask: Callable[[], Any], rounds: int) -> tuple[int, float, float, int]:
    """(status, median, slowest of ten, statements); the first answer warms and isn't counted."""
    statements = 0

    def count(*_: object) -> None:
        nonlocal statements
        statements += 1

    event.listen(Engine, "before_cursor_execute", count)
    answer = ask()
    event.remove(Engine, "before_cursor_execute", count)
    answer.get_data()
    status = answer.status_code
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        ask().get_data()
        taken.append(1000 * (time.perf_counter() - start))
    return status, statistics.median(taken), statistics.quantiles(taken, n=10)[-1], statements


def addresses(ground: Ground) -> dict[str, list[str]]:
    """Role to what it reads: lists of 50 rows, filtered and not, deep pages, and single things."""
    name = ground.datasets[1]
    with ground.engine.connect() as connection:
        middle = connection.execute(
            text(
                "SELECT id, created_at FROM jobs WHERE state = 'succeeded' "
                "ORDER BY created_at OFFSET 1000 LIMIT 1"
            )
        ).one()
    before = middle.created_at.isoformat().replace("+", "%2B")
    both = [
        "/",
        f"/datasets/{name}",
        "/jobs",
        "/jobs?state=failed",
        f"/jobs?dataset={name}",
        f"/jobs?before={before}",
        f"/jobs/{middle.id}",
        f"/jobs/{middle.id}/live",
        "/artifacts",
        "/models",
        "/corpora",
        "/api/v1/datasets",
        f"/api/v1/datasets/{name}",
        "/api/v1/jobs?limit=50",
        "/api/v1/jobs?limit=50&state=refused",
        f"/api/v1/jobs?limit=50&dataset={name}",
        f"/api/v1/jobs?limit=50&before={before}",
        f"/api/v1/jobs/{middle.id}",
        "/api/v1/artifacts",
        "/api/v1/models",
    ]
    overseer = [
        f"/api/v1/datasets/{name}/ledger?limit=50",
        f"/api/v1/datasets/{name}/ledger?limit=50&before=1000",
        f"/api/v1/datasets/{name}/ex-post",
        f"/api/v1/datasets/{name}/checkpoints",
        "/api/v1/proposals",
        "/ledger",
        f"/ledger?before={name}:100000",
        f"/ledger?dataset={name}",
        "/ledger?kind=COMMIT",
        "/ledger?kind=ALLOW",
        "/ledger?actor=analyst",
        f"/ledger?actor=steward&dataset={name}",
        "/ledger?mechanism=private-prediction",
        "/ledger?mechanism=epsvec",
        "/ledger?until=2026-01-01",
        f"/ledger/{name}/100",
        "/ledger/refusals",
        f"/ledger/refusals?dataset={name}",
        "/ledger/checkpoints",
        "/ledger/activity",
        "/ledger/activity?actor=steward",
        f"/ledger/activity?dataset={name}",
        f"/ledger/exports?dataset={name}",
        "/api/v1/ledger?limit=50",
        "/api/v1/activity?limit=50",
    ]
    return {
        "analyst": [*both, f"/datasets/{name}/submit"],
        "steward": [*both, *overseer, "/inbox", "/inbox/changes?shown=", f"/datasets/{name}/submit"],
        "auditor": [*both, *overseer],
        "administrator": ["/api/v1/users"],
    }


def measure(ground: Ground, rounds: int, only: list[str]) -> list[Timing]:
    """Every address for every role."""
    app = create_app(Settings(home=ground.home / "web", DATABASE_URL=ground.url))
    found = []
    known = {"analyst": "analyst", "steward": "steward"}
    for role, paths in addresses(ground).items():
        asker = Asker(app, ground.engine, role, known.get(role))
        for path in paths:
            if only and not any(word in path for word in only):
                continue
            status, median, slowest, statements = timed(asker.ask(path), rounds)
            shown = path.replace(ground.datasets[1], "NAME")
            found.append(Timing(shown, role, status, median, slowest, statements))
            print(
                f"{role:13} {shown[:70]:70} {status} {median:8.1f} {slowest:8.1f} {statements:4}", flush=True
            )
    return found


def main() -> None:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--only", nargs="*", default=[], help="words of addresses")
    asked = parser.parse_args()
    with server(None) as (servers, folder):
        ground = new_ground(servers, folder, 4)
        filled(ground, asked.jobs)
        print(f"{asked.jobs:,} jobs and as many entries; median ms, slowest of ten, statements", flush=True)
        found = measure(ground, asked.rounds, asked.only)
        slow = [each for each in found if each.median > GOAL_MS]
        odd = sum(each.status != 200 for each in found)
        print(f"{len(found)} routes, {len(slow)} above {GOAL_MS} ms, {odd} not 200")
        ground.engine.dispose()


if __name__ == "__main__":
    main()
