"""What the API answers with about people and what is theirs: accounts, tokens, webhooks, files."""

from typing import Literal

from pydantic import Field

from accountant.identities.credentials import SCOPES
from accountant.identities.sign_ins import METHODS, OUTCOMES
from web.api.answers import Answer, Id, Json, Sha256, Time

# --- accounts -----------------------------------------------------------------------------------


class NewAccount(Answer):
    """An account that was just made."""

    id: Id
    name: str
    roles: list[str]
    password: str | None = Field(None, description="one-time, where none was given; shown this once")
    password_expires: Time | None = None


class Lock(Answer):
    """What stands against a name after failures to sign in."""

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
    provider: str | None = Field(description="the issuer, of an account at an OpenID Connect provider")
    locked: Lock | None


class Named(Answer):
    """The account that something was done to."""

    name: str


class RolesOf(Answer):
    """An account's roles."""

    name: str
    roles: list[str]


class Activity(Answer):
    """Whether an account is open."""

    name: str
    active: bool


class OneTime(Answer):
    """A one-time password. It is shown here and nowhere else."""

    name: str
    password: str
    password_expires: Time


class Revoked(Answer):
    """How many tokens ended."""

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
    """What ended, by its id."""

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


# --- webhooks -----------------------------------------------------------------------------------


class Event(Answer):
    """What a webhook may be told of."""

    event: str
    meaning: str
    seen_by: Literal["overseers", "analyst and overseers"]


class Webhook(Answer):
    """An address that is told."""

    id: Id
    url: str
    events: list[str]
    active: bool
    disabled_reason: str | None
    disabled_at: Time | None
    last_success_at: Time | None
    created_at: Time


class NewWebhook(Webhook):
    """A new webhook with its secret, which is shown here and nowhere else."""

    secret: str


class Removed(Answer):
    """What is gone."""

    id: Id
    removed: bool


class Secret(Answer):
    """A new secret. It is shown here and nowhere else."""

    id: Id
    secret: str


class Sent(Answer):
    """A message that is on its way."""

    delivery: Id


class Delivery(Answer):
    """A message and what came of it."""

    id: Id
    event: str
    data: Json
    state: Literal["pending", "delivered", "failed", "dropped"]
    attempts: int
    status: int | None = Field(description="of the receiver's last answer")
    problem: str | None
    next_attempt_at: Time | None
    occurred_at: Time
    attempted_at: Time | None


# --- files --------------------------------------------------------------------------------------


class Upload(Answer):
    """A file that is kept."""

    address: str = Field(description="for `uri` of a dataset or corpus")
    sha256: Sha256
    format: str
    compression: str | None
    bytes: int
    uncompressed_bytes: int
    columns: list[str]
    uploaded_by: str
    uploaded_at: Time
    datasets: list[str] = Field(description="that were registered with it")
    expires_at: Time | None = Field(description="when it is destroyed; null: something names it")


class Discarded(Answer):
    """A file that is gone."""

    sha256: Sha256
    removed: bool
