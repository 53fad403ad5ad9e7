"""examples/vocabulary.json, dp-kps.json and dp-kps-again.json through the real relay, broker and
workers.
"""

import json
import uuid

import pytest

from accountant.catalogue import corpora
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import entries, integrity
from accountant.transactions import allowances, artifacts, submission
from accountant.transactions.job_requests import JobRequest
from tests.workers.conftest import ROOT, SAMPLE, published, wait_for
from tests.workers.jobs.test_jobs import Desk
from workers.sample import LABELS, THEMES

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"


@pytest.fixture(scope="module")
def desk(warm_engine, tmp_path_factory) -> Desk:
    return Desk(warm_engine, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def dataset(desk) -> str:
    name = desk.whole_dataset()
    allowances.allow(desk.engine, name, Allowance("7", "0.000001", "test"), desk.steward)
    return name


@pytest.fixture(scope="module")
def corpus(desk) -> str:
    name = f"corpus-{uuid.uuid4().hex[:6]}"
    values = {"name": name, "uri": str(SAMPLE / "public_sample.csv"), "statement": "made up"}
    corpora.add(desk.engine, corpora.CorpusSpec(**values, label_column="label"), desk.steward)
    wait_for(
        lambda: corpora.show(desk.engine, name, desk.steward)["state"],
        lambda state: state == "ready",
    )
    return name


def ask(desk, dataset: str, example: str, **changes) -> uuid.UUID:
    request = json.loads((EXAMPLES / f"{example}.json").read_text())
    assert request["dataset"] == "sample-reviews"
    parameters = request["parameters"] | changes
    if parameters.get("writer") == "sample-model":
        parameters["writer"] = desk.model
    asked = JobRequest(dataset, request["mechanism"], None, parameters, request["purpose"])
    return submission.submit(desk.engine, asked, desk.analyst)


def texts_of(desk, job: dict) -> list[dict]:
    path = published(desk.engine, job["id"], desk.analyst)
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture(scope="module")
def listed(desk, dataset, corpus) -> dict:
    job = desk.ended(ask(desk, dataset, "vocabulary", corpus=corpus))
    assert job["state"] == "succeeded", job
    return job


@pytest.fixture(scope="module")
def first(desk, dataset, listed) -> dict:
    job = desk.ended(ask(desk, dataset, "dp-kps", vocabulary=listed["id"]))
    assert job["state"] == "succeeded", job
    return job


def test_a_list_that_is_too_short_is_named_and_costs_nothing(desk, dataset, listed):
    job = desk.ended(ask(desk, dataset, "dp-kps", vocabulary=listed["id"], vocabulary_size=5_000))
    assert (job["state"], [each["kind"] for each in job["entries"]]) == (
        "failed",
        ["RESERVE", "VOID"],
    )
    assert job["failure"].startswith("vocabulary_size: 5,000 of 540 terms")


def test_the_first_job_pays_both_parts_of_its_price(desk, dataset, first):
    reserved, committed = first["entries"]
    assert (reserved["kind"], committed["kind"]) == ("RESERVE", "COMMIT")
    assert reserved["costs"] == committed["costs"]
    assert first["progress"] == {"done": 24, "total": 24, "unit": "sequences"}
    assert {each["label"] for each in texts_of(desk, first)} <= set(LABELS)
    with desk.engine.connect() as connection:
        rows = artifacts.of_job(connection, uuid.UUID(first["id"]))
    assert [(row.name, row.kind) for row in rows] == [
        ("sketches", "phrase-sketches"),
        ("vocabulary", "noisy-vocabulary"),
    ]
    lines = list(entries.export(desk.engine, dataset, desk.steward, "jsonl"))
    verify_lines(lines)
    bodies = (json.loads(line)["body"] for line in lines if first["id"] in line)
    event = next(body["event"] for body in bodies if "event" in body)
    assert [(each["type"], each["noise_multiplier"]) for each in event["events"]] == [
        ("laplace", 1.0),
        ("laplace", 0.2),
    ]


def test_a_later_job_is_free_and_tells_what_private_reviews_are_about_when_nothing_is_left(
    desk, dataset, listed, first
):
    assert desk.ended(ask(desk, dataset, "dp-kps", vocabulary=listed["id"]))["state"] == "refused"
    for path in desk.folder.glob("*.csv"):
        path.unlink()  # the private records are gone, and nothing asks for them
    job = desk.ended(ask(desk, dataset, "dp-kps-again", from_job=first["id"]))
    assert job["state"] == "succeeded", job
    assert all(cost["main"] == "0" for entry in job["entries"] for cost in entry["costs"].values())
    texts = texts_of(desk, job)
    assert len(texts) == 1_200
    told = sum(THEMES[each["label"].split()[0]].split()[0] in each["text"] for each in texts)
    # 2 % of the public reviews have a theme, 95 % of the private ones
    assert told > len(texts) / 20
    assert integrity.check(desk.engine, dataset) == []
    verify_lines(entries.export(desk.engine, dataset, desk.steward, "jsonl"))


def test_a_later_job_writes_with_another_prompt_and_length(desk, dataset, first):
    changes = {
        "from_job": first["id"],
        "writer": "sample-model",
        "sequence_length": 2,
        "max_tokens": 40,
    }
    job = desk.ended(ask(desk, dataset, "dp-kps-smollm2", **changes))
    assert job["state"] == "succeeded", job
    assert [each["kind"] for each in job["entries"]] == ["RESERVE", "COMMIT"]
    assert texts_of(desk, job)
