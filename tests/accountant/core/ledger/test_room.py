"""Jobs of one shape that still fit: the number is the one at which admission stops."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.ledger.accounts import Accounts, Demand, ExPostAccount, decide_job
from accountant.core.ledger.admission import Account, FilterAccount, Refused
from accountant.core.ledger.books import Books
from accountant.core.ledger.capacity import binding
from accountant.core.ledger.caps import Usage, counted
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.reservations import move
from accountant.core.privacy.events import (
    FREE,
    Composed,
    EpsilonDelta,
    Gaussian,
    Laplace,
    SelfComposed,
)
from accountant.core.privacy.filters import Amount, Kind, portfolio
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal
from accountant.queries.account_views import account_view
from accountant.queries.standing import Shape, Standing

POLICY = Policy(auto_approve_epsilon="1000")


def fresh(epsilon: int, delta: float = 1e-6) -> Account:
    units = (epsilon * EPSILON_UNITS, int(delta * DELTA_UNITS))
    return Account(
        *units, tuple(FilterAccount(each, each.limit(*units)) for each in portfolio(*units))
    )


def step_of(account: Account) -> int:
    """The delta that the job below pays on the basic filter."""
    return account.costs(Gaussian(20.0))[Kind.BASIC].delta


def admitted(
    accounts: Accounts, asked: Demand, policy: Policy, alone: float, most: int = 3000
) -> int:
    """Return the number of jobs really admitted, one after the other."""
    used = 0
    for count in range(most):
        decision = decide_job(accounts, asked, alone, policy, True, Usage(analyst=used))
        if isinstance(decision, Refused):
            return count
        used += counted(alone)
        account = move(accounts.dp, accounts.dp.charge(asked.dp)[0], reserved=1)
        reserved = accounts.ex_post.reserved + asked.ex_post
        accounts = replace(
            accounts, dp=account, ex_post=replace(accounts.ex_post, reserved=reserved)
        )
    raise AssertionError("it never ends")


EVENTS = st.one_of(
    st.floats(1, 30).map(Gaussian),
    st.floats(1, 30).map(Laplace),
    st.floats(2, 20).map(lambda m: SelfComposed(Gaussian(m), 3)),
    st.just(EpsilonDelta(0.05, 1e-9)),
    st.floats(2, 20).map(lambda m: Composed((Gaussian(m), EpsilonDelta(0.1, 1e-8)))),
)


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.integers(1, 6))
def test_the_number_is_where_admission_stops(event, epsilon):
    accounts = Accounts(fresh(epsilon))
    room = binding(accounts, Demand(event), POLICY, Usage(), 0.1)
    assert room.jobs == admitted(accounts, Demand(event), POLICY, 0.1)


@pytest.mark.parametrize(
    ("cap", "alone", "jobs"), [("1", 0.3, 3), ("0.300000001", 0.3, 1), ("0.29", 0.3, 0)]
)
def test_a_cap_of_the_asker_binds_before_the_filters(cap, alone, jobs):
    policy = Policy(auto_approve_epsilon="1000", analyst_epsilon=cap)
    accounts, asked = Accounts(fresh(10)), Demand(Gaussian(20.0))
    room = binding(accounts, asked, policy, Usage(), alone)
    assert (room.cap, room.jobs) == ("analyst cap", jobs)
    assert room.jobs == admitted(accounts, asked, policy, alone)


def test_an_ex_post_cap_binds_where_it_is_the_least():
    accounts = Accounts(fresh(10), ExPostAccount(limit=10 * EPSILON_UNITS, spent=EPSILON_UNITS))
    asked = Demand(Gaussian(20.0), ex_post=2 * EPSILON_UNITS)
    room = binding(accounts, asked, POLICY, Usage(), 0.2)
    assert (room.cap, room.jobs, room.left, room.asked) == ("ex-post", 4, "9", "2")
    assert room.jobs == admitted(accounts, asked, POLICY, 0.2)


def test_what_is_free_has_no_bound_and_what_has_no_allowance_has_no_room():
    assert binding(Accounts(None), Demand(FREE), POLICY, Usage(), 0) is None
    assert binding(Accounts(None), Demand(Gaussian(5.0)), POLICY, Usage(), 1).jobs == 0


def drained(account: Account, steps: Fraction) -> Account:
    """The basic filter has half of its ε left, and δ for so many jobs that are not pure; others are
    full.
    """

    def basic(each: FilterAccount) -> FilterAccount:
        left = int(step_of(account) * steps)
        return each._replace(spent=Amount(each.limit.main // 2, each.limit.delta - left))

    return replace(
        account,
        filters=tuple(
            basic(each) if each.filter.kind is Kind.BASIC else each._replace(spent=each.limit)
            for each in account.filters
        ),
    )


@pytest.mark.parametrize("steps", [Fraction(1, 2), Fraction(1)])
def test_where_the_basic_filter_lacks_delta_the_figures_are_of_delta(steps):
    account, asked = drained(fresh(10), steps), Demand(Gaussian(20.0))
    step, left = (to_decimal(int(step_of(account) * each), DELTA_UNITS) for each in (1, steps))
    if steps < 1:
        refused = decide_job(Accounts(account), asked, 0.2, POLICY, True)
        assert (refused.cap, refused.left, refused.asked) == ("basic δ", left, step)
        assert f"costs {step} of δ on the basic filter, {left} is left" in refused.why
    else:
        room = binding(Accounts(account), asked, POLICY, Usage(), 0.2)
        assert (room.cap, room.left, room.asked, room.jobs) == ("basic δ", left, step, 1)
    pure = Demand(Laplace(10.0))  # costs no δ and has room in ε
    assert binding(Accounts(account), pure, POLICY, Usage(), 0.1).cap == "basic"
    assert not isinstance(decide_job(Accounts(account), pure, 0.1, POLICY, True), Refused)


def test_a_filter_without_delta_is_full_and_is_not_the_one_with_most_room():
    *others, basic = drained(fresh(10), Fraction(0)).filters
    others = [each._replace(spent=Amount(each.limit.main * 9 // 10)) for each in others]
    passed = basic._replace(spent=basic.spent + Amount(0, 1))
    account = replace(fresh(10), filters=(*others, passed))
    seen = account_view(Books(account))
    assert seen["best_filter"] != "basic"
    assert seen["used_share"] == pytest.approx(0.9, rel=1e-6)
    told = Standing(Accounts(account), Usage(), POLICY).effect(Shape(Demand(Gaussian(20.0)), 0.2))[
        "filters"
    ][-1]
    assert told["kind"] == "basic"
    assert told["after"] is None
