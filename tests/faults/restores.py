"""Faults of a database beside its log: restores, lost tails, crashes between the two, a log that
was changed.

    python -m tests.faults.restores --faults 60      # draws faults; exits with 1 where a promise is
                                                     broken
    python -m tests.faults.restores --mutations      # each guard taken out: a fault has to notice

On a real PostgreSQL, in one process: a backup is a copy of the database, a process that dies is an
exception that nobody catches, a start is another engine with the log read anew.
"""

import argparse
import hashlib
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accountant.catalogue import datasets
from accountant.core.errors import (
    Conflict,
    ExchequerError,
    LeaseLost,
    LedgerBehind,
    LogUnusable,
    NotFound,
)
from accountant.core.privacy.events import from_json
from accountant.ledger_log import lines
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.log import entries as logged_entries
from accountant.queries import datasets as dataset_queries
from accountant.queries import integrity, log_comparison
from accountant.queries import jobs as job_queries
from accountant.results import Results
from accountant.transactions import leases, ledger_log, recovery, settlement, unit_fingerprints
from accountant.transactions.rows import Claim
from accountant.transactions.settlement import Output
from accountant.transactions.unit_fingerprints import Fingerprint
from tests.restores import Ground, ground
from tests.support import claimed, put
from workers.jobs import staging

Broken = list[str]


class Killed(BaseException):
    """A process that ends here."""


class Traffic:
    """Jobs on one ground, and what was handed out: the outside, which no restore takes back."""

    def __init__(self, at: Ground, results: Path, chance: random.Random) -> None:
        self.at, self.results, self.chance = at, results, chance
        self.handed_out: dict[UUID, list[str]] = {}
        self.begun: set[UUID] = set()
        self.claims: dict[UUID, Claim] = {}

    def ask(self, key: str | None = None) -> UUID:
        return self.at.bench.submit(self.chance.randint(5, 60), key=key)

    def state(self, job_id: UUID) -> str:
        return job_queries.job(self.at.engine, job_id, self.at.bench.steward)["state"]

    def claim(self, job_id: UUID) -> bool:
        for attempt in (1, 2):
            claim = leases.claim(self.at.engine, job_id, attempt, "worker", 60)
            if claim is not None:
                self.claims[job_id] = claim
                leases.begin_reading(self.at.engine, claim)
                self.begun.add(job_id)
                return True
        return False

    def publish(self, job_id: UUID) -> None:
        claim = self.claims[job_id]
        event = from_json(job_queries.job(self.at.engine, job_id, self.at.bench.steward)["event"])
        _, sha256 = put(self.results, str(claim.token).encode())
        settlement.publish(self.at.engine, claim, event, Output("draft", sha256), "worker")
        self.fetch(job_id)

    def fetch(self, job_id: UUID) -> None:
        """Somebody downloads the output."""
        found = job_queries.output(self.at.engine, job_id, self.at.bench.analyst)
        if found.sha256 not in self.handed_out.setdefault(job_id, []):
            self.handed_out[job_id].append(found.sha256)

    def some(self, least: int = 2) -> None:
        """Jobs that are queued, begun, published and cancelled, as chance has it."""
        for _ in range(self.chance.randint(least, 5)):
            job_id = self.ask()
            if self.state(job_id) != "queued":
                continue
            what = self.chance.choice(("queued", "begun", "published", "published", "cancelled"))
            if what == "cancelled":
                settlement.cancel(self.at.engine, job_id, self.at.bench.analyst)
            elif what != "queued" and self.claim(job_id) and what == "published":
                self.publish(job_id)


# --- what is looked at --------------------------------------------------------------------------


def entries(at: Ground) -> list[tuple[int, str]]:
    query = (
        "SELECT seq, hash FROM entries e JOIN datasets d ON d.id = e.dataset_id WHERE d.name = "
        ":name"
    )
    with at.engine.connect() as connection:
        rows = connection.execute(text(query), {"name": at.bench.dataset})
        return sorted((row.seq, row.hash) for row in rows)


def logged(at: Ground) -> list[tuple[int, str]]:
    found = logged_entries(log_at(at.folder))
    return [(each.seq, each.hash) for _, name, each in found if name == at.bench.dataset]


