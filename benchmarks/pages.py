"""Response time and SQL statements of every page, with a long history behind it.

    python -m benchmarks.pages [--entries 1000000] [--rounds 11] [--only WORD …] [--keep FOLDER]

Fills an embedded PostgreSQL with a year of a service (long_history.py), then asks every address
that is read, as each role that may take it: the addresses are those of the application's routes,
and a route that is missing here is an error. Lists show 50 rows. Time is that of the application in
this process, database included, network not: medians, each round beside one of /livez, an answer
that does nothing. Beside it stands the processor time of one answer, of this process and of the
server's, which is the same whatever else the machine does.

A page should take less than 100 ms. And no page may cost a statement for each row: the same
addresses are asked before with 5 rows in every list, and must cost as many statements.
"""

import argparse
import gc
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flask import Flask, session
from sqlalchemy import Engine, event, text

from accountant.database import connect, migrate
from accountant.identities import credentials
from accountant.queries import integrity
from accountant.settings import Settings
from benchmarks.admission import Ground, new_ground
from benchmarks.long_history import Size, before_the_history, make, person_named, things
from tests.web.routes import API, PAGES
from web.app import create_app
from web.auth import start_session
from web.local import Servers

GOAL_MS = 100
SMALL = Size(entries=600, listed=5, logged=5)
ROLES = ("analyst", "steward", "auditor", "administrator")

