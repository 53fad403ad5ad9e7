"""The states of a job, all of them public (DESIGN section 5), with their meanings."""

from dataclasses import dataclass

JOB_STATES = (
    "submitted",
    "awaiting_approval",
    "awaiting_release",
    "refused",
    "expired",
    "queued",
    "running",
    "settling",
    "succeeded",
    "failed",
    "cancelled",
)

#: States in which nothing is reserved yet, and may be later.
UNRESERVED = ("submitted", "awaiting_approval", "awaiting_release")

#: States that nothing follows.
ENDED = frozenset({"refused", "expired", "succeeded", "failed", "cancelled"})


@dataclass(frozen=True)
class State:
    """The meaning of a state, its cost, and the states that may follow."""

    meaning: str
    cost: str
    next: tuple[str, ...] = ()


STATES: dict[str, State] = {
    "submitted": State(
        "The request is recorded. A worker looks at the public facts of its model and template "
        "first.",
        "Nothing is reserved.",
        ("awaiting_approval", "awaiting_release", "queued", "refused", "cancelled"),
    ),
    "awaiting_approval": State(
        "It fits what is left, and the dataset's policy asks for a steward's yes.",
        "Nothing is reserved: other jobs may take the room before the yes.",
        ("awaiting_release", "queued", "refused", "expired", "cancelled"),
    ),
    "awaiting_release": State(
        "It fits what is left, but not what the dataset's policy has released. It is priced again "
        "and admitted when enough is; who has used the smallest share goes first.",
        "Nothing is reserved.",
        ("awaiting_approval", "queued", "refused", "cancelled"),
    ),
    "refused": State(
        "An account, the policy or a steward said no; the job's page says which limit binds.",
        "Nothing: a refusal never costs anything.",
    ),
    "expired": State("No steward decided in time.", "Nothing."),
    "queued": State(
        "The price is reserved in the ledger and the job waits for a worker.",
        "The whole price is reserved; cancelling now gives it back.",
        ("running", "cancelled"),
    ),
    "running": State(
        "A worker has it. From the moment when data is read the reservation can't be given back. A "
        "job whose machine is lost runs again under the same reservation, at most three times, or "
        "ends and is charged where the dataset's policy says so.",
        "The whole price is reserved.",
        ("settling", "queued", "succeeded", "failed", "cancelled"),
    ),
    "settling": State(
        "Every part of the work is done; what was really spent is being charged.",
        "The whole price is reserved.",
        ("succeeded", "failed"),
    ),
    "succeeded": State(
        "The output is published, in the transaction that charged it.",
        "What was really spent is charged, never more than was reserved. (An ex-post cap is a "
        "planning figure: the dataset's page says how it is settled.)",
    ),
    "failed": State(
        "The job ended without an output. What went wrong while data was read is told to nobody.",
        "The whole reservation where data was read, nothing before that.",
    ),
    "cancelled": State(
        "Somebody who may asked it to stop.",
        "The whole reservation where data was read, nothing before that.",
    ),
}
