"""A policy that is set while something waits: a probe, a steward, the account's row."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import text, update

from accountant import tables
from accountant.catalogue import datasets
from accountant.core.errors import Conflict
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.caps import counted
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import from_json
from accountant.queries import entries, integrity, jobs
from accountant.transactions import (
    allowances,
    job_requests,
    policies,
    registrations,
    settlement,
    submission,
)
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from tests.support import Bench, awaiting, found_right, kinds, somebody, yes

EXCLUDES = [
    ({"mechanisms": ("noisy-count",)}, "private-prediction"),
    ({"analysts": ("somebody-else",)}, "analyst"),
    ({"models": ("another-model",)}, "model"),
    ({"project_epsilon": "100"}, "project"),
]


def policy(bench: Bench, **values: object) -> None:
    for name in values.get("analysts", ()):
        somebody(bench.engine, name)
    policies.set_policy(bench.engine, bench.dataset, Policy(**values), bench.steward)


def job(bench: Bench, job_id) -> dict:
    return jobs.job(bench.engine, job_id, bench.steward)


@pytest.mark.parametrize(("values", "named"), EXCLUDES)
def test_a_job_that_waits_for_its_probe_is_decided_under_the_policy_of_then(bench, values, named):
    policy(bench, auto_approve_epsilon="100")
    waiting = bench.submit(10)
    assert job(bench, waiting)["state"] == "submitted"
    policy(bench, auto_approve_epsilon="100", **values)
    bench.probe(waiting)
    found = job(bench, waiting)
    assert (found["state"], found["refusal"]["cap"]) == ("refused", "policy")
    assert named in found["refusal"]["why"]
    assert kinds(bench) == ["ALLOW"]


@pytest.mark.parametrize(("values", "named"), EXCLUDES)
def test_nobody_approves_what_the_policy_excludes_by_now(bench, values, named):
    bench.warm()
    waiting = bench.submit(10)
    policy(bench, **values)
    with pytest.raises(Conflict, match=named):
        yes(bench.engine, waiting, bench.steward, "fine")
    assert job(bench, waiting)["state"] == "awaiting_approval"
    assert kinds(bench) == ["ALLOW"]
    policy(bench)
    yes(bench.engine, waiting, bench.steward, "allowed again")
    assert job(bench, waiting)["state"] == "queued"


def test_a_job_of_no_project_does_not_slip_under_a_cap_on_projects(bench):
    """Its project would be nobody's, with nothing used."""
    bench.warm()
    waiting = [bench.submit(10), submission.submit(bench.engine, _named(bench), bench.analyst)]
    policy(bench, project_epsilon="100")
    with pytest.raises(Conflict, match="project"):
        yes(bench.engine, waiting[0], bench.steward, "fine")
    yes(bench.engine, waiting[1], bench.steward, "fine")
    assert job(bench, waiting[1])["state"] == "queued"


def _named(bench: Bench) -> job_requests.JobRequest:
    return replace(bench.request(10), project="atlas")


def at(bench: Bench, tokens: int) -> dict[str, float]:
    """Return the cost of a job of this many tokens by itself, by δ of the allowance."""
    found = from_json(job(bench, bench.submit(tokens))["event"])
    return {delta: epsilon_alone(found, float(delta))[0] for delta in ("1e-6", "1e-9")}


@pytest.mark.parametrize("cap", ["auto_approve_epsilon", "analyst_epsilon", "project_epsilon"])
def test_a_job_that_waits_for_its_probe_is_judged_at_the_delta_of_then(bench, cap):
    """At the δ under which it was asked for it would have run at once."""
    bench.allow("10", "1e-6")
    waiting = submission.submit(bench.engine, _named(bench), bench.analyst)
    cost = at(bench, 10)
    between = str((cost["1e-6"] + cost["1e-9"]) / 2)
    policy(bench, **{"auto_approve_epsilon": "100", cap: between})
    bench.allow("10", "1e-9")
    found = job(bench, waiting)
    assert (found["delta"], found["epsilon_alone"]) == (1e-9, pytest.approx(cost["1e-9"]))
    bench.probe(waiting)
    found = job(bench, waiting)
    assert found["state"] == ("awaiting_approval" if cap == "auto_approve_epsilon" else "refused")
    assert (found["delta"], found["epsilon_alone"]) == (1e-9, pytest.approx(cost["1e-9"]))


