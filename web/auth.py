"""Authentication: signing in, sessions in the browser, bearer tokens, roles.

A failed sign-in takes as long for an unknown name as for a wrong password, and says no more.
"""

import hashlib
import math
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from flask import Flask, Response, abort, current_app, g, redirect, request, session, url_for
from flask_login import LoginManager, UserMixin, current_user, login_user, logout_user
from itsdangerous import BadSignature, URLSafeTimedSerializer
from werkzeug.exceptions import TooManyRequests
from werkzeug.wrappers import Response as BaseResponse

from accountant.core.errors import NotPermitted
from accountant.identities import credentials, passkeys, sessions, sign_ins
from accountant.identities.actor import Actor
from accountant.identities.sessions import Proof
from web import held_forms, scopes, standing
from web.context import engine, origin, settings
from web.passwords import hash_password, nobodys_hash, rehashed, verify_password

__all__ = ["hash_password"]  # where new passwords come from

P = ParamSpec("P")
R = TypeVar("R")

# --- signing in ---------------------------------------------------------------------------------


def user_of_password(name: str, password: str, method: str, told: str = "signed in") -> Any | None:
    """Return the active user with this name and password, or None; both failures take the same
    time.

    `told`: how the log names a success. A user whose one-time password ran out is none. Raises
    TooManyRequests with the seconds to wait, and then without a look at the password: whether there
    is such a name plays no part in it.
    """
    name, came = name.strip().lower(), origin(method)
    device = device_of(name) if method == "page" else None
    wait = sign_ins.admit(engine(), name, came, device)
    if wait is not None:
        _too_many(wait)
    user = credentials.find_user(engine(), name=name)
    stored = None if user is None else user.password_hash
    matches = verify_password(stored or nobodys_hash(), password)
    outcome = _outcome(user, stored is not None and matches)
    if user is None or stored is None or outcome is not None:
        user_id = None if user is None else user.id
        sign_ins.log(engine(), name, user_id, came, outcome or "unknown name")
        return None
    if user.password_expires is not None and method == "api":
        told = "password to be changed"
    if told == "signed in" and needs_passkey(user):
        told = "password confirmed"
    sign_ins.succeeded(engine(), name, user.id, came, told, device)
    better = rehashed(stored, password)
    if better is not None:
        return credentials.rehash_password(engine(), user.id, stored, better) or user
    return user


def needs_passkey(user: Any) -> bool:
    """Return whether this user's password opens nothing alone (settings.second_factor)."""
    has_second_factor = settings().second_factor and user.password_expires is None
    return has_second_factor and bool(passkeys.of(engine(), user.id))


def _outcome(user: Any | None, matches: bool) -> str | None:
    """Return why a sign-in failed; None: it succeeded."""
    if user is None:
        return "unknown name"
    if not matches:
        return "wrong password"
    expired = user.password_expires is not None and user.password_expires <= datetime.now(UTC)
    return "password expired" if expired else None


def _too_many(wait: timedelta) -> NoReturn:
    seconds = max(1, math.ceil(wait.total_seconds()))
    raise TooManyRequests(
        "too many failures under this name or from this address: try again in "
        f"{in_words(seconds)}, or ask an administrator to unlock the account",
        retry_after=seconds,
    )


def in_words(seconds: int) -> str:
    """Return a wait as somebody would say it."""
    for size, word in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = math.ceil(seconds / size)
            return f"{count} {word}{'s' if count > 1 else ''}"
    return f"{seconds} second{'s' if seconds > 1 else ''}"


# --- sessions in the browser --------------------------------------------------------------------


#: After a sign-in its password counts as just typed for this long.
_WHILE_FRESH = timedelta(minutes=10)


class SignedIn(UserMixin):  # type: ignore[misc]
    """The user of a session; its id is the token that `accountant.identities.sessions` knows."""

    def __init__(self, user: Any, token: str) -> None:
        self.actor = credentials.actor_of(user)
        self.token = token
        self.session_id = getattr(user, "session_id", None)
        self.must_change = user.password_expires is not None  # it was a one-time password
        began = getattr(user, "session_began", None)
        #: True for a while after a sign-in with a one-time password, which need not be typed again
        #: then.
        self.may_choose = (
            self.must_change and began is not None and datetime.now(UTC) - began < _WHILE_FRESH
        )
        self.has_password = user.password_hash is not None
        self.method: str | None = getattr(user, "session_method", None)
        #: When they last showed who they are, by signing in or again since.
        self.shown_at: datetime | None = getattr(user, "session_shown", None)
        #: Why nothing is admitted now; None: the service is open.
        self.maintenance: str | None = getattr(user, "maintenance", None)

    def get_id(self) -> str:
        return self.token


def start_session(user: Any, method: str = "page", proof: Proof | None = None) -> bool:
    """Sign a user in: a new session under a new token; what an earlier one held is forgotten.

    False where the account was closed, or got another password, since `user` was read.
    """
    _end_this()
    session.clear()
    token = sessions.start(engine(), user, origin(method), proof)
    if token is None:
        return False
    session.permanent = True
    session[held_forms.PERSON] = str(user.id)
    login_user(SignedIn(user, token))
    return True


def end_session() -> None:
    """Sign out. The session ends on the server too, so a copy of its cookie is useless."""
    _end_this()
    logout_user()
    session.clear()


def _end_this() -> None:
    if current_user.is_authenticated:
        sessions.end_one(engine(), current_user.session_id, current_user.actor.id)


def session_limits() -> tuple[timedelta, timedelta]:
    """Return the longest time that a session lasts in all, and unused."""
    configured = settings()
    return timedelta(hours=configured.session_hours), timedelta(
        minutes=configured.session_idle_minutes
    )


