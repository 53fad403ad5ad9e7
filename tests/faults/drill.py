"""The drill: what an operator meets, one after another, while people work; then all is counted.

    python -m tests.faults.drill --minutes 20 [--log folder]

Two web nodes, two relays and two workers, with PgBouncer before the database; results, uploads and
the log in S3, or the log in a folder. The database freezes, crashes and fails over to a standby,
the pooler and the store go away, the broker is flushed, workers are killed and drained, the log's
lock is held where it has one, the disks of log, database and workers and the store of results are
filled, every process is rolled, a key is rotated, maintenance is switched on and off.
Each second each web node says by `/readyz` whether it serves, and is asked to serve. At the end
nothing is lost, nothing was charged twice, and nothing that waits is charged. An act that raises is
told, and the books are judged all the same.
"""

import argparse
import fcntl
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import fsspec
import httpx2
import psutil
import psycopg
from sqlalchemy import text

from accountant.identities.actor import Actor
from accountant.transactions import maintenance
from tests import object_stores
from tests.faults import harness
from tests.faults.harness import Harness
from tests.faults.looks import PROBE_SECONDS, Watch, untrue
from tests.faults.parts import PARTS
from tests.poolers import Pooler, pooled
from web.stack import postgres
from web.stack.addresses import prepare
from web.stack.bundled_binaries import reach

#: Seconds that something is frozen, full, held or closed in a short drill, and at most.
SHORT, LONG = 8.0, 60.0
#: Of the disks that are filled: the log's, the workers' for what they write, the database's.
DISKS_MIB = {"ledger-log": 96, "work": 256, "stack": 2500}
CONNECTIONS = 20
LEASE_SECONDS, QUIET_SECONDS = 10.0, 300.0
ALLOWANCE = "1000"


