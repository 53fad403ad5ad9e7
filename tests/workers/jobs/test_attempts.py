"""Attempts run in this process with a runner of the test's own, on a real database."""

import hashlib
import json
import os
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock
from uuid import UUID, uuid4

import numpy as np
import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError
from sqlalchemy.exc import OperationalError

from accountant import settings as settings_module
from accountant.core.errors import MeterExceeded
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.privacy.events import Exponential, SelfComposed
from accountant.queries import datasets, entries, integrity, jobs
from accountant.results import Changed, Results, draft_name
from accountant.settings import Settings
from accountant.transactions import allowances, leases, settlement, submission
from accountant.transactions.rows import Claim
from accountant.transactions.settlement import Output
from tests.support import Bench, yes
from workers.interface import Artifact, Text
from workers.jobs import artifacts, child_watch, job_inputs, staging, tasks
from workers.noise.meter import Meter

pytestmark = pytest.mark.slow

PARTS, BATCHES, TOKENS = 3, 7, 4
PARAMETERS = {
    "aggregation": "median",
    "ex_post_cap": 2.5,
    "tokens_per_batch": TOKENS,
    "batches_per_label": BATCHES,
}
COSTS = np.array([0.25, 0.125])


class ExPostRunner:
    """Every batch draws its tokens at an ex-post cost; the third batch is the dearest."""

    def __init__(self) -> None:
        self.at_batch: Callable[[int], None] = lambda _: None

    def total(self, parameters, terms) -> int:
        return BATCHES * TOKENS

    def run(self, parameters, terms, records, model, meter, progress, public):
        scores = np.array([0, -(2**40)], dtype=np.int64)
        for label, index in records.batches(parameters.batches_per_label):
            self.at_batch(index)
            costs = COSTS * (3 if index == 2 else 1)
            for _ in range(TOKENS):
                token = meter.parallel((label, index)).ex_post_token(scores, Fraction(1), costs)
                progress.advance()
            yield Text(f"{index}: {token}")


@pytest.fixture
def runner(monkeypatch) -> ExPostRunner:
    made = ExPostRunner()
    monkeypatch.setattr("workers.mechanisms.runner", lambda _: made)
    monkeypatch.setattr(job_inputs, "language_model", lambda *_: None)
    return made


@pytest.fixture
def configured(tmp_path, monkeypatch) -> Settings:
    made = Settings(home=tmp_path, data_roots=str(tmp_path), fan_out=PARTS, lease_seconds=30)
    monkeypatch.setattr(settings_module, "load", lambda: made)
    return made


@pytest.fixture
def bench(engine, tmp_path, configured) -> Bench:
    data = tmp_path / "data.csv"
    data.write_text("text\n" + "".join(f"record {number}\n" for number in range(50)))
    made = Bench(engine, uri=str(data))
    made.allow()
    allowances.allow(
        engine, made.dataset, Allowance(None, None, "a study", ex_post="10"), made.steward
    )
    made.warm()
    return made


def queued(bench: Bench) -> UUID:
    request = replace(bench.request(), parameters=PARAMETERS)
    job_id = submission.submit(bench.engine, request, bench.analyst)
    yes(bench.engine, job_id, bench.steward, "it fits the study")
    return job_id


def attempt(bench: Bench, job_id: UUID, part: int, configured: Settings, number: int = 1) -> None:
    units = configured.secret("units")
    claim = leases.claim(
        bench.engine, job_id, number, "worker", configured.lease_seconds, part, units
    )
    assert claim is not None
    tasks.run(bench.engine, claim, configured)


def job(bench: Bench, job_id: UUID) -> dict:
    return jobs.job(bench.engine, job_id, bench.analyst)


#: In every output of a part of these jobs.
TEXT = b'"text":'


def files(configured: Settings, job_id: UUID) -> list[Path]:
    """The drafts of a job."""
    return sorted(Path(configured.results, "drafts").glob(f"{job_id}.*"))


def published(bench: Bench, job_id: UUID) -> bytes:
    sha256 = jobs.output(bench.engine, job_id, bench.analyst).sha256
    data = Path(settings_module.load().results, sha256).read_bytes()
    assert hashlib.sha256(data).hexdigest() == job(bench, job_id)["output_sha256"]
    return data


def sound(bench: Bench) -> None:
    assert integrity.check(bench.engine, bench.dataset) == []
    verify_lines(entries.export(bench.engine, bench.dataset, bench.steward, "jsonl"))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.usefixtures("runner")
