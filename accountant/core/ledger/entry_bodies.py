"""The bodies of ALLOW, RESERVE and COMMIT entries, written in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from accountant.core.errors import invalid
from accountant.core.ledger.accounts import (
    Accounts,
    SecretAccount,
    Settlement,
    secret_json,
)
from accountant.core.ledger.admission import Account, limits_of
from accountant.core.ledger.reservations import Reservation, stated
from accountant.core.privacy.events import Event, releases, to_json
from accountant.core.privacy.filters import Amount, Costs, Filter, Kind, granted, portfolio
from accountant.core.privacy.price import Terms
from accountant.core.privacy.secrets import SecretKind
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal

#: The rules by which the events of an account are priced, as its ALLOW states them. A replay must
#: get equal prices, so other rules have another number (decision 0023).
PRICES = 3


def allow_body(
    account: Account | None,
    epsilon: object,
    delta: object,
    reason: str,
    *,
    shares: Mapping[Kind, Fraction] | None = None,
    order: Fraction | None = None,
    ex_post: Mapping[str, Any] | None = None,
    secret: SecretAccount | None = None,
) -> dict[str, Any]:
    """Return the body of an ALLOW that sets the allowance to (`epsilon`, `delta`).

    The first allowance fixes orders and shares; later ones keep them. `epsilon` None leaves the
    `dp` account as it is. `ex_post` comes from accounts.ex_post_json; `secret` is the new secret
    account.
    """
    others: dict[str, Any] = {} if ex_post is None else {"ex_post": dict(ex_post)}
    if secret is not None:
        others["secret"] = secret_json(secret)
    if epsilon is None:
        return {"reason": reason, **others}
    if account is not None and (shares is not None or order is not None):
        raise invalid("shares", "orders and shares are fixed at creation", "nothing")
    eps, dlt = granted(epsilon, delta)
    if account is None and eps == 0:
        raise invalid("epsilon", "the first allowance is 0: it fixes the filters", "more than 0")
    if account is None:
        filters = portfolio(eps, dlt, shares, order)
    else:
        filters = tuple(e.filter for e in account.filters)
    limits = limits_of(filters, eps, dlt, account is not None and account.whole)
    return {
        **others,
        "epsilon": to_decimal(eps, EPSILON_UNITS),
        "delta": to_decimal(dlt, DELTA_UNITS),
        "reason": reason,
        "filters": [filter_json(*each) for each in zip(filters, limits, strict=True)],
    }


def reserve_body(
    account: Account | None,
    mechanism: str,
    parameters: Mapping[str, Any],
    terms: Terms,
    event: Event,
    *,
    model: Mapping[str, Any] | None,
    approval: Mapping[str, Any] | None,
    source: Mapping[str, Any],
    others: Mapping[str, Any] | None = None,
    parts: int = 1,
    overdraft: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the body of a RESERVE. `approval` states the approver and the reason; None if the
    policy approved it.

    `others` are the job's ex-post and secret parts, from accounts.entry_part. `source` is what the
    job reads (lineage.py): a version of the data, or an earlier job's artifacts. `parts`: how many
    workers share it. `overdraft`: why it is declared after it happened, where it is.
    """
    costs, whole = ({}, False) if account is None else account.charge(event)
    if account is not None and overdraft is not None:
        costs, whole = account.overdraft_costs(event), False
    taken = {} if account is None or not whole else whole_json(account)
    return {
        **({} if others is None else others),
        "source": dict(source),
        **({} if parts == 1 else {"parts": parts}),
        **({} if overdraft is None else {"overdraft": dict(overdraft)}),
        **taken,
        "mechanism": mechanism,
        "parameters": dict(parameters),
        "terms": terms.to_json(),
        "model": None if model is None else dict(model),
        "event": to_json(event),
        "costs": costs_json(costs),
        "approval": None if approval is None else dict(approval),
    }


