"""`result`, `card`: what a job published, and what holds of it."""

import io
import json
from typing import Annotated, Any, BinaryIO

import typer

from accountant.core.errors import invalid
from web.cli import completion
from web.cli.options import Json, Output
from web.cli.output import note, print_json, save
from web.cli.profile import connect
from web.client.api import Api
from web.client.files import Hashing

Succeeded = Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.succeeded)]
FORMATS = ("jsonl", "csv", "parquet")


def result(
    job_id: Succeeded,
    output: Output = "-",
    form: Annotated[str, typer.Option("--format", metavar="jsonl|csv|parquet")] = "jsonl",
    card: Annotated[bool, typer.Option("--card", help="A zip of it with its data card.")] = False,
    as_json: Json = False,
) -> None:
    """Save the texts that a job published, as JSON Lines. --json without -o: one array."""
    if form not in FORMATS:
        raise invalid("--format", f"{form!r} is no format", ", ".join(FORMATS))
    plain = form == "jsonl" and not card
    if as_json and output == "-" and not plain:
        raise invalid("--json", "the file itself goes to standard output", "-o FILE beside --json")

    def write(file: BinaryIO) -> None:
        _save_checked(client, job_id, file) if plain else client.save_output(
            job_id, form, file, card=card
        )

    with connect() as client:
        if as_json and output == "-":
            print_json(_rows(client, job_id))
            return
        save(output, write)
    if as_json:
        print_json({"job": job_id, "file": output, "format": "zip" if card else form})
    elif output != "-":
        note(f"saved {output}")


def _rows(client: Api, job_id: str) -> list[dict[str, Any]]:
    text = io.BytesIO()
    _save_checked(client, job_id, text)
    return [json.loads(line) for line in text.getvalue().splitlines()]


def _save_checked(client: Api, job_id: str, file: BinaryIO) -> None:
    """The bytes of a result. Raises Altered where they are not those that the ledger names."""
    sha256 = client.job(job_id).get("output_sha256")
    hashing = Hashing(file)
    client.save_result(job_id, hashing)
    hashing.check(sha256)


def card(job_id: Succeeded, output: Output = "-", as_json: Json = False) -> None:
    """Save the data card of a published output, as Markdown: what it is, and what holds of it."""
    with connect() as client:
        if as_json and output == "-":
            print_json(client.card(job_id))
            return
        save(
            output,
            lambda file: client.save_card(
                job_id, "json" if output.endswith(".json") else "md", file
            ),
        )
    if as_json:
        print_json({"job": job_id, "file": output})
    elif output != "-":
        note(f"saved {output}")