#: What is read of each route: addresses with things of long_history.things in braces.
ADDRESSES: dict[str, tuple[str, ...]] = {
    "livez": ("/livez",),
    "readyz": ("/readyz",),
    "healthz": ("/healthz",),
    "datasets.catalogue": (
        "/",
        "/?q=small",
        "/?mechanism=private-prediction",
        "/?q=nothing-of-this-name",
    ),
    "overview.table": ("/overview", "/overview?sort=pace&only=warnings"),
    "overview.file": ("/overview.csv",),
    "overview.calendar": ("/overview.ics",),
    "datasets.show": ("/datasets/{dataset}", "/datasets/tight"),
    "datasets.spent": ("/datasets/{dataset}/spending",),
    "policies.show": ("/datasets/{dataset}/policy",),
    "asking.ask": ("/datasets/{dataset}/submit", "/datasets/{dataset}/submit?from={job}"),
    "wizard.start": ("/add-dataset",),
    "uploads.files": ("/uploads",),
    "models.listing": ("/models",),
    "corpora.listing": ("/corpora",),
    "artifacts.listing": ("/artifacts", "/artifacts?dataset={dataset}"),
    "jobs.listing": (
        "/jobs",
        "/jobs?state=failed",
        "/jobs?state=awaiting_approval",
        "/jobs?state=expired",
        "/jobs?dataset={dataset}",
        "/jobs?mechanism=private-prediction",
        "/jobs?mechanism={rare}",
        "/jobs?mechanism=epsvec",
        "/jobs?mechanism={rare}&state=failed",
        "/jobs?analyst={early}",
        "/jobs?analyst={early}&state=succeeded",
        "/jobs?dataset={dataset}&analyst={early}",
        "/jobs?dataset={dataset}&state=refused",
        "/jobs?dataset={dataset}&mechanism={rare}",
        "/jobs?until={old}",
        "/jobs?state=failed&until={old}",
        "/jobs?cursor={jobs_cursor}",
    ),
    "jobs.states": ("/job-states",),
    "jobs.show": ("/jobs/{job}",),
    "results.compare": ("/jobs/compare?a={job}&b={other}",),
    "jobs.live": ("/jobs/{job}/live",),
    "jobs.result": ("/jobs/{job}/result",),
    "jobs.output": ("/jobs/{job}/output.csv", "/jobs/{job}/output.parquet"),
    "jobs.card": ("/jobs/{job}/card.md",),
    "decisions.listing": ("/inbox",),
    "decisions.show": ("/decisions/{decision}",),
    "decisions.changes": ("/inbox/changes?shown=",),
    "auditing.listing": (
        "/ledger",
        "/ledger?dataset={dataset}",
        "/ledger?cursor={entries_cursor}",
        "/ledger?kind=COMMIT",
        "/ledger?kind=ALLOW",
        "/ledger?kind=VOID",
        "/ledger?kind=REVERSAL",
        "/ledger?kind=VOID&dataset={dataset}",
        "/ledger?actor=analyst",
        "/ledger?actor={early}",
        "/ledger?actor=nobody",
        "/ledger?actor={early}&dataset={dataset}",
        "/ledger?actor=steward&dataset={dataset}",
        "/ledger?actor={early}&kind=COMMIT",
        "/ledger?mechanism=private-prediction",
        "/ledger?mechanism={rare}",
        "/ledger?mechanism=epsvec",
        "/ledger?mechanism={rare}&dataset={dataset}",
        "/ledger?mechanism=noisy-count&kind=VOID",
        "/ledger?until={old}",
        "/ledger?dataset={dataset}&until={old}",
        "/ledger?job={job}",
    ),
    "auditing.entry": ("/ledger/{dataset}/100", "/ledger/{dataset}/{middle}"),
    "auditing.hashed": ("/ledger/{dataset}/{middle}.json",),
    "auditing.refusals": (
        "/ledger/refusals",
        "/ledger/refusals?dataset={dataset}",
        "/ledger/refusals?cap=steward",
        "/ledger/refusals?cap=project",
        "/ledger/refusals?analyst={early}",
        "/ledger/refusals?mechanism={rare}",
    ),
    "auditing.activity": (
        "/ledger/activity",
        "/ledger/activity?actor=steward",
        "/ledger/activity?actor={early}",
        "/ledger/activity?actor=nobody",
        "/ledger/activity?dataset={dataset}",
        "/ledger/activity?dataset=more-001",
        "/ledger/activity?until={old}",
        "/ledger/activity?what=decisions",
        "/ledger/activity?what=refusals&actor=the%20policy",
    ),
    "auditing.signed": ("/ledger/checkpoints", "/ledger/checkpoints?dataset=more-001"),
    "auditing.checkpoint_file": ("/ledger/checkpoints/{reference}.json",),
    "auditing.keys": ("/ledger/keys",),
    "auditing.keys_file": ("/ledger/keys.json",),
    "auditing.exports": ("/ledger/exports", "/ledger/exports?dataset={dataset}"),
    "auditing.registry": ("/datasets/{dataset}/registry",),
    "auditing.report": (
        "/datasets/{dataset}/report",
        "/datasets/{dataset}/report?public=true",
        "/datasets/{dataset}/report?check=true",  # replays the whole ledger
    ),
    "people.listing": ("/people",),
    "people.show": ("/people/{person}",),
    "people.log": ("/sign-ins", "/sign-ins?name=analyst", "/sign-ins?outcome=wrong%20password"),
    "account.show": ("/account",),
    "account.password": ("/account/password",),
    "account.tokens": ("/account/tokens",),
    "notices.listing": ("/settings/notices",),
    "sign_in.form": ("/sign-in",),
    "docs.first": ("/docs",),
    "docs.show": ("/docs/mechanisms/noisy-count",),
    "api_docs.show": ("/api/docs",),
    "api.me": ("/api/v1/me",),
    "api.openapi": ("/api/v1/openapi.json",),
    "api.keys": ("/api/v1/keys",),
    "api.show_maintenance": ("/api/v1/maintenance",),
    "api.users": ("/api/v1/users?limit=50",),
    "api.user": ("/api/v1/users/{person}",),
    "api.tokens_of_user": ("/api/v1/users/{person}/tokens",),
    "api.tokens": ("/api/v1/me/tokens",),
    "api.sign_in_log": ("/api/v1/sign-ins?limit=50",),
    "api.models": ("/api/v1/models?limit=50",),
    "api.model": ("/api/v1/models/{model}",),
    "api.mechanisms": ("/api/v1/mechanisms",),
    "api.list_corpora": ("/api/v1/corpora?limit=50",),
    "api.corpus": ("/api/v1/corpora/corpus-001",),
    "api.datasets": ("/api/v1/datasets?limit=50",),
    "api.dataset": ("/api/v1/datasets/{dataset}",),
    "api.propose": ("/api/v1/datasets/{dataset}/proposal",),
    "api.policy": ("/api/v1/datasets/{dataset}/policy",),
    "api.entries": (
        "/api/v1/datasets/{dataset}/ledger?limit=50",
        "/api/v1/datasets/{dataset}/ledger?limit=50&before={middle}",
    ),
    "api.ex_post": ("/api/v1/datasets/{dataset}/ex-post",),
    "api.list_checkpoints": ("/api/v1/datasets/{dataset}/checkpoints?limit=50",),
    "api.spending_of": ("/api/v1/datasets/{dataset}/spending",),
    "api.means": ("/api/v1/meaning?epsilon=1&delta=0.000001",),
    "api.list_decisions": ("/api/v1/decisions?limit=50",),
    "api.show_decision": ("/api/v1/decisions/{decision}",),
    "api.ledger_entries": (
        "/api/v1/ledger?limit=50",
        "/api/v1/ledger?limit=50&cursor={entries_cursor}",
        "/api/v1/ledger?limit=50&actor={early}",
        "/api/v1/ledger?limit=50&mechanism={rare}",
    ),
    "api.ledger_entry": ("/api/v1/datasets/{dataset}/ledger/{middle}",),
    "api.list_refusals": (
        "/api/v1/refusals?limit=50",
        "/api/v1/refusals?limit=50&mechanism={rare}",
    ),
    "api.all_checkpoints": ("/api/v1/checkpoints?limit=50",),
    "api.list_activity": (
        "/api/v1/activity?limit=50",
        "/api/v1/activity?limit=50&cursor={acts_cursor}",
    ),
    "api.dataset_report": ("/api/v1/datasets/{dataset}/report",),
    "api.jobs": (
        "/api/v1/jobs?limit=50",
        "/api/v1/jobs?limit=50&state=refused",
        "/api/v1/jobs?limit=50&dataset={dataset}",
        "/api/v1/jobs?limit=50&before={moment}",
        "/api/v1/jobs?limit=50&cursor={jobs_cursor}",
    ),
    "api.job": ("/api/v1/jobs/{job}",),
    "api.result": ("/api/v1/jobs/{job}/result",),
    "api.output": ("/api/v1/jobs/{job}/output?format=csv",),
    "api.card": ("/api/v1/jobs/{job}/card",),
    "api.list_artifacts": ("/api/v1/artifacts?limit=50",),
    "api.list_uploads": ("/api/v1/uploads?limit=50",),
    "api.show_upload": ("/api/v1/uploads/{upload}",),
    "api.notice_events": ("/api/v1/notices/events",),
    "api.list_notices": ("/api/v1/notices",),
}

