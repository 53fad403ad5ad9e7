"""How long a quote says that it takes, by jobs that read no private record: for its size from three
on, the median before, or nothing.
"""

import pytest
from sqlalchemy import text

from accountant.core.privacy.events import FREE
from accountant.queries import quotes
from accountant.queries.quotes import in_words
from accountant.transactions import job_requests, leases, settlement, submission
from tests.support import Bench, public_things

RAW = {"tokens_per_batch": 10}
ENDED = text(
    "UPDATE jobs SET started_at = finished_at - make_interval(secs => :seconds) WHERE id = :id"
)


def ran(bench, owner, seconds: float, mechanism="rehearsal:private-prediction", model=None, **raw):
    """A job of the mechanism that took so long."""
    request = job_requests.JobRequest(
        bench.dataset, mechanism, model or bench.model, RAW | raw, "a test"
    )
    job_id = submission.submit(bench.engine, request, bench.analyst)
    bench.probe(job_id)
    claim = leases.claim(bench.engine, job_id, 1, "a worker", 60)
    output = settlement.Output("/nowhere", "0" * 64, ())
    settlement.publish(bench.engine, claim, FREE, output, "a worker")
    with owner.begin() as connection:
        connection.execute(ENDED, {"seconds": seconds, "id": job_id})


def told(bench, mechanism="private-prediction", model=None, raw=None):
    named = model or bench.model
    return quotes.quote_on(bench.engine, bench.dataset, mechanism, raw or RAW, model=named).duration


def test_two_rehearsals_tell_their_median(bench, owner):
    corpus = public_things(bench.engine, bench.steward, 100, [])["public_corpus"]
    assert told(bench) is None
    ran(bench, owner, 7, rehearsal_corpus=corpus)
    assert (
        told(bench).sentence
        == "7 seconds in the last rehearsal of this mechanism with this model here, of any size"
    )
    ran(bench, owner, 9, rehearsal_corpus=corpus)
    assert (told(bench).seconds, told(bench).jobs, told(bench).sized) == (8, 2, False)
    assert told(bench).sentence.startswith("8 seconds in the median of the last 2 rehearsals")


def test_three_rehearsals_tell_how_long_a_request_takes_by_its_size(bench, owner):
    """The first two read 80 of the corpus' 100 texts in one batch: 0.1 s each and 0.01 s a row."""
    corpus = public_things(bench.engine, bench.steward, 100, [])["public_corpus"]
    ran(bench, owner, 1 + 8 + 8.1, rehearsal_corpus=corpus)
    ran(bench, owner, 1 + 8 + 16.2, rehearsal_corpus=corpus, tokens_per_batch=20)
    last = {"tokens_per_batch": 20, "rehearsal_texts": 40}
    ran(bench, owner, 1 + 4 + 8.2, rehearsal_corpus=corpus, **last)
    found = told(bench, raw={"tokens_per_batch": 30, "batch_size": 250})
    assert (found.jobs, found.sized) == (3, True)
    assert found.seconds == pytest.approx(1 + 100 + (1_000 + 4) * 30 * 0.01)
    assert found.sentence == (
        "about 6.7 minutes, by its size and the last 3 rehearsals of this mechanism with this "
        "model here"
    )
    assert told(bench, "invisible-ink", raw={"max_tokens": 5}) is None
    assert told(bench, model=Bench(bench.engine).model) is None


def test_rehearsals_with_fields_of_an_older_release_have_no_size(bench, owner):
    corpus = public_things(bench.engine, bench.steward, 100, [])["public_corpus"]
    for seconds in (5, 6, 7):
        ran(bench, owner, seconds, rehearsal_corpus=corpus)
    assert told(bench).sized
    ran(bench, owner, 500, rehearsal_corpus=corpus)
    older = "UPDATE jobs SET parameters = parameters || '{\"gone\": 1}' WHERE mechanism LIKE 'reh%'"
    newest = " AND created_at = (SELECT max(created_at) FROM jobs WHERE mechanism LIKE 'reh%')"
    with owner.begin() as connection:
        connection.execute(text(older + newest))
    found = told(bench)
    assert (found.sized, found.jobs) == (True, 3)
    assert "the last 3 rehearsals" in found.sentence
    with owner.begin() as connection:
        connection.execute(text(older))
    assert (told(bench).seconds, told(bench).sized) == (6.5, False)


def test_a_rehearsal_with_another_writer_is_not_counted(bench, owner):
    corpus = public_things(bench.engine, bench.steward, 100, [])["public_corpus"]
    ran(bench, owner, 5, rehearsal_corpus=corpus)
    assert told(bench).jobs == 1
    with owner.begin() as connection:
        written = 'UPDATE jobs SET parameters = parameters || \'{"writer": "another"}\''
        connection.execute(text(written))
    assert told(bench) is None


def test_no_job_that_reads_records_is_counted(bench, owner):
    """Not even one that stands under a rehearsal's name."""
    corpus = public_things(bench.engine, bench.steward, 100, [])["public_corpus"]
    ran(bench, owner, 5, rehearsal_corpus=corpus)
    job_id = bench.submit()
    private = text(
        "UPDATE jobs SET state = 'succeeded', mechanism = :mechanism, output_sha256 = 'x', "
        "started_at = now(), finished_at = now() + interval '9 seconds' WHERE id = :id"
    )
    for mechanism in ("private-prediction", "rehearsal:private-prediction"):
        with owner.begin() as connection:
            connection.execute(private, {"id": job_id, "mechanism": mechanism})
        assert (told(bench).jobs, told(bench).seconds) == (1, 5)
    for seconds in (5, 5):
        ran(bench, owner, seconds, rehearsal_corpus=corpus)
    assert (told(bench).sized, told(bench).jobs) == (True, 3)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "1 second"),
        (8, "8 seconds"),
        (240, "4 minutes"),
        (9_000, "2.5 hours"),
        (4e5, "4.6 days"),
    ],
)
def test_a_duration_in_words(seconds, words):
    assert in_words(seconds) == words
