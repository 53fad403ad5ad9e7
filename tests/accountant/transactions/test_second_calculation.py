"""No entry reserves a price that a second calculation does not confirm, on any path that writes
one.
"""

import logging
import sys
import threading
import time
import uuid
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import text

import accountant
from accountant.core.errors import Conflict
from accountant.core.ledger import books
from accountant.core.ledger.accounts import NOTHING, ExPostAccount, Settlement
from accountant.core.privacy import (
    composition,
    cross_check,
    divergences,
    filters,
    pld_bounds,
    whole_jobs,
)
from accountant.core.privacy.events import (
    Composed,
    Exponential,
    Gaussian,
    PoissonSampled,
    SelfComposed,
    to_json,
)
from accountant.core.privacy.price import Terms
from accountant.queries import datasets, entry_rows, integrity, jobs
from accountant.tables.accounts_row import read_books
from accountant.transactions import approval, job_requests, offers, second_calculation, submission
from tests.support import Bench, yes

pytestmark = pytest.mark.slow


def forget() -> None:
    """Nothing is known about any price."""
    second_calculation._known.clear()
    for cache in (
        filters._prices,
        whole_jobs.epsilon_at,
        whole_jobs._curve,
        pld_bounds.quoted,
        entry_rows._alone,
        books._costs_on,
        job_requests._outcome,
        job_requests._known_price,
        cross_check._divergences,
    ):
        cache.cache_clear()


@pytest.fixture(autouse=True)
def fresh():
    yield
    forget()


@pytest.fixture
def desk(engine) -> Bench:
    """Every job needs a steward."""
    bench = Bench(engine)
    bench.allow()
    bench.warm()
    forget()
    return bench


@pytest.fixture
def open_desk(open_bench) -> Bench:
    """Jobs are approved automatically."""
    open_bench.warm()
    forget()
    return open_bench


@pytest.fixture
def undercharged(monkeypatch):
    """Tokens cost half of their divergence, from now on."""
    sound = divergences._renyi_leaf

    def half(order, event):
        cost = sound(order, event)
        return cost / 2 if isinstance(event, Exponential) else cost

    def begin() -> None:
        monkeypatch.setattr(divergences, "_renyi_leaf", half)
        forget()

    return begin


def job(bench: Bench, job_id: uuid.UUID) -> dict:
    return jobs.job(bench.engine, job_id, bench.auditor)


def entries(bench: Bench) -> int:
    return datasets.dataset(bench.engine, bench.dataset, bench.auditor)["entries"]


def reserved(bench: Bench) -> int:
    with bench.engine.connect() as connection:
        query = "SELECT count(*) FROM entries WHERE kind = 'RESERVE' AND dataset_id = "
        query += "(SELECT id FROM datasets WHERE name = :name)"
        return connection.execute(text(query), {"name": bench.dataset}).scalar_one()


# --- each path that writes a RESERVE ------------------------------------------------------------


def automatically(bench: Bench, begin) -> uuid.UUID:
    begin()
    return bench.submit(7)


def by_a_probe(bench: Bench, begin) -> uuid.UUID:
    job_id = bench.submit(7, template="Another {label}: {record}\nText:")
    assert job(bench, job_id)["state"] == "submitted"
    begin()
    approval.probed(bench.engine, job_id, {"template_tokens": 20}, None)
    return job_id


def by_a_steward(bench: Bench, begin) -> uuid.UUID:
    job_id = bench.submit(7)
    assert job(bench, job_id)["state"] == "awaiting_approval"
    begin()
    yes(bench.engine, job_id, bench.steward, "fine")
    return job_id


def by_an_offer(bench: Bench, begin) -> uuid.UUID:
    asked = bench.submit(10)
    found = offers.offer(bench.engine, asked, {"tokens_per_batch": 4}, bench.steward, "enough")
    begin()
    return yes(bench.engine, found, bench.analyst)


PATHS = [
    ("open_desk", automatically),
    ("open_desk", by_a_probe),
    ("desk", by_a_steward),
    ("desk", by_an_offer),
]


@pytest.mark.parametrize(("dataset", "path"), PATHS)
def test_a_price_that_is_too_low_is_refused_before_any_entry(
    dataset, path, undercharged, request, caplog
):
    bench = request.getfixturevalue(dataset)
    before = entries(bench)
    with caplog.at_level(logging.ERROR):
        refused = job(bench, path(bench, undercharged))
    assert refused["state"] == "refused"
    assert refused["refusal"]["cap"] == "second calculation"
    assert "nothing was charged" in refused["refusal"]["why"]
    assert "at least" in refused["refusal"]["why"]
    assert entries(bench) == before
    told = [
        record.getMessage() for record in caplog.records if "not confirmed" in record.getMessage()
    ]
    assert len(told) == 1
    assert '"shift"' in told[0]
    assert second_calculation.refused_now() == {"wrong": 1, "not calculated": 0}


