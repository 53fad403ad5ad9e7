"""`submit`, `jobs`, `job`, `approve`, `refuse`, `cancel`, `result`."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from accountant.core.errors import FieldProblem, InvalidRequest, invalid
from web.cli.output import (
    REFUSED,
    complain,
    err,
    facts,
    note,
    out,
    print_json,
    read_text,
    require_finite,
    save,
    say,
    stop,
    table,
)
from web.cli.profile import connect
from web.client import Client

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reason = Annotated[str, typer.Option(help="Why; it is kept with the job.")]
Job = dict[str, Any]

ENDED = frozenset({"refused", "expired", "succeeded", "failed", "cancelled"})
UNSUCCESSFUL = ENDED - {"succeeded"}
DECISION_SECONDS = 15.0
LOOK_SECONDS = 0.5
REQUEST_FIELDS = ("dataset", "mechanism", "model", "parameters", "purpose", "project")


def submit(
    file: Annotated[
        str, typer.Argument(metavar="FILE.json", help="dataset, mechanism, model, parameters, purpose")
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Follow the job to its end.")] = False,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same key and file are the same job.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Submit a job. Exit code 1 where it is refused (or, with --wait, does not succeed)."""
    request = read_request(file)
    with connect() as client:
        job = client.submit(request, key=key)
        if not as_json:
            say(f"job {job['id']}")
        job = follow(client, job["id"]) if wait else decided(client, job)
    _show_outcome(job, as_json)


def read_request(file: str) -> Job:
    """The request in a file, checked as far as it can be without the server."""
    try:
        request = json.loads(read_text(file, "FILE"))
    except (ValueError, RecursionError) as error:
        raise invalid("FILE", f"{file} is no JSON: {error}", "a JSON object") from None
    if not isinstance(request, dict):
        raise invalid("FILE", f"{file} holds no JSON object", f"an object of {', '.join(REQUEST_FIELDS)}")
    allowed = ", ".join(REQUEST_FIELDS)
    problems = [FieldProblem(str(n), "unknown field", allowed) for n in request if n not in REQUEST_FIELDS]
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


def decided(client: Client, job: Job, seconds: float = DECISION_SECONDS) -> Job:
    """The job once it is decided; as it is where that takes longer (no worker runs, say)."""
    ends = time.monotonic() + seconds
    with err.status("a worker looks at model and template …"):
        while job["state"] == "submitted" and time.monotonic() < ends:
            time.sleep(LOOK_SECONDS / 2)
            job = client.job(job["id"])
    return job


def follow(client: Client, job_id: str) -> Job:
    """Show a job's state and public progress until it has ended: a bar, or lines where nobody looks."""
    show = _bar() if err.is_terminal else _lines()
    try:
        with show as advance:
            while True:
                job = client.job(job_id)
                advance(job)
                if job["state"] in ENDED:
                    return job
                time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        note(f"the job goes on; follow it with `exchequer job {job_id} --wait`")
        raise


@contextmanager
def _bar() -> Iterator[Callable[[Job], None]]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=28),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, refresh_per_second=4) as progress:
        bar = progress.add_task("", total=None, amount="")

        def advance(job: Job) -> None:
            done, total = _done(job)
            amount = _amount(job) or ""
            progress.update(bar, description=_state(job), total=total, completed=done, amount=amount)

        yield advance


@contextmanager
def _lines() -> Iterator[Callable[[Job], None]]:
    """A line for each state, and for each tenth of the way."""
    said: set[tuple[str, int]] = set()

    def advance(job: Job) -> None:
        done, total = _done(job)
        tenth = 10 * done // total if total else 0
        if (job["state"], tenth) not in said:
            said.add((job["state"], tenth))
            note(": ".join(filter(None, (_state(job), _amount(job)))))

    yield advance


def _amount(job: Job) -> str | None:
    """Progress in public quantities."""
    done, total = _done(job)
    return f"{done:,} of {total:,} {job['progress'].get('unit', 'tokens')}" if total else None


def _done(job: Job) -> tuple[int, int | None]:
    """Tokens written, of how many; what the worker told last, unless it has succeeded since."""
    total = job["progress"]["total"] or None
    done = total if job["state"] == "succeeded" else job["progress"]["done"]
    return done or 0, total


def _state(job: Job) -> str:
    return str(job["state"]).replace("_", " ")


# --- showing ------------------------------------------------------------------------------------


def _show_outcome(job: Job, as_json: bool) -> None:
    """The job as it stands; exit code 1 where it can't succeed any more."""
    if as_json:
        print_json(job)
    if job["state"] == "refused":
        explain_refusal(job)
    elif job["state"] == "failed":
        complain(f"the job failed: {job['failure'] or 'no reason is public'}")
    elif job["state"] in UNSUCCESSFUL:
        complain(f"the job is {_state(job)}")
    elif not as_json:
        say(f"{_state(job)}{NEXT.get(job['state'], '').format(id=job['id'])}")
    if job["state"] in UNSUCCESSFUL:
        stop(REFUSED)


