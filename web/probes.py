"""Probes: whether the process lives, and whether it can serve; at each address, and at one apart.

    /livez    the process answers: it asks nobody
    /readyz   what a request needs: database, log, results, the cluster's key
    /healthz  also what people should look at

Each look has a thread of its own, and is waited for a moment: a probe answers whatever hangs.
Requests can take every thread of a server, so that EXCHEQUER_PROBE_ADDRESS names an address with
threads of its own. It is none for the public: `/metrics` there asks for nothing.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from flask import Flask, Response, jsonify
from werkzeug.serving import WSGIRequestHandler, make_server

from accountant import database
from accountant.catalogue.upload_places import place_of
from accountant.database import Engine
from accountant.deadlines import Bounded
from accountant.ledger_log.kept_heads import is_address
from accountant.queries import log_comparison, workers
from accountant.results import Results, problem_of
from accountant.settings import Settings
from accountant.transactions import key_checks, maintenance, second_calculation, signing
from web.metrics import Metrics

logger = logging.getLogger(__name__)

#: What is not known after this is said to be so.
SECONDS = 0.8
#: A process that starts loads libraries for its first look: its probes are opened after that.
FIRST_SECONDS = 5.0
#: The signer looks for requests ten times a second: one that waits for longer tells of its silence.
SIGNER_SECONDS = 5.0

Look = Callable[[], str | None]

#: What a role other than the web's own gives away to whoever takes this process over
#: (docs/powers.md).
_ROLES = {
    "owner": "the owner of the tables: it may change every row, the ledger's too",
    "service": "one for all processes: it may do what each of them may",
}


class Probes:
    """What is asked of one application."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self.metrics = Metrics(engine)
        results = Results(settings.results)
        needed: dict[str, Look] = {
            "the database": lambda: database.problem(engine),
            "the log outside the database": lambda: log_comparison.write_problem(engine),
            "the place of results": results.problem,
            "the check of the key": lambda: key_checks.problem(engine, "session", settings),
        }
        self._needed = {name: Bounded(_never_none(look)) for name, look in needed.items()}
        #: What takes no pages away is said beside the answer.
        self._told = {
            "signer": Bounded(self._signer_problem),
            "maintenance": Bounded(self._maintenance),
            "uploads": Bounded(place_of(settings.uploads).problem),
        }
        if is_address(settings.public_log):
            self._told["public_log"] = Bounded(lambda: problem_of(str(settings.public_log)))
        self._health = Bounded(self._worth_a_look)

    def live(self) -> tuple[dict[str, Any], int]:
        """Return 200: whoever can answer lives."""
        return {"status": "ok"}, 200

    def ready(self, deadline: float | None = None) -> tuple[dict[str, Any], int]:
        """Return 200 where requests can be served, else 503 and why.

        A signer that is silent takes no pages away: exports say so themselves. Nor do uploads
        without a place, and maintenance, under which admissions answer 503.
        """
        deadline = deadline or time.monotonic() + SECONDS
        looks = {name: look.begin() for name, look in self._needed.items()}
        told = {name: look.begin() for name, look in self._told.items()}
        for name, look in looks.items():
            problem = look.result(deadline)
            if problem != "":
                problem = problem or f"{name} does not answer"
                logger.warning("not ready: %s", problem)
                return {"status": problem}, 503
        texts = {name: look.result(deadline) for name, look in told.items()}
        return {"status": "ok", **{name: text for name, text in texts.items() if text}}, 200

    def health(self) -> tuple[dict[str, Any], int]:
        """Return as `ready`, and what people should look at."""
        deadline, looks = time.monotonic() + SECONDS, self._health.begin()
        answer, status = self.ready(deadline)
        if status != 200:
            return answer, status
        seen = looks.result(deadline)
        return answer | ({"health": "unknown now"} if seen is None else seen), 200

    def _maintenance(self) -> str | None:
        with self._engine.connect() as connection:
            return maintenance.reason(connection)

    def _signer_problem(self) -> str | None:
        waited = signing.silence(self._engine)
        if waited < SIGNER_SECONDS:
            return None
        return f"silent for {waited:.0f} s: exports and checkpoints answer 503"

    def _worth_a_look(self) -> dict[str, Any]:
        """Return prices that this process can't confirm, jobs that no worker takes, the log's
        state, and a role in the database that can do more than this process needs.
        """
        health: dict[str, Any] = {}
        unconfirmed = second_calculation.refused_now()
        if any(unconfirmed.values()):
            health["prices_refused"] = unconfirmed
        waiting = workers.problem(self._engine, in_their_words=False)
        if waiting is not None:
            health["workers"] = waiting
        outside = log_comparison.standing(self._engine)
        if outside != "ok":  # the pages stay up: they say so to stewards
            health["ledger_log"] = outside
        role = database.process_of(self._engine)
        if role != "web":
            health["database_role"] = _ROLES[role]
        return health


def _never_none(look: Look) -> Callable[[], str]:
    """Return a look that finds "" where nothing is wrong: None is for one that failed."""
    return lambda: look() or ""


def init_app(app: Flask) -> None:
    """Answer probes beside all else."""
    own = app.extensions["exchequer"]
    own["probes"] = Probes(own["engine"], own["settings"])
    _add_rules(app, own["probes"])


def _add_rules(app: Flask, probes: Probes) -> None:
    asked = {"livez": probes.live, "readyz": probes.ready, "healthz": probes.health}
    for name, ask in asked.items():

        def view(ask: Callable[[], tuple[dict[str, Any], int]] = ask) -> tuple[Response, int]:
            document, status = ask()
            return jsonify(document), status

        app.add_url_rule(f"/{name}", name, view)


# --- at an address of their own -----------------------------------------------------------------


def probe_app(app: Flask) -> Flask:
    """Return the small application that tells how `app` is."""
    own = Flask("probes")
    probes: Probes = app.extensions["exchequer"]["probes"]
    _add_rules(own, probes)

    def exposition() -> tuple[bytes, dict[str, str]]:
        told = probes.metrics.exposition()
        return told, {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}

    own.add_url_rule("/metrics", view_func=exposition)
    return own


class _Handler(WSGIRequestHandler):
    timeout = 5  # seconds that somebody may take to send a request

    def log_request(self, *_: Any) -> None:
        """Say nothing: a probe comes every few seconds."""


def listen(app: Flask) -> None:
    """Answer at the address of probes from now on, in threads, if the settings name one.

    Processes of one server share the port: the kernel gives each connection to one of them. Raises
    OSError where the address is not to be had.
    """
    address = app.extensions["exchequer"]["settings"].probe_address
    if address is None:
        return
    app.extensions["exchequer"]["probes"].ready(time.monotonic() + FIRST_SECONDS)
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
