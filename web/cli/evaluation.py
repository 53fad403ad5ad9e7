"""`job evaluate`: texts beside a public corpus. `audit`: mechanisms on planted records."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from web.cli import completion, failures
from web.cli.answers import SIDES, Answer, measured
from web.cli.jobs import follow
from web.cli.output import BAD_INPUT, REFUSED, Failed, note, stop, table
from web.cli.results import save_checked
from web.cli.session import connect
from web.version import ROOT


def evaluate(
    job_id: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="The job that made the texts.",
            autocompletion=completion.succeeded,
        ),
    ],
    corpus: Annotated[
        str,
        typer.Option(help="The public texts to compare with.", autocompletion=completion.corpora),
    ],
    embedding: Annotated[str | None, typer.Option(help="A registered embedding model.")] = None,
    language_model: Annotated[str | None, typer.Option(help="A registered language model.")] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="[the mechanism's own]")
    ] = None,
    most_texts: Annotated[int | None, typer.Option(help="Texts of each, at most.")] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE.html", help="Save the report.")
    ] = None,
) -> Answer:
    """Measure how good a job's texts are. It is free and reads no private data."""
    body: dict[str, Any] = {
        "from_job": job_id,
        "corpus": corpus,
        "embedding": embedding,
        "language_model": language_model,
        "metrics": metrics,
        "most_texts": most_texts,
    }
    parameters = {name: value for name, value in body.items() if value is not None}
    with connect() as client:
        dataset = client.job(job_id)["dataset"]
        request = {"dataset": dataset, "mechanism": "evaluation", "parameters": parameters}
        job = follow(client, client.submit({**request, "purpose": f"evaluation of {job_id}"})["id"])
        if job["state"] != "succeeded":
            raise Failed(
                f"the evaluation {job['id']} is {job['state']}: "
                f"{job.get('failure') or 'see its page'}"
            )
        file = io.BytesIO()
        client.save_result(job["id"], file)
        figures = [json.loads(line) for line in file.getvalue().splitlines()]
        if output is not None:
            (report,) = client.artifacts(job=job["id"])
            save_checked(client, report["sha256"], output)
    yield {"job": job["id"], "figures": figures}
    rows = [
        (
            figure["name"],
            *measured(figure),
            figure["ideal"] or figure["sentence"],
            "; ".join(f"{name} {value}" for name, value in figure["settings"].items()),
        )
        for figure in figures
    ]
    yield table(["metric", *SIDES, "best is", "settings"], rows)
    for figure in figures:
        if figure["headline"] and figure["value"] is not None:
            yield f"{figure['name']}: {figure['sentence']}"
    yield "Figures of the same name with other settings are not comparable."
    if output is not None:
        note(f"saved {output}")


# --- `audit`: mechanisms against planted records, on this machine --------------------------------
# An audit runs where workers run, as a process of its own: nothing of it is imported here, and it
# touches neither the server nor any dataset.

Arms = Annotated[
    list[str] | None,
    typer.Option(
        "--arm",
        metavar="mean|median|invisible-ink",
        help="What is tested; repeat it.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="A parameter of the arms that have it; repeat it."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="A model. [one that copies its context, made by hand]"),
]
Texts = Annotated[
    int | None, typer.Option(help="Texts that a batch has room for. [20; leave-one-out: 8]")
]
Output = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FOLDER", help="[audit-reconstruction, …]")
]


def reconstruction(
    keys: Annotated[
        int | None, typer.Option(help="How many keys; half are planted. [50000]")
    ] = None,
    arm: Arms = None,
    settings: Settings = None,
    model: Model = None,
    texts: Texts = None,
    output: Output = None,
) -> None:
    """Test if planted keys come out more than others. If so, the exit code is 1."""
    _run("reconstruction", arm, settings, output, model=model, keys=keys, texts=texts)


def leave_one_out(
    keys: Annotated[int | None, typer.Option(help="Planted records. [256]")] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="The bundled reviews and model.")
    ] = False,
    arm: Arms = None,
    settings: Settings = None,
    model: Model = None,
    texts: Texts = None,
    output: Output = None,
) -> None:
    """Test if one record costs more than stated. If so, the exit code is 1."""
    flags = ("--sample",) if sample else ()
    _run("leave-one-out", arm, settings, output, *flags, model=model, keys=keys, texts=texts)


def _run(
    audit: str,
    arms: list[str] | None,
    settings: list[str] | None,
    output: str | None,
    *flags: str,
    model: str | None = None,
    **numbers: int | None,
) -> None:
    failures.require_installed("`exchequer audit`", "torch", "transformers")
    command = [sys.executable, "-m", "workers.privacy_audits", audit, *flags]
    command += [f"--{option}={value}" for option, value in numbers.items() if value is not None]
    command += [f"--arm={arm}" for arm in arms or []]
    command += [f"--set={setting}" for setting in settings or []]
    command += [] if model is None else [f"--model={Path(model).resolve()}"]
    command += [f"--output={Path(output or f'audit-{audit}').resolve()}"]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code:
        stop(code if code in (REFUSED, BAD_INPUT) else REFUSED)
