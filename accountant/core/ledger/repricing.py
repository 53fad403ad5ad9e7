"""An entry's figures beside the same figures recomputed, for people who check one entry by eye.

`exchequer verify` stops at the first figure that does not follow from the entry's own facts. This
module lists every figure of one entry, equal or not, by the same functions (books, reversals,
verifier).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accountant.core.errors import UNREADABLE
from accountant.core.ledger.accounts import Accounts, Settlement, entry_part, read_demand
from accountant.core.ledger.entry_bodies import costs_json
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.orders import recomputed
from accountant.core.ledger.reservations import read_costs, read_event, read_reservation, settled
from accountant.core.ledger.reversals import charge_of, corrected
from accountant.core.privacy.events import from_json, releases
from accountant.core.privacy.filters import Amount, Costs, Kind, granted
from accountant.core.privacy.secrets import SecretKind
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """One figure of an entry, as charged and as recomputed. Decimals, or JSON for an event."""

    name: str
    charged: Any
    computed: Any

    @property
    def equal(self) -> bool:
        return bool(self.charged == self.computed)


@dataclass(frozen=True)
class Repriced:
    """The recomputed figures, or the `problem` for which none could be computed."""

    figures: tuple[Figure, ...] = ()
    problem: str | None = None

    @property
    def equal(self) -> bool:
        return self.problem is None and all(figure.equal for figure in self.figures)


def reprice(kind: EntryKind, body: Body, accounts: Accounts, reserve: Body | None) -> Repriced:
    """Recompute the charges of an entry from the facts in the entry itself.

    `accounts` are those of its dataset, for the filters' orders and shares, which never change.
    `reserve` is the body of the RESERVE that a COMMIT settles. A VOID, REGISTER or POLICY charges
    nothing, and a LOSS has no price: no figures.
    """
    try:
        match kind:
            case EntryKind.ALLOW:
                figures = _allowed(body, accounts)
            case EntryKind.RESERVE:
                figures = _reserved(body, accounts)
            case EntryKind.COMMIT:
                figures = _committed(body, accounts, {} if reserve is None else reserve)
            case EntryKind.REVERSAL:
                figures = _reversed(body, accounts)
            case EntryKind.VOID | EntryKind.REGISTER | EntryKind.POLICY | EntryKind.LOSS:
                figures = []
    except UNREADABLE as error:
        return Repriced(problem=f"{type(error).__name__}: {error}")
    return Repriced(tuple(figures))


def _allowed(body: Body, accounts: Accounts) -> list[Figure]:
    """Return the limit of each filter under the allowance granted."""
    if "epsilon" not in body or accounts.dp is None:
        return []
    epsilon, delta = granted(body["epsilon"], body["delta"])
    stated = {value["kind"]: _amount(value["limit"]) for value in body["filters"]}
    limits = {
        filter_.filter.kind: filter_.filter.limit(epsilon, delta) for filter_ in accounts.dp.filters
    }
    whole = Amount(epsilon, delta)
    # since a job took it for whole jobs
    if accounts.dp.whole and stated.get(Kind.BASIC) == _decimal(whole):
        limits[Kind.BASIC] = whole
    return [
        Figure(f"limit {kind}", stated.get(kind), _decimal(limit)) for kind, limit in limits.items()
    ]


def _reserved(body: Body, accounts: Accounts) -> list[Figure]:
    """Return the event that the parameters give, and its cost."""
    event, asked = recomputed(body)
    costs: Mapping[str, Any] = {}
    if accounts.dp is not None and body["costs"]:
        found: Costs | None = accounts.dp.costs(asked.dp)
        if "whole" in body:
            taken = body["whole"]
            found = accounts.dp.whole_costs(asked.dp, int(taken["epsilon"]), int(taken["delta"]))
        elif found is not None and body["costs"].get(Kind.BASIC) is None:
            found = {**found, Kind.BASIC: None}  # its delta did not fit there when it was reserved
        costs = {} if found is None else costs_json(found)
    figures = [Figure("event", body["event"], event), *_costs(body["costs"], costs)]
    figures += _ex_post(_cap(body), str(asked.ex_post))
    part = entry_part(accounts, asked) if "secret" in body else {}
    return figures + _secret(_divergence(body), _divergence(part), accounts)


def _committed(body: Body, accounts: Accounts, reserve: Body) -> list[Figure]:
    """Return the cost of the realized event, and whether that event is part of the reserved one."""
    held, event = read_reservation(reserve), read_event(body["event"])
    computed = {} if accounts.dp is None or not held.costs else accounts.dp.costs(event)
    beyond = releases(event) - releases(held.event)
    figures = [Figure("releases beyond the reservation", sum(beyond.values()), 0)]
    # What is charged is not always what is stated: a price with a delta covers the whole job.
    stated = settled(held.costs, read_costs(body["costs"])) if held.costs else {}
    charged = settled(held.costs, computed) if held.costs else {}
    figures += _costs(costs_json(stated), costs_json(charged))
    # else it is what was realized, from no parameter
    if accounts.ex_post.settlement is Settlement.PLANNED:
        figures += _ex_post(_cap(body), str(held.others.ex_post))
    cost: int | None = held.secret_cost
    if accounts.secret is not None and accounts.secret.kind is SecretKind.MANY and "secret" in body:
        cost = accounts.secret.cost(event, read_demand(event, body).secret)
    return figures + _secret(_divergence(body), str(cost or 0), accounts)


def _reversed(body: Body, accounts: Accounts) -> list[Figure]:
    """Return the cost of the corrected event, beside the correction's charge."""
    event = from_json(body["event"])
    before = charge_of(body["reserve"], body["corrects"])
    after = corrected(accounts, body["reserve"], before, event, int(body["cap"]))
    figures = _costs(body["costs"], costs_json(after.costs))
    figures += _ex_post(body["ex_post"], str(after.ex_post))
    return figures + _secret(body["secret"], str(after.secret), accounts)


