"""`artifacts`, `artifact`: what jobs released besides texts."""

import hashlib
from typing import Annotated, BinaryIO

import typer

from web.cli.output import Failed, note, out, print_json, save, say, table
from web.cli.profile import connect
from web.client import Client

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def list_artifacts(
    job_id: Annotated[str | None, typer.Argument(metavar="[JOB]")] = None,
    dataset: Annotated[str | None, typer.Option()] = None,
    limit: Annotated[int | None, typer.Option(min=1)] = None,
    as_json: Json = False,
) -> None:
    """List artifacts that you may see, of one job or all. A job that reads only these costs nothing."""
    with connect() as client:
        found = client.artifacts(job=job_id, dataset=dataset, limit=limit)
    if as_json:
        print_json(found)
    elif not found:
        say("no artifact that you may see")
    else:
        columns = ["sha256", "name", "kind", "size", "dataset", "mechanism", "job"]
        rows = [[each[name] for name in columns] for each in found]
        out.print(table(columns, rows, right="size", whole="sha256 job"))


def artifact(
    sha256: Annotated[str, typer.Argument(metavar="SHA256")],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="FILE", help='"-": standard output.')
    ] = "-",
) -> None:
    """Save an artifact. Its bytes are compared with the hash that you name."""
    with connect() as client:
        save(output, lambda file: _checked(client, sha256, file))
    if output != "-":
        note(f"saved {output}")


class _Hashing:
    """A file that knows the hash of what was written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.total = file, hashlib.sha256()

    def write(self, block: bytes) -> int:
        self.total.update(block)
        return self._file.write(block)


def _checked(client: Client, sha256: str, file: BinaryIO) -> None:
    hashing = _Hashing(file)
    client.save_artifact(sha256, hashing)
    if hashing.total.hexdigest() != sha256:
        raise Failed(f"what the server sent is not {sha256[:12]}…: do not use it")