@pytest.mark.parametrize(("dataset", "path"), PATHS)
def test_a_sound_price_is_admitted(dataset, path, request):
    bench = request.getfixturevalue(dataset)
    before = reserved(bench)
    found = job(bench, path(bench, lambda: None))
    assert found["state"] == "queued", found["refusal"]
    assert reserved(bench) == before + 1
    assert integrity.check(bench.engine, bench.dataset) == []


@pytest.mark.parametrize(("dataset", "path"), PATHS)
def test_an_error_of_dp_accounting_refuses(dataset, path, request, monkeypatch):
    bench = request.getfixturevalue(dataset)
    before = entries(bench)

    def broken(*_args, **_named):
        raise RuntimeError("secret text of a library")

    def begin() -> None:
        monkeypatch.setattr("dp_accounting.rdp.RdpAccountant", broken)
        forget()  # what was found before would hold

    refused = job(bench, path(bench, begin))
    assert refused["state"] == "refused"
    assert "failed (RuntimeError)" in refused["refusal"]["why"]
    assert "secret text" not in str(refused)
    assert entries(bench) == before


def test_a_library_that_is_not_there_refuses(open_desk, monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    refused = job(open_desk, open_desk.submit(7))
    assert (refused["state"], refused["refusal"]["cap"]) == ("refused", "second calculation")


def test_a_price_that_is_no_number_there_refuses(open_desk, monkeypatch):
    nothing = property(lambda self: self.orders * float("nan"))
    monkeypatch.setattr("dp_accounting.rdp.RdpAccountant.rdp", nothing)
    assert "failed (ArithmeticError)" in job(open_desk, open_desk.submit(7))["refusal"]["why"]


def test_a_calculation_that_never_ends_refuses_and_so_does_the_next(open_desk, monkeypatch):
    """It keeps its turn: one thread is lost, not one for each request."""
    monkeypatch.setattr(second_calculation, "LONGEST", 0.2)
    end = threading.Event()
    monkeypatch.setattr(cross_check, "findings", lambda asked: end.wait(20) and ())
    before = entries(open_desk)
    threads = threading.active_count()
    for tokens, why in ((7, "took over"), (8, "no second calculation has ended"), (9, "no second")):
        assert why in job(open_desk, open_desk.submit(tokens))["refusal"]["why"]
    assert threading.active_count() <= threads + 1
    assert entries(open_desk) == before
    assert second_calculation.refused_now()["not calculated"] == 3
    end.set()


def test_a_job_of_few_kinds_waits_for_none_of_many(monkeypatch):
    monkeypatch.setattr(
        cross_check, "findings", lambda asked: time.sleep(0.3 * cross_check.is_long(asked))
    )
    monkeypatch.setattr(
        second_calculation, "_outcome", lambda asked: (cross_check.findings(asked), False)
    )

    def charge(kinds: int, first: float) -> cross_check.Charge:
        event = Composed(tuple(Gaussian(first + number) for number in range(kinds)))
        return cross_check.Charge(event, (), 100.0, 1e-6)

    threads = [
        threading.Thread(target=second_calculation.calculate, args=(charge(64, 1 + number / 20),))
        for number in range(12)
    ]
    for each in threads:
        each.start()
    second_calculation.calculate(charge(2, 1.0))
    assert sum(each.is_alive() for each in threads) > 1, "it waited for those of many kinds"
    for each in threads:
        each.join()
    assert second_calculation.refused_now() == {"wrong": 0, "not calculated": 0}


def test_what_could_not_be_calculated_is_tried_again_later(open_desk, monkeypatch):
    monkeypatch.setattr(second_calculation, "_RETRY", 0.3)
    sound = cross_check.findings
    monkeypatch.setattr(cross_check, "findings", lambda asked: 1 / 0)
    assert job(open_desk, open_desk.submit(7))["state"] == "refused"
    monkeypatch.setattr(cross_check, "findings", sound)
    time.sleep(0.4)
    assert job(open_desk, open_desk.submit(7))["state"] == "queued"


# --- cost ---------------------------------------------------------------------------------------


def test_it_is_calculated_once_a_shape_and_without_a_lock(open_desk, monkeypatch):
    sound, seen = cross_check.findings, []

    def watched(asked):
        with open_desk.engine.begin() as connection:  # fails where the row is held
            query = "SELECT 1 FROM accounts WHERE dataset_id = "
            query += "(SELECT id FROM datasets WHERE name = :name) FOR UPDATE NOWAIT"
            connection.execute(text(query), {"name": open_desk.dataset})
        seen.append(asked)
        return sound(asked)

    monkeypatch.setattr(cross_check, "findings", watched)
    for _ in range(3):
        assert job(open_desk, open_desk.submit(7))["state"] == "queued"
    assert len(seen) == 1
    open_desk.submit(8)
    assert len(seen) == 2


def test_threads_with_one_shape_calculate_it_once(open_desk, monkeypatch):
    sound, seen = cross_check.findings, []

    def slow(asked):
        seen.append(asked)
        time.sleep(0.2)
        return sound(asked)

    monkeypatch.setattr(cross_check, "findings", slow)
    made: list[uuid.UUID] = []
    threads = [threading.Thread(target=lambda: made.append(open_desk.submit(7))) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert {job(open_desk, each)["state"] for each in made} == {"queued"}
    assert len(seen) == 1


def test_a_job_that_does_not_fit_is_not_calculated(open_desk, monkeypatch):
    monkeypatch.setattr(cross_check, "findings", lambda asked: pytest.fail("it was"))
    assert job(open_desk, open_desk.submit(100_000))["refusal"]["cap"] != "second calculation"


def test_what_ex_post_jobs_really_cost_does_not_tell_whether_it_is_calculated(open_desk):
    """How long an answer takes would tell an analyst the realized figure, request by request.

    A median in private clusters has both costs: ex-post tokens, and an event for the clusters'
    counts.
    """
    accounts, found = _accounts(open_desk), []
    with open_desk.engine.connect() as connection:
        row = connection.execute(submission._UNLOCKED, {"name": open_desk.dataset}).one()
    mean = job_requests.priced(open_desk.request(7), submission.terms_of(row, accounts)).candidate
    asked = replace(mean, asked=replace(mean.asked, ex_post=2_500_000_000))
    for left in (asked.asked.ex_post, 0):
        forget()
        account = ExPostAccount(limit=10**12, spent=10**12 - left, settlement=Settlement.REALIZED)
        second_calculation.prepare(replace(accounts, ex_post=account), asked)
        found.append(set(second_calculation._known))
    assert found[0] == found[1]
    assert found[0]


def test_a_price_that_never_settles_is_a_conflict():
    multipliers = iter(range(1, 10))

    @second_calculation.admitting
    def changing() -> None:
        raise second_calculation.Unchecked(
            cross_check.Charge(Gaussian(float(next(multipliers))), (), 100.0, 1e-6)
        )

    with pytest.raises(Conflict, match="again and again"):
        changing()


def test_who_writes_a_reserve_has_its_price_calculated_twice():
    root = Path(accountant.__file__).parent
    found = [
        path.name
        for path in (root / "transactions").rglob("*.py")
        if "EntryKind.RESERVE, " in path.read_text().replace("\n", " ")
    ]
    assert sorted(found) == ["decision.py", "overdrafts.py"]
    for name in found:
        assert "second_calculation.refusal(" in (root / "transactions" / name).read_text()


@pytest.mark.parametrize("measure", ["_mu_squared_leaf", "_pure_leaf"])
def test_an_undercharge_on_the_other_filters_is_refused_too(open_desk, monkeypatch, measure):
    sound = getattr(divergences, measure)

    def low(*asked):
        cost = sound(*asked)
        return None if cost is None else cost * Fraction(9, 10)

    monkeypatch.setattr(divergences, measure, low)
    assert job(open_desk, open_desk.submit(2))["refusal"]["cap"] == "second calculation"


def test_nothing_is_calculated_for_a_job_without_a_price(open_desk):
    assert second_calculation.refusal(_accounts(open_desk), _free(), {}) is None


def _accounts(bench: Bench):
    with bench.engine.connect() as connection:
        row = connection.execute(submission._UNLOCKED, {"name": bench.dataset}).one()
    return read_books(row).accounts


def _free():
    return job_requests.Candidate("public-generation", {}, None, Terms(), NOTHING, 0.0)


def test_the_check_of_a_ledger_knows_quotes_of_both_libraries():
    event = SelfComposed(PoissonSampled(0.01, Gaussian(1.0)), 100)
    body = {"event": to_json(event), "terms": {"delta": 1e-6}}
    for epsilon, same in (
        (pld_bounds.quoted(event, 1e-6)[0], True),
        (composition.epsilon_alone(event, 1e-6)[0], True),
        (0.9, False),
    ):
        row = SimpleNamespace(job_event=body["event"], job_epsilon_alone=epsilon)
        assert entry_rows._same_epsilon(row, body) == same
