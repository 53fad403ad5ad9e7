"""Requests for access: who may ask and decide, and that only the policy ever lets somebody ask for
jobs.
"""

from dataclasses import replace

import pytest

from accountant.core.errors import Conflict, InvalidRequest, NotFound, NotPermitted
from accountant.core.ledger.policy import Policy
from accountant.queries import datasets, decisions
from accountant.transactions import access, policies
from tests.support import Bench, no, person, yes


@pytest.fixture
def closed(engine) -> Bench:
    """A dataset on which its analyst alone may ask."""
    bench = Bench(engine)
    policies.set_policy(
        engine, bench.dataset, Policy(analysts=(bench.analyst.name,)), bench.steward
    )
    return bench


def waiting(bench: Bench, viewer) -> list:
    """Return the open requests for access to the bench's dataset that the viewer sees."""
    wanted = decisions.Wanted(kind="access", dataset=bench.dataset)
    return decisions.listing(bench.engine, viewer, wanted)


def policy(engine, bench: Bench) -> Policy:
    return datasets.dataset(engine, bench.dataset, bench.steward).policy


def test_a_request_that_is_granted_names_its_person_in_the_policy(engine, closed):
    asker = person(engine, "analyst")
    made = access.ask_for(engine, closed.dataset, asker, "  a study of waiting times ")
    assert not datasets.dataset(engine, closed.dataset, asker).may_ask
    (waits,) = waiting(closed, closed.steward)
    assert (waits.id, waits.asked_by, waits.reason) == (
        str(made),
        asker.name,
        "a study of waiting times",
    )
    assert waits.asks == f"let {asker.name} ask for jobs"
    assert yes(engine, made, closed.steward, "welcome") is None
    assert policy(engine, closed).analysts == (closed.analyst.name, asker.name)
    told = decisions.latest_access(engine, asker, closed.dataset)
    assert (told.state, told.answer, told.answered_by) == (
        "accepted",
        "welcome",
        closed.steward.name,
    )
    with pytest.raises(Conflict, match="accepted already"):
        no(engine, made, closed.steward, "or not")
    with pytest.raises(Conflict, match="may ask for jobs on this dataset already"):
        access.ask_for(engine, closed.dataset, asker, "again")


def test_a_grant_takes_two_people_where_the_policy_asks_for_two(engine, closed):
    two = Policy(analysts=(closed.analyst.name,), two_people=True)
    policies.set_policy(engine, closed.dataset, two, closed.steward)
    asker, second = person(engine, "analyst"), person(engine, "steward")
    made = access.ask_for(engine, closed.dataset, asker, "a study")
    proposal = yes(engine, made, closed.steward, "welcome")
    assert proposal is not None
    assert policy(engine, closed).analysts == (closed.analyst.name,), (
        "not before the second steward"
    )
    assert not datasets.dataset(engine, closed.dataset, asker).may_ask
    assert decisions.latest_access(engine, asker, closed.dataset).made_decision == str(proposal)
    yes(engine, proposal, second, "we talked about it")
    assert asker.name in policy(engine, closed).analysts


def test_a_refusal_changes_nothing_and_one_may_ask_again(engine, closed):
    asker = person(engine, "analyst")
    made = access.ask_for(engine, closed.dataset, asker, "a study")
    with pytest.raises(Conflict, match="waits for a steward already"):
        access.ask_for(engine, closed.dataset, asker, "once more")
    with pytest.raises(InvalidRequest) as empty:
        no(engine, made, closed.steward, "  ")
    assert empty.value.problems[0].field == "reason"
    no(engine, made, closed.steward, "another dataset serves you better")
    assert policy(engine, closed).analysts == (closed.analyst.name,)
    assert access.ask_for(engine, closed.dataset, asker, "that one has no labels") != made


