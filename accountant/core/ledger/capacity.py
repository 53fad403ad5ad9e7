"""The number of jobs of one shape that still fit a dataset, and the limit that stops the next one.

Every account adds exact integers, so the number is a division; no job is tried.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from accountant.core.ledger.accounts import NOTHING, Accounts, Demand, beyond_dp
from accountant.core.ledger.caps import Usage, counted, limits
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import releases, stated_delta
from accountant.core.privacy.filters import Kind
from accountant.core.privacy.secrets import SecretKind
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal


@dataclass(frozen=True)
class Room:
    """The amount left by one limit. `cap` is its name in refusals; amounts are in its unit."""

    cap: str
    jobs: int
    left: str
    asked: str


def binding(
    accounts: Accounts, asked: Demand, policy: Policy, usage: Usage, epsilon_alone: float
) -> Room | None:
    """Return the limit that is the first to refuse as jobs of this shape continue; None if the job
    is free.

    Of the filters, the one that lasts longest counts, since one that holds is enough.
    """
    if asked == NOTHING:
        return None
    refused = beyond_dp(accounts, asked, policy.secret_jobs)
    if refused is not None:
        return Room(refused.cap, 0, refused.left, refused.asked)
    rooms = [*_of_accounts(accounts, asked), *_of_caps(policy, usage, epsilon_alone)]
    return min(rooms, key=lambda each: each.jobs, default=None)


def _of_accounts(accounts: Accounts, asked: Demand) -> Iterator[Room]:
    if releases(asked.dp):
        yield _of_filters(accounts, asked)
    if asked.ex_post:
        left = max(accounts.ex_post.left, 0)
        yield Room("ex-post", left // asked.ex_post, _epsilon(left), _epsilon(asked.ex_post))
    if asked.secret is not None or (accounts.secret is not None and releases(asked.dp)):
        yield _of_secret(accounts, asked)


def _of_filters(accounts: Accounts, asked: Demand) -> Room:
    if accounts.dp is None:
        return Room("allowance", 0, "0", "-")
    costs, whole = accounts.dp.charge(asked.dp)
    if whole:  # the first job takes the account, and a second of its shape is over half of it
        basic, cost = accounts.dp.with_whole(True).filters[-1], costs[Kind.BASIC]
        assert cost is not None  # it fits
        part = basic.part_that_binds(cost)
        return Room(part.cap, basic.number_of(cost), part.left, part.asked)
    numbers = [
        (filter_.number_of(cost), filter_, cost)
        for filter_ in accounts.dp.filters
        if (cost := costs[filter_.filter.kind]) is not None and not filter_.closed
    ]
    most = Room("allowance", 0, "0", "-")
    if numbers:
        jobs, longest, its_cost = max(numbers, key=lambda each: each[0])
        part = longest.part_that_binds(its_cost)
        most = Room(part.cap, jobs, part.left, part.asked)
    basic, cost = accounts.dp.filters[-1], costs[Kind.BASIC]
    if cost is None or not stated_delta(asked.dp):
        return most
    left = max(basic.left.delta, 0)  # it pays the job's own delta, whichever filter holds
    own = Room(
        "basic δ", left // cost.delta, *(to_decimal(d, DELTA_UNITS) for d in (left, cost.delta))
    )
    return min(own, most, key=lambda each: each.jobs)


def _of_secret(accounts: Accounts, asked: Demand) -> Room:
    account = accounts.secret
    if account is None:
        return Room("secret", 0, "0", "-")
    cost = account.cost(asked.dp, asked.secret)
    one = account.kind is SecretKind.ONE
    units = DELTA_UNITS if one else EPSILON_UNITS
    left = max(account.limit - account.spent - account.reserved, 0)
    if cost is None:
        return Room("secret", 0, to_decimal(left, units), "unbounded")
    if one:
        jobs = int(account.admits(cost))
        left = 0 if account.jobs else account.limit
    else:
        jobs = left // cost if cost else 0
    return Room("secret", jobs, to_decimal(left, units), to_decimal(cost, units))


def _of_caps(policy: Policy, usage: Usage, epsilon_alone: float) -> Iterator[Room]:
    asked = counted(epsilon_alone)
    for name, limit in limits(policy).items() if asked else ():
        used: int | None = getattr(usage, name)
        if used is None:
            continue
        left = max(limit - used, 0)
        yield Room(f"{name} cap", left // asked, _epsilon(left), _epsilon(asked))


def _epsilon(units: int) -> str:
    return to_decimal(units, EPSILON_UNITS)
