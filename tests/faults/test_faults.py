"""Faults in the real service do no harm, and every crash point is where a run passes."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from accountant import faults, settings
from accountant.database import connect, logging_to
from accountant.queries import jobs
from accountant.transactions import leases, messages, settlement, submission
from accountant.transactions.job_requests import JobRequest
from tests.faults import checker, costs
from tests.faults.__main__ import upper_bound
from tests.faults.traffic import Answer
from tests.object_stores import LACKS
from tests.poolers import PGBOUNCER
from tests.support import Bench, put, yes
from tests.test_architecture import ROOT
from workers.jobs import relay, tasks

LEASE = 1.2


def run(*options: str) -> dict:
    """Return the findings of a run of the harness, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", *options], cwd=ROOT, capture_output=True, text=True
    )
    print(done.stdout, done.stderr)
    return {"code": done.returncode, "text": done.stdout}


@pytest.mark.slow
@pytest.mark.parametrize("faults", [6, pytest.param(30, marks=pytest.mark.release)])
def test_faults_do_no_harm(tmp_path, faults):
    report = tmp_path / "report.json"
    found = run("--faults", str(faults), "--report", str(report))
    assert found["code"] == 0, found["text"]
    assert not any(json.loads(report.read_text())["broken"].values())
    assert "all zero" in found["text"]


@pytest.mark.release
@pytest.mark.timeout(1200)
@pytest.mark.skipif(
    PGBOUNCER is None or bool(LACKS) or os.geteuid() != 0, reason="it needs PgBouncer, S3 and root"
)
def test_a_drill_loses_nothing_and_charges_nothing_twice():
    command = [sys.executable, "-m", "tests.faults.drill", "--minutes", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.release
@pytest.mark.timeout(1200)
def test_an_upgrade_under_load_loses_nothing_and_charges_nothing_twice():
    command = [sys.executable, "-m", "tests.faults.upgrade"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_every_point_is_passed_by_jobs_that_succeed_fail_and_are_lost(
    engine, tmp_path, monkeypatch
):
    """In one process and in order, through the task and the relay themselves."""
    passed = []

    def hook(point: str, facts: dict) -> None:
        passed.append(point)
        if point == "worker.step":
            time.sleep(LEASE / 2)  # longer than the heartbeat waits
        if point == "worker.staged" and failing:
            raise OSError("the disk is full")

    monkeypatch.setenv("EXCHEQUER_LEDGER_LOG", str(tmp_path / "log"))
    configured, failing = serve(engine, tmp_path, monkeypatch), []
    engine = logging_to(
        connect(engine.url.render_as_string(hide_password=False)), configured.ledger_log
    )
    bench = dataset(engine, tmp_path)
    monkeypatch.setattr(faults, "hook", hook)
    first, second, third = (ask(bench, epsilon) for epsilon in (0.1, 0.1, 0.5))
    yes(engine, third, bench.steward, "test")
    settlement.cancel(engine, third, bench.analyst)
    messages.deliver(engine, lambda *message: None)
    tasks.generate(str(first), 1)
    leases.claim(engine, second, 1, "lost", 0.01)
    time.sleep(0.05)
    relay.sweep(engine, configured, 0.0)
    messages.deliver(engine, lambda *message: None)  # to a broker that forgets it
    relay.sweep(engine, configured, 0.0)
    failing.append(True)
    tasks.generate(str(second), 2)
    states = [jobs.job(engine, job, bench.analyst)["state"] for job in (first, second, third)]
    assert states == ["succeeded", "failed", "cancelled"]
    assert set(passed) == set(faults.POINTS)


def serve(engine, tmp_path, monkeypatch) -> settings.Settings:
    """Settings as a worker on this database has them."""
    monkeypatch.setenv("DATABASE_URL", engine.url.render_as_string(hide_password=False))
    monkeypatch.setenv("EXCHEQUER_HOME", str(tmp_path))
    monkeypatch.setenv("EXCHEQUER_DATA_ROOTS", str(tmp_path))
    monkeypatch.setenv("EXCHEQUER_LEASE_SECONDS", str(LEASE))
    configured = settings.Settings()
    for module in (settings, tasks.settings):
        monkeypatch.setattr(module, "load", lambda: configured)
    return configured


def dataset(engine, tmp_path) -> Bench:
    (tmp_path / "data.csv").write_text("text\nhello\n")
    bench = Bench(engine, uri=str(tmp_path / "data.csv"), policy={"auto_approve_epsilon": "0.3"})
    bench.allow()
    return bench


def ask(bench: Bench, epsilon: float):
    request = JobRequest(bench.dataset, "noisy-count", None, {"epsilon": epsilon}, "test")
    return submission.submit(bench.engine, request, bench.analyst)


def test_every_point_of_the_registry_stands_in_the_code_and_no_other():
    sources = [
        path.read_text()
        for folder in ("accountant", "workers", "web")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "faults.py"
    ]
    named = [name for source in sources for name in re.findall(r'\breached\(\s*"([^"]+)"', source)]
    for point in ("log.written", "log.synced"):  # each home of the log has both
        named.remove(point)
    assert sorted(named) == sorted(faults.POINTS)


def test_nothing_but_a_hook_makes_a_point_do_anything(monkeypatch):
    assert faults.hook is None
    for name in faults.POINTS:
        faults.reached(name)
    source = (ROOT / "accountant" / "faults.py").read_text()
    assert "environ" not in source
    seen = []
    monkeypatch.setattr(faults, "hook", lambda point, facts: seen.append((point, facts)))
    faults.reached("worker.step", job=1)
    assert seen == [("worker.step", {"job": 1})]


def test_the_bound_is_the_rule_of_three():
    assert upper_bound(200) == pytest.approx(0.01487, abs=1e-5)
    assert upper_bound(5_000) == pytest.approx(3 / 5_000, rel=0.01)


def released(folder, **changed) -> tuple[dict, list[dict], Path]:
    """(entries by job, rows of artifacts, results): a job that released one, and one that reads
    it.
    """
    sha256 = put(folder, b"a sketch")[1]
    facts = {"charged": sha256, "stored": sha256, "read": sha256} | changed
    source = {"job": "made", "artifacts": {"sketches": facts["read"]}}
    listed = [{"name": "sketches", "kind": "sketches", "sha256": facts["charged"]}]
    entries = {
        "made": [{"kind": "COMMIT", "body": {"artifacts": listed}}],
        "drawn": [{"kind": "RESERVE", "body": {"source": source}}],
    }
    return entries, [{"job_id": "made", "name": "sketches", "sha256": facts["stored"]}], folder


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, []),
        ({"read": "0" * 64}, ["drawn: reads what no COMMIT released"]),
        (
            {"charged": "0" * 64, "read": "0" * 64},
            ["made: its artifacts are not those that were charged"],
        ),
        (
            dict.fromkeys(("charged", "stored", "read"), "0" * 64),
            ["made: the artifact sketches is not the one that is named"],
        ),
    ],
)
def test_the_checker_sees_other_artifacts_than_were_charged(tmp_path, changed, told):
    found = checker.Findings()
    checker.check_artifacts(found, *released(tmp_path, **changed))
    assert found.broken["double releases"] == told


