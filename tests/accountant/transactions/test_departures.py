"""People who left while something of theirs waited: it is told before a decision, and not
approved.
"""

import pytest

from accountant.core.errors import Conflict
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.policy import Policy
from accountant.identities import people
from accountant.identities.credentials import actor_of, find_user
from accountant.queries import decisions as decision_queries
from accountant.queries import entries, jobs
from accountant.transactions import access, offers, policies
from accountant.transactions.allowances import Allowance, allow
from tests.support import Bench, awaiting, no, person, yes

pytestmark = pytest.mark.slow


def close(bench, who):
    people.deactivate(bench.engine, administrator(bench), who.name)


def retire(bench, who):
    people.set_roles(bench.engine, administrator(bench), who.name, ["auditor"])


def administer(bench, who):
    people.set_roles(bench.engine, administrator(bench), who.name, ["administrator"])


def strike(bench, who):
    other = person(bench.engine, "analyst")
    stewards = (bench.steward.name, *bench.others)
    policy = Policy(
        analysts=(other.name,), stewards=tuple(each for each in stewards if each != who.name)
    )
    policies.set_policy(bench.engine, bench.dataset, policy, bench.steward)


def administrator(bench):
    return person(bench.engine, "administrator")


WAYS = {
    "closed": close,
    "no role any more": retire,
    "no role": administer,
    "no longer names": strike,
}


@pytest.fixture
def desk(engine) -> Bench:
    bench = Bench(engine)
    bench.others = (person(engine, "steward").name,)
    bench.allow()
    bench.warm()
    return bench


@pytest.mark.parametrize("why", WAYS)
def test_a_steward_is_told_and_approval_is_refused(desk, why):
    job = desk.submit(10)
    (waits,) = awaiting(desk.engine, desk.steward, desk.dataset)
    assert waits.analyst_left is None
    WAYS[why](desk, desk.analyst)  # after the page was read
    (waits,) = awaiting(desk.engine, desk.steward, desk.dataset)
    assert why in waits.analyst_left
    assert jobs.job(desk.engine, job, desk.steward).analyst_left == waits.analyst_left
    before = entries.entries(desk.engine, desk.dataset, desk.auditor)[0]["seq"]
    with pytest.raises(Conflict, match=r"closed|role|policy"):
        yes(desk.engine, job, desk.steward, "fine")
    assert entries.entries(desk.engine, desk.dataset, desk.auditor)[0]["seq"] == before
    assert jobs.job(desk.engine, job, desk.steward).state == "awaiting_approval"
    no(desk.engine, job, desk.steward, "left")
    assert jobs.job(desk.engine, job, desk.steward).analyst_left is None  # nothing is to be decided


@pytest.mark.parametrize("why", ["closed", "no role any more", "no role"])
def test_the_policy_may_admit_them_and_the_entry_says_so(desk, why):
    policies.set_policy(desk.engine, desk.dataset, Policy(departed_analysts=True), desk.steward)
    job = desk.submit(10)
    WAYS[why](desk, desk.analyst)
    yes(desk.engine, job, desk.steward, "she agreed before")
    assert jobs.job(desk.engine, job, desk.steward).state == "queued"
    body = entries.entries(desk.engine, desk.dataset, desk.auditor)[0]["body"]
    assert why in body["approval"]["departed"]
    assert verify_lines(entries.export(desk.engine, desk.dataset, desk.auditor, "jsonl")).entries


def test_whoever_came_back_is_approved(desk):
    job = desk.submit(10)
    close(desk, desk.analyst)
    people.activate(desk.engine, administrator(desk), desk.analyst.name)
    yes(desk.engine, job, desk.steward, "fine")
    assert jobs.job(desk.engine, job, desk.steward).state == "queued"


