"""Probes and metrics at an address of their own (EXCHEQUER_PROBE_ADDRESS).

Requests can take every thread of a server. These have threads of their own, so that they are
answered whatever requests wait for. It is no address for the public: `/metrics` asks for nothing.
"""

import socket
import threading
from typing import Any

from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

from web.metrics import Metrics


class _Handler(WSGIRequestHandler):
    timeout = 5  # seconds that somebody may take to send a request

    def log_request(self, *_: Any) -> None:
        """Say nothing: a probe comes every few seconds."""


def probe_app(app: Flask) -> Flask:
    """Return the small application that tells how `app` is."""
    probes = Flask("probes")
    metrics = Metrics(app.extensions["exchequer"]["engine"])

    def exposition() -> tuple[bytes, dict[str, str]]:
        return metrics.exposition(), {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}

    probes.add_url_rule("/metrics", view_func=exposition)
    return probes


def listen(app: Flask) -> None:
    """Answer at the address of probes from now on, in threads, if the settings name one.

    Processes of one server share the port: the kernel gives each connection to one of them. Raises
    OSError where the address is not to be had.
    """
    address = app.extensions["exchequer"]["settings"].probe_address
    if address is None:
        return
    host, _, port = address.rpartition(":")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host.strip("[]"), int(port)))
    listener.listen()
    server = make_server(
        host,
        int(port),
        probe_app(app),
        threaded=True,
        request_handler=_Handler,
        fd=listener.detach(),
    )
    threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()
