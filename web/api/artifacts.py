"""Artifacts: what jobs released besides their texts, listed and handed out by their hash."""

import re
from uuid import UUID

from flask import Response, request

from accountant.core.errors import NotFound
from accountant.core.ledger.data_card import DataFile
from accountant.identities import activity_log
from accountant.schema.jobs import Artifact
from accountant.transactions import artifacts
from web.api.blueprint import api
from web.api.openapi import ID, TEXT, Operation, describe, listing
from web.api.outputs import ARCHIVE, ZIP, archive, blocks, card, open_output, read_about
from web.api.paging import Order, page, read_window
from web.api.parsing import read_choice, read_id
from web.auth import current_actor
from web.context import engine

_SHA256 = re.compile(r"[0-9a-f]{64}")
ORDER = Order("artifacts", (("job", UUID), ("name", str)))
_SUFFIXES = {
    "application/json": "json",
    "application/x-safetensors": "safetensors",
    "text/html": "html",
}


@api.get("/artifacts")
@describe(
    Operation(
        query={"job": ID, "dataset": TEXT},
        answer=listing("artifacts", Artifact, paged=ORDER),
        refusals=(404,),
    )
)
def list_artifacts() -> Response:
    """Artifacts that the asker may see, newest first."""
    named, window = request.args.get("job"), read_window(ORDER)
    rows = artifacts.listing(
        engine(),
        current_actor(),
        job=read_id(named) if named else None,
        dataset=request.args.get("dataset") or None,
        **window.reads,
    )
    return page("artifacts", rows, window)


@api.get("/artifacts/<sha256>")
@describe(Operation(query=ARCHIVE, media_types=(*_SUFFIXES, ZIP), refusals=(404, 409, 422)))
def artifact(sha256: str) -> Response:
    """The bytes of one artifact; its hash is the ETag.

    With `card=true` in a zip with the data card of its job.
    """
    return download(sha256)


def download(sha256: str) -> Response:
    """Return an artifact's file, once its bytes match the ledger's hash, or a zip with its card."""
    if not _SHA256.fullmatch(sha256):
        raise NotFound("artifact", sha256[:64])
    actor, with_card = current_actor(), read_choice("card", ("true", "false")) == "true"
    about = read_about(request.args)
    row = artifacts.find(engine(), sha256, actor)
    file = open_output(sha256, row.job_id)
    name = f"{row.name}-{sha256[:8]}.{_SUFFIXES[row.media_type]}"
    if with_card:
        described = DataFile(name, row.media_type)
        zipped = archive(described, blocks(file), card(row.job_id), about)
        response, name = Response(zipped, mimetype=ZIP), f"{row.name}-{sha256[:8]}.zip"
    else:
        response = Response(blocks(file), mimetype=row.media_type)
        response.content_length = file.size
        response.set_etag(sha256)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["Cache-Control"] = "private, no-cache"
    facts = {"dataset": row.dataset, "name": row.name, "job": str(row.job_id)}
    activity_log.note(engine(), actor, "artifact downloaded", "artifact", sha256, **facts)
    return response
