"""`charge key | begin | alive | settle | void | declare`: what other programs release, by a script.

FILE is the script's own: it holds the charge's idempotency key and the secret of its lease. The
same command with the same FILE goes on where it was cut off.
"""

import json
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from accountant.core.errors import invalid
from accountant.core.files.private import private_draft
from web.cli.answers import Answer
from web.cli.options import DatasetName
from web.cli.output import note, read_text
from web.cli.policy import PROPOSED
from web.cli.session import connect
from web.client.charges import Charge, Runner, closing
from web.client.progress import state_text
from web.client.routes.jobs import LEASE_SECONDS

Event = Annotated[str, typer.Option(metavar="JSON", help="What it releases: docs/charges.md.")]
Tool = Annotated[str, typer.Option(help='The program and its version, as "opacus 1.6".')]
Unit = Annotated[str, typer.Option(help="Who is kept safe: the dataset's unit, or record.")]
Relation = Annotated[str, typer.Option(metavar="add-remove|replace-one")]
Records = Annotated[int, typer.Option(help="Records of a unit.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="Made by `charge begin`; keep it.")]
Lease = Annotated[
    int, typer.Option(metavar="SECONDS", help="Without a word for so long, all is charged.")
]
Key = Annotated[
    str | None, typer.Option("--runner", metavar="FILE", help="A key that the policy names.")
]
Image = Annotated[str | None, typer.Option(help="With --runner: the image or commit that runs.")]


def make_key(name: str, file: Annotated[str, typer.Option("-o", "--output")]) -> Answer:
    """Make a key for a runner, and print how a policy names it."""
    runner = Runner(name, secrets.token_bytes(32), "")
    if Path(file).exists():
        raise invalid("--output", f"{file} exists", "a new file: a key is never overwritten")
    with private_draft(Path(file), f"{name} {runner.seed.hex()}\n") as draft:
        draft.rename(file)
    yield {"runner": runner.named}
    yield runner.named


def begin(
    file: File,
    dataset: DatasetName,
    event: Event,
    tool: Tool,
    unit: Unit,
    relation: Relation,
    purpose: Annotated[str, typer.Option(help="What the output is for.")],
    records_per_unit: Records = 1,
    project: Annotated[str | None, typer.Option(help="Whose cap counts, too.")] = None,
    runner: Key = None,
    image: Image = None,
    lease: Lease = LEASE_SECONDS,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Wait for a steward no longer.")
    ] = None,
) -> Answer:
    """Reserve a charge, and begin it once it is approved. Run your program after that."""
    asked = {
        "dataset": dataset,
        "event": _json("--event", event),
        "tool": tool,
        "unit": unit,
        "relation": relation,
        "purpose": purpose,
        "records_per_unit": records_per_unit,
        "project": project,
        "lease_seconds": lease,
    }
    state = _begun(file) if Path(file).exists() else {}
    if state and state["asked"] != asked:
        raise invalid("FILE", f"{file} is of another charge", "a new file, or the same options")
    if not state:
        state = {"asked": asked, "key": secrets.token_hex(16), "lease": secrets.token_hex(32)}
        _keep(file, state)
    with connect() as client:
        charge = Charge(
            client,
            **asked,
            runner=None if runner is None else Runner.load(runner, image or ""),
            key=state["key"],
            lease=state["lease"],
            timeout=timeout,
        )
        told = None if "job" in state else closing(client, charge.request)
        if told is not None:
            note(told)
        try:
            charge.begin(told=True)
        finally:
            if charge.job is not None:
                _keep(file, state | {"job": charge.job.id})
        assert charge.job is not None
    yield charge.job.document
    yield f"job {charge.job.id} {state_text(charge.job.document)}"


def declare(
    dataset: DatasetName,
    event: Event,
    tool: Tool,
    unit: Unit,
    relation: Relation,
    reason: Annotated[str, typer.Option(help="What happened; it is kept with the charge.")],
    records_per_unit: Records = 1,
    runner: Key = None,
    image: Image = None,
) -> Answer:
    """Declare a past release of more than what is left.

    One more steward confirms it. The dataset stays closed until you allow more than that.
    """
    with connect() as client:
        charge = Charge(
            client,
            dataset,
            _json("--event", event),
            tool=tool,
            unit=unit,
            relation=relation,
            purpose=reason,
            records_per_unit=records_per_unit,
            runner=None if runner is None else Runner.load(runner, image or ""),
        )
        found = charge.declare(reason)
    yield found
    yield PROPOSED.format(id=found["decision"]["id"])


def alive(file: File, step: Annotated[int, typer.Option(help="Releases so far.")] = 0) -> Answer:
    """Say that your program still runs. The exit code is 1 if it should stop."""
    state = _begun(file)
    with connect() as client:
        seconds = state["asked"]["lease_seconds"]
        job = client.alive(_job(state, file), state["lease"], seconds, step)
    yield job
    yield state_text(job)
    if job["cancel_requested"]:
        raise typer.Exit(1)


def settle(
    file: File,
    history: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="With --runner: what was released. [all of it]"),
    ] = None,
    output: Annotated[
        str | None, typer.Option(metavar="SHA256", help="Of what the program made.")
    ] = None,
    runner: Key = None,
    image: Image = None,
) -> Answer:
    """End a charge. All that was reserved is spent, if no runner signs for less."""
    state = _begun(file)
    job_id = _job(state, file)
    with connect() as client:
        signer = None if runner is None else Runner.load(runner, image or "")
        charge = Charge(client, **state["asked"], runner=signer, lease=state["lease"])
        charge.take(job_id)
        stated = None if history is None else _json("--history", history)
        job = charge.settle(stated, output).document
    yield job
    yield state_text(job)


def void(file: File) -> Answer:
    """Take back a charge that has not begun."""
    job_id = _job(_begun(file), file)
    with connect() as client:
        client.cancel(job_id)
        job = client.job(job_id)
    yield job
    yield state_text(job)


def _begun(file: str) -> dict[str, Any]:
    state = _json("FILE", read_text(file, "FILE"))
    if not isinstance(state, dict) or not {"asked", "key", "lease"} <= state.keys():
        raise invalid("FILE", f"{file} is no file of a charge", "one that `charge begin` made")
    return state


def _job(state: dict[str, Any], file: str) -> str:
    """Return the job of a charge. Raises InvalidRequest where none was made."""
    if "job" not in state:
        raise invalid("FILE", f"the charge of {file} was never reserved", "`charge begin` first")
    return str(state["job"])


def _json(field: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise invalid(field, "it is no JSON", '[[1.0, 0.01, 3000]] or {"epsilon": 0.5}') from None


def _keep(file: str, state: dict[str, Any]) -> None:
    with private_draft(Path(file), json.dumps(state)) as draft:
        draft.replace(file)
