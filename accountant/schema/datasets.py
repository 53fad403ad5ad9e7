"""The fields of a dataset: what is declared of it, its accounts, and what they allow."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from accountant.core.ledger.policy import Policy
from accountant.schema.base import Answer, Checked, Decimal, Id, Json, Sha256, Time


def _known(value: Any) -> Any:
    """Return a policy without what a newer server's holds beside: readers bear it."""
    return (
        {k: v for k, v in value.items() if k in Policy.model_fields}
        if isinstance(value, dict)
        else value
    )


WholePolicy = Annotated[
    Policy,
    BeforeValidator(_known),
    PlainSerializer(lambda policy: policy.model_dump(mode="json"), return_type=Json),
]


class Filter(Answer):
    """One privacy filter of an account. Amounts are in the filter's own unit."""

    kind: Literal["renyi", "gaussian", "renyi2", "basic"]
    source: str
    order: float | None
    share: float = Field(description="share of delta")
    limit: Decimal
    spent: Decimal
    reserved: Decimal
    left: Decimal
    spent_share: float
    reserved_share: float
    used_share: float
    closed: int = Field(description="live steps that it can't price")
    holds: bool
    state: str
    closed_by: Id | None


class Account(Answer):
    """The (epsilon, delta) account: jobs are admitted while one filter holds."""

    epsilon: Decimal
    delta: Decimal
    largest_epsilon: Decimal = Field(description="the largest ever granted: statements hold for it")
    largest_delta: Decimal = Field(description="the largest ever granted")
    used_share: float
    best_filter: str | None
    filters: list[Filter]


class ExPostAccount(Answer):
    """Caps of data-dependent costs. Amounts that depend on the data are null for analysts."""

    limit: Decimal
    spent: Decimal | None
    reserved: Decimal | None
    left: Decimal | None
    settlement: Literal["planned", "realized"]


class SecretAccount(Answer):
    """The account of declared secrets; amounts in `unit`."""

    prior: float
    bound: float
    records_per_secret: int
    sampling_rate: float
    neighbour: str
    kind: Literal["one", "many"]
    order: float | None
    unit: Literal["r", "nats"]
    limit: Decimal
    spent: Decimal
    reserved: Decimal
    left: Decimal
    bound_now: float
    jobs: int


class Statement(Answer):
    """A guarantee that holds now, as a sentence."""

    currency: str
    text: str
    unqualified: bool


class Cap(Answer):
    """The room of a person, a project or a level of charges under a cap of the policy, in sums of
    stand-alone ε. Of a `release`, `left` is what is free now.
    """

    kind: Literal["analyst", "project", "stated", "signed", "release"]
    name: str
    limit: Decimal
    used: Decimal
    left: Decimal


class Version(Answer):
    """One version of a dataset's data."""

    number: int
    uri: str | None = Field(description="null: the data never comes here")
    text_template: str
    unit_column: str | None
    label_column: str | None
    group_column: str | None = None
    secret_column: str | None = None
    data: Json | None = Field(
        None, description="its files when it was found right: how many, their bytes, hash and list"
    )
    state: Checked
    error: str | None
    created_at: Time


class Remaining(Answer):
    """What is left of an allowance over all filters, currencies and caps, and what it buys."""

    share: float = Field(description="left of what the filter with most room allows")
    jobs: int | None = Field(
        description="of one shape that still fit; null: no shape, free, or not told"
    )
    counts: int | None = Field(
        description="noisy counts at their default that still fit; null: not admitted"
    )
    sentence: str = Field(description="the same in words")


class DatasetInCatalogue(Answer):
    """A dataset: public facts and accounts. Where its data lies is for stewards."""

    name: str
    description: str
    state: Checked
    neighbours: Literal["add-remove", "replace-one"]
    unit: str = Field(description="`record`, or the column of the privacy unit")
    max_records_per_unit: int
    unit_spelling: Literal["refuse", "merge", "keep"] = Field(
        "refuse",
        description="units whose spellings may be one: refused, one unit, or different units",
    )
    missing_units: Literal["refuse", "separate"] = Field(
        "refuse", description="records without a unit: refused, or each a unit by itself"
    )
    public_size: int | None = Field(description="declared by a steward, never counted")
    labels: list[str]
    groups: list[str] = Field([], description="declared names; a unit is in one of them only")
    policy: WholePolicy
    overdrawn: bool
    account: Account | None = Field(description="null before the first allowance")
    ex_post: ExPostAccount
    secret: SecretAccount | None
    statements: list[Statement]
    entries: int = Field(description="entries in its ledger")
    may_ask: bool = Field(False, description="whether the policy lets the reader ask for jobs")
    versions: list[Version] | None = Field(None, description="for stewards")
    text_template: str | None = Field(None, description="for stewards")
    label_column: str | None = Field(None, description="for stewards")
    group_column: str | None = Field(None, description="for stewards")
    secret_column: str | None = Field(None, description="for stewards")
    secret_patterns: list[str] | None = Field(None, description="for stewards")
    secret_terms: list[str] | None = Field(None, description="for stewards")


class Dataset(DatasetInCatalogue):
    """A dataset, with what the policy's caps leave to the reader."""

    caps: list[Cap]
    remaining: Remaining | None = Field(None, description="null before the first allowance")


class Detected(Answer):
    """A guesser's largest share of true detections of a unit with this share of false alarms."""

    false_alarms: float
    at_most: float


class Reference(Answer):
    """An ε that somebody published."""

    epsilon: float
    who: str
    covers: str
    source: str


class Judgement(Answer):
    """A judgement of an ε beside published ones, on the project's own scale."""

    level: str
    tone: Literal["good", "wait", "bad"]
    sentence: str
    warning: bool
    references: list[Reference]


class Meaning(Answer):
    """The bound of an (epsilon, delta) on somebody who guesses."""

    epsilon: Decimal
    delta: Decimal
    neighbours: str
    prior: float
    best_success: float
    detected: list[Detected]
    sentences: list[str]
    judgement: Judgement | None = Field(
        None, description="what a figure of this size is held to be"
    )
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
    """The changes that an allowance would make."""

    neighbours: str
    unit: str
    is_raise: bool = Field(alias="raise")
    two_people: bool = Field(description="whether a second steward must confirm it")
    after_release: bool
    filters: list[FilterChange]
    others: list[Json] = Field(description="the other currencies: name, before, after")


class Measure(Answer):
    """A measured quantity; amounts in `unit`."""

    name: str
    unit: str
    limit: Decimal
    used: Decimal
    left: Decimal
    closed: bool


class Spending(Answer):
    """The use of a dataset's allowance.

    `burn_down`: what is left of each measure after each moment. `spending`: sums by month, analyst
    and mechanism, with `jobs`; to an analyst everybody else's are one sum, under null.
    """

    dataset: str
    entries: int
    through: int = Field(description="entries that are counted")
    measures: list[Measure]
    burn_down: list[dict[str, str]] = Field(description="`at`, and a decimal for each measure")
    spending: list[Json] = Field(
        description="`month`, `analyst`, `mechanism`, `jobs`, and a decimal for each measure"
    )


# --- The fields of files that people sent --------------------------------------------------------


class Upload(Answer):
    """A file that is kept."""

    address: str = Field(description="for `uri` of a dataset or corpus")
    name: str | None = Field(None, description="as its sender called it; for display alone")
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
