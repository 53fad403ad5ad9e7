"""A command line of its own for each test: no profile, no server, and a small ledger made by the
core.
"""

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer import testing
from typer.testing import CliRunner, Result

from accountant import settings
from accountant.core import mechanisms
from accountant.core.ledger import entry_bodies
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.lineage import of_version
from accountant.core.privacy.price import Terms
from tests.ledger_exports import rules
from tests.web.cli.stand_ins import Ledger, Run, StandIn
from web.cli.commands import app

# The tree of all commands is made once, not at each call.
testing._get_command = functools.cache(testing._get_command)


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Signed in nowhere, no server at the default address, and no wait before asking it again."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("EXCHEQUER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EXCHEQUER_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("web.client.transport._sleep", lambda seconds: None)
    for name in ("TOKEN", "PROFILE", "PASSWORD"):
        monkeypatch.delenv(f"EXCHEQUER_{name}", raising=False)
    settings.load.cache_clear()
    yield
    settings.load.cache_clear()


@pytest.fixture
def exchequer() -> Run:
    """Runs the command with the given words."""

    def run(*words: object, **options: Any) -> Result:
        result = CliRunner().invoke(app, [str(word) for word in words], **options)
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            result.exception
        )
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture
def ledger() -> Ledger:
    """Allowed, one job settled, one job reserved."""
    made = Ledger()
    for kind, body in rules(Terms()):
        made.append(kind, None, body)
    made.append(
        EntryKind.ALLOW, None, entry_bodies.allow_body(None, "10", "0.000001", "a first allowance")
    )
    mechanism, terms = mechanisms.get("private-prediction"), Terms()
    parameters = mechanism.parse({"tokens_per_batch": 64, "batches_per_label": 1}, terms)
    event = mechanism.price(parameters, terms).dp
    assert event is not None
    for job in ("first", "second"):
        assert made.books.account is not None
        raw = mechanism.recorded(parameters)
        named = {
            "model": {"name": "small", "sha256": "c" * 64},
            "approval": None,
            "source": of_version(1),
        }
        body = entry_bodies.reserve_body(
            made.books.account, mechanism.id, raw, terms, event, **named
        )
        made.append(EntryKind.RESERVE, job, body)
    assert made.books.account is not None
    made.append(
        EntryKind.COMMIT,
        "first",
        entry_bodies.commit_body(made.books.account, event, "succeeded", 1, "0" * 64),
    )
    return made


@pytest.fixture
def server() -> Iterator[StandIn]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            made.requests.append((self.command, self.path, dict(self.headers), body))
            answer = made.answers.pop(0)
            if answer == "drop":  # the connection ends without a word
                self.close_connection = True
                self.connection.close()
                return
            status, document, *headers = answer
            data = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers[0] if headers else {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Silence."""

    made_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made_server.daemon_threads = True
    made = StandIn(f"http://127.0.0.1:{made_server.server_address[1]}")
    thread = threading.Thread(target=made_server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield made
    made_server.shutdown()
    made_server.server_close()
    thread.join()
