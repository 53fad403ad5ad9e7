"""The fields of webhooks and of the messages that they are sent."""

from typing import Literal

from pydantic import Field

from accountant.schema.base import Answer, Id, Json, Time


class Event(Answer):
    """An event that a webhook may subscribe to."""

    event: str
    meaning: str
    seen_by: Literal["overseers", "analyst and overseers"]


class Webhook(Answer):
    """An address that is told."""

    id: Id
    kind: Literal["webhook", "chat", "mail"] = Field(
        description="a signed message, a sentence to a chat, or mail"
    )
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
    """The id of a webhook that is gone."""

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
