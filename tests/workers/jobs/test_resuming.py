"""Attempts that go on after others, in this process, with the bundled model on a real database."""

import dataclasses
import json
import secrets
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest
from sqlalchemy import func, select, text

from accountant import settings as settings_module
from accountant import tables
from accountant.core.errors import KeyMismatch, LeaseLost
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import entries, integrity, jobs
from accountant.results import Results
from accountant.settings import Settings
from accountant.transactions import job_keys, kept_draws, leases, settlement
from tests.support import Bench
from tests.workers.conftest import SAMPLE, wait_for
from tests.workers.jobs.test_attempts import expire
from workers import models
from workers.jobs import draining, job_inputs, staging, tasks
from workers.jobs.heartbeat import Heartbeat
from workers.mechanisms import private_prediction
from workers.noise.kept_draws import KeptDraws
from workers.noise.meter import Turn

pytestmark = pytest.mark.slow

BATCHES, TOKENS, RECORDS = 4, 6, 12
#: A byte of the jobs' keys, by which no batch is empty.
KEY = 2


class Machine:
    """A worker's model and what is done before its passes: `at` is called with their number."""

    heartbeat: Heartbeat

    def __init__(self, base) -> None:
        self.passes, self.at = 0, lambda number: None
        self.drawn: Counter = Counter()
        self.hook = base.register_forward_pre_hook(self._begun)

    def _begun(self, *_) -> None:
        self.passes += 1
        self.at(self.passes)

    def next(self, at) -> None:
        self.passes, self.at = 0, at

    def late_after(self, passes: int) -> None:
        """Let the next attempt's time be over then."""

        def late(number: int) -> None:
            if number == passes:
                self.heartbeat._limit = 0.0

        self.next(late)


@pytest.fixture
def machine(monkeypatch):
    model = models.load(SAMPLE / "model", models.digest(SAMPLE / "model"), "float32", 0.000001)
    # Chance leaves the number of passes alone: texts end with their last token, and by this key of
    # a job none of its batches is empty.
    model = dataclasses.replace(model, end_tokens=frozenset())

    def token_bytes(size: int) -> bytes:
        return bytes([KEY] * size) if size == job_keys.KEY_BYTES else secrets.token_bytes(size)

    monkeypatch.setattr(job_keys, "secrets", SimpleNamespace(token_bytes=token_bytes))
    monkeypatch.setattr(job_inputs, "language_model", lambda *_: model)
    made = Machine(model.structure.base)
    real = KeptDraws.add

    def add(self, part, outcome) -> None:
        made.drawn[part] += 1
        real(self, part, outcome)

    class Noted(Heartbeat):
        def __enter__(self) -> Heartbeat:
            made.heartbeat = self
            return super().__enter__()

    monkeypatch.setattr(KeptDraws, "add", add)
    monkeypatch.setattr(tasks, "Heartbeat", Noted)
    yield made
    made.hook.remove()
    draining._byte[0] = 0


@pytest.fixture
def configured(tmp_path, monkeypatch, database_url) -> Settings:
    made = Settings(home=tmp_path, data_roots=str(tmp_path), lease_seconds=30)
    made = made.model_copy(update={"database_url": database_url})
    monkeypatch.setattr(settings_module, "load", lambda: made)
    return made


@pytest.fixture
def bench(engine, tmp_path, configured) -> Bench:
    return opened(engine, tmp_path)


def opened(engine, tmp_path, **policy) -> Bench:
    data = tmp_path / "data.csv"
    data.write_text("text\n" + "".join(f"record {number} was here\n" for number in range(RECORDS)))
    made = Bench(engine, uri=str(data), policy={"auto_approve_epsilon": "10", **policy})
    made.allow()
    made.warm()
    return made


def queued(bench: Bench, **parameters) -> UUID:
    return bench.submit(
        TOKENS,
        batches_per_label=BATCHES,
        batch_size=4,
        record_tokens=8,
        temperature=50,
        **parameters,
    )


def attempt(bench: Bench, job_id: UUID, configured: Settings, number: int = 1) -> None:
    claim = leases.claim(bench.engine, job_id, number, "worker", 30, 0, configured.secret("units"))
    assert claim is not None
    tasks.run(bench.engine, claim, configured)


def job(bench: Bench, job_id: UUID) -> dict:
    return jobs.job(bench.engine, job_id, bench.analyst)


