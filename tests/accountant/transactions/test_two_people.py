"""Nobody is two people: who manages accounts or has a new account is neither of the two that an act
takes.
"""

import pytest

from accountant import settings
from accountant.core.errors import Conflict, InvalidRequest, NotPermitted
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.policy import Policy
from accountant.identities import credentials, people
from accountant.identities.actor import Actor
from accountant.queries import decisions, integrity
from accountant.transactions import allowances, owners, policies
from tests.support import Bench, person, somebody, yes


@pytest.fixture
def served_wait(monkeypatch):
    """The wait of new accounts as the service has it."""
    served = settings.load().model_copy(update={"new_account_hours": 24.0})
    monkeypatch.setattr(settings, "load", lambda: served)


@pytest.fixture
def two(bench) -> Bench:
    policies.set_policy(bench.engine, bench.dataset, Policy(two_people=True), bench.steward)
    return bench


def aged(owner, *actors: Actor) -> None:
    """As if these accounts were made two days ago; the owner of the tables turns the clock back."""
    from sqlalchemy import text

    with owner.begin() as connection:
        connection.execute(text("ALTER TABLE activity DISABLE TRIGGER USER"))
        for actor in actors:
            past = {"id": actor.id, "name": actor.name}
            connection.execute(
                text("UPDATE users SET created_at = created_at - interval '2 days' WHERE id = :id"),
                past,
            )
            connection.execute(
                text("UPDATE activity SET at = at - interval '2 days' WHERE object_id = :name"),
                past,
            )
        connection.execute(text("ALTER TABLE activity ENABLE TRIGGER USER"))


def again(bench: Bench, actor: Actor) -> Actor:
    """The actor with the roles of now."""
    user = credentials.find_user(bench.engine, user_id=actor.id)
    assert user is not None
    return credentials.actor_of(user)


def raised(bench: Bench, by: Actor, epsilon: str = "500"):
    made = allowances.allow(
        bench.engine, bench.dataset, Allowance(epsilon, "0.0000029053", "more"), by
    )
    assert made is not None, "the raise stood at once"
    return made


def both(bench: Bench) -> Actor:
    """An account of the first use: steward and administrator."""
    made = person(bench.engine, "steward")
    root = person(bench.engine, "administrator")
    people.set_roles(bench.engine, root, made.name, ["steward", "administrator"])
    return again(bench, made)


def test_the_first_account_confirms_no_raise_as_a_second_person_that_it_made(
    two, owner, served_wait
):
    """The attack: steward and administrator raise ε 10 to 500 with an account that they made for
    it.
    """
    first = both(two)
    aged(owner, first, two.steward)
    with pytest.raises(NotPermitted, match="steward and administrator"):
        raised(two, first)
    with pytest.raises(NotPermitted, match="steward and administrator"):
        yes(two.engine, raised(two, two.steward), first, "fine")
    # It hands over the role of administrator, and proposes: whom it made confirms nothing for a
    # day.
    credentials.add_user(two.engine, f"second-{two.dataset}", None, ["steward"], actor=first)
    second = credentials.find_user(two.engine, name=f"second-{two.dataset}")
    proposal = raised(two, two.steward, "400")
    with pytest.raises(NotPermitted, match="confirms nothing before"):
        yes(two.engine, proposal, credentials.actor_of(second), "fine")
    aged(owner, credentials.actor_of(second))
    assert yes(two.engine, proposal, credentials.actor_of(second), "fine")


@pytest.mark.parametrize("how", ["reset", "role", "opened"])
def test_an_account_that_was_put_into_other_hands_confirms_nothing_for_a_day(
    two, owner, served_wait, how
):
    root, second = person(two.engine, "administrator"), person(two.engine, "steward")
    proposal = raised(two, two.steward)
    aged(owner, second)
    if how == "reset":
        people.reset_password(two.engine, root, second.name, "hash")
    elif how == "role":
        people.set_roles(two.engine, root, second.name, ["analyst"])
        people.set_roles(two.engine, root, second.name, ["steward"])
    else:
        people.deactivate(two.engine, root, second.name)
        people.activate(two.engine, root, second.name)
    with pytest.raises(NotPermitted, match="confirms nothing before"):
        yes(two.engine, proposal, second, "fine")
    beside = decisions.show(two.engine, proposal, second).acts_on_stewards
    shown = {(each["actor"], each["account"]) for each in beside}
    assert (root.name, second.name) in shown
    aged(owner, second)
    assert yes(two.engine, proposal, second, "fine")


def test_own_passwords_and_other_roles_put_an_account_into_nobodys_hands(two, owner, served_wait):
    root, second = person(two.engine, "administrator"), person(two.engine, "steward")
    proposal = raised(two, two.steward)
    aged(owner, second)
    credentials.set_password(two.engine, second.id, "hash", actor=second)
    people.set_roles(two.engine, root, second.name, ["analyst", "steward"])
    assert yes(two.engine, proposal, again(two, second), "fine")


