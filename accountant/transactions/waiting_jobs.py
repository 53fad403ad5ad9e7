"""Limits on jobs of one person that wait for a worker or a steward: a price bounds spending, not
queues.
"""

from collections import Counter
from uuid import UUID

from accountant.core.errors import invalid
from accountant.settings import Settings

#: States of a job that waits; one that is submitted waits for both, as its look may send it either
#: way.
FOR_A_WORKER = ("submitted", "queued")
FOR_A_STEWARD = ("submitted", "awaiting_approval")

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
    ):
        count = sum(waiting[analyst_id, each] for each in states)
        if state in states and count >= most:
            problem = f"{count} jobs of yours wait for {whom}"
            raise invalid(
                "mechanism", problem, f"at most {most} at a time (EXCHEQUER_{name}): {remedy}"
            )
