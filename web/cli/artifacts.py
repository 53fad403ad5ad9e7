"""`artifacts`, `artifact`: what jobs released besides texts."""

from typing import Annotated, BinaryIO

import typer

from accountant.core.errors import invalid
from web.cli import completion
from web.cli.answers import Answer
from web.cli.options import DatasetOption, Json, Output
from web.cli.output import note, print_json, save, table
from web.cli.profile import connect
from web.client.api import Api
from web.client.files import Hashing

SHOWN = 16  # digits of a hash: 64 bits tell artifacts apart


def list_artifacts(
    job_id: Annotated[
        str | None, typer.Argument(metavar="[JOB]", autocompletion=completion.succeeded)
    ] = None,
    dataset: DatasetOption = None,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
) -> Answer:
    """List artifacts that you may see, of one job or all. A job that reads only these costs
    nothing.
    """
    with connect() as client:
        found = client.artifacts(job=job_id, dataset=dataset, limit=limit)
    yield found
    if not found:
        yield "no artifact that you may see"
        return
    columns = ["name", "kind", "size", "dataset", "mechanism"]
    rows = [[each["sha256"][:SHOWN], *(each[name] for name in columns)] for each in found]
    yield table(["sha256", *columns], rows, right="size", whole="sha256")
    yield "save one: exchequer artifact SHA256 -o FILE; the first digits are enough"


def artifact(
    sha256: Annotated[str, typer.Argument(metavar="SHA256", help="The hash, or its first digits.")],
    output: Output = "-",
    as_json: Json = False,
) -> None:
    """Save an artifact. Its bytes are compared with the hash that you name."""
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
    found = {
        each["sha256"] for each in client.artifacts(limit=200) if each["sha256"].startswith(digits)
    }
    if len(digits) < 8 or len(found) != 1:
        problem = f"{len(found)} of the newest 200 artifacts begin with {digits!r}"
        raise invalid("SHA256", problem, "at least 8 digits that name one, or all 64")
    return found.pop()


def save_checked(client: Api, sha256: str, output: str) -> None:
    """Save an artifact to a file whose bytes have that hash, or leave none."""

    def write(file: BinaryIO) -> None:
        hashing = Hashing(file)
        client.save_artifact(sha256, hashing)
        hashing.check(sha256)

    save(output, write)