def test_what_a_steward_approves_is_stated_and_counted_at_the_delta_of_then(bench):
    bench.allow("10", "1e-6")
    bench.warm()
    waiting, cost = bench.submit(10), at(bench, 10)
    bench.allow("10", "1e-9")
    assert job(bench, waiting)["epsilon_alone"] == pytest.approx(cost["1e-9"])
    listed = awaiting(bench.engine, bench.steward, bench.dataset)
    (shown,) = (request for request in listed if request.id == str(waiting))
    assert (shown["delta"], shown["epsilon_alone"]) == (1e-9, pytest.approx(cost["1e-9"]))
    yes(bench.engine, waiting, bench.steward, "fine")
    reserve = entries.entries(bench.engine, bench.dataset, bench.auditor)[0]["body"]
    assert reserve["terms"]["delta"] == 1e-9
    with bench.engine.connect() as connection:
        held = connection.execute(
            text("SELECT reserved FROM usage WHERE kind = 'analyst' AND holder = :id"),
            {"id": str(bench.analyst.id)},
        ).scalar_one()
    assert held == counted(cost["1e-9"])
    bench.allow("10", "1e-6")  # what was decided stays as it was decided
    assert job(bench, waiting)["delta"] == 1e-9
    assert integrity.check(bench.engine, bench.dataset) == []
    settlement.cancel(bench.engine, waiting, bench.analyst)
    assert integrity.check(bench.engine, bench.dataset) == []


def test_a_raise_that_waited_for_the_row_is_judged_by_the_policy_of_then(bench):
    """Two people were asked for, and committed, before the entry could be written."""
    raised, told = Allowance("20", "0.0000029053", "more"), []

    def act() -> None:
        told.append(allowances.allow(bench.engine, bench.dataset, raised, bench.steward))

    with writing(bench.engine) as connection:
        locked = LockedAccount(connection, bench.dataset)
        thread = threading.Thread(target=act)
        thread.start()
        _until_somebody_waits(bench)
        both = Policy(two_people=True)
        registrations.state_policy(locked, both, bench.steward.name)
        connection.execute(
            update(tables.datasets)
            .where(tables.datasets.c.name == bench.dataset)
            .values(policy=both.model_dump())
        )
    thread.join(30)
    assert kinds(bench) == ["ALLOW"]
    (proposal,) = told
    assert proposal is not None


def _until_somebody_waits(bench: Bench) -> None:
    query = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    for _ in range(500):
        with bench.engine.connect() as connection:
            if connection.execute(query).scalar_one():
                return
        time.sleep(0.02)
    raise AssertionError("nobody waits for the row")


def test_policies_versions_and_requests_at_once_wait_for_each_other_and_never_in_a_circle(
    open_bench,
):
    """All take the account's row before the dataset's, or only one of them."""
    engine, dataset, steward = open_bench.engine, open_bench.dataset, open_bench.steward

    def ask(number: int) -> None:
        submission.submit(engine, open_bench.request(1), open_bench.analyst)

    def set_policy(number: int) -> None:
        policy(open_bench, auto_approve_epsilon=str(10 + number))

    def add_version(number: int) -> None:
        found_right(
            engine, datasets.add_version(engine, dataset, {"uri": f"/{number}.csv"}, steward)
        )

    with ThreadPoolExecutor(12) as pool:
        sent = [
            pool.submit(act, n) for n in range(15) for act in (ask, set_policy, ask, add_version)
        ]
    assert [future.exception() for future in sent] == [None] * 60
    assert integrity.check(engine, dataset) == []
