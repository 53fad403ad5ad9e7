"""Published outputs: the only files that the web opens, at addresses that the ledger's rows name."""

import json
from collections.abc import Iterator
from typing import IO, Any
from uuid import UUID

import fsspec
from flask import Response, request

from accountant import activity, reports
from accountant.core.errors import NotFound
from web.app import engine
from web.auth import current_actor

_BLOCK_BYTES = 2**16
_LONGEST_LINE_BYTES = 2**20


def download(job_id: UUID) -> Response:
    """A published output as JSON Lines; its SHA-256, which the ledger holds too, is the ETag."""
    actor = current_actor()
    uri = reports.output_uri(engine(), job_id, actor)
    job = reports.job(engine(), job_id, actor)
    response = Response(blocks(_open(uri, job_id)), mimetype="application/x-ndjson")
    response.headers["Content-Disposition"] = f'attachment; filename="{job_id}.jsonl"'
    response.headers["Cache-Control"] = "private, no-cache"
    response.set_etag(job["output_sha256"])
    response.make_conditional(request)
    if request.method == "GET" and response.status_code == 200:
        activity.note(engine(), actor, "result downloaded", "job", str(job_id), dataset=job["dataset"])
    return response


def preview(job_id: UUID, count: int) -> list[dict[str, Any]] | None:
    """The first texts of a published output; None where the file is gone."""
    uri = reports.output_uri(engine(), job_id, current_actor())
    try:
        file = _open(uri, job_id)
    except NotFound:
        return None
    with file:
        texts: list[dict[str, Any]] = []
        while len(texts) < count and (line := file.readline(_LONGEST_LINE_BYTES)):
            texts.append(_text(line))
        return texts


def _text(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:  # longer than a page should show
        found = None
    return found if isinstance(found, dict) else {"text": line.decode("utf-8", "replace")}


def _open(uri: str, job_id: UUID) -> IO[bytes]:
    try:
        file: IO[bytes] = fsspec.open(uri, "rb").open()
    except OSError:
        raise NotFound("file of the result of job", str(job_id)) from None
    return file


def blocks(file: IO[bytes]) -> Iterator[bytes]:
    """What is left of a file, a block at a time; it is closed at the end."""
    with file:
        while block := file.read(_BLOCK_BYTES):
            yield block