# --- figures ------------------------------------------------------------------------------------


def _costs(stated: Mapping[str, Any], computed: Mapping[str, Any]) -> list[Figure]:
    """Return the costs filter by filter; None closes the filter."""
    kinds = [str(kind) for kind in Kind if str(kind) in stated or str(kind) in computed]
    return [Figure(f"cost {kind}", _cost(stated, kind), _cost(computed, kind)) for kind in kinds]


def _cost(costs: Mapping[str, Any], kind: str) -> str | None:
    if kind not in costs:
        return None
    return "closes it" if costs[kind] is None else _amount(costs[kind])


def _amount(value: Mapping[str, str]) -> str:
    return _decimal(Amount(int(value["main"]), int(value["delta"])))


def _decimal(amount: Amount) -> str:
    main = to_decimal(amount.main, EPSILON_UNITS)
    return f"{main}, δ {to_decimal(amount.delta, DELTA_UNITS)}" if amount.delta else main


def _cap(body: Body) -> str:
    return str(body["ex_post"]["cap"]) if "ex_post" in body else "0"


def _divergence(body: Body) -> str:
    return str(body["secret"]["cost"]) if "secret" in body else "0"


def _ex_post(charged: str, computed: str) -> list[Figure]:
    """Return the ex-post cap, in units; empty if neither side has one."""
    if (charged, computed) == ("0", "0"):
        return []
    return [
        Figure(
            "ex-post cap", *(to_decimal(int(side), EPSILON_UNITS) for side in (charged, computed))
        )
    ]


def _secret(charged: str, computed: str, accounts: Accounts) -> list[Figure]:
    """Return the cost on the secret account, in nats or as an exact job's r; empty without one."""
    if (charged, computed) == ("0", "0"):
        return []
    one = accounts.secret is not None and accounts.secret.kind is SecretKind.ONE
    units = DELTA_UNITS if one else EPSILON_UNITS
    return [Figure("secret", *(to_decimal(int(side), units) for side in (charged, computed)))]
