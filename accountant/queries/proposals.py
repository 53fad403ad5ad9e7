"""Proposals for stewards and auditors, and the changes that an allowance would make. Reads only."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Engine, Row, Select, select

from accountant import tables
from accountant.core.errors import Conflict, InvalidRequest, NotFound, VerificationFailed
from accountant.core.ledger.allowances import Allowance, allowance_body, raises
from accountant.core.ledger.books import Books
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy, weakened
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.database import reading
from accountant.identities import custody
from accountant.identities.actor import Actor
from accountant.queries.rows import dataset_row
from accountant.schema.datasets import FilterChange, Preview
from accountant.schema.decisions import Proposal
from accountant.tables import paging
from accountant.tables.accounts_row import read_books
from accountant.transactions import owners

proposals = tables.proposals


def listing(
    engine: Engine,
    viewer: Actor,
    *,
    state: str | None = "open",
    limit: int = 50,
    after: paging.After = None,
) -> list[Proposal]:
    """Return proposals, newest first, for stewards and auditors; `state` None: in any state."""
    viewer.require("steward", "auditor")
    query = paging.window(_query(viewer), [proposals.c.created_at, proposals.c.id], limit, after)
    if state is not None:
        query = query.where(proposals.c.state == state)
    with reading(engine) as connection:
        acts = custody.recent(connection)
        return [_view(row, acts) for row in connection.execute(query)]


def show(engine: Engine, proposal_id: UUID, viewer: Actor) -> Proposal:
    """One proposal. Raises NotFound."""
    viewer.require("steward", "auditor")
    with reading(engine) as connection:
        row = connection.execute(_query(viewer).where(proposals.c.id == proposal_id)).one_or_none()
        acts = custody.recent(connection)
    if row is None:
        raise NotFound("proposal", str(proposal_id))
    return _view(row, acts)


def _query(viewer: Actor) -> Select[Any]:
    users = tables.users
    decider = users.alias()
    return (
        select(
            proposals,
            tables.datasets.c.name.label("dataset"),
            tables.datasets.c.policy,
            users.c.name,
            users.c.active,
            users.c.roles,
            decider.c.name.label("decider"),
        )
        .join(tables.datasets, tables.datasets.c.id == proposals.c.dataset_id)
        .join(users, users.c.id == proposals.c.proposed_by)
        .outerjoin(decider, decider.c.id == proposals.c.decided_by)
        .where(owners.overseen(viewer))
    )


def _view(row: Row[Any], acts: list[dict[str, Any]]) -> Proposal:
    asked = {name: value for name, value in row.asked.items() if name != "signature"}
    if row.kind == "allowance":
        body = asked["body"]
        asked = {name: body[name] for name in ("epsilon", "delta", "ex_post", "secret") if name in body}
    elif row.kind == "correction":
        asked["cap"] = to_decimal(int(asked["cap"]), EPSILON_UNITS)
    weaker: tuple[str, ...] = ()
    if row.kind == "policy":
        weaker = weakened(*(Policy.model_validate(asked[name]) for name in ("replaces", "policy")))
    same = ("kind", "dataset", "reason", "state", "decision_reason", "created_at", "expires_at", "decided_at")
    return Proposal(
        id=str(row.id),
        job=None if row.job_id is None else str(row.job_id),
        asked=asked,
        proposed_by=row.name,
        proposer_left=owners.steward_departure(row, Policy.model_validate(row.policy))
        if row.state == "open"
        else None,
        decided_by=row.decider,
        entry=row.entry_seq,
        weakens=list(weaker),
        acts_on_stewards=acts if row.state == "open" else [],
        **{name: getattr(row, name) for name in same},
    )


# --- allowances ---------------------------------------------------------------------------------


def preview(engine: Engine, dataset: str, allowance: Allowance, actor: Actor) -> Preview:
    """The changes that an allowance would make: each limit before and after; whether two people are needed.

    `filters` and `others` have what is used beside the limits; amounts are decimals. Raises InvalidRequest,
    NotFound, and Conflict where it would be less than is spent and reserved. Nothing is written.
    """
    actor.require("steward")
    with reading(engine) as connection:
        row = dataset_row(connection, dataset)
        owners.require(actor, Policy.model_validate(row.policy), "steward")
    return _preview(row, allowance_body(allowance, read_books(row), row.neighbours, row.unit_column))


def proposed_change(engine: Engine, proposal_id: UUID, viewer: Actor) -> Preview | None:
    """The changes that an open proposal of an allowance would make now, as its proposer saw them.

    None for other proposals, and where the amounts have moved so that it can't be made any more.
    """
    viewer.require("steward", "auditor")
    with reading(engine) as connection:
        found = connection.execute(_query(viewer).where(proposals.c.id == proposal_id)).one_or_none()
        if found is None or found.kind != "allowance" or found.state != "open":
            return None
        row = dataset_row(connection, found.dataset)
    try:
        return _preview(row, found.asked["body"])
    except (Conflict, InvalidRequest):
        return None


def _preview(row: Row[Any], body: Mapping[str, Any]) -> Preview:
    books = read_books(row)
    try:
        after = books.apply(EntryKind.ALLOW, None, body, None)
    except VerificationFailed:
        raise Conflict("more than that is already spent or reserved") from None
    is_raise = raises(books, body)
    return Preview(
        neighbours=row.neighbours,
        unit=row.unit_column or "record",
        is_raise=is_raise,
        two_people=is_raise and Policy.model_validate(row.policy).two_people,
        after_release=is_raise and books.history.jobs > 0,
        filters=_filter_changes(books, after),
        others=_other_changes(books, after),
    )


def _filter_changes(before: Books, after: Books) -> list[FilterChange]:
    old = {} if before.account is None else {each.filter.kind: each for each in before.account.filters}
    return [
        FilterChange(
            kind=str(each.filter.kind),
            share=float(each.filter.share),
            used=to_decimal(each.used.main, EPSILON_UNITS),
            before=to_decimal(old[each.filter.kind].limit.main, EPSILON_UNITS) if old else None,
            after=to_decimal(each.limit.main, EPSILON_UNITS),
            holds=each.holds,
        )
        for each in (() if after.account is None else after.account.filters)
    ]


def _other_changes(before: Books, after: Books) -> list[dict[str, Any]]:
    """The limits of the other two currencies, where they differ."""
    changes: list[dict[str, Any]] = []
    if (before.ex_post.limit, before.ex_post.settlement) != (after.ex_post.limit, after.ex_post.settlement):
        stated = [
            f"{to_decimal(each.ex_post.limit, EPSILON_UNITS)}, {each.ex_post.settlement}"
            for each in (before, after)
        ]
        changes.append({"name": "ex-post caps", "before": stated[0], "after": stated[1]})
    bounds = [None if each.secret is None else f"{each.secret.terms.bound:g}" for each in (before, after)]
    if bounds[0] != bounds[1]:
        changes.append({"name": "bound on secrets", "before": bounds[0], "after": bounds[1]})
    return changes
