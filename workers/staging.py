"""Outputs on their way out: written under a name that holds the lease token, published by the ledger.

Until the ledger's row names it, a staged file is nothing that anybody can ask for; a lost attempt's
file is destroyed unread.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import fsspec

from accountant.ledger import Output


def staged_uri(results: str, job_id: UUID, token: UUID) -> str:
    """Where one attempt's output goes."""
    return f"{results}/{job_id}/{token}.jsonl"


def write(uri: str, documents: Iterable[dict[str, Any]]) -> Output:
    """Stream JSON Lines to `uri`; memory does not grow with their number."""
    total = hashlib.sha256()
    with fsspec.open(uri, "wb", auto_mkdir=True) as file:
        for document in documents:
            line = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
            total.update(line)
            file.write(line)
    return Output(uri, total.hexdigest())


def artifact_uri(uri: str, sha256: str, suffix: str) -> str:
    """Where an artifact of the attempt that stages its output at `uri` goes: beside it, by its hash."""
    return f"{uri.removesuffix('.jsonl')}.{sha256}{suffix}"


def destroy(uri: str) -> None:
    """Remove everything that the attempt with its output at `uri` staged: all files named by its token."""
    system, path = fsspec.core.url_to_fs(uri)
    folder, _, name = path.rpartition("/")
    token = name.split(".", 1)[0]
    with contextlib.suppress(FileNotFoundError):
        for each in system.find(folder):
            if each.rpartition("/")[2].startswith(f"{token}."):
                system.rm_file(each)
