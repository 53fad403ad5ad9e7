"""The effect of admitting a job on a dataset's accounts, and how many jobs of its shape are left.

Pure: the caller has read the accounts. Each filter and each currency is computed separately.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from accountant.core.ledger.accounts import NOTHING, Accounts, Demand, Settlement, without_realized
from accountant.core.ledger.admission import Account, FilterAccount
from accountant.core.ledger.capacity import binding
from accountant.core.ledger.caps import Usage
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import releases
from accountant.core.privacy.filters import ZERO, Amount
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secrets import SecretKind
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal
from accountant.queries.remaining import after, remaining
from accountant.schema.jobs import Refusal
from accountant.schema.quotes import Effect, FilterStep, OtherStep, Room

#: In place of a figure that follows from realized costs.
NOT_SHOWN = "not shown"


def refusal_shown(
    refusal: Mapping[str, Any] | None, settlement: str, realized_shown: bool
) -> dict[str, Any] | None:
    """A refusal as its reader may see it.

    Where realized ex-post costs are settled, the rest of their caps depends on the data. A reader who may not
    see those costs is shown the binding cap and the request, but neither the rest nor what would fit.
    """
    if refusal is None:
        return None
    if realized_shown or settlement != Settlement.REALIZED or refusal.get("cap") != "ex-post":
        return dict(refusal)
    why = "its cap is more than what is left, which depends on the data and is for stewards and auditors"
    return {**refusal, "left": NOT_SHOWN, "why": why, "size_field": None, "largest": None}


def accounts_shown(accounts: Accounts, realized_shown: bool) -> Accounts:
    """The accounts that a figure may be searched on: without realized costs where these are not shown."""
    return accounts if realized_shown else without_realized(accounts)


def effect(
    accounts: Accounts,
    asked: Demand,
    epsilon_alone: float,
    policy: Policy,
    used: Usage,
    *,
    terms: Terms | None = None,
    realized_shown: bool = True,
    refusal: Mapping[str, Any] | None = None,
) -> Effect:
    """Every filter, currency and cap before and after the job; figures are decimals, shares are of the limit.

    `filters`: a share `after` of None: it can't price the job and closes. `currencies`: ex-post and secret,
    where the job asks for them. `jobs_of_this_shape`: how many fit one after the other; None where the job is
    free, or where that would tell realized ex-post costs and they are not to be shown. `binding`: the limit
    that stops the next one (core.ledger.capacity), under the same conditions. `refusal` is told with it.
    `terms`: what is left is told in a sentence too, now and, of a request that fits, after it.
    """
    told = None if refusal is None else Refusal(**refusal)
    if asked == NOTHING:
        return Effect(filters=[], currencies=[], jobs_of_this_shape=None, binding=None, refusal=told)
    hidden = accounts.ex_post.settlement is Settlement.REALIZED and not realized_shown
    rows: list[FilterStep] = []
    currencies: list[OtherStep] = []
    if releases(asked.dp):
        rows = [] if accounts.dp is None else _filters(accounts.dp, asked)
    if asked.ex_post:
        own = accounts.ex_post
        currencies.append(_row("ex-post", "ε", own.limit, None if hidden else own.left, asked.ex_post))
    secret = None if accounts.secret is None else _secret(accounts, asked)
    if secret is not None:
        currencies.append(secret)
    room = binding(accounts, asked, policy, used, epsilon_alone)
    hides = hidden and asked.ex_post > 0
    now = then = None
    if terms is not None:
        like, seen = (asked, epsilon_alone), accounts_shown(accounts, realized_shown)
        now = remaining(seen, used, policy, terms, like)
        if told is None and seen.fits(asked):
            then = remaining(*after(seen, used, asked, epsilon_alone), policy, terms, like)
    return Effect(
        filters=rows,
        currencies=currencies,
        jobs_of_this_shape=None if hides else 0 if room is None else room.jobs,
        binding=None if hides or room is None else Room(**asdict(room)),
        refusal=told,
        remaining=now,
        remaining_after=then,
    )


def _filters(account: Account, asked: Demand) -> list[FilterStep]:
    costs, whole = account.charge(asked.dp)
    shown = account.with_whole(True) if whole else account
    return [_step(each, costs[each.filter.kind]) for each in shown.filters]


def _step(each: FilterAccount, cost: Amount | None) -> FilterStep:
    return FilterStep(
        kind=str(each.filter.kind),
        before=each.share_with(ZERO),
        after=None if cost is None else each.share_with(cost),
        closed=bool(each.closed),
        limit=to_decimal(each.limit.main, EPSILON_UNITS),
        cost=None if cost is None else to_decimal(cost.main, EPSILON_UNITS),
        left=to_decimal(each.left.main, EPSILON_UNITS),
        left_after=None if cost is None else to_decimal(each.left.main - cost.main, EPSILON_UNITS),
    )


def _secret(accounts: Accounts, asked: Demand) -> OtherStep | None:
    account = accounts.secret
    assert account is not None
    if asked.secret is None and not releases(asked.dp):
        return None
    if asked.secret is not None and asked.secret.group != account.terms.group:
        return None  # it was priced before the secrets were declared as they are: it is refused
    one = account.kind is SecretKind.ONE
    units, unit = (DELTA_UNITS, "r") if one else (EPSILON_UNITS, "nats")
    cost = account.cost(asked.dp, asked.secret)
    free = max(account.limit - account.spent - account.reserved, 0)
    if one and account.jobs:
        free = 0
    return _row("secret", unit, account.limit, free, cost, units)


def _row(
    name: str, unit: str, limit: int, left: int | None, cost: int | None, units: int = EPSILON_UNITS
) -> OtherStep:
    after = None if left is None or cost is None else left - cost
    stated = {"limit": limit, "left": left, "cost": cost, "left_after": after}
    shown = {key: None if value is None else to_decimal(value, units) for key, value in stated.items()}
    return OtherStep(
        name=name,
        unit=unit,
        **shown,
        before=None if left is None else (limit - left) / (limit or 1),
        after=None if after is None else (limit - after) / (limit or 1),
    )
