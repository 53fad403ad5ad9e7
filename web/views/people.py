"""Accounts, for administrators; the log of sign-ins, for auditors too."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from flask import Blueprint, Response, render_template, request
from werkzeug.wrappers import Response as BaseResponse

from accountant.identities import activity_log, credentials, people, sign_ins
from accountant.settings import load
from web.api.parsing import read_id
from web.api.people import SIGN_INS, USERS, found_sign_ins, found_users
from web.auth import current_actor, needs_role
from web.confirmation import needs_fresh
from web.context import engine
from web.passwords import hash_password, new_password
from web.views.forms import BLANK, Form, done, listed, shown_again

pages = Blueprint("people", __name__)

#: role -> what it may do, beside the box that gives it
ROLES = {
    "steward": "registers datasets, sets allowances and policies, decides on requests",
    "analyst": "sees public facts, asks for jobs, reads their results",
    "auditor": "reads the whole ledger and this service's logs, nothing in the data",
    "administrator": "manages accounts",
}


@pages.get("/people")
@needs_role("administrator")
def listing(form: Form = BLANK, once: dict[str, Any] | None = None) -> str:
    """Accounts by name."""
    return listed(
        "people.html",
        USERS,
        found_users,
        ("name", "role", "state"),
        form=form,
        once=once,
        chosen=request.form.getlist("roles"),
        ROLES=ROLES,
        new_account_hours=f"{load().new_account_hours:g}",
    )


@pages.post("/people")
@needs_role("administrator")
@needs_fresh
@shown_again(listing)
def add() -> BaseResponse:
    """A new account with a one-time password, shown on this answer and never again."""
    name, password = request.form.get("name", "").strip(), new_password()
    until = datetime.now(UTC) + people.ONE_TIME
    hashed, roles = hash_password(password, name), sorted(set(request.form.getlist("roles")))
    stated: dict[str, Any] = {"actor": current_actor(), "password_expires": until}
    credentials.add_user(engine(), name, hashed, roles, **stated)
    return Response(listing(once=_once(name, password, until)), 201)


def _once(name: str, password: str, until: datetime) -> dict[str, Any]:
    return {"name": name, "password": password, "until": until.isoformat()}


@pages.get("/people/<name>")
@needs_role("administrator")
def show(name: str, form: Form = BLANK, once: dict[str, Any] | None = None) -> str:
    """One account and what can be done to it."""
    actor = current_actor()
    person = people.show(engine(), actor, name)
    return render_template(
        "person.html",
        person=person,
        tokens=people.tokens(engine(), UUID(person["id"])),
        tries=sign_ins.listing(engine(), actor, name=name, limit=10),
        acts=activity_log.listing(engine(), actor, kind="account", object_id=name, limit=10),
        form=form,
        once=once,
        chosen=request.form.getlist("roles") if form.problems else person["roles"],
        ROLES=ROLES,
    )


def _done(name: str, told: str, act: Callable[..., Any], *args: Any) -> BaseResponse:
    """Do one thing to an account, then show it again."""
    act(engine(), current_actor(), name, *args)
    return done(told, "people.show", name=name)


@pages.post("/people/<name>/roles")
@needs_role("administrator")
@needs_fresh
@shown_again(show)
def set_roles(name: str) -> BaseResponse:
    """Other roles."""
    message = f"{name} has other roles now, and signs in again."
    return _done(name, message, people.set_roles, request.form.getlist("roles"))


#: What is done to an account at one press, and what is told then.
_ACTS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "deactivate": (people.deactivate, "The account of {} is closed."),
    "activate": (people.activate, "The account of {} is open again."),
    "unlock": (people.unlock, "{} can try again at once."),
    "sign-out": (people.end_sessions, "{} is signed out everywhere."),
    "revoke-tokens": (people.revoke_tokens, "No token of {} works any more."),
}


@pages.post(
    "/people/<name>/<any('deactivate', 'activate', 'unlock', 'sign-out', 'revoke-tokens'):act>"
)
@needs_role("administrator")
@shown_again(lambda name, form, **_: show(name, form))
def act(name: str, act: str) -> BaseResponse:
    """Close or open the account, unlock it, or end its sessions or tokens."""
    do, message = _ACTS[act]
    return _done(name, message.format(name), do)


@pages.post("/people/<name>/tokens/<token>/revoke")
@needs_role("administrator")
def revoke_token(name: str, token: str) -> BaseResponse:
    """End one token."""
    people.revoke_token(engine(), current_actor(), read_id(token, "token"))
    return done("The token is revoked.", "people.show", name=name)


@pages.post("/people/<name>/password")
@needs_role("administrator")
@needs_fresh
@shown_again(show)
def reset_password(name: str) -> BaseResponse:
    """A one-time password, shown on this answer and never again."""
    password = new_password()
    until = people.reset_password(engine(), current_actor(), name, hash_password(password, name))
    return Response(show(name, once=_once(name, password, until)), 201)


@pages.get("/sign-ins")
@needs_role(*activity_log.READERS)
def log() -> str:
    """Tries to sign in, newest first."""
    choices: dict[str, Any] = {"outcomes": sign_ins.OUTCOMES, "methods": sign_ins.METHODS}
    filters = ("name", "outcome", "method")
    return listed("sign_ins.html", SIGN_INS, found_sign_ins, filters, **choices)