def rows(bench: Bench, job_id: UUID) -> int:
    query = (
        select(func.count())
        .select_from(tables.kept_draws)
        .where(tables.kept_draws.c.job_id == job_id)
    )
    with bench.engine.connect() as connection:
        return int(connection.execute(query).scalar_one())


def part(bench: Bench, job_id: UUID):
    with bench.engine.connect() as connection:
        return connection.execute(select(tables.parts).where(tables.parts.c.job_id == job_id)).one()


def whole(bench: Bench, job_id: UUID, machine: Machine) -> None:
    """The job succeeded as one attempt would have: each token drawn once, charged as priced,
    nothing left.
    """
    found = job(bench, job_id)
    assert found["state"] == "succeeded", found
    assert machine.drawn == {(None, batch): TOKENS for batch in range(BATCHES)}
    assert found["entries"][0]["costs"] == found["entries"][-1]["costs"]
    assert rows(bench, job_id) == 0
    assert found["progress"]["done"] == BATCHES * TOKENS
    assert integrity.check(bench.engine, bench.dataset) == []
    verify_lines(entries.export(bench.engine, bench.dataset, bench.steward, "jsonl"))


#: Passes of a batch's public context: its prefix, its own token, and a token less than it writes.
PUBLIC = 1 + 1 + TOKENS - 1
#: Passes of a whole job: of each batch its prefix, its records and a token less than it writes, and
#: its public context.
PASSES = BATCHES * (1 + TOKENS - 1 + PUBLIC) + RECORDS


def again(first: int, second: int) -> int:
    """Passes of two attempts beyond those of one: of the batch that was being written, at most."""
    made = first + second - PASSES
    assert 0 <= made <= 1 + 2 * RECORDS + PUBLIC
    return made


def test_one_attempt_makes_each_pass_once(bench, configured, machine):
    job_id = queued(bench)
    attempt(bench, job_id, configured)
    assert machine.passes == PASSES
    whole(bench, job_id, machine)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_an_attempt_cut_by_its_limit_goes_on_in_the_next(bench, configured, machine, share):
    job_id = queued(bench)
    cut = int(PASSES * share)
    machine.late_after(cut)
    attempt(bench, job_id, configured)
    assert machine.passes == cut, "it is seen before the next pass"
    assert (job(bench, job_id)["state"], part(bench, job_id).attempt) == ("queued", 2)
    assert sum(machine.drawn.values()) < BATCHES * TOKENS
    machine.next(lambda number: None)
    attempt(bench, job_id, configured, 2)
    again(cut, machine.passes)
    whole(bench, job_id, machine)


@pytest.mark.parametrize("resumes", [True, False])
def test_a_limit_is_seen_before_the_next_pass_and_where_nothing_is_kept_it_is_the_end(
    bench, configured, machine, monkeypatch, resumes
):
    monkeypatch.setattr(private_prediction.Runner, "resumes", resumes)
    job_id = queued(bench)
    machine.late_after(1)
    attempt(bench, job_id, configured)
    assert (machine.passes, rows(bench, job_id)) == (1, 0)
    found = job(bench, job_id)
    if resumes:
        assert (found["state"], part(bench, job_id).attempt) == ("queued", 2)
        return
    assert (found["state"], found["failure"]) == ("failed", settlement.UNSAID)
    assert found["entries"][0]["costs"] == found["entries"][-1]["costs"]


