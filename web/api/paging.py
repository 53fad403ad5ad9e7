"""Pages of a listing: `limit` rows after `cursor`, and where the next page begins.

A cursor is the key of the last row that was shown, so a page costs the same however far in it is, and rows
that come or go meanwhile neither hide nor repeat others. To its reader it is an opaque text.
"""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from flask import Response, jsonify, request

from accountant.core.errors import invalid
from web.api.bodies import read_limit
from web.errors import refuse_unstorable

#: What a listing is ordered by: a member of its rows, as a dotted path, and what its value stands for.
Order = Sequence[tuple[str, type]]

_READERS: dict[type, Callable[[Any], Any]] = {
    str: str,
    int: int,
    UUID: UUID,
    datetime: datetime.fromisoformat,
}
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Window:
    """What was asked for. One row more than `limit` is read: it tells whether there is a next page."""

    limit: int
    after: tuple[Any, ...] | None
    order: Order

    @property
    def reads(self) -> dict[str, Any]:
        """As the functions of `accountant` take it."""
        return {"limit": self.limit + 1, "after": self.after}


def read_window(order: Order, default: int = 50) -> Window:
    """`limit` and `cursor` of the request. Raises InvalidRequest."""
    text = request.args.get("cursor")
    return Window(read_limit(default), _decoded(text, order) if text else None, order)


def _decoded(text: str, order: Order) -> tuple[Any, ...]:
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if not isinstance(found, list) or [type(each) for each in found] != [
            int if kind is int else str for _, kind in order
        ]:
            raise ValueError("another listing's")
        values = tuple(_READERS[kind](each) for each, (_, kind) in zip(found, order, strict=True))
        for value in values:
            _check(value)
    except (ValueError, binascii.Error, RecursionError, OverflowError):
        raise invalid("cursor", repr(text[:40]), "`next` of an earlier answer of this listing") from None
    return values


def _check(value: Any) -> None:
    match value:
        case str():
            refuse_unstorable(value, "cursor")
        case int() if not 0 <= value <= _LARGEST:
            raise ValueError("beyond every row")
        case datetime() if value.tzinfo is None or not 1970 <= value.year <= 9000:
            raise ValueError("no moment")


def page(name: str, rows: list[dict[str, Any]], window: Window, **others: Any) -> Response:
    """{name: rows, next: cursor or null}; the address of the next page stands in `Link` too."""
    shown = rows[: window.limit]
    cursor = None
    if len(rows) > len(shown):
        cursor = _encoded([_member(shown[-1], field) for field, _ in window.order])
    response = jsonify({name: shown, "next": cursor, **others})
    if cursor is not None:
        query = [(key, value) for key, value in request.args.items(multi=True) if key != "cursor"]
        response.headers["Link"] = f'<{request.path}?{urlencode([*query, ("cursor", cursor)])}>; rel="next"'
    return response


def _member(row: Any, path: str) -> Any:
    for name in path.split("."):
        row = row[name]
    return row


def _encoded(key: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).rstrip(b"=").decode()
