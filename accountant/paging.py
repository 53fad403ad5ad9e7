"""Keyset paging: rows after a key, in a stable order, at the same cost however far in."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, Select, literal, tuple_


def window(
    query: Select[Any],
    key: Sequence[Column[Any]],
    limit: int | None,
    after: Sequence[Any] | None,
    *,
    descending: bool = True,
) -> Select[Any]:
    """`query` ordered by `key`, which tells rows apart; the first `limit` rows beyond the key `after`."""
    if after is not None:
        place = tuple_(*key)
        bound = tuple_(*(literal(value, column.type) for value, column in zip(after, key, strict=True)))
        query = query.where(place < bound if descending else place > bound)
    return query.order_by(*(column.desc() if descending else column.asc() for column in key)).limit(limit)
