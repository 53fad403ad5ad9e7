"""The whole API: every module's routes, who may ask, and what each answer carries."""

import importlib
import pkgutil

from flask import Flask, Response, current_app, request

from web import api as nouns
from web.api import etags, limits
from web.api.blueprint import PUBLIC, api
from web.auth import authenticate_token, current_actor

for found in pkgutil.iter_modules(nouns.__path__):
    importlib.import_module(f"{nouns.__name__}.{found.name}")  # each hangs its routes on `api`


@api.before_request
def _authenticate() -> Response | None:
    # which methods there are is no secret: the description says it too
    if request.method == "OPTIONS":
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
