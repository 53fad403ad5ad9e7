"""Several requests together: what approving all of them, the oldest first, would do to each dataset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, Row

from accountant.core.errors import UNREADABLE
from accountant.core.ledger.accounts import Accounts, decide_job
from accountant.core.ledger.admission import Refused
from accountant.core.ledger.caps import ANALYST, PROJECT, Usage
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.filters import ZERO
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries import inbox
from accountant.queries.remaining import after, remaining
from accountant.schema.datasets import Remaining
from accountant.schema.quotes import FilterStep
from accountant.tables.accounts_row import read_books
from accountant.transactions import job_requests


@dataclass(frozen=True)
class Together:
    """The sum of some requests on one dataset.

    `fitting` and `refused` are ids of jobs: each is decided on what those before it left, as approving them
    one after the other would. `filters` have what is used now and after all that fit.
    """

    dataset: str
    fitting: tuple[str, ...]
    refused: Mapping[str, str]
    filters: tuple[FilterStep, ...]
    now: Remaining | None
    then: Remaining | None


def together(engine: Engine, viewer: Actor, items: Sequence[Mapping[str, Any]]) -> list[Together]:
    """The combined effect of these waiting jobs, by dataset, for stewards; `items` in their order."""
    viewer.require("steward")
    if not items:
        return []
    with reading(engine) as connection:
        rows = inbox.datasets_of(connection, {each["dataset"] for each in items})
        used = inbox.usage_of(connection, rows)
    return [
        _on(row, [each for each in items if each["dataset"] == name], used)
        for name, row in sorted(rows.items())
    ]


def _on(
    row: Row[Any], items: Sequence[Mapping[str, Any]], used: Mapping[tuple[UUID, str, str], int]
) -> Together:
    start, policy = read_books(row).accounts, Policy.model_validate(row.policy)
    terms, accounts, spent = job_requests.terms_of(row, start), start, dict(used)
    fitting, refused = [], {}
    for item in items:
        holders = [(row.id, ANALYST, item["analyst"]), (row.id, PROJECT, item["project"] or "")]
        usage = Usage(*(spent.get(each, 0) for each in holders))
        try:
            facts = {name: item[name] for name in ("mechanism", "parameters", "terms", "epsilon_alone")}
            job = job_requests.candidate_of(SimpleNamespace(**facts))  # type: ignore[arg-type]
            decision = decide_job(accounts, job.asked, job.epsilon_alone, policy, True, usage)
        except UNREADABLE:
            refused[item["id"]] = "it can't be priced any more under the dataset's terms"
            continue
        if isinstance(decision, Refused):
            refused[item["id"]] = decision.why
            continue
        fitting.append(item["id"])
        accounts, then = after(accounts, usage, job.asked, job.epsilon_alone)
        spent |= dict(zip(holders, (then.analyst, then.project), strict=True))
    return Together(
        row.name,
        tuple(fitting),
        refused,
        _steps(start, accounts),
        remaining(start, Usage(0, 0), policy, terms),
        remaining(accounts, Usage(0, 0), policy, terms),
    )


def _steps(start: Accounts, end: Accounts) -> tuple[FilterStep, ...]:
    if start.dp is None or end.dp is None:
        return ()
    pairs = zip(start.dp.filters, end.dp.filters, strict=True)
    return tuple(
        FilterStep(
            kind=str(first.filter.kind),
            before=first.share_with(ZERO),
            after=None if last.closed and not first.closed else last.share_with(ZERO),
            closed=bool(first.closed),
            limit=to_decimal(last.limit.main, EPSILON_UNITS),
            cost=to_decimal(first.left.main - last.left.main, EPSILON_UNITS),
            left=to_decimal(first.left.main, EPSILON_UNITS),
            left_after=to_decimal(last.left.main, EPSILON_UNITS),
        )
        for first, last in pairs
    )
