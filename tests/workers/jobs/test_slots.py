"""An analyst with a stopwatch learns nothing of a private job's duration where its results have
slots.

Jobs run in this process with a runner whose time is that of the data, as every mechanism's is a
little.
"""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import UUID

import pytest

from accountant import settings as settings_module
from accountant.core.ledger.policy import Policy, weakened
from accountant.queries import datasets, jobs
from accountant.settings import Settings
from accountant.transactions import leases, settlement, submission
from accountant.transactions.job_requests import JobRequest
from tests.support import Bench
from workers.interface import Text
from workers.jobs import tasks

pytestmark = pytest.mark.slow

SECONDS_A_RECORD = 0.001
FEW, MANY = 100, 200
RUNS = 40  # of each


class SlowRunner:
    """Takes a millisecond a record; `fails` afterwards where that is asked."""

    fails = False

    def total(self, parameters, terms) -> int:
        return 10

    def run(self, parameters, terms, records, model, meter, progress, public):
        for _ in range(10):
            time.sleep(SECONDS_A_RECORD * len(records.records) / 10)
            progress.advance()
        if self.fails:
            raise RuntimeError("the data did it")
        yield Text("done")


@pytest.fixture
def runner(monkeypatch) -> SlowRunner:
    made = SlowRunner()
    monkeypatch.setattr("workers.mechanisms.runner", lambda _: made)
    return made


@pytest.fixture
def configured(tmp_path, monkeypatch) -> Settings:
    made = Settings(home=tmp_path, data_roots=str(tmp_path), lease_seconds=30)
    monkeypatch.setattr(settings_module, "load", lambda: made)
    return made


def bench(engine, folder, records: int, slot: int | None) -> Bench:
    data = folder / f"{records}.csv"
    data.write_text("text\n" + "".join(f"{records} {number}\n" for number in range(records)))
    made = Bench(engine, uri=str(data), policy=policy(slot))
    made.allow()
    return made


def policy(slot: int | None) -> dict:
    return {"auto_approve_epsilon": "10", "results_every_seconds": slot}


def queued(desk: Bench) -> UUID:
    request = JobRequest(desk.dataset, "noisy-count", None, {"epsilon": 0.01}, "test")
    return submission.submit(desk.engine, request, desk.analyst)


def taken(desk: Bench, job_id: UUID, configured: Settings):
    units = configured.secret("units")
    return leases.claim(desk.engine, job_id, 1, "worker", configured.lease_seconds, 0, units)


def watched(desk: Bench, configured: Settings) -> float:
    """The seconds between a job's start and its end, by the clock of who watches."""
    claim = taken(desk, queued(desk), configured)
    began = time.monotonic()
    tasks.run(desk.engine, claim, configured)
    return time.monotonic() - began


def area(few: list[float], many: list[float]) -> float:
    """The area under the curve of who tells `many` from `few` by the longer time."""
    wins = sum((y > x) + (y == x) / 2 for x in few for y in many)
    return wins / (len(few) * len(many))


@pytest.mark.usefixtures("runner")
def test_a_stopwatch_does_not_tell_100_records_from_200(engine, tmp_path, configured):
    desks = {size: bench(engine, tmp_path, size, 1) for size in (FEW, MANY)}
    order = [FEW, MANY] * RUNS
    random.shuffle(order)
    with ThreadPoolExecutor(8) as pool:
        seconds = list(pool.map(lambda size: watched(desks[size], configured), order))
    times = {size: [t for s, t in zip(order, seconds, strict=True) if s == size] for size in desks}
    # Without any difference the area's standard deviation is √((n + m + 1) / 12nm).
    noise = ((2 * RUNS + 1) / (12 * RUNS**2)) ** 0.5
    assert abs(area(times[FEW], times[MANY]) - 0.5) < 5.5 * noise  # 0.36; without slots it is 0.5


@pytest.mark.usefixtures("runner")
def test_without_slots_a_stopwatch_tells(engine, tmp_path, configured):
    """A second apart, so that a busy processor does not turn them round."""
    few, many = (
        [watched(bench(engine, tmp_path, size, None), configured) for _ in range(3)]
        for size in (FEW, 1_100)
    )
    assert area(few, many) == 1


def seen(desk: Bench, job_id: UUID) -> tuple:
    job = jobs.job(desk.engine, job_id, desk.analyst)
    return job["state"], job["progress"]["done"], [each["kind"] for each in job["entries"]]


@pytest.mark.parametrize("ending", ["succeeded", "failed", "cancelled", "cancelled when done"])
def test_nothing_is_seen_of_a_job_before_its_slot_however_it_ends(
    engine, tmp_path, configured, runner, ending
):
    desk = bench(engine, tmp_path, 50, 3)
    runner.fails = ending == "failed"
    job_id = queued(desk)
    claim = taken(desk, job_id, configured)
    began = time.monotonic()
    running = threading.Thread(target=tasks.run, args=(desk.engine, claim, configured))
    running.start()
    if ending.startswith("cancelled"):
        time.sleep(0.3 if ending.endswith("done") else 0)
        settlement.cancel(desk.engine, job_id, desk.analyst)
    while time.monotonic() - began < 2.6:  # a heartbeat after two seconds would tell progress
        found = seen(desk, job_id)
        assert found == ("running", 0, ["RESERVE"]) or time.monotonic() - began > 2.9
        time.sleep(0.05)
    running.join()
    assert 2.9 < time.monotonic() - began < 5.9, "the first slot, not the second"
    assert seen(desk, job_id)[0] == ending.split()[0]
    assert seen(desk, job_id)[2] == ["RESERVE", "COMMIT"]


def test_a_worker_that_is_to_stop_does_not_tell_that_a_job_was_done(
    engine, tmp_path, configured, runner, monkeypatch
):
    """It hands the job back as it would have before, and the next attempt ends at a slot."""
    desk = bench(engine, tmp_path, 50, 60)
    job_id = queued(desk)
    draining = SimpleNamespace(wanted=lambda: time.monotonic() > stop)
    stop = time.monotonic() + 0.4
    monkeypatch.setattr("workers.jobs.heartbeat.draining", draining)
    tasks.run(desk.engine, taken(desk, job_id, configured), configured)
    assert seen(desk, job_id)[0] == "queued"


def test_a_finer_grid_weakens_a_policy():
    coarse, fine, none = (Policy.model_validate(policy(slot)) for slot in (60, 10, None))
    assert weakened(coarse, fine) == weakened(fine, none) == ("results_every_seconds",)
    assert weakened(none, fine) == weakened(fine, coarse) == ()


def test_a_dataset_registered_without_a_word_gets_the_service_s_grid(engine, monkeypatch):
    made = Settings(results_every_seconds=90)
    monkeypatch.setattr(settings_module, "load", lambda: made)
    for given, found in (({}, 90), ({"results_every_seconds": None}, None)):
        desk = Bench(engine, policy={"auto_approve_epsilon": "1", **given})
        stated = datasets.dataset(engine, desk.dataset, desk.steward).document()["policy"]
        assert stated["results_every_seconds"] == found