def test_a_job_without_epsilon_runs_in_parts_and_settles_at_the_batch_that_cost_most(
    bench, configured, order
):
    job_id = queued(bench)
    for part in order:
        assert job(bench, job_id)["state"] != "succeeded"
        attempt(bench, job_id, part, configured)
    ended = job(bench, job_id)
    assert (ended["state"], ended["event"], ended["epsilon_alone"]) == ("succeeded", None, None)
    assert ended["progress"]["done"] == BATCHES * TOKENS
    texts = [json.loads(line)["text"] for line in published(bench, job_id).splitlines()]
    assert texts == [f"{index}: 0" for index in range(BATCHES)], "every batch once, in order"
    (found,) = jobs.ex_post(bench.engine, bench.dataset, bench.auditor)
    assert (found["cap"], found["realized"]) == ("2.5", "3"), "4 tokens of 0.75 each"
    assert files(configured, job_id) == []
    sound(bench)


def test_what_the_done_parts_staged_is_destroyed_when_another_fails(bench, configured, runner):
    job_id = queued(bench)
    attempt(bench, job_id, 0, configured)
    assert len(files(configured, job_id)) == 1

    def fails(index: int) -> None:
        raise RuntimeError(f"the data did it, in batch {index}")

    runner.at_batch = fails
    attempt(bench, job_id, 1, configured)
    ended = job(bench, job_id)
    assert (ended["state"], ended["failure"]) == ("failed", settlement.UNSAID)
    assert files(configured, job_id) == []
    assert jobs.ex_post(bench.engine, bench.dataset, bench.auditor) == []
    assert datasets.dataset(bench.engine, bench.dataset, bench.steward)["ex_post"]["spent"] == "2.5"
    sound(bench)


def test_what_goes_wrong_afterwards_does_not_tell_a_log_what_went_wrong_before(
    bench, configured, runner, monkeypatch
):
    """Celery logs what a task raises, with every error that was being handled when it was
    raised.
    """

    def fails(index: int) -> None:
        raise ValueError("the words of a record")

    def breaks(*_: object) -> None:
        raise RuntimeError("the ledger could not be written")

    runner.at_batch = fails
    monkeypatch.setattr(settlement, "fail", breaks)
    with pytest.raises(RuntimeError, match="could not be written") as caught:
        attempt(bench, queued(bench), 0, configured)
    assert "the words of a record" not in "".join(traceback.format_exception(caught.value))


def test_an_attempt_that_lost_its_lease_destroys_its_output_and_nobody_elses(
    bench, configured, runner
):
    job_id = queued(bench)
    attempt(bench, job_id, 0, configured)
    (staged,) = files(configured, job_id)

    def lost(index: int) -> None:
        if index == 2:
            expire(bench, job_id, 1)

    runner.at_batch = lost
    attempt(bench, job_id, 1, configured)
    assert files(configured, job_id) == [staged]
    runner.at_batch = lambda _: None
    attempt(bench, job_id, 2, configured)
    attempt(bench, job_id, 1, configured, number=2)
    assert job(bench, job_id)["state"] == "succeeded"
    sound(bench)


def expire(bench: Bench, job_id: UUID, part: int) -> None:
    from sqlalchemy import text

    with bench.engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE parts SET lease_expires = clock_timestamp() - interval '1 s' "
                "WHERE job_id = :job AND number = :part"
            ),
            {"job": job_id, "part": part},
        )
    leases.expire(bench.engine, 3)


@pytest.mark.usefixtures("runner")
@pytest.mark.parametrize("step", ["begin_reading", "finish", "publish"])
def test_a_step_whose_answer_is_lost_is_done_once_and_its_output_stays(
    bench, configured, monkeypatch, step
):
    """It went through and the connection broke: done again, it finds the same or the lease gone."""
    module = settlement if step == "publish" else leases
    real, calls = getattr(module, step), []

    def answer_lost(*args, **options):
        calls.append(step)
        found = real(*args, **options)
        if len(calls) == 1:
            raise OperationalError("COMMIT", None, Exception("server closed the connection"))
        return found

    monkeypatch.setattr(tasks, "RETRY_SECONDS", 0.01)
    job_id = queued(bench)
    for part in range(PARTS - 1):
        attempt(bench, job_id, part, configured)
    monkeypatch.setattr(module, step, answer_lost)
    attempt(bench, job_id, PARTS - 1, configured)
    assert len(calls) == 2
    assert job(bench, job_id)["state"] == "succeeded"
    assert published(bench, job_id)
    sound(bench)


# --- what the main process sees -----------------------------------------------------------------


