"""How long a quote says that such jobs took: the median of those that read no private record, or
nothing.
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


def test_a_quote_tells_the_median_of_the_rehearsals_with_its_mechanism_and_model(bench, owner):
    corpus = public_things(bench.engine, bench.steward, 100, [])["public_corpus"]
    assert told(bench) is None
    ran(bench, owner, 7, rehearsal_corpus=corpus)
    assert (
        told(bench).sentence
        == "7 seconds in the last rehearsal of this mechanism with this model here, of any size"
    )
    for seconds in (300, 240):
        ran(bench, owner, seconds, rehearsal_corpus=corpus, tokens_per_batch=20)
    found = told(bench)
    assert (found.seconds, found.jobs) == (240, 3)
    assert found.sentence.startswith("4 minutes in the median of the last 3 rehearsals")
    assert told(bench, "invisible-ink", raw={"max_tokens": 5}) is None
    assert told(bench, model=Bench(bench.engine).model) is None


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
