"""The fields of a request for access to a dataset."""

from typing import Literal

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
