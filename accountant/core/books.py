"""What entries do to an account: the one meaning of ALLOW, RESERVE, COMMIT and VOID.

Pure. The ledger applies an entry here before it writes it, and `exchequer verify` replays an export
through the same steps, so a balance can only be what the entries say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from accountant.core.admission import Account, FilterAccount
from accountant.core.budget import DELTA_UNITS, EPSILON_UNITS, to_decimal
from accountant.core.chain import EntryKind
from accountant.core.errors import ExchequerError, VerificationFailed, invalid
from accountant.core.events import Event, from_json, releases, to_json
from accountant.core.filters import Amount, Costs, Filter, Kind, granted, portfolio
from accountant.core.pricing import Terms

# --- bodies -------------------------------------------------------------------------------------


def allow_body(account: Account | None, epsilon: object, delta: object, reason: str) -> dict[str, Any]:
    """The body of an ALLOW that sets the allowance to (`epsilon`, `delta`).

    The first allowance above zero fixes orders and shares; later ones keep them.
    """
    eps, dlt = granted(epsilon, delta)
    if account is None and eps == 0:
        raise invalid("epsilon", "the first allowance is 0: it fixes the filters", "more than 0")
    filters = portfolio(eps, dlt) if account is None else tuple(e.filter for e in account.filters)
    return {
        "epsilon": to_decimal(eps, EPSILON_UNITS),
        "delta": to_decimal(dlt, DELTA_UNITS),
        "reason": reason,
        "filters": [_filter_json(each, each.limit(eps, dlt)) for each in filters],
    }


def reserve_body(
    account: Account,
    mechanism: str,
    parameters: Mapping[str, Any],
    terms: Terms,
    event: Event,
    *,
    model: Mapping[str, Any] | None,
    approval: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The body of a RESERVE. `approval` says who approved it and why; None: the policy did."""
    return {
        "mechanism": mechanism,
        "parameters": dict(parameters),
        "terms": terms.to_json(),
        "model": None if model is None else dict(model),
        "event": to_json(event),
        "costs": costs_json(account.costs(event)),
        "approval": None if approval is None else dict(approval),
    }


def commit_body(
    account: Account, event: Event, outcome: str, attempt: int, output: str | None
) -> dict[str, Any]:
    """The body of a COMMIT: what was really spent. `output` is the SHA-256 of what was published."""
    return {
        "event": to_json(event),
        "costs": costs_json(account.costs(event)),
        "outcome": outcome,
        "attempt": attempt,
        "output_sha256": output,
    }


def _filter_json(each: Filter, limit: Amount) -> dict[str, Any]:
    return {
        "kind": str(each.kind),
        "share": str(each.share),
        "order": None if each.order is None else str(each.order),
        "limit": _amount_json(limit),
    }


def _amount_json(amount: Amount) -> dict[str, str]:
    return {"main": str(amount.main), "delta": str(amount.delta)}


def costs_json(costs: Costs) -> dict[str, Any]:
    """Costs as they stand in an entry: integers in text, null where a filter can't price the event."""
    return {str(kind): None if cost is None else _amount_json(cost) for kind, cost in costs.items()}


def read_costs(value: Mapping[str, Any]) -> Costs:
    """The inverse of `costs_json`."""
    return {
        Kind(kind): None if cost is None else Amount(int(cost["main"]), int(cost["delta"]))
        for kind, cost in value.items()
    }


# --- replay -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reservation:
    """A live reservation: the event it covers and what is set aside on each filter."""

    event: Event
    costs: Costs