@pytest.mark.parametrize("error", [WorkerLostError("signal 9"), TimeLimitExceeded(60)])
@pytest.mark.usefixtures("runner")
def test_a_process_that_was_killed_ends_its_own_attempt_and_no_other(
    bench, configured, monkeypatch, database_url, error
):
    """As Celery's main process reports it: out of memory, or past the hard limit."""
    with_database = configured.model_copy(update={"database_url": database_url})
    monkeypatch.setattr(settings_module, "load", lambda: with_database)
    ours = child_watch.process_name(os.getpid(), "our message")
    job_id = queued(bench)
    claim = leases.claim(bench.engine, job_id, 1, ours, 60, 1)
    assert claim is not None
    leases.begin_reading(bench.engine, claim)
    sender, args = SimpleNamespace(name="exchequer.generate"), [str(job_id), 1, 1]

    def reported(task_id: str, exception: Exception) -> str:
        child_watch.on_failure(sender=sender, task_id=task_id, exception=exception, args=args)
        for thread in threading.enumerate():
            if thread.name == "end-dead":
                thread.join()
        return str(job(bench, job_id)["state"])

    assert reported("another message", error) == "running"
    assert reported("our message", ValueError("it was told already")) == "running"
    monkeypatch.setattr(child_watch.state, "should_terminate", 1)
    assert reported("our message", error) == "running", "a shutdown is no failure"
    monkeypatch.setattr(child_watch.state, "should_terminate", None)
    assert reported("our message", error) == "failed"
    assert job(bench, job_id)["failure"] == settlement.UNSAID
    sound(bench)


# --- leftovers ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("runner")
def test_leftovers_of_ended_attempts_go_and_everything_else_stays(bench, configured):
    done, running = queued(bench), queued(bench)
    for part in range(PARTS):
        attempt(bench, done, part, configured)
    attempt(bench, running, 0, configured)
    claim = leases.claim(bench.engine, running, 1, "worker", 60, 1)
    assert claim is not None
    drafts, results = Path(configured.results, "drafts"), Results(configured.results)
    writing = drafts / staging.name_of(claim)
    stays = [*files(configured, running), writing]
    assert files(configured, done) == []
    elsewhere = drafts / f"{uuid4()}.{uuid4()}.texts"
    unknown = drafts / "read.me"
    goes = [drafts / f"{done}.{uuid4()}.texts", drafts / f"{running}.{uuid4()}.all"]
    for path in (writing, elsewhere, unknown, *goes):
        path.write_text("{}")
    assert staging.tidy(bench.engine, results, done) == 1
    assert staging.tidy(bench.engine, results) == 1
    assert staging.tidy(bench.engine, results) == 0
    assert all(path.exists() for path in (*stays, elsewhere, unknown))
    assert not any(path.exists() for path in goes)


@pytest.mark.usefixtures("runner")
def test_what_a_worker_committed_and_did_not_publish_is_published_by_the_next(
    bench, configured, monkeypatch
):
    """Until then it is sealed: the relay, which has no key, leaves it there."""

    def dies(self: object, name: str, sha256: str) -> None:
        raise OSError("the machine is lost")

    job_id, results = queued(bench), Results(configured.results)
    with monkeypatch.context() as patched:
        patched.setattr(staging.Drafts, "publish", dies)
        for part in range(PARTS):
            attempt(bench, job_id, part, configured)
    assert job(bench, job_id)["state"] == "succeeded"
    drafts = files(configured, job_id)
    assert not any(TEXT in each.read_bytes() for each in drafts)
    assert staging.tidy(bench.engine, results, job_id) == 0
    other = staging.Drafts(results, b"x" * 32)
    assert staging.tidy(bench.engine, results, job_id, other) == 0, "of another key"
    assert files(configured, job_id) == drafts
    assert staging.tidy(bench.engine, results, job_id, staging.Drafts.of(configured)) == len(drafts)
    assert TEXT in published(bench, job_id)
    assert files(configured, job_id) == []


@pytest.mark.usefixtures("runner")
@pytest.mark.parametrize("step", ["digest", "publish"])
def test_a_draft_that_another_worker_tidied_ends_no_look(bench, configured, monkeypatch, step):
    job_id, results = queued(bench), Results(configured.results)
    with monkeypatch.context() as patched:
        patched.setattr(staging.Drafts, "publish", Mock(side_effect=OSError("the store is away")))
        for part in range(PARTS):
            attempt(bench, job_id, part, configured)
    real, calls = getattr(staging.Drafts, step), []

    def gone_at_first(self, name, *args):
        calls.append(name)
        if len(calls) == 1:
            self.results.remove(name)
        return real(self, name, *args)

    drafts = len(files(configured, job_id))
    monkeypatch.setattr(staging.Drafts, step, gone_at_first)
    gone = staging.tidy(bench.engine, results, job_id, staging.Drafts.of(configured))
    assert (gone, len(calls) > 0) == (drafts - 1, True)
    assert files(configured, job_id) == []


