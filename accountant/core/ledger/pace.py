"""How long an allowance lasts at a pace: people who each ask for so many jobs of one shape a month.

    jobs that fit (core.ledger.capacity, whole numbers) ──▶ whole months, and the rest of the next

Nothing is estimated: a job of the same shape always costs the same, amounts are integers, and what fits is a
division. Each person's cap is counted as unused, and projects' caps are not counted.
"""

from dataclasses import dataclass

from accountant.core.ledger.accounts import Accounts, Demand
from accountant.core.ledger.capacity import Room, binding
from accountant.core.ledger.caps import ANALYST, NO_USAGE, counted, limits
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import releases
from accountant.core.privacy.filters import Amount


@dataclass(frozen=True)
class Pace:
    """`people` who each ask for `each` jobs a month."""

    people: int
    each: int

    @property
    def a_month(self) -> int:
        return self.people * self.each


@dataclass(frozen=True)
class Supply:
    """Jobs of one shape that fit: `together`, and `own` under one person's cap (None: no cap)."""

    together: int
    own: int | None = None

    def months(self, pace: Pace) -> int:
        """The whole months that a pace lasts."""
        months = self.together // pace.a_month
        return months if self.own is None else min(months, self.own // pace.each)

    def left(self, pace: Pace, months: int) -> int:
        """The jobs that still fit after so many months, at most `months(pace)`; people's caps aside."""
        return self.together - months * pace.a_month

    def rest(self, pace: Pace) -> int:
        """The jobs of the first month that is not served whole which still fit."""
        months = self.months(pace)
        own = pace.each if self.own is None else min(pace.each, self.own - months * pace.each)
        return min(self.left(pace, months), pace.people * own)

    def largest(self, people: int, months: int) -> tuple[int, int]:
        """The most jobs a month for each of these people, and for all together, over so many months."""
        own = self.together if self.own is None else self.own
        each = min(self.together // (people * months), own // months)
        return each, min(self.together, people * own) // months


def supply(
    accounts: Accounts, asked: Demand, policy: Policy, epsilon_alone: float
) -> tuple[Supply, Room] | None:
    """The jobs of a shape that fit, and the limit that ends them for all together; None: the job is free."""
    everybody = policy.model_copy(update={"analyst_epsilon": None, "project_epsilon": None})
    room = binding(accounts, asked, everybody, NO_USAGE, epsilon_alone)
    if room is None:
        return None
    cap, one = limits(policy).get(ANALYST), counted(epsilon_alone)
    return Supply(room.jobs, cap // one if cap is not None and one else None), room


def share_left_after(accounts: Accounts, asked: Demand, jobs: int) -> float | None:
    """The share of the filter with most room that is left after so many jobs; None where none is charged.

    `jobs` at least 1. A filter that can't price the job is closed by it, and has none.
    """
    if accounts.dp is None or not releases(asked.dp):
        return None
    costs, whole = accounts.dp.charge(asked.dp)
    account = accounts.dp.with_whole(True) if whole else accounts.dp
    shares = [
        1 - each.share_with(Amount(cost.main * jobs, cost.delta * jobs))
        for each in account.filters
        if (cost := costs[each.filter.kind]) is not None and each.closed == 0
    ]
    return max(0.0, max(shares, default=0.0))
