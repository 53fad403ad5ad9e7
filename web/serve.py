"""`python -m web.serve`: the web service under waitress, for a laptop or one machine."""

import copy
import gc
from collections.abc import Mapping
from typing import Any

from flask import Flask
from waitress import serve
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser

from accountant import logs
from accountant.database import UNAVAILABLE
from accountant.settings import load
from web import probes
from web.app import MAX_BODY_BYTES, create_app
from web.auth import roles_of_sender
from web.proxies import below
from web.request_bodies import FORM_BYTES
from web.stack.ports import inherited

THREADS = 16

#: Where files come in. waitress writes a body to a temporary file before the application sees a
#: request.
UPLOAD_PATHS = ("/uploads", "/api/v1/uploads")


def parser(app: Flask, upload_bytes: int) -> type[HTTPRequestParser]:
    """Return a parser that takes large bodies at UPLOAD_PATHS alone, from stewards alone."""

    mount = app.extensions["exchequer"]["settings"].public_path

    class Parser(HTTPRequestParser):  # type: ignore[misc]
        adj: Any
        content_length: int
        chunked: bool

        def parse_header(self, header_plus: bytes) -> None:
            super().parse_header(header_plus)
            signed_in = "AUTHORIZATION" in self.headers or "COOKIE" in self.headers
            large = self.chunked or self.content_length >= self.adj.max_request_body_size
            if (
                signed_in
                and large
                and self.command == "POST"
                and below(mount, self.path) in UPLOAD_PATHS
            ):
                if _from_steward(app, self.headers):
                    changed = copy.copy(self.adj)
                    changed.max_request_body_size = upload_bytes + 2 * FORM_BYTES
                    self.adj = changed
                if self.content_length >= self.adj.max_request_body_size:
                    # Not read at all: the application explains the limit, by the length that is
                    # stated, or who may send a file.
                    self.content_length, self.body_rcv, self.connection_close = 0, None, True

    return Parser


def _from_steward(app: Flask, headers: Mapping[str, str]) -> bool:
    """Return True if a cookie or a token is a steward's; False while the database is away."""
    named = {
        name: headers[name.upper()]
        for name in ("Authorization", "Cookie")
        if name.upper() in headers
    }
    with app.test_request_context(headers=named):
        try:
            return "steward" in roles_of_sender()
        except UNAVAILABLE:
            return False


def main() -> None:
    """Serve until the process is told to end."""
    logs.configure()
    settings = load()
    app = create_app(settings)
    probes.listen(app)
    HTTPChannel.parser_class = parser(app, settings.upload_bytes)
    # What is loaded by now stays: without this a full collection goes through it all, a pause of
    # 150 ms.
    gc.collect()
    gc.freeze()
    listener = inherited()
    address = (
        {"host": settings.host, "port": settings.port}
        if listener is None
        else {"sockets": [listener]}
    )
    serve(
        app,
        **address,
        threads=THREADS,
        ident=None,
        # waitress takes them away unasked; the application looks at as many as it is told to trust.
        clear_untrusted_proxy_headers=not settings.trusted_proxies,
        # Twice what the application accepts, so that it is the application that explains the limit.
        max_request_body_size=2 * MAX_BODY_BYTES,
    )


if __name__ == "__main__":
    main()
