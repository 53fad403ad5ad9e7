"""Comments: who may say something about a job, and how a question keeps it waiting."""

import uuid
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from accountant.core.errors import Conflict, InvalidRequest, NotFound, NotPermitted
from accountant.identities import activity_log
from accountant.queries import datasets, decisions, jobs
from accountant.transactions import comments
from tests.support import Bench, kinds, no, person, yes


def shown(bench: Bench, job_id: uuid.UUID):
    return jobs.job(bench.engine, job_id, bench.steward)


@pytest.fixture
def waiting(bench) -> tuple[Bench, uuid.UUID]:
    bench.warm()
    return bench, bench.submit()


def test_a_question_waits_for_the_analyst_and_its_answer_for_a_steward(waiting):
    bench, job_id = waiting
    engine, before = (
        bench.engine,
        datasets.dataset(bench.engine, bench.dataset, bench.steward)["account"],
    )
    assert (
        comments.say(engine, job_id, bench.steward, "  how many do you need?  ", asks=True)
        == "question"
    )
    job = shown(bench, job_id)
    assert (job.state, job.asked_back) == ("awaiting_approval", True)
    assert [(each.author, each.kind, each.text) for each in job.comments] == [
        (bench.steward.name, "question", "how many do you need?")
    ]
    assert decisions.count_waiting(engine, bench.analyst)[1] == 1
    assert comments.say(engine, job_id, bench.steward, "no hurry") == "comment"
    assert shown(bench, job_id).asked_back
    assert comments.say(engine, job_id, bench.analyst, "forty") == "answer"
    assert not shown(bench, job_id).asked_back
    assert comments.say(engine, job_id, bench.analyst, "or fifty") == "comment"
    # Nothing was reserved or charged, and it may be decided all the same.
    assert kinds(bench) == ["ALLOW"]
    assert datasets.dataset(engine, bench.dataset, bench.steward)["account"] == before
    comments.say(engine, job_id, bench.steward, "sure?", asks=True)
    yes(engine, job_id, bench.steward, "yes")
    job = shown(bench, job_id)
    assert (job.state, job.asked_back) == ("queued", False)


def test_what_waits_for_an_answer_is_not_counted_as_waiting_for_a_steward(waiting):
    bench, job_id = waiting
    before, _ = decisions.count_waiting(bench.engine, bench.steward)
    comments.say(bench.engine, job_id, bench.steward, "why?", asks=True)
    assert decisions.count_waiting(bench.engine, bench.steward)[0] == before - 1


def test_each_question_and_answer_gives_the_days_anew_and_a_comment_does_not(engine):
    bench = Bench(engine, policy={"approval_days": 3})
    bench.allow()
    bench.warm()
    job_id = bench.submit()

    def soon() -> None:
        with engine.begin() as connection:
            query = text(
                "UPDATE jobs SET approval_expires = now() + interval '1 hour' WHERE id = :id"
            )
            connection.execute(query, {"id": job_id})

    def left() -> timedelta:
        job = shown(bench, job_id)
        with engine.connect() as connection:
            return job.approval_expires - connection.execute(text("SELECT now()")).scalar_one()

    for who, asks, extends in (
        (bench.analyst, False, False),
        (bench.steward, True, True),
        (bench.analyst, False, True),
        (bench.analyst, False, False),  # nobody asks: saying more buys no time
    ):
        soon()
        comments.say(engine, job_id, who, "a word", asks=asks)
        assert (left() > timedelta(days=2)) is extends
    with engine.begin() as connection:
        query = text("UPDATE jobs SET approval_expires = now() - interval '1 hour' WHERE id = :id")
        connection.execute(query, {"id": job_id})
    with pytest.raises(Conflict, match="expired"):
        comments.say(engine, job_id, bench.steward, "why?", asks=True)


@pytest.mark.parametrize("said", ["", "  ", "x" * 2001, "a\0b"])
def test_a_comment_is_a_text_of_bounded_length(waiting, said):
    bench, job_id = waiting
    with pytest.raises(InvalidRequest, match="text"):
        comments.say(bench.engine, job_id, bench.analyst, said)


def test_only_its_analyst_and_stewards_speak_and_only_stewards_ask(waiting):
    bench, job_id = waiting
    stranger = person(bench.engine, "analyst")
    for who in (stranger, bench.auditor):
        with pytest.raises(NotFound):
            comments.say(bench.engine, job_id, who, "hello")
    with pytest.raises(NotPermitted):
        comments.say(bench.engine, job_id, bench.analyst, "why?", asks=True)
    with pytest.raises(NotFound):
        comments.say(bench.engine, uuid.uuid4(), bench.steward, "hello")
    no(bench.engine, job_id, bench.steward, "no")
    with pytest.raises(Conflict, match="refused, not awaiting"):
        comments.say(bench.engine, job_id, bench.steward, "why?", asks=True)
    assert comments.say(bench.engine, job_id, bench.analyst, "a pity") == "comment"


def test_no_job_takes_comments_without_end(waiting, monkeypatch):
    bench, job_id = waiting
    monkeypatch.setattr(comments, "MOST_COMMENTS", 2)
    comments.say(bench.engine, job_id, bench.analyst, "one")
    comments.say(bench.engine, job_id, bench.analyst, "two")
    with pytest.raises(Conflict, match="takes no more"):
        comments.say(bench.engine, job_id, bench.analyst, "three")


def test_words_are_in_no_log_and_never_changed(waiting, caplog):
    bench, job_id = waiting
    comments.say(bench.engine, job_id, bench.steward, "a very private word", asks=True)
    logged = activity_log.listing(bench.engine, bench.auditor, object_id=str(job_id))
    assert [each["action"] for each in logged] == ["job asked back"]
    assert "private word" not in str(logged) + caplog.text
    for statement in ("UPDATE comments SET text = 'other'", "DELETE FROM comments"):
        with (
            pytest.raises(ProgrammingError, match="permission denied"),
            bench.engine.begin() as connection,
        ):
            connection.execute(text(statement))
