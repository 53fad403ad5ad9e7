"""Uploads: accepted only on their route, only from a steward, and never whole in memory.

MAX_CONTENT_LENGTH stays small for every other request. `allow_large` runs before anything reads a
body.
"""

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from flask import Flask, request
from flask_login import current_user

from accountant.catalogue.uploads import Store
from accountant.core.files.filetypes import refused
from web.context import settings

#: The program's way: the body is the file.
API = "api.upload"
#: The ways of pages: a form with a file in it. A page that takes one names its endpoint here.
FORMS = {"uploads.add", "wizard.step"}

#: What a form has beside its file.
FORM_BYTES = 2**16

_BLOCK = 2**16


def store() -> Store:
    """Return the store of this application's uploads."""
    return Store.of(settings())


def init_app(app: Flask) -> None:
    """Has to come first: what runs before a request is served in the order of its registration."""
    app.before_request(allow_large)


def allow_large() -> None:
    """Raise the limit for a steward's upload; everybody else is stopped at the common one."""
    if request.endpoint == API:
        # Read as a stream and counted there, after the token was looked at. (None would mean the
        # common one.)
        request.max_content_length = 2**62
    elif (
        request.endpoint in FORMS
        and current_user.is_authenticated
        and "steward" in current_user.actor.roles
    ):
        request.max_content_length = settings().upload_bytes + FORM_BYTES


#: A body of common size has to be here by then, and a larger one at so many bytes a second.
BODY_SECONDS = 20.0
BODY_RATE = 100_000


class Deadline:
    """WSGI middleware for gunicorn, whose threads read bodies: one that is late ends its request.

    Else a few slow senders hold all threads. A proxy that waits for bodies itself never meets it.
    """

    def __init__(self, application: Any) -> None:
        self.application = application

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer a request; its body ends early if it is late."""
        connection = environ.get("gunicorn.socket")
        length = environ.get("CONTENT_LENGTH") or "0"
        if connection is None or (length == "0" and "HTTP_TRANSFER_ENCODING" not in environ):
            return self.application(environ, start_response)
        timer = threading.Timer(BODY_SECONDS + int(length) / BODY_RATE, _end_body, [connection])
        timer.daemon = True
        timer.start()
        try:
            return self.application(environ, start_response)
        finally:
            timer.cancel()


def _end_body(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RD)


def blocks(stream: Any, length: int | None = None) -> Iterator[bytes]:
    """Yield a stream's bytes in blocks. Raises InvalidRequest if it ends before its stated length.

    A server whose client has gone may just end the stream: half a file would be one of its own.
    """
    got = 0
    while block := stream.read(_BLOCK):
        got += len(block)
        yield block
    if length is not None and got != length:
        raise refused(f"broke off after {got:,} bytes", f"the {length:,} bytes that were announced")


def drain(stream: Any, most: int) -> None:
    """Read an unwanted body on, at most `most`, so that its sender reads the refusal."""
    for block in blocks(stream):
        most -= len(block)
        if most < 0:
            return
