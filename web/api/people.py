"""Sign-in for programs, and accounts."""

from datetime import UTC, datetime, timedelta

from flask import Response, abort, jsonify
from pydantic import Field

from accountant import registry, reports
from web.api import answers, api
from web.api.bodies import MAX_PAGE, Body, read
from web.api.openapi import Operation, describe, listing
from web.api.paging import page, read_window
from web.app import engine
from web.auth import current_actor, hash_password, user_of_password

TOKEN_DAYS = 30


class Credentials(Body):
    """A name and its password."""

    name: str = Field(max_length=200)
    password: str


class NewUser(Body):
    """An account to be."""

    name: str = Field(pattern=registry.NAME)
    password: str
    roles: list[str] = Field(max_length=20)


@api.post("/session")
@describe(Operation(body=Credentials, status=201, public=True, answer=answers.SignedIn, refusals=(401,)))
def sign_in() -> tuple[Response, int]:
    """A new token for a name and password.

    It is shown once: the server keeps its hash. Each request makes another token, so it takes no
    Idempotency-Key.
    """
    body = read(Credentials)
    user = user_of_password(body.name, body.password)
    if user is None:
        abort(401)
    expires = datetime.now(UTC) + timedelta(days=TOKEN_DAYS)
    token = registry.add_token(engine(), user.id, "session", expires)
    answer = {"token": token, "expires_at": expires.isoformat(), "name": user.name, "roles": user.roles}
    return jsonify(answer), 201


@api.get("/me")
@describe(Operation(answer=answers.Me))
def me() -> Response:
    """Whose token this is."""
    actor = current_actor()
    return jsonify(name=actor.name, roles=sorted(actor.roles))


@api.get("/users")
@describe(Operation(answer=listing("users", answers.User, paged=True), roles=("administrator",)))
def users() -> Response:
    """Accounts of people, by name."""
    window = read_window((("name", str),), default=MAX_PAGE)
    return page("users", reports.users(engine(), current_actor(), **window.reads), window)


@api.post("/users")
@describe(Operation(body=NewUser, status=201, answer=answers.NewAccount, roles=("administrator",)))
def add_user() -> tuple[Response, int]:
    """A new account.

    Its name is its key: asked again, the answer is 409.
    """
    current_actor().require("administrator")
    body = read(NewUser)
    roles = sorted(set(body.roles))
    user_id = registry.add_user(engine(), body.name, hash_password(body.password), roles)
    return jsonify(id=str(user_id), name=body.name, roles=roles), 201
