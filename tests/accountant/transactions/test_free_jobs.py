# ruff: noqa: F811 (fixtures of other files)
"""Jobs that cost nothing: a queue of their own, and so many of one person at a time."""

import uuid

import pytest
from sqlalchemy import text

from accountant import settings as settings_module
from accountant.core.errors import InvalidRequest
from accountant.settings import Settings
from accountant.transactions import leases, messages, settlement, submission
from accountant.transactions.job_requests import JobRequest
from tests.accountant.transactions.test_artifacts import _tallies, ask, claimed, made, run  # noqa: F401
from tests.support import person

MOST = 3


@pytest.fixture(autouse=True)
def limited(monkeypatch):
    monkeypatch.setattr(settings_module, "load", lambda: Settings(free_jobs_per_person=MOST))


def fill(bench, source) -> list[uuid.UUID]:
    return [ask(bench, from_job=str(source)) for _ in range(MOST)]


def refused(bench, source, **of) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ask(bench, from_job=str(source), **of)
    (problem,) = caught.value.problems
    assert problem.field == "mechanism"
    assert problem.problem == f"{MOST} jobs of yours that cost nothing have not ended"
    assert problem.allowed.startswith(f"at most {MOST} at a time (EXCHEQUER_FREE_JOBS_PER_PERSON)")


def test_one_more_is_refused_until_one_has_ended_or_is_cancelled(made):
    bench, source, _ = made
    first, second, _ = fill(bench, source)
    refused(bench, source)
    run(bench, first, reads=False)
    ask(bench, from_job=str(source))
    refused(bench, source)
    settlement.cancel(bench.engine, second, bench.analyst)
    ask(bench, from_job=str(source))


def test_others_and_what_costs_something_are_not_held_up(made):
    bench, source, _ = made
    fill(bench, source)
    ask(bench, epsilon=0.1)
    ask(bench, bench.steward, from_job=str(source))
    other = person(bench.engine, "steward", f"steward-{uuid.uuid4().hex[:6]}")
    ask(bench, other, from_job=str(source))


def test_the_same_key_answers_with_the_job_that_it_made(made):
    bench, source, _ = made
    request = JobRequest(bench.dataset, "tally", None, {"from_job": str(source)}, "test")
    made_by_key = submission.submit(bench.engine, request, bench.analyst, "a key")
    for _ in range(MOST - 1):
        ask(bench, from_job=str(source))
    refused(bench, source)
    assert submission.submit(bench.engine, request, bench.analyst, "a key") == made_by_key


def test_its_messages_are_of_a_task_of_their_own_also_when_it_runs_again(made):
    bench, source, _ = made
    free, paid = ask(bench, from_job=str(source)), ask(bench, epsilon=0.1)
    for job_id in (free, paid):
        claimed(bench, job_id)
    with bench.engine.begin() as connection:
        connection.execute(
            text("UPDATE parts SET lease_expires = clock_timestamp() WHERE state = 'running'")
        )
    leases.expire(bench.engine, 3)
    query = text("SELECT task, attempt FROM outbox WHERE subject = :job ORDER BY id")
    with bench.engine.connect() as connection:
        told = {job_id: connection.execute(query, {"job": job_id}).all() for job_id in (free, paid)}
    assert told == {free: [("free", 1), ("free", 2)], paid: [("generate", 1), ("generate", 2)]}


def test_what_waits_is_sent_again_by_its_own_task(made):
    bench, source, _ = made
    free, paid = ask(bench, from_job=str(source)), ask(bench, epsilon=0.1)
    messages.deliver(bench.engine, lambda *_: None)
    with bench.engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE outbox SET sent_at = sent_at - interval '1 h', "
                "first_sent_at = first_sent_at - interval '1 h'"
            )
        )
    assert messages.longest_wait(bench.engine, {"free"}) > 3000
    messages.resend(bench.engine, 60)
    sent = []
    messages.deliver(bench.engine, lambda *each: sent.append(each[:2]))
    assert {("free", free), ("generate", paid)} <= set(sent)
    assert not {("generate", free), ("free", paid)} & set(sent)
