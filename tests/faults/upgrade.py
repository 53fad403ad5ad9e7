"""An upgrade under load, as docs/operations.md says it: from this tree to a next version of it.

    python -m tests.faults.upgrade

The next version is a copy of the tree with one revision of the schema more. While people work,
maintenance begins, a worker drains and one is killed, the schema is migrated under the old nodes,
each process is replaced by one of the next version, and maintenance ends. Somebody reads all the
time. At the end nothing is lost, nothing was charged twice, and no attempt that the upgrade ended
is charged.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from sqlalchemy import text

from accountant.transactions import maintenance
from tests.faults import harness
from tests.faults.harness import Harness
from tests.faults.parts import PARTS, Part, Running, Skew, free_ports

ROOT = Path(__file__).resolve().parents[2]
#: What a version consists of.
TREE = ("accountant", "workers", "web", "migrations", "tests", "pyproject.toml")
REVISION = '''"""What only the next version has."""

import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "9999", "{newest}", None, None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("of_the_next_version", sa.Integer))
'''
BE_A_PART = (
    "import json, sys; from tests.faults.parts import Part, Skew, run; "
    "run(Part(*json.loads(sys.argv[1])), sys.argv[2], tuple(json.loads(sys.argv[3])), Skew(), '')"
)
MIGRATE = "import sys; from accountant.database import migrate; migrate(*sys.argv[1:])"
LOAD_SECONDS = 15.0
RIGHT = Skew()


class Started(subprocess.Popen[bytes]):
    """A process of the next version, that answers as one of `multiprocessing` does."""

    def is_alive(self) -> bool:
        return self.poll() is None

    def join(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(seconds)


@dataclass
class Versions(Running):
    """The processes of the parts: of this tree, and of `tree` once it is set."""

    tree: Path | None = None

    def start(self, part: Part, skew: Skew = RIGHT) -> None:
        if self.tree is None:
            super().start(part, skew)
        else:
            self.processes[part.name] = started(self.tree, part, self.folder, self.ports)  # type: ignore[assignment]


def started(tree: Path, part: Part, folder: Path, ports: tuple[int, ...]) -> Started:
    """Start a part of another tree."""
    about = [json.dumps([part.name, part.kind, part.argument]), str(folder), json.dumps(ports)]
    environment = os.environ | {"PYTHONPATH": str(tree)}
    return Started([sys.executable, "-c", BE_A_PART, *about], cwd=tree, env=environment)


@dataclass
class Reader:
    """Somebody who reads at both nodes, and asks for jobs, all the time."""

    urls: list[str]
    token: str
    dataset: str
    unread: list[str] = field(default_factory=list)  # what both nodes said where neither served
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.wait(0.3):
            began, said = time.monotonic(), []
            for url in (*self.urls, self.urls[0]):  # the first may be back by then
                said.append(self.read(url))
                if said[-1] == 200:
                    break
            else:
                self.unread.append(f"{said} at {began:.0f}, {time.monotonic() - began:.1f} s")

    def read(self, url: str) -> int:
        """Read a list; returns the status, or 0 where nothing answers."""
        answer = self.ask("GET", url, "datasets")
        return 0 if answer is None else answer.status_code

    def ask(self, method: str, url: str, path: str, **values: Any) -> httpx2.Response | None:
        headers = {"Authorization": f"Bearer {self.token}"}
        with suppress(httpx2.HTTPError):
            return httpx2.request(
                method,
                f"{url}/api/v1/{path}",
                headers=headers,
                timeout=8.0,
                trust_env=False,
                **values,
            )
        return None

    def request(self) -> tuple[int, str]:
        """Ask for a job; returns the status and what the answer says."""
        body = {"dataset": self.dataset, "mechanism": "noisy-count", "purpose": "an upgrade"}
        body |= {"parameters": {"epsilon": 0.001}}  # type: ignore[dict-item]
        answer = self.ask("POST", self.urls[0], "jobs", json=body)
        return (0, "") if answer is None else (answer.status_code, answer.text)


class Upgrade(Harness):
    """One upgrade."""

    def __enter__(self) -> "Upgrade":
        super().__enter__()
        self.admin = self._person("administrator")
        return self

    def _running(self) -> Running:
        return Versions(self.folder, self.ports, self.mutation)

    def upgrade(self) -> dict[str, Any]:
        """Work, upgrade, work, come to rest, count."""
        began = time.monotonic()
        tree = self._next()
        self.desk.start()
        reader = Reader(self.desk.urls, self._token(self._person("analyst")), self.desk.datasets[0])
        threading.Thread(target=reader.run, daemon=True).start()
        self._work(LOAD_SECONDS)
        said = self._first_word(tree)
        assert "this service needs 9999" in said, f"it serves the schema of this one: {said}"
        before = self._entries()
        self.say(f"{time.monotonic() - began:5.0f} s  maintenance, with {before} entries")
        maintenance.switch(self.engine, self.admin, True, "an upgrade")
        status, why = reader.request()
        self._replace_workers(tree)
        self.say(f"{time.monotonic() - began:5.0f} s  migration, at {time.monotonic():.0f}")
        self._in(tree, MIGRATE, self.servers.owner_url, self.servers.database_url)
        old = [reader.read(url) for url in self.desk.urls]
        assert old == [200, 200], f"old nodes do not read the new schema: {old}"
        for part in PARTS:
            if part.kind != "worker":
                self._replace(part)
        for part in PARTS:
            if part.kind == "worker":
                self.running.start(part)
        during = self._entries()
        maintenance.switch(self.engine, self.admin, False, "done")
        self.say(f"{time.monotonic() - began:5.0f} s  the next version, with {during} entries")
        self._work(LOAD_SECONDS)
        reader.stop.set()
        outcome = self.conclude(began)
        counts = outcome.findings.counts
        return {
            "seconds": round(time.monotonic() - began),
            "analysts": harness.ANALYSTS,
            "entries before, in maintenance, after": [
                before,
                during - before,
                self._entries() - during,
            ],
            "a request in maintenance": [status, "an upgrade" in why],
            "entries": {name: counts[name] for name in ("RESERVE", "COMMIT", "VOID")},
            "attempts that read data": counts["attempts that read data"],
            "moments at which no node read": reader.unread,
            "broken": {name: cases[:8] for name, cases in outcome.findings.broken.items()},
        }

    def _next(self) -> Path:
        """Make the next version."""
        tree = self.home / "next"
        tree.mkdir()
        for name in TREE:
            if (ROOT / name).is_dir():
                skip = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, tree / name, ignore=skip)
            else:
                shutil.copy(ROOT / name, tree / name)
        versions = tree / "migrations" / "versions"
        newest = max(path.name[:4] for path in versions.glob("0*.py"))
        (versions / "9999_next.py").write_text(REVISION.format(newest=newest))
        return tree

    def _in(self, tree: Path, code: str, *arguments: str) -> None:
        """Run code of another tree."""
        environment = os.environ | {"PYTHONPATH": str(tree)}
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def _first_word(self, tree: Path) -> str:
        """Return what a node of this tree says of itself once it knows, and end it."""
        ports = free_ports(4)
        node = started(tree, Part("api-next", "api", "0"), self.folder, ports)
        probe = f"http://127.0.0.1:{ports[2]}/readyz"
        try:
            said = "nothing"
            for _ in range(240):
                with suppress(httpx2.HTTPError):
                    answer = httpx2.get(probe, timeout=5.0, trust_env=False)
                    said = answer.text
                    if answer.status_code == 200 or "needs" in said:
                        break
                self._work(0.25)
            return said
        finally:
            node.kill()
            node.wait()

    def _replace_workers(self, tree: Path) -> None:
        """Drain one worker and kill the other; from here on each start is of the next version."""
        assert isinstance(self.running, Versions)
        self.running.signal("worker-2", signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(self.running.processes["worker-1"].pid or 0, signal.SIGTERM)
        for name in ("worker-1", "worker-2"):
            self.running.processes[name].join(30)
        self.running.tree = tree

    def _replace(self, part: Part) -> None:
        process = self.running.processes[part.name]
        with suppress(ProcessLookupError):
            os.kill(process.pid or 0, signal.SIGTERM)
        process.join(30)
        assert not process.is_alive(), f"{part.name} does not end"
        self.running.start(part)
        if part.kind == "api":
            url = self.desk.urls[int(part.argument)]
            self._until(lambda: _serves(url), 60, f"{part.name} does not serve")

    def _work(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self._tend()
            time.sleep(0.1)

    def _entries(self) -> int:
        return int(self._ask(text("SELECT count(*) FROM entries")) or 0)


def _serves(url: str) -> bool:
    with suppress(httpx2.HTTPError):
        return httpx2.get(f"{url}/livez", timeout=2.0, trust_env=False).status_code == 200
    return False


def main() -> int:
    """Upgrade, print the figures, and say by the exit code whether every promise held."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.upgrade", description=__doc__)
    parser.add_argument("--seed", type=int, default=None)
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(2**31) if chosen.seed is None else chosen.seed
    harness.ALLOWANCE, harness.LEASE_SECONDS = "1000", 10.0
    with Upgrade(seed) as upgrade:
        found = upgrade.upgrade()
    print(json.dumps(found, indent=1))
    admitted = found["entries before, in maintenance, after"]
    sound = (
        not any(found["broken"].values())
        and not found["moments at which no node read"]
        and found["a request in maintenance"] == [503, True]
        and admitted[0]
        and admitted[2]
    )
    if sound:
        shutil.rmtree(upgrade.home, ignore_errors=True)
    else:
        print(f"logs, witness and exports: {upgrade.folder}")
    return 0 if sound else 1


if __name__ == "__main__":
    raise SystemExit(main())
