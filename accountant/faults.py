"""Crash points: named places between two steps where the faults harness ends, stops or fails a
process.

In production `reached` does nothing, and no setting, message or request can change that. Only the
harness in tests/faults, which starts its own processes, installs a hook; docs/reliability.md states
what a crash means for the budget.
"""

from collections.abc import Callable

#: Every point and what stands in the database when it is reached.
POINTS: dict[str, str] = {
    # API: submit, answer, cancel
    "submit.decided": "the requests of a batch are decided, nothing is written",
    "submit.written": "requests, RESERVE, balances, parts and messages are written, not committed",
    "submit.committed": "the requests and what was decided are committed, the client has no answer",
    "approve.decided": "the approval is written, nothing is reserved, not committed",
    "approve.written": "RESERVE, balances, parts and messages are written, not committed",
    "answer.committed": "the answer is committed, the client has no answer",
    "cancel.committed": "the cancellation is committed, the client has no answer",
    # the log outside the database, after every transaction that may post entries
    "writing.committed": "entries are committed, the log does not hold them",
    "log.written": "entries are in the log's file, not synced",
    "log.synced": "entries are in the log, nobody has an answer",
    # relay
    "relay.taken": "messages are locked, none is sent",
    "relay.sent": "one message is with the broker and not marked",
    "relay.marked": "all are sent and marked, not committed",
    # worker
    "worker.received": "a message came, nothing is claimed",
    "worker.claimed": "the claim is committed, nothing is read",
    "worker.before reading": "parameters are parsed and the model is loaded, nothing is read",
    "worker.reading begins": '"reading begins" is written, not committed',
    "worker.opens data": '"reading begins" is committed, the data is opened next',
    "worker.keeps": "draws are written for later attempts, not committed",
    "worker.step": "noise is drawn, the output is being written",
    "worker.writes": "a line of the output is about to be written",
    "worker.staged": "the output is staged, nothing is charged",
    "worker.finishes": "the claim is checked and held, the job is not settling",
    "worker.finished": "the job is settling, committed, nothing is charged",
    "worker.committed": "the COMMIT is committed, the output is a sealed draft",
    "worker.published": "the output is published, the message is not acknowledged",
    "worker.ended": "a failed or cancelled job is charged or void, committed",
    # settlement, inside its transaction
    "publish.fenced": "the token is checked and both rows are held, nothing is written",
    "publish.charged": "COMMIT and balances are written, the output is not published, not "
    "committed",
    "publish.written": "COMMIT and publication are written, not committed",
    "close.charged": "COMMIT or VOID is written, the job is not ended, not committed",
    # heartbeat
    "heartbeat.renewed": "the lease is renewed",
    # reaper
    "reaper.found": "an overdue lease is seen, nothing is locked",
    "reaper.requeued": "the next attempt and its message are written, not committed",
    "reaper.expired": "leases are ended and committed, what they staged is not destroyed",
    "reaper.resent": "messages are written again, not committed",
}

hook: Callable[[str, dict[str, object]], None] | None = None


def reached(point: str, **facts: object) -> None:
    """Report to the harness that this process is at `point`. `facts`: the job and attempt."""
    if hook is not None:
        hook(point, facts)
