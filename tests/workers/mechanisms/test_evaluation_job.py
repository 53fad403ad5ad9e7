"""An evaluation as a job: a real worker, a published output, a public corpus, and nothing
charged.
"""

import json
import uuid

import pytest

from accountant.catalogue import corpora, models
from accountant.core.errors import InvalidRequest
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import entries
from accountant.transactions import allowances, artifacts, submission
from accountant.transactions.job_requests import JobRequest
from tests.workers.conftest import SAMPLE, published, result, wait_for
from tests.workers.jobs.test_jobs import FEW, Desk, desk  # noqa: F401  (the fixture)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def named(desk: Desk) -> dict[str, str]:  # noqa: F811
    """A corpus and an embedding model, registered and found right by a worker."""
    corpus, embedding = f"corpus-{uuid.uuid4().hex[:6]}", f"embedding-{uuid.uuid4().hex[:6]}"
    spec = corpora.CorpusSpec(
        name=corpus,
        uri=str(SAMPLE / "public_sample.csv"),
        label_column="label",
        statement="made for the demo",
    )
    corpora.add(desk.engine, spec, desk.steward)
    models.add_model(
        desk.engine,
        embedding,
        str(SAMPLE / "model"),
        "public sample text",
        desk.steward,
        "embedding",
    )
    wait_for(lambda: desk.model_state(embedding)["state"], lambda state: state != "checking")
    wait_for(
        lambda: {each["name"]: each for each in corpora.listing(desk.engine, desk.steward)}[corpus][
            "state"
        ],
        lambda state: state == "ready",
    )
    return {"corpus": corpus, "embedding": embedding}


@pytest.fixture(scope="module")
def texts(desk: Desk) -> tuple[str, str]:  # noqa: F811
    """(dataset, a job on it that wrote texts), and nothing of the allowance is left for another."""
    dataset = desk.dataset(FEW)
    allowances.allow(desk.engine, dataset, Allowance("10", "0.000001", "test"), desk.steward)
    job_id = desk.submit(dataset, tokens_per_batch=96, max_text_tokens=16, record_tokens=32)
    assert desk.ended(job_id)["state"] == "succeeded"
    return dataset, str(job_id)


def ask(desk: Desk, dataset: str, **parameters):  # noqa: F811
    request = JobRequest(dataset, "evaluation", None, parameters, "how good is it")
    return submission.submit(desk.engine, request, desk.analyst)


def test_it_is_free_and_leaves_figures_and_a_report(desk, named, texts):  # noqa: F811
    dataset, source = texts
    before = desk.facts(dataset)["account"]
    job_id = ask(desk, dataset, from_job=source, metrics="mauve, lengths, openings, tstr", **named)
    job = desk.ended(job_id)
    assert job["state"] == "succeeded", job["failure"]
    assert desk.facts(dataset)["account"]["filters"] == before["filters"]
    lines = published(desk.engine, job_id, desk.analyst).read_text().splitlines()
    figures = [json.loads(line) for line in lines]
    assert [each["name"] for each in figures][:2] == ["MAUVE", "Length distance"]
    assert "MAUVE needs 100 texts" in figures[0]["sentence"]  # and takes no other down
    assert all(each["value"] is not None for each in figures[1:3])
    assert all("real texts" in each["beside"] for each in figures)
    (report,) = artifacts.listing(desk.engine, desk.analyst, job=job_id)
    page = result(report["sha256"]).read_text()
    assert "<svg" in page
    assert source in page
    verify_lines(entries.export(desk.engine, dataset, desk.steward, "jsonl"))


def test_it_needs_a_job_that_its_asker_may_read(desk, named, texts):  # noqa: F811
    dataset, source = texts
    other = desk.dataset()
    for wrong in (str(uuid.uuid4()), "x" * 36):
        with pytest.raises(InvalidRequest, match="from_job"):
            ask(desk, dataset, from_job=wrong, **named)
    with pytest.raises(InvalidRequest, match="from_job"):
        ask(desk, other, from_job=source, **named)
    with pytest.raises(InvalidRequest, match="corpus"):
        ask(desk, dataset, from_job=source, corpus="nowhere", embedding=named["embedding"])
    with pytest.raises(InvalidRequest, match="embedding"):
        ask(desk, dataset, from_job=source, corpus=named["corpus"], embedding=desk.model)
