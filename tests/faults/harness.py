"""The service under faults: real servers and processes, people at work, and faults drawn from a
seed.

A seed fixes what is injected, in which order and with which pauses, and what people ask for; when a
fault meets which step is up to the machine's scheduling, so the same seed replays as far as that
allows.
"""

import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accountant import faults
from accountant.catalogue import corpora, datasets
from accountant.core.errors import LedgerBehind
from accountant.core.ledger.allowances import Allowance
from accountant.database import UNAVAILABLE, connect, logging_to, migrate
from accountant.identities import credentials
from accountant.identities.actor import Actor
from accountant.transactions import allowances
from tests.faults import split_counts
from tests.faults.backups import Backups
from tests.faults.checker import ENDED, Findings, check
from tests.faults.kinds import ATTACKS, FAILING, KINDS
from tests.faults.mutations import MUTATIONS
from tests.faults.orders import Board
from tests.faults.parts import PARTS, Running, Skew, free_ports
from tests.faults.traffic import Desk, Person
from web.stack.servers import Servers

DATASETS, RECORDS, ANALYSTS = 6, 45, 4
ALLOWANCE = "1"
WORDS = ("soup", "lift", "desk", "cold", "garden", "price", "early")
LEASE_SECONDS, RESEND_SECONDS = 1.5, 2.0
MOST_LIVE = 25  # people wait while more jobs than this are under way
PATIENCE_SECONDS = 12.0  # an order that nobody took is withdrawn
QUIET_SECONDS, QUIET_SECONDS_OF_MUTANTS = 120.0, 25.0


@dataclass
class Outcome:
    """The actions and findings of a run."""

    seed: int
    injected: Counter[str]
    points: Counter[str]
    reached: set[str]
    findings: Findings
    seconds: float
    settings: dict[str, float]
    folder: Path
    restores: str


