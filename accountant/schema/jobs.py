"""The fields of a job: the request, its price and state, its entries, what it published."""

from typing import Literal

from pydantic import Field

from accountant.schema.base import Answer, Id, Json, Sha256, State, Time


class Refusal(Answer):
    """The refusal of a request: `asked` and `left` are decimals in the unit of the binding cap."""

    cap: str = Field(description="what binds: a filter, ex-post, secret, a cap of the policy, ...")
    left: str
    asked: str
    why: str
    size_field: str | None
    largest: int | float | None = Field(
        description="the largest value of `size_field` that would fit. A list of decisions looks "
        "for none, and has neither"
    )
    by: str | None = Field(None, description="of a job: `account`, or the steward who said no")


class Progress(Answer):
    """A job's progress, in public quantities."""

    done: int = Field(description="steps; 0 to the end where how far it is may not be told")
    total: int
    unit: str


class Comment(Answer):
    """What somebody said about a job."""

    author: str
    kind: Literal["comment", "question", "answer"]
    text: str
    created_at: Time


class JobInList(Answer):
    """A job."""

    id: Id
    name: str = Field(
        description="for people: what it makes, its purpose, its day and its place in the dataset"
    )
    dataset: str
    mechanism: str
    model: str | None
    analyst: str
    purpose: str
    project: str | None
    vouched: Literal["measured", "signed", "stated"] = Field(
        description="who says what it released: this service's meter, a runner's key, or a person"
    )
    parameters: Json
    terms: Json = Field(description="what the price rests on: neighbours, delta, labels, ...")
    event: Json | None
    epsilon_alone: float | None
    pure: float | None = Field(None, description="the ε of a cost without any δ; null: it has one")
    ex_post_cap: float | None
    delta: float
    breakdown: list[str]
    state: State
    refusal: Refusal | None
    asked_back: bool = Field(
        description="it waits for its analyst's answer to a steward's question"
    )
    analyst_left: str | None = Field(
        description="while it is not decided: why its analyst may ask for no job any more; null: "
        "they may"
    )
    decision_reason: str | None
    attempt: int
    cancel_requested: bool
    progress: Progress
    failure: str | None
    output_sha256: Sha256 | None
    source_job: Id | None
    created_at: Time
    approval_expires: Time | None
    decided_at: Time | None
    queued_at: Time | None
    started_at: Time | None
    finished_at: Time | None


class EntryOfJob(Answer):
    """An entry of the ledger that belongs to a job."""

    seq: int
    kind: str
    costs: Json | None
    outcome: str | None


class Job(JobInList):
    """A job with its entries in the ledger."""

    decided_by: str | None
    entries: list[EntryOfJob]
    comments: list[Comment] = Field(description="oldest first; 200 at most")


class Card(Answer):
    """The data card of a published output."""

    format: str
    version: int
    job: Id
    dataset: Json
    mechanism: Json
    guarantee: str = Field(description="one true sentence")
    privacy_loss: Json | None = Field(
        description="epsilon and delta of the guarantee; null where it has none"
    )
    reserved: Json = Field(description="what was set aside: epsilon alone at delta")
    charged: Json
    ex_post_cap: str | None
    statement: Json = Field(description="what holds of everything that the dataset ever published")
    parameters: Json
    model: Json | None
    lineage: Json
    output: Json
    artifacts: list[Json]
    ledger: Json = Field(description="the entries, each with its hash")
    cite: str
    limits: list[str]


class Artifact(Answer):
    """A release of a job besides its texts; a job that reads only artifacts costs nothing."""

    job: Id
    name: str
    kind: str
    media_type: str
    sha256: Sha256
    size: int = Field(description="bytes")
    dataset: str
    mechanism: str
    model: str | None
    entry: int
    created_at: Time | None = Field(description="null to an analyst where data was read for it")
