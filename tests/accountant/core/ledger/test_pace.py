"""How long an allowance lasts at a pace: the months are those that admission serves whole, job by job."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.ledger.accounts import Accounts, Demand, ExPostAccount, decide_job
from accountant.core.ledger.admission import Refused
from accountant.core.ledger.caps import Usage, counted
from accountant.core.ledger.pace import Pace, share_left_after, supply
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.reservations import move
from accountant.core.privacy.events import FREE, Gaussian
from accountant.core.privacy.units import EPSILON_UNITS
from accountant.queries.remaining import share_left
from tests.accountant.core.ledger.test_room import EVENTS, POLICY, fresh


def served(accounts: Accounts, asked: Demand, policy: Policy, alone: float, pace: Pace) -> tuple[int, int]:
    """The whole months that are really admitted, job by job, and the jobs of the first that is not whole.

    In each month everybody asks for all of theirs; whose cap is reached goes without.
    """
    used, months = [0] * pace.people, 0
    while True:
        fitted = 0
        for person in range(pace.people):
            for _ in range(pace.each):
                decision = decide_job(accounts, asked, alone, policy, True, Usage(analyst=used[person]))
                if isinstance(decision, Refused):
                    break
                fitted += 1
                used[person] += counted(alone)
                account = move(accounts.dp, accounts.dp.costs(asked.dp), reserved=1)
                ex_post = replace(accounts.ex_post, reserved=accounts.ex_post.reserved + asked.ex_post)
                accounts = replace(accounts, dp=account, ex_post=ex_post)
        if fitted < pace.a_month:
            return months, fitted
        months += 1


@settings(max_examples=40, deadline=None)
@given(
    EVENTS,
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from((None, "0.9", "2", "0.05")),
    st.sampled_from((0, EPSILON_UNITS)),
)
def test_a_pace_lasts_as_long_as_admission_serves_it(event, epsilon, people, each, cap, ex_post):
    accounts = Accounts(fresh(epsilon), ExPostAccount(limit=9 * EPSILON_UNITS))
    asked, pace = Demand(event, ex_post), Pace(people, each)
    policy = POLICY if cap is None else POLICY.model_copy(update={"analyst_epsilon": cap})
    stock, _ = supply(accounts, asked, policy, 0.1)
    months, rest = served(accounts, asked, policy, 0.1, pace)
    assert (stock.months(pace), stock.rest(pace)) == (months, rest)


@settings(max_examples=40, deadline=None)
@given(EVENTS, st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.sampled_from((None, "0.9")))
def test_the_largest_pace_lasts_and_one_more_does_not(event, epsilon, people, months, cap):
    policy = POLICY if cap is None else POLICY.model_copy(update={"analyst_epsilon": cap})
    stock, _ = supply(Accounts(fresh(epsilon)), Demand(event), policy, 0.1)
    each, together = stock.largest(people, months)
    assert each * people <= together
    if each:
        assert stock.months(Pace(people, each)) >= months
    assert stock.months(Pace(people, each + 1)) < months
    one = replace(stock, own=None)  # all together: as one who asks for all, within everybody's caps
    everybody = one.together if stock.own is None else min(one.together, people * stock.own)
    assert together * months <= everybody < (together + 1) * months


@settings(max_examples=30, deadline=None)
@given(EVENTS, st.integers(1, 3), st.integers(1, 12))
def test_what_is_left_after_jobs_is_what_their_reservations_leave(event, epsilon, jobs):
    accounts, asked = Accounts(fresh(epsilon)), Demand(event)
    stock, _ = supply(accounts, asked, POLICY, 0.1)
    jobs = min(jobs, stock.together)
    moved = accounts
    for _ in range(jobs):
        moved = replace(moved, dp=move(moved.dp, moved.dp.costs(event), reserved=1))
    if jobs:
        assert share_left_after(accounts, asked, jobs) == share_left(moved)


@pytest.mark.parametrize("asked", [Demand(FREE), Demand(FREE, ex_post=EPSILON_UNITS)])
def test_what_no_filter_charges_has_no_share_and_what_is_free_no_end(asked):
    accounts = Accounts(fresh(3), ExPostAccount(limit=9 * EPSILON_UNITS))
    assert share_left_after(accounts, asked, 1) is None
    found = supply(accounts, asked, POLICY, 0.0)
    assert (found is None) == (asked == Demand(FREE))
    if found is not None:
        assert found[0].together == 9


def test_the_limit_that_ends_it_is_named_and_caps_are_each_persons():
    policy = POLICY.model_copy(update={"analyst_epsilon": "0.38"})
    stock, room = supply(Accounts(fresh(10)), Demand(Gaussian(20.0)), policy, 0.125)
    assert stock.own == 3
    assert room.cap in ("renyi", "gaussian", "renyi2", "basic", "basic δ")
    assert stock.months(Pace(2, 2)) == 1
    assert stock.rest(Pace(2, 2)) == 2
