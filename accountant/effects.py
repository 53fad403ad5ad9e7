"""What admitting a job would do to a dataset's accounts, and how many jobs of its shape are left.

Pure: whoever shows it has read the accounts. Each filter and each currency stands for itself.
"""

from typing import Any

from accountant.core.admission import Account, Policy
from accountant.core.budget import DELTA_UNITS, EPSILON_UNITS, to_decimal
from accountant.core.caps import ANALYST, Usage, counted, limits
from accountant.core.currencies import NOTHING, Accounts, Demand, Settlement, beyond_dp
from accountant.core.events import releases
from accountant.core.secrets import SecretKind


def effect(
    accounts: Accounts,
    asked: Demand,
    epsilon_alone: float,
    policy: Policy,
    used: Usage,
    *,
    realized_shown: bool = True,
) -> dict[str, Any]:
    """Every filter, currency and cap before and after the job; figures are decimals, shares are of the limit.

    `filters`: a share `after` of None: it can't price the job and closes. `currencies`: ex-post and secret,
    where the job asks for them. `jobs_of_this_shape`: how many fit one after the other; None where the job is
    free, or where that would tell realized ex-post costs and they are not to be shown.
    """
    if asked == NOTHING:
        return {"filters": [], "currencies": [], "jobs_of_this_shape": None}
    hidden = accounts.ex_post.settlement is Settlement.REALIZED and not realized_shown
    left = [0] if beyond_dp(accounts, asked, policy.secret_jobs) is not None else []
    rows, currencies = [], []
    if releases(asked.dp):
        rows = [] if accounts.dp is None else _filters(accounts.dp, asked)
        left.append(0 if accounts.dp is None else _jobs_left(accounts.dp, asked))
    if asked.ex_post:
        own = accounts.ex_post
        currencies.append(_row("ex-post", "ε", own.limit, None if hidden else own.left, asked.ex_post))
        left.append(max(own.left, 0) // asked.ex_post)
    secret = None if accounts.secret is None else _secret(accounts, asked)
    if secret is not None:
        row, jobs = secret
        currencies.append(row)
        left.append(jobs)
    left += _caps_left(policy, used, epsilon_alone)
    hides = hidden and asked.ex_post > 0
    return {
        "filters": rows,
        "currencies": currencies,
        "jobs_of_this_shape": None if hides else min(left, default=0),
    }


def _filters(account: Account, asked: Demand) -> list[dict[str, Any]]:
    costs, rows = account.costs(asked.dp), []
    for each in account.filters:
        cost, limit = costs[each.filter.kind], each.limit.main
        rows.append(
            {
                "kind": str(each.filter.kind),
                "before": each.used.main / (limit or 1),
                "after": None if cost is None else (each.used.main + cost.main) / (limit or 1),
                "closed": bool(each.closed),
                "limit": to_decimal(limit, EPSILON_UNITS),
                "cost": None if cost is None else to_decimal(cost.main, EPSILON_UNITS),
                "left": to_decimal(each.left.main, EPSILON_UNITS),
                "left_after": None if cost is None else to_decimal(each.left.main - cost.main, EPSILON_UNITS),
            }
        )
    return rows


def _jobs_left(account: Account, asked: Demand) -> int:
    """Of the filters that can price it, the one with room for most jobs decides: one that holds is enough."""
    costs, most = account.costs(asked.dp), 0
    for each in account.filters:
        cost = costs[each.filter.kind]
        if cost is None or each.closed:
            continue
        pairs = ((each.left.main, cost.main), (each.left.delta, cost.delta))
        rooms = [max(left, 0) // price for left, price in pairs if price > 0]
        if rooms and each.left.main >= 0 and each.left.delta >= 0:
            most = max(most, min(rooms))
    return most


def _secret(accounts: Accounts, asked: Demand) -> tuple[dict[str, Any], int] | None:
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
    row = _row("secret", unit, account.limit, free, cost, units)
    if cost is None:
        return row, 0
    if one:
        return row, int(account.admits(cost))
    return row, free // cost if cost else 0


def _row(
    name: str, unit: str, limit: int, left: int | None, cost: int | None, units: int = EPSILON_UNITS
) -> dict[str, Any]:
    after = None if left is None or cost is None else left - cost
    stated = {"limit": limit, "left": left, "cost": cost, "left_after": after}
    shown = {key: None if value is None else to_decimal(value, units) for key, value in stated.items()}
    return {
        "name": name,
        "unit": unit,
        **shown,
        "before": None if left is None else (limit - left) / (limit or 1),
        "after": None if after is None else (limit - after) / (limit or 1),
    }


def _caps_left(policy: Policy, used: Usage, epsilon_alone: float) -> list[int]:
    price, found = counted(epsilon_alone), []
    for name, limit in limits(policy).items() if price else ():
        found.append(max(limit - (used.analyst if name == ANALYST else used.project), 0) // price)
    return found
