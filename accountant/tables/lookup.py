"""One row, or the error that names what there is none of; the place of a job in its dataset."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, select, tuple_

from accountant.core.errors import NotFound
from accountant.tables.work import jobs


def one(connection: Connection, query: Select[Any], kind: str, name: object) -> Row[Any]:
    """Return the one row that `query` finds. Raises NotFound for the `kind` called `name`."""
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound(kind, str(name))
    return row


def place_of_job() -> ColumnElement[int]:
    """Return the place of a job among the jobs of its dataset, in the order in which the database
    took them.

    Rows of jobs are never removed, and the time of each is taken while its account is locked: a
    place stays.
    """
    earlier = jobs.alias()
    order = tuple_(earlier.c.created_at, earlier.c.id) <= tuple_(jobs.c.created_at, jobs.c.id)
    count = select(func.count()).where(earlier.c.dataset_id == jobs.c.dataset_id, order)
    return count.correlate(jobs).scalar_subquery()
