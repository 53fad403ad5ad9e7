"""Keyset paging: rows after a key, in a stable order, at the same cost however deep the page."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, literal, tuple_

from accountant.core.errors import InvalidRequest, invalid

#: The key of the last row of the page before; None: the first page.
After = Sequence[Any] | None


def window(
    query: Select[Any],
    key: Sequence[ColumnElement[Any]],
    limit: int | None,
    after: After,
    *,
    descending: bool = True,
) -> Select[Any]:
    """`query` ordered by the unique `key`: the first `limit` rows after the key `after`."""
    if after is not None:
        place = tuple_(*key)
        bound = tuple_(
            *(literal(value, column.type) for value, column in zip(after, key, strict=True))
        )
        query = query.where(place < bound if descending else place > bound)
    return query.order_by(*(column.desc() if descending else column.asc() for column in key)).limit(
        limit
    )


def unknown(what: str) -> InvalidRequest:
    """Return the error for an `after` that names a row which does not exist."""
    return invalid("cursor", f"names no {what}", "`next` of an earlier answer of this listing")