@pytest.mark.parametrize("why", ["closed", "no role any more", "no longer names"])
def test_a_job_that_waits_for_a_look_at_its_model_is_not_approved_by_the_policy(engine, why):
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    bench.others = ()
    bench.allow()
    job = bench.submit(10)
    WAYS[why](bench, bench.analyst)
    bench.probe(job)
    found = jobs.job(engine, job, bench.steward)
    assert (found.state, found.refusal.cap) == ("refused", "policy")
    assert bench.analyst.name in found.refusal.why


@pytest.mark.parametrize("why", ["closed", "no role any more"])
def test_nothing_is_offered_to_who_left_and_an_open_offer_says_so(desk, why):
    first, second = desk.submit(10), desk.submit(11)
    offer = offers.offer(desk.engine, first, {"tokens_per_batch": 4}, desk.steward, "enough")
    WAYS[why](desk, desk.analyst)
    assert why in decision_queries.show(desk.engine, offer, desk.steward).left
    with pytest.raises(Conflict, match="nobody could accept"):
        offers.offer(desk.engine, second, {"tokens_per_batch": 4}, desk.steward, "enough")


@pytest.mark.parametrize("why", ["closed", "no steward", "no longer names"])
def test_the_offer_of_a_steward_who_left_is_not_accepted(desk, why):
    leaver = actor_of(find_user(desk.engine, name=desk.others[0]))
    policy = Policy(stewards=(desk.steward.name, leaver.name))
    policies.set_policy(desk.engine, desk.dataset, policy, desk.steward)
    offer = offers.offer(desk.engine, desk.submit(10), {"tokens_per_batch": 4}, leaver, "enough")
    _leave(desk, leaver, why)
    assert why in decision_queries.show(desk.engine, offer, desk.analyst).left
    with pytest.raises(Conflict, match=why):
        yes(desk.engine, offer, desk.analyst)


@pytest.mark.parametrize("why", ["closed", "no steward", "no longer names"])
def test_a_proposal_of_who_left_is_told_and_not_confirmed(desk, why):
    leaver = actor_of(find_user(desk.engine, name=desk.others[0]))
    policy = Policy(two_people=True, stewards=(desk.steward.name, leaver.name))
    policies.set_policy(desk.engine, desk.dataset, policy, desk.steward)
    proposal = allow(desk.engine, desk.dataset, Allowance("20", "0.00001", "more"), leaver)
    assert decision_queries.show(desk.engine, proposal, desk.steward).left is None
    _leave(desk, leaver, why, two_people=True)
    assert why in decision_queries.show(desk.engine, proposal, desk.steward).left
    with pytest.raises(Conflict, match=why):
        yes(desk.engine, proposal, desk.steward, "fine")


def _leave(desk, leaver, why, **policy):
    match why:
        case "closed":
            proposals_without(desk, ())
            close(desk, leaver)
        case "no steward":
            proposals_without(desk, ())
            people.set_roles(desk.engine, administrator(desk), leaver.name, ["analyst"])
        case _:
            proposals_without(desk, (desk.steward.name,))


def proposals_without(desk, stewards):
    """Name these stewards, past the rules of two people: an account that a policy names can't be
    closed.
    """
    from sqlalchemy import text

    with desk.engine.begin() as connection:
        change = text(
            "UPDATE datasets SET policy = jsonb_set(policy, '{stewards}', to_jsonb(CAST(:names AS "
            "text[]))) "
            "WHERE name = :name"
        )
        connection.execute(change, {"names": list(stewards), "name": desk.dataset})


@pytest.mark.parametrize("why", ["closed", "no role any more"])
def test_access_is_not_granted_to_who_left(desk, why):
    policies.set_policy(
        desk.engine, desk.dataset, Policy(analysts=(desk.analyst.name,)), desk.steward
    )
    asker = person(desk.engine, "analyst")
    wanted = access.ask_for(desk.engine, desk.dataset, asker, "a study")
    WAYS[why](desk, asker)
    assert why in decision_queries.show(desk.engine, wanted, desk.steward).left
    with pytest.raises(Conflict, match=why):
        yes(desk.engine, wanted, desk.steward, "welcome")
