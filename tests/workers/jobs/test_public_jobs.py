# ruff: noqa: F811 (fixtures of other files)
"""Public jobs: free, with lineage, and without any way to a dataset; jobs that read several
others.
"""

import json
import uuid

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from accountant.catalogue import corpora
from accountant.core.errors import InvalidRequest
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import entries, integrity
from accountant.transactions import allowances, submission
from accountant.transactions.job_requests import JobRequest
from tests import matches, peeks, tallies
from tests.support import yes
from tests.workers.conftest import folder_of, wait_for
from tests.workers.jobs.test_artifact_jobs import Desk, desk  # noqa: F401
from workers.data.terms import TermList
from workers.jobs import artifacts as stored

pytestmark = pytest.mark.slow

TEXTS = [
    "the lift was out of order",
    "a lift, and a broken lift",
    "The front desk was kind",
    "front desk: kind",
]


@pytest.fixture(scope="module", autouse=True)
def known(desk):
    for module in (peeks, matches):
        tallies.register(module)
    yield
    for module in (peeks, matches):
        tallies.forget(module)


@pytest.fixture(scope="module")
def corpus(desk) -> str:
    name = f"corpus-{uuid.uuid4().hex[:6]}"
    path = desk.folder / f"{name}.csv"
    path.write_text("text\n" + "".join(f'"{each}"\n' for each in TEXTS))
    corpora.add(
        desk.engine, corpora.CorpusSpec(name=name, uri=str(path), statement="made up"), desk.steward
    )
    shown = lambda: corpora.show(desk.engine, name, desk.steward)["state"]  # noqa: E731
    wait_for(shown, lambda state: state == "ready")
    return name


def ask(desk: Desk, dataset: str, mechanism: str, **parameters: object) -> uuid.UUID:
    return submission.submit(
        desk.engine, JobRequest(dataset, mechanism, None, parameters, "test"), desk.analyst
    )


@pytest.fixture(scope="module")
def named(desk) -> tuple[str, str]:
    """(a dataset without any allowance, its file)."""
    uri = desk.file([f"the lift again {uuid.uuid4().hex}" for _ in range(300)])
    return desk.dataset(uri), uri


@pytest.fixture(scope="module")
def listed(desk, named, corpus) -> uuid.UUID:
    job_id = ask(desk, named[0], "vocabulary", corpus=corpus, words=2, least_documents=2)
    job = desk.ended(job_id)
    assert job["state"] == "succeeded", job
    return job_id


def reserved(desk: Desk, dataset: str, job_id: uuid.UUID) -> dict:
    lines = list(entries.export(desk.engine, dataset, desk.steward, "jsonl"))
    verify_lines(lines)
    found = [json.loads(line) for line in lines if str(job_id) in line]
    return next(each["body"] for each in found if each["kind"] == "RESERVE")


def test_a_vocabulary_is_made_of_a_public_corpus_alone(desk, named, corpus, listed):
    name, _ = named
    job = desk.ended(listed)
    assert [each["kind"] for each in job["entries"]] == ["RESERVE", "COMMIT"]
    assert job["progress"] == {"done": 2, "total": 2, "unit": "passes"}
    assert job["started_at"] is not None
    assert job["finished_at"] is not None  # nothing private decided when
    (row,) = desk.rows(listed)
    assert (row.name, row.kind) == ("terms", "term-list")
    found = TermList.of(stored.read(folder_of(row), {row.name: row.sha256})["terms"])
    # "the" and "was" are function words
    assert found.documents == dict.fromkeys(("desk", "front", "front desk", "kind", "lift"), 2)
    source = reserved(desk, name, listed)["source"]
    assert set(source) == {"public"}
    assert source["public"]["corpus"]["name"] == corpus
    with desk.engine.connect() as connection:
        query = text("SELECT reads_records, reading_began_at FROM jobs WHERE id = :job")
        assert connection.execute(query, {"job": listed}).one() == (False, None)
    assert integrity.check(desk.engine, name) == []


@pytest.mark.parametrize("how", ["read", "rows", "corpus"])
def test_a_job_that_claims_to_be_public_and_opens_a_dataset_is_refused(desk, named, how):
    name, uri = named
    job = desk.ended(ask(desk, name, "peek", path=uri, how=how))
    assert (job["state"], [each["kind"] for each in job["entries"]]) == (
        "failed",
        ["RESERVE", "VOID"],
    )
    assert "tried to open data" in job["failure"]
    assert "lift" not in str(job)


def test_whatever_its_row_says_a_public_mechanism_gets_no_records(desk, named):
    """Its row claims that it reads records, as somebody with the database might write."""
    name, uri = named
    with desk.service.paused("generate"):
        job_id = ask(desk, name, "peek", path=uri, how="nothing")
        with desk.engine.begin() as connection:
            connection.execute(
                text("UPDATE jobs SET reads_records = true WHERE id = :id"), {"id": job_id}
            )
    job = desk.ended(job_id)
    assert job["state"] == "succeeded", "its entry says what it reads: nothing of the dataset"
    assert [each["kind"] for each in job["entries"]] == ["RESERVE", "COMMIT"]
    # else the ledger's check finds what was changed by hand
    with desk.engine.begin() as connection:
        connection.execute(
            text("UPDATE jobs SET reads_records = false WHERE id = :id"), {"id": job_id}
        )


