"""examples/aug-pe.json, aug-pe-again.json and secpe.json through the real relay, broker and
workers.
"""

import json
import uuid
from pathlib import Path

import pytest

from accountant.catalogue import corpora
from accountant.core.ledger.allowances import Allowance, SecretDeclaration
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.privacy.blowup import Without
from accountant.core.privacy.secrets import SecretKind, SecretTerms
from accountant.queries import entries, integrity
from accountant.transactions import allowances, submission
from accountant.transactions.job_requests import JobRequest
from tests.support import other_people, yes
from tests.workers.conftest import ROOT, SAMPLE, published, wait_for
from tests.workers.jobs.test_jobs import LABELS, MANY, Desk

pytestmark = pytest.mark.slow

SECONDS = 400
#: Of the example's six epochs of eight samples with five variations.
SHORT = {"epochs": 2, "samples": 4, "variations": 2}
#: A word of six of the bundled reviews, and what is stated about it.
SECRET = "knees"
STATED = SecretTerms(1e-4, 0.005, 8, 0.5, Without.REMOVED)


@pytest.fixture(scope="module")
def desk(warm_engine, tmp_path_factory) -> Desk:
    return Desk(warm_engine, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def few(desk) -> Path:
    """The reviews of two labels."""
    return other_people(SAMPLE / "private.csv", desk.folder / "few.csv", LABELS[:2], MANY)


@pytest.fixture(scope="module")
def dataset(desk, few) -> str:
    """With what one such job needs."""
    name = desk.dataset(uri=str(few), labels=list(LABELS[:2]), public_size=200)
    allowances.allow(desk.engine, name, Allowance("6", "0.000001", "test"), desk.steward)
    return name


def ask(desk, dataset: str, example: str, **changes) -> uuid.UUID:
    request = json.loads((ROOT / "examples" / f"{example}.json").read_text())
    assert (request["dataset"], request["model"]) == ("sample-reviews", "sample-model")
    asked = JobRequest(
        dataset,
        request["mechanism"],
        desk.model,
        request["parameters"] | changes,
        request["purpose"],
    )
    return submission.submit(desk.engine, asked, desk.analyst)


def texts_of(desk, job: dict) -> list[dict]:
    path = published(desk.engine, job["id"], desk.analyst)
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture(scope="module")
def first(desk, dataset) -> dict:
    job = desk.ended(ask(desk, dataset, "aug-pe", **SHORT), SECONDS)
    assert job["state"] == "succeeded", job
    return job


def test_aug_pe_pays_its_price_and_publishes_its_samples(desk, dataset, first):
    reserved, committed = first["entries"]
    assert (reserved["kind"], committed["kind"]) == ("RESERVE", "COMMIT")
    assert reserved["costs"] == committed["costs"]
    assert first["progress"]["done"] == first["progress"]["total"]
    texts = texts_of(desk, first)
    assert {each["label"] for each in texts} == set(LABELS[:2])
    assert len(texts) == 8
    # That samples come nearer to the records is shown in test_aug_pe: eight texts are too few.


def test_a_later_job_runs_when_nothing_is_left_and_the_records_are_gone(desk, dataset, first, few):
    assert desk.ended(ask(desk, dataset, "aug-pe"))["state"] == "refused"
    away = few.rename(few.with_suffix(".away"))
    try:
        job = desk.ended(ask(desk, dataset, "aug-pe-again", from_job=first["id"]), SECONDS)
    finally:
        away.rename(few)
    assert job["state"] == "succeeded", job
    assert all(cost["main"] == "0" for entry in job["entries"] for cost in entry["costs"].values())
    texts = texts_of(desk, job)
    assert 20 < len(texts) <= 40
    assert job["progress"]["done"] == job["progress"]["total"]
    late = desk.ended(
        ask(desk, dataset, "aug-pe-again", from_job=first["id"], from_epoch=7), SECONDS
    )
    assert (late["state"], late["entries"][-1]["kind"]) == ("failed", "VOID")
    assert late["failure"].startswith("from_epoch: 7 is asked for")
    assert integrity.check(desk.engine, dataset) == []
    verify_lines(entries.export(desk.engine, dataset, desk.steward, "jsonl"))


# --- secpe --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def protected(desk) -> tuple[str, Path]:
    """(a dataset that declares a secret, its file), and the public corpus that the example
    names.
    """
    raw = {
        "name": f"public-{uuid.uuid4().hex[:6]}",
        "uri": str(SAMPLE / "public_sample.csv"),
        "label_column": "label",
        "statement": "made up by workers/sample/corpus.py",
    }
    corpora.add(desk.engine, corpora.CorpusSpec.model_validate(raw), desk.steward)
    shown = lambda: corpora.show(desk.engine, raw["name"], desk.steward)["state"]  # noqa: E731
    wait_for(shown, lambda state: state == "ready")
    path = other_people(SAMPLE / "private.csv", desk.folder / "protected.csv", LABELS[:2], MANY)
    policy = {"secret_jobs": True}
    changes = {
        "labels": list(LABELS[:2]),
        "public_size": 200,
        "secret_terms": [SECRET],
        "policy": policy,
    }
    name = desk.dataset(uri=str(path), **changes)
    allowed = Allowance(None, None, "test", secret=SecretDeclaration(STATED, SecretKind.ONE))
    allowances.allow(desk.engine, name, allowed, desk.steward)
    return name, raw["name"]


def approved(desk, job_id: uuid.UUID) -> dict:
    wait_for(lambda: desk.job(job_id), lambda job: job["state"] != "submitted")
    if desk.job(job_id)["state"] == "awaiting_approval":
        yes(desk.engine, job_id, desk.steward, "test")
    return desk.ended(job_id, SECONDS)


def test_secpe_pays_in_secrets_and_evolves_again_for_nothing(desk, protected):
    name, corpus = protected
    job = approved(desk, ask(desk, name, "secpe", public_corpus=corpus))
    assert job["state"] == "succeeded", job
    assert [entry["kind"] for entry in job["entries"]] == ["RESERVE", "COMMIT"]
    texts = texts_of(desk, job)
    assert len(texts) == 12
    assert job["progress"]["done"] == job["progress"]["total"]
    lines = list(entries.export(desk.engine, name, desk.steward, "jsonl"))
    verify_lines(lines)
    bodies = [json.loads(line) for line in lines if job["id"] in line]
    costs = {
        each["kind"]: each["body"]["secret"]
        for each in bodies
        if each["kind"] in ("RESERVE", "COMMIT")
    }
    assert costs["COMMIT"] == costs["RESERVE"]
    assert costs["COMMIT"]["release"]["rounds"] == 1
    spent = desk.facts(name)["secret"]
    again = {"from_job": job["id"], "public_corpus": None, "start": "samples", "iterations": 2}
    free = desk.ended(ask(desk, name, "secpe", **again), SECONDS)
    assert free["state"] == "succeeded", free
    assert desk.facts(name)["secret"] == spent
    assert integrity.check(desk.engine, name) == []


def test_a_corpus_smaller_than_the_clusters_is_refused_by_its_field(desk, protected):
    from accountant.core.errors import InvalidRequest

    name, corpus = protected
    with pytest.raises(InvalidRequest) as error:
        ask(desk, name, "secpe", public_corpus=corpus, clusters=501)
    (problem,) = error.value.problems
    assert (problem.field, problem.allowed) == ("parameters.clusters", "1 to 500")