NEXT = {
    "submitted": ": not decided yet; look again with `exchequer job {id}`",
    "awaiting_approval": ": a steward runs `exchequer approve {id} --reason TEXT`",
    "queued": ": follow it with `exchequer job {id} --wait`",
    "succeeded": ": `exchequer result {id} -o FILE`",
}


def explain_refusal(job: Job) -> None:
    """Which cap binds, what was asked, what is left, and the largest that fits."""
    refusal = job["refusal"]
    complain(f"the job was refused: {refusal['why']}")
    if refusal["cap"] in ("steward", "model"):
        return
    err.print(f"  binding cap: {refusal['cap']}; asked: {refusal['asked']}; left: {refusal['left']}")
    if refusal.get("largest") is not None:
        err.print(f"  the largest that fits: {refusal['size_field']} = {refusal['largest']}")
    elif refusal.get("size_field"):
        err.print(f"  no {refusal['size_field']} fits: other parameters, or a larger allowance")


def list_jobs(
    dataset: Annotated[str | None, typer.Option()] = None,
    state: Annotated[str | None, typer.Option(help="Such as running.")] = None,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
    as_json: Json = False,
) -> None:
    """List the jobs that you may see, newest first."""
    with connect() as client:
        found = client.jobs(dataset=dataset, state=state and state.replace(" ", "_"), limit=limit)
    if as_json:
        print_json(found)
    elif not found:
        asked = dataset or state
        say("no such job" if asked else "no job yet. Submit one: exchequer submit FILE.json")
    else:
        rows = [(each["id"], each["dataset"], _state(each), _alone(each), each["analyst"]) for each in found]
        out.print(table(["job", "dataset", "state", "ε", "by"], rows, right="ε", whole="job"))


def show_job(
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    wait: Annotated[bool, typer.Option("--wait", help="Follow the job to its end.")] = False,
    as_json: Json = False,
) -> None:
    """Show one job. With --wait: follow it, exit code 1 where it does not succeed."""
    with connect() as client:
        job = follow(client, job_id) if wait else client.job(job_id)
    if wait or as_json:
        print_json(job) if as_json else _print_job(job)
        if wait and job["state"] in UNSUCCESSFUL:
            stop(REFUSED)
        return
    _print_job(job)


def _print_job(job: Job) -> None:
    rows: list[tuple[str, object]] = [
        ("job", job["id"]),
        ("state", _state(job)),
        ("dataset", job["dataset"]),
        ("mechanism", job["mechanism"]),
        ("model", job["model"]),
        ("by", f"{job['analyst']}: {job['purpose'] or 'no purpose stated'}"),
        ("price", _price(job)),
        ("decision", _decision(job)),
        ("progress", _amount(job)),
    ]
    for entry in job.get("entries", []):
        outcome = f" ({entry['outcome']})" if entry["outcome"] else ""
        rows.append((f"entry {entry['seq']}", f"{entry['kind']}{outcome}"))
    out.print(facts((name, value) for name, value in rows if value is not None))
    if job["state"] == "refused":
        explain_refusal(job)


def _alone(job: Job) -> str:
    return "none" if job["epsilon_alone"] is None else f"{job['epsilon_alone']:.4g}"


def _price(job: Job) -> str:
    """What the job costs by itself; one with no (ε, δ) price says so."""
    dp = "no (ε, δ)"
    if job["epsilon_alone"] is not None:
        dp = f"ε {job['epsilon_alone']:.6g} at δ {job['delta']:g}, alone"
    cap = job.get("ex_post_cap")
    return dp if cap is None else f"{dp}; ex-post cap {cap:g}"


def _decision(job: Job) -> str | None:
    by = f"{job['decided_by']}: " if job.get("decided_by") else ""
    return f"{by}{job['decision_reason']}" if job["decision_reason"] else None


# --- acting -------------------------------------------------------------------------------------


def approve(
    job_id: Annotated[str, typer.Argument(metavar="ID")], reason: Reason, as_json: Json = False
) -> None:
    """Approve a job: it is reserved and queued, or refused where it no longer fits."""
    with connect() as client:
        client.approve(job_id, reason)
        job = client.job(job_id)
    _show_outcome(job, as_json)


def refuse(
    job_id: Annotated[str, typer.Argument(metavar="ID")], reason: Reason, as_json: Json = False
) -> None:
    """Refuse a job that awaits approval."""
    with connect() as client:
        client.refuse(job_id, reason)
        job = client.job(job_id)
    print_json(job) if as_json else say(f"{_state(job)}: {reason}")


def cancel(job_id: Annotated[str, typer.Argument(metavar="ID")], as_json: Json = False) -> None:
    """Cancel a job. Once a worker reads the data, the whole reservation is charged."""
    with connect() as client:
        client.cancel(job_id)
        job = client.job(job_id)
    if as_json:
        print_json(job)
    else:
        asked = "" if job["state"] in ENDED else ", asked to stop"
        say(f"{_state(job)}{asked}")


def result(
    job_id: Annotated[str, typer.Argument(metavar="ID")],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help='"-": standard output.')
    ] = "-",
) -> None:
    """Save the texts that a job published, as JSON Lines."""
    with connect() as client:
        save(output, lambda file: client.save_result(job_id, file))
    if output != "-":
        note(f"saved {output}")
