"""Uploads: sending a file, and what is kept."""

from flask import Blueprint, request
from werkzeug.wrappers import Response as BaseResponse

from accountant.catalogue import uploads
from accountant.core.errors import InvalidRequest, NoRoom, TooLarge, invalid
from web.api.uploads import ORDER
from web.auth import current_actor, needs_role
from web.context import engine, settings
from web.request_bodies import blocks, store
from web.views.forms import BLANK, Form, done, listed, shown_again

pages = Blueprint("uploads", __name__)


@pages.get("/uploads")
@needs_role("steward")
def files(form: Form = BLANK) -> str:
    """The form, and the files that are kept."""
    return listed(
        "uploads.html",
        ORDER,
        lambda window: uploads.listing(engine(), store(), current_actor(), **window.reads),
        form=form,
        most=settings().upload_bytes,
    )


@pages.post("/uploads")
@needs_role("steward")
@shown_again(files, errors=(InvalidRequest, TooLarge, NoRoom))
def add() -> BaseResponse:
    """Keep a file, or say what is wrong with it."""
    upload = receive_form("file")
    columns = ", ".join(upload["columns"])
    return done(f"The file is kept. Its columns: {columns}.", "uploads.files")


def receive_form(field: str) -> uploads.Kept:
    """Keep the file of a form's field, on a page of `web.request_bodies.FORMS`."""
    sent = request.files.get(field)
    if sent is None or not sent.filename:
        raise invalid("file", "none was chosen", "a file")
    return uploads.receive(engine(), store(), blocks(sent.stream), current_actor(), sent.filename)


@pages.post("/uploads/<sha256>/discard")
@needs_role("steward")
def discard(sha256: str) -> BaseResponse:
    """Destroy a file that nothing was registered with."""
    uploads.discard(engine(), sha256, current_actor())
    return done("The file is destroyed.", "uploads.files")
