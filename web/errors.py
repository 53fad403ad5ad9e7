"""Errors on their way out, in one place: problem+json on the API, a readable page elsewhere.

What was raised on purpose says what was wrong. Anything else answers 500 with a reference that the
log knows, and nothing of the exception leaves the server.
"""

import secrets
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, current_app, g, jsonify, render_template, request
from flask_login import AnonymousUserMixin
from flask_wtf.csrf import CSRFError
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge

from accountant.core.errors import (
    Conflict,
    ExchequerError,
    FieldProblem,
    InvalidRequest,
    LeaseLost,
    LedgerBehind,
    LogUnusable,
    NoRoom,
    NotFound,
    NotPermitted,
    ResultsAway,
    SignerSilent,
    TooLarge,
    UnderMaintenance,
    UploadsAway,
    VerificationFailed,
    invalid,
)
from accountant.database import UNAVAILABLE

STATUS: dict[type[ExchequerError], int] = {
    InvalidRequest: 422,
    NotFound: 404,
    NotPermitted: 403,
    Conflict: 409,
    LeaseLost: 409,
    VerificationFailed: 409,
    TooLarge: 413,
    NoRoom: 507,
    LedgerBehind: 503,
    LogUnusable: 503,
    ResultsAway: 503,
    SignerSilent: 503,
    UnderMaintenance: 503,
    UploadsAway: 503,
}
_TITLES = {
    401: "Not signed in",
    403: "Not permitted",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    412: "Changed meanwhile",
    413: "Too large",
    415: "Not JSON",
    422: "Invalid request",
    429: "Too many requests",
    500: "Something went wrong",
    503: "Not available now",
    507: "No room left",
}
_DETAILS = {
    401: "sign in first; programs send a token as `Authorization: Bearer exq_...`",
    403: "the role or the policy forbids it",
    404: "there is nothing at this address",
    405: "this address does not take that method",
    409: "the current state forbids it; reading the state again tells why",
    412: "somebody has changed it since you read it: read it again, and decide on what it is now",
    413: "a request may be at most 1 MiB",
    415: "send JSON, as `Content-Type: application/json`",
    422: "name: is missing",
    429: "too many requests; try again later",
    500: "this was not foreseen; the log has it under the reference that stands here",
    503: "the database does not answer; try again in a moment",
}
#: Stable names of what went wrong: programs branch on these.
CODES = {
    401: "not-signed-in",
    403: "not-permitted",
    404: "not-found",
    405: "method-not-allowed",
    409: "conflict",
    412: "changed",
    413: "too-large",
    415: "not-json",
    422: "invalid",
    429: "too-many-requests",
    500: "internal",
    503: "unavailable",
    507: "no-room",
}
#: What a person does next, on a page.
_NEXT = {
    400: "Go back, load the page again, and send the form once more. Nothing was changed.",
    403: "Your account's page says which roles you have; an administrator can change them. Who may "
    "ask for jobs is in the dataset's policy, which a steward can change.",
    404: "Look for it in a list. What you may not see looks as if it were not there.",
    409: "Go back and load the page again: it shows how things stand now. Then decide anew.",
    412: "Go back and load the page again: it shows how things stand now. Then decide anew.",
    413: "Send less. Stewards send large files at Resources › Uploads, which states its limits.",
    422: "Go back, change what is named above, and send it again. Nothing was changed.",
    429: "Wait a little, then load this page again. Nothing was changed.",
    500: "Load the page again. Where it fails again, tell whoever runs this service the reference.",
    503: "Load this page again in a moment. What was sent may be sent again.",
    507: "Tell whoever runs this service. Nothing was kept.",
}
_OTHERWISE = "Go back to where you were, or begin with the datasets."


#: Raised with a text of our own.
_SPEAKING = frozenset({412, 415, 429})


def status_of(error: ExchequerError) -> int:
    """Return the HTTP status of an error that was raised on purpose."""
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


