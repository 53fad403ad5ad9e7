"""The changes that an allowance would make. Reads only."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine, Row

from accountant.core.errors import Conflict, VerificationFailed
from accountant.core.ledger.allowances import Allowance, allowance_body, raises
from accountant.core.ledger.books import Books
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.units import EPSILON_UNITS, to_decimal
from accountant.database import reading
from accountant.identities.actor import Actor
from accountant.queries.rows import dataset_row
from accountant.schema.datasets import FilterChange, Preview
from accountant.tables.accounts_row import read_books
from accountant.transactions import owners


def preview(engine: Engine, dataset: str, allowance: Allowance, actor: Actor) -> Preview:
    """Return the changes that an allowance would make: each limit before and after; whether two
    people are needed.

    `filters` and `others` have what is used beside the limits; amounts are decimals. Raises
    InvalidRequest, NotFound, and Conflict where it would be less than is spent and reserved.
    Nothing is written.
    """
    actor.require("steward")
    with reading(engine) as connection:
        row = dataset_row(connection, dataset)
        owners.require(actor, Policy.model_validate(row.policy), "steward")
    return effect_of(
        row, allowance_body(allowance, read_books(row), row.neighbours, row.unit_column)
    )


def effect_of(row: Row[Any], body: Mapping[str, Any]) -> Preview:
    """Return the changes by an ALLOW with this body to an account's row.

    Raises Conflict if less would be allowed than is spent and reserved.
    """
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
    old = (
        {}
        if before.account is None
        else {each.filter.kind: each for each in before.account.filters}
    )
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
    """Return the limits of the other two currencies, where they differ."""
    changes: list[dict[str, Any]] = []
    if (before.ex_post.limit, before.ex_post.settlement) != (
        after.ex_post.limit,
        after.ex_post.settlement,
    ):
        stated = [
            f"{to_decimal(each.ex_post.limit, EPSILON_UNITS)}, {each.ex_post.settlement}"
            for each in (before, after)
        ]
        changes.append({"name": "ex-post caps", "before": stated[0], "after": stated[1]})
    bounds = [
        None if each.secret is None else f"{each.secret.terms.bound:g}" for each in (before, after)
    ]
    if bounds[0] != bounds[1]:
        changes.append({"name": "bound on secrets", "before": bounds[0], "after": bounds[1]})
    return changes
