"""The fields of accounts, sessions, tokens and tries to sign in."""

from typing import Literal

from pydantic import Field

from accountant.schema.base import Answer, Id, Time

SCOPES = ("read", "jobs:submit", "budget:approve", "data:manage", "admin")
#: How somebody may try to sign in, and what may come of it.
METHODS = ("page", "api", "provider", "passkey")
OUTCOMES = (
    "signed in",
    "wrong password",
    "unknown name",
    "password expired",
    "password to be changed",
    "password confirmed",
    "too many failures",
    "no role",
    "account closed",
    "provider refused",
    "wrong passkey",
    "too many groups",
)


class SignedIn(Answer):
    """A new token. It is shown here and nowhere else: the server keeps a hash."""

    token: str
    expires_at: Time
    name: str
    roles: list[str]


class Maintenance(Answer):
    """Whether the service admits nothing for a while, and why."""

    on: bool
    running_jobs: int = Field(description="jobs that go on to their end")
    reason: str | None = None
    by: str | None = None
    since: Time | None = None


class Me(Answer):
    """The owner of a token, and what the token may do."""

    name: str
    roles: list[str]
    scopes: list[str]


class NewAccount(Answer):
    """An account that was just made."""

    id: Id
    name: str
    roles: list[str]
    password: str | None = Field(
        None, description="one-time, where none was given; shown this once"
    )
    password_expires: Time | None = None


class Lock(Answer):
    """The lock on a name after failures to sign in."""

    failures: int
    until: Time | None = Field(description="null: until an administrator unlocks it")


class User(Answer):
    """An account."""

    id: Id
    name: str
    roles: list[str]
    active: bool
    created_at: Time
    signs_in_with: Literal["password", "one-time password", "provider", "nothing"]
    provider: str | None = Field(
        description="the issuer, of an account at an OpenID Connect provider"
    )
    locked: Lock | None


class Named(Answer):
    """The account that something was done to."""

    name: str


class RolesOf(Answer):
    """An account's roles."""

    name: str
    roles: list[str]


class Activity(Answer):
    """The state of an account: open or closed."""

    name: str
    active: bool


class OneTime(Answer):
    """A one-time password. It is shown here and nowhere else."""

    name: str
    password: str
    password_expires: Time


class Revoked(Answer):
    """The number of tokens that were revoked."""

    name: str
    revoked: int


class Token(Answer):
    """A token that works; never the token itself."""

    id: Id
    name: str
    scopes: list[str] = Field(description=", ".join(SCOPES))
    by_sign_in: bool = Field(description="made by signing in: it ends with the sessions")
    created_at: Time
    expires_at: Time | None
    last_used_at: Time | None


class NewToken(Answer):
    """A new token. It is shown here and nowhere else: the server keeps a hash."""

    id: Id
    token: str
    name: str
    scopes: list[str]
    expires_at: Time


class Ended(Answer):
    """The id of something that ended."""

    id: Id


class SignIn(Answer):
    """A try to sign in."""

    id: int
    at: Time
    name: str | None = Field(description="as it was typed; null where it could not be a name")
    method: str = Field(json_schema_extra={"enum": list(METHODS)})
    address: str
    user_agent: str
    outcome: str = Field(json_schema_extra={"enum": list(OUTCOMES)})
