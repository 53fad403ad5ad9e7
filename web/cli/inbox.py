"""`inbox`, `approve`, `refuse`, `cancel`: deciding on other people's requests, and ending one's own."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from web.cli import completion
from web.cli.answers import Answer
from web.cli.jobs import alone_text, outcome
from web.cli.options import JobId
from web.cli.output import table
from web.cli.profile import connect
from web.cli.proposals import what
from web.client import progress
from web.client.progress import state_text

Reason = Annotated[str, typer.Option(help="Why; it is kept with the job.")]
Awaiting = Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.awaiting)]


def inbox() -> Answer:
    """List what waits for you as a steward: requests, proposals to confirm, and people who ask for access."""
    with connect() as client:
        found = client.inbox()
    yield found
    jobs, proposals, access = found["jobs"], found["proposals"], found["access"]
    if not jobs and not proposals and not access:
        yield "nothing waits for a decision"
    if jobs:
        rows = [
            (
                each["id"],
                f"{each['mechanism']} on {each['dataset']}{_asked(each)}",
                alone_text(each),
                _who(each),
            )
            for each in jobs
        ]
        yield table(["job", "asks for", "ε", "by, until"], rows, right="ε", whole="job")
        yield "decide: exchequer approve (or refuse) ID --reason TEXT"
    if proposals:
        open_ = [(each["id"], f"{each['dataset']}: {what(each)}", _proposer(each)) for each in proposals]
        yield table(["proposal", "would", "by"], open_, whole="proposal")
        yield "decide: exchequer confirm (or withdraw) ID --reason TEXT"
    if access:
        people = [(each["dataset"], each["person"], each["reason"]) for each in access]
        yield table(["access to", "for", "why"], people)
        yield "answer them on the page of the inbox"


def _proposer(proposal: dict[str, Any]) -> str:
    left = proposal.get("proposer_left")
    return f"{proposal['proposed_by']}{f' (left: {left})' if left else ''}"


def _asked(job: dict[str, Any]) -> str:
    return ", asked back" if job.get("asked_back") else ""


def _who(job: dict[str, Any]) -> str:
    ends = job.get("approval_expires")
    until = "" if ends is None else f", {datetime.fromisoformat(ends).astimezone(UTC):%d %b %H:%M} UTC"
    left = job.get("analyst_left")
    return f"{job['analyst']}{until}{f' (left: {left})' if left else ''}"


def approve(job_id: Awaiting, reason: Reason) -> Answer:
    """Approve a job: it is reserved and queued, or refused where it no longer fits."""
    with connect() as client:
        client.approve(job_id, reason)
        job = client.job(job_id)
    yield from outcome(job)


def refuse(job_id: Awaiting, reason: Reason) -> Answer:
    """Refuse a job that awaits approval."""
    with connect() as client:
        client.refuse(job_id, reason)
        job = client.job(job_id)
    yield job
    yield f"{state_text(job)}: {reason}"


def comment(
    job_id: JobId,
    text: Annotated[str, typer.Argument(help="What you say; of a question to you, the answer.")],
    ask: Annotated[bool, typer.Option("--ask", help="A steward's question: the job waits for it.")] = False,
) -> Answer:
    """Say something about a job, ask its analyst back, or answer. Nothing is decided by it."""
    with connect() as client:
        job = client.comment(job_id, text, asks=ask)
    yield job
    said = job["comments"][-1]["kind"]
    waits = ": it waits for its analyst's answer" if job["asked_back"] else ""
    yield f"{said} added{waits}"


def cancel(job_id: JobId) -> Answer:
    """Cancel a job. Once a worker reads the data, the whole reservation is charged."""
    with connect() as client:
        client.cancel(job_id)
        job = client.job(job_id)
    yield job
    asked = "" if job["state"] in progress.ENDED else ", asked to stop"
    yield f"{state_text(job)}{asked}"
