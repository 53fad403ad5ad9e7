"""A synchronous standby takes over while requests come in; a backup and its log are a database
again.

The commands are those of docs/operations.md.
"""

import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from sqlalchemy import text

from accountant.core.ledger.export_formats import verify_lines
from accountant.database import UNAVAILABLE, connect, migrate, problem
from accountant.queries import entries, integrity
from accountant.transactions import leases, settlement, submission
from tests.clusters import new_cluster
from tests.support import Bench

pytestmark = pytest.mark.slow

APPLICATION = "exchequer_application"


def migrated(cluster) -> None:
    cluster.ask("CREATE ROLE exchequer LOGIN")
    cluster.ask("CREATE DATABASE exchequer OWNER exchequer")
    cluster.ask(f"CREATE ROLE {APPLICATION} LOGIN")
    migrate(cluster.url("exchequer", "exchequer"), cluster.url(APPLICATION, "exchequer"))


def either(*clusters) -> str:
    """The address of whichever of them takes writes."""
    hosts = "&".join(f"host=127.0.0.1:{each.port}" for each in clusters)
    return f"postgresql+psycopg://{APPLICATION}@/exchequer?{hosts}&target_session_attrs=read-write"


def open_to_all(engine) -> Bench:
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    bench.allow("1000")
    bench.warm()
    return bench


def jobs_there(engine) -> set[uuid.UUID]:
    with engine.connect() as connection:
        return set(connection.execute(text("SELECT id FROM jobs")).scalars())


def sound(bench) -> None:
    assert integrity.check(bench.engine, bench.dataset) == []
    assert (
        verify_lines(entries.export(bench.engine, bench.dataset, bench.auditor, "jsonl")).entries
        > 0
    )


class Traffic:
    """Analysts who ask for jobs, each under a key, and ask again until they have an answer."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.stop = bench, threading.Event()
        self.answered: dict[str, uuid.UUID] = {}
        self.met_an_outage = False

    def run(self, _: int) -> None:
        while not self.stop.is_set():
            key = uuid.uuid4().hex
            while key not in self.answered and not self.stop.is_set():
                try:
                    request = self.bench.request(1)
                    made = submission.submit(self.bench.engine, request, self.bench.analyst, key)
                    self.answered[key] = made
                except UNAVAILABLE:
                    self.met_an_outage = True
                    time.sleep(0.05)

    def until(self, answers: int) -> None:
        self.wait(lambda: len(self.answered) >= answers, "nobody answers")

    def wait(self, seen: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + 300
        while not seen():
            assert time.monotonic() < deadline, otherwise
            time.sleep(0.01)


def test_a_primary_that_dies_under_traffic_loses_nothing_that_was_answered(tmp_path):
    with ExitStack() as stack:
        primary = stack.enter_context(new_cluster(tmp_path))
        primary.start()
        migrated(primary)
        standby = primary.backup(tmp_path / "standby", "-R", "-X", "stream")
        standby.start(hot_standby="on")
        stack.callback(standby.kill)
        primary.ask("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        primary.ask("SELECT pg_reload_conf()")
        primary.await_("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", 1)
        engine = connect(either(primary, standby))
        stack.callback(engine.dispose)
        bench = open_to_all(engine)
        read = connect(standby.url(APPLICATION, "exchequer"))
        assert "standby" in (problem(read) or "")
        read.dispose()

        traffic = Traffic(bench)
        job_id = bench.submit(1)
        claim = leases.claim(engine, job_id, 1, "worker", 600)
        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(traffic.run, number) for number in range(4)]
            traffic.until(40)
            leases.begin_reading(engine, claim)
            primary.kill()
            traffic.wait(lambda: traffic.met_an_outage, "somebody was answered without a primary")
            standby.ask("SELECT pg_promote()")
            traffic.until(len(traffic.answered) + 40)
            traffic.stop.set()
            for each in asking:
                each.result()

        answers = list(traffic.answered.values())
        assert len(set(answers)) == len(answers)
        assert set(answers) <= jobs_there(engine)
        again = {key: bench.submit(1, key) for key in list(traffic.answered)[:5]}
        # the same job, and not another
        assert again == {key: traffic.answered[key] for key in again}
        # What a worker had begun stays begun: it can end, and can't be void.
        settlement.fail(engine, claim, "failed", "lost", "worker")
        assert "COMMIT" in {
            each["kind"]
            for each in entries.entries(engine, bench.dataset, bench.auditor, limit=500)
        }
        sound(bench)


def test_a_backup_and_the_archived_log_are_a_database_again(tmp_path):
    # in its folder, which it can reach
    kept = "mkdir -p archive && test ! -f archive/%f && cp %p archive/%f"
    with ExitStack() as stack:
        primary = stack.enter_context(new_cluster(tmp_path))
        primary.start(archive_mode="on", archive_command=kept)
        migrated(primary)
        engine = connect(primary.url(APPLICATION, "exchequer"))
        bench = open_to_all(engine)
        bench.submit(1)
        restored = primary.backup(tmp_path / "restored", "-X", "none", "--no-slot")
        after = bench.submit(2)  # in the archive alone
        later = bench.submit(3)
        last = primary.ask("SELECT pg_walfile_name(pg_current_wal_lsn())")
        primary.ask("SELECT pg_switch_wal()")
        primary.await_(f"SELECT last_archived_wal >= '{last}' FROM pg_stat_archiver", True)
        engine.dispose()
        primary.kill()

        copied = ["cp", "-a", f"{primary.folder}/archive/.", f"{restored.folder}/archive"]
        subprocess.run(copied, check=True)
        (restored.folder / "recovery.signal").touch()
        restored.start(restore_command="cp archive/%f %p", recovery_target_action="promote")
        stack.callback(restored.kill)
        restored.await_("SELECT pg_is_in_recovery()", False)
        bench.engine = connect(restored.url(APPLICATION, "exchequer"))
        stack.callback(bench.engine.dispose)
        assert {after, later} <= jobs_there(bench.engine)
        assert problem(bench.engine) is None
        sound(bench)
