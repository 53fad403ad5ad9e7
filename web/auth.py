"""Who is asking: passwords, sessions in the browser, bearer tokens, roles.

A failed sign-in takes as long for an unknown name as for a wrong password, and says no more.
"""

import hashlib
import time
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from flask import Flask, Response, abort, g, redirect, request, session, url_for
from flask_login import LoginManager, UserMixin, current_user, login_user
from werkzeug.wrappers import Response as BaseResponse

from accountant import registry
from accountant.core.errors import invalid
from accountant.ledger import Actor
from web.app import engine, settings

MIN_PASSWORD = 12
MAX_PASSWORD = 1024

P = ParamSpec("P")
R = TypeVar("R")

# --- passwords ----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _hasher() -> PasswordHasher:
    return PasswordHasher()


def hash_password(password: str) -> str:
    """The argon2 hash of a new password. Raises InvalidRequest for one that is too short or too long."""
    if not MIN_PASSWORD <= len(password) <= MAX_PASSWORD:
        raise invalid(
            "password", f"{len(password)} characters", f"{MIN_PASSWORD} to {MAX_PASSWORD:,} characters"
        )
    try:
        return _hasher().hash(password)
    except UnicodeEncodeError:
        raise invalid("password", "holds characters that are no text", "any text") from None


def verify_password(stored: str, password: str) -> bool:
    """Whether `password` is the one behind the hash `stored`."""
    try:
        return _hasher().verify(stored, password)
    except (VerificationError, InvalidHashError, UnicodeEncodeError):
        return False


@lru_cache(maxsize=1)
def _nobodys_hash() -> str:
    """What an unknown name is compared with, so that it costs the same work."""
    return _hasher().hash("nobody has this password")


def user_of_password(name: str, password: str) -> Any | None:
    """The active user with this name and password, or None; both failures take the same time."""
    user = registry.find_user(engine(), name=name)
    stored = None if user is None else user.password_hash
    matches = verify_password(stored or _nobodys_hash(), password[: MAX_PASSWORD + 1])
    if not matches or stored is None:
        return None
    if _hasher().check_needs_rehash(stored):
        registry.set_password(engine(), user.id, _hasher().hash(password))  # type: ignore[union-attr]
    return user


# --- sessions in the browser --------------------------------------------------------------------


class SignedIn(UserMixin):  # type: ignore[misc]
    """The user of a session. Its id ends with a trace of the password: a new one ends old sessions."""

    def __init__(self, user: Any) -> None:
        self.actor = registry.actor_of(user)
        trace = hashlib.sha256((user.password_hash or "").encode()).hexdigest()[:16]
        self.session_id = f"{user.id}.{trace}"

    def get_id(self) -> str:
        return self.session_id


def start_session(user: Any) -> None:
    """Sign a user in; what an earlier session held is forgotten."""
    session.clear()
    session.permanent = True
    session["signed_in_at"] = time.time()
    login_user(SignedIn(user))


def _load(session_id: str) -> SignedIn | None:
    # The cookie is signed anew whenever the session changes, so its own age says too little.
    age = time.time() - float(session.get("signed_in_at", 0))
    if age > settings().session_hours * 3600:
        return None
    try:
        user_id = UUID(session_id.partition(".")[0])
    except ValueError:
        return None
    user = registry.find_user(engine(), user_id=user_id)
    found = None if user is None else SignedIn(user)
    return found if found is not None and found.session_id == session_id else None


def _unauthorized() -> BaseResponse:
    if request.headers.get("HX-Request"):  # a part of a page can't show a sign-in: the page goes there
        return Response(status=401, headers={"HX-Redirect": url_for("sign_in.form")})
    wanted = request.full_path.rstrip("?") if request.method == "GET" else None
    return redirect(url_for("sign_in.form", next=wanted if wanted != "/" else None), 303)


def local_path(address: str | None) -> str:
    """`address` where it is a path on this server, else the front page: no redirects elsewhere."""
    front = url_for("datasets.catalogue")
    if not address or not address.startswith("/") or "\\" in address or not address.isprintable():
        return front
    parts = urlsplit(address)
    return front if parts.scheme or parts.netloc or address.startswith("//") else address


def init_app(app: Flask) -> None:
    """Sessions for the pages."""
    manager = LoginManager(app)
    manager.user_loader(_load)
    manager.unauthorized_handler(_unauthorized)
    _nobodys_hash()  # now, or the first unknown name would take twice the time


# --- who acts -----------------------------------------------------------------------------------


def authenticate_token() -> None:
    """Take the actor of an API request from its bearer token; 401 without a good one."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    user = None
    if scheme.lower() == "bearer" and token.isascii():
        user = registry.user_of_token(engine(), token.strip())
    if user is None:
        abort(401)
    g.actor = registry.actor_of(user)


def current_actor() -> Actor:
    """Who acts in this request: the token's owner on the API, the session's on pages."""
    actor: Actor | None = g.get("actor")
    if actor is None and current_user.is_authenticated:
        actor = current_user.actor
    if actor is None:
        abort(401)
    return actor


def needs_role(*roles: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A view for people with one of `roles`."""

    def wrap(view: Callable[P, R]) -> Callable[P, R]:
        @wraps(view)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            current_actor().require(*roles)
            return view(*args, **kwargs)

        return checked

    return wrap
