"""The fields of a request for access to a dataset."""

from typing import Literal

from pydantic import Field

from accountant.schema.base import Answer, Id, Time


class AccessRequest(Answer):
    """A request for access. `may_ask`: whether the policy lets its person ask by now."""

    id: Id
    dataset: str
    person: str
    reason: str
    state: Literal["open", "granted", "refused"]
    answer: str | None
    decided_by: str | None
    created_at: Time
    decided_at: Time | None
    may_ask: bool
    person_left: str | None = Field(
        description="while it is open: why it can't be granted, as its person left"
    )
