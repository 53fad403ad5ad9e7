"""Before a sensitive act on a page, its person shows again who they are, where that was too long
ago.

By a touch of a passkey, or the password, or by signing in again, in another tab, at the provider
that they came from; then the form that came is sent again by itself.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

from flask import Response, request, url_for
from flask_login import current_user
from werkzeug.exceptions import TooManyRequests

from accountant.core.errors import NotPermitted
from accountant.identities import passkeys as kept
from accountant.identities import sessions
from web import oidc, passkeys
from web.auth import user_of_password
from web.context import engine, here, settings

_WORDS = (
    "You signed in a while ago. Before this act, show that it is still you; it is done at once "
    "then, as you have just confirmed it."
)
_TOUCH = "Touch one of your passkeys: who holds your session alone can't take them away."
_NEITHER = (
    "You have neither a password here nor a passkey: sign out, sign in again, and do it then."
)


def needs_fresh(view: Callable[..., Any]) -> Callable[..., Any]:
    """Return a view that acts for somebody who just showed who they are (fresh_minutes)."""

    @wraps(view)
    def checked(*args: Any, **kwargs: Any) -> Any:
        redirect = first()
        return view(*args, **kwargs) if redirect is None else redirect

    return checked


def by_passkey() -> Response | None:
    """Return the page that asks for a touch of a passkey, however fresh the session; None: it was
    touched.

    Whoever has one alone may have lost it, and shows by any way who they are.
    """
    several = len(kept.of(engine(), current_user.actor.id)) > 1
    anew = several or current_user.method != "provider"  # which confirms by signing in anew
    return first(anew=anew, touched=several)


def first(*, anew: bool = False, touched: bool = False) -> Response | None:
    """Return the page that asks who it is; None where that is known, or was just answered.

    `anew`: what was shown before does not count; `touched`: neither does anything but a passkey.
    """
    minutes = settings().fresh_minutes
    shown: datetime | None = current_user.shown_at
    fresh = shown is not None and datetime.now(UTC) - shown < timedelta(minutes=minutes)
    if not anew and (not minutes or fresh):
        return None
    problem, status = "", 403
    try:
        if passkeys.answered_again(current_user.actor) if touched else _answered():
            sessions.confirmed(engine(), current_user.session_id)
            return None
        if passkeys.PASSWORD in request.form:
            problem = "This is not your password."
    except NotPermitted as error:
        problem = str(error)
    except TooManyRequests as error:
        problem, status = f"{error.description}.", 429
    actor = current_user.actor
    redirect = passkeys.ask_again(actor) if kept.of(engine(), actor.id) else None
    provider = oidc.name() if current_user.method == "provider" and not touched else None
    if provider is not None and passkeys.CONFIRMING in request.form and not problem:
        problem = f"{provider} has not confirmed it yet."
    can_confirm = redirect is not None or current_user.has_password or provider is not None
    page = passkeys.page(
        redirect,
        title="Is it still you?",
        words=_TOUCH if touched else _WORDS if can_confirm else _NEITHER,
        action=here(),
        back=request.referrer or url_for("datasets.catalogue"),
        values={passkeys.CONFIRMING: ["1"]},
        password=current_user.has_password and not touched,
        provider=provider,
        problem=problem,
    )
    page.status_code = status
    return page


def _answered() -> bool:
    typed = request.form.get(passkeys.PASSWORD)
    if typed is None:
        return passkeys.answered_again(current_user.actor)
    return (
        user_of_password(current_user.actor.name, typed, "page", "password confirmed") is not None
    )
