"""The limit on jobs that cost nothing: no allowance limits them, so a number does, for each
person.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, select

from accountant import tables
from accountant.core.errors import invalid

_UNENDED = ("submitted", "awaiting_approval", "queued", "running", "settling")


def check_limit(
    connection: Connection, analyst_id: UUID, most: int, beside: Sequence[dict[str, Any]] = ()
) -> None:
    """Raise InvalidRequest where this person has `most` free jobs that have not ended.

    `beside`: rows of jobs in the same batch. Requests on several datasets at one moment are not
    counted against each other.
    """
    jobs = tables.jobs
    query = select(func.count()).where(
        jobs.c.analyst_id == analyst_id, ~jobs.c.reads_records, jobs.c.state.in_(_UNENDED)
    )
    count = connection.execute(query).scalar_one()
    count += sum(
        row["analyst_id"] == analyst_id and not row["reads_records"] and row["state"] in _UNENDED
        for row in beside
    )
    if count >= most:
        jobs_of = f"{count} jobs of yours that cost nothing have not ended"
        allowed = (
            f"at most {most} at a time (EXCHEQUER_FREE_JOBS_PER_PERSON): wait for one, or "
            "cancel one"
        )
        raise invalid("mechanism", jobs_of, allowed)