@dataclass
class Harness:
    """One run. `with Harness(seed) as h: h.run(200)`."""

    seed: int
    mutation: str = ""
    say: Callable[[str], None] = print
    injected: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> "Harness":
        self.chance = random.Random(self.seed)
        self.drawn = 0
        self.home = Path(tempfile.mkdtemp(prefix="exq-faults-"))
        self.folder = self.home / "faults"
        self.folder.mkdir(mode=0o700)
        self.log: Path | str = self.home / "ledger-log"
        self.board = Board(self.folder)
        self._disks()
        self.servers = Servers(self.home / "stack")
        self.servers.__enter__()
        self._environment()
        migrate(self.servers.owner_url, self.servers.database_url)
        self.engine = logging_to(connect(self.servers.database_url), self.log)
        self.owner = connect(self.servers.owner_url)
        self.mutant = MUTATIONS[self.mutation] if self.mutation else None
        if self.mutant and self.mutant.sql:
            with self.owner.begin() as connection:
                connection.execute(text(self.mutant.sql))
        self.ports = free_ports(4)  # of two web nodes, and of their probes
        self.running = self._running()
        self.backups = Backups(self.servers, self.engine)
        self.asleep: dict[int, float] = {}
        self.given: dict[str, float] = {}
        self.kinds: dict[str, str] = {}
        for part in PARTS:
            self.running.start(part)
        self.desk = self._desk()
        return self

    def __exit__(self, *_: object) -> None:
        self.desk.stop.set()
        self.running.kill()
        self.engine.dispose()
        self.owner.dispose()
        self.servers.stop()

    # --- setting up -----------------------------------------------------------------------------

    def _running(self) -> Running:
        """Return the processes of the parts, of which none runs yet."""
        return Running(self.folder, self.ports, self.mutation)

    def _disks(self) -> None:
        """Put disks of their own below the home, before anything is written there."""

    def _environment(self) -> None:
        """Set the environment that the parts read, before the fork server starts."""
        os.environ |= {
            "EXCHEQUER_HOME": str(self.home / "stack"),
            "DATABASE_URL": self.servers.database_url,
            "BROKER_URL": self.servers.broker_url,
            "EXCHEQUER_DATA_ROOTS": str(self.home),
            "EXCHEQUER_LEDGER_LOG": str(self.log),
            "EXCHEQUER_LEASE_SECONDS": str(LEASE_SECONDS),
            "EXCHEQUER_RESEND_SECONDS": str(RESEND_SECONDS),
            "EXCHEQUER_RESULTS_EVERY_SECONDS": "0",  # a worker that waits for a slot meets no fault
            "EXCHEQUER_LEFTOVER_SECONDS": "5",
            # Celery may hear nothing after its broker was killed; the watchdog starts it again.
            "EXCHEQUER_WATCHDOG_SECONDS": "15",
            "EXCHEQUER_NEW_ACCOUNT_HOURS": "0",  # else nobody confirms a correction
            "EXCHEQUER_FAN_OUT": str(split_counts.PARTS),
            "OMP_NUM_THREADS": "1",
        }

    def _desk(self) -> Desk:
        """People, and datasets whose data a worker has checked."""
        steward = self._person("steward")
        analysts = [self._person("analyst") for _ in range(ANALYSTS)]
        names = [self._dataset(number, steward) for number in range(DATASETS)]
        self._corpus(steward)
        query = text("SELECT count(*) FROM dataset_versions WHERE state <> 'ready'")
        self._until(lambda: self._ask(query) == 0, 60, "datasets are not ready")
        unread = text("SELECT count(*) FROM corpora WHERE state <> 'ready'")
        self._until(lambda: self._ask(unread) == 0, 60, "the corpus is not ready")
        for name in names:
            allowances.allow(
                self.engine, name, Allowance(ALLOWANCE, "0.000001", "a fault run"), steward
            )
        desk = Desk(
            [f"http://127.0.0.1:{port}" for port in self.ports[:2]],
            names,
            [self._token(actor) for actor in analysts],
            self._token(steward),
            self._token(self._person("steward")),
            self.seed,
        )
        desk.terms = self._vocabulary(desk)
        return desk

    def _corpus(self, steward: Actor) -> None:
        """Public texts, of which a list of terms is made."""
        file = self.home / "public.csv"
        file.write_text("text\n" + "".join(f"{word}\n" for word in WORDS))
        stated = "made up for the harness"
        corpora.add(
            self.engine, corpora.CorpusSpec(name="public", uri=str(file), statement=stated), steward
        )

    def _vocabulary(self, desk: Desk) -> str:
        """The public job that made the list of terms, which serves all datasets."""
        asker = Person(desk, desk.analysts[0], self.chance)
        parameters = {"corpus": "public", "words": 1, "least_documents": 1}
        body = {"dataset": desk.datasets[0], "mechanism": "vocabulary", "parameters": parameters}
        asked = asker.ask(
            "POST", "/jobs", json={**body, "purpose": "terms"}, headers={"Idempotency-Key": "terms"}
        )
        assert asked is not None, "nobody answers"
        assert asked.status_code == 201, asked.text
        job: str = asked.json()["id"]
        done = text(
            "SELECT count(*) FROM jobs WHERE id = CAST(:job AS uuid) AND state = 'succeeded'"
        ).bindparams(job=job)
        self._until(lambda: self._ask(done) == 1, 60, "there is no list of terms")
        return job

    def _person(self, role: str) -> Actor:
        user_id = credentials.add_user(self.engine, f"{role}-{os.urandom(4).hex()}", None, [role])
        user = credentials.find_user(self.engine, user_id=user_id)
        assert user is not None
        return credentials.actor_of(user)

    def _token(self, actor: Actor) -> str:
        return credentials.add_token(self.engine, actor.id, "faults", None)

    def _dataset(self, number: int, steward: Actor) -> str:
        """Different people in each, two relations, records or patients as units."""
        name, labels = f"data-{number}", ["a", "b", "c"]
        file = self.home / f"{name}.csv"
        rows = [
            f"p{number}-{row // 2},{labels[row % 3]},text {number} {row} {WORDS[row % 7]}\n"
            for row in range(RECORDS)
        ]
        file.write_text("".join(["who,label,text\n", *rows]))
        raw = {
            "name": name,
            "uri": str(file),
            "public_size": 50,
            "label_column": "label",
            "labels": labels,
        }
        raw |= {"policy": {"auto_approve_epsilon": "0.3"}}
        raw |= {"neighbours": "replace-one"} if number % 3 == 2 else {}
        raw |= {"unit_column": "who", "max_records_per_unit": 1 + number % 2} if number % 2 else {}
        datasets.add_dataset(self.engine, datasets.read_dataset(raw), steward)
        return name

    # --- running --------------------------------------------------------------------------------

    def run(self, count: int) -> Outcome:
        """Inject `count` faults, let everything come to rest, and check."""
        begin = told = time.monotonic()
        pauses = random.Random(f"{self.seed} pauses")
        self.desk.start()
        while sum(self.injected.values()) < count:
            self._tend()
            if len(self.given) < 3 and sum(self.injected.values()) + len(self.given) < count:
                self._inject()
            if time.monotonic() - told > 10:
                told = time.monotonic()
                self.say(f"{told - begin:5.0f} s  {sum(self.injected.values())} of {count} faults")
            time.sleep(pauses.uniform(0.02, 0.3))
        return self.conclude(begin)

    def conclude(self, begin: float) -> Outcome:
        """Let everything come to rest, and check."""
        self.say(f"{time.monotonic() - begin:5.0f} s  quiet: everything has to come to rest")
        self._rest()
        findings = check(
            self.servers.database_url.replace("+psycopg", ""),
            self.folder,
            self._results(),
            self.desk.answers,
            self.backups.gone,
        )
        self._verify(findings)
        findings.broken["lost jobs"] += self.desk.changed_answers
        findings.broken["broken chains"] += self.backups.problems
        settings = {"lease": LEASE_SECONDS, "resend": RESEND_SECONDS, "datasets": DATASETS}
        reached, seconds = self.board.points_reached(), time.monotonic() - begin
        facts = (
            self.seed,
            self.injected,
            self.points,
            reached,
            findings,
            seconds,
            settings,
            self.folder,
        )
        return Outcome(*facts, self.backups.told())

    def _tend(self) -> None:
        """Wake what slept long enough, start what died, count what happened, hold people back."""
        now = time.monotonic()
        for pid, until in list(self.asleep.items()):
            if now >= until:
                _send(pid, signal.SIGCONT)
                del self.asleep[pid]
        for taken in self.board.news():
            self.given.pop(taken.point, None)
            self._count(self.kinds.pop(taken.point), taken.point)
            if taken.action.startswith("stop"):
                self.asleep[taken.pid] = now + float(taken.action.split()[1])
        for point, since in list(self.given.items()):
            if now - since > PATIENCE_SECONDS and self.board.withdraw(point):
                del self.given[point], self.kinds[point]
        if self.backups.recovers is not None and now >= self.backups.recovers:
            self.running.kill()  # docs/operations.md: nothing runs beside a recovery
            self.asleep.clear()
            self.backups.recover()
        for part in self.running.dead():
            self.running.start(part)
        live = self._ask(
            text("SELECT count(*) FROM jobs WHERE state IN ('queued', 'running', 'settling')")
        )
        (self.desk.pause.set if (live or 0) > MOST_LIVE else self.desk.pause.clear)()

    def _count(self, kind: str, point: str = "") -> None:
        self.injected[kind] += 1
        if point:
            self.points[point] += 1

    def _results(self) -> Path:
        """The folder of what was published."""
        return self.home / "stack" / "results"

    def _rest(self) -> None:
        """No more faults and no more requests; wait until every job has ended."""
        for point in self.given:
            self.board.withdraw(point)
        self.desk.pause.set()

        def at_rest() -> bool:
            self._tend()
            self.desk.pause.set()
            states = ", ".join(f"'{state}'" for state in sorted(ENDED))
            going_on = self._ask(text(f"SELECT count(*) FROM jobs WHERE state NOT IN ({states})"))
            return self.backups.recovers is None and going_on == 0 and not self.desk.asking

        quiet_seconds = QUIET_SECONDS_OF_MUTANTS if self.mutant else QUIET_SECONDS
        if self._until(at_rest, quiet_seconds, None):
            time.sleep(2 * LEASE_SECONDS)  # whoever slept through its lease finds out
            # A last request may have passed the pause, and waits for the steward, who goes on.
            self._until(at_rest, quiet_seconds, None)
        self.desk.stop.set()

    def _verify(self, findings: Findings) -> None:
        """`exchequer verify` on every export, in a process of its own."""
        import subprocess
        import sys

        from accountant.queries import entries, log_comparison

        for name, problems in log_comparison.whole(self.engine).items():
            findings.broken["broken chains"] += [
                f"log outside, {name}: {each}" for each in problems
            ]
        auditor = self._person("auditor")
        files = [self.folder / f"{name}.jsonl" for name in self.desk.datasets]
        for name, file in zip(self.desk.datasets, files, strict=True):
            with suppress(LedgerBehind), file.open("wb") as lines:  # said above
                for line in entries.export(self.engine, name, auditor, "jsonl"):
                    lines.write(line if isinstance(line, bytes) else line.encode())
        # Together: what one reads of another is proved by the other's.
        command = [sys.executable, "-m", "web.cli", "verify", *map(str, files)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            findings.broken["broken chains"].append(f"{done.stdout}{done.stderr}".strip())

    # --- faults ---------------------------------------------------------------------------------

    def _inject(self) -> None:
        """One fault, drawn from the seed."""
        self.drawn += 1
        self.chance = random.Random(
            f"{self.seed} fault {self.drawn}"
        )  # the n-th of a seed is always the same
        if self.mutant:
            kind, point, action = self.chance.choice(self.mutant.focus)
            if point or action:
                self._order(kind, point, action) if point else self._attack(kind, action)
                return
        else:
            kind = self.chance.choices(list(KINDS), list(KINDS.values()))[0]
        seconds = self.chance.uniform(1.5, 3.0) * LEASE_SECONDS
        match kind:
            case "crash point: kill":
                self._order(kind, self.chance.choice(list(faults.POINTS)), "kill")
            case "crash point: stop past the lease":
                self._order(kind, self.chance.choice(list(faults.POINTS)), f"stop {seconds:.2f}")
            case "crash point: OSError":
                self._order(kind, self.chance.choice(FAILING), "error")
            case "kill -9":
                self.running.signal(self.chance.choice(PARTS).name, signal.SIGKILL)
                self._count(kind)
            case "worker paused past its lease":
                self._pause(self.chance.choice(("worker-1", "worker-2")), seconds)
                self._count(kind)
            case "message delivered twice":
                self._twice(kind)
            case "broker killed and flushed":
                self._lose_broker()
                self._count(kind)
            case "PostgreSQL stopped immediately":
                # what `pg_ctl stop -m immediate` sends: no checkpoint, recovery at the next start
                self.servers.children["postgres"].stop(((signal.SIGQUIT, 20.0),))
                self.servers.start("postgres")
                self._count(kind)
            case "clock skewed":
                self._skew()
                self._count(kind)
            case "database restored from a backup":
                if self.backups.next(time.monotonic() + seconds):
                    self.desk.restores += 1
                    self._count(kind)
            case "ledger attacked":
                self._attack(kind, self.chance.choice(ATTACKS))

    def _order(self, kind: str, point: str, action: str) -> None:
        if point not in self.given:
            self.board.give(point, action)
            self.given[point], self.kinds[point] = time.monotonic(), kind

    def _pause(self, name: str, seconds: float) -> None:
        import psutil

        try:
            top = psutil.Process(self.running.processes[name].pid)
            pids = [top.pid, *(child.pid for child in top.children(recursive=True))]
        except psutil.NoSuchProcess:
            return
        for pid in pids:
            _send(pid, signal.SIGSTOP)
            self.asleep[pid] = time.monotonic() + seconds

    def _attack(self, kind: str, statement: str) -> None:
        """Change the past as the owner of the tables, who may do more than the service; the checker
        looks.
        """
        try:
            with self.owner.begin() as connection:
                connection.execute(text("SET LOCAL lock_timeout = '1s'"))
                connection.execute(text(statement))
        except DBAPIError:
            pass
        self._count(kind)

    def _twice(self, kind: str) -> None:
        """The message of a recent attempt once more, running or ended, and of the attempt
        before.
        """
        from kombu.exceptions import OperationalError

        from workers.jobs.relay import send

        try:
            with self.engine.connect() as connection:
                query = text(
                    "SELECT id, attempt FROM jobs WHERE attempt > 0 ORDER BY queued_at DESC LIMIT 8"
                )
                rows = connection.execute(query).all()
            if rows:
                row = rows[self.chance.randrange(len(rows))]
                for attempt in {row.attempt, max(1, row.attempt - 1)}:
                    send("generate", row.id, attempt, 0)
                self._count(kind)
        except (DBAPIError, OperationalError, OSError):
            return

    def _lose_broker(self) -> None:
        self.servers.children["valkey"].stop(())
        for path in (self.home / "stack" / "valkey").glob("appendonlydir/*"):
            path.unlink()
        self.servers.start("valkey")

    def _skew(self) -> None:
        """One part starts again with a wrong clock, and keeps it until it is killed."""
        part = self.chance.choice(PARTS)
        skew = Skew(
            self.chance.choice((-86_400.0, -600.0, 600.0, 86_400.0)),
            self.chance.choice((0.2, 1.0, 5.0)),
        )
        self.running.signal(part.name, signal.SIGKILL)
        self.running.processes[part.name].join(5)
        self.running.start(part, skew)

    # --- helpers --------------------------------------------------------------------------------

    def _ask(self, query: object) -> int | None:
        """One number; None while the database is away."""
        try:
            with self.engine.connect() as connection:
                return connection.execute(query).scalar_one()  # type: ignore[call-overload]
        except (DBAPIError, *UNAVAILABLE):
            return None

    def _until(self, look: Callable[[], bool], seconds: float, problem: str | None) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if look():
                return True
            time.sleep(0.1)
        if problem is not None:
            raise RuntimeError(f"{problem} after {seconds} s; see {self.folder}")
        return False


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
