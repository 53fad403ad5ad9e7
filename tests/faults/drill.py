"""The drill: what an operator meets, one after another, while people work; then all is counted.

    python -m tests.faults.drill --minutes 20

Two web nodes, two relays and two workers, with PgBouncer before the database and results in S3. The
database freezes and crashes, the pooler and the store go away, the broker is flushed, workers are
killed and drained, the log's lock is held and its disk filled, every process is rolled, a key is
rotated, maintenance is switched on and off. Each second each web node says by `/readyz` whether it
serves, and is asked to serve. At the end nothing is lost, nothing was charged twice, and nothing
that waits is charged.
"""

import argparse
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import httpx2
import psutil
from sqlalchemy import text

from accountant.identities.actor import Actor
from accountant.transactions import maintenance
from tests import object_stores
from tests.faults import harness
from tests.faults.harness import Harness
from tests.faults.parts import PARTS
from tests.poolers import Pooler, pooled

#: Seconds that something is frozen, full, held or closed in a short drill, and at most.
SHORT, LONG = 8.0, 60.0
#: A state that lasts for less may be told a moment late.
LATE_SECONDS = 3.0
DISK_MIB, CONNECTIONS = 96, 20
LEASE_SECONDS, QUIET_SECONDS = 10.0, 300.0
ALLOWANCE = "1000"


@dataclass
class Look:
    """What a web node said of itself at a second, and whether it served then."""

    at: float
    ready: int  # the status of /readyz; 0: no answer
    served: int  # of a request that writes; 0: no answer
    seconds: float  # until /readyz was answered


@dataclass
class Watch:
    """A thread that looks at one web node each second."""

    probe: str
    url: str
    token: str
    dataset: str
    looks: list[Look] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stop.wait(1.0):
            began = time.monotonic()
            ready = self._status("GET", f"{self.probe}/readyz", timeout=2.0)
            seconds = time.monotonic() - began
            body = {
                "dataset": self.dataset,
                "mechanism": "noisy-count",
                "parameters": {"epsilon": 0.001},
                "purpose": "a drill",
            }
            headers = {"Authorization": f"Bearer {self.token}"}
            served = self._status(
                "POST", f"{self.url}/api/v1/jobs", json=body, headers=headers, timeout=4.0
            )
            self.looks.append(Look(began, ready, served, seconds))

    @staticmethod
    def _status(method: str, url: str, **values: Any) -> int:
        try:
            return httpx2.request(method, url, trust_env=False, **values).status_code
        except httpx2.HTTPError:
            return 0

    def untrue(self, closed: "Windows", away: "Windows") -> list[str]:
        """Return seconds at which readiness was not what requests met, and went on so.

        Under maintenance (`closed`) a node is ready, for reads; while results are `away` it is not,
        although it admits.
        """
        wrong = []
        for before, look, after in zip(self.looks, self.looks[1:], self.looks[2:], strict=False):
            if any(begin - 1 <= look.at <= end + LATE_SECONDS for begin, end in closed):
                continue
            said, did = look.ready == 200, 0 < look.served < 500
            if any(begin - 1 <= look.at <= end + LATE_SECONDS for begin, end in away):
                if said and any(begin + LATE_SECONDS < look.at < end - 1 for begin, end in away):
                    wrong.append(f"results away: {look}")
                continue
            around = {before.ready == 200, after.ready == 200}
            if said != did and did not in around and after.at - before.at < 4 * LATE_SECONDS:
                wrong.append(f"{look}")
        return wrong


Windows = list[tuple[float, float]]