def test_no_new_account_and_no_administrator_approves_a_job_where_two_are_asked_for(
    two, owner, served_wait
):
    job_id = two.submit(5)
    two.probe(job_id)
    first = both(two)
    aged(owner, first)
    with pytest.raises(NotPermitted, match="steward and administrator"):
        yes(two.engine, job_id, first, "fine")
    with pytest.raises(NotPermitted, match="confirms nothing before"):
        yes(two.engine, job_id, two.steward, "fine")
    aged(owner, two.steward)
    yes(two.engine, job_id, two.steward, "fine")


def test_who_proposed_may_not_have_become_administrator(two):
    root, second = person(two.engine, "administrator"), person(two.engine, "steward")
    proposal = raised(two, two.steward)
    people.set_roles(two.engine, root, two.steward.name, ["steward", "administrator"])
    with pytest.raises(Conflict, match="administrator by now"):
        yes(two.engine, proposal, second, "fine")


@pytest.mark.parametrize("given", ["steward", "administrator"])
def test_the_first_account_stops_being_both_once_there_are_two(engine, given):
    first = both(Bench(engine))
    credentials.add_user(engine, f"of-{first.name}", None, [given, "analyst"], actor=first)
    kept = credentials.find_user(engine, user_id=first.id)
    assert kept.roles == [{"steward": "administrator", "administrator": "steward"}[given]]
    credentials.add_user(engine, f"too-{first.name}", None, ["analyst"], actor=first)


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["analysts", "stewards", "auditors"])
def test_a_name_that_nobody_has_is_in_no_policy(bench, field):
    with pytest.raises(InvalidRequest, match="nobody has the name 'nobody-yet'"):
        policies.set_policy(
            bench.engine, bench.dataset, Policy(**{field: ("nobody-yet",)}), bench.steward
        )
    with pytest.raises(InvalidRequest, match=r"policy\.analysts: nobody"):
        Bench(bench.engine, policy={"analysts": ["nobody-yet"]})


def test_owners_have_the_role_that_they_own_with(bench):
    for field, wrong in (("stewards", bench.auditor), ("auditors", bench.analyst)):
        with pytest.raises(InvalidRequest, match="with an open account"):
            policies.set_policy(
                bench.engine, bench.dataset, Policy(**{field: (wrong.name,)}), bench.steward
            )


def test_a_name_that_a_policy_holds_is_given_to_nobody(bench, monkeypatch):
    """However it came there: whoever gets the name would inherit its rights."""
    name = f"ghost-{bench.dataset}"
    with monkeypatch.context() as before:
        before.setattr(owners, "check_people", lambda *_, **__: None)
        policies.set_policy(bench.engine, bench.dataset, Policy(analysts=(name,)), bench.steward)
    with pytest.raises(Conflict, match="would inherit it"):
        credentials.add_user(bench.engine, name, None, ["analyst"])
    found = people.add_external(
        bench.engine, "https://idp", f"of {name}", [name, "other-name"], ["analyst"]
    )
    assert found.name == "other-name"
    policies.set_policy(
        bench.engine, bench.dataset, Policy(analysts=("other-name",)), bench.steward
    )
    assert somebody(bench.engine, name) == name
    assert integrity.check(bench.engine, bench.dataset) == []


# --- names that look alike -----------------------------------------------------------------------


def alike(name: str) -> str:
    """Another name that people take for this one."""
    changed = name.translate(str.maketrans({"o": "0", "l": "1", "0": "o", "1": "l"})).replace(
        "rn", "m"
    )
    assert changed != name
    return changed


def test_a_name_that_looks_like_an_accounts_is_given_to_nobody(bench):
    name = f"carol-{bench.dataset}"
    credentials.add_user(bench.engine, name, None, ["analyst"])
    for other in (alike(name), name.replace("l", "1", 1), name.replace("o", "0", 1)):
        with pytest.raises(Conflict, match=f"looks like '{name}'"):
            credentials.add_user(bench.engine, other, None, ["steward"])
        found = people.add_external(
            bench.engine, "https://idp", f"of {other}", [other], ["steward"]
        )
        assert found is None
    with pytest.raises(Conflict, match="there is a user"):
        credentials.add_user(bench.engine, name, None, ["analyst"])


def test_two_people_whose_names_look_alike_are_one(two, monkeypatch):
    """However they came to be: what both of them signed would not verify."""
    name = f"carol-{two.dataset}"
    with monkeypatch.context() as before:
        before.setattr(credentials, "is_alike", lambda *_: False)
        first, second = (person(two.engine, "steward", each) for each in (name, alike(name)))
        two.analyst = person(two.engine, "analyst", name.replace("o", "0", 1))
    proposed = raised(two, first)
    with pytest.raises(NotPermitted, match="look alike: not two people"):
        yes(two.engine, proposed, second, "seen")
    job_id = two.submit(10)
    two.probe(job_id)
    with pytest.raises(NotPermitted, match="look alike: nobody approves a job of their own"):
        yes(two.engine, job_id, second, "within the plan")
    assert integrity.check(two.engine, two.dataset) == []
