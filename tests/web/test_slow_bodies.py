"""Senders that are slow stop nobody else, and no thread for long."""

import socket
import time
from contextlib import ExitStack

import httpx2
import pytest

from tests.web.serving import serving
from web import request_bodies

HEAD = b"POST /api/v1/session HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_a_body_that_is_late_ends(monkeypatch):
    monkeypatch.setattr(request_bodies, "BODY_SECONDS", 0.2)
    ours, theirs = socket.socketpair()
    theirs.sendall(b"ab")

    def application(environ, _):
        return [environ["gunicorn.socket"].makefile("rb").read(int(environ["CONTENT_LENGTH"]))]

    began = time.monotonic()
    environ = {"gunicorn.socket": ours, "CONTENT_LENGTH": "10"}
    assert request_bodies.Deadline(application)(environ, None) == [b"ab"]
    assert time.monotonic() - began < 5
    ours.close()
    theirs.close()


@pytest.mark.slow
def test_sixteen_slow_senders_stop_nobody_else(database_url, tmp_path):
    with serving(database_url, tmp_path, gunicorn=True) as server, ExitStack() as open_ones:
        for _ in range(16):
            sender = socket.create_connection(("127.0.0.1", server.port))
            open_ones.enter_context(sender)
            sender.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
        time.sleep(0.5)
        with httpx2.Client(timeout=5) as client:
            for _ in range(20):
                assert client.get(f"{server.url}/sign-in").status_code == 200