def published(folder, *labels: str, **changed) -> tuple:
    """What `check_released` is given of one job of two parts, which published counts of these
    labels.
    """
    facts = {"charged": 2} | changed
    lines = "".join(json.dumps({"label": label}) + "\n" for label in labels)
    sha256 = put(folder, lines.encode())[1]
    row = {"state": "succeeded", "mechanism": "noisy-count", "output_sha256": sha256}
    entries = [
        {"kind": "RESERVE", "body": {"event": {"type": "gaussian"}}},
        {"kind": "COMMIT", "body": {"attempt": facts["charged"], "output_sha256": sha256}},
    ]
    read = [("0", "1", "one"), ("1", "1", "lost"), ("1", "2", "two")]
    witness = [
        {"job": "job", "part": part, "attempt": at, "token": token} for part, at, token in read
    ]
    return {"job": row}, {"job": entries}, witness, folder


@pytest.mark.parametrize(
    ("labels", "changed", "told"),
    [
        ("abc", {}, []),
        ("abbc", {}, ["job: released counts of ['a', 'b', 'b', 'c']"]),
        ("ac", {}, ["job: released counts of ['a', 'c']"]),
        ("abc", {"charged": 1}, ["job: attempt 2 read last, charged for 1"]),
    ],
)
def test_the_checker_sees_whether_each_part_was_released_once(tmp_path, labels, changed, told):
    found = checker.Findings()
    checker.check_released(found, *published(tmp_path, *labels, **changed))
    assert found.broken["double releases"] == told


ADMITTED = {"key": "k", "body": "", "dataset": "d", "status": 201, "job": "made"}


@pytest.mark.parametrize(
    ("state", "at", "broken"),
    [("refused", 5.0, 0), ("awaiting_approval", 5.0, 0), ("queued", 5.0, 1), ("refused", 9.0, 1)],
)
def test_a_restore_excuses_only_what_it_may_forget(state, at, broken):
    found = checker.Findings()
    checker.check_lost(found, {}, {}, [Answer(**ADMITTED, state=state, at=at)], [(4.0, 6.0)])
    assert len(found.broken["lost jobs"]) == broken


def test_limits_have_digits_where_an_allowance_is_large():
    """By mpmath with 40 digits: the mu at which the profile of mu-GDP at 24 is 3e-7."""
    assert costs.largest_mu(24.0, 3e-7) ** 2 == pytest.approx(13.10942456511492, rel=1e-9)


@pytest.mark.parametrize(
    ("event", "broken"), [(checker.FREE, 0), ({"type": "laplace", "noise_multiplier": 10.0}, 1)]
)
def test_what_costs_nothing_is_admitted_while_a_correction_has_overdrawn_an_account(event, broken):
    def job(event):
        return {"event": event, "costs": {"basic": {"main": "0", "delta": "0"}}}

    basic = {"kind": "basic", "share": "1/10", "order": None}
    half, most = (job({"type": "laplace", "noise_multiplier": noise}) for noise in (2.0, 1.25))
    acts = [
        ("ALLOW", None, {"epsilon": "1", "delta": "0.000001", "filters": [basic]}),
        *(("RESERVE", "a", half), ("VOID", "a", {}), ("RESERVE", "b", most), ("COMMIT", "b", most)),
        *(("REVERSAL", "a", half), ("RESERVE", "c", job(event))),
    ]
    chain = [
        {"kind": kind, "seq": n, "document": json.dumps({"body": body, "job": job_id})}
        for n, (kind, job_id, body) in enumerate(acts, 1)
    ]
    found = checker.Findings()
    checker.check_limits(found, "data", chain)
    assert len(found.broken["overspends"]) == broken


def test_several_releases_cost_their_sum_unless_a_delta_is_charged():
    filters = [{"kind": "basic", "order": None}, {"kind": "gaussian", "order": None}]
    one = {"type": "laplace", "noise_multiplier": 10.0}
    both = {"type": "composed", "events": [one, one]}
    alone, together = (costs.cost_of(each, filters, 0) for each in (one, both))
    assert together == {kind: pytest.approx(2 * cost) for kind, cost in alone.items()}
    assert costs.cost_of(both, filters, 1)["basic"] == alone["basic"]  # a bound from below
    assert set(costs.cost_of({"type": "composed", "events": []}, filters, 0).values()) == {0}
