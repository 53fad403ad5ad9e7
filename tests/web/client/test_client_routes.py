"""The Python client covers the API: each described operation is asked for by some method."""

import http.server
import inspect
import io
import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from flask import Flask

from web.api.openapi import document
from web.client import Api
from web.client.transport import Transport

# The description itself; programs read it with any HTTP library.
NOT_IN_THE_CLIENT = {("GET", "/api/v1/openapi.json")}
FIXED: dict[str, list[dict[str, Any]]] = {
    "act_on_user": [
        {"act": act}
        for act in (
            "activate",
            "deactivate",
            "reset-password",
            "unlock",
            "sign-out",
            "revoke-tokens",
        )
    ],
    "upload": [{"size": 0}],
}


@pytest.fixture
def asked() -> Iterator[tuple[str, set[tuple[str, str]]]]:
    """A socket that answers everything with an empty document, and what it was asked for."""
    seen: set[tuple[str, str]] = set()

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.add((self.command, self.path.partition("?")[0]))
            body = json.dumps({"next": None}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Silence."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", seen
    server.shutdown()
    server.server_close()
    thread.join()


def value(name: str, annotation: Any) -> Any:
    """Something that a parameter of this kind takes."""
    text = str(annotation)
    if "Writable" in text or "BinaryIO" in text:
        return io.BytesIO()
    if "Mapping" in text:
        return {}
    if "list" in text:
        return []
    return 1 if annotation is int else "1"


def call(api: Api, name: str, **fixed: Any) -> None:
    method = getattr(api, name)
    parameters = inspect.signature(method).parameters.values()
    given = {
        each.name: value(each.name, each.annotation)
        for each in parameters
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    }
    with suppress(LookupError, TypeError):  # the answers are empty
        found = method(**(given | fixed))
        if inspect.isgenerator(found):
            list(found)


def test_every_operation_has_a_method(app: Flask, asked: tuple[str, set[tuple[str, str]]]) -> None:
    url, seen = asked
    methods = [
        name
        for name, each in inspect.getmembers(Api, inspect.isfunction)
        if not name.startswith("_") and not hasattr(Transport, name)
    ]
    with Api(url) as api:
        for name in methods:
            for fixed in FIXED.get(name, ({},)):
                call(api, name, **fixed)
        assert len(methods) > 40
    described = {
        (verb.upper(), path) for path, verbs in document(app)["paths"].items() for verb in verbs
    } - NOT_IN_THE_CLIENT
    missing = {
        (verb, path)
        for verb, path in described
        if not any(
            verb == done and re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", path), at)
            for done, at in seen
        )
    }
    assert missing == set(), "give web/client/routes a method for each"
