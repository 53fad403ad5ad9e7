"""Reservations read from their entries, and the movement of costs on an account."""

import marshal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

from accountant.core.ledger.accounts import (
    NOTHING,
    Demand,
    read_demand,
)
from accountant.core.ledger.admission import Account, FilterAccount
from accountant.core.privacy.events import Event, from_json
from accountant.core.privacy.filters import Amount, Costs, Kind
from accountant.core.privacy.units import read_amount

T = TypeVar("T")


@dataclass(frozen=True)
class Reservation:
    """A live reservation: what it covers, and the amount set aside on each filter and account."""

    event: Event
    costs: Costs
    others: Demand = NOTHING
    secret_cost: int = 0
    #: It took the account for whole jobs (admission.Account.whole_costs).
    whole: bool = False
    #: It has happened already, and two people declared it.
    overdraft: bool = False


#: Outcomes of a COMMIT that leave the whole reservation charged.
UNFINISHED = ("failed", "cancelled")


#: Shapes of jobs whose events, costs and prices are kept, so that a ledger of a million jobs of few
#: shapes computes few prices and shares what its live reservations hold.
SHAPES = 4096


def by_value(function: Callable[..., T]) -> Callable[..., T]:
    """Keep what a function returns for JSON values, by all of their bytes."""
    known: dict[bytes, tuple[T]] = {}

    @wraps(function)
    def kept(*values: Any) -> T:
        key = marshal.dumps(values, 2)  # a version that writes each value out, and refers to none
        earlier = known.get(key)
        if earlier is not None:
            return earlier[0]
        result = function(*values)
        if len(known) >= SHAPES:  # whatever other threads do, nothing is read of it after this
            known.clear()
        known[key] = (result,)
        return result

    return kept


def read_reservation(body: Mapping[str, Any]) -> Reservation:
    """Return the reservation that the body of a RESERVE makes."""
    stated = {k: body[k] for k in ("event", "costs", "ex_post", "secret", "whole") if k in body}
    return _reservation(stated, "overdraft" in body)


@by_value
def _reservation(body: Mapping[str, Any], overdraft: bool) -> Reservation:
    event = read_event(body["event"])
    secret_cost = read_amount(body["secret"]["cost"], "secret.cost") if "secret" in body else 0
    costs, asked = read_costs(body["costs"]), read_demand(event, body)
    return Reservation(event, costs, asked, secret_cost, "whole" in body, overdraft)


def reserved_columns(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of `jobs` that the body of a RESERVE states by value.

    `ledger check` compares them and `ledger recover` writes them, so neither can forget one.
    Columns that hold an identifier, a moment or a computed figure are not among them.
    """
    source, approval = body["source"], body["approval"]
    return {
        "mechanism": body["mechanism"],
        "parameters": body["parameters"],
        "terms": body["terms"],
        "decision_reason": None if approval is None else approval["reason"],
        "reads_records": "version" in source,
        "source_job_id": source.get("job"),
        "sources": {field: read["job"] for field, read in source.get("sources", {}).items()},
        "resources": source.get("public", {}),
    }


def settled_columns(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of `jobs` that the body of a COMMIT or VOID states by value."""
    stated = {"state": body["outcome"], "output_sha256": body.get("output_sha256")}
    return stated | ({"attempt": body["attempt"]} if "attempt" in body else {})


@by_value
def read_event(value: object) -> Event:
    """Return the event in an entry. Equal events are one object."""
    return from_json(value)


def settled(reserved: Costs, realized: Costs) -> Costs:
    """Return the costs that a COMMIT moves to spent. A filter that could not price the reservation
    stays closed.

    An (epsilon, delta) price covers the whole job and none of its prefixes: if one was reserved
    (delta above 0), nothing of it is returned. Nor does a job that reserved pure epsilons pay a
    delta for a part of them.
    """

    def charged(kind: Kind, cost: Amount | None) -> Amount | None:
        part = realized[kind]
        whole = cost is None or cost.delta or part is None or part.delta
        return cost if whole else part

    return {kind: charged(kind, cost) for kind, cost in reserved.items()}


def stated(reserved: Costs, realized: Costs) -> Costs:
    """Return the costs that a COMMIT states: what is charged where its job closed a filter."""
    return settled(reserved, realized) if None in reserved.values() else realized


def move(
    account: Account, costs: Costs, *, reserved: int = 0, spent: int = 0, keep_closed: bool = False
) -> Account:
    """Move `costs` into (1) or out of (-1) the reserved or spent balances.

    A cost of None closes its filter when it is reserved; only that reservation's VOID reopens it.
    """
    moved = []
    for filter_ in account.filters:
        cost, was, had, closed = (
            costs[filter_.filter.kind],
            filter_.reserved,
            filter_.spent,
            filter_.closed,
        )
        if cost is None:
            closed += 0 if keep_closed else reserved
        else:
            if reserved:
                was = Amount(was.main + reserved * cost.main, was.delta + reserved * cost.delta)
            if spent:
                had = Amount(had.main + spent * cost.main, had.delta + spent * cost.delta)
        moved.append(FilterAccount(filter_.filter, filter_.limit, had, was, closed))
    return Account(account.epsilon, account.delta, tuple(moved))


def settle(account: Account, held: Costs, charged: Costs) -> Account:
    """Move what is charged of a reservation to spent, and take the rest off. None stays closed."""
    moved = []
    for filter_ in account.filters:
        freed, cost = held[filter_.filter.kind], charged[filter_.filter.kind]
        if freed is None or cost is None:
            moved.append(filter_)
        else:
            spent, reserved = filter_.spent + cost, filter_.reserved - freed
            moved.append(
                FilterAccount(filter_.filter, filter_.limit, spent, reserved, filter_.closed)
            )
    return Account(account.epsilon, account.delta, tuple(moved))


def read_costs(value: Mapping[str, Any]) -> Costs:
    """Return the inverse of `costs_json`."""
    return {
        Kind(kind): None
        if cost is None
        else Amount(read_amount(cost["main"]), read_amount(cost["delta"]))
        for kind, cost in value.items()
    }
