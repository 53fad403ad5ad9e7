"""REST under /api/v1: JSON in and out, bearer tokens, errors as application/problem+json."""

from flask import Blueprint, Response, current_app, request

from web.auth import authenticate_token, current_actor

api = Blueprint("api", __name__, url_prefix="/api/v1")

#: What anybody may ask without a token.
PUBLIC = frozenset({"api.sign_in", "api.openapi", "api.keys"})


@api.before_request
def _authenticate() -> Response | None:
    if request.method == "OPTIONS":  # which methods there are is no secret: the description says it too
        response = current_app.make_default_options_response()
        response.status_code = 204
        return response
    limits.counted("address", limits.address())
    if request.endpoint == "api.sign_in":
        limits.counted("sign-in", limits.address())
    if request.endpoint not in PUBLIC:
        authenticate_token()
        limits.counted("person", str(current_actor().id))
    return None


from web.api import (  # noqa: E402  (they hang their routes on `api`)
    artifacts,  # noqa: F401
    auditing,  # noqa: F401
    audits,  # noqa: F401
    conditional,
    corpora,  # noqa: F401
    datasets,  # noqa: F401
    hooks,  # noqa: F401
    jobs,  # noqa: F401
    limits,
    meaning,  # noqa: F401
    models,  # noqa: F401
    offers,  # noqa: F401
    openapi,  # noqa: F401
    people,  # noqa: F401
    proposals,  # noqa: F401
    uploads,  # noqa: F401
)

api.after_request(limits.tell)
api.after_request(conditional.add_etag)
