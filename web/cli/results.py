"""`job result | card` and `artifact`: what a job released, and what holds of it."""

import io
import json
from typing import Annotated, Any, BinaryIO

import typer

from accountant.core.errors import invalid
from web.cli import completion
from web.cli.answers import Answer
from web.cli.options import DatasetOption, Json, Output
from web.cli.output import note, print_json, save, table
from web.cli.session import connect
from web.client import hub
from web.client.api import Api
from web.client.files import Hashing
from web.client.progress import watch

Succeeded = Annotated[str, typer.Argument(metavar="ID", autocompletion=completion.succeeded)]
FORMATS = ("jsonl", "csv", "parquet")
License = Annotated[
    str | None, typer.Option(help="The licence that the card states, as cc-by-4.0.")
]
Language = Annotated[str | None, typer.Option(help="The languages that the card states, as en,de.")]


def result(
    job_id: Succeeded,
    output: Output = "-",
    form: Annotated[str, typer.Option("--format", metavar="jsonl|csv|parquet")] = "jsonl",
    card: Annotated[
        bool, typer.Option("--card", help="A zip of it with its card: a Hugging Face dataset.")
    ] = False,
    license: License = None,
    language: Language = None,
    as_json: Json = False,
) -> None:
    """Save the texts that a job made."""
    if form not in FORMATS:
        raise invalid("--format", f"{form!r} is no format", ", ".join(FORMATS))
    plain = form == "jsonl" and not card
    if as_json and output == "-" and not plain:
        raise invalid("--json", "the file itself goes to standard output", "-o FILE beside --json")

    def write(file: BinaryIO) -> None:
        _save_checked(client, job_id, file) if plain else client.save_output(
            job_id, form, file, card=card, license=license, language=language
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
    """Save a page that says what a job's texts are."""
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


def push(
    job_id: Succeeded,
    to: Annotated[str, typer.Argument(metavar="hf://datasets/OWNER/NAME")],
    reason: Annotated[
        str | None, typer.Option(help="Why; asks a steward. Without it, what was approved goes.")
    ] = None,
    license: License = None,
    language: Language = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the steward's answer.")] = False,
) -> Answer:
    """Publish texts on a Hugging Face hub once a steward agrees."""
    with connect() as client:
        if reason is None:
            decision = _proposed(client, job_id, to)
        else:
            about = {"license": license, "language": language}
            asked = client.propose_push(job_id, to, hub.endpoint(), reason, **about)
            decision = asked["decision"]
        if wait:
            decision = watch(
                lambda: client.decision(decision["id"]),
                lambda answered: answered["state"] != "open",
                lambda _: None,
            )
        if decision["state"] == "open":
            yield decision
            answer = f"exchequer decision answer {decision['id']} --yes --reason WHY"
            yield f"a steward answers: {answer}"
            yield f"then you publish it: exchequer push {job_id} {to}"
            return
        commit = hub.push(client, decision)
    yield {"job": job_id, "decision": decision["id"], "commit": commit}
    yield f"published: {commit}"


def _proposed(client: Api, job_id: str, to: str) -> dict[str, Any]:
    """Return your newest request to publish a result there."""
    person = client.me()["name"]
    asked = client.decisions(kind="push", job=job_id)
    mine = [one for one in asked if (one["asked_by"], one["asked"]["to"]) == (person, to)]
    if not mine:
        raise invalid("--reason", "nobody was asked yet", "why it may be published")
    return max(mine, key=lambda one: str(one["created_at"]))


# --- `artifact`: what jobs released besides texts ------------------------------------------------

SHOWN = 16  # digits of a hash: 64 bits tell artifacts apart


def list_artifacts(
    job_id: Annotated[
        str | None, typer.Argument(metavar="[JOB]", autocompletion=completion.succeeded)
    ] = None,
    dataset: DatasetOption = None,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
) -> Answer:
    """List what jobs made besides texts. A job that reads only these costs nothing."""
    with connect() as client:
        artifacts = client.artifacts(job=job_id, dataset=dataset, limit=limit)
    yield artifacts
    if not artifacts:
        yield "no artifact that you may see"
        return
    columns = ["name", "kind", "size", "dataset", "mechanism"]
    rows = [
        [artifact["sha256"][:SHOWN], *(artifact[name] for name in columns)]
        for artifact in artifacts
    ]
    yield table(["sha256", *columns], rows, right="size", whole="sha256")
    yield "save one: exchequer artifact get SHA256 -o FILE; the first digits are enough"


def artifact(
    sha256: Annotated[str, typer.Argument(metavar="SHA256", help="The hash, or its first digits.")],
    output: Output = "-",
    as_json: Json = False,
) -> None:
    """Save one, and check that its hash is the one you named."""
    if as_json and output == "-":
        raise invalid(
            "--json", "the artifact itself goes to standard output", "-o FILE beside --json"
        )
    with connect() as client:
        whole = _whole(client, sha256.lower())
        save_checked(client, whole, output)
    if as_json:
        print_json({"file": output, "sha256": whole})
    elif output != "-":
        note(f"saved {output}")


def _whole(client: Api, digits: str) -> str:
    """Return the one hash that begins with these digits; one that is whole needs no listing."""
    if len(digits) >= 64:
        return digits
    matching = {
        artifact["sha256"]
        for artifact in client.artifacts(limit=200)
        if artifact["sha256"].startswith(digits)
    }
    if len(digits) < 8 or len(matching) != 1:
        problem = f"{len(matching)} of the newest 200 artifacts begin with {digits!r}"
        raise invalid("SHA256", problem, "at least 8 digits that name one, or all 64")
    return matching.pop()


def save_checked(client: Api, sha256: str, output: str) -> None:
    """Save an artifact to a file whose bytes have that hash, or leave none."""

    def write(file: BinaryIO) -> None:
        hashing = Hashing(file)
        client.save_artifact(sha256, hashing)
        hashing.check(sha256)

    save(output, write)
