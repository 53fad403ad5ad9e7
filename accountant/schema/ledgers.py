"""What the API answers stewards and auditors with: the inbox, offers, spending, the audit."""

from typing import Literal

from pydantic import Field

from web.api.answers import (
    Account,
    Answer,
    Decimal,
    Entry,
    ExPostAccount,
    FilterStep,
    Id,
    JobInList,
    Json,
    OtherStep,
    Refusal,
    Room,
    SecretAccount,
    Sha256,
    Time,
)

# --- deciding -----------------------------------------------------------------------------------


class Effect(Answer):
    """What admitting a request now would do to its dataset."""

    filters: list[FilterStep]
    currencies: list[OtherStep]
    jobs_of_this_shape: int | None = Field(description="how many more would fit; null: free, or not told")
    binding: Room | None
    refusal: Refusal | None = Field(description="why it would be refused now")


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
    decision_reason: str | None
    accepted_job: Id | None
    created_at: Time
    expires_at: Time
    decided_at: Time | None


class OfferWithEffect(Offer):
    """An offer, and what accepting it would do now."""

    effect: Effect | None


# --- allowances ---------------------------------------------------------------------------------


class Detected(Answer):
    """How many guessers see the unit, of those who see it in `false_alarms` of the cases without it."""

    false_alarms: float
    at_most: float


class Meaning(Answer):
    """What an (epsilon, delta) means for somebody who guesses."""

    epsilon: Decimal
    delta: Decimal
    neighbours: str
    prior: float
    best_success: float
    detected: list[Detected]
    sentences: list[str]
    source: str


class FilterChange(Answer):
    """The limit of a filter before and after; amounts in the filter's own unit."""

    kind: str
    share: float
    used: Decimal
    before: Decimal | None
    after: Decimal
    holds: bool


class Preview(Answer):
    """What an allowance would change."""

    neighbours: str
    unit: str
    is_raise: bool = Field(alias="raise")
    two_people: bool = Field(description="whether a second steward must confirm it")
    after_release: bool
    filters: list[FilterChange]
    others: list[Json] = Field(description="the other currencies: name, before, after")


# --- spending -----------------------------------------------------------------------------------


class Measure(Answer):
    """Something that is counted; amounts in `unit`."""

    name: str
    unit: str
    limit: Decimal
    used: Decimal
    left: Decimal
    closed: bool


class Spending(Answer):
    """What a dataset's allowance went on.

    `burn_down`: what is left of each measure after each moment. `spending`: sums by month, analyst and
    mechanism, with `jobs`; to an analyst everybody else's are one sum, under null.
    """

    dataset: str
    entries: int
    through: int = Field(description="entries that are counted")
    measures: list[Measure]
    burn_down: list[dict[str, str]] = Field(description="`at`, and a decimal for each measure")
    spending: list[Json] = Field(
        description="`month`, `analyst`, `mechanism`, `jobs`, and a decimal for each measure"
    )


# --- auditing -----------------------------------------------------------------------------------


class EntryInList(Entry):
    """An entry with its job's mechanism."""

    mechanism: str | None


class Chain(Answer):
    """What was checked of an entry's place; no problems: it holds."""

    previous: str
    hash: Sha256
    problems: list[str]


class Figure(Answer):
    """A figure as it is charged and as it comes out now."""

    name: str
    charged: object | None
    computed: object | None
    equal: bool


class Repriced(Answer):
    """An entry's price, computed anew."""

    equal: bool
    problem: str | None
    figures: list[Figure]


class NumberedEntry(Answer):
    """Another entry of the same job."""

    seq: int
    kind: str


class Standing(Answer):
    """The balances after an entry, replayed from entry `from`; or the problem that prevents it."""

    start: int = Field(alias="from")
    problem: str | None
    account: Account | None
    ex_post: ExPostAccount | None
    secret: SecretAccount | None
    overdrawn: bool = False


class EntryPage(Entry):
    """An entry as it is hashed, in its chain, priced anew, with the balances after it."""

    entries: int = Field(description="entries in this ledger")
    hashed: str = Field(description="the text that the hash covers")
    chain: Chain
    price: Repriced
    job_entries: list[NumberedEntry]
    proposal: Id | None
    after: Standing


class RefusedJob(Answer):
    """A request that was refused."""

    job: Id
    dataset: str
    analyst: str | None
    mechanism: str
    purpose: str | None
    project: str | None
    epsilon_alone: float | None
    refusal: Refusal
    submitted_at: Time
    refused_at: Time


class SignedCheckpoint(Answer):
    """A checkpoint, checked now."""

    reference: str
    dataset: str
    seq: int
    head: str
    key: str
    at: Time
    problem: str | None = Field(description="null where it holds")


class Act(Answer):
    """Who did what."""

    at: Time
    actor: str | None
    action: str
    kind: str
    object: str | None
    dataset: str | None
    job: Id | None
    reason: str | None
    detail: Json
    source: int = Field(description="tells acts of one moment apart, with `key`")
    key: str


class Report(Answer):
    """Everything that the printed report of a dataset says; in public, null in place of what is private."""

    dataset: Json = Field(description="as /datasets/{name} answers")
    public: bool
    made_at: Time
    made_by: str | None
    entries: int
    head: str
    by_kind: dict[str, int]
    jobs_by_state: dict[str, int]
    spending: Spending
    policies: list[Json]
    allowances: list[Json]
    corrections: list[Json]
    newest: list[Json]
    refusals: list[Json] = Field(description="as /refusals answers")
    realized_ex_post: Json | None = Field(description="depends on the data; null in public")
    checkpoints: list[SignedCheckpoint]
    verification: Json
    shown: int = Field(description="the most rows of a list")
    definitions: dict[str, str]
