"""The fields of what a second person decides."""

from typing import Literal, get_args

from pydantic import Field

from accountant.schema.base import Answer, Id, Json, Time
from accountant.schema.datasets import Preview
from accountant.schema.jobs import JobInList
from accountant.schema.quotes import Effect

DecisionKind = Literal[
    "approval",
    "offer",
    "allowance",
    "correction",
    "policy",
    "access",
    "loss",
    "overdraft",
    "push",
]
KINDS: tuple[DecisionKind, ...] = get_args(DecisionKind)
STATES = ("open", "accepted", "refused", "withdrawn", "expired")


class OfferQuote(Answer):
    """The price of a smaller request."""

    parameters: Json
    terms: Json
    epsilon_alone: float | None
    breakdown: list[str]
    delta: float
    larger: list[str] = Field(
        description="where it costs more than what was asked: it can't be offered"
    )
    effect: Effect | None


class Change(Answer):
    """A parameter that differs."""

    field: str
    asked: object | None
    offered: object | None


class OfferedJob(Answer):
    """A smaller job that a steward offers in place of one that was refused for it."""

    mechanism: str
    model: str | None
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


class Decision(Answer):
    """Something that a second person answers."""

    id: Id = Field(description="of an approval, that of the job")
    kind: DecisionKind
    dataset: str
    asks: str = Field(description="what a yes does, in a few words")
    reason: str
    state: Literal["open", "accepted", "refused", "withdrawn", "expired"]
    asked_by: str
    created_at: Time
    expires_at: Time | None
    may_say: list[Literal["yes", "no"]] = Field(description="what you may answer while it is open")
    left: str | None = Field(
        None,
        description="while it is open: why it can't be accepted, as somebody whom it takes left",
    )
    answered_by: str | None = None
    answered_at: Time | None = None
    answer: str | None = None
    job: Id | None = Field(None, description="the job that it is about")
    entry: int | None = Field(None, description="the entry that a yes wrote")
    made_job: Id | None = Field(None, description="the job that a yes made")
    made_decision: Id | None = Field(None, description="what a yes asks of a further person")
    asked: Json = Field(
        default_factory=dict,
        description="of an allowance, a correction, a policy, an overdraft and a push",
    )
    weakens: list[str] = Field(
        [], description="of a policy: the fields by which it admits more or asks for less"
    )
    acts_on_stewards: list[Json] = Field(
        [],
        description="of an open one that takes two stewards: acts of the last 30 days after which "
        "a "
        "steward's account may be in other hands, as {at, actor, action, account}: who seem to be "
        "two people "
        "may be one",
    )
    request: JobInList | None = Field(None, description="of an approval: the job that awaits it")
    offer: OfferedJob | None = Field(None, description="of an offer: the job that is offered")
    effect: Effect | None = Field(
        None, description="of an open approval or offer; null: it can't be priced any more"
    )
    change: Preview | None = Field(
        None,
        description="of an open allowance: its effect; null: the account can't bear it any more",
    )


class Asked(Answer):
    """A change that waits for a second person."""

    decision: Decision
