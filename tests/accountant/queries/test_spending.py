"""Spending of an allowance: the sums are the balances, kept or not, and analysts see what they
may.
"""

import datetime
import uuid

import pytest

from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import from_json
from accountant.queries import datasets, integrity, jobs, spending
from accountant.transactions import (
    allowances,
    corrections,
    leases,
    policies,
    spending_sums,
    submission,
)
from accountant.transactions import settlement as ledger
from tests.support import Bench, person, yes

pytestmark = pytest.mark.slow


@pytest.fixture
def busy(engine) -> Bench:
    """A dataset with entries of every kind, by two people."""
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    bench.allow("10")
    bench.warm()
    other = person(engine, "analyst")
    for tokens in (5, 7, 9):
        job_id = submission.submit(engine, bench.request(tokens), other)
        ended(bench, job_id)
    ledger.cancel(engine, bench.submit(3), bench.analyst)
    corrected = bench.submit(4)
    ended(bench, corrected)
    asked = from_json(job(bench, bench.submit(6))["event"])
    from accountant.core.privacy.events import to_json

    found = corrections.correct(
        engine, corrected, bench.steward, "it released more", event=to_json(asked)
    )
    yes(engine, found, person(engine, "steward"), "seen")
    bench.allow("12")
    bench.other = other
    return bench


def job(bench: Bench, job_id: uuid.UUID) -> dict:
    return jobs.job(bench.engine, job_id, bench.auditor)


def ended(bench: Bench, job_id: uuid.UUID) -> None:
    claim = leases.claim(bench.engine, job_id, 1, "a worker", 60)
    leases.begin_reading(bench.engine, claim)
    event = from_json(job(bench, job_id)["event"])
    ledger.publish(bench.engine, claim, event, ledger.Output("/nowhere", "0" * 64), "a worker")


def summed(found: dict, name: str) -> int:
    return sum(round(float(each[name]) * 10**9) for each in found["spending"])


def test_all_sums_together_are_the_balances(busy):
    found = spending.figures(busy.engine, busy.dataset, busy.auditor)
    filters = datasets.dataset(busy.engine, busy.dataset, busy.auditor)["account"]["filters"]
    measured = {each["name"]: each for each in found["measures"]}
    for each in filters:
        used = round((float(each["spent"]) + float(each["reserved"])) * 10**9)
        assert (
            summed(found, each["kind"])
            == used
            == round(float(measured[each["kind"]]["used"]) * 10**9)
        )
        assert found["burn_down"][-1][each["kind"]] == each["left"]
    assert sum(each["jobs"] for each in found["spending"]) == 5
    assert found["through"] == found["entries"]
    assert integrity.check(busy.engine, busy.dataset) == []


@pytest.mark.parametrize("steps", [1, 3, 100])
def test_kept_sums_answer_as_the_entries_do(busy, monkeypatch, steps):
    before = spending.figures(busy.engine, busy.dataset, busy.auditor)
    monkeypatch.setattr(spending_sums, "WORTH_KEEPING", 1)
    monkeypatch.setattr(spending_sums, "AT_ONCE", steps)
    monkeypatch.setattr(spending_sums, "TRANSACTIONS", 1)
    spending_sums.roll(busy.engine)  # a part of a day: the rest is read from the entries
    for _ in range(2):
        now = spending.figures(busy.engine, busy.dataset, busy.auditor)
        assert now["spending"] == before["spending"]
        assert now["measures"] == before["measures"]
        assert now["burn_down"][-1] | {"at": ""} == before["burn_down"][-1] | {"at": ""}
        assert integrity.check(busy.engine, busy.dataset) == []
        while spending_sums.roll(busy.engine):
            pass


def test_a_wrong_sum_is_found(busy, monkeypatch):
    from sqlalchemy import text

    monkeypatch.setattr(spending_sums, "WORTH_KEEPING", 1)
    spending_sums.roll(busy.engine)
    with busy.engine.begin() as connection:
        connection.execute(text("UPDATE spending SET renyi = renyi + 1"))
    assert any("spending on renyi" in each for each in integrity.check(busy.engine, busy.dataset))


def test_an_analyst_sees_their_own_and_the_sum_of_others(busy):
    found = spending.figures(busy.engine, busy.dataset, busy.analyst)
    month = datetime.datetime.now(datetime.UTC).strftime("%Y-%m")
    assert [(each["analyst"], each["mechanism"], each["month"]) for each in found["spending"]] == [
        (busy.analyst.name, "private-prediction", month),
        (None, None, month),
    ]
    whole = spending.figures(busy.engine, busy.dataset, busy.auditor)
    assert summed(found, "renyi") == summed(whole, "renyi")
    assert len(found["burn_down"]) < len(whole["burn_down"])
    # and no time of a day
    days = [datetime.date.fromisoformat(each["at"]) for each in found["burn_down"]]
    assert days == sorted(set(days))


@pytest.mark.parametrize("limit", ["5", "0.000000001", "7.5"])
def test_the_last_point_of_the_burn_down_is_what_is_left(engine, limit):
    """Limits stand in entries as they were stated: those of ex-post caps in decimals."""
    bench = Bench(engine)
    allowances.allow(
        engine, bench.dataset, Allowance("10", "1e-6", "a test", ex_post=limit), bench.steward
    )
    found = spending.figures(engine, bench.dataset, bench.auditor)
    for each in found["measures"]:
        assert found["burn_down"][-1][each["name"]] == each["left"], each["name"]
    assert found["burn_down"][-1]["ex_post"] == limit


def test_realized_ex_post_costs_are_for_overseers_for_good(engine):
    bench = Bench(engine)
    for settlement in ("realized", "planned"):
        allowance = Allowance("10", "1e-6", "a test", ex_post="3", ex_post_settlement=settlement)
        allowances.allow(engine, bench.dataset, allowance, bench.steward)
        names = lambda who: {  # noqa: E731
            each["name"] for each in spending.figures(engine, bench.dataset, who)["measures"]
        }
        assert "ex_post" in names(bench.auditor)
        assert "ex_post" not in names(bench.analyst)
    policies.set_policy(engine, bench.dataset, Policy(), bench.steward)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 6, 7, 8])
def test_every_point_of_the_burn_down_was_true_at_some_moment(engine, monkeypatch, steps):
    """Of a kept day only the sum is known: a raise on it alone would show the day's spending as
    left.
    """
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    bench.allow("10")
    bench.warm()
    ended(bench, bench.submit(9))
    bench.allow("12")
    ended(bench, bench.submit(5))
    bench.allow("14")
    exact = spending.figures(engine, bench.dataset, bench.auditor)["burn_down"]
    monkeypatch.setattr(spending_sums, "WORTH_KEEPING", 1)
    monkeypatch.setattr(spending_sums, "AT_ONCE", steps)
    monkeypatch.setattr(spending_sums, "TRANSACTIONS", 1)
    spending_sums.roll(engine)
    kept = spending.figures(engine, bench.dataset, bench.auditor)["burn_down"]
    assert kept[-1] | {"at": ""} == exact[-1] | {"at": ""}
    true = [{**each, "at": ""} for each in exact]
    assert [each for each in kept if each | {"at": ""} not in true] == []
