"""`inbox`, `approve`, `refuse`, `cancel`: deciding on other people's requests, and ending one's own."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from web.cli import completion
from web.cli.jobs import alone_text, show_outcome
from web.cli.options import JobId, Json
from web.cli.output import out, print_json, say, table
from web.cli.profile import connect
from web.cli.proposals import what
from web.client import progress
from web.client.progress import state_text

Reason = Annotated[str, typer.Option(help="Why; it is kept with the job.")]
Awaiting = Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.awaiting)]


def inbox(as_json: Json = False) -> None:
    """List what waits for you as a steward: requests to approve, and proposals to confirm."""
    with connect() as client:
        jobs = list(client.all_jobs(state="awaiting_approval"))
        proposals = client.proposals()
    if as_json:
        print_json({"jobs": jobs, "proposals": proposals})
        return
    if not jobs and not proposals:
        say("nothing waits for a decision")
    if jobs:
        rows = [
            (each["id"], f"{each['mechanism']} on {each['dataset']}", alone_text(each), _who(each))
            for each in jobs
        ]
        out.print(table(["job", "asks for", "ε", "by, until"], rows, right="ε", whole="job"))
        say("decide: exchequer approve (or refuse) ID --reason TEXT")
    if proposals:
        found = [(each["id"], f"{each['dataset']}: {what(each)}", each["proposed_by"]) for each in proposals]
        out.print(table(["proposal", "would", "by"], found, whole="proposal"))
        say("decide: exchequer confirm (or withdraw) ID --reason TEXT")


def _who(job: dict[str, Any]) -> str:
    ends = job.get("approval_expires")
    until = "" if ends is None else f", {datetime.fromisoformat(ends).astimezone(UTC):%d %b %H:%M} UTC"
    return f"{job['analyst']}{until}"


def approve(job_id: Awaiting, reason: Reason, as_json: Json = False) -> None:
    """Approve a job: it is reserved and queued, or refused where it no longer fits."""
    with connect() as client:
        client.approve(job_id, reason)
        job = client.job(job_id)
    show_outcome(job, as_json)


def refuse(job_id: Awaiting, reason: Reason, as_json: Json = False) -> None:
    """Refuse a job that awaits approval."""
    with connect() as client:
        client.refuse(job_id, reason)
        job = client.job(job_id)
    print_json(job) if as_json else say(f"{state_text(job)}: {reason}")


def cancel(job_id: JobId, as_json: Json = False) -> None:
    """Cancel a job. Once a worker reads the data, the whole reservation is charged."""
    with connect() as client:
        client.cancel(job_id)
        job = client.job(job_id)
    if as_json:
        print_json(job)
    else:
        asked = "" if job["state"] in progress.ENDED else ", asked to stop"
        say(f"{state_text(job)}{asked}")