def problem(
    status: int,
    code: str | None = None,
    detail: str | None = None,
    problems: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return problem details (RFC 9457), by default what is said of the status by itself."""
    code = code or CODES.get(status, "error")
    return {
        "type": f"/api/docs#problem-{code}",
        "title": _TITLES.get(status) or HTTPStatus(status).phrase,
        "status": status,
        "detail": detail or _DETAILS.get(status) or HTTPStatus(status).phrase,
        "code": code,
        "problems": problems or [],
    }


def answer(
    status: int, code: str, detail: str, problems: list[dict[str, Any]] | None = None
) -> Response:
    """Return the error as the asker reads it best."""
    body = problem(status, code, detail, problems)
    body["type"] = request.script_root + body["type"]
    if request.path.startswith("/api/"):
        response = jsonify(body)
        response.mimetype = "application/problem+json"
    elif "HX-Request" in request.headers:  # a part of a page holds no page
        text = f"{detail[:1].upper()}{detail[1:]}"
        response = Response(render_template("_part_error.html", text=text))
    else:
        # the page is for nobody: who is signed in can't be asked for again
        if status in (500, 503):
            g._login_user = AnonymousUserMixin()
        body["next"] = _NEXT.get(status, _OTHERWISE)
        response = Response(render_template("error.html", **body))
    response.status_code = status
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _on_purpose(error: ExchequerError) -> Response:
    status = status_of(error)
    if status == 500:
        return _unexpected(error)
    response = answer(status, error.code, str(error), error.facts().get("problems"))
    if status == 503:
        response.headers["Retry-After"] = str(getattr(error, "retry_after_seconds", 2))
    return response


def _http(error: HTTPException) -> Response | HTTPException:
    status = error.code or 500
    if status < 400:
        return error  # a redirect
    detail = error.description if status in _SPEAKING else _DETAILS.get(status) or error.description
    response = answer(status, CODES.get(status, "error"), detail or "")
    allowed = getattr(error, "valid_methods", None)
    if allowed:
        response.headers["Allow"] = ", ".join(allowed)
    wait = getattr(error, "retry_after", None)
    if wait:
        response.headers["Retry-After"] = str(wait)
    return response


def _forged(error: CSRFError) -> Response:
    current_app.logger.info("CSRF: %s", error.description)
    return answer(
        400, "form-expired", "the form is too old or came from elsewhere: load its page again"
    )


def _unexpected(error: Exception) -> Response:
    reference = secrets.token_hex(6)
    current_app.logger.error("reference %s", reference, exc_info=error)
    return answer(
        500, "internal", f"this was not foreseen; the log has it under the reference {reference}"
    )


def _away(error: Exception) -> Response:
    """Answer 503: the database is away. A retry with the same idempotency key loses nothing."""
    current_app.logger.warning("the database is away: %s", type(error).__name__)
    response = answer(503, "unavailable", "the database does not answer; try again in a moment")
    response.headers["Retry-After"] = "2"
    return response


def answer_of(error: Exception) -> Response:
    """Return the answer to an error of ours or UNAVAILABLE, in place of the one that was ready."""
    return _on_purpose(error) if isinstance(error, ExchequerError) else _away(error)


def refuse_unstorable(value: str, field: str) -> None:
    """Raise InvalidRequest for text that PostgreSQL can't hold: NUL, and halves of characters."""
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise invalid(field, "holds NUL or half a character", "text without them")


def _check_text() -> None:
    """Check text in addresses and forms; JSON bodies are checked where they are read."""
    refuse_unstorable(request.path, "address")
    for name, value in request.args.items(multi=True):
        refuse_unstorable(name + value, name.replace("\0", "") or "address")
    forms = ("application/x-www-form-urlencoded", "multipart/form-data")
    if request.mimetype in forms and request.endpoint != "api.upload":  # there the body is a file
        for name, value in request.form.items(multi=True):
            refuse_unstorable(name + value, name.replace("\0", "") or "form")


def init_app(app: Flask) -> None:
    """Register the handlers, most specific first."""
    app.before_request(_check_text)
    app.register_error_handler(ExchequerError, _on_purpose)
    app.register_error_handler(CSRFError, _forged)
    app.register_error_handler(RequestEntityTooLarge, _http)
    app.register_error_handler(HTTPException, _http)
    for kind in UNAVAILABLE:
        app.register_error_handler(kind, _away)
    app.register_error_handler(Exception, _unexpected)


def without_prefix(error: InvalidRequest, prefix: str) -> InvalidRequest:
    """Return the same error with `prefix` taken off the names of its fields."""
    return InvalidRequest(
        FieldProblem(problem.field.removeprefix(prefix), problem.problem, problem.allowed)
        for problem in error.problems
    )


def with_prefix(error: InvalidRequest, prefix: str) -> InvalidRequest:
    """Return the same error with `prefix` put before the names of its fields."""
    return InvalidRequest(
        FieldProblem(prefix + problem.field, problem.problem, problem.allowed)
        for problem in error.problems
    )