#: Routes that are no page of a list: whole ledgers, files, and the way to a provider that is not
#: there.
LEFT_OUT = {
    "static": "a file",
    "artifacts.file": "a file",
    "auditing.published_file": "a file",
    "api.artifact": "a file",
    "api.pushed_archive": "a file",
    "api.export": "the whole ledger",
    "datasets.export": "the whole ledger",
    "api.check": "replays the whole ledger",
    "sign_in.provider_begin": "no provider is set up",
    "sign_in.provider_return": "no provider is set up",
    "sign_in.provider_again": "no provider is set up",
    "sign_in.provider_left": "no provider is set up",
}


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


def require_all(app: Flask) -> None:
    """End where a route that is read is neither asked here nor left out by name."""
    read = {rule.endpoint for rule in app.url_map.iter_rules() if "GET" in (rule.methods or ())}
    unknown = read ^ (set(ADDRESSES) | set(LEFT_OUT))
    if unknown:
        raise SystemExit(
            f"not both routes and addresses of this benchmark: {', '.join(sorted(unknown))}"
        )


# --- asking -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one address for one role and of an empty answer, and the statements of one
    answer.
    """

    address: str
    role: str
    status: int
    median: float
    slowest: float  # of ten
    empty: float
    processor: float  # milliseconds of one answer
    statements: int


class Asker:
    """One person, on the API by token and on pages by session."""

    def __init__(self, app: Flask, engine: Engine, role: str) -> None:
        user = credentials.find_user(engine, name=role)
        actor = credentials.actor_of(user) if user is not None else person_named(engine, role, role)
        token = credentials.add_token(engine, actor.id, "benchmark", None)
        self.headers = {"Authorization": f"Bearer {token}"}
        self.client = app.test_client()
        with app.test_request_context():
            start_session(credentials.find_user(engine, user_id=actor.id))
            state = dict(session)
        with self.client.session_transaction() as kept:
            kept.update(state)

    def ask(self, path: str) -> Callable[[], Any]:
        """A request to be sent."""
        headers = self.headers if path.startswith("/api/v1") else {}
        return lambda: self.client.get(path, headers=headers)


def counted(ask: Callable[[], Any]) -> tuple[int, int]:
    """(status, statements) of one answer, which warms what is kept between answers."""
    ask().get_data()
    statements = 0

    def count(*_: object) -> None:
        nonlocal statements
        statements += 1

    event.listen(Engine, "before_cursor_execute", count)
    answer = ask()
    answer.get_data()
    event.remove(Engine, "before_cursor_execute", count)
    return answer.status_code, statements


def timed(ask: Callable[[], Any]) -> float:
    start = time.perf_counter()
    ask().get_data()
    return 1000 * (time.perf_counter() - start)


def asked(ground: Ground, only: list[str]) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """(address, role, request) of everything that is read, as each role that may."""
    app = create_app(Settings(home=ground.home / "web", DATABASE_URL=ground.url))
    require_all(app)
    gc.collect()
    gc.freeze()  # as web.serve does
    people = {role: Asker(app, ground.engine, role) for role in ROLES}
    named, routes = things(ground), PAGES | API
    for endpoint, addresses in ADDRESSES.items():
        for role in ROLES:
            if role not in routes[endpoint].may:
                continue
            for address in addresses:
                if not only or any(word in address for word in only):
                    yield address, role, people[role].ask(address.format(**named))


def measure(
    ground: Ground, rounds: int, only: list[str], before: dict[tuple[str, str], int]
) -> list[Timing]:
    """Every address for every role; a line each. `before`: statements with few rows."""
    found, empty, postmaster = [], None, postmaster_of(ground.home)
    for address, role, ask in asked(ground, only):
        empty = empty or ask
        status, statements = counted(ask)
        began = time.process_time() + server_seconds(postmaster)
        taken = [timed(ask) for _ in range(rounds)]
        processor = 1000 * (time.process_time() + server_seconds(postmaster) - began) / rounds
        rests = [timed(empty) for _ in range(rounds)]
        each = Timing(
            address,
            role,
            status,
            statistics.median(taken),
            statistics.quantiles(taken, n=10)[-1],
            statistics.median(rests),
            processor,
            statements,
        )
        found.append(each)
        few = before.get((address, role), statements)
        notes = " SLOW" * (each.median > GOAL_MS) + f" WAS {few} OF FEW ROWS" * (few != statements)
        print(
            f"{role:13} {address[:60]:60} {status} {each.median:7.1f} {each.slowest:7.1f} "
            f"{processor:7.1f} {statements:4}{notes}",
            flush=True,
        )
    return found


# --- the ground ---------------------------------------------------------------------------------


@contextmanager
def ground_of(size: Size, folder: Path | None) -> Iterator[Ground]:
    """A filled service; in `folder` it is kept, and used again where it is there already."""
    home = folder or Path(tempfile.mkdtemp(prefix="pages-"))
    try:
        with Servers(home, valkey=False) as servers:
            made = (home / "filled").exists()
            if made:
                ground = known_ground(servers, home)
            else:
                ground = new_ground(servers, home, 4, dated=before_the_history())
                start = time.perf_counter()
                make(ground, size)
                (home / "filled").touch()
                print(f"filled in {time.perf_counter() - start:.0f} s", flush=True)
            yield ground
            ground.engine.dispose()
    finally:
        if folder is None:
            shutil.rmtree(home, ignore_errors=True)


def known_ground(servers: Servers, home: Path) -> Ground:
    """The ground that an earlier run filled."""
    migrate(servers.owner_url, servers.database_url)
    engine = connect(servers.database_url, pool_size=30)
    people = [
        credentials.actor_of(credentials.find_user(engine, name=name))
        for name in ("steward", "analyst")
    ]  # type: ignore[arg-type]
    names = [f"data-{number}" for number in range(4)]
    return Ground(engine, servers.database_url, servers.owner_url, home, *people, "model", names)


def sizes(ground: Ground) -> str:
    tables = ("jobs", "entries", "activity", "sign_ins", "artifacts", "datasets", "users")
    with ground.engine.connect() as connection:
        counts = {
            name: connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one()
            for name in tables
        }
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def main() -> None:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", nargs="*", default=[], help="words of addresses")
    parser.add_argument(
        "--keep", type=Path, help="a folder where the filled service stays for the next run"
    )
    parser.add_argument(
        "--check", nargs="*", default=[], help="datasets whose ledger is verified first"
    )
    given = parser.parse_args()
    if given.rounds < 2:
        parser.error("--rounds: at least 2, to tell a slow one from the others")
    with ground_of(SMALL, None) as ground:
        before = {
            (address, role): counted(ask)[1] for address, role, ask in asked(ground, given.only)
        }
    with ground_of(Size(entries=given.entries), given.keep) as ground:
        for name in given.check:
            print(
                f"ledger of {name}: {integrity.check(ground.engine, name) or 'holds'}", flush=True
            )
        print(f"{sizes(ground)}; {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}")
        print("median ms, slowest of ten, processor ms, statements", flush=True)
        found = measure(ground, given.rounds, given.only, before)
        slow = [each for each in found if each.median > GOAL_MS]
        odd = sum(each.status != 200 for each in found)
        dear = sum(each.processor > GOAL_MS for each in found)
        more = sum(before.get((each.address, each.role)) != each.statements for each in found)
        print(f"{len(found)} answers: {len(slow)} above {GOAL_MS} ms, {dear} of processor time")
        print(f"{odd} not 200, {more} with other counts than with few rows")
        empty = statistics.median(each.empty for each in found)
        print(f"empty answer {empty:.1f} ms, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