def commit_body(
    account: Account | None,
    event: Event,
    outcome: str,
    attempt: int,
    output: str | None,
    *,
    others: Mapping[str, Any] | None = None,
    artifacts: Sequence[Mapping[str, str]] = (),
    read: bool = True,
    evidence: Mapping[str, Any] | None = None,
    held: Costs | None = None,
) -> dict[str, Any]:
    """Return the body of a COMMIT: the privacy really spent. `output` is the SHA-256 of the
    published output. `held` are the costs of the reservation.

    `others` are the ex-post and secret parts as realized (accounts.entry_part). `artifacts` has
    name, kind and SHA-256 of each published artifact. `read` is true if private data was read under
    the reservation, which decides whether a correction may lower the charge. `evidence` is what
    stands for the end of a charge: a runner's signature, and the SHA-256 of what it made.
    """
    return {
        **({"evidence": dict(evidence)} if evidence else {}),
        **({} if others is None else others),
        **({"artifacts": [dict(artifact) for artifact in artifacts]} if artifacts else {}),
        "event": to_json(event),
        "costs": {} if account is None else costs_json(stated(held or {}, account.costs(event))),
        "outcome": outcome,
        "attempt": attempt,
        "output_sha256": output,
        "read": read,
    }


def published_by(commit: Mapping[str, Any]) -> list[str]:
    """Return the SHA-256 of the output and of the artifacts that the body of a COMMIT names."""
    released = [artifact["sha256"] for artifact in commit.get("artifacts", ())]
    return released if commit["output_sha256"] is None else [commit["output_sha256"], *released]


def settled_part(
    accounts: Accounts,
    held: "Reservation",
    realized: Event,
    ex_post: int | None = None,
    rounds: int | None = None,
) -> dict[str, Any]:
    """Return the ex-post and secret parts of the COMMIT of a reservation that realized this event.

    A planned cap stays as reserved, whatever the realized cost: that depends on the data and never
    enters the entry. `ex_post`, in units, counts only if the dataset settles realized costs.
    `rounds` is the number of rounds of a secret release that were taken; None: all.
    """
    part: dict[str, Any] = {}
    asked = held.others
    if asked.ex_post:
        settles = accounts.ex_post.settlement is Settlement.REALIZED and ex_post is not None
        part["ex_post"] = {"cap": str(ex_post if settles else asked.ex_post)}
    account, secret = accounts.secret, asked.secret
    if secret is not None and rounds is not None:
        secret = replace(secret, rounds=rounds) if rounds else None
    if account is not None and (asked.secret is not None or releases(held.event)):
        cost: int | None = held.secret_cost
        if account.kind is SecretKind.MANY:
            cost = account.cost(realized, secret)
        assert cost is not None  # what covers the reservation covers a part of it
        release = None if secret is None else secret.to_json()
        part["secret"] = {"release": release, "cost": str(cost)}
    return part


def filter_json(each: Filter, limit: Amount) -> dict[str, Any]:
    """Return a filter as an ALLOW states it."""
    stored: dict[str, Any] = {
        "kind": str(each.kind),
        "share": str(each.share),
        "order": None if each.order is None else str(each.order),
        "limit": amount_json(limit),
        "edition": PRICES,
    }
    if each.step_delta:
        stored["step_delta"] = str(each.step_delta)
    if each.whole_epsilon:
        stored["whole_epsilon"] = str(each.whole_epsilon)
    return stored


def whole_json(account: Account) -> dict[str, Any]:
    """Return the part of a RESERVE that takes the account whole: the allowance it is priced by."""
    return {"whole": {"epsilon": str(account.epsilon), "delta": str(account.delta)}}


def amount_json(amount: Amount) -> dict[str, str]:
    return {"main": str(amount.main), "delta": str(amount.delta)}


def costs_json(costs: Costs) -> dict[str, Any]:
    """Return costs as an entry holds them: texts, and null if a filter can't price the event."""
    return {str(kind): None if cost is None else amount_json(cost) for kind, cost in costs.items()}
