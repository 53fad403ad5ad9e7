"""Pages, rendered on the server: one module and one blueprint per noun."""

import importlib
import pkgutil

from flask import Flask, request
from flask_login import current_user
from werkzeug.wrappers import Response

from web import held_forms
from web.auth import unauthorized

#: Pages for anybody. Every other one sends a stranger to the sign-in.
PUBLIC = frozenset(
    {
        "sign_in.form",
        "sign_in.submit",
        "sign_in.passkey",
        "sign_in.provider_begin",
        "sign_in.provider_return",
        "sign_in.provider_left",
        "sign_in.provider_back_channel",
        "sign_in.sign_out",
        "api_docs.show",
        "jobs.states",
        "docs.first",
        "docs.show",
        "auditing.published_file",
        "overview.calendar",  # asks for a session or a feed itself
    }
)


def register_pages(app: Flask) -> None:
    """Hang every page on the application, with what their templates need."""
    from web.views import charts, sign_in, template_filters

    nouns = set()
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        if hasattr(module, "pages"):
            app.register_blueprint(module.pages)
            nouns.add(module.pages.name)
    template_filters.init_app(app)
    charts.init_app(app)

    @app.before_request
    def _sign_in_first() -> Response | None:
        public = request.blueprint not in nouns or request.endpoint in PUBLIC
        if public or request.method == "OPTIONS" or current_user.is_authenticated:
            return None
        held = "" if "HX-Request" in request.headers else held_forms.sealed()
        return sign_in.resume(held) if held else unauthorized()
