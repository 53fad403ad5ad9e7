"""`evaluate`: compare what a job published with a public corpus; free, and a job like any other."""

import io
import json
from typing import Annotated, Any

import typer

from web.cli import completion
from web.cli.answers import Answer
from web.cli.artifacts import save_checked
from web.cli.jobs import follow
from web.cli.output import Failed, note, table
from web.cli.profile import connect
from web.client.api import Api


def evaluate(
    job_id: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="The job whose texts are looked at.",
            autocompletion=completion.succeeded,
        ),
    ],
    corpus: Annotated[
        str,
        typer.Option(
            help="The registered corpus to compare with.", autocompletion=completion.corpora
        ),
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
    """Evaluate a published output. Costs nothing: no private record is compared with anything."""
    given: dict[str, Any] = {
        "from_job": job_id,
        "corpus": corpus,
        "embedding": embedding,
        "language_model": language_model,
        "metrics": metrics,
        "most_texts": most_texts,
    }
    parameters = {name: value for name, value in given.items() if value is not None}
    with connect() as client:
        dataset = client.job(job_id)["dataset"]
        request = {"dataset": dataset, "mechanism": "evaluation", "parameters": parameters}
        job = follow(client, client.submit({**request, "purpose": f"evaluation of {job_id}"})["id"])
        if job["state"] != "succeeded":
            raise Failed(
                f"the evaluation {job['id']} is {job['state']}: "
                f"{job.get('failure') or 'see its page'}"
            )
        figures = _figures(client, job["id"])
        if output is not None:
            (report,) = client.artifacts(job=job["id"])
            save_checked(client, report["sha256"], output)
    yield {"job": job["id"], "figures": figures}
    rows = [
        (each["name"], _value(each["value"]), each["ideal"], _settings(each)) for each in figures
    ]
    yield table(["metric", "value", "best is", "settings"], rows, right="value")
    yield "Figures of the same name with other settings are not comparable."
    if output is not None:
        note(f"saved {output}")


def _figures(client: Api, job_id: str) -> list[dict[str, Any]]:
    file = io.BytesIO()
    client.save_result(job_id, file)
    return [json.loads(line) for line in file.getvalue().splitlines()]


def _value(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _settings(figure: dict[str, Any]) -> str:
    return "; ".join(f"{name} {value}" for name, value in figure["settings"].items())