def test_a_person_has_so_many_requests_a_day(engine, closed):
    asker = person(engine, "analyst")
    for _ in range(access.PER_DAY):
        made = access.ask_for(engine, closed.dataset, asker, "a study")
        no(engine, made, closed.steward, "no")
    with pytest.raises(InvalidRequest, match="5 requests in 24 hours"):
        access.ask_for(engine, closed.dataset, asker, "a study")
    assert access.ask_for(engine, closed.dataset, person(engine, "analyst"), "another person")


def test_only_who_could_ask_for_jobs_asks_and_only_the_datasets_stewards_decide(engine, closed):
    with pytest.raises(NotPermitted):
        access.ask_for(engine, closed.dataset, closed.auditor, "a look")
    with pytest.raises(NotFound):
        access.ask_for(engine, "nothing-of-this-name", person(engine, "analyst"), "a look")
    owned = Policy(analysts=(closed.analyst.name,), stewards=(closed.steward.name,))
    policies.set_policy(engine, closed.dataset, owned, closed.steward)
    asker, stranger = person(engine, "analyst"), person(engine, "steward")
    made = access.ask_for(engine, closed.dataset, asker, "a study")
    assert waiting(closed, stranger) == waiting(closed, closed.auditor) == []
    for somebody in (stranger, closed.auditor, person(engine, "analyst")):
        for decide in (yes, no):
            with pytest.raises(NotFound):
                decide(engine, made, somebody, "as if it were mine")
    with pytest.raises(NotPermitted):
        yes(engine, made, asker, "as if I were one")
    before, _ = decisions.count_waiting(engine, closed.steward)
    no(engine, made, closed.steward, "no")
    assert decisions.count_waiting(engine, closed.steward)[0] == before - 1


def test_nobody_grants_a_request_of_their_own_and_everybody_may_withdraw_it(engine, closed):
    steward = person(engine, "steward")
    made = access.ask_for(engine, closed.dataset, steward, "I would ask here myself")
    with pytest.raises(NotPermitted, match="for themselves"):
        yes(engine, made, steward, "fine with me")
    no(engine, made, steward, "not any more")
    assert decisions.latest_access(engine, steward, closed.dataset).state == "withdrawn"
    made = access.ask_for(engine, closed.dataset, steward, "after all")
    yes(engine, made, closed.steward, "fine with me")
    assert steward.name in policy(engine, closed).analysts


def test_where_everybody_may_ask_by_now_a_grant_names_nobody(engine, closed):
    asker = person(engine, "analyst")
    made = access.ask_for(engine, closed.dataset, asker, "a study")
    policies.set_policy(engine, closed.dataset, Policy(), closed.steward)
    assert yes(engine, made, closed.steward, "everybody may") is None
    assert policy(engine, closed).analysts == (), (
        "one name in the list would shut everybody else out"
    )


def test_a_grant_widens_the_policy_that_stands_when_it_is_given(engine, closed):
    asker, narrower = (
        person(engine, "analyst"),
        Policy(analysts=(closed.analyst.name,), approval_days=3),
    )
    made = access.ask_for(engine, closed.dataset, asker, "a study")
    policies.set_policy(engine, closed.dataset, narrower, closed.steward)
    yes(engine, made, closed.steward, "welcome")
    wider = (closed.analyst.name, asker.name)
    assert policy(engine, closed) == narrower.model_copy(update={"analysts": wider})


def test_a_grant_that_may_not_change_the_policy_leaves_the_request_open(engine, closed):
    asker, both = person(engine, "analyst"), person(engine, "steward")
    policies.set_policy(
        engine,
        closed.dataset,
        Policy(analysts=(closed.analyst.name,), two_people=True),
        closed.steward,
    )
    made = access.ask_for(engine, closed.dataset, asker, "a study")
    both = replace(both, roles=frozenset({"steward", "administrator"}))
    with pytest.raises(NotPermitted, match="steward and administrator"):
        yes(engine, made, both, "welcome")
    assert decisions.latest_access(engine, asker, closed.dataset).state == "open"
