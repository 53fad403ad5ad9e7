"""Offers: nothing is charged before consent, the old request is never admitted, one of two racers
wins.
"""

import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import text

from accountant.core.errors import Conflict, ExchequerError, InvalidRequest, NotFound, NotPermitted
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.policy import Policy
from accountant.queries import datasets, integrity, jobs
from accountant.queries import decisions as decision_queries
from accountant.queries import entries as entry_queries
from accountant.transactions import allowances, asking, offers, policies, settlement, submission
from tests.support import Bench, no, person, yes

SMALLER = {"tokens_per_batch": 4}


@pytest.fixture
def desk(engine) -> Bench:
    bench = Bench(engine)
    bench.allow()
    bench.warm()
    return bench


def job(bench: Bench, job_id: uuid.UUID) -> dict:
    return jobs.job(bench.engine, job_id, bench.auditor)


def entries(bench: Bench) -> int:
    return datasets.dataset(bench.engine, bench.dataset, bench.auditor)["entries"]


def offered(bench: Bench, tokens: int = 10, **changes: object) -> tuple[uuid.UUID, uuid.UUID]:
    asked = bench.submit(tokens)
    return asked, offers.offer(
        bench.engine, asked, changes or SMALLER, bench.steward, "that is enough"
    )


def test_consent_admits_the_offer_and_never_what_was_asked(desk):
    before = entries(desk)
    asked, found = offered(desk)
    assert job(desk, asked)["state"] == "refused"
    assert job(desk, asked)["refusal"]["why"] == "that is enough"
    assert entries(desk) == before  # nothing is reserved before the analyst consents
    made = yes(desk.engine, found, desk.analyst)
    now = job(desk, made)
    assert (now["state"], now["parameters"]["tokens_per_batch"]) == ("queued", 4)
    assert (now["analyst"], now["decided_by"]) == (desk.analyst.name, desk.steward.name)
    assert job(desk, asked)["state"] == "refused"
    entry = entry_queries.entries(desk.engine, desk.dataset, desk.auditor)[0]
    assert (entry["kind"], entry["actor"]) == ("RESERVE", desk.analyst.name)
    assert entry["body"]["approval"] == {
        "by": desk.steward.name,
        "reason": "that is enough",
        "instead_of": str(asked),
    }
    assert yes(desk.engine, found, desk.analyst) == made  # two clicks, one job
    assert entries(desk) == before + 1
    for act in (yes, no):
        with pytest.raises(Conflict):
            act(desk.engine, asked, desk.steward, "again")
    assert integrity.check(desk.engine, desk.dataset) == []


def test_an_offer_is_smaller_everywhere_and_fits(desk):
    asked = desk.submit(10)

    def refused(error: type[ExchequerError], match: str, **changes: object) -> None:
        with pytest.raises(error, match=match):
            offers.offer(desk.engine, asked, changes, desk.steward, "why")
        assert job(desk, asked)["state"] == "awaiting_approval"

    refused(InvalidRequest, "more than was asked", tokens_per_batch=11)
    refused(InvalidRequest, "costs what was asked", tokens_per_batch=10)
    refused(InvalidRequest, "template", template="Other: {text}", tokens_per_batch=4)
    refused(InvalidRequest, "unknown|no_such", no_such=4)
    with pytest.raises(InvalidRequest, match="reason"):
        offers.offer(desk.engine, asked, SMALLER, desk.steward, " ")
    with pytest.raises(NotPermitted):
        offers.offer(desk.engine, asked, SMALLER, desk.analyst, "why")
    allowances.allow(
        desk.engine, desk.dataset, Allowance("0.05", "0.0000029053", "less"), desk.steward
    )
    with pytest.raises(InvalidRequest) as caught:
        offers.offer(desk.engine, asked, {"tokens_per_batch": 9}, desk.steward, "why")
    assert "would be refused now" in caught.value.problems[0].problem
    assert caught.value.problems[0].allowed.endswith("fits")


def test_only_whom_it_is_offered_to_answers(desk):
    _, found = offered(desk)
    other = person(desk.engine, "analyst")
    for act in (yes, no):
        with pytest.raises(NotFound):
            act(desk.engine, found, other)
        with pytest.raises(NotPermitted):
            act(desk.engine, found, desk.auditor)
    with pytest.raises(NotPermitted):
        yes(desk.engine, found, desk.steward)
    with pytest.raises(NotFound):
        decision_queries.show(desk.engine, found, other)
    wanted = decision_queries.Wanted(kind="offer")
    listed = decision_queries.listing(desk.engine, desk.analyst, wanted)
    assert [decision.id for decision in listed] == [str(found)]
    assert decision_queries.listing(desk.engine, other, wanted) == []
    changes = decision_queries.show(desk.engine, found, desk.analyst)["offer"]["changes"]
    assert {"field": "tokens_per_batch", "asked": 10, "offered": 4} in changes
    # it fell with it
    assert {each["field"] for each in changes} == {"max_text_tokens", "tokens_per_batch"}
    no(desk.engine, found, desk.analyst)
    for act in (yes, no):
        with pytest.raises(Conflict, match="refused already"):
            act(desk.engine, found, desk.analyst)


def test_who_may_ask_no_more_may_not_consent(desk):
    _, found = offered(desk)
    auditor = replace(desk.analyst, roles=frozenset({"auditor"}))
    with pytest.raises(NotPermitted):
        yes(desk.engine, found, auditor)
    assert yes(desk.engine, found, desk.analyst)