class Drill(Harness):
    """One drill."""

    def __init__(self, minutes: float, clients: int, seed: int, log: str = "s3") -> None:
        super().__init__(seed)
        self.log_home = log
        self.uploaded: list[str] = []
        self.minutes, self.clients = minutes, clients
        self.lasts = min(LONG, max(SHORT, minutes * 2))
        self.closed: list[tuple[float, float]] = []
        self.away: list[tuple[float, float]] = []
        self.full: list[tuple[float, float]] = []
        self.done: list[str] = []
        self.raised: list[str] = []
        self.stack = ExitStack()

    def __enter__(self) -> "Drill":
        self.bucket = self.stack.enter_context(object_stores.serving())
        super().__enter__()
        self.admin: Actor = self._person("administrator")
        self.uploader = self._token(self._person("steward"))
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.stack.close()

    def _disks(self) -> None:
        """Make disks of a file each. The standby's server may pass to the first one's socket."""
        self.home.chmod(0o711)
        if self.log_home == "s3":
            self.log = f"{self.bucket}/ledger-log"
        for name, size in DISKS_MIB.items():
            disk, image = self.home / name, self.home / f"{name}.img"
            disk.mkdir()
            with image.open("wb") as file:
                file.truncate(size * 2**20)
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
            subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True)
            self.stack.callback(subprocess.run, ["umount", "--lazy", str(disk)], check=False)
            self.stack.callback(image.unlink)
            (disk / "lost+found").rmdir()
        (self.home / "stack").chmod(0o711)

    def _environment(self) -> None:
        super()._environment()
        os.environ["TMPDIR"] = str(self.home / "work")
        (self.home / "pool").mkdir()
        behind = pooled(self.servers.database_url, self.home / "pool", CONNECTIONS)
        self.pooler: Pooler = self.stack.enter_context(behind)
        os.environ["DATABASE_URL"] = self.pooler.url
        os.environ["EXCHEQUER_RESULTS_URL"] = f"{self.bucket}/results"
        os.environ["EXCHEQUER_UPLOADS_FOLDER"] = f"{self.bucket}/uploads"
        os.environ.pop("EXCHEQUER_KEY_SESSION", None)  # it stands in a file, and is rotated

    def _results(self) -> Path:
        held, store = super()._results(), fsspec.filesystem("s3")
        for path in store.ls(f"{self.bucket}/results", detail=False, refresh=True):
            if not path.endswith("/drafts"):  # these come and go
                store.get_file(path, str(held / path.rsplit("/", 1)[-1]))
        return held

    # --- what happens, one after another --------------------------------------------------------

    def acts(self) -> dict[str, Callable[[], None]]:
        every = {
            "database frozen": lambda: self._frozen("postgres"),
            "broker flushed": self._lose_broker,
            "worker killed": lambda: self.running.signal("worker-1", signal.SIGKILL),
            "database crashed": self._crash,
            "worker drained": lambda: self._end("worker-1"),
            "log's lock held": self._hold_lock,
            "log's disk full": lambda: self._fill("ledger-log"),
            "database failed over": self._fail_over,
            "workers' disk full": lambda: self._fill("work"),
            "database's disk full": lambda: self._fill("stack"),
            "pooler killed": self._kill_pooler,
            "store frozen": self._freeze_store,
            "store of results full": self._fill_store,
            "processes rolled": self._roll,
            "session key rotated": self._rotate,
            "maintenance": self._maintain,
            "relays killed": self._kill_relays,
            "broker frozen": lambda: self._frozen("valkey"),
        }
        of_folders = {"log's lock held", "log's disk full"} if self.log_home == "s3" else set()
        return {name: act for name, act in every.items() if name not in of_folders}

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
        with (Path(self.log) / "lock").open("ab") as lock:
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
        time.sleep(self.lasts / 2)  # `_put_right` starts it

    def _fail_over(self) -> None:
        """A standby that had confirmed each commit takes over; the first server is lost."""
        old, home = self.home / "stack" / "postgres", self.home / "stack" / "standby"
        shutil.rmtree(home, ignore_errors=True)
        prepare(home)
        binaries = reach(None).binaries
        command = [str(binaries / "pg_basebackup"), "-h", str(old), "-U", "postgres", "-c", "fast"]
        subprocess.run([*command, "-R", "-D", str(home / "postgres")], check=True, timeout=120)
        owner = old.stat()
        for path in (home / "postgres", *(home / "postgres").rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        (home / "postgres" / ".s.PGSQL.5432.lock").unlink()  # the first one's
        home.chmod(0o711)
        standby = postgres.start(home, signal.SIGINT)
        streams = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        in_step = f"{streams} AND sync_state = 'sync'"
        with psycopg.connect(host=str(old), user="postgres", autocommit=True) as first:
            self._until(lambda: first.execute(streams).fetchone() == (1,), 60, "no standby")
            first.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            first.execute("SELECT pg_reload_conf()")
            self._until(lambda: first.execute(in_step).fetchone() == (1,), 60, "no step")
        self._lasting()
        self.servers.children["postgres"].stop(((signal.SIGKILL, 20.0),))
        with psycopg.connect(host=str(home / "postgres"), user="postgres") as second:
            assert second.execute("SELECT pg_promote(true, 60)").fetchone() == (True,)
        old.rename(home / "lost")
        (home / "postgres").rename(old)  # it knows its folder as the one in which it runs
        self.servers.children["postgres"] = standby

    def _fill(self, disk: str) -> None:
        ballast, began = self.home / disk / "ballast", time.monotonic()
        try:
            with ballast.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(b"\0" * 2**16)
            self._lasting()
        finally:
            ballast.unlink()
            self.full.append((began, time.monotonic()))

    def _kill_pooler(self) -> None:
        self.pooler.kill()
        try:
            self._lasting()
        finally:
            self.pooler.start()

    def _freeze_store(self) -> None:
        began = time.monotonic()
        try:
            with object_stores.frozen():
                self._lasting()
        finally:
            self.away.append((began, time.monotonic()))

    def _fill_store(self) -> None:
        with object_stores.full(f"{self.bucket}/results"):
            self._lasting()

    def _upload(self) -> None:
        """Send a file to a web node, which may say no; what it keeps stays."""
        number = len(self.done)
        content = f"text\nfile {number} of {self.seed}\n".encode()
        headers = {"Authorization": f"Bearer {self.uploader}"}
        url = f"{self.desk.urls[number % 2]}/api/v1/uploads"
        with suppress(httpx2.HTTPError):
            if httpx2.post(url, content=content, headers=headers, timeout=60).status_code == 201:
                self.uploaded.append(hashlib.sha256(content).hexdigest())

    def _lost_uploads(self) -> list[str]:
        store = fsspec.filesystem("s3", use_listings_cache=False)
        held = {
            path.rsplit("/", 1)[-1] for path in store.ls(f"{self.bucket}/uploads", detail=False)
        }
        return [sha256 for sha256 in self.uploaded if f"{sha256}.csv" not in held]

    def _maintain(self) -> None:
        began = time.monotonic()
        try:
            maintenance.switch(self.engine, self.admin, True, "a drill")
            self._lasting()
        finally:
            maintenance.switch(self.engine, self.admin, False, "done")
            self.closed.append((began, time.monotonic()))

    def _kill_relays(self) -> None:
        for name in ("relay-1", "relay-2"):
            self.running.signal(name, signal.SIGKILL)

    # --- the whole of it ------------------------------------------------------------------------

    def _attempt(self, name: str, step: Callable[[], object]) -> None:
        """Take a step; what it raises is told at the end."""
        try:
            step()
        except Exception as error:
            self.raised.append(f"{name}: {type(error).__name__}: {error}"[:500])
            self.say(f"       {self.raised[-1]}")

    def _put_right(self) -> None:
        """Start servers and processes that ended."""
        for name, child in self.servers.children.items():
            if not child.alive():
                self.servers.start(name)
        self._tend()

    def _rest(self) -> None:
        self._attempt("servers at the end", self._put_right)
        self._attempt("coming to rest", super()._rest)

    def drill(self) -> dict[str, Any]:
        """Run all acts in turn until the time is over, come to rest, count."""
        began = time.monotonic()
        ends = began + 60 * self.minutes
        watches = [
            Watch.of(
                f"http://127.0.0.1:{self.ports[number + 2]}",
                self.desk.urls[number],
                self._token(self._person("analyst")),
                self.desk.datasets[number],
                self.folder / f"looks-{number}",
            )
            for number in range(2)
        ]
        for watch in watches:
            self.stack.callback(watch.process.kill)
        self.desk.start()
        acts = self.acts()
        pause = max(1.0, (60 * self.minutes - 12 * self.lasts) / len(acts) / 2)
        while not self.done or time.monotonic() < ends:
            for name, act in acts.items():
                if time.monotonic() > ends and len(self.done) >= len(acts):
                    break
                self.say(f"{time.monotonic() - began:5.0f} s  {name}")
                self._attempt(name, act)
                self.done.append(name)
                self._attempt(f"after {name}", self._put_right)
                self._attempt("an upload", self._upload)
                quiet = time.monotonic() + pause
                while time.monotonic() < quiet:
                    self._attempt(f"after {name}", self._tend)
                    time.sleep(0.2)
        seen = [watch.looks() for watch in watches]
        outcome = self.conclude(began)
        looks = [look for each in seen for look in each]
        windows = self.closed, self.away, self.full
        return {
            "seconds": round(time.monotonic() - began),
            "clients": self.clients,
            "log": self.log_home,
            "uploads": len(self.uploaded),
            "lost uploads": self._lost_uploads(),
            "acts": dict(Counter(self.done)),
            "acts that raised": self.raised,
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
            "untrue": [told for each in seen for told in untrue(each, *windows)],
            "probes": {
                "/readyz": _probes([(look.ready, look.seconds) for look in looks]),
                "/livez": _probes([(look.live, look.live_seconds) for look in looks]),
            },
        }


def _probes(answers: list[tuple[int, float]]) -> dict[str, float]:
    """Return how many answers came, how many of them late, and the seconds of the slowest."""
    seconds = [seconds for status, seconds in answers if status]
    late = sum(each > PROBE_SECONDS for each in seconds)
    slowest = round(max(seconds, default=0.0), 2)
    return {"answered": len(seconds), "late": late, "slowest, s": slowest}


def main() -> int:
    """Run, print the figures, and say by the exit code whether every promise held."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.drill", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--log", choices=("s3", "folder"), default="s3")
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(2**31) if chosen.seed is None else chosen.seed
    harness.ANALYSTS, harness.ALLOWANCE = chosen.clients, ALLOWANCE
    harness.LEASE_SECONDS, harness.QUIET_SECONDS = LEASE_SECONDS, QUIET_SECONDS
    with Drill(chosen.minutes, chosen.clients, seed, chosen.log) as drill:
        found = drill.drill()
    print(json.dumps(found, indent=1))
    lost, raised = found["lost uploads"], found["acts that raised"]
    wrong = (*found["broken"].values(), lost, found["untrue"], raised)
    sound = not any(wrong)
    if sound:
        shutil.rmtree(drill.home, ignore_errors=True)
    else:
        print(f"logs, witness and exports: {drill.folder}")
    return 0 if sound else 1


if __name__ == "__main__":
    raise SystemExit(main())
