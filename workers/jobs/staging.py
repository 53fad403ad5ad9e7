"""Outputs on their way out: written under a name that holds the lease token, published by the ledger.

Until the ledger's row names it, a staged file is nothing that anybody can ask for; a lost attempt's
file is destroyed unread. What may be destroyed is read from the database, never remembered: a worker
whose COMMIT went through while its answer was lost would destroy what it published.
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
    """Where one attempt's output goes; `kind` ".all" is that of the parts together."""
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
    """Where an artifact of the attempt that stages its output at `uri` goes: beside it, by its hash."""
    return f"{uri.removesuffix('.jsonl')}.{sha256}{suffix}"


def joined(uri: str, outputs: list[Output]) -> Output:
    """One output out of those of all parts, in order, written to `uri`; a single one is what it is."""
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
    """Destroy what attempts staged that have ended, of one job or of all; returns how many files.

    What an attempt that holds its lease may be writing stays, and so does what is published or waits for
    the settlement. The files are listed before the rows are read: a file that is there was claimed, so a
    token that nobody holds by then has ended. Jobs that this database doesn't know are left alone.
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
    """(path, job, token) of a file that `staged_uri` named; None: it is none of ours."""
    *_, folder, name = path.split("/")
    try:
        return path, UUID(folder), UUID(name.split(".", 1)[0])
    except ValueError:
        return None
