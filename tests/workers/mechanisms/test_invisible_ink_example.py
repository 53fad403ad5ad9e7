"""The example of invisible-ink runs as it stands, with the bundled model and data; with shorter
texts for each change.
"""

import hashlib
import json
from pathlib import Path

import pytest

from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import entries, integrity
from accountant.transactions import allowances, submission
from accountant.transactions.job_requests import JobRequest
from tests.workers.conftest import ROOT, published
from tests.workers.jobs.test_jobs import LABELS, MANY, Desk

pytestmark = pytest.mark.slow

EXAMPLES = [ROOT / "examples" / "invisible-ink.json"]  # the others have tests of their own


@pytest.fixture(scope="module")
def desk(warm_engine, tmp_path_factory) -> Desk:
    return Desk(warm_engine, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def dataset(desk) -> str:
    name = desk.dataset(MANY, public_size=1500)
    allowances.allow(desk.engine, name, Allowance("30", "0.000001", "test"), desk.steward)
    return name


@pytest.mark.parametrize(
    "changed", [{"max_tokens": 16}, pytest.param({}, marks=pytest.mark.release)], ids=str
)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_is_charged_and_publishes_a_text_of_each_label(
    desk, dataset, path: Path, changed
):
    request = json.loads(path.read_text())
    assert (request["dataset"], request["model"]) == ("sample-reviews", "sample-model")
    assert path.stem == request["mechanism"]
    parameters = {**request["parameters"], **changed}
    asked = JobRequest(dataset, request["mechanism"], desk.model, parameters, request["purpose"])
    job = desk.ended(submission.submit(desk.engine, asked, desk.analyst))
    assert job["state"] == "succeeded", job
    assert job["progress"]["done"] == job["progress"]["total"]
    reserved, committed = (entry["costs"] for entry in job["entries"])
    assert [entry["kind"] for entry in job["entries"]] == ["RESERVE", "COMMIT"]
    assert committed.keys() == reserved.keys()
    path = published(desk.engine, job["id"], desk.analyst)
    data = path.read_bytes()
    assert hashlib.sha256(data).hexdigest() == job["output_sha256"]
    texts = [json.loads(line) for line in data.splitlines()]
    assert {each["label"] for each in texts} == set(LABELS)
    # What they tell is drawn: twelve texts are too few to be sure that some have their label's
    # theme.
    assert integrity.check(desk.engine, dataset) == []
    verify_lines(entries.export(desk.engine, dataset, desk.steward, "jsonl"))