def _load(token: str) -> SignedIn | None:
    # What a page asks for by itself while nobody sits before it keeps no session open.
    by_itself = request.method == "GET" and "HX-Request" in request.headers
    user = standing.current(
        lambda: sessions.find(engine(), token, *session_limits(), used=not by_itself)
    )
    return None if user is None else SignedIn(user, token)


#: What somebody with a one-time password may ask for.
_BEFORE_CHANGE = frozenset(
    {
        "account.password",
        "account.change_password",
        "sign_in.sign_out",
        "static",
        # they ask no database who a cookie's person is: it may hang
        "livez",
        "readyz",
        "healthz",
    }
)


def _change_first() -> BaseResponse | None:
    """Redirect a user who signed in with a one-time password until they choose their own."""
    if (
        request.path.startswith("/api/")
        or request.endpoint in _BEFORE_CHANGE
        or "_user_id" not in session
    ):
        return None
    if current_user.is_authenticated and current_user.must_change:
        return redirect(url_for("account.password"), 303)
    return None


_SIGNED_OUT = (
    '<p class="note note-bad" role="alert">You were signed out. Send the form all the same: you '
    "sign in then, and what you typed is kept.</p>"
)


def unauthorized() -> BaseResponse:
    """Return the way to the sign-in, and back from there to what was asked for."""
    if request.headers.get("HX-Request"):
        if request.method == "POST":  # the page has a form, which is not to be lost
            return Response(_SIGNED_OUT, 401)
        # a part of a page can't show a sign-in: the page goes there
        return Response(status=401, headers={"HX-Redirect": url_for("sign_in.form")})
    wanted = f"{request.script_root}{request.full_path}".rstrip("?")
    elsewhere = request.method == "GET" and wanted != url_for("datasets.catalogue")
    return redirect(url_for("sign_in.form", next=wanted if elsewhere else None), 303)


def local_path(address: str | None) -> str:
    """`address` where it is a path of this service, else the front page: no redirects elsewhere."""
    front = url_for("datasets.catalogue")
    begins = address is not None and address.startswith(front) and not address.startswith("//")
    return (
        address if address and begins and "\\" not in address and address.isprintable() else front
    )


def init_app(app: Flask) -> None:
    """Sessions for the pages."""
    manager = LoginManager(app)
    manager.user_loader(_load)
    app.before_request(_change_first)
    nobodys_hash()  # now, or the first unknown name would take twice the time


# --- who acts -----------------------------------------------------------------------------------


def authenticate_token() -> None:
    """Take the actor of an API request from its bearer token; 401 without a good one.

    A token may do no more than its owner's roles allow now, and of that what its scopes name.
    """
    user = _owner_of_token()
    if user is None:
        abort(401)
    needed = scopes.needed(request.endpoint or "", request.method)
    missing = [scope for scope in needed if scope not in user.scopes]
    if missing:
        raise NotPermitted(
            f"this token's scopes are {', '.join(user.scopes)}; this needs {', '.join(needed)}"
        )
    g.actor, g.scopes, g.token_id = credentials.actor_of(user), tuple(user.scopes), user.token_id


def _owner_of_token() -> Any | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.isascii():
        return None
    return standing.current(lambda: credentials.user_of_token(engine(), token.strip()))


def roles_of_sender() -> frozenset[str]:
    """Return the roles of this request's sender, by token or session; a stranger has none."""
    # the server asks before it reads a body, and answers nobody meanwhile
    g.asks_no_provider = True
    owner = _owner_of_token()
    if owner is not None:
        return frozenset(owner.roles)
    return current_user.actor.roles if current_user.is_authenticated else frozenset()


def current_actor() -> Actor:
    """Return the actor of this request: the token's owner on the API, the session's on pages."""
    actor: Actor | None = g.get("actor")
    if actor is None and current_user.is_authenticated:
        actor = current_user.actor
    if actor is None:
        abort(401)
    return actor


def needs_role(*roles: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a view for people with one of `roles`."""

    def wrap(view: Callable[P, R]) -> Callable[P, R]:
        @wraps(view)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            current_actor().require(*roles)
            return view(*args, **kwargs)

        return checked

    return wrap


# --- devices ------------------------------------------------------------------------------------

# The cookie of a browser in which somebody has signed in by password (OWASP: device cookies). It
# proves nothing but that. Failures of a browser with it are counted for themselves, so that no
# stranger's failures keep its owner out.

DEVICE_SECONDS = 180 * 24 * 3600


def device_of(name: str) -> str | None:
    """Return the device of this request if its cookie is of somebody of this name, else None."""
    try:
        whose, device = _device_signer().loads(
            request.cookies.get(_device_cookie(), ""), max_age=DEVICE_SECONDS
        )
    except (BadSignature, ValueError, TypeError):
        return None
    return device if whose == _trace(name) and isinstance(device, str) else None


def remember_device(response: BaseResponse, name: str) -> BaseResponse:
    """Give the browser the cookie of somebody who has just signed in there by password."""
    device = device_of(name) or secrets.token_hex(16)
    response.set_cookie(
        _device_cookie(),
        _device_signer().dumps([_trace(name), device]),
        max_age=DEVICE_SECONDS,
        httponly=True,
        samesite="Lax",
        secure=request.is_secure,
        path=request.script_root or "/",
    )
    return response


def _device_cookie() -> str:
    return f"{current_app.config['SESSION_COOKIE_NAME']}_device"


def _device_signer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(str(current_app.secret_key), salt="device")


def _trace(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
