"""Sign-in for programs; accounts and tokens."""

from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Response, abort, g, jsonify, request
from pydantic import Field

from accountant.core import names
from accountant.core.errors import NotPermitted, invalid
from accountant.identities import credentials, people, sign_ins
from accountant.schema.people import (
    Activity,
    Ended,
    Me,
    Named,
    NewAccount,
    NewToken,
    OneTime,
    Revoked,
    RolesOf,
    SignedIn,
    SignIn,
    Token,
    User,
)
from web.api.blueprint import api
from web.api.openapi import Operation, describe, listing
from web.api.paging import BY_NAME, Order, Window, page, read_window
from web.api.parsing import MAX_PAGE, Body, read, read_choice, read_id
from web.auth import current_actor, needs_passkey, user_of_password
from web.context import engine
from web.passwords import MIN_PASSWORD, hash_password, new_password

TOKEN_DAYS = 30
SIGN_INS = Order("sign-ins", (("id", int),))
USERS = Order("users", BY_NAME, MAX_PAGE)
_NAME = {"type": "string", "description": "how the name begins"}
_PASSWORD = f"at least {MIN_PASSWORD} characters of any kind"


class Credentials(Body):
    """A name and its password."""

    name: str = Field(max_length=200)
    password: str


class NewUser(Body):
    """An account to be."""

    name: str = Field(pattern=names.NAME)
    password: str | None = Field(
        None, description=f"{_PASSWORD}; without it a one-time password is made"
    )
    roles: list[str] = Field(max_length=20)


class Roles(Body):
    """Roles instead of those there are."""

    roles: list[str] = Field(max_length=20, description=", ".join(credentials.ROLES))


class NewPassword(Body):
    """A password of one's own instead of another."""

    current: str = Field(description="your password as it is")
    new: str = Field(description=_PASSWORD)


class TokenRequest(Body):
    """A request for a token: its purpose, its scopes and its lifetime."""

    name: str = Field(
        max_length=100, description="what it is for, so that you know when to revoke it"
    )
    scopes: list[str] = Field(
        max_length=20, description="what it may do: `" + "`, `".join(credentials.SCOPES) + "`"
    )
    days: int = Field(
        30, ge=1, le=people.MOST_TOKEN_DAYS, description="days after which it expires"
    )


# --- oneself ------------------------------------------------------------------------------------


@api.post("/session")
@describe(
    Operation(body=Credentials, status=201, public=True, answer=SignedIn, refusals=(401, 403))
)
def sign_in() -> tuple[Response, int]:
    """A new token with every scope for a name and password; it is shown once."""
    body = read(Credentials)
    user = user_of_password(body.name, body.password, "api")
    if user is None:
        abort(401)
    if user.password_expires is not None:
        raise NotPermitted(
            "this is a one-time password: sign in on the page and choose one of your own first"
        )
    if needs_passkey(user):
        raise NotPermitted(
            "your passkey is asked for after the password, which takes a browser: make a token on "
            "the page"
        )
    expires = datetime.now(UTC) + timedelta(days=TOKEN_DAYS)
    token = credentials.sign_in_token(engine(), user, expires)
    if token is None:
        abort(401)
    answer = {
        "token": token,
        "expires_at": expires.isoformat(),
        "name": user.name,
        "roles": user.roles,
    }
    return jsonify(answer), 201


@api.delete("/session")
@describe(Operation(answer=Ended))
def sign_out() -> Response:
    """Revoke the token of this request. Other tokens of the same person stay valid."""
    people.revoke_token(engine(), current_actor(), g.token_id)
    return jsonify(id=str(g.token_id))


@api.get("/me")
@describe(Operation(answer=Me))
def me() -> Response:
    """The token's owner, and what the token may do."""
    actor = current_actor()
    return jsonify(name=actor.name, roles=sorted(actor.roles), scopes=g.scopes)


@api.post("/me/password")
@describe(Operation(body=NewPassword, refusals=(429,), answer=Named))
def change_password() -> Response:
    """Change one's password. Sessions and sign-ins' tokens end, this one included."""
    actor, body = current_actor(), read(NewPassword)
    wrong = invalid(
        "current", "is not the password of this account", "the password that you sign in with"
    )
    user = user_of_password(actor.name, body.current, "api", "password confirmed")
    if user is None:
        raise wrong
    hashed = hash_password(body.new, actor.name, field="new")
    if not credentials.set_password(
        engine(), actor.id, hashed, actor=actor, replaces=user.password_hash
    ):
        raise wrong
    return jsonify(name=actor.name)


@api.post("/me/sign-out-everywhere")
@describe(Operation(answer=Named))
def sign_out_everywhere() -> Response:
    """End every session of one's own, and every token that a sign-in made."""
    people.end_sessions(engine(), current_actor(), current_actor().name)
    return jsonify(name=current_actor().name)


@api.get("/me/tokens")
@describe(Operation(answer=listing("tokens", Token)))
def tokens() -> Response:
    """One's own tokens that work, newest first."""
    return jsonify(tokens=people.tokens(engine(), current_actor().id))


@api.post("/me/tokens")
@describe(Operation(body=TokenRequest, status=201, answer=NewToken))
def make_token() -> tuple[Response, int]:
    """A new token of one's own with some scopes; it is shown once."""
    body = read(TokenRequest)
    return jsonify(
        people.make_token(engine(), current_actor(), body.name, body.scopes, body.days)
    ), 201


@api.post("/me/tokens/<token>/revoke")
@describe(Operation(answer=Ended))
def revoke_token(token: str) -> Response:
    """End a token of one's own, or anybody's by an administrator."""
    people.revoke_token(engine(), current_actor(), read_id(token, "token"))
    return jsonify(id=token)


