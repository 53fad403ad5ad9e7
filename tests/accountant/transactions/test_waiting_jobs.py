"""Limits on what one person has waiting, and turns between people."""

import uuid
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from accountant import settings as settings_module
from accountant.core.errors import InvalidRequest
from accountant.settings import Settings
from accountant.transactions import leases, messages, settlement, submission
from tests.support import Bench, person

MOST = 3


@pytest.fixture
def limited(monkeypatch):
    found = Settings(waiting_jobs_per_person=MOST, approvals_per_person=MOST)
    monkeypatch.setattr(settings_module, "load", lambda: found)


def refused(bench: Bench, whom: str, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        bench.submit(20)
    (problem,) = caught.value.problems
    assert problem.field == "mechanism"
    assert problem.problem == f"{MOST} jobs of yours wait for {whom}"
    assert problem.allowed.startswith(f"at most {MOST} at a time (EXCHEQUER_{name}_PER_PERSON): ")


def test_one_more_job_than_may_wait_for_a_worker_is_refused_and_leaves_nothing(limited, open_bench):
    bench = open_bench
    jobs = [bench.submit(10 + n) for n in range(MOST)]
    with bench.engine.connect() as connection:
        before = connection.execute(text("SELECT count(*) FROM entries")).scalar_one()
        refused(bench, "a worker", "WAITING_JOBS")
        assert connection.execute(text("SELECT count(*) FROM entries")).scalar_one() == before
    submission.submit(bench.engine, bench.request(20), bench.steward)  # others are not held up
    # what runs waits no longer
    assert leases.claim(bench.engine, jobs[0], 1, "worker", 600) is not None
    jobs.append(bench.submit(20))
    refused(bench, "a worker", "WAITING_JOBS")
    settlement.cancel(bench.engine, jobs[1], bench.analyst)
    bench.submit(20)


def test_one_more_job_than_may_wait_for_a_steward_is_refused(limited, bench):
    bench.warm()
    jobs = [bench.submit(10 + n) for n in range(MOST)]
    refused(bench, "a steward", "APPROVALS")
    settlement.cancel(bench.engine, jobs[0], bench.analyst)
    bench.submit(20)


# --- turns --------------------------------------------------------------------------------------


def ask(engine: Engine, template: uuid.UUID, analyst: uuid.UUID, count: int) -> None:
    """Queue so many jobs of a person: copies of one, with their parts and messages."""
    same = "version_id, mechanism, parameters, terms, breakdown, purpose, request_sha256"
    copies = text(
        f"WITH made AS (INSERT INTO jobs (id, dataset_id, analyst_id, state, {same}) "
        f"SELECT gen_random_uuid(), dataset_id, :analyst, 'queued', {same} "
        "FROM jobs, generate_series(1, :count) WHERE id = :template RETURNING id), "
        "parts AS (INSERT INTO parts (job_id, number, state, attempt) SELECT id, 0, 'queued', 1 "
        "FROM made) "
        "INSERT INTO outbox (task, subject, attempt, analyst_id) "
        "SELECT 'generate', id, 1, :analyst FROM made"
    )
    with engine.begin() as connection:
        connection.execute(copies, {"analyst": analyst, "count": count, "template": template})


def takes(engine: Engine, job_id: uuid.UUID) -> uuid.UUID:
    """A worker takes and ends a job; returns whose it was."""
    ended = text(
        "WITH done AS (UPDATE parts SET state = 'stopped' WHERE job_id = :job) "
        "UPDATE jobs SET state = 'cancelled' WHERE id = :job RETURNING analyst_id"
    )
    with engine.begin() as connection:
        return connection.execute(ended, {"job": job_id}).scalar_one()


@pytest.fixture(scope="module")
def crowd(engine):
    """A job to copy, and four people."""
    bench = Bench(engine)
    bench.allow()
    job_id = bench.submit(10)
    settlement.cancel(engine, job_id, bench.analyst)
    return engine, job_id, [person(engine, "analyst").id for _ in range(4)]


@given(
    # Who asks for how many jobs, after how many were taken since the last asked.
    asked=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 12), st.integers(0, 4)), min_size=1, max_size=6
    )
)
@settings(max_examples=6, deadline=None)
def test_nobody_waits_behind_more_than_a_few_jobs_of_each_other_person(crowd, asked):
    """Between two starts of whoever waits, any other person has at most 2 * AHEAD; and all jobs are
    taken.
    """
    engine, template, people = crowd
    queue: deque = deque()
    waits, since = dict.fromkeys(people, 0), {each: dict.fromkeys(people, 0) for each in people}
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM outbox"))

    def take() -> None:
        messages.deliver(engine, lambda task, job, *_: queue.append(job), ahead=messages.AHEAD)
        if not queue:
            return
        whose = takes(engine, queue.popleft())
        waits[whose] -= 1
        since[whose] = dict.fromkeys(people, 0)
        for other in people:
            if other != whose and waits[other]:
                since[other][whose] += 1
                assert since[other][whose] <= 2 * messages.AHEAD

    for number, count, taken in asked:
        ask(engine, template, people[number], count)
        waits[people[number]] += count
        for _ in range(taken):
            take()
    for _ in range(sum(waits.values())):
        take()
    assert not any(waits.values())


def test_a_late_comer_is_next_but_for_the_few_that_are_at_the_broker(crowd):
    engine, template, people = crowd
    sent: list = []
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM outbox"))
    ask(engine, template, people[0], 50)
    for _ in range(3):  # however often the relay looks
        messages.deliver(engine, lambda task, job, *_: sent.append(job), ahead=messages.AHEAD)
    ask(engine, template, people[1], 1)
    messages.deliver(engine, lambda task, job, *_: sent.append(job), ahead=messages.AHEAD)
    assert [takes(engine, job) for job in sent] == [*[people[0]] * messages.AHEAD, people[1]]


def test_of_two_who_ask_at_once_each_is_next_after_the_other(crowd):
    engine, template, people = crowd
    sent: list = []
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM outbox"))
    for person_id in people[:2]:
        ask(engine, template, person_id, 3)
    # the last alone, so that what lies at the broker counts too
    for limit in (3, 1):
        messages.deliver(engine, lambda task, job, *_: sent.append(job), limit, messages.AHEAD)
    assert [takes(engine, job) for job in sent] == [people[0], people[1]] * messages.AHEAD
