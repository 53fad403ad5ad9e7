"""The application factory. Nothing happens at import; each blueprint is one noun.

create_app ── settings, engine ──▶ auth, errors ──▶ pages (web.views) and REST (web.api)
"""

import hashlib
from typing import Any

from flask import Flask, Response, request
from flask.json.provider import DefaultJSONProvider
from flask.sessions import SecureCookieSessionInterface
from flask_talisman import Talisman
from flask_wtf import CSRFProtect

from accountant import database
from accountant.ledger_log.signed import SignedPlaces
from accountant.schema.base import Answer
from accountant.settings import Settings, load
from web.proxies import Mount, Proxies, check_mount

MAX_BODY_BYTES = 2**20

#: A COMMIT that waits for a standby that is gone ends after this; nobody knows then what became of
#: it.
ANSWER_SECONDS = 120.0

# No inline script or style anywhere; pictures in data: are Bootstrap's own marks for form fields.
CONTENT_SECURITY_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "font-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}


#: What browsers offer and no page here uses.
PERMISSIONS_POLICY = dict.fromkeys(
    ("browsing-topics", "camera", "geolocation", "microphone", "payment", "usb"), "()"
)


class _Json(DefaultJSONProvider):
    """Answers are their documents; members stay in the order of their declaration."""

    sort_keys = False

    @staticmethod
    def default(value: Any) -> Any:
        return value.document() if isinstance(value, Answer) else DefaultJSONProvider.default(value)


class _Sessions(SecureCookieSessionInterface):
    """Cookies are marked Secure if the page came over TLS, and work on a laptop without."""

    def get_cookie_secure(self, app: Flask) -> bool:  # noqa: ARG002
        return request.is_secure

    def get_cookie_path(self, app: Flask) -> str:  # noqa: ARG002
        return request.script_root or "/"


def cookie_name(key: bytes) -> str:
    """Return a name that no other service on the host gives its cookie: cookies know no ports."""
    return f"exchequer_{hashlib.sha256(b'name of the cookie' + key).hexdigest()[:8]}"


def create_app(settings: Settings | None = None) -> Flask:
    """Return the web service for `settings`, by default those of this process."""
    from web import auth, errors, oidc, probes, request_bodies, request_log, shown_entries
    from web.api import limits
    from web.api.blueprint import api
    from web.api.registration import register_api
    from web.views import register_pages

    settings = load() if settings is None else settings
    if settings.database_url is None:
        raise RuntimeError(
            "DATABASE_URL is not set; `exchequer stack up` sets it for the local stack"
        )
    app = Flask("web")
    app.config.update(
        SECRET_KEY=settings.secret("session"),
        MAX_CONTENT_LENGTH=MAX_BODY_BYTES,
        SESSION_COOKIE_NAME=cookie_name(settings.secret("session")),
        SESSION_COOKIE_SAMESITE="Lax",
        PERMANENT_SESSION_LIFETIME=settings.session_hours * 3600,
        WTF_CSRF_TIME_LIMIT=None,  # a token lives as long as its session
    )
    app.session_interface = _Sessions()
    signed = SignedPlaces.of(settings)
    database_engine = database.engine_for(
        settings.database_url, settings.ledger_log, ANSWER_SECONDS, signed
    )
    app.extensions["exchequer"] = {"settings": settings, "engine": database_engine}
    app.json = _Json(app)
    app.wsgi_app = Mount(app.wsgi_app, settings.public_path)  # type: ignore[method-assign]
    app.wsgi_app = request_bodies.Deadline(app.wsgi_app)  # type: ignore[method-assign]
    app.wsgi_app = Proxies(app.wsgi_app, settings)  # type: ignore[method-assign]
    limits.init_app(app, settings)

    request_log.init_app(app)  # first of all
    request_bodies.init_app(app)  # before all that reads a body
    protect = CSRFProtect(app)
    protect.exempt(api)  # it takes bearer tokens, never cookies
    protect.exempt(
        "web.views.sign_in.provider_back_channel"
    )  # the provider's server: it proves itself by its key
    Talisman(
        app,
        force_https=False,  # TLS is the proxy's
        strict_transport_security=True,  # said over TLS only
        strict_transport_security_include_subdomains=False,
        session_cookie_secure=False,  # _Sessions decides
        content_security_policy=CONTENT_SECURITY_POLICY,
        frame_options="DENY",
        referrer_policy="same-origin",
        permissions_policy=PERMISSIONS_POLICY,
    )
    auth.init_app(app)
    oidc.init_app(app)
    errors.init_app(app)
    register_api(app)
    register_pages(app)
    check_mount(app, settings.public_path)
    probes.init_app(app)
    app.after_request(_private)
    shown_entries.init_app(app)
    return app


def _private(response: Response) -> Response:
    """Keep pages for signed-in users out of shared caches."""
    response.headers.setdefault("Cross-Origin-Opener-Policy", "same-origin")
    response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
    if not request.path.startswith("/static/"):
        response.headers.setdefault("Cache-Control", "private, no-store")
    return response
