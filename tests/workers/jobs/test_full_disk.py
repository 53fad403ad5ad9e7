"""A results folder that takes nothing is found before data is read: no job is charged, people are
told.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from accountant import settings as settings_module
from accountant.queries import integrity, jobs, workers
from accountant.settings import Settings
from accountant.transactions import submission
from accountant.transactions.job_requests import JobRequest
from tests.support import Bench
from workers.jobs import job_inputs, results_watch, tasks
from workers.jobs.staging import Drafts

pytestmark = pytest.mark.slow

MANY = 12


@pytest.fixture(autouse=True)
def counted_anew() -> Iterator[None]:
    results_watch.worked()
    yield
    results_watch.worked()


@pytest.fixture
def configured(tmp_path, monkeypatch, database_url) -> Settings:
    (tmp_path / "results").mkdir()
    made = Settings(
        home=tmp_path,
        data_roots=str(tmp_path),
        results_url=str(tmp_path / "results"),
        DATABASE_URL=database_url,
    )
    monkeypatch.setattr(settings_module, "load", lambda: made)
    return made


@pytest.fixture
def queued(engine, tmp_path, configured, monkeypatch) -> tuple[Bench, list[UUID]]:
    """Twelve counts of a dataset that wait for a worker."""
    monkeypatch.setattr(job_inputs, "engine", lambda: engine)
    monkeypatch.setattr(os, "getppid", os.getpid)  # child and main process are one here
    (tmp_path / "data.csv").write_text("text\n" + "".join(f"record {n}\n" for n in range(50)))
    bench = Bench(engine, uri=str(tmp_path / "data.csv"), policy={"auto_approve_epsilon": "10"})
    bench.allow()
    request = JobRequest(bench.dataset, "noisy-count", None, {"epsilon": 0.1}, "test")
    return bench, [submission.submit(engine, request, bench.analyst) for _ in range(MANY)]


@contextmanager
def full() -> Iterator[None]:
    """Leave less room than an output needs, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * 2**20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def away(results: Path) -> Iterator[None]:
    """Take the disk away."""
    results.rename(results.with_name("away"))
    try:
        yield
    finally:
        results.with_name("away").rename(results)


def deliver(bench: Bench, ids: list[UUID]) -> None:
    """Hand every message that waits to the worker."""
    query = text("SELECT number, attempt FROM parts WHERE job_id = :id AND state = 'queued'")
    for job_id in ids:
        with bench.engine.connect() as connection:
            row = connection.execute(query, {"id": job_id}).one_or_none()
        if row is not None:
            tasks._take("message", str(job_id), row.attempt, row.number)


def states(bench: Bench, ids: list[UUID]) -> set[str]:
    return {jobs.job(bench.engine, each, bench.steward)["state"] for each in ids}


@pytest.mark.parametrize("broken", ["full", "away"])
def test_twelve_waiting_jobs_are_charged_nothing_and_run_when_the_disk_is_there_again(
    queued, configured, broken
):
    bench, ids = queued
    with full() if broken == "full" else away(Path(configured.results)):
        deliver(bench, ids)
        assert results_watch.is_stopped()
        results_watch.look(bench.engine, Drafts.of(configured))
        assert results_watch.is_stopped()
    assert states(bench, ids) == {"queued"}
    with bench.engine.connect() as connection:
        read = text(
            "SELECT count(*) FROM jobs WHERE id = ANY(:ids) AND reading_began_at IS NOT NULL"
        )
        assert connection.execute(read, {"ids": ids}).scalar_one() == 0
        attempts = text(
            "SELECT sum(attempt - 1), sum(handed_back) FROM parts WHERE job_id = ANY(:ids)"
        )
        assert connection.execute(attempts, {"ids": ids}).one() == (results_watch.MOST,) * 2
    said = workers.problem(bench.engine, in_their_words=True)
    assert said is not None
    assert "results can't be written" in said
    deliver(bench, ids)
    assert states(bench, ids) == {"queued"}, "a worker that said so takes nothing"
    results_watch.look(bench.engine, Drafts.of(configured))
    assert workers.problem(bench.engine, in_their_words=True) is None
    deliver(bench, ids)
    assert states(bench, ids) == {"succeeded"}
    assert integrity.check(bench.engine, bench.dataset) == []


def test_an_output_that_is_written_begins_the_count_anew(queued, configured):
    bench, ids = queued
    for job_id in ids[:2]:
        with full():
            deliver(bench, [job_id])
        deliver(bench, [ids[5]])
    with full():
        deliver(bench, [ids[2]])
    assert not results_watch.is_stopped()


def test_a_worker_that_ended_stops_nobody(engine):
    results_watch.stopped_workers.say(engine, "gone/1", "x")
    with engine.begin() as connection:
        connection.execute(text("UPDATE stopped_workers SET at = at - interval '2 minutes'"))
    assert workers.problem(engine, in_their_words=True) is None