@pytest.mark.usefixtures("runner")
def test_nobody_without_the_workers_key_reads_a_draft(bench, configured):
    job_id = queued(bench)
    attempt(bench, job_id, 0, configured)
    (path,) = files(configured, job_id)
    assert TEXT not in path.read_bytes()
    assert TEXT in b"".join(staging.Drafts.of(configured).read(path.name))
    with pytest.raises(Changed):
        list(staging.Drafts(Results(configured.results), b"x" * 32).read(path.name))
    moved = path.with_name(draft_name(uuid4(), uuid4(), "texts"))
    path.rename(moved)
    with pytest.raises(Changed):
        list(staging.Drafts.of(configured).read(moved.name))
    moved.write_bytes(b"")  # an object store has it so where its writing was cut off
    with pytest.raises(Changed):
        list(staging.Drafts.of(configured).read(moved.name))


def test_whoever_publishes_what_waits_goes_on_after_an_error_of_the_stores_library(
    configured, engine, monkeypatch
):
    """Whose errors are no OSError: the thread ended, and what was committed waited for others."""
    looked = iter([RuntimeError("what a library raises"), KeyboardInterrupt()])
    monkeypatch.setattr(staging, "tidy", Mock(side_effect=looked))
    monkeypatch.setattr(child_watch.time, "sleep", lambda _: None)
    url = engine.url.render_as_string(hide_password=False)
    made = configured.model_copy(update={"database_url": url})
    with pytest.raises(KeyboardInterrupt):
        child_watch.publish_waiting(made)


def test_outputs_that_changed_after_they_were_staged_are_not_published(tmp_path):
    drafts = staging.Drafts(Results(str(tmp_path)), b"u" * 32)
    names = [draft_name(uuid4(), uuid4(), part) for part in ("texts", "texts", "all")]
    staged = []
    for n in range(2):
        with drafts.create(names[n]) as file:
            staged.append(Output(names[n], staging.write(file, [{"n": n}])))
    whole = staging.joined(drafts, names[2], staged)
    assert b"".join(drafts.read(whole.draft)) == b'{"n": 0}\n{"n": 1}\n'
    assert staging.joined(drafts, "x", staged[:1]) == staged[0]
    with pytest.raises(OSError, match="not what was written"):
        staging.joined(drafts, names[2], [staged[0], Output(staged[1].draft, "0" * 64)])


def in_a_store(monkeypatch, errors: list[Exception]) -> staging.Drafts:
    """Drafts in a store whose sending ends with these errors before it succeeds."""
    drafts = staging.Drafts(Results(f"memory://{uuid4().hex}"), b"u" * 32)
    system = drafts.results._store._system
    real = type(system).put_file

    def put_file(*given):
        if errors:
            raise errors.pop(0)
        return real(system, *given)

    monkeypatch.setattr(system, "put_file", put_file)
    monkeypatch.setattr(staging, "PAUSE_SECONDS", 0.0)
    return drafts


def test_what_was_made_is_sent_again_where_the_store_is_away_for_a_moment(monkeypatch):
    """Its records were read: it would be charged, and lost."""
    away = [OSError(5, "no room"), RuntimeError("what a library raises")]
    errors = [*away]
    drafts = in_a_store(monkeypatch, errors)
    claim = Claim(uuid4(), 1, uuid4())

    def made():
        yield Artifact("counts", "counts", "application/json", b"{}")
        errors.extend(away)
        yield Text("text")

    output = artifacts.write(drafts, claim, 100, made)
    assert errors == []
    assert b"text" in b"".join(drafts.read(output.draft))
    assert b"".join(drafts.read(output.artifacts[0].draft)) == b"{}"


@pytest.mark.parametrize(
    ("errors", "seconds", "ended"),
    [
        ([SoftTimeLimitExceeded(), OSError()], 60.0, SoftTimeLimitExceeded),
        ([KeyError(1), KeyError(2)], 0.0, KeyError),
        ([OSError()] * 10_000, 0.001, OSError),
    ],
)
def test_it_is_sent_again_until_its_time_is_over(monkeypatch, errors, seconds, ended):
    drafts = in_a_store(monkeypatch, errors)
    with (
        pytest.raises(ended),
        drafts.create(draft_name(uuid4(), uuid4(), "texts"), send_seconds=seconds) as file,
    ):
        file.write(b"a draft")
    assert errors


def test_a_shared_job_makes_no_release_from_all_the_data():
    token = Exponential(0.1)
    scores = np.zeros(2, dtype=np.int64)
    meter = Meter(SelfComposed(token, 5), 5, shared=True)
    for release in (
        lambda: meter.sample_token(scores, Fraction(1), token),
        lambda: meter.ex_post_token(scores, Fraction(1), COSTS),
    ):
        with pytest.raises(MeterExceeded):
            release()
    meter.parallel("batch").sample_token(scores, Fraction(1), token)
    assert meter.realized == token