def test_nobody_approves_their_own_by_an_offer(engine):
    bench = Bench(engine, policy={"solo": True})
    bench.allow()
    bench.warm()
    own = submission.submit(engine, bench.request(10), bench.steward)
    found = offers.offer(engine, own, SMALLER, bench.steward, "alone")
    policies.set_policy(engine, bench.dataset, Policy(), bench.steward)
    with pytest.raises(Conflict, match="solo"):
        yes(engine, found, bench.steward)
    again = submission.submit(engine, bench.request(10), bench.steward)
    with pytest.raises(NotPermitted):
        offers.offer(engine, again, SMALLER, bench.steward, "alone")


def test_what_changed_since_the_offer_is_looked_at_anew(desk, owner):
    _, found = offered(desk)
    with owner.begin() as connection:
        gone = text("UPDATE users SET roles = ARRAY['auditor'] WHERE id = :id")
        connection.execute(gone, {"id": desk.steward.id})
    with pytest.raises(Conflict, match="no steward any more"):
        yes(desk.engine, found, desk.analyst)
    second = person(desk.engine, "steward")
    asked = desk.submit(10)
    found = offers.offer(desk.engine, asked, SMALLER, second, "enough")
    policies.set_policy(desk.engine, desk.dataset, Policy(mechanisms=("noisy-count",)), second)
    with pytest.raises(NotPermitted, match="private-prediction"):
        yes(desk.engine, found, desk.analyst)
    policies.set_policy(desk.engine, desk.dataset, Policy(), second)
    allowances.allow(desk.engine, desk.dataset, Allowance("0.0001", "0.0000029053", "stop"), second)
    made = yes(desk.engine, found, desk.analyst)
    assert job(desk, made)["state"] == "refused"
    assert job(desk, made)["refusal"]["cap"] in ("renyi", "gaussian", "renyi2", "basic")
    assert integrity.check(desk.engine, desk.dataset) == []


def test_a_price_above_the_offered_one_is_not_what_was_approved(desk, owner):
    _, found = offered(desk)
    with owner.begin() as connection:  # as if its terms had been kinder then
        cheaper = text(
            "UPDATE decisions SET asked = jsonb_set(asked, '{parameters,tokens_per_batch}', '400') "
            "WHERE id = :id"
        )
        connection.execute(cheaper, {"id": found})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            offers,
            "_as_job",
            lambda mechanism, row, real=offers._as_job: _cheap(real(mechanism, row)),
        )
        with pytest.raises(Conflict, match="costs more now than was offered"):
            yes(desk.engine, found, desk.analyst)


def _cheap(job):
    job.parameters = {**job.parameters, "tokens_per_batch": 4}
    return job


def test_an_offer_expires(desk):
    _, found = offered(desk)
    with desk.engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE decisions SET expires_at = now() - interval '1 second' WHERE kind = 'offer'"
            )
        )
    with pytest.raises(Conflict, match="expired"):
        yes(desk.engine, found, desk.analyst)
    assert asking.sweep(desk.engine) >= 1
    assert decision_queries.show(desk.engine, found, desk.analyst)["state"] == "expired"
    with pytest.raises(Conflict, match="expired"):
        no(desk.engine, found, desk.steward, "late")


def race(*acts) -> list[str]:
    """Start all acts at once and return their outcomes."""
    gate = threading.Barrier(len(acts))

    def one(act) -> str:
        gate.wait()
        try:
            act()
        except ExchequerError as error:
            return type(error).__name__
        return "done"

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(one, acts))


@pytest.mark.parametrize("turn", range(6))
def test_of_two_who_decide_at_once_one_is_told(desk, turn):
    engine, second = desk.engine, person(desk.engine, "steward")
    asked = desk.submit(10)
    offering = lambda who: lambda: offers.offer(engine, asked, SMALLER, who, "less")  # noqa: E731
    others = [
        offering(second),
        lambda: yes(engine, asked, second, "yes"),
        lambda: settlement.cancel(engine, asked, desk.analyst),
    ]
    answers = race(offering(desk.steward), others[turn % 3])
    assert Counter(answers)["done"] == 1, answers
    assert "Conflict" in answers or turn % 3 == 2
    open_offers = decision_queries.listing(
        engine, desk.analyst, decision_queries.Wanted(kind="offer")
    )
    state = job(desk, asked)["state"]
    assert (state == "refused") == (len(open_offers) == 1)
    assert state in ("refused", "queued", "cancelled")
    assert integrity.check(engine, desk.dataset) == []


@pytest.mark.parametrize("turn", range(4))
def test_consent_races_with_another_answer(desk, turn):
    engine = desk.engine
    _, found = offered(desk)
    if turn % 2:
        other = lambda: no(engine, found, desk.steward, "no")  # noqa: E731
    else:

        def other() -> None:
            with engine.begin() as connection:
                late = text(
                    "UPDATE decisions SET expires_at = now() - interval '1 hour' WHERE id = :id"
                )
                connection.execute(late, {"id": found})
            if not asking.sweep(engine):
                raise Conflict("somebody was faster")

    answers = race(lambda: yes(engine, found, desk.analyst), other)
    state = decision_queries.show(engine, found, desk.analyst)["state"]
    made = [each for each in jobs.jobs(engine, desk.analyst) if each["state"] == "queued"]
    assert len(made) == (state == "accepted") == (answers[0] == "done")
    assert integrity.check(engine, desk.dataset) == []


def test_sixteen_clicks_are_one_job(desk):
    _, found = offered(desk)
    made: list[uuid.UUID] = []
    answers = race(*[lambda: made.append(yes(desk.engine, found, desk.analyst))] * 16)
    assert answers == ["done"] * 16
    assert len(set(made)) == 1
    assert (
        len([each for each in jobs.jobs(desk.engine, desk.analyst) if each["state"] == "queued"])
        == 1
    )
