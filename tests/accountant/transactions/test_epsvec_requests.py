"""Requests for EPSVec that can't run are refused by name, and nothing is reserved."""

import pytest

from accountant.core.errors import InvalidRequest
from accountant.queries import entries as entry_queries
from accountant.queries import jobs
from accountant.transactions import submission
from accountant.transactions.job_requests import JobRequest
from tests.support import Bench

FITS = {"epsilon": 1.0, "layers": "5-6", "samples_per_label": 50}


@pytest.fixture
def bench(engine) -> Bench:
    made = Bench(engine, label_column="label", labels=["good", "bad"])
    made.allow()
    return made


def ask(bench: Bench, **parameters: object) -> dict:
    request = JobRequest(bench.dataset, "epsvec", bench.model, FITS | parameters, "test")
    job_id = submission.submit(bench.engine, request, bench.analyst)
    if jobs.job(bench.engine, job_id, bench.analyst)["state"] == "submitted":
        bench.probe(job_id)
    return jobs.job(bench.engine, job_id, bench.analyst)


def test_a_layer_that_the_model_lacks_is_refused_before_anything_is_reserved(bench):
    assert ask(bench)["state"] != "refused"  # the model has 12 layers
    entries = len(entry_queries.entries(bench.engine, bench.dataset, bench.auditor))
    refused = ask(bench, layers="11-12")
    assert refused["state"] == "refused"
    assert refused["refusal"]["asked"] == "layers"
    assert "the model has 12 layers" in str(refused["refusal"])
    assert len(entry_queries.entries(bench.engine, bench.dataset, bench.auditor)) == entries


@pytest.mark.parametrize(
    ("raw", "field", "allowed"),
    [
        ({"label": "middling"}, "label", "good, bad"),
        ({"template": "A text:"}, "template", "exactly once"),
        ({"rejection": "judge"}, "judge", "language model"),
        ({"rejection": "judge", "judge": "nobody"}, "judge", ""),
        ({"layers": "9-5"}, "layers", "first-last"),
    ],
)
def test_other_bad_requests_name_their_field_and_what_is_allowed(bench, raw, field, allowed):
    entries = len(entry_queries.entries(bench.engine, bench.dataset, bench.auditor))
    with pytest.raises(InvalidRequest) as refused:
        ask(bench, **raw)
    (found,) = refused.value.problems
    assert found.field == f"parameters.{field}"
    assert allowed in found.allowed
    assert len(entry_queries.entries(bench.engine, bench.dataset, bench.auditor)) == entries
