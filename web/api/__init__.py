"""REST under /api/v1: JSON in and out, bearer tokens, errors as application/problem+json."""

from flask import Blueprint, request

from web.auth import authenticate_token

api = Blueprint("api", __name__, url_prefix="/api/v1")


@api.before_request
def _authenticate() -> None:
    if request.endpoint not in ("api.sign_in", "api.openapi", "api.keys"):
        authenticate_token()


from web.api import (  # noqa: E402  (they hang their routes on `api`)
    artifacts,  # noqa: F401
    auditing,  # noqa: F401
    audits,  # noqa: F401
    corpora,  # noqa: F401
    datasets,  # noqa: F401
    jobs,  # noqa: F401
    models,  # noqa: F401
    offers,  # noqa: F401
    openapi,  # noqa: F401
    people,  # noqa: F401
    proposals,  # noqa: F401
    uploads,  # noqa: F401
)