class Drill(Harness):
    """One drill."""

    def __init__(self, minutes: float, clients: int, seed: int) -> None:
        super().__init__(seed)
        self.minutes, self.clients = minutes, clients
        self.lasts = min(LONG, max(SHORT, minutes * 2))
        self.closed: Windows = []
        self.away: Windows = []
        self.done: list[str] = []
        self.stack = ExitStack()

    def __enter__(self) -> "Drill":
        self.bucket = self.stack.enter_context(object_stores.serving())
        super().__enter__()
        self.admin: Actor = self._person("administrator")
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.stack.close()
        subprocess.run(["umount", "--lazy", self.log], check=False)

    def _environment(self) -> None:
        super()._environment()
        self.log.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(self.log)]
        subprocess.run(command, check=True)
        (self.home / "pool").mkdir()
        behind = pooled(self.servers.database_url, self.home / "pool", CONNECTIONS)
        self.pooler: Pooler = self.stack.enter_context(behind)
        os.environ["DATABASE_URL"] = self.pooler.url
        os.environ["EXCHEQUER_RESULTS_URL"] = f"{self.bucket}/results"
        os.environ.pop("EXCHEQUER_KEY_SESSION", None)  # it stands in a file, and is rotated

    def _results(self) -> Path:
        held, store = super()._results(), fsspec.filesystem("s3")
        for path in store.ls(f"{self.bucket}/results", detail=False, refresh=True):
            if not path.endswith("/drafts"):  # these come and go
                store.get_file(path, str(held / path.rsplit("/", 1)[-1]))
        return held

    # --- what happens, one after another --------------------------------------------------------

    def acts(self) -> dict[str, Callable[[], None]]:
        return {
            "database frozen": lambda: self._frozen("postgres"),
            "broker flushed": self._lose_broker,
            "worker killed": lambda: self.running.signal("worker-1", signal.SIGKILL),
            "database crashed": self._crash,
            "worker drained": lambda: self._end("worker-1"),
            "log's lock held": self._hold_lock,
            "log's disk full": self._fill,
            "pooler killed": self._kill_pooler,
            "store of results frozen": self._freeze_store,
            "processes rolled": self._roll,
            "session key rotated": self._rotate,
            "maintenance": self._maintain,
            "relays killed": self._kill_relays,
            "broker frozen": lambda: self._frozen("valkey"),
        }

    def _lasting(self) -> None:
        """Let time pass; processes that ended are started again."""
        ends = time.monotonic() + self.lasts
        while time.monotonic() < ends:
            self._tend_processes()
            time.sleep(0.2)

    def _tend_processes(self) -> None:
        for part in self.running.dead():
            self.running.start(part)

    def _frozen(self, server: str) -> None:
        top = psutil.Process(self.servers.children[server].handle.pid)
        processes = [top, *top.children(recursive=True)]
        for each in processes:
            with suppress(psutil.NoSuchProcess):
                each.suspend()
        try:
            self._lasting()
        finally:
            for each in processes:
                with suppress(psutil.NoSuchProcess):
                    each.resume()

    def _end(self, name: str) -> None:
        """SIGTERM to the main process of a part alone, and its start once it has ended."""
        process = self.running.processes[name]
        with suppress(ProcessLookupError):
            os.kill(process.pid or 0, signal.SIGTERM)
        process.join(30)
        self._tend_processes()

    def _roll(self) -> None:
        for part in PARTS:
            self._end(part.name)

    def _hold_lock(self) -> None:
        with (self.log / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._lasting()

    def _rotate(self) -> None:
        """Another key of cookies, as docs/cluster.md says: tokens of programs go on."""
        for name in ("api-1", "api-2"):
            self.running.signal(name, signal.SIGKILL)
            self.running.processes[name].join(5)
        with self.owner.begin() as connection:
            connection.execute(text("DELETE FROM key_checks WHERE name = 'session'"))
        (self.home / "stack" / "keys" / "session").unlink()
        self._tend_processes()

    def _crash(self) -> None:
        """As at a failover: every connection ends, and a server comes back after its recovery."""
        self.servers.children["postgres"].stop(((signal.SIGQUIT, 20.0),))
        time.sleep(self.lasts / 2)
        self.servers.start("postgres")

    def _fill(self) -> None:
        ballast = self.log / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"\0" * 2**16)
        self._lasting()
        ballast.unlink()

    def _kill_pooler(self) -> None:
        self.pooler.kill()
        self._lasting()
        self.pooler.start()

    def _freeze_store(self) -> None:
        began = time.monotonic()
        with object_stores.frozen():
            self._lasting()
        self.away.append((began, time.monotonic()))

    def _maintain(self) -> None:
        began = time.monotonic()
        maintenance.switch(self.engine, self.admin, True, "a drill")
        self._lasting()
        maintenance.switch(self.engine, self.admin, False, "done")
        self.closed.append((began, time.monotonic()))

    def _kill_relays(self) -> None:
        for name in ("relay-1", "relay-2"):
            self.running.signal(name, signal.SIGKILL)

    # --- the whole of it ------------------------------------------------------------------------

    def drill(self) -> dict[str, Any]:
        """Run all acts in turn until the time is over, come to rest, count."""
        began = time.monotonic()
        ends = began + 60 * self.minutes
        watches = [
            Watch(
                f"http://127.0.0.1:{self.ports[number + 2]}",
                self.desk.urls[number],
                self._token(self._person("analyst")),
                self.desk.datasets[number],
            )
            for number in range(2)
        ]
        for watch in watches:
            threading.Thread(target=watch.run, daemon=True).start()
        self.desk.start()
        acts = self.acts()
        pause = max(1.0, (60 * self.minutes - 9 * self.lasts) / len(acts) / 2)
        while not self.done or time.monotonic() < ends:
            for name, act in acts.items():
                if time.monotonic() > ends and len(self.done) >= len(acts):
                    break
                self.say(f"{time.monotonic() - began:5.0f} s  {name}")
                act()
                self.done.append(name)
                quiet = time.monotonic() + pause
                while time.monotonic() < quiet:
                    self._tend()
                    time.sleep(0.2)
        for watch in watches:
            watch.stop.set()
        outcome = self.conclude(began)
        untrue = [each for watch in watches for each in watch.untrue(self.closed, self.away)]
        looks = [look for watch in watches for look in watch.looks]
        answered = [look.seconds for look in looks if look.ready]
        return {
            "seconds": round(time.monotonic() - began),
            "clients": self.clients,
            "acts": dict(Counter(self.done)),
            "entries": {
                name: outcome.findings.counts[name] for name in ("RESERVE", "COMMIT", "VOID")
            },
            "jobs": {
                state: outcome.findings.counts[state]
                for state in ("succeeded", "failed", "cancelled", "refused")
            },
            "attempts that read data": outcome.findings.counts["attempts that read data"],
            "broken": {name: cases[:8] for name, cases in outcome.findings.broken.items()},
            "looks at readiness": len(looks),
            "not ready": sum(look.ready != 200 for look in looks),
            "untrue": untrue,
            "slowest answer of a probe, s": round(max(answered, default=0.0), 2),
        }


def main() -> int:
    """Run, print the figures, and say by the exit code whether every promise held."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.drill", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(2**31) if chosen.seed is None else chosen.seed
    harness.ANALYSTS, harness.ALLOWANCE = chosen.clients, ALLOWANCE
    harness.LEASE_SECONDS, harness.QUIET_SECONDS = LEASE_SECONDS, QUIET_SECONDS
    with Drill(chosen.minutes, chosen.clients, seed) as drill:
        found = drill.drill()
    print(json.dumps(found, indent=1))
    sound = not any(found["broken"].values()) and not found["untrue"]
    if sound:
        shutil.rmtree(drill.home, ignore_errors=True)
    else:
        print(f"logs, witness and exports: {drill.folder}")
    return 0 if sound else 1


if __name__ == "__main__":
    raise SystemExit(main())
