"""`job submit | list | show | comment | cancel`."""

import json
import shlex
from collections.abc import Generator
from contextlib import suppress
from io import BytesIO
from typing import Annotated, Any

import typer

from accountant.core.errors import FieldProblem, InvalidRequest, invalid
from accountant.core.privacy.units import up
from web.cli.answers import SIDES, Answer, measured
from web.cli.failures import report
from web.cli.options import DatasetOption, JobId, Timeout
from web.cli.output import (
    REFUSED,
    Mode,
    err,
    facts,
    note,
    read_text,
    require_finite,
    stop,
    table,
)
from web.cli.price import parameters
from web.cli.session import connect
from web.client import progress
from web.client.api import Api
from web.client.charges import closing
from web.client.errors import JobFailed, Refused, StillWaiting
from web.client.progress import UNSUCCESSFUL, amount_text, state_text

Job = dict[str, Any]

DECISION_SECONDS = 15.0
REQUEST_FIELDS = ("dataset", "mechanism", "model", "parameters", "purpose", "project")


def submit(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE.json", help="The request, as `ask -o` saves it."),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A field to set in place of the file's, such as clip=4.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the job to its end.")] = False,
    timeout: Timeout = None,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same key and file are the same job.")
    ] = None,
    rehearse: Annotated[
        str | None,
        typer.Option("--rehearse", metavar="CORPUS", help="The same job on public texts, free."),
    ] = None,
) -> Answer:
    """Send a job. The exit code is 1 if it is refused or fails."""
    request = read_request(file)
    changed = parameters(settings or [])
    if "purpose" in changed:
        request["purpose"] = str(changed.pop("purpose"))
    require_finite(changed, "parameters")
    request["parameters"] = {**(request["parameters"] or {}), **changed}
    if rehearse is not None:
        from accountant.core.mechanisms import rehearsal

        stated = {rehearsal.CORPUS: rehearse}
        mechanism, request["parameters"] = rehearsal.request(
            request["mechanism"], request["parameters"], stated
        )
        request |= {"mechanism": mechanism, "purpose": request["purpose"] or "Rehearsal"}
    with connect() as client:
        told = closing(client, request)
        if told is not None:
            note(told)
        job = client.submit(request, key=key)
        yield f"job {job['id']}"
        job = (yield from _followed(client, job["id"], timeout)) if wait else decided(client, job)
    yield from outcome(job, file)
    if rehearse is not None and job["state"] == "succeeded":
        with connect() as client:
            yield from rehearsed(client, job["id"])


def read_request(file: str) -> Job:
    """Return the request in a file, checked as far as it can be without the server."""
    try:
        request = json.loads(read_text(file, "FILE"))
    except (ValueError, RecursionError) as error:
        raise invalid("FILE", f"{file} is no JSON: {error}", "a JSON object") from None
    if not isinstance(request, dict):
        raise invalid(
            "FILE", f"{file} holds no JSON object", f"an object of {', '.join(REQUEST_FIELDS)}"
        )
    allowed = ", ".join(REQUEST_FIELDS)
    problems = [
        FieldProblem(str(n), "unknown field", allowed) for n in request if n not in REQUEST_FIELDS
    ]
    for name in ("dataset", "mechanism"):
        if not isinstance(request.get(name), str) or not request[name]:
            problems.append(FieldProblem(name, "missing, or no text", f"the name of a {name}"))
    if not isinstance(request.get("model", ""), str | None):
        problems.append(FieldProblem("model", "no text", "the name of a model, or nothing"))
    if not isinstance(request.get("parameters", {}), dict):
        problems.append(FieldProblem("parameters", "no object", "an object of parameters"))
    if not isinstance(request.get("purpose", ""), str):
        problems.append(FieldProblem("purpose", "no text", "a sentence"))
    if problems:
        raise InvalidRequest(problems)
    require_finite(request, "")
    return {"parameters": {}, "purpose": ""} | request


# --- following ----------------------------------------------------------------------------------


def decided(client: Api, job: Job, seconds: float = DECISION_SECONDS) -> Job:
    """Return the job once it is decided; as it is where that takes longer (no worker runs, say)."""
    if progress.decided(job):
        return job
    with err.status("a worker looks at model and template …"), suppress(StillWaiting):
        return progress.watch(
            lambda: client.job(job["id"]), progress.decided, progress.silent, seconds
        )
    return client.job(job["id"])


