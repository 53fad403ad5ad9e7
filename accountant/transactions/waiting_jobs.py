"""Limits on jobs of one person that wait for a worker or a steward: a price bounds spending, not
queues.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, func, select

from accountant import tables
from accountant.core.errors import invalid
from accountant.core.states import UNRESERVED
from accountant.settings import Settings

#: States of a job that waits; one that is submitted waits for both, as its look may send it either
#: way.
FOR_A_WORKER = ("submitted", "queued")
FOR_A_STEWARD = ("submitted", "awaiting_approval")
FOR_A_RELEASE = ("awaiting_release",)

#: Jobs that read records and wait, by person and state.
Waiting = Counter[tuple[UUID, str]]


def least(configured: Settings) -> int:
    """Return how many jobs of a person may wait, whatever for, with no limit in question."""
    return min(configured.waiting_jobs_per_person, configured.approvals_per_person)


def check_limits(waiting: Waiting, analyst_id: UUID, state: str, configured: Settings) -> None:
    """Raise InvalidRequest where one more job of this person in `state` would be beyond a limit.

    Requests on several datasets at one moment are not counted against each other.
    """
    for states, most, name, whom, remedy in (
        (
            FOR_A_WORKER,
            configured.waiting_jobs_per_person,
            "WAITING_JOBS_PER_PERSON",
            "a worker",
            "wait for one to start, or cancel one",
        ),
        (
            FOR_A_STEWARD,
            configured.approvals_per_person,
            "APPROVALS_PER_PERSON",
            "a steward",
            "wait for an answer, or cancel one",
        ),
        (
            FOR_A_RELEASE,
            configured.approvals_per_person,
            "APPROVALS_PER_PERSON",
            "a release",
            "wait for it, or cancel one",
        ),
    ):
        count = sum(waiting[analyst_id, state] for state in states)
        if state in states and count >= most:
            problem = f"{count} jobs of yours wait for {whom}"
            raise invalid(
                "mechanism", problem, f"at most {most} at a time (EXCHEQUER_{name}): {remedy}"
            )


_UNENDED = (*UNRESERVED, "queued", "running", "settling")


def check_free_jobs(
    connection: Connection, analyst_id: UUID, most: int, beside: Sequence[dict[str, Any]] = ()
) -> None:
    """Raise InvalidRequest where this person has `most` free jobs that have not ended.

    No allowance limits jobs that cost nothing, so a number does, for each person.
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
