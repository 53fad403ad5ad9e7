"""Survival of real workers: shared jobs, processes that die, limits, a broker that says nothing.

In one process test_attempts, test_parts and test_resuming prove what a lost worker costs.
"""

import json
import os
import signal
import socket
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select

from accountant import settings as settings_module
from accountant import tables
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import entries, integrity
from accountant.settings import Settings
from accountant.transactions import allowances, job_keys, kept_draws, settlement, submission
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.rows import Claim
from tests.workers.conftest import published, wait_for
from tests.workers.jobs.test_jobs import LABELS, MANY, Desk
from web.local import redis_url

pytestmark = pytest.mark.release

FAN_OUT = 3


@pytest.fixture(scope="module")
def variables() -> dict[str, str]:
    return {"EXCHEQUER_FAN_OUT": str(FAN_OUT), "EXCHEQUER_WATCHDOG_SECONDS": "10"}


@pytest.fixture(autouse=True)
def fan_out(monkeypatch):
    """This process reserves jobs too."""
    monkeypatch.setattr(settings_module, "load", lambda: Settings(fan_out=FAN_OUT))


@pytest.fixture(scope="module")
def desk(service, engine, tmp_path_factory) -> Desk:
    return Desk(engine, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def dataset(desk) -> str:
    return opened(desk)


def opened(desk: Desk, **policy) -> str:
    name = desk.dataset(MANY, policy={"auto_approve_epsilon": "10", **policy})
    allowances.allow(desk.engine, name, Allowance("10", "0.000001", "test"), desk.steward)
    return name


def reads(desk: Desk, job_id) -> None:
    wait_for(lambda: desk.job(job_id)["progress"]["done"], lambda done: done > 0)


def texts(desk: Desk, job: dict) -> list[dict]:
    path = published(desk.engine, job["id"], desk.analyst)
    return [json.loads(line) for line in path.read_text().splitlines()]


def count(desk: Desk, dataset: str) -> uuid.UUID:
    """A job for which a worker need not load torch."""
    request = JobRequest(dataset, "noisy-count", None, {"epsilon": 0.1}, "test")
    return submission.submit(desk.engine, request, desk.analyst)


def left(service, job_id) -> list[str]:
    drafts = Path(service.environment["EXCHEQUER_HOME"], "results", "drafts")
    return [path.name for path in drafts.glob(f"{job_id}.*")]


def sound(desk: Desk, dataset: str) -> None:
    assert integrity.check(desk.engine, dataset) == []
    verify_lines(entries.export(desk.engine, dataset, desk.steward, "jsonl"))


def test_a_shared_job_goes_on_when_one_of_its_workers_is_killed(desk, dataset, service):
    """It is published in the order of its labels, whoever wrote them."""
    service.start("generate2")
    job_id = desk.submit(dataset, tokens_per_batch=40)
    reads(desk, job_id)
    service.kill("generate2")
    job = desk.ended(job_id)
    assert job["state"] == "succeeded", job
    assert [each["kind"] for each in job["entries"]] == ["RESERVE", "COMMIT"]
    labels = [each["label"] for each in texts(desk, job)]
    declared = desk.facts(dataset)["labels"]
    assert labels == sorted(labels, key=declared.index)
    assert len(set(labels)) > 1
    wait_for(lambda: left(service, job_id), lambda drafts: not drafts)
    sound(desk, dataset)


def test_a_process_that_dies_while_it_reads_has_failed_and_is_charged(desk, dataset, service):
    job_id = desk.submit(dataset, tokens_per_batch=60)
    reads(desk, job_id)
    (child,) = psutil.Process(service.running["generate"].pid).children()
    os.kill(child.pid, signal.SIGKILL)
    job = desk.ended(job_id)
    assert (job["state"], job["failure"]) == ("failed", settlement.UNSAID)
    assert job["attempt"] == 1
    assert job["entries"][-1]["kind"] == "COMMIT"
    assert job["entries"][-1]["costs"] == job["entries"][0]["costs"]
    wait_for(lambda: left(service, job_id), lambda names: not names)
    sound(desk, dataset)
    assert desk.ended(desk.submit(dataset, tokens_per_batch=2))["state"] == "succeeded", (
        "the worker goes on"
    )


# --- attempts that go on ------------------------------------------------------------------------

GOING_ON = ("queued", "running", "settling")


def kept(desk: Desk, service, job_id) -> dict[str, list] | None:
    """What is kept of the job, opened by its key: the draws of each batch in order. None once it
    has ended.

    The parts are read one after the other, and the transaction that ends the job deletes the draws
    of all of them: only what was read of a job that then still goes on is all that there was.
    """
    home = Path(service.environment["EXCHEQUER_HOME"])
    units = bytes.fromhex((home / "keys" / "units").read_text().strip())
    found: dict[str, list] = {}
    with desk.engine.begin() as connection:
        job = connection.execute(select(tables.jobs).where(tables.jobs.c.id == job_id)).one()
        if job.state not in GOING_ON:
            return None
        key = job_keys.hold(connection, job, units)
    for part in range(FAN_OUT):
        names: list[str] = []
        for row in kept_draws.kept(desk.engine, Claim(job_id, 0, uuid.uuid4(), part, key)):
            new, draws = json.loads(row)
            names += new
            for number, outcome in draws:
                found.setdefault(names[number], []).append(outcome)
    return found if desk.job(job_id)["state"] in GOING_ON else None


def forgotten(desk: Desk, job_id) -> bool:
    """True if neither a draw of the job nor the key to them is left."""
    with desk.engine.connect() as connection:
        return not any(
            connection.execute(select(table).where(table.c.job_id == job_id)).first()
            for table in (tables.kept_draws, tables.job_keys)
        )


def parts(desk: Desk, job_id) -> list:
    query = (
        select(tables.parts).where(tables.parts.c.job_id == job_id).order_by(tables.parts.c.number)
    )
    with desk.engine.connect() as connection:
        return list(connection.execute(query))


def written(desk: Desk, job_id, share: float) -> None:
    """Wait until so much of the job is done."""
    wait_for(
        lambda: desk.job(job_id)["progress"], lambda it: it["done"] >= share * max(1, it["total"])
    )


def goes_on(desk: Desk, service, job_id, before: dict[str, list], tokens: int) -> dict:
    """The job's end; until then what was kept at one look stays, and no batch draws more than it
    may.
    """
    last = before

    def look() -> str:
        nonlocal last
        seen = kept(desk, service, job_id)
        if seen is not None:
            assert all(seen.get(batch, [])[: len(draws)] == draws for batch, draws in last.items())
            last = seen
        return str(desk.job(job_id)["state"])

    wait_for(look, lambda state: state in ("succeeded", "failed", "cancelled"))
    assert all(len(draws) <= tokens for draws in last.values())
    job = desk.job(job_id)
    assert job["state"] == "succeeded", job
    assert job["entries"][0]["costs"] == job["entries"][-1]["costs"]
    assert forgotten(desk, job_id)
    wait_for(lambda: left(service, job_id), lambda drafts: not drafts)
    return job


def test_a_job_killed_after_four_fifths_draws_the_rest_and_nothing_twice(desk, dataset, service):
    assert "generate2" not in service.running, "one worker alone runs every part"
    job_id = desk.submit(dataset, tokens_per_batch=40)
    written(desk, job_id, 0.8)
    service.kill("generate")
    before = kept(desk, service, job_id)
    assert before is not None
    assert sum(map(len, before.values())) >= 0.8 * 40 * len(LABELS) - len(LABELS)
    service.start("generate")
    job = goes_on(desk, service, job_id, before, 40)
    assert job["attempt"] == 2
    sound(desk, dataset)


def test_a_worker_stopped_by_plan_hands_its_part_back_at_no_cost(desk, dataset, service):
    job_id = desk.submit(dataset, tokens_per_batch=40)
    written(desk, job_id, 0.5)
    service.running["generate"].terminate()
    assert service.running["generate"].wait(300) == 0
    assert desk.job(job_id)["state"] in ("queued", "running")
    assert [each.lease_token for each in parts(desk, job_id)] == [None] * FAN_OUT
    assert [each.attempt - each.handed_back for each in parts(desk, job_id)] == [1] * FAN_OUT
    assert sum(each.handed_back for each in parts(desk, job_id)) == 1
    before = kept(desk, service, job_id)
    assert before
    service.start("generate")
    goes_on(desk, service, job_id, before, 40)
    sound(desk, dataset)


def test_an_attempt_that_takes_too_long_goes_on_in_the_next_until_there_is_none(
    desk, dataset, service, tmp_path
):
    # a worker's first job loads torch before it reads
    desk.ended(desk.submit(dataset, tokens_per_batch=2))
    dataset = opened(desk, time_limit_seconds=3)
    job_id = desk.submit(dataset, tokens_per_batch=240)
    job = desk.ended(job_id)
    assert job["attempt"] in (2, 3)
    if job["state"] == "failed":
        assert (job["attempt"], job["failure"]) == (3, settlement.UNSAID)
        wait_for(lambda: left(service, job_id), lambda names: not names)
    else:
        assert job["state"] == "succeeded"
    assert job["entries"][-1]["costs"] == job["entries"][0]["costs"]
    assert forgotten(desk, job_id)
    sound(desk, dataset)


# --- a broker that says nothing -----------------------------------------------------------------


class Proxy:
    """A Unix socket before the broker's; frozen, it accepts connections and passes nothing on."""

    def __init__(self, path: Path, target: str) -> None:
        self.path, self.target = path, target
        self.frozen, self.met = threading.Event(), threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis+socket://{self.path}?virtual_host=0"

    def _accept(self) -> None:
        while True:
            near, _ = self.listener.accept()
            self.met.set()
            far = socket.socket(socket.AF_UNIX)
            far.connect(self.target)
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                while self.frozen.is_set():
                    time.sleep(0.1)
                sink.sendall(data)
        sink.close()


@pytest.fixture
def proxy(servers, tmp_path) -> Proxy:
    target = redis_url(servers.broker_url).removeprefix("unix://").split("?")[0]
    return Proxy(tmp_path / "p.sock", target)


def test_an_idle_worker_whose_broker_fell_silent_ends_and_its_successor_runs_the_job(
    desk, dataset, service, proxy
):
    service.kill("generate")
    service.start("generate", BROKER_URL=proxy.url)
    # a message that waited while the worker starts would look like silence
    assert proxy.met.wait(300)
    first = count(desk, dataset)

    def look() -> (
        str
    ):  # where a message takes seconds the broker seems silent too; a supervisor starts another
        if service.running["generate"].poll() is not None:
            service.start("generate", BROKER_URL=proxy.url)
        return desk.job(first)["state"]

    wait_for(look, lambda state: state == "succeeded")
    proxy.frozen.set()
    job_id = count(desk, dataset)
    worker = service.running["generate"]
    assert wait_for(worker.poll, lambda code: code is not None) is not None
    assert desk.job(job_id)["state"] == "queued"
    proxy.frozen.clear()
    service.start("generate", BROKER_URL=proxy.url)
    assert desk.ended(job_id)["state"] == "succeeded"
