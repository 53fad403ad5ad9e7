"""One's own account: password, sessions, tokens, and who tried to sign in under one's name."""

from typing import Any

from flask import Blueprint, Response, flash, redirect, render_template, request, url_for
from flask_login import current_user
from werkzeug.exceptions import TooManyRequests
from werkzeug.wrappers import Response as BaseResponse

from accountant.core.errors import FieldProblem, InvalidRequest, invalid
from accountant.identities import credentials, passkeys, people, sessions, sign_ins
from accountant.transactions.artifacts import OVERSEERS
from web.api.parsing import read_id
from web.auth import current_actor, session_limits, start_session, user_of_password
from web.context import engine
from web.passwords import MIN_PASSWORD, hash_password
from web.scopes import MEANINGS
from web.views.forms import Form, rejected, whole
from web.views.overview import feed

pages = Blueprint("account", __name__)

DAYS = (7, 30, 90, 365)


@pages.get("/account")
def show() -> str:
    """The user's own account: name and roles, sessions, passkeys, and attempts to sign in."""
    return page(Form())


def page(form: Form) -> str:
    """Return the page of one's account; `form`: that of a new passkey."""
    actor = current_actor()
    return render_template(
        "account.html",
        passkeys=passkeys.of(engine(), actor.id),
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
def password() -> str:
    """The form for another password."""
    return _password(Form())


def _password(form: Form) -> str:
    return render_template("account_password.html", form=form, shortest=MIN_PASSWORD)


@pages.post("/account/password")
def change_password() -> BaseResponse:
    """Another password. All other sessions end; this one goes on under a new token."""
    actor = current_actor()
    try:
        confirmed = _confirmed(actor.name)
        new = request.form.get("new", "")
        if new != request.form.get("again", ""):
            raise InvalidRequest(
                [FieldProblem("again", "is not the same as the new password", "the same again")]
            )
        hashed = hash_password(new, actor.name, field="new")
        if not credentials.set_password(
            engine(), actor.id, hashed, actor=actor, replaces=confirmed.password_hash
        ):
            raise _not_yours()
    except InvalidRequest as error:
        return Response(_password(Form({}, error.problems)), 422)
    except TooManyRequests as error:
        page = _password(Form(general=f"{error.description}."))
        return Response(page, 429, {"Retry-After": str(error.retry_after)})
    user = credentials.find_user(engine(), user_id=actor.id)
    if user is None or not start_session(user):
        return redirect(url_for("sign_in.form"), 303)
    flash("Your password is changed. You are signed out everywhere else.")
    return redirect(url_for("account.show"), 303)


def _confirmed(name: str) -> Any:
    """Return the account, once its owner has typed its password: here, or a one-time one just now
    to sign in.
    """
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
def tokens() -> str:
    """One's tokens, and the form for another."""
    return _tokens(Form())


def _tokens(form: Form, made: dict[str, object] | None = None) -> str:
    return render_template(
        "account_tokens.html",
        form=form,
        made=made,
        chosen=request.form.getlist("scopes") if form.values else ["read"],
        tokens=people.tokens(engine(), current_actor().id),
        feed=feed if current_actor().roles & OVERSEERS else None,
        scopes=MEANINGS,
        days=DAYS,
        most_days=people.MOST_TOKEN_DAYS,
    )


@pages.post("/account/tokens")
def make_token() -> BaseResponse:
    """A new token, shown on this answer and never again."""
    days = whole(request.form.get("days", ""))
    try:
        if not isinstance(days, int):
            allowed = f"a whole number from 1 to {people.MOST_TOKEN_DAYS}"
            raise InvalidRequest(
                [FieldProblem("days", "is no number" if days else "is missing", allowed)]
            )
        scopes = request.form.getlist("scopes")
        token = people.make_token(
            engine(), current_actor(), request.form.get("name", ""), scopes, days
        )
    except InvalidRequest as error:
        return Response(_tokens(rejected(error)), 422)
    return Response(_tokens(Form(), token), 201)


@pages.post("/account/tokens/<token>/revoke")
def revoke_token(token: str) -> BaseResponse:
    """End a token of one's own."""
    people.revoke_token(engine(), current_actor(), read_id(token, "token"))
    flash("The token is revoked: whatever used it is refused from now on.")
    return redirect(url_for("account.tokens"), 303)
