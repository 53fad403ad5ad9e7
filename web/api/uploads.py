"""Uploads: a steward's file becomes an address that a dataset or a corpus may be registered
with.
"""

from datetime import datetime

from flask import Response, jsonify, request

from accountant.catalogue import uploads
from accountant.core.errors import ExchequerError, TooLarge, invalid
from accountant.schema.datasets import Discarded, Upload
from web.api.blueprint import api
from web.api.openapi import TEXT, Operation, describe, listing
from web.api.paging import Order, page, read_window
from web.auth import current_actor
from web.context import engine
from web.request_bodies import blocks, drain, store

ORDER = Order("uploads", (("uploaded_at", datetime), ("sha256", str)))


@api.post("/uploads")
@describe(
    Operation(
        file=True,
        query={"name": TEXT},
        status=201,
        answer=Upload,
        refusals=(413, 422, 507),
        roles=("steward",),
    )
)
def upload() -> tuple[Response, int]:
    """Keep the file that is the body: CSV or JSON Lines in UTF-8, plain or in gzip, or Parquet.

    Its format is found in its bytes; `name` is what lists show it as. The answer has its columns,
    and its address for `uri` of a dataset.
    """
    actor = current_actor()
    actor.require("steward")
    if request.mimetype == "multipart/form-data":
        raise invalid("Content-Type", "multipart/form-data", "the file itself as the body")
    folder = store()
    length = request.content_length
    if length is not None and length > folder.most_bytes:
        raise TooLarge(
            f"an upload may be at most {folder.most_bytes:,} bytes; this one has {length:,}"
        )
    try:
        body, name = blocks(request.stream, length), request.args.get("name")
        stored_upload = uploads.receive(engine(), folder, body, actor, name)
    except ExchequerError:
        drain(request.stream, folder.most_bytes)
        raise
    return jsonify(stored_upload), 201


@api.get("/uploads")
@describe(Operation(answer=listing("uploads", Upload, paged=ORDER), roles=("steward",)))
def list_uploads() -> Response:
    """Files that are kept, newest first, with their columns and what names them, for stewards."""
    window = read_window(ORDER)
    return page(
        "uploads", uploads.listing(engine(), store(), current_actor(), **window.reads), window
    )


@api.get("/uploads/<sha256>")
@describe(Operation(answer=Upload, roles=("steward",)))
def show_upload(sha256: str) -> Response:
    """One file that is kept."""
    return jsonify(uploads.show(engine(), store(), sha256, current_actor()))


@api.delete("/uploads/<sha256>")
@describe(Operation(refusals=(409,), answer=Discarded, roles=("steward",)))
def discard_upload(sha256: str) -> Response:
    """Destroy a file that no dataset and no corpus was registered with."""
    uploads.discard(engine(), sha256, current_actor())
    return jsonify(sha256=sha256, removed=True)