def test_the_third_attempt_that_takes_too_long_is_the_last(bench, configured, machine):
    job_id = queued(bench)
    for number in (1, 2, 3):
        machine.late_after(PASSES // 4)
        attempt(bench, job_id, configured, number)
        assert job(bench, job_id)["state"] == ("queued" if number < 3 else "failed")
        assert (rows(bench, job_id) > 0) == (number < 3)
    assert max(machine.drawn.values()) <= TOKENS
    found = job(bench, job_id)
    assert found["failure"] == settlement.UNSAID
    assert found["entries"][0]["costs"] == found["entries"][-1]["costs"]


def test_where_each_attempt_is_charged_a_limit_ends_the_job(engine, tmp_path, configured, machine):
    bench = opened(engine, tmp_path, charge_each_attempt=True)
    job_id = queued(bench)
    machine.late_after(PASSES // 2)
    attempt(bench, job_id, configured)
    assert sum(machine.drawn.values()) > 0
    assert job(bench, job_id)["state"] == "failed"


@pytest.mark.parametrize("share", [0.1, 0.8])
def test_a_drained_worker_costs_no_attempt(bench, configured, machine, share):
    job_id = queued(bench)
    for number in range(1, 6):
        machine.next(lambda number: draining.begin() if number == int(PASSES * share) else None)
        attempt(bench, job_id, configured, number)
        if job(bench, job_id)["state"] == "succeeded":
            break
        assert job(bench, job_id)["state"] == "queued"
        assert (part(bench, job_id).attempt, part(bench, job_id).handed_back) == (
            number + 1,
            number,
        )
        draining._byte[0] = 0
    else:
        attempt(bench, job_id, configured, 6)
    if share == 0.1:
        assert part(bench, job_id).attempt > 3, "more than a part may be lost"
    whole(bench, job_id, machine)


def test_a_drain_before_anything_was_read_leaves_the_job_as_it_was(bench, configured, machine):
    job_id = queued(bench)
    draining.begin()
    attempt(bench, job_id, configured)
    found = job(bench, job_id)
    assert (found["state"], machine.passes, rows(bench, job_id)) == ("queued", 0, 0)
    draining._byte[0] = 0
    attempt(bench, job_id, configured, 2)
    whole(bench, job_id, machine)


def test_where_each_attempt_is_charged_a_drain_waits_for_it(engine, tmp_path, configured, machine):
    bench = opened(engine, tmp_path, charge_each_attempt=True)
    job_id = queued(bench)
    machine.next(lambda number: draining.begin())
    attempt(bench, job_id, configured)
    whole(bench, job_id, machine)


def test_a_lost_lease_is_seen_before_the_next_pass_and_the_next_attempt_goes_on(
    bench, configured, machine
):
    job_id = queued(bench)
    cut = int(PASSES * 0.8)

    def lose(number: int) -> None:
        if number == cut:
            expire(bench, job_id, 0)
            wait_for(lambda: machine.heartbeat._lost, bool)

    machine.next(lose)
    attempt(bench, job_id, configured)
    assert machine.passes == cut
    # a draw of the lost pass was kept for nobody
    machine.drawn = kept_of(bench, job_id, configured)
    machine.next(lambda number: None)
    attempt(bench, job_id, configured, 2)
    again(cut, machine.passes)
    whole(bench, job_id, machine)


def kept_of(bench: Bench, job_id: UUID, configured: Settings) -> Counter:
    """How many draws of each part of the data are kept."""
    with bench.engine.begin() as connection:
        found = connection.execute(select(tables.jobs).where(tables.jobs.c.id == job_id)).one()
        key = job_keys.hold(connection, found, configured.secret("units"))
    claim = leases.Claim(job_id, 0, job_id, 0, key)
    names: list = []
    counts: Counter = Counter()
    for row in kept_draws.kept(bench.engine, claim):
        new, draws = json.loads(row)
        names += new
        counts.update(part_named(names[number]) for number, _ in draws)
    return counts


def part_named(name: str) -> tuple:
    found = json.loads(name)
    return Turn(*found) if len(found) == 3 else tuple(found)


def test_a_cancelled_job_stops_before_its_next_pass_and_keeps_nothing(bench, configured, machine):
    job_id = queued(bench)

    def cancel(number: int) -> None:
        if number == 8:
            settlement.cancel(bench.engine, job_id, bench.analyst)
            wait_for(lambda: machine.heartbeat._cancelled, bool)

    machine.next(cancel)
    attempt(bench, job_id, configured)
    assert machine.passes == 8
    assert job(bench, job_id)["state"] == "cancelled"
    assert rows(bench, job_id) == 0
    assert integrity.check(bench.engine, bench.dataset) == []


@pytest.mark.parametrize("rounds", [False, True], ids=["plain", "rounds"])
def test_killed_again_and_again_every_token_is_drawn_once_but_those_of_the_step_that_was_lost(
    bench, configured, machine, rounds
):
    """As after kill -9: the attempt writes nothing more at all, and its lease runs out."""
    more = {"amplification": "allocation", "rounds": 1} if rounds else {}
    job_id = queued(bench, **more)

    class Killed(BaseException):
        """Nothing catches it, as nothing runs after kill -9."""

    def killed(number: int) -> None:
        if number == PASSES // 3:
            raise Killed

    for number in (1, 2):
        machine.next(killed)
        with pytest.raises(Killed):
            attempt(bench, job_id, configured, number)
        expire(bench, job_id, 0)
    machine.next(lambda number: None)
    kept = kept_of(bench, job_id, configured)
    assert +machine.drawn == kept, "each was kept before the pass that died"
    attempt(bench, job_id, configured, 3)
    assert sum(machine.drawn.values()) == BATCHES * TOKENS
    found = job(bench, job_id)
    assert found["state"] == "succeeded"
    assert found["entries"][0]["costs"] == found["entries"][-1]["costs"]
    assert integrity.check(bench.engine, bench.dataset) == []


def test_noise_of_a_failed_job_is_kept_for_nobody(bench, configured, machine):
    job_id = queued(bench)

    def broken(number: int) -> None:
        if number == 10:
            raise RuntimeError("the data did it")

    machine.next(broken)
    attempt(bench, job_id, configured)
    assert (job(bench, job_id)["state"], rows(bench, job_id)) == ("failed", 0)


# --- what is kept -------------------------------------------------------------------------------


@pytest.fixture
def halfway(bench, configured, machine):
    """A job of which something is kept, and a claim of its second attempt."""
    job_id = queued(bench)
    machine.next(lambda number: draining.begin() if number == 10 else None)
    attempt(bench, job_id, configured)
    draining._byte[0] = 0
    claim = leases.claim(bench.engine, job_id, 2, "worker", 30, 0, configured.secret("units"))
    assert rows(bench, job_id) > 1
    return claim


def test_a_worker_without_the_lease_adds_nothing(bench, halfway):
    number = rows(bench, halfway.job_id)
    kept_draws.keep(bench.engine, halfway, number, b"[]")
    kept_draws.keep(bench.engine, halfway, number, b"[]")  # its answer was lost
    assert rows(bench, halfway.job_id) == number + 1
    expire(bench, halfway.job_id, 0)
    with pytest.raises(LeaseLost):
        kept_draws.keep(bench.engine, halfway, number + 1, b"[]")
    assert rows(bench, halfway.job_id) == number + 1


def test_kept_draws_are_sealed_and_open_in_their_place_only(bench, halfway, owner):
    opened = b"".join(kept_draws.kept(bench.engine, halfway))
    assert b"[null, 0]" in opened
    with owner.begin() as connection:
        sealed = connection.execute(select(tables.kept_draws.c.sealed)).scalars().all()
        assert all(piece not in b"".join(sealed) for piece in (b"null", b"[["))
        connection.execute(
            text(
                "UPDATE kept_draws a SET sealed = b.sealed FROM kept_draws b WHERE a.job_id = "
                "b.job_id "
                "AND a.number = 0 AND b.number = 1"
            )
        )
    with pytest.raises(KeyMismatch, match="not what was kept"):
        kept_draws.kept(bench.engine, halfway)


def test_rows_that_are_missing_are_noticed(bench, halfway, owner):
    with owner.begin() as connection:
        connection.execute(text("DELETE FROM kept_draws WHERE number = 0"))
    with pytest.raises(KeyMismatch, match="missing"):
        kept_draws.kept(bench.engine, halfway)


def test_the_application_may_not_change_what_is_kept(bench, halfway):
    with bench.engine.connect() as connection, pytest.raises(Exception, match="permission denied"):
        connection.execute(text("UPDATE kept_draws SET sealed = ''"))


def test_what_outlives_its_job_is_found(bench, halfway):
    with bench.engine.begin() as connection:
        connection.execute(
            text("UPDATE jobs SET state = 'failed' WHERE id = :job"), {"job": halfway.job_id}
        )
    assert f"kept draws of job {halfway.job_id} outlive it" in integrity.check(
        bench.engine, bench.dataset
    )


def test_an_attempt_that_has_no_place_for_what_was_kept_publishes_nothing(
    bench, configured, machine, halfway
):
    kept = [json.loads(row) for row in kept_draws.kept(bench.engine, halfway)]
    # a batch that ended early may have made room for another
    names = sum(len(new) for new, _ in kept)
    kept_draws.keep(
        bench.engine, halfway, len(kept), json.dumps([["[null, 99]"], [[names, 5]]]).encode()
    )
    expire(bench, halfway.job_id, 0)
    attempt(bench, halfway.job_id, configured, 3)
    assert job(bench, halfway.job_id)["state"] == "failed"


def test_no_token_or_text_of_an_attempt_stays_on_disk(bench, configured, halfway, tmp_path):
    expire(bench, halfway.job_id, 0)
    staging.tidy(bench.engine, Results(configured.results))
    assert [path for path in Path(configured.results).rglob("*") if path.is_file()] == []
