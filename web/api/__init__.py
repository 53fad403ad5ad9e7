"""REST under /api/v1: JSON in and out, bearer tokens, errors as application/problem+json."""

from flask import Blueprint, request

from web.auth import authenticate_token

api = Blueprint("api", __name__, url_prefix="/api/v1")


@api.before_request
def _authenticate() -> None:
    if request.endpoint not in ("api.sign_in", "api.openapi", "api.keys"):
        authenticate_token()


from web.api import audits, corpora, datasets, jobs, models, openapi, people  # noqa: E402, F401  (they hang their routes on `api`)