def test_the_database_records_no_reading_of_a_public_job(desk, listed):
    update = text("UPDATE jobs SET reading_began_at = now() WHERE id = :id")
    with pytest.raises(IntegrityError, match="reads_no_records"), desk.engine.begin() as connection:
        connection.execute(update, {"id": listed})


def test_a_rehearsal_runs_on_public_texts_alone_and_is_no_release_of_the_dataset(desk, named):
    """With the parameters of the job, noise and all: free, verified, and nothing that another job
    reads.
    """
    name, _ = named
    public = desk.file([f"a public note {number}" for number in range(60)])
    corpus = f"corpus-{uuid.uuid4().hex[:6]}"
    spec = {"name": corpus, "uri": public, "label_column": "label", "statement": "made up"}
    corpora.add(desk.engine, corpora.CorpusSpec.model_validate(spec), desk.steward)
    shown = lambda: corpora.show(desk.engine, corpus, desk.steward)["state"]  # noqa: E731
    wait_for(shown, lambda state: state == "ready")
    job_id = ask(desk, name, "rehearsal:tally", epsilon=1.0, rehearsal_corpus=corpus)
    job = desk.ended(job_id)
    assert job["state"] == "succeeded", job
    assert all(cost["main"] == "0" for each in job["entries"] for cost in each["costs"].values())
    assert set(reserved(desk, name, job_id)["source"]) == {"public"}
    assert integrity.check(desk.engine, name) == []
    rows = desk.rows(job_id)
    assert {(row.name, row.kind) for row in rows} == {
        ("counts", "rehearsal"),
        ("vector", "rehearsal"),
        ("report", "rehearsal-report"),
    }
    (sha256,) = (row.sha256 for row in rows if row.name == "report")
    report = stored.read(folder_of(rows[0]), {"report": sha256})["report"].json()
    assert (report["rehearses"], report["texts_read"], report["labels"]) == (
        "tally",
        48,
        "by chance",
    )
    assert desk.facts(name)["statements"][0]["text"] == "Nothing has been released."
    with pytest.raises(InvalidRequest, match="released no term-list"):
        ask(desk, name, "match", vocabulary=str(job_id), tally=str(job_id))
    with pytest.raises(InvalidRequest, match="its mechanism is rehearsal:tally"):
        ask(desk, name, "tally", from_job=str(job_id))


# --- several sources ----------------------------------------------------------------------------


def test_a_job_reads_records_and_what_two_others_released(desk, named, listed):
    name, _ = named
    allowances.allow(desk.engine, name, Allowance("10", "0.000001", "test"), desk.steward)
    tally = desk.ask(name, epsilon=1.0)
    assert desk.ended(tally)["state"] == "succeeded"
    job_id = ask(desk, name, "match", vocabulary=str(listed), tally=str(tally))
    job = desk.ended(job_id)
    assert job["state"] == "succeeded", job
    sources = reserved(desk, name, job_id)["source"]
    assert sources["version"] == 1
    assert sources["sources"] == {
        "vocabulary": {"job": str(listed), "artifacts": {"terms": desk.rows(listed)[0].sha256}},
        "tally": {"job": str(tally), "artifacts": {"counts": desk.rows(tally)[0].sha256}},
    }
    assert integrity.check(desk.engine, name) == []
    # The same after a steward's yes: the entry is written anew.
    with desk.engine.begin() as connection:
        nobody = (
            'UPDATE datasets SET policy = policy || \'{"auto_approve_epsilon": "0"}\' WHERE '
            "name = :name"
        )
        connection.execute(text(nobody), {"name": name})
    job_id = ask(desk, name, "match", vocabulary=str(listed), tally=str(tally))
    yes(desk.engine, job_id, desk.steward, "yes")
    assert desk.ended(job_id)["state"] == "succeeded"
    assert reserved(desk, name, job_id)["source"] == sources


@pytest.mark.parametrize("wrong", ["another kind", "another dataset", "nothing", "no id"])
def test_a_source_must_have_released_what_is_read(desk, named, listed, wrong):
    name, _ = named
    dataset, vocabulary = name, str(listed)
    match wrong:
        case "another dataset":
            dataset = desk.dataset(desk.file([uuid.uuid4().hex for _ in range(5)]))
        case "nothing":
            vocabulary = str(uuid.uuid4())
        case "no id":
            vocabulary = "terms"
    tally = str(listed) if wrong == "another kind" else str(uuid.uuid4())
    # A public job of another dataset serves this one too; no other job of it does.
    field = "tally" if wrong.startswith("another") else "vocabulary"
    with pytest.raises(InvalidRequest, match=rf"parameters\.{field}") as caught:
        ask(desk, dataset, "match", vocabulary=vocabulary, tally=tally)
    (problem,) = caught.value.problems
    assert (
        "released no noisy-counts" if wrong == "another kind" else "no job of this"
    ) in problem.problem