def outcome(at: Ground) -> Broken:
    """What is wrong once everything is said to be well."""
    broken = [] if logged(at) == entries(at) else ["the log is not what the database holds"]
    return broken + integrity.check(at.engine, at.bench.dataset)


def done_while_behind(traffic: Traffic, before: list[tuple[int, str]]) -> Broken:
    """Everything that must be refused is tried."""
    at, broken = traffic.at, []
    for job_id in [*traffic.handed_out, *traffic.begun]:
        with suppress(LedgerBehind, LeaseLost):
            if traffic.claim(job_id):
                broken.append(f"job {job_id} was leased again")
        with suppress(LedgerBehind, LogUnusable, NotFound):
            job_queries.output(at.engine, job_id, at.bench.analyst)
            broken.append(f"an output of {job_id} was handed out")
    for act in (traffic.ask, lambda: at.bench.allow("11")):
        with suppress(LedgerBehind):
            act()
            broken.append("something was answered")
    if entries(at) != before:
        broken.append("entries were written")
    staging.tidy(at.engine, Results(str(traffic.results)))
    return broken


def recovered(traffic: Traffic) -> Broken:
    """Recover, and compare with what the outside has seen."""
    at, broken = traffic.at, []
    wanted = logged(at)
    for each in recovery.plan(at.engine):
        recovery.recover(at.engine, each, Results(str(traffic.results)).facts)
    if entries(at)[: len(wanted)] != wanted:
        broken.append("entries of the log were not written again")
    for job_id, outputs in traffic.handed_out.items():
        with suppress(LedgerBehind, LeaseLost, Conflict):
            if traffic.claim(job_id):
                traffic.publish(job_id)
        if len(outputs) > 1:
            broken.append(f"job {job_id} released twice")
        elif traffic.state(job_id) != "succeeded":
            broken.append(f"job {job_id} was handed out and is {traffic.state(job_id)}")
        elif not (
            traffic.results / job_queries.output(at.engine, job_id, at.bench.analyst).sha256
        ).exists():
            broken.append(f"the output of {job_id} was destroyed")
    for job_id in traffic.begun - set(traffic.handed_out):
        with at.engine.connect() as connection:
            kinds = text("SELECT kind FROM entries WHERE job_id = :id").bindparams(id=job_id)
            if "COMMIT" not in connection.execute(kinds).scalars().all():
                broken.append(f"job {job_id} had begun to read and was not charged")
    return broken + outcome(at)


# --- faults -------------------------------------------------------------------------------------


def older_backup(traffic: Traffic) -> Broken:
    """An older backup is restored; the processes go on, or are started again."""
    at = traffic.at
    traffic.some()
    waiting = traffic.ask()
    copy = at.backup()
    if traffic.claim(waiting):
        traffic.publish(waiting)
    begins = traffic.ask()
    if traffic.state(begins) == "queued":
        traffic.claim(begins)
    traffic.some()
    at.restore(copy)
    if traffic.chance.random() < 0.5:
        at.restart()
    return done_while_behind(traffic, entries(at)) + recovered(traffic)


def lost_tail(traffic: Traffic) -> Broken:
    """A standby takes over without the last transaction or two."""
    at = traffic.at
    traffic.some()
    job_id = traffic.ask()
    if traffic.state(job_id) == "queued":
        traffic.claim(job_id)
    copy = at.backup()
    if job_id in traffic.claims:
        traffic.publish(job_id)
    else:
        at.bench.allow("10")
    at.restore(copy)
    return done_while_behind(traffic, entries(at)) + recovered(traffic)


def log_behind(traffic: Traffic) -> Broken:
    """Processes die between their COMMIT and the log; whoever comes next appends what is
    missing.
    """
    at, broken = traffic.at, []
    for number in range(traffic.chance.randint(1, 3)):
        with mock.patch.object(ledger_log, "_fill", side_effect=Killed), suppress(Killed):
            traffic.ask(key=f"{traffic.chance.random()} {number}")
    at.restart()
    for _ in range(3):
        traffic.ask()
        if logged(at) != entries(at):
            broken.append("somebody was answered before the log held it")
    return broken + outcome(at)


