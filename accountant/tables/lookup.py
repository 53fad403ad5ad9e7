"""One row, or the error that names what there is none of."""

from typing import Any

from sqlalchemy import Connection, Row, Select

from accountant.core.errors import NotFound


def one(connection: Connection, query: Select[Any], kind: str, name: object) -> Row[Any]:
    """Return the one row that `query` finds. Raises NotFound for the `kind` called `name`."""
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound(kind, str(name))
    return row
