"""A job whose mechanism uses no model names none, is decided at once and verifies."""

import pytest
from sqlalchemy import text

from accountant.core.errors import InvalidRequest
from accountant.core.ledger.export_formats import read_document, verify_lines
from accountant.core.privacy.composition import gaussian_mu
from accountant.core.privacy.events import FREE, Gaussian, Laplace, from_json
from accountant.core.privacy.units import to_decimal
from accountant.queries import datasets, entries, integrity, jobs
from accountant.transactions import leases, policies, settlement, submission
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.settlement import Output
from tests.support import yes


def ask(bench, model=None, mechanism="noisy-count", **parameters):
    request = JobRequest(bench.dataset, mechanism, model, parameters, "how many")
    return submission.submit(bench.engine, request, bench.analyst)


def test_a_count_is_reserved_without_a_look_at_a_model_and_its_ledger_verifies(open_bench):
    bench = open_bench
    job_id = ask(bench, epsilon=0.25)
    job = jobs.job(bench.engine, job_id, bench.analyst)
    assert (job["state"], job["model"]) == ("queued", None)
    claim = leases.claim(bench.engine, job_id, 1, "w", 60)
    assert claim.order.model is None
    leases.begin_reading(bench.engine, claim)
    settlement.publish(bench.engine, claim, Laplace(4.0), Output("/x", "0" * 64), "w")
    assert integrity.check(bench.engine, bench.dataset) == []
    verify_lines(entries.export(bench.engine, bench.dataset, bench.steward, "jsonl"))
    query = "SELECT document FROM entries WHERE job_id = :job AND kind = 'RESERVE'"
    with bench.engine.connect() as connection:
        document = connection.execute(text(query), {"job": job_id}).scalar_one()
    assert read_document(document)["body"]["model"] is None


def test_a_count_that_needs_approval_is_approved_and_one_in_a_list_of_models_is_not_refused(bench):
    from accountant.core.ledger.policy import Policy

    policies.set_policy(bench.engine, bench.dataset, Policy(models=("some-model",)), bench.steward)
    job_id = ask(bench)
    assert jobs.job(bench.engine, job_id, bench.analyst)["state"] == "awaiting_approval"
    yes(bench.engine, job_id, bench.steward, "fine")
    assert jobs.job(bench.engine, job_id, bench.analyst)["state"] == "queued"


@pytest.mark.parametrize("mechanism", ["noisy-count", "private-prediction"])
def test_a_model_is_named_where_one_runs_and_nowhere_else(bench, mechanism):
    model = bench.model if mechanism == "noisy-count" else None
    with pytest.raises(InvalidRequest, match="model"):
        ask(bench, model, mechanism)


def test_a_job_shows_what_stays_charged_and_not_what_its_commit_states(open_bench):
    """A price with a δ covers the whole job: where it ended early the basic filter returns nothing
    of it.
    """
    bench = open_bench
    job_id = ask(bench, bench.model, "summary-token", epsilon=0.5)
    if jobs.job(bench.engine, job_id, bench.analyst)["state"] == "submitted":
        bench.probe(job_id)
    whole = from_json(jobs.job(bench.engine, job_id, bench.analyst)["event"])
    claim = leases.claim(bench.engine, job_id, 1, "a worker", 60)
    leases.begin_reading(bench.engine, claim)
    settlement.publish(bench.engine, claim, whole.event, Output("/nowhere", "0" * 64), "a worker")
    reserved, charged = (
        each["costs"] for each in jobs.job(bench.engine, job_id, bench.analyst)["entries"]
    )
    assert 0 < int(charged["renyi"]["main"]) < int(reserved["renyi"]["main"])
    assert charged["basic"] == reserved["basic"]
    filters = datasets.dataset(bench.engine, bench.dataset, bench.auditor)["account"]["filters"]
    assert to_decimal(int(charged["basic"]["main"]), 10**9) == filters[-1]["spent"]


def test_a_count_is_charged_whole_whatever_its_meter_recorded(open_bench):
    """It is one draw: a record of none is a fault, and never a refund."""
    job_id = ask(open_bench, epsilon=0.5)
    claim = leases.claim(open_bench.engine, job_id, 1, "a worker", 60)
    leases.begin_reading(open_bench.engine, claim)
    settlement.publish(open_bench.engine, claim, FREE, Output("/nowhere", "0" * 64), "a worker")
    found = jobs.job(open_bench.engine, job_id, open_bench.analyst)["entries"]
    reserved, charged = (each["costs"] for each in found)
    assert charged == reserved
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def test_a_first_job_takes_the_account_for_whole_jobs_and_a_void_gives_it_back(open_bench):
    """On PostgreSQL, with its checks: reserved, cancelled, reserved again, published, verified."""
    bench = open_bench
    allowed = datasets.dataset(bench.engine, bench.dataset, bench.auditor)["account"]
    multiplier = 0.985 / gaussian_mu(float(allowed["epsilon"]), float(allowed["delta"])) * 1.02
    first = ask(bench, noise="gaussian", noise_multiplier=multiplier)
    assert jobs.job(bench.engine, first, bench.analyst)["state"] == "queued"
    shut = datasets.dataset(bench.engine, bench.dataset, bench.auditor)["account"]
    assert [each["closed_by"] for each in shut["filters"]] == [str(first)] * 3 + [None]
    assert shut["filters"][-1]["share"] == 1.0
    assert 0.9 < shut["used_share"] <= 1
    settlement.cancel(bench.engine, first, bench.analyst)
    assert datasets.dataset(bench.engine, bench.dataset, bench.auditor)["account"] == allowed
    job_id = ask(bench, noise="gaussian", noise_multiplier=multiplier)
    claim = leases.claim(bench.engine, job_id, 1, "w", 60)
    leases.begin_reading(bench.engine, claim)
    settlement.publish(bench.engine, claim, Gaussian(multiplier), Output("/x", "0" * 64), "w")
    assert integrity.check(bench.engine, bench.dataset) == []
    verify_lines(entries.export(bench.engine, bench.dataset, bench.steward, "jsonl"))
    late = ask(bench, noise="gaussian", epsilon=0.3)
    assert jobs.job(bench.engine, late, bench.analyst)["state"] == "refused"