def log_tampered(traffic: Traffic) -> Broken:
    """A byte of the log is changed, or its end is cut below a mark, while nobody looks."""
    at, broken = traffic.at, []
    traffic.some()
    path = log_at(at.folder).segments()[-1]
    data = path.read_bytes()
    last = data.rindex(b"\n", 0, -1)  # no later line covers the last one
    places = [traffic.chance.randrange(last, len(data) - 1)]
    places += [traffic.chance.randrange(len(data) - 1) for _ in range(3)]
    for place in places:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        at.restart()
        if not log_comparison.whole(at.engine):
            broken.append(f"byte {place} was changed, and nothing noticed")
    path.write_bytes(data)
    at.restart()
    ledger_log.mark(at.engine, ledger_log.log_of(at.engine), least=1)
    path.write_bytes(b"".join(data.splitlines(keepends=True)[:-1]))
    at.restart()
    with suppress(LogUnusable):
        traffic.ask()
        broken.append("the log was cut below its mark, and somebody was answered")
    path.write_bytes(data)
    at.restart()
    return broken


def two_services(traffic: Traffic) -> Broken:
    """A second service has another log; a copy of the database has the same one."""
    at, broken = traffic.at, []
    another = at.folder.with_name("another")
    # an empty folder, then somebody's log
    for make in (lambda: None, log_at(another).begin):
        make()
        at.restart(another)
        with suppress(LogUnusable):
            traffic.ask()
            broken.append("a service with another log answered")
    at.restart()
    copy = at.backup()
    traffic.ask()
    at.restore(copy)  # the copy, as a service of its own
    with suppress(LedgerBehind):
        traffic.ask()
        broken.append("a copy of the database answered with an entry of the same number")
    return broken + recovered(traffic)


def data_lost(traffic: Traffic) -> Broken:
    """Data is registered, and spent from, after the backup; then somebody registers the same people
    again.
    """
    at, broken, tag = traffic.at, [], f"{traffic.chance.random()}"
    copy = at.backup()
    lost, again = f"lost-{uuid4().hex[:8]}", f"again-{uuid4().hex[:8]}"
    if new := traffic.chance.random() < 0.5:
        found_right(at, added(at, lost), tag)
        at.bench.dataset, known = lost, at.bench.dataset
        at.bench.allow()
        at.bench.dataset = known
    else:
        changes = {"uri": "/data/next.csv"}
        found_right(
            at, datasets.add_version(at.engine, at.bench.dataset, changes, at.bench.steward), tag
        )
    at.restore(copy)
    with suppress(LedgerBehind):
        found_right(at, added(at, again), tag)
        broken.append("the same people were registered again while the database was behind")
    for each in recovery.plan(at.engine):
        recovery.recover(at.engine, each, lambda *_: None, _IDENTITY)
    if broken:
        return broken
    shown = dataset_queries.datasets(at.engine, at.bench.steward)
    if again not in {each["name"] for each in shown}:
        added(at, again)
    with at.engine.connect() as connection:
        waiting = text(
            "SELECT v.id FROM dataset_versions v JOIN datasets d ON d.id = v.dataset_id WHERE "
            "d.name = :n"
        )
        version = connection.execute(waiting, {"n": again}).scalar_one()
    found_right(at, version, tag)
    with at.engine.connect() as connection:
        stands = text("SELECT state FROM dataset_versions WHERE id = :id").bindparams(id=version)
        if connection.execute(stands).scalar_one() != "invalid":
            broken.append("the same people were registered again after the recovery")
    return broken + (integrity.check(at.engine, lost) if new else outcome(at))


_IDENTITY = b"i" * 32


def added(at: Ground, name: str) -> UUID:
    raw = {"name": name, "uri": f"/data/{name}.csv", "public_size": 1000}
    return datasets.add_dataset(at.engine, datasets.read_dataset(raw), at.bench.steward)


def found_right(at: Ground, version: UUID, *people: str) -> None:
    units = [
        Fingerprint(hashlib.sha256(each.encode()).digest()[:16], is_unit=True) for each in people
    ]
    claimed(at.engine, version, b"the key", units, _IDENTITY)