def _followed(client: Api, job_id: str, seconds: float | None) -> Generator[Job, None, Job]:
    """`follow`; a program is told the job where the wait ends first, too."""
    try:
        return follow(client, job_id, seconds)
    except StillWaiting:
        yield client.job(job_id)
        raise


def follow(client: Api, job_id: str, seconds: float | None = None) -> Job:
    """Show a job's state and public progress until it has ended: a bar, or lines where nobody
    looks; and, once, who has to approve it.

    Raises StillWaiting after `seconds`.
    """
    is_told = False
    try:
        with progress.shown(err, note) as show:

            def tell(job: Job) -> None:
                nonlocal is_told
                show(job)
                if job["state"] == "awaiting_approval" and not is_told:
                    note(NEXT["awaiting_approval"].removeprefix(": ").format(id=job_id))
                    is_told = True

            return progress.watch(lambda: client.job(job_id), progress.ended, tell, seconds)
    except KeyboardInterrupt:
        note(f"the job goes on; follow it with `exchequer job show {job_id} --wait`")
        raise


# --- showing ------------------------------------------------------------------------------------


def outcome(job: Job, file: str | None = None) -> Answer:
    """Yield the job of a request's file; stops with exit code 1 if it can't succeed any more."""
    yield job
    if job["state"] == "refused":
        explain_refusal(job, file)
    elif job["state"] in UNSUCCESSFUL:
        report(JobFailed(job))
    else:
        yield f"{state_text(job)}{NEXT.get(job['state'], '').format(id=job['id'])}"
    if job["state"] in UNSUCCESSFUL:
        stop(REFUSED)


NEXT = {
    "submitted": ": not decided yet; look again with `exchequer job show {id}`",
    "awaiting_approval": ": a steward runs `exchequer job approve {id} --reason TEXT`",
    "awaiting_release": ": it is admitted by itself; `exchequer job cancel {id}` takes it back",
    "queued": ": follow it with `exchequer job show {id} --wait`",
    "succeeded": ": `exchequer job result {id} -o FILE`",
}


def explain_refusal(job: Job, file: str | None = None) -> None:
    """Print the cap, what was asked, what is left, what would fit, and the next command."""
    refused = Refused(job)
    if refused.largest is None:
        report(refused)
    elif file is None:
        report(refused, f"submit it again with {refused.size_field} = {refused.largest}")
    else:
        command = (
            f"exchequer job submit {shlex.quote(file)} --set {refused.size_field}={refused.largest}"
        )
        report(refused, f"submit that: {command}", command=command)


def rehearsed(client: Api, job_id: str) -> Answer:
    """Yield the report of a rehearsal: what was made, how long it took, and how good it is."""
    from accountant.core.mechanisms import rehearsal

    found = next(
        artifact
        for artifact in client.artifacts(job=job_id)
        if artifact["kind"] == rehearsal.REPORT
    )
    content = BytesIO()
    client.save_artifact(found["sha256"], content)
    report = json.loads(content.getvalue())
    columns = (
        "corpus",
        "texts_read",
        "labels",
        "what",
        "number",
        "complete",
        "words",
        "error",
        "seconds",
    )
    rows = [(name.replace("_", " "), report[name]) for name in columns if name in report]
    yield facts((name, _plain(value)) for name, value in rows)
    if report["figures"]:
        lines = [
            (figure["name"], *measured(figure), figure["ideal"] or figure["sentence"])
            for figure in report["figures"]
        ]
        yield table(["against texts held out", *SIDES, "best is"], lines)
    yield "public texts with the noise of the job: on the dataset itself it may be better or worse"


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(cell)}" for name, cell in value.items())
    return "none" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def list_jobs(
    dataset: DatasetOption = None,
    state: Annotated[str | None, typer.Option(help="Such as running.")] = None,
    mechanism: Annotated[str | None, typer.Option(help="By its id.")] = None,
    analyst: Annotated[str | None, typer.Option(help="Of one person.")] = None,
    since: Annotated[str | None, typer.Option(help="A day, or a time with its offset.")] = None,
    until: Annotated[str | None, typer.Option(help="A day, which counts whole, or a time.")] = None,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every one, not the newest page only.")
    ] = False,
) -> Answer:
    """List the jobs that you may see, newest first."""
    wanted = {
        "dataset": dataset,
        "state": state and state.replace(" ", "_"),
        "mechanism": mechanism,
        "analyst": analyst,
        "since": since,
        "until": until,
    }
    with connect() as client:
        jobs = list(client.all_jobs(**wanted)) if everything else client.jobs(limit=limit, **wanted)
    yield jobs
    if not jobs:
        yield (
            "no such job"
            if any(wanted.values())
            else "no job yet. Submit one: exchequer job submit FILE.json"
        )
        return
    rows = [
        (
            job["id"][:8],
            job["name"],
            job["dataset"],
            state_text(job),
            alone_text(job),
            job["analyst"],
        )
        for job in jobs
    ]
    yield table(["id", "name", "dataset", "state", "ε", "by"], rows, right="ε", whole="id")


