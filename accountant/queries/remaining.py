"""What is left of a dataset's allowance in one plain sentence: a share, and what that buys.

    accounts ──▶ share left (of the filter with most room) ──▶ "52 % left: one more job like this …"

Pure. The numbers of jobs and counts are those that admission would let in one after the other, over all
filters, currencies and caps together (core.ledger.capacity); each is for what is left now, not for both.
"""

import math
from dataclasses import replace
from typing import Any

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest
from accountant.core.ledger.accounts import Accounts, Demand, Settlement, demand
from accountant.core.ledger.admission import FilterAccount
from accountant.core.ledger.capacity import binding
from accountant.core.ledger.caps import Usage, counted
from accountant.core.ledger.policy import Policy
from accountant.core.ledger.reservations import move
from accountant.core.mechanisms.base import Mechanism
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import releases
from accountant.core.privacy.filters import ZERO
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secrets import SecretKind
from accountant.schema.datasets import Remaining
from accountant.transactions.job_requests import price_of

COUNT = "noisy-count"
#: A number of jobs beyond which a sentence says "over".
_MANY = 1_000_000


def remaining(
    accounts: Accounts,
    used: Usage,
    policy: Policy,
    terms: Terms,
    like: tuple[Demand, float] | None = None,
    likeness: str = "this",
) -> Remaining | None:
    """What is left, and what it buys; None before the first allowance.

    `like`: a request with its ε by itself, and `likeness` what a sentence calls it. A free one, and one whose
    number would tell what ex-post jobs really cost, is not counted. `accounts` are as their reader may see
    them.
    """
    if accounts.dp is None:
        return None
    share = share_left(accounts)
    jobs = None if like is None else _fitting(accounts, policy, used, *like)
    price = count_price(terms, policy)
    counts = None if price is None else _fitting(accounts, policy, used, *price)
    return Remaining(
        share=share,
        jobs=jobs,
        counts=counts,
        sentence=_sentence(accounts.overdrawn, share, jobs, counts, likeness),
    )


def share_left(accounts: Accounts) -> float:
    """The share left of the filter with most room: 0 where none holds."""
    shares = [1 - each.share_with(ZERO) for each in _filters(accounts) if each.holds]
    return max(0.0, max(shares, default=0.0))


def _filters(accounts: Accounts) -> tuple[FilterAccount, ...]:
    return () if accounts.dp is None else accounts.dp.filters


def after(accounts: Accounts, used: Usage, asked: Demand, alone: float) -> tuple[Accounts, Usage]:
    """The accounts and the caps' usage once a request that fits is reserved."""
    dp, ex_post, secret = accounts.dp, accounts.ex_post, accounts.secret
    if dp is not None and releases(asked.dp):
        costs, whole = dp.charge(asked.dp)
        dp = move(dp.with_whole(True) if whole else dp, costs, reserved=1)
    if asked.ex_post:
        ex_post = replace(ex_post, reserved=ex_post.reserved + asked.ex_post)
    if secret is not None and (asked.secret is not None or releases(asked.dp)):
        cost = secret.cost(asked.dp, asked.secret) or 0
        one = secret.kind is SecretKind.ONE
        secret = replace(secret, reserved=secret.reserved + cost, jobs=secret.jobs + one)
    spent = counted(alone)
    return Accounts(dp, ex_post, secret), Usage(used.analyst + spent, used.project + spent)


def count_price(terms: Terms, policy: Policy) -> tuple[Demand, float] | None:
    """What a noisy count costs as it comes; None where the policy admits none, or there is no price."""
    mechanism: Mechanism[Any] | None = mechanisms.MECHANISMS.get(COUNT)
    if mechanism is None or (policy.mechanisms and COUNT not in policy.mechanisms):
        return None
    try:
        price = price_of(mechanism, mechanism.parse({}, terms), terms)
    except InvalidRequest:
        return None
    assert price.dp is not None
    return demand(price), epsilon_alone(price.dp, terms.delta)[0]


def _fitting(accounts: Accounts, policy: Policy, used: Usage, asked: Demand, alone: float) -> int | None:
    if asked.ex_post and accounts.ex_post.settlement is Settlement.REALIZED:
        return None
    room = binding(accounts, asked, policy, used, alone)
    return None if room is None else room.jobs


# --- in words -----------------------------------------------------------------------------------


def _sentence(overdrawn: bool, share: float, jobs: int | None, counts: int | None, likeness: str) -> str:
    if overdrawn:
        return "Overdrawn by a correction: nothing that costs anything is admitted."
    left = f"{percent(share)} left"
    more = f"one more job like {likeness}" if jobs == 1 else f"{_number(jobs or 0)} more jobs like {likeness}"
    counted = "one count" if counts == 1 else f"{_number(counts or 0)} counts"
    if jobs and counts:
        return f"{left}: {more}, or {counted}."
    if jobs or counts:
        lacking = f"no other job like {likeness}, but " if jobs == 0 else ""
        return f"{left}: {more if jobs else lacking + counted}."
    lacking = " or ".join(
        what for what, number in ((f"another job like {likeness}", jobs), ("a count", counts)) if number == 0
    )
    return f"{left}, not enough for {lacking}." if lacking else f"{left}."


def _number(count: int) -> str:
    return f"over {_MANY:,}" if count > _MANY else f"{count:,}"


def percent(share: float) -> str:
    """A share of what is left as per cent, rounded down; what is less than one is said so."""
    if 0 < share < 0.01:
        return "Less than 1 %"
    # The last digits of a float are noise: 1 - 0.07 is 93 %.
    return f"{math.floor(round(100 * share, 9))} %"