FAULTS: dict[str, Callable[[Traffic], Broken]] = {
    "older backup restored": older_backup,
    "lost tail at failover, log ahead": lost_tail,
    "process died before the log, log behind": log_behind,
    "log tampered or cut": log_tampered,
    "two services on one database": two_services,
    "data registered after the backup": data_lost,
}


# --- mutations ----------------------------------------------------------------------------------


def _nothing(*_: object, **__: object) -> None:
    return


def _charge_nobody(_: object, job: Any) -> Any:
    return job


def _any_line(position: Any, line: bytes, *, thorough: bool = False) -> Any:
    return FOLLOW(position, line)


FOLLOW = lines.follow

#: Each guard, what takes its place, and the fault that has to notice.
MUTATIONS: dict[str, tuple[object, str, object, str]] = {
    "comparison under the account's lock": (
        ledger_log,
        "compare",
        _nothing,
        "older backup restored",
    ),
    "comparison before a lease": (ledger_log, "ensure_job", _nothing, "older backup restored"),
    "comparison before an output": (job_queries, "ensure", _nothing, "older backup restored"),
    "published files of a database that is behind are kept": (
        *(ledger_log, "holds", lambda *_: True),
        "older backup restored",
    ),
    "what may have read is charged in full": (
        recovery,
        "_begun",
        _charge_nobody,
        "older backup restored",
    ),
    "appended before the answer": (
        ledger_log,
        "_fill",
        _nothing,
        "process died before the log, log behind",
    ),
    "hashes of entries in the log": (lines, "follow", _any_line, "log tampered or cut"),
    "marks of the log in the database": (
        ledger_log,
        "check_marks",
        _nothing,
        "log tampered or cut",
    ),
    "nothing is registered while people are lost": (
        *(ledger_log, "behind", lambda _: ([], [])),
        "data registered after the backup",
    ),
    "what is known of data is kept beside the log": (
        *(unit_fingerprints, "_keep", _nothing),
        "data registered after the backup",
    ),
    "the log's name in the database": (
        ledger_log,
        "attach",
        _nothing,
        "two services on one database",
    ),
}


@contextmanager
def stage(servers: Any, chance: random.Random) -> Iterator[Traffic]:
    """A ground with traffic on it, in a folder that ends with it."""
    with tempfile.TemporaryDirectory() as folder, ground(servers, Path(folder) / "log") as at:
        yield Traffic(at, Path(folder) / "results", chance)


def undetected(servers: Any, seed: int) -> list[str]:
    """The guards whose absence no fault noticed."""
    missed = []
    for name, (holder, attribute, instead, fault) in MUTATIONS.items():
        found: Broken = []
        for number in range(6):
            chance = random.Random(f"{seed} {name} {number}")
            with stage(servers, chance) as traffic, mock.patch.object(holder, attribute, instead):
                try:
                    found = FAULTS[fault](traffic)
                except (ExchequerError, DBAPIError) as error:  # the next guard noticed
                    found = [repr(error)]
            if found:
                break
        print(f"| {name} | {fault} | {found[0] if found else 'NOTHING'} |", flush=True)
        missed += [] if found else [name]
    return missed


def main() -> int:
    from web.stack.servers import Servers

    parser = argparse.ArgumentParser(prog="python -m tests.faults.restores", description=__doc__)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--mutations", action="store_true", help="take each guard out instead")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    from tests.conftest import prepared

    with tempfile.TemporaryDirectory() as home, Servers(Path(home), valkey=False) as servers:
        prepared(servers)
        if chosen.mutations:
            return 1 if undetected(servers, chosen.seed) else 0
        broken = run(servers, chosen.seed, chosen.faults)
    print(f"{chosen.faults} faults, {len(broken)} promises broken")
    for each in broken:
        print(each)
    return 1 if broken else 0


def run(servers: Any, seed: int, count: int) -> Broken:
    """Draw so many faults, every kind in turn; what they broke, with the fault's number."""
    broken: Broken = []
    kinds = list(FAULTS)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        with stage(servers, random.Random(f"{seed} {number}")) as traffic:
            broken += [f"fault {number} ({kind}): {each}" for each in FAULTS[kind](traffic)]
    return broken


if __name__ == "__main__":
    sys.exit(main())