def show_job(
    job_id: JobId,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the job to its end.")] = False,
    timeout: Timeout = None,
) -> Answer:
    """Show one job, or follow it with --wait."""
    with connect() as client:
        job = (yield from _followed(client, job_id, timeout)) if wait else client.job(job_id)
    yield job
    yield facts((name, value) for name, value in _rows(job) if value is not None)
    if job["state"] == "refused" and not Mode.json:
        explain_refusal(job)
    if wait and job["state"] in UNSUCCESSFUL:
        if Mode.json:
            report(Refused(job) if job["state"] == "refused" else JobFailed(job))
        stop(REFUSED)


def _rows(job: Job) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [
        ("job", job["name"]),
        ("id", job["id"]),
        ("state", state_text(job)),
        ("dataset", job["dataset"]),
        ("mechanism", job["mechanism"]),
        ("model", job["model"]),
        ("by", f"{job['analyst']}: {job['purpose'] or 'no purpose stated'}"),
        ("its analyst left", job.get("analyst_left")),
        ("price", price_text(job)),
        ("decision", _decision(job)),
        ("progress", amount_text(job)),
        ("failure", job["failure"]),
    ]
    for comment in job.get("comments", []):
        rows.append((comment["kind"], f"{comment['author']}: {comment['text']}"))
    for entry in job.get("entries", []):
        outcome = f" ({entry['outcome']})" if entry["outcome"] else ""
        rows.append((f"entry {entry['seq']}", f"{entry['kind']}{outcome}"))
    return rows


def alone_text(job: Job) -> str:
    return "none" if job["epsilon_alone"] is None else f"{up(job['epsilon_alone'], 4):.4g}"


def price_text(job: Job) -> str:
    """Return the price of a job by itself; one with no (ε, δ) price says so."""
    dp = "no (ε, δ)"
    if job["epsilon_alone"] is not None:
        dp = f"ε {up(job['epsilon_alone'], 6):.6g} at δ {up(job['delta'], 6):g}, alone"
    if job.get("pure") is not None:
        dp = f"pure ε {up(job['pure'], 6):.6g}, alone"
    cap = job.get("ex_post_cap")
    return dp if cap is None else f"{dp}; ex-post cap {up(cap, 6):g}"


def _decision(job: Job) -> str | None:
    said = job.get("decided_by") and job["state"] != "awaiting_release"
    by = f"{job['decided_by']}: " if said else ""
    return f"{by}{job['decision_reason']}" if job["decision_reason"] else None


def comment(
    job_id: JobId,
    text: Annotated[str, typer.Argument(help="What you say.")],
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask the analyst; the job waits for the answer.")
    ] = False,
) -> Answer:
    """Write about a job: a question, an answer or a note."""
    with connect() as client:
        job = client.comment(job_id, text, asks=ask)
    yield job
    kind = job["comments"][-1]["kind"]
    waits = ": it waits for its analyst's answer" if job["asked_back"] else ""
    yield f"{kind} added{waits}"


def cancel(job_id: JobId) -> Answer:
    """Stop a job. If it has read the data, all that was reserved is spent."""
    with connect() as client:
        client.cancel(job_id)
        job = client.job(job_id)
    yield job
    stopping = "" if job["state"] in progress.ENDED else ", asked to stop"
    yield f"{state_text(job)}{stopping}"
