"""One row, or the error that names what there is none of; the place of a job in its dataset."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, select

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
    moment, first = earlier.c.created_at, earlier.c.id <= jobs.c.id
    # Two counts, each from an index alone: to compare pairs, every earlier row would be read.
    parts = (moment < jobs.c.created_at, and_(moment == jobs.c.created_at, first))
    of_dataset = select(func.count()).where(earlier.c.dataset_id == jobs.c.dataset_id)
    before, at_once = (of_dataset.where(part).correlate(jobs).scalar_subquery() for part in parts)
    return before + at_once
