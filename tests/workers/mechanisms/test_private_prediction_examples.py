"""examples/private-prediction*.json as they stand, through the real relay, broker and workers."""

import json
import uuid
from pathlib import Path

import pytest

from accountant.catalogue import corpora, models
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import entries, integrity, jobs
from accountant.transactions import allowances, approval, artifacts, submission
from accountant.transactions.job_requests import JobRequest
from tests.workers.conftest import ROOT, SAMPLE, wait_for
from tests.workers.jobs.test_jobs import LABELS, Desk
from workers.jobs import artifacts as stored
from workers.sample import LABELS as EVERY_LABEL
from workers.sample import THEMES

pytestmark = pytest.mark.slow

#: What the examples call the bundled model's other use, and the bundled public reviews.
NAMES = {"public_corpus": "sample-public", "embedding": "sample-embedding"}
SECONDS = 400  # each takes about one minute of one core


@pytest.fixture(scope="module")
def desk(warm_engine, tmp_path_factory) -> Desk:
    engine = warm_engine
    made = Desk(engine, tmp_path_factory.mktemp("data"))
    spec = {
        "name": NAMES["public_corpus"],
        "uri": str(SAMPLE / "public_sample.csv"),
        "label_column": "label",
        "statement": "made up by workers/sample/corpus.py",
    }
    corpora.add(engine, corpora.CorpusSpec.model_validate(spec), made.steward)
    models.add_model(
        engine,
        NAMES["embedding"],
        str(SAMPLE / "model"),
        "public sample text",
        made.steward,
        kind="embedding",
    )
    wait_for(lambda: made.model_state(NAMES["embedding"])["state"], lambda state: state == "ready")
    corpus = lambda: corpora.show(engine, NAMES["public_corpus"], made.steward)  # noqa: E731
    wait_for(lambda: corpus()["state"], lambda state: state == "ready")
    return made


@pytest.fixture(scope="module")
def data(desk) -> dict[str, tuple[str, tuple[str, ...]]]:
    """(dataset, its labels) for each example: 24 clusters are two for each of all labels."""
    half, whole = desk.dataset(public_size=1500), desk.whole_dataset()
    for name in (half, whole):
        allowance = Allowance("30", "0.000001", "test", ex_post="5")
        allowances.allow(desk.engine, name, allowance, desk.steward)
    of = dict.fromkeys(("private-prediction", "private-prediction-median"), (half, LABELS))
    return of | {"private-prediction-clusters": (whole, EVERY_LABEL)}


def ended(desk: Desk, dataset: str, example: str) -> tuple[dict, list[dict]]:
    """The job of an example, and its texts."""
    request = json.loads((ROOT / "examples" / f"{example}.json").read_text())
    assert (request["dataset"], request["model"]) == ("sample-reviews", "sample-model")
    assert (
        NAMES.items()
        >= {name: request["parameters"][name] for name in NAMES.keys() & request["parameters"]}.items()
    )
    asked = JobRequest(dataset, request["mechanism"], desk.model, request["parameters"], request["purpose"])
    job_id = submission.submit(desk.engine, asked, desk.analyst)
    state = wait_for(lambda: desk.job(job_id)["state"], lambda state: state != "submitted")
    if state == "awaiting_approval":
        approval.approve(desk.engine, job_id, desk.steward, "fine")
    job = desk.ended(job_id, SECONDS)
    assert job["state"] == "succeeded", job
    assert job["progress"]["done"] == job["progress"]["total"]
    uri = jobs.output(desk.engine, job_id, desk.analyst).uri
    return job, [json.loads(line) for line in Path(uri).read_bytes().splitlines()]


@pytest.mark.parametrize(
    "example", ["private-prediction", "private-prediction-clusters", "private-prediction-median"]
)
def test_an_example_runs_pays_and_tells_what_the_private_reviews_are_about(desk, data, example):
    dataset, labels = data[example]
    job, texts = ended(desk, dataset, example)
    assert {each["label"] for each in texts} == set(labels)
    told = sum(THEMES[each["label"].split()[0]] in each["text"] for each in texts)
    # 2 % of the public reviews do, 95 % of the private ones, and 40 to 90 % of the texts. Half of the labels
    # give about 17: texts like the public reviews would get over a sixth in 1 run of 250, these fail to in
    # fewer than 1 of 1,000.
    assert told > len(texts) / 6
    reserved, committed = job["entries"]
    with desk.engine.connect() as connection:
        released = artifacts.of_job(connection, uuid.UUID(job["id"]))
    figures = {each["job"]: each for each in jobs.ex_post(desk.engine, dataset, desk.steward)}
    if example.endswith("median"):
        assert all(cost["main"] == "0" for cost in committed["costs"].values())
        assert released == []
        found = figures[job["id"]]
        assert 0 < float(found["realized"]) < 20
        assert len(found["curve"]["batches"]) == 2 * len(labels)
        assert found["curve"]["tokens"][-1] == 64
    else:
        assert reserved["costs"] == committed["costs"]
        assert job["id"] not in figures
    if example.endswith("clusters"):
        (row,) = released
        tensors = stored.read([row])["clusters"].tensors()
        assert tensors["counts"].shape == (len(labels), 40)
        assert tensors["batches"].sum(axis=1).tolist() == [2] * len(labels)
    assert integrity.check(desk.engine, dataset) == []
    verify_lines(entries.export(desk.engine, dataset, desk.steward, "jsonl"))
