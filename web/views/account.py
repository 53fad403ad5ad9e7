"""One's own account: password, sessions, tokens, passkeys, and who tried to sign in as oneself."""

from typing import Any

from flask import Blueprint, Response, redirect, render_template, request, url_for
from flask_login import current_user
from werkzeug.exceptions import TooManyRequests
from werkzeug.wrappers import Response as BaseResponse

from accountant.core.errors import Conflict, InvalidRequest, NotFound, NotPermitted, invalid
from accountant.identities import credentials, people, sessions, sign_ins
from accountant.identities import passkeys as kept
from accountant.transactions.artifacts import OVERSEERS
from web import passkeys
from web.api.parsing import read_id
from web.auth import current_actor, session_limits, start_session, user_of_password
from web.confirmation import by_passkey, needs_fresh
from web.context import engine
from web.passwords import MIN_PASSWORD, hash_password
from web.scopes import MEANINGS
from web.views.forms import BLANK, Form, done, shown_again, whole
from web.views.overview import feed

pages = Blueprint("account", __name__)


@pages.get("/account")
def show(form: Form = BLANK) -> str:
    """The user's own account: name and roles, sessions, passkeys, and attempts to sign in.

    `form`: that of a new passkey.
    """
    actor = current_actor()
    return render_template(
        "account.html",
        passkeys=kept.of(engine(), actor.id),
        passkey_form=form,
        sessions=sessions.of(engine(), actor.id, *session_limits()),
        this=str(current_user.session_id),
        tries=sign_ins.listing(engine(), actor, name=actor.name, limit=10),
    )


@pages.post("/account/sign-out-everywhere")
def sign_out_everywhere() -> BaseResponse:
    """End every session, this one too."""
    people.end_sessions(engine(), current_actor(), current_actor().name)
    return redirect(url_for("sign_in.form"), 303)


# --- password -----------------------------------------------------------------------------------


@pages.get("/account/password")
def password(form: Form = BLANK) -> str:
    """The form for another password."""
    return render_template("account_password.html", form=form, shortest=MIN_PASSWORD)


@pages.post("/account/password")
def change_password() -> BaseResponse:
    """Another password. All other sessions end; this one goes on under a new token."""
    actor = current_actor()
    try:
        confirmed = _confirmed(actor.name)
        new = request.form.get("new", "")
        if new != request.form.get("again", ""):
            raise invalid("again", "is not the same as the new password", "the same again")
        hashed, old = hash_password(new, actor.name, field="new"), confirmed.password_hash
        if not credentials.set_password(engine(), actor.id, hashed, actor=actor, replaces=old):
            raise _not_yours()
    except InvalidRequest as error:
        return Response(password(Form({}, error.problems)), 422)
    except TooManyRequests as error:
        page = password(Form(general=f"{error.description}."))
        return Response(page, 429, {"Retry-After": str(error.retry_after)})
    user = credentials.find_user(engine(), user_id=actor.id)
    if user is None or not start_session(user):
        return redirect(url_for("sign_in.form"), 303)
    return done("Your password is changed. You are signed out everywhere else.", "account.show")


def _confirmed(name: str) -> Any:
    """Return the account once its owner typed its password, or a one-time one to sign in."""
    if current_user.may_choose:
        return credentials.find_user(engine(), user_id=current_user.actor.id)
    user = user_of_password(name, request.form.get("current", ""), "page", "password confirmed")
    if user is None:
        raise _not_yours()
    return user


def _not_yours() -> InvalidRequest:
    return invalid("current", "is not your password", "the one that you signed in with")


# --- tokens -------------------------------------------------------------------------------------


@pages.get("/account/tokens")
def tokens(form: Form = BLANK, made: dict[str, object] | None = None) -> str:
    """One's tokens, and the form for another."""
    return render_template(
        "account_tokens.html",
        form=form,
        made=made,
        chosen=request.form.getlist("scopes") if form.values else ["read"],
        tokens=people.tokens(engine(), current_actor().id),
        feed=feed if current_actor().roles & OVERSEERS else None,
        scopes=MEANINGS,
        most_days=people.MOST_TOKEN_DAYS,
    )


@pages.post("/account/tokens")
@shown_again(tokens)
def make_token() -> BaseResponse:
    """A new token, shown on this answer and never again."""
    days, name = whole(request.form.get("days", "")), request.form.get("name", "")
    if not isinstance(days, int):
        allowed = f"a whole number from 1 to {people.MOST_TOKEN_DAYS}"
        raise invalid("days", "is no number" if days else "is missing", allowed)
    scopes = request.form.getlist("scopes")
    made = people.make_token(engine(), current_actor(), name, scopes, days)
    return Response(tokens(made=made), 201)


@pages.post("/account/tokens/<token>/revoke")
def revoke_token(token: str) -> BaseResponse:
    """End a token of one's own."""
    people.revoke_token(engine(), current_actor(), read_id(token, "token"))
    return done("The token is revoked: whatever used it is refused from now on.", "account.tokens")


# --- passkeys -----------------------------------------------------------------------------------


@pages.post("/account/passkeys")
@needs_fresh
@shown_again(show, errors=(InvalidRequest, Conflict, NotPermitted))
def add_passkey() -> BaseResponse:
    """Ask the browser for a new passkey; with its answer, keep it."""
    actor, name = current_actor(), request.form.get("passkey_name", "")
    kept.check_name(name, "passkey_name")
    if "passkey" not in request.form or passkeys.CONFIRMING in request.form:
        words = f"Your browser makes a passkey for {actor.name}, on this device or on a key."
        where = {"action": url_for("account.add_passkey"), "back": url_for("account.show")}
        return passkeys.page(passkeys.ask_new(actor), title="Add a passkey", words=words, **where)
    passkeys.register(actor, name)
    message = "The passkey is added: it signs you in. Where you sign acts, a policy names it first."
    return done(message, "account.show")


@pages.post("/account/passkeys/<passkey>/remove")
def remove_passkey(passkey: str) -> BaseResponse:
    """Remove a passkey of one's own, after a touch of one."""
    actor, wanted = current_actor(), read_id(passkey, "passkey")
    if str(wanted) not in [each["id"] for each in kept.of(engine(), actor.id)]:
        raise NotFound("passkey", str(wanted))
    redirection = by_passkey()
    if redirection is not None:
        return redirection
    kept.remove(engine(), actor, wanted)
    return done("The passkey is removed: it signs you in no more.", "account.show")
