"""Outputs on their way out: written under a name that holds the lease token, published by the ledger.

Until a row of the ledger names it, nobody can request a staged file; a lost attempt's file is destroyed
unread. The files to destroy are determined from the database, never from memory: a worker whose COMMIT
succeeded while its answer was lost would otherwise destroy what it published.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import fsspec

from accountant.database import Engine
from accountant.faults import reached
from accountant.transactions import leases
from accountant.transactions.rows import Claim
from accountant.transactions.settlement import Output


def staged_uri(results: str, claim: Claim, kind: str = "") -> str:
    """The address of one attempt's output; with `kind` ".all", that of the parts together."""
    return f"{results}/{claim.job_id}/{claim.token}{kind}.jsonl"


def write(uri: str, documents: Iterable[dict[str, Any]]) -> Output:
    """Stream JSON Lines to `uri`; memory does not grow with their number."""
    total = hashlib.sha256()
    with fsspec.open(uri, "wb", auto_mkdir=True) as file:
        for document in documents:
            line = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
            total.update(line)
            reached("worker.writes")
            file.write(line)
    return Output(uri, total.hexdigest())


def artifact_uri(uri: str, sha256: str, suffix: str) -> str:
    """The address of an artifact: beside the output at `uri` of its attempt, named by its hash."""
    return f"{uri.removesuffix('.jsonl')}.{sha256}{suffix}"


def joined(uri: str, outputs: list[Output]) -> Output:
    """The outputs of all parts joined in order and written to `uri`; a single one is returned unchanged."""
    if len(outputs) == 1:
        return outputs[0]
    total = hashlib.sha256()
    with fsspec.open(uri, "wb", auto_mkdir=True) as file:
        for output in outputs:
            own = hashlib.sha256()
            with fsspec.open(output.uri, "rb") as part:
                while block := part.read(2**20):
                    own.update(block)
                    total.update(block)
                    file.write(block)
            if own.hexdigest() != output.sha256:
                raise OSError("a staged output is not what was written")
    return Output(uri, total.hexdigest())


# --- what is left over --------------------------------------------------------------------------


def destroy_leftovers(engine: Engine, results: str, job_id: UUID | None = None) -> int:
    """Destroy what ended attempts of one job, or of all, have staged. Returns the number of files.

    Files of an attempt that still holds its lease stay, and so do published files and those that wait for
    settlement. The files are listed before the rows are read: every listed file was claimed, so if nobody
    holds its token by then, its attempt has ended. Jobs that this database doesn't know are left alone.
    """
    system, root = fsspec.core.url_to_fs(results)
    folder = root if job_id is None else f"{root}/{job_id}"
    found = [named for path in _files(system, folder) if (named := _named(path)) is not None]
    known, tokens, addresses = leases.kept(engine, {job for _, job, _ in found})
    keep = {fsspec.core.url_to_fs(uri)[1] for uri in addresses}
    count = 0
    for path, job, token in found:
        if job in known and token not in tokens and path not in keep:
            with contextlib.suppress(FileNotFoundError):
                system.rm_file(path)
                count += 1
    return count


def _files(system: Any, folder: str) -> list[str]:
    try:
        found: list[str] = system.find(folder)
    except FileNotFoundError:
        return []
    return found


def _named(path: str) -> tuple[str, UUID, UUID] | None:
    """(path, job, token) of a file named by `staged_uri`; None for any other file."""
    *_, folder, name = path.split("/")
    try:
        return path, UUID(folder), UUID(name.split(".", 1)[0])
    except ValueError:
        return None