@api.get("/sign-ins")
@describe(
    Operation(
        query={
            "name": {"type": "string"},
            "outcome": {"type": "string", "enum": list(sign_ins.OUTCOMES)},
            "method": {"type": "string", "enum": list(sign_ins.METHODS)},
        },
        answer=listing("sign_ins", SignIn, paged=SIGN_INS),
    )
)
def sign_in_log() -> Response:
    """List attempts to sign in, newest first; without a role only one's own."""
    window = read_window(SIGN_INS)
    return page("sign_ins", found_sign_ins(window), window)


def found_sign_ins(window: Window) -> list[dict[str, Any]]:
    """Return attempts to sign in with the filters of the address."""
    return sign_ins.listing(
        engine(),
        current_actor(),
        name=request.args.get("name") or None,
        outcome=read_choice("outcome", sign_ins.OUTCOMES),
        method=read_choice("method", sign_ins.METHODS),
        **window.reads,
    )


# --- everybody ----------------------------------------------------------------------------------


@api.get("/users")
@describe(
    Operation(
        query={
            "name": _NAME,
            "role": {"type": "string", "enum": list(credentials.ROLES)},
            "state": {"type": "string", "enum": ["open", "closed"]},
        },
        answer=listing("users", User, paged=USERS),
        roles=("administrator",),
    )
)
def users() -> Response:
    """Accounts by name, for administrators."""
    window = read_window(USERS)
    return page("users", found_users(window), window)


def found_users(window: Window) -> list[dict[str, Any]]:
    """Return accounts with the filters of the address."""
    state = read_choice("state", ("open", "closed"))
    return people.listing(
        engine(),
        current_actor(),
        name=request.args.get("name", "").strip().lower(),
        role=read_choice("role", credentials.ROLES),
        active=None if state is None else state == "open",
        **window.reads,
    )


@api.post("/users")
@describe(Operation(body=NewUser, status=201, answer=NewAccount, roles=("administrator",)))
def add_user() -> tuple[Response, int]:
    """A new account, by an administrator; a one-time password that was made is shown once."""
    actor = current_actor()
    actor.require("administrator")
    body = read(NewUser)
    roles = sorted(set(body.roles))
    password = new_password() if body.password is None else None
    hashed = hash_password(password or body.password or "", body.name)
    until = None if password is None else datetime.now(UTC) + people.ONE_TIME
    user_id = credentials.add_user(
        engine(), body.name, hashed, roles, actor=actor, password_expires=until
    )
    answer = {"id": str(user_id), "name": body.name, "roles": roles}
    once = (
        {}
        if password is None or until is None
        else {"password": password, "password_expires": until.isoformat()}
    )
    return jsonify(answer | once), 201


@api.get("/users/<name>")
@describe(Operation(answer=User, roles=("administrator",)))
def user(name: str) -> Response:
    """One account, with its lock, for administrators."""
    return jsonify(people.show(engine(), current_actor(), name))


@api.get("/users/<name>/tokens")
@describe(Operation(answer=listing("tokens", Token), roles=("administrator",)))
def tokens_of_user(name: str) -> Response:
    """The tokens of an account that work, for administrators; never the tokens themselves."""
    person = people.show(engine(), current_actor(), name)
    return jsonify(tokens=people.tokens(engine(), read_id(person["id"])))


@api.put("/users/<name>/roles")
@describe(Operation(body=Roles, answer=RolesOf, roles=("administrator",)))
def set_roles(name: str) -> Response:
    """Other roles for an account; its sessions end."""
    actor = current_actor()
    actor.require("administrator")
    people.set_roles(engine(), actor, name, read(Roles).roles)
    return jsonify(name=name, roles=sorted(set(read(Roles).roles)))


@api.post("/users/<name>/deactivate")
@describe(Operation(refusals=(409,), answer=Activity, roles=("administrator",)))
def deactivate_user(name: str) -> Response:
    """Close an account: its sessions and tokens end at once. The last administrator stays."""
    people.deactivate(engine(), current_actor(), name)
    return jsonify(name=name, active=False)


@api.post("/users/<name>/activate")
@describe(Operation(answer=Activity, roles=("administrator",)))
def activate_user(name: str) -> Response:
    """Open a closed account again."""
    people.activate(engine(), current_actor(), name)
    return jsonify(name=name, active=True)


@api.post("/users/<name>/reset-password")
@describe(Operation(refusals=(409,), answer=OneTime, roles=("administrator",)))
def reset_password(name: str) -> Response:
    """Give an account a one-time password, shown once, and unlock it."""
    password = new_password()
    until = people.reset_password(engine(), current_actor(), name, hash_password(password, name))
    return jsonify(name=name, password=password, password_expires=until.isoformat())


@api.post("/users/<name>/unlock")
@describe(Operation(answer=Named, roles=("administrator",)))
def unlock_user(name: str) -> Response:
    """Forget the failures to sign in to an account."""
    people.unlock(engine(), current_actor(), name)
    return jsonify(name=name)


@api.post("/users/<name>/sign-out")
@describe(Operation(answer=Named, roles=("administrator",)))
def sign_out_user(name: str) -> Response:
    """End every session of an account, and every token that a sign-in made."""
    people.end_sessions(engine(), current_actor(), name)
    return jsonify(name=name)


@api.post("/users/<name>/revoke-tokens")
@describe(Operation(answer=Revoked, roles=("administrator",)))
def revoke_tokens_of_user(name: str) -> Response:
    """End every token of an account."""
    return jsonify(name=name, revoked=people.revoke_tokens(engine(), current_actor(), name))
