"""One line of the log for each request, under the id that it came with or is given here.

A proxy that sends X-Request-ID gets it back, and finds every line of that request by it. Lines name
the route and who is meant by it, never what was sent.
"""

import logging
import re
import time
from uuid import UUID, uuid4

import structlog
from flask import Flask, Response, g, request

from web import metrics

HEADER = "X-Request-ID"
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: Nobody looks for them among requests.
_SILENT = frozenset({"livez", "readyz", "healthz", "static"})

logger = logging.getLogger("exchequer.request")


def about_job(job_id: UUID, dataset: str) -> None:
    """Name a job that a request has made in its line."""
    structlog.contextvars.bind_contextvars(job=str(job_id), dataset=dataset)


def _begin() -> None:
    g.began = time.monotonic()
    stated = request.headers.get(HEADER, "")
    g.request_id = stated if _ID.fullmatch(stated) else uuid4().hex
    named = request.view_args or {}
    facts = {"job": named.get("job")}
    if "/datasets/<name>" in _route():
        facts["dataset"] = named.get("name")
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(
        request=g.request_id, **{name: str(value)[:80] for name, value in facts.items() if value}
    )


def _route() -> str:
    return request.url_rule.rule if request.url_rule is not None else "none"


def _end(response: Response) -> Response:
    seconds = time.monotonic() - g.began
    route = _route()
    metrics.count(route, request.method, response.status_code, seconds)
    response.headers[HEADER] = g.request_id
    if request.endpoint not in _SILENT:
        facts = {"method": request.method, "route": route, "status": response.status_code}
        logger.info("request", extra={**facts, "ms": round(seconds * 1000)})
    return response


def init_app(app: Flask) -> None:
    """Count and log each request. Registered first: it sees the answer that leaves."""
    app.before_request(_begin)
    app.after_request(_end)
    app.teardown_request(lambda _: structlog.contextvars.clear_contextvars())
