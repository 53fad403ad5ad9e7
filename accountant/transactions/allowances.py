"""A dataset's allowance: it is set, or proposed where a raise needs two people, or shown beforehand."""

from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Engine, Row, select

from accountant import tables
from accountant.core.errors import Conflict, VerificationFailed
from accountant.core.ledger.allowances import Allowance, allowance_body, raises
from accountant.core.ledger.books import Books
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.identities.actor import Actor
from accountant.tables.accounts_row import read_books
from accountant.tables.lookup import one
from accountant.transactions.idempotency import Once, claim
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.proposals import newest_allowance, propose
from accountant.transactions.rows import policy_of


def allow(
    engine: Engine, dataset: str, allowance: Allowance, actor: Actor, once: Once | None = None
) -> UUID | None:
    """Set an allowance, or propose it where it is a raise that needs two people: then the proposal's id.

    Raises InvalidRequest for impossible figures, NotPermitted for anybody but a steward, and Conflict where
    less would be allowed than is spent and reserved.
    """
    actor.require("steward")
    made = uuid4()
    with engine.begin() as connection:
        locked = LockedAccount(connection, _dataset(connection, dataset).id)
        found = _dataset(connection, dataset)  # again: its policy may have changed while the row was awaited
        earlier = claim(connection, once, made)
        if earlier != made:  # what it made then: a proposal, or an entry
            return connection.execute(
                select(tables.proposals.c.id).where(tables.proposals.c.id == earlier)
            ).scalar()
        body = allowance_body(allowance, locked.books, found.neighbours, found.unit_column)
        if policy_of(found).two_people and raises(locked.books, body):
            basis, asked = newest_allowance(connection, found.id), {"body": body}
            reason = allowance.reason
            return propose(connection, made, "allowance", found.id, asked, reason, actor, basis=basis)
        try:
            locked.append(EntryKind.ALLOW, actor.name, None, body)
        except VerificationFailed:
            raise Conflict("more than that is already spent or reserved; nothing was changed") from None
        return None


def preview(engine: Engine, dataset: str, allowance: Allowance, actor: Actor) -> dict[str, Any]:
    """What an allowance would change: each limit before and after, and whether it is a raise for two people.

    `filters` and `others` have what is used beside the limits; amounts are decimals. Raises InvalidRequest,
    NotFound, and Conflict where it would be less than is spent and reserved. Nothing is written.
    """
    actor.require("steward")
    with engine.connect() as connection:
        found = _dataset(connection, dataset)
        accounts = tables.accounts
        row = connection.execute(select(accounts).where(accounts.c.dataset_id == found.id)).one()
    books = read_books(row)
    body = allowance_body(allowance, books, found.neighbours, found.unit_column)
    try:
        after = books.apply(EntryKind.ALLOW, None, body, None)
    except VerificationFailed:
        raise Conflict("more than that is already spent or reserved") from None
    is_raise = raises(books, body)
    return {
        "neighbours": found.neighbours,
        "unit": found.unit_column or "record",
        "raise": is_raise,
        "two_people": is_raise and policy_of(found).two_people,
        "after_release": is_raise and books.history.jobs > 0,
        "filters": _filter_changes(books, after),
        "others": _other_changes(books, after),
    }


def _filter_changes(before: Books, after: Books) -> list[dict[str, Any]]:
    old = {} if before.account is None else {each.filter.kind: each for each in before.account.filters}
    return [
        {
            "kind": str(each.filter.kind),
            "share": float(each.filter.share),
            "used": to_decimal(each.used.main, EPSILON_UNITS),
            "before": to_decimal(old[each.filter.kind].limit.main, EPSILON_UNITS) if old else None,
            "after": to_decimal(each.limit.main, EPSILON_UNITS),
            "holds": each.holds,
        }
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


def _dataset(connection: Connection, name: str) -> Row[Any]:
    return one(connection, select(tables.datasets).where(tables.datasets.c.name == name), "dataset", name)
