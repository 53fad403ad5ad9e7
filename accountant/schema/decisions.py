"""The fields of what people decide: requests that wait, offers, proposals."""

from typing import Literal

from pydantic import Field

from accountant.schema.base import Answer, Id, Json, Time
from accountant.schema.jobs import JobInList
from accountant.schema.quotes import Effect


class Waiting(JobInList):
    """A request that awaits approval."""

    effect: Effect | None = Field(description="null: it can't be priced any more")


class OfferQuote(Answer):
    """The price of a smaller request."""

    parameters: Json
    terms: Json
    epsilon_alone: float | None
    breakdown: list[str]
    delta: float
    larger: list[str] = Field(description="where it costs more than what was asked: it can't be offered")
    effect: Effect | None


class Change(Answer):
    """A parameter that differs."""

    field: str
    asked: object | None
    offered: object | None


class Offer(Answer):
    """A smaller request that a steward offers in place of one that was refused for it."""

    id: Id
    job: Id
    dataset: str
    mechanism: str
    analyst: str
    project: str | None
    purpose: str
    parameters: Json
    changes: list[Change]
    terms: Json
    epsilon_alone: float | None
    asked_epsilon_alone: float | None
    delta: float
    breakdown: list[str]
    reason: str
    state: Literal["open", "accepted", "declined", "withdrawn", "expired"]
    offered_by: str
    left: str | None = Field(
        description="while it is open: why it can't be accepted, as its analyst or its steward left"
    )
    decision_reason: str | None
    accepted_job: Id | None
    created_at: Time
    expires_at: Time
    decided_at: Time | None


class OfferWithEffect(Offer):
    """An offer, and what accepting it would do now."""

    effect: Effect | None


class Proposal(Answer):
    """A change that one steward asks for and another confirms."""

    id: Id
    kind: Literal["allowance", "correction", "policy"]
    dataset: str
    job: Id | None
    asked: Json
    reason: str
    state: Literal["open", "confirmed", "withdrawn", "expired"]
    proposed_by: str
    proposer_left: str | None = Field(
        description="while it is open: why it can't be confirmed, as who proposed it left"
    )
    decided_by: str | None
    decision_reason: str | None
    entry: int | None
    created_at: Time
    expires_at: Time
    decided_at: Time | None
    weakens: list[str] = Field(
        [], description="of a policy: the fields by which it admits more or asks for less"
    )
    acts_on_stewards: list[Json] = Field(
        [],
        description="while it is open: acts of the last 30 days after which a steward's account may be in "
        "other hands, as {at, actor, action, account}: who seem to be two people may be one",
    )


class Proposed(Answer):
    """A proposal that waits for a second steward."""

    proposal: Proposal
