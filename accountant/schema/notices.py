"""The fields of addresses for notices, and of the events that they are told of."""

from typing import Literal

from pydantic import Field

from accountant.core.notices import Kind
from accountant.schema.base import Answer, Id, Time


class Event(Answer):
    """An event that an address may be told of."""

    event: str
    meaning: str
    seen_by: Literal["overseers", "analyst and overseers"]


class Notice(Answer):
    """An address that is told."""

    id: Id
    kind: Kind = Field(
        description="a letter, a chat's incoming address, a card for Teams, JSON, or a RunEvent of "
        "OpenLineage"
    )
    person: str = Field(description="whose roles decide what it is told")
    url: str = Field(description="to others than administrators the host alone, but for mail")
    events: list[str]
    created_at: Time


class Removed(Answer):
    """The id of an address that is told nothing more."""

    id: Id
    removed: bool


class Sent(Answer):
    """A test that is on its way."""

    id: Id
    sent: bool
