"""The policy of a dataset: approvals that expire, caps on people and projects."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accountant.core.errors import Conflict, InvalidRequest
from accountant.core.ledger.caps import counted
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import from_json
from accountant.queries import integrity, quotes
from accountant.queries import jobs as job_queries
from accountant.transactions import asking, cap_usage, leases, policies, settlement, submission
from accountant.transactions.settlement import Output
from tests.support import Bench, kinds, person, yes


def state(bench: Bench, job_id) -> str:
    return job_queries.job(bench.engine, job_id, bench.steward)["state"]


def policy(bench: Bench, **values: object) -> None:
    policies.set_policy(bench.engine, bench.dataset, Policy(**values), bench.steward)


def run(bench: Bench, sql: str, **values: object):
    with bench.engine.begin() as connection:
        return connection.execute(text(sql), values)


def used(bench: Bench, project: str | None = None):
    query = text("SELECT id FROM datasets WHERE name = :name")
    with bench.engine.connect() as connection:
        dataset = connection.execute(query, {"name": bench.dataset}).scalar_one()
        holders = cap_usage.holders_of(bench.analyst.id, project)
        return cap_usage.used(connection, dataset, holders)


# --- approvals that expire ----------------------------------------------------------------------


@pytest.fixture
def waiting(bench):
    """A job that awaits approval under a policy of three days, two of which are over."""
    bench.warm()
    policy(bench, approval_days=3)
    job_id = bench.submit(10)
    run(
        bench,
        "UPDATE jobs SET approval_expires = approval_expires - interval '2 days' WHERE id = :id",
        id=job_id,
    )
    return job_id


def overdue(bench, job_id) -> None:
    run(
        bench,
        "UPDATE jobs SET approval_expires = approval_expires - interval '2 days' WHERE id = :id",
        id=job_id,
    )


def test_a_sweep_expires_what_is_overdue_and_nothing_else_and_may_run_twice(bench, waiting):
    assert asking.sweep(bench.engine) == 0
    assert state(bench, waiting) == "awaiting_approval"
    overdue(bench, waiting)
    assert asking.sweep(bench.engine) == 1
    assert asking.sweep(bench.engine) == 0
    assert state(bench, waiting) == "expired"
    assert used(bench).analyst == 0
    assert integrity.check(bench.engine, bench.dataset) == []


def test_an_overdue_request_can_not_be_approved_and_is_expired_by_the_attempt(bench, waiting):
    overdue(bench, waiting)
    with pytest.raises(Conflict, match="expired"):
        yes(bench.engine, waiting, bench.steward, "late")
    assert state(bench, waiting) == "expired"
    with pytest.raises(Conflict, match="expired"):
        yes(bench.engine, waiting, bench.steward, "later still")
    assert kinds(bench) == ["ALLOW"]


def test_a_request_in_time_is_approved(bench, waiting):
    yes(bench.engine, waiting, bench.steward, "in time")
    assert state(bench, waiting) == "queued"
    overdue(bench, waiting)
    assert asking.sweep(bench.engine) == 0


# --- caps ---------------------------------------------------------------------------------------


def test_a_cap_counts_live_and_charged_jobs_by_their_stand_alone_epsilon(open_bench):
    bench = open_bench
    first, second = bench.submit(10), bench.submit(20)
    whole = [job_queries.job(bench.engine, each, bench.steward) for each in (first, second)]
    together = sum(counted(each["epsilon_alone"]) for each in whole)
    assert used(bench).analyst == together
    claim = leases.claim(bench.engine, first, 1, "worker", 60)
    leases.begin_reading(bench.engine, claim)
    settlement.publish(
        bench.engine, claim, from_json(whole[0]["event"]), Output("x", "0" * 64), "worker"
    )
    assert used(bench).analyst == together
    settlement.cancel(bench.engine, second, bench.analyst)
    assert used(bench).analyst == counted(whole[0]["epsilon_alone"])
    assert integrity.check(bench.engine, bench.dataset) == []


def test_a_refusal_by_a_cap_names_it_with_the_largest_that_fits(open_bench):
    bench = open_bench
    policy(bench, auto_approve_epsilon="10", analyst_epsilon="2")
    refused = job_queries.job(bench.engine, bench.submit(200), bench.analyst)["refusal"]
    assert refused["cap"] == "analyst cap"
    assert refused["left"] == "2"
    assert float(refused["asked"]) > 2
    assert used(bench).analyst == 0
    largest = refused["largest"]
    assert refused["size_field"] == "tokens_per_batch"
    assert state(bench, bench.submit(largest + 1)) == "refused"
    assert state(bench, bench.submit(largest)) == "queued"
    other = person(bench.engine, "analyst")
    assert state(bench, submission.submit(bench.engine, bench.request(largest), other)) == "queued"


def test_a_project_is_shared_by_its_people_and_must_be_named_where_it_is_capped(open_bench):
    bench = open_bench
    policy(bench, auto_approve_epsilon="10", project_epsilon="4")
    with pytest.raises(InvalidRequest, match="project"):
        bench.submit(10)
    with pytest.raises(InvalidRequest, match="project"):
        submission.submit(
            bench.engine, replace(bench.request(10), project="No Name"), bench.analyst
        )
    request = replace(bench.request(40), project="atlas")
    assert state(bench, submission.submit(bench.engine, request, bench.analyst)) == "queued"
    other = person(bench.engine, "analyst")
    job = job_queries.job(bench.engine, submission.submit(bench.engine, request, other), other)
    assert job["refusal"]["cap"] == "project cap"
    elsewhere = replace(request, project="borealis")
    assert state(bench, submission.submit(bench.engine, elsewhere, other)) == "queued"
    assert integrity.check(bench.engine, bench.dataset) == []


def test_a_project_is_part_of_a_request_and_requests_without_one_keep_their_identity(bench):
    plain = bench.request(10)
    assert (
        replace(plain, project="a").sha256()
        != replace(plain, project="b").sha256()
        != plain.sha256()
    )
    assert "project" not in repr(replace(plain, project=None).sha256())


def test_twenty_threads_never_pass_a_cap(open_bench):
    bench = open_bench
    policy(bench, auto_approve_epsilon="10", analyst_epsilon="3")
    with ThreadPoolExecutor(20) as pool:
        jobs = list(pool.map(lambda _: bench.submit(10), range(40)))
    states = [state(bench, each) for each in jobs]
    alone = counted(job_queries.job(bench.engine, jobs[0], bench.steward)["epsilon_alone"])
    room = 3 * 10**9 // alone
    assert 1 < room < 40
    assert states.count("queued") == room
    assert states.count("refused") == 40 - room
    assert used(bench).analyst == room * alone
    assert integrity.check(bench.engine, bench.dataset) == []


@pytest.mark.parametrize("change", ["reserved = cap + 1", "reserved = -1", "spent = -1"])
def test_the_database_refuses_sums_beyond_a_cap(open_bench, change):
    policy(open_bench, auto_approve_epsilon="10", analyst_epsilon="3")
    open_bench.submit(10)
    with pytest.raises(DBAPIError, match="ck_usage"):
        run(open_bench, f"UPDATE usage SET {change} WHERE cap IS NOT NULL")


def test_a_sum_that_is_not_that_of_the_jobs_is_found(open_bench):
    open_bench.submit(10)
    run(
        open_bench,
        "UPDATE usage SET reserved = reserved + 1 WHERE holder = :holder",
        holder=str(open_bench.analyst.id),
    )
    assert "sums of analyst" in integrity.check(open_bench.engine, open_bench.dataset)[0]


def test_a_cap_below_what_is_used_stops_the_next_job_and_harms_no_running_one(open_bench):
    bench = open_bench
    job_id = bench.submit(50)
    policy(bench, auto_approve_epsilon="10", analyst_epsilon="0.001")
    assert state(bench, bench.submit(1)) == "refused"
    settlement.cancel(bench.engine, job_id, bench.analyst)
    assert used(bench).analyst == 0


@pytest.mark.parametrize("field", ["analyst_epsilon", "project_epsilon"])
@pytest.mark.parametrize("value", ["-1", "NaN", "x", "1e-30"])
def test_caps_that_are_no_amounts_are_errors_that_name_the_field(bench, field, value):
    with pytest.raises(InvalidRequest, match=field):
        policy(bench, **{field: value})


def test_what_is_fitted_on_a_dataset_is_the_most_that_is_then_admitted(open_bench):
    bench = open_bench
    policy(bench, auto_approve_epsilon="10", analyst_epsilon="2")
    raw = {
        name: value
        for name, value in bench.request(10).parameters.items()
        if name != "tokens_per_batch"
    }
    raw.pop("max_text_tokens", None)
    quoted = quotes.quote_on(
        bench.engine,
        bench.dataset,
        "private-prediction",
        raw,
        "tokens_per_batch",
        viewer=bench.analyst,
    )
    assert quoted["dataset"]["decision"] == "Admitted"
    assert quoted["dataset"]["jobs_of_this_shape"] == 1
    largest = quoted["fit"]["value"]
    assert state(bench, bench.submit(largest + 1)) == "refused"
    assert state(bench, bench.submit(largest)) == "queued"
