"""The published log, handed to anybody where the settings say so: its files as they are."""

from flask import Blueprint, Response, send_from_directory

from accountant.core.errors import NotFound
from web.context import settings

pages = Blueprint("public_log", __name__)


@pages.get("/log/<path:name>")
def file(name: str) -> Response:
    """One file of the log."""
    folder = settings().public_log
    if not settings().serve_public_log or folder is None:
        raise NotFound("file", name[:80])
    return send_from_directory(folder.absolute(), name, mimetype="application/octet-stream")