@dataclass(frozen=True)
class Books:
    """A dataset's account and its live reservations, after some prefix of the ledger."""

    account: Account | None = None
    live: Mapping[str, Reservation] = field(default_factory=dict)
    resolved: frozenset[str] = frozenset()

    def apply(self, kind: EntryKind, job: str | None, body: Mapping[str, Any]) -> "Books":
        """The books after one more entry. Raises VerificationFailed where the entry can't stand."""
        try:
            if kind is EntryKind.ALLOW:
                return replace(self, account=allow(self.account, body))
            if job is None:
                raise VerificationFailed("it names no reservation")
            if kind is EntryKind.RESERVE:
                return self._reserve(job, body)
            return self._resolve(kind, job, body)
        except (KeyError, TypeError, ValueError, ExchequerError) as error:
            if isinstance(error, VerificationFailed):
                raise
            raise VerificationFailed(f"{type(error).__name__}: {error}") from None

    def _reserve(self, job: str, body: Mapping[str, Any]) -> "Books":
        if job in self.live or job in self.resolved:
            raise VerificationFailed("its job is reserved already")
        event = from_json(body["event"])
        account = self.account
        if account is None:
            if releases(event):
                raise VerificationFailed("it reserves where there is no allowance")
            return replace(self, live={**self.live, job: Reservation(event, {})})
        costs = _checked_costs(account, event, body)
        account = move(account, costs, reserved=1)
        if releases(event) and not any(each.holds for each in account.filters):
            raise VerificationFailed("no filter holds after it")
        return replace(self, account=account, live={**self.live, job: Reservation(event, costs)})

    def _resolve(self, kind: EntryKind, job: str, body: Mapping[str, Any]) -> "Books":
        if job not in self.live:
            raise VerificationFailed("it resolves a reservation that is not live")
        held = self.live[job]
        account = self.account
        rest = {name: value for name, value in self.live.items() if name != job}
        done = self.resolved | {job}
        if kind is EntryKind.VOID:
            if account is not None and held.costs:
                account = move(account, held.costs, reserved=-1)
            return replace(self, account=account, live=rest, resolved=done)
        event = from_json(body["event"])
        if releases(event) - releases(held.event):
            raise VerificationFailed("it realizes more than was reserved")
        if account is not None and held.costs:
            costs = settled(held.costs, _checked_costs(account, event, body))
            account = move(account, held.costs, reserved=-1, keep_closed=True)
            account = move(account, costs, spent=1)
        return replace(self, account=account, live=rest, resolved=done)


def _checked_costs(account: Account, event: Event, body: Mapping[str, Any]) -> Costs:
    """The recorded costs, after recomputing them from the event."""
    costs = account.costs(event)
    if body["costs"] != costs_json(costs):
        raise VerificationFailed("its costs are not those of its event")
    return costs


def settled(reserved: Costs, realized: Costs) -> Costs:
    """What a COMMIT moves to spent. A filter that could not price the reservation stays closed."""
    return {kind: None if reserved[kind] is None else realized[kind] for kind in reserved}


def move(
    account: Account, costs: Costs, *, reserved: int = 0, spent: int = 0, keep_closed: bool = False
) -> Account:
    """Move `costs` into (1) or out of (-1) the reserved or spent balances.

    A cost of None closes its filter when it is reserved; only that reservation's VOID reopens it.
    """
    moved = []
    for each in account.filters:
        cost = costs[each.filter.kind]
        if cost is None:
            closed = each.closed + (0 if keep_closed else reserved)
            moved.append(replace(each, closed=closed))
            continue
        moved.append(
            replace(
                each,
                reserved=Amount(
                    each.reserved.main + reserved * cost.main, each.reserved.delta + reserved * cost.delta
                ),
                spent=Amount(each.spent.main + spent * cost.main, each.spent.delta + spent * cost.delta),
            )
        )
    return replace(account, filters=tuple(moved))


def allow(account: Account | None, body: Mapping[str, Any]) -> Account:
    """The account after an ALLOW: new limits, old balances. The first one sets up the filters."""
    epsilon, delta = granted(body["epsilon"], body["delta"])
    filters = tuple(_read_filter(value) for value in body["filters"])
    if tuple(each.kind for each in filters) != tuple(Kind):
        raise VerificationFailed("its filters are not the four kinds in order")
    if sum(each.share for each in filters) > 1:
        raise VerificationFailed("its shares of delta exceed 1")
    if account is not None and tuple(each.filter for each in account.filters) != filters:
        raise VerificationFailed("it changes orders or shares")
    limits = [each.limit(epsilon, delta) for each in filters]
    if [_amount_json(limit) for limit in limits] != [value["limit"] for value in body["filters"]]:
        raise VerificationFailed("its limits are not those of its allowance")
    if account is None:
        return Account(epsilon, delta, tuple(map(FilterAccount, filters, limits)))
    moved = tuple(replace(old, limit=limit) for old, limit in zip(account.filters, limits, strict=True))
    if not any(each.holds for each in moved):
        raise VerificationFailed("no filter holds under the new allowance")
    return Account(epsilon, delta, moved)


def _read_filter(value: Mapping[str, Any]) -> Filter:
    order = None if value["order"] is None else Fraction(value["order"])
    return Filter(Kind(value["kind"]), Fraction(value["share"]), order)
