"""The published log, handed to anybody where the settings say so: its files as they are."""

from pathlib import Path

from flask import Blueprint, Response, send_from_directory
from werkzeug.security import safe_join

from accountant.core.errors import NotFound
from accountant.ledger_log.published import files_at
from web.context import settings

pages = Blueprint("public_log", __name__)


@pages.get("/log/<path:name>")
def file(name: str) -> Response:
    """One file of the log."""
    place = settings().public_log
    if not settings().serve_public_log or place is None:
        raise NotFound("file", name[:80])
    if isinstance(place, Path):
        return send_from_directory(place.absolute(), name, mimetype="application/octet-stream")
    inside = safe_join("", name)
    content = None if inside is None else files_at(place).read(name)
    if content is None:
        raise NotFound("file", name[:80])
    return Response(content, mimetype="application/octet-stream")
