"""examples/epsvec.json and examples/epsvec-again.json through the real relay, broker and
workers.
"""

import json
import uuid

import pytest

from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import entries, integrity
from accountant.transactions import allowances, artifacts, submission
from accountant.transactions.job_requests import JobRequest
from tests.workers.conftest import ROOT, published, result
from tests.workers.jobs.test_jobs import LABELS, MANY, Desk
from workers.sample import THEMES

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"
#: Of the example's 24 candidates, 48 partners and 16 texts.
SHORT = {"candidates": 6, "partners": 8, "samples": 4}


@pytest.fixture(scope="module")
def desk(warm_engine, tmp_path_factory) -> Desk:
    return Desk(warm_engine, tmp_path_factory.mktemp("data"))


def with_allowance(desk, most: int | None) -> str:
    """So many of the bundled reviews of a label, with what one such job needs."""
    name = desk.dataset(most, public_size=1500)
    allowances.allow(desk.engine, name, Allowance("8", "0.000001", "test"), desk.steward)
    return name


@pytest.fixture(scope="module")
def dataset(desk) -> str:
    return with_allowance(desk, MANY)


def ask(desk, dataset: str, example: str, **changes) -> uuid.UUID:
    request = json.loads((EXAMPLES / f"{example}.json").read_text())
    assert (request["dataset"], request["model"]) == ("sample-reviews", "sample-model")
    parameters = {
        name: value for name, value in (request["parameters"] | changes).items() if value != ""
    }
    asked = JobRequest(dataset, request["mechanism"], desk.model, parameters, request["purpose"])
    return submission.submit(desk.engine, asked, desk.analyst)


def texts_of(desk, job: dict) -> list[dict]:
    path = published(desk.engine, job["id"], desk.analyst)
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def tells_of_private_reviews(texts: list[dict]) -> bool:
    """2 % of the public reviews name their theme, 95 % of the private ones; of five jobs 22 to 60
    texts of 96 did.
    """
    told = sum(THEMES[each["label"].split()[0]] in each["text"] for each in texts)
    return told > len(texts) / 20


@pytest.fixture(scope="module")
def first(desk, dataset) -> dict:
    job = desk.ended(ask(desk, dataset, "epsvec", **SHORT))
    assert job["state"] == "succeeded", job
    return job


@pytest.mark.release
def test_the_whole_example_tells_what_the_private_reviews_are_about(desk):
    """One noise in about twenty hides what they are about."""
    jobs = (desk.ended(ask(desk, with_allowance(desk, None), "epsvec")) for _ in range(2))
    assert any(tells_of_private_reviews(texts_of(desk, job)) for job in jobs)


def test_the_first_job_pays_its_price_and_holds_no_private_text(desk, dataset, first):
    reserved, committed = first["entries"]
    assert (reserved["kind"], committed["kind"]) == ("RESERVE", "COMMIT")
    assert reserved["costs"] == committed["costs"]
    assert first["progress"]["done"] == first["progress"]["total"]
    texts = texts_of(desk, first)
    assert {each["label"] for each in texts} == set(LABELS)
    with desk.engine.connect() as connection:
        rows = artifacts.of_job(connection, uuid.UUID(first["id"]))
    assert [(row.name, row.kind) for row in rows] == [
        ("shots", "fixed-shots"),
        ("vectors", "dataset-vectors"),
    ]
    private = (ROOT / "workers" / "sample" / "private.csv").read_text()
    (shots,) = (json.loads(result(row.sha256).read_bytes()) for row in rows if row.name == "shots")
    assert not any(shot["text"] in private for each in shots["labels"] for shot in each["shots"])


def test_a_later_job_is_free_and_runs_when_nothing_is_left(desk, dataset, first):
    assert desk.ended(ask(desk, dataset, "epsvec"))["state"] == "refused"
    job = desk.ended(ask(desk, dataset, "epsvec-again", from_job=first["id"]))
    assert job["state"] == "succeeded", job
    assert all(cost["main"] == "0" for entry in job["entries"] for cost in entry["costs"].values())
    texts = texts_of(desk, job)
    assert {each["label"] for each in texts} == {"hotel negative"}
    assert len(texts) > 30
    assert integrity.check(desk.engine, dataset) == []
    verify_lines(entries.export(desk.engine, dataset, desk.steward, "jsonl"))


def test_a_later_job_that_does_not_fit_the_model_is_void_and_says_why(desk, dataset, first):
    job = desk.ended(ask(desk, dataset, "epsvec-again", from_job=first["id"], max_tokens=500))
    assert job["state"] == "failed"
    assert job["failure"].startswith("max_tokens")
    assert job["entries"][-1]["kind"] == "VOID"


def test_a_layer_that_the_model_lacks_is_refused_before_anything_is_reserved(desk, dataset):
    job = desk.ended(ask(desk, dataset, "epsvec", layers="3-4"))
    assert (job["state"], job["refusal"]["cap"], job["entries"]) == ("refused", "model", [])
    assert "layers" in job["refusal"]["why"]
