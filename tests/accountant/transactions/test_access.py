"""Requests for access: who may ask and decide, and that only the policy ever lets somebody ask for jobs."""

import pytest

from accountant.core.errors import Conflict, InvalidRequest, NotFound, NotPermitted
from accountant.core.ledger.policy import Policy
from accountant.queries import access as access_queries
from accountant.queries import datasets
from accountant.transactions import access, proposals
from tests.support import Bench, person


@pytest.fixture
def closed(engine) -> Bench:
    """A dataset on which its analyst alone may ask."""
    bench = Bench(engine)
    proposals.set_policy(engine, bench.dataset, Policy(analysts=(bench.analyst.name,)), bench.steward)
    return bench


def policy(engine, bench: Bench) -> Policy:
    return datasets.dataset(engine, bench.dataset, bench.steward).policy


def test_a_request_that_is_granted_names_its_person_in_the_policy(engine, closed):
    asker = person(engine, "analyst")
    made = access.ask(engine, closed.dataset, asker, "  a study of waiting times ")
    assert not datasets.dataset(engine, closed.dataset, asker).may_ask
    (waits,) = [each for each in access_queries.waiting(engine, closed.steward) if each.id == str(made)]
    assert (waits.person, waits.reason, waits.may_ask) == (asker.name, "a study of waiting times", False)
    assert access.grant(engine, made, closed.steward, "welcome") is None
    assert policy(engine, closed).analysts == (closed.analyst.name, asker.name)
    told = access_queries.latest(engine, asker, closed.dataset)
    assert (told.state, told.answer, told.decided_by) == ("granted", "welcome", closed.steward.name)
    with pytest.raises(Conflict, match="granted already"):
        access.refuse(engine, made, closed.steward, "or not")
    with pytest.raises(Conflict, match="may ask for jobs on this dataset already"):
        access.ask(engine, closed.dataset, asker, "again")


def test_a_grant_takes_two_people_where_the_policy_asks_for_two(engine, closed):
    two = Policy(analysts=(closed.analyst.name,), two_people=True)
    proposals.set_policy(engine, closed.dataset, two, closed.steward)
    asker, second = person(engine, "analyst"), person(engine, "steward")
    made = access.ask(engine, closed.dataset, asker, "a study")
    proposal = access.grant(engine, made, closed.steward, "welcome")
    assert proposal is not None
    assert policy(engine, closed).analysts == (closed.analyst.name,), "not before the second steward"
    assert not access_queries.latest(engine, asker, closed.dataset).may_ask
    proposals.confirm(engine, proposal, second, "we talked about it")
    assert asker.name in policy(engine, closed).analysts


def test_a_refusal_changes_nothing_and_one_may_ask_again(engine, closed):
    asker = person(engine, "analyst")
    made = access.ask(engine, closed.dataset, asker, "a study")
    with pytest.raises(Conflict, match="waits for a steward already"):
        access.ask(engine, closed.dataset, asker, "once more")
    with pytest.raises(InvalidRequest) as empty:
        access.refuse(engine, made, closed.steward, "  ")
    assert empty.value.problems[0].field == "reason"
    access.refuse(engine, made, closed.steward, "another dataset serves you better")
    assert policy(engine, closed).analysts == (closed.analyst.name,)
    assert access.ask(engine, closed.dataset, asker, "that one has no labels") != made


def test_a_person_has_so_many_requests_a_day(engine, closed):
    asker = person(engine, "analyst")
    for _ in range(access.PER_DAY):
        made = access.ask(engine, closed.dataset, asker, "a study")
        access.refuse(engine, made, closed.steward, "no")
    with pytest.raises(InvalidRequest, match="5 requests in 24 hours"):
        access.ask(engine, closed.dataset, asker, "a study")
    assert access.ask(engine, closed.dataset, person(engine, "analyst"), "another person")


def test_only_who_could_ask_for_jobs_asks_and_only_the_datasets_stewards_decide(engine, closed):
    with pytest.raises(NotPermitted):
        access.ask(engine, closed.dataset, closed.auditor, "a look")
    with pytest.raises(NotFound):
        access.ask(engine, "nothing-of-this-name", person(engine, "analyst"), "a look")
    owned = Policy(analysts=(closed.analyst.name,), stewards=(closed.steward.name,))
    proposals.set_policy(engine, closed.dataset, owned, closed.steward)
    asker, stranger = person(engine, "analyst"), person(engine, "steward")
    made = access.ask(engine, closed.dataset, asker, "a study")
    assert str(made) not in [each.id for each in access_queries.waiting(engine, stranger)]
    for decide in (access.grant, access.refuse):
        with pytest.raises(NotFound):
            decide(engine, made, stranger, "as if it were mine")
        with pytest.raises(NotPermitted):
            decide(engine, made, asker, "as if I were one")
    before = access_queries.count_waiting(engine, closed.steward)
    access.refuse(engine, made, closed.steward, "no")
    assert access_queries.count_waiting(engine, closed.steward) == before - 1


def test_nobody_decides_on_a_request_of_their_own(engine, closed):
    steward = person(engine, "steward")
    made = access.ask(engine, closed.dataset, steward, "I would ask here myself")
    for decide in (access.grant, access.refuse):
        with pytest.raises(NotPermitted, match="their own"):
            decide(engine, made, steward, "fine with me")
    access.grant(engine, made, closed.steward, "fine with me")


def test_where_everybody_may_ask_by_now_a_grant_names_nobody(engine, closed):
    asker = person(engine, "analyst")
    made = access.ask(engine, closed.dataset, asker, "a study")
    proposals.set_policy(engine, closed.dataset, Policy(), closed.steward)
    assert access.grant(engine, made, closed.steward, "everybody may") is None
    assert policy(engine, closed).analysts == (), "one name in the list would shut everybody else out"


def test_a_policy_that_changes_meanwhile_is_looked_at_again(engine, closed, monkeypatch):
    asker, narrower = person(engine, "analyst"), Policy(analysts=(closed.analyst.name,), approval_days=3)
    made, real = access.ask(engine, closed.dataset, asker, "a study"), proposals.set_policy

    def late(*asked):
        real(engine, closed.dataset, narrower, closed.steward)
        return real(*asked)

    monkeypatch.setattr(proposals, "set_policy", late)
    with pytest.raises(Conflict, match="changed meanwhile"):
        access.grant(engine, made, closed.steward, "welcome")
    monkeypatch.undo()
    assert policy(engine, closed) == narrower
    assert access_queries.latest(engine, asker, closed.dataset).state == "open"
