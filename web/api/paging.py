"""Pages of a listing: `limit` rows after `cursor`, and where the next page begins.

A cursor is the key of the last row that was shown, so a page costs the same however far in it is,
and rows that come or go meanwhile neither hide nor repeat others. It holds members of that row,
which its reader has seen, and the name of its listing: no other takes it. To its reader it is an
opaque text. Pages take them too.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from flask import Response, jsonify, request

from accountant.core.errors import invalid
from accountant.schema.base import Answer
from web.api.parsing import read_limit
from web.context import here
from web.errors import refuse_unstorable

Row = Answer | Mapping[str, Any]
_READERS: dict[type, Callable[[Any], Any]] = {
    str: str,
    int: int,
    UUID: UUID,
    datetime: datetime.fromisoformat,
}
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Order:
    """The order of a listing, and the rows of a page where nobody says how many.

    `key`: members of its rows that tell them apart, as dotted paths, and what their values stand
    for.
    """

    listing: str
    key: tuple[tuple[str, type], ...]
    rows: int = 50


BY_NAME = (("name", str),)
BY_TIME = (("created_at", datetime), ("id", UUID))


@dataclass(frozen=True)
class Window:
    """The page asked for. One row more than `limit` tells whether there is a next."""

    limit: int
    after: tuple[Any, ...] | None
    order: Order

    @property
    def reads(self) -> dict[str, Any]:
        """The window as arguments of the readers in `accountant`."""
        return {"limit": self.limit + 1, "after": self.after}


def read_window(order: Order, limit: int | None = None, *, parameter: str = "cursor") -> Window:
    """Return the page that the request asks for. Raises InvalidRequest."""
    text = request.args.get(parameter)
    after = _decoded(text, order, parameter) if text else None
    return Window(read_limit(order.rows) if limit is None else limit, after, order)


def _decoded(text: str, order: Order, parameter: str) -> tuple[Any, ...]:
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        cursor = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if not isinstance(cursor, list) or cursor[:1] != [order.listing]:
            raise ValueError("another listing's")
        if [type(field_value) for field_value in cursor[1:]] != [
            int if kind is int else str for _, kind in order.key
        ]:
            raise ValueError("no key")
        values = tuple(
            _READERS[kind](field_value)
            for field_value, (_, kind) in zip(cursor[1:], order.key, strict=True)
        )
        for value in values:
            _check(value, parameter)
    except (ValueError, binascii.Error, RecursionError, OverflowError):
        raise invalid(
            parameter, repr(text[:40]), "`next` of an earlier answer of this listing"
        ) from None
    return values


def _check(value: Any, parameter: str) -> None:
    match value:
        case str():
            refuse_unstorable(value, parameter)
        case int() if not 0 <= value <= _LARGEST:
            raise ValueError("beyond every row")
        case datetime() if value.tzinfo is None or not 1970 <= value.year <= 9000:
            raise ValueError("no moment")


def cut(rows: Sequence[Row], window: Window) -> tuple[list[dict[str, Any]], str | None]:
    """Return the rows of a page as JSON documents, and the cursor of the next one."""
    shown = [
        row.document() if isinstance(row, Answer) else dict(row) for row in rows[: window.limit]
    ]
    if len(rows) == len(shown):
        return shown, None
    return shown, encoded(window.order, [_member(shown[-1], path) for path, _ in window.order.key])


def page(name: str, rows: Sequence[Row], window: Window, **others: Any) -> Response:
    """{name: rows, next: cursor or null}; the address of the next page stands in `Link` too."""
    shown, cursor = cut(rows, window)
    response = jsonify({name: shown, "next": cursor, **others})
    if cursor is not None:
        query = [(key, value) for key, value in request.args.items(multi=True) if key != "cursor"]
        response.headers["Link"] = (
            f'<{here()}?{urlencode([*query, ("cursor", cursor)])}>; rel="next"'
        )
    return response


def _member(row: Any, path: str) -> Any:
    for name in path.split("."):
        row = row[name]
    return row


def encoded(order: Order, key: Sequence[Any]) -> str:
    """Return the cursor behind the row with this key, in plain values."""
    text = json.dumps([order.listing, *key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
