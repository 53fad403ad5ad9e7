"""An entry's figures beside the same figures computed anew, for people who check one entry by eye.

`exchequer verify` refuses a ledger at the first figure that is not the one its entry's own facts give;
this names every figure of one entry, equal or not, by the same functions (books, corrections, verifier).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accountant.core.errors import ExchequerError
from accountant.core.ledger.accounts import Accounts, Settlement, entry_part, read_demand
from accountant.core.ledger.entry_bodies import costs_json
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.reservations import read_costs, read_event, read_reservation, settled
from accountant.core.ledger.reversals import charge_of, corrected
from accountant.core.ledger.verifier import recomputed
from accountant.core.privacy.events import from_json, releases
from accountant.core.privacy.filters import Amount, Kind, granted
from accountant.core.privacy.secrets import SecretKind
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """One figure of an entry as it is charged, and as it comes out now. Decimals; JSON for an event."""

    name: str
    charged: Any
    computed: Any

    @property
    def equal(self) -> bool:
        return bool(self.charged == self.computed)


@dataclass(frozen=True)
class Repriced:
    """What came out. `problem`: why nothing could be computed; then there are no figures."""

    figures: tuple[Figure, ...] = ()
    problem: str | None = None

    @property
    def equal(self) -> bool:
        return self.problem is None and all(each.equal for each in self.figures)


def reprice(kind: EntryKind, body: Body, accounts: Accounts, reserve: Body | None) -> Repriced:
    """Compute anew what an entry charges, from what the entry itself states.

    `accounts`: those of its dataset, for the filters' orders and shares, which never change. `reserve`: the
    body of the RESERVE that a COMMIT settles. A VOID charges nothing and has no figures.
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
            case EntryKind.VOID:
                figures = []
    except (KeyError, TypeError, ValueError, ExchequerError) as error:
        return Repriced(problem=f"{type(error).__name__}: {error}")
    return Repriced(tuple(figures))


def _allowed(body: Body, accounts: Accounts) -> list[Figure]:
    """What each filter allows under the allowance that was granted."""
    if "epsilon" not in body or accounts.dp is None:
        return []
    epsilon, delta = granted(body["epsilon"], body["delta"])
    stated = {value["kind"]: _amount(value["limit"]) for value in body["filters"]}
    limits = {each.filter.kind: each.filter.limit(epsilon, delta) for each in accounts.dp.filters}
    return [Figure(f"limit {kind}", stated.get(kind), _decimal(limit)) for kind, limit in limits.items()]


def _reserved(body: Body, accounts: Accounts) -> list[Figure]:
    """The event that its parameters give, and what that costs."""
    event, asked = recomputed(body)
    costs = {} if accounts.dp is None or not body["costs"] else costs_json(accounts.dp.costs(asked.dp))
    figures = [Figure("event", body["event"], event), *_costs(body["costs"], costs)]
    figures += _ex_post(_cap(body), str(asked.ex_post))
    part = entry_part(accounts, asked) if "secret" in body else {}
    return figures + _secret(_divergence(body), _divergence(part), accounts)


def _committed(body: Body, accounts: Accounts, reserve: Body) -> list[Figure]:
    """What the realized event costs, and whether it is a part of what was reserved."""
    held, event = read_reservation(reserve), read_event(body["event"])
    computed = {} if accounts.dp is None or not held.costs else accounts.dp.costs(event)
    beyond = releases(event) - releases(held.event)
    figures = [Figure("releases beyond the reservation", sum(beyond.values()), 0)]
    # What is charged is not always what is stated: a price with a delta covers the whole job.
    stated = settled(held.costs, read_costs(body["costs"])) if held.costs else {}
    charged = settled(held.costs, computed) if held.costs else {}
    figures += _costs(costs_json(stated), costs_json(charged))
    if accounts.ex_post.settlement is Settlement.PLANNED:  # else it is what was realized, from no parameter
        figures += _ex_post(_cap(body), str(held.others.ex_post))
    cost: int | None = held.secret_cost
    if accounts.secret is not None and accounts.secret.kind is SecretKind.MANY and "secret" in body:
        cost = accounts.secret.cost(event, read_demand(event, body).secret)
    return figures + _secret(_divergence(body), str(cost or 0), accounts)


def _reversed(body: Body, accounts: Accounts) -> list[Figure]:
    """What the corrected event costs, beside what the correction charges."""
    event = None if body["event"] is None else from_json(body["event"])
    before = charge_of(body["reserve"], body["corrects"])
    after = corrected(accounts, body["reserve"], before, event, int(body["cap"]))
    figures = _costs(body["costs"], costs_json(after.costs))
    figures += _ex_post(body["ex_post"], str(after.ex_post))
    return figures + _secret(body["secret"], str(after.secret), accounts)


# --- figures ------------------------------------------------------------------------------------


def _costs(stated: Mapping[str, Any], computed: Mapping[str, Any]) -> list[Figure]:
    """Filter by filter; a cost of None closes its filter."""
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
    """The ex-post cap, in units; nothing where there is none on either side."""
    if (charged, computed) == ("0", "0"):
        return []
    return [Figure("ex-post cap", *(to_decimal(int(each), EPSILON_UNITS) for each in (charged, computed)))]


def _secret(charged: str, computed: str, accounts: Accounts) -> list[Figure]:
    """The same on the secret account, which counts nats or, for one exact job, r."""
    if (charged, computed) == ("0", "0"):
        return []
    one = accounts.secret is not None and accounts.secret.kind is SecretKind.ONE
    units = DELTA_UNITS if one else EPSILON_UNITS
    return [Figure("secret", *(to_decimal(int(each), units) for each in (charged, computed)))]
