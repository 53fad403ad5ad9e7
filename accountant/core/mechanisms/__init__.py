"""The registry: every mechanism that has a price. One file each, named as its runner is."""

from typing import Any

from accountant.core.errors import invalid
from accountant.core.mechanisms import (
    aug_pe,
    dp_kps,
    epsvec,
    evaluation,
    invisible_ink,
    noisy_count,
    private_prediction,
    secpe,
    summary_oneshot,
    summary_token,
)
from accountant.core.mechanisms.base import Mechanism

MECHANISMS: dict[str, Mechanism[Any]] = {
    each.id: each
    for each in (
        private_prediction.MECHANISM,
        noisy_count.MECHANISM,
        invisible_ink.MECHANISM,
        epsvec.MECHANISM,
        dp_kps.MECHANISM,
        aug_pe.MECHANISM,
        secpe.MECHANISM,
        summary_token.MECHANISM,
        summary_oneshot.MECHANISM,
        evaluation.MECHANISM,
    )
}

#: Mechanisms that this service can run (workers.mechanisms.RUNNERS); the others have a price only.
RUNNABLE: frozenset[str] = frozenset(
    each.id
    for each in (
        private_prediction.MECHANISM,
        noisy_count.MECHANISM,
        evaluation.MECHANISM,
        invisible_ink.MECHANISM,
        epsvec.MECHANISM,
    )
)


def get(mechanism_id: object) -> Mechanism[Any]:
    """The mechanism called `mechanism_id`. Raises InvalidRequest naming those that exist."""
    found = MECHANISMS.get(mechanism_id) if isinstance(mechanism_id, str) else None
    if found is None:
        raise invalid("mechanism", f"unknown mechanism {mechanism_id!r}", ", ".join(MECHANISMS))
    return found


def get_runnable(mechanism_id: object) -> Mechanism[Any]:
    """The same for a job: raises InvalidRequest where there is a price and no runner."""
    found = get(mechanism_id)
    if found.id not in RUNNABLE:
        problem = "priced, but this service has no runner for it yet"
        raise invalid("mechanism", problem, ", ".join(sorted(RUNNABLE)))
    return found
