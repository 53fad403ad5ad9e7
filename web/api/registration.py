"""The whole API: every module's routes, who may ask, and what each answer carries."""

from flask import Flask, Response, current_app, request

from web.api import (
    artifacts,
    checkpoints,
    corpora,
    datasets,
    etags,
    jobs,
    ledgers,
    limits,
    meaning,
    models,
    offers,
    openapi,
    people,
    proposals,
    uploads,
    webhooks,
)
from web.api.blueprint import PUBLIC, api
from web.auth import authenticate_token, current_actor

#: Each hangs its routes on `api` when it is imported.
NOUNS = (
    artifacts,
    checkpoints,
    corpora,
    datasets,
    jobs,
    ledgers,
    meaning,
    models,
    offers,
    openapi,
    people,
    proposals,
    uploads,
    webhooks,
)


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


api.after_request(limits.tell)
api.after_request(etags.add_etag)


def register_api(app: Flask) -> None:
    """Hang the API on the application."""
    app.register_blueprint(api)
