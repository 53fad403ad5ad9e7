"""A shared ε on a real database: releases, shares, requests that wait, and who goes first."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from accountant import settings as settings_module
from accountant.core.errors import Conflict, InvalidRequest
from accountant.core.ledger import fair_use
from accountant.core.ledger.policy import Policy
from accountant.identities import passkeys, people
from accountant.queries import datasets, integrity, quotes
from accountant.queries import jobs as job_queries
from accountant.settings import Settings
from accountant.transactions import (
    cap_usage,
    maintenance,
    policies,
    releases,
    settlement,
    submission,
)
from tests.passkeys import Passkey
from tests.support import Bench, person, yes

pytestmark = pytest.mark.slow


def month(after: int) -> str:
    """A month before or after this one, as a policy names it."""
    number = fair_use.month_of(datetime.now(UTC)) + after
    return f"{number // 12}-{number % 12 + 1:02}"


def share(bench: Bench, epsilon: object, months: int = 2, start: int = 0, **values: object) -> None:
    stated = {
        "auto_approve_epsilon": "10",
        "shared_epsilon": str(epsilon),
        "release_start": month(start),
        "release_months": months,
        "wait_for_release": True,
        **values,
    }
    policies.set_policy(bench.engine, bench.dataset, Policy(**stated), bench.steward)


def job(bench: Bench, job_id):
    return job_queries.job(bench.engine, job_id, bench.steward)


def state(bench: Bench, job_id) -> str:
    return job(bench, job_id)["state"]


def submit(bench: Bench, actor, tokens: int = 10, project: str | None = None):
    request = replace(bench.request(tokens), project=project)
    return submission.submit(bench.engine, request, actor)


def alone(bench: Bench, tokens: int = 10) -> float:
    parameters = bench.request(tokens).parameters
    quoted = quotes.quote_on(bench.engine, bench.dataset, "private-prediction", parameters)
    return quoted["dp"]["epsilon"]


def waiting_here(bench: Bench) -> int:
    query = text(
        "SELECT count(*) FROM jobs j JOIN datasets d ON d.id = j.dataset_id "
        "WHERE d.name = :name AND j.state = 'awaiting_release'"
    )
    with bench.engine.connect() as connection:
        return connection.execute(query, {"name": bench.dataset}).scalar_one()


def admit(bench: Bench) -> int:
    """Let the relay admit what is released, and return how many jobs of this dataset it decided."""
    before = waiting_here(bench)
    releases.admit(bench.engine)
    return before - waiting_here(bench)


@pytest.fixture
def shared_bench(bench):
    """A dataset with an allowance, where a job is decided at once."""
    bench.allow(epsilon="50")
    bench.warm()
    return bench


@pytest.fixture
def months_pass(monkeypatch):
    """Let months pass for whoever asks which month it is; entries keep theirs."""
    real, since, passed = fair_use.month_of, datetime.now(UTC), [0]

    def month_of(at: datetime) -> int:
        return real(at) + (passed[0] if at > since else 0)

    def go(by: int = 1) -> None:
        nonlocal since
        # What is entered by now keeps its month.
        since, passed[0] = datetime.now(UTC), passed[0] + by

    monkeypatch.setattr(cap_usage, "month_of", month_of)
    return go


# --- release over time --------------------------------------------------------------------------


def test_no_more_is_reserved_than_is_released_and_the_rest_waits(shared_bench, months_pass):
    bench = shared_bench
    one = alone(bench)
    share(bench, 4.2 * one, 2)  # two jobs a month
    first = [submit(bench, bench.analyst) for _ in range(2)]
    later = [submit(bench, bench.analyst) for _ in range(2)]
    assert [state(bench, each) for each in first] == ["queued"] * 2
    assert [state(bench, each) for each in later] == ["awaiting_release"] * 2
    until = fair_use.first_day(fair_use.month_of(datetime.now(UTC)) + 1)
    assert f"the rest waits until {until}" in job(bench, later[0])["decision_reason"]
    assert admit(bench) == 0
    months_pass()
    assert admit(bench) == 2
    assert [state(bench, each) for each in later] == ["queued"] * 2
    never = submit(bench, bench.analyst)
    assert state(bench, never) == "refused"
    assert "left of the shared" in job(bench, never)["refusal"]["why"]
    assert integrity.check(bench.engine, bench.dataset) == []


def test_where_the_policy_does_not_wait_it_is_refused_with_the_day(shared_bench):
    bench = shared_bench
    share(bench, 2.2 * alone(bench), 2, wait_for_release=False)
    assert state(bench, submit(bench, bench.analyst)) == "queued"
    refused = job(bench, submit(bench, bench.analyst))
    assert refused["refusal"]["cap"] == "release cap"
    assert "the rest waits until 1 " in refused["refusal"]["why"]
    assert admit(bench) == 0


def test_nothing_is_released_before_the_first_month(shared_bench):
    bench = shared_bench
    share(bench, 100, 1, start=1)
    assert state(bench, submit(bench, bench.analyst)) == "awaiting_release"


def test_jobs_of_before_the_first_month_do_not_count_and_voided_ones_neither(shared_bench):
    bench = shared_bench
    one = alone(bench)
    share(bench, 1.1 * one, 1)
    job_id = submit(bench, bench.analyst)
    assert state(bench, submit(bench, bench.analyst)) == "refused"
    settlement.cancel(bench.engine, job_id, bench.analyst)
    assert state(bench, submit(bench, bench.analyst)) == "queued"


# --- shares -------------------------------------------------------------------------------------


def test_a_share_is_kept_for_its_holder_and_falls_to_all_afterwards(shared_bench, months_pass):
    bench = shared_bench
    other, one = person(bench.engine, "analyst"), alone(bench)
    names = (f"{bench.analyst.name} 1", f"{other.name} 1")
    share(bench, 4.2 * one, 2, shares=names)  # one job each a month
    assert state(bench, submit(bench, bench.analyst)) == "queued"
    waits = submit(bench, bench.analyst)
    assert state(bench, waits) == "awaiting_release"
    months_pass()  # the other left one
    assert admit(bench) == 1
    assert state(bench, waits) == "queued"
    assert state(bench, submit(bench, bench.analyst)) == "queued"
    assert state(bench, submit(bench, bench.analyst)) == "awaiting_release"
    assert state(bench, submit(bench, other)) == "queued"  # theirs was kept


def test_shares_of_projects_count_by_project(shared_bench):
    bench = shared_bench
    share(bench, 2.2 * alone(bench), 1, shares=("one 1", "two 1"), share_by_project=True)
    with pytest.raises(InvalidRequest, match="project"):
        submit(bench, bench.analyst)
    assert state(bench, submit(bench, bench.analyst, project="one")) == "queued"
    assert state(bench, submit(bench, bench.analyst, project="one")) == "awaiting_release"
    assert state(bench, submit(bench, bench.analyst, project="two")) == "queued"


def test_a_share_of_nobody_is_an_error(bench):
    with pytest.raises(InvalidRequest, match="shares"):
        share(bench, 1, shares=("nobody-at-all 1",))


def test_the_smallest_dominant_share_is_admitted_first(shared_bench, months_pass):
    bench = shared_bench
    others = [person(bench.engine, "analyst") for _ in range(2)]
    one = alone(bench)
    share(bench, 6.3 * one, 3)
    used = [submit(bench, others[0]), submit(bench, others[0])]
    assert [state(bench, each) for each in used] == ["queued"] * 2
    waiting = [submit(bench, each) for each in (others[0], others[1], bench.analyst)]
    months_pass()
    assert admit(bench) == 2
    assert [state(bench, each) for each in waiting] == ["awaiting_release", "queued", "queued"]


def test_two_who_race_for_the_last_share_do_not_both_have_it(shared_bench):
    bench = shared_bench
    share(bench, 3.3 * alone(bench), 1, wait_for_release=False)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: submit(bench, bench.analyst), range(12)))
    states = [state(bench, each) for each in made]
    assert (states.count("queued"), states.count("refused")) == (3, 9)


def test_two_relays_admit_a_waiting_job_once(shared_bench, months_pass):
    bench = shared_bench
    share(bench, 4.2 * alone(bench), 2)
    made = [submit(bench, bench.analyst) for _ in range(4)]
    months_pass()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: releases.admit(bench.engine), range(2)))
    releases.admit(bench.engine)
    assert [state(bench, each) for each in made] == ["queued"] * 4
    assert integrity.check(bench.engine, bench.dataset) == []


# --- waiting ------------------------------------------------------------------------------------


def test_whoever_asked_takes_it_back(shared_bench, months_pass):
    bench = shared_bench
    share(bench, 1.1 * alone(bench), 1, start=1)
    job_id = submit(bench, bench.analyst)
    settlement.cancel(bench.engine, job_id, bench.analyst)
    months_pass()
    assert admit(bench) == 0
    assert state(bench, job_id) == "cancelled"


def test_what_no_longer_fits_the_filters_is_refused_in_a_sentence(shared_bench, months_pass):
    bench = shared_bench
    share(bench, 100, 2, start=1)
    job_id = submit(bench, bench.analyst)
    bench.allow(epsilon="0.05")
    months_pass()
    assert admit(bench) == 1
    found = job(bench, job_id)
    assert found["state"] == "refused"
    assert "is left" in found["refusal"]["why"]


def test_what_others_left_too_little_for_is_refused_and_waits_no_longer(shared_bench, months_pass):
    bench = shared_bench
    other, one = person(bench.engine, "analyst"), alone(bench)
    share(bench, 2.2 * one, 2)
    assert state(bench, submit(bench, other)) == "queued"
    waiting = [submit(bench, bench.analyst) for _ in range(2)]
    months_pass()
    assert admit(bench) == 2
    assert [state(bench, each) for each in waiting] == ["queued", "refused"]


def test_an_approval_is_kept_until_the_release(shared_bench, months_pass):
    bench = shared_bench
    share(bench, 1.1 * alone(bench), 1, start=1, auto_approve_epsilon="0")
    job_id = submit(bench, bench.analyst)
    assert state(bench, job_id) == "awaiting_approval"
    yes(bench.engine, job_id, bench.steward, "worth it")
    assert state(bench, job_id) == "awaiting_release"
    with pytest.raises(Conflict, match="awaiting release"):
        yes(bench.engine, job_id, bench.steward, "again")
    assert admit(bench) == 0
    months_pass()
    assert admit(bench) == 1
    found = job(bench, job_id)
    assert (found["state"], found["decision_reason"]) == ("queued", "worth it")
    assert found["decided_by"] == bench.steward.name


def test_an_approval_does_not_outlast_its_approver(shared_bench, months_pass):
    bench = shared_bench
    share(bench, 1.1 * alone(bench), 1, start=1, auto_approve_epsilon="0")
    job_id = submit(bench, bench.analyst)
    yes(bench.engine, job_id, bench.steward, "worth it")
    with bench.engine.begin() as connection:
        left = text("UPDATE users SET roles = '{analyst}' WHERE id = :id")
        connection.execute(left, {"id": bench.steward.id})
    months_pass()
    assert admit(bench) == 1
    found = job_queries.job(bench.engine, job_id, bench.analyst)
    assert found["state"] == "awaiting_approval"
    assert "no steward any more" in found["decision_reason"]


def passkey(bench: Bench) -> dict[str, object]:
    """The policy fields by which the steward signs approvals with a passkey."""
    key = Passkey(bench.steward.name)
    passkeys.add(bench.engine, bench.steward, "x", key.signer.key.encode(), b"", key.signer, 0)
    return {"signed": ("approve", "policy"), "signers": (str(key.signer),)}


def test_an_approval_that_must_be_signed_is_given_after_the_release(shared_bench):
    bench = shared_bench
    share(bench, 100, 1, start=1, auto_approve_epsilon="0", **passkey(bench))
    job_id = submit(bench, bench.analyst)
    with pytest.raises(Conflict, match="not kept until then"):
        yes(bench.engine, job_id, bench.steward, "worth it")
    assert state(bench, job_id) == "awaiting_approval"


def test_an_approval_that_is_kept_falls_where_it_must_be_signed(shared_bench, months_pass):
    bench = shared_bench
    share(bench, 100, 1, start=1, auto_approve_epsilon="0")
    job_id = submit(bench, bench.analyst)
    yes(bench.engine, job_id, bench.steward, "worth it")
    share(bench, 100, 1, start=1, auto_approve_epsilon="0", **passkey(bench))
    months_pass()
    assert admit(bench) == 1
    found = job(bench, job_id)
    assert found["state"] == "awaiting_approval"
    assert "approvals are signed" in found["decision_reason"]


def test_an_approval_that_is_kept_falls_where_its_approver_could_make_the_second_person(
    shared_bench, months_pass
):
    bench = shared_bench
    share(bench, 100, 1, start=1, auto_approve_epsilon="0")
    job_id = submit(bench, bench.analyst)
    yes(bench.engine, job_id, bench.steward, "worth it")
    share(bench, 100, 1, start=1, auto_approve_epsilon="0", two_people=True)
    roles = text("UPDATE users SET roles = '{steward,administrator}' WHERE id = :id")
    with bench.engine.begin() as connection:
        connection.execute(roles, {"id": bench.steward.id})
    months_pass()
    assert admit(bench) == 1
    found = job(bench, job_id)
    assert found["state"] == "awaiting_approval"
    assert "two people" in found["decision_reason"]


@pytest.mark.parametrize("what", ["settled", "new", "reset"])
def test_an_approval_that_is_kept_falls_where_its_approvers_account_was_new_or_is_reset(
    shared_bench, months_pass, monkeypatch, what
):
    bench, two = shared_bench, {"auto_approve_epsilon": "0", "two_people": True}
    share(bench, 100, 1, start=1, auto_approve_epsilon="0")
    job_id = submit(bench, bench.analyst)
    yes(bench.engine, job_id, bench.steward, "worth it")
    share(bench, 100, 1, start=1, **two)
    if what == "new":
        served = settings_module.load().model_copy(update={"new_account_hours": 24.0})
        monkeypatch.setattr(settings_module, "load", lambda: served)
    if what == "reset":
        admin = person(bench.engine, "administrator")
        people.reset_password(bench.engine, admin, bench.steward.name, "a hash")
    months_pass()
    assert admit(bench) == 1
    found = job(bench, job_id)
    if what == "settled":
        assert (found["state"], found["decision_reason"]) == ("queued", "worth it")
    else:
        assert found["state"] == "awaiting_approval"
        assert "who approved, was new, reset" in found["decision_reason"]


def test_what_a_waiting_job_says_is_true_when_it_is_read(shared_bench, months_pass):
    bench = shared_bench
    other, one = person(bench.engine, "analyst"), alone(bench)
    share(bench, 3.3 * one, 3)
    assert state(bench, submit(bench, bench.analyst)) == "queued"
    job_id = submit(bench, bench.analyst)
    this = fair_use.month_of(datetime.now(UTC))
    assert fair_use.first_day(this + 1) in job(bench, job_id)["decision_reason"]
    months_pass()
    assert state(bench, submit(bench, other)) == "queued"  # before the relay looked
    assert fair_use.first_day(this + 2) in job(bench, job_id)["decision_reason"]
    months_pass()
    assert "decided now" in job(bench, job_id)["decision_reason"]


def test_a_price_that_changed_while_it_waited_goes_to_a_steward(shared_bench, months_pass):
    bench = shared_bench
    share(bench, 100, 1, start=1)
    job_id = submit(bench, bench.analyst)
    bench.allow(epsilon="50", delta="0.000001")
    months_pass()
    assert admit(bench) == 1
    assert state(bench, job_id) == "awaiting_approval"


def test_a_look_at_its_model_comes_before_the_wait(bench, months_pass):
    bench.allow(epsilon="50")
    share(bench, 100, 1, start=1)
    job_id = bench.submit(10)
    assert state(bench, job_id) == "submitted"
    bench.probe(job_id)
    assert state(bench, job_id) == "awaiting_release"
    months_pass()
    assert admit(bench) == 1
    assert state(bench, job_id) == "queued"


def test_nothing_is_admitted_under_maintenance(shared_bench, months_pass):
    bench = shared_bench
    share(bench, 100, 1, start=1)
    job_id = submit(bench, bench.analyst)
    months_pass()
    admin = person(bench.engine, "administrator")
    maintenance.switch(bench.engine, admin, True, "an upgrade")
    try:
        assert admit(bench) == 0
    finally:
        maintenance.switch(bench.engine, admin, False, "it is done")
    assert state(bench, job_id) == "awaiting_release"
    assert admit(bench) == 1


def test_a_person_waits_with_as_many_requests_as_for_a_steward(shared_bench, monkeypatch):
    bench = shared_bench
    share(bench, 100, 1, start=1)
    configured = Settings(approvals_per_person=2)
    monkeypatch.setattr(settings_module, "load", lambda: configured)
    for _ in range(2):
        submit(bench, bench.analyst)
    with pytest.raises(InvalidRequest, match="wait for a release"):
        submit(bench, bench.analyst)


def test_a_quote_says_that_it_waits_and_a_cap_still_refuses(shared_bench):
    bench = shared_bench
    share(bench, 100, 1, start=1)
    asked = (bench.engine, bench.dataset, "private-prediction", bench.request(10).parameters)
    on = quotes.quote_on(*asked, viewer=bench.analyst)["dataset"]
    assert on["decision"] == "Waits"
    assert on["waits"].startswith("ε 0 of 100 is released now; the rest waits until 1 ")
    assert datasets.dataset(bench.engine, bench.dataset, bench.analyst)["remaining"]["jobs"] in (
        None,
        0,
    )
    share(bench, 100, 1, start=1, analyst_epsilon="0.001")
    assert quotes.quote_on(*asked, viewer=bench.analyst)["dataset"]["decision"] == "Refused"
