"""What the API answers with: the models that the description is made from.

Views answer with plain dictionaries from `accountant`; nothing is converted here. Tests hold every answer
that they see against these models, and list what an answer holds beyond them. Readers must bear fields that
they don't know: new ones are no new version.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from accountant.core.ledger.admission import Policy
from accountant.core.states import JOB_STATES

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, description="RFC 3339, in UTC")]
Id = Annotated[str, Field(json_schema_extra={"format": "uuid"})]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Decimal = Annotated[str, Field(pattern=r"^-?[0-9]+(\.[0-9]+)?$", description="a decimal: every digit counts")]
State = Annotated[str, Field(json_schema_extra={"enum": list(JOB_STATES)})]
Checked = Literal["checking", "ready", "invalid"]
Json = dict[str, Any]


class Answer(BaseModel):
    """Base of every answer."""


# --- people -------------------------------------------------------------------------------------


class SignedIn(Answer):
    """A new token. It is shown here and nowhere else: the server keeps a hash."""

    token: str
    expires_at: Time
    name: str
    roles: list[str]


class Me(Answer):
    """Whose token it is, and what it may do."""

    name: str
    roles: list[str]
    scopes: list[str]


# --- what a job is asked with -------------------------------------------------------------------


class Model(Answer):
    """A registered model."""

    name: str
    kind: Literal["language", "embedding"]
    state: Checked
    trained_on: str = Field(description="the steward's declaration")
    facts: Json | None = Field(description="what a worker found: hash, context length, layers")
    path: str | None = Field(None, description="for stewards")
    error: str | None = Field(None, description="why it is invalid, for stewards")


class Corpus(Answer):
    """A registered public corpus."""

    name: str
    state: Checked
    declaration: Literal["public", "consented"]
    statement: str
    label_column: str | None
    facts: Json | None = Field(description="what a worker found: hash, number of texts, labels")
    uri: str | None = Field(None, description="for stewards")
    error: str | None = Field(None, description="why it is invalid, for stewards")
    text_template: str | None = Field(None, description="for stewards")


class Mechanism(Answer):
    """Something that can be asked for."""

    id: str
    title: str
    summary: str
    source: str
    size_field: str = Field(description="the parameter that says how much is asked for")
    uses_model: bool
    runnable: bool = Field(description="false: it can be priced here and not run")
    parameters: Json = Field(description="JSON Schema of `parameters`")


# --- datasets -----------------------------------------------------------------------------------


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
    """What is stated about declared secrets; amounts in `unit`."""

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
    """What holds now, as a sentence."""

    currency: str
    text: str
    unqualified: bool


class Cap(Answer):
    """What a cap of the policy leaves to a person or project."""

    kind: Literal["analyst", "project"]
    name: str
    limit: Decimal
    used: Decimal
    left: Decimal


class Version(Answer):
    """One version of a dataset's data."""

    number: int
    uri: str
    text_template: str
    unit_column: str | None
    label_column: str | None
    state: Checked
    error: str | None
    created_at: Time


class DatasetInCatalogue(Answer):
    """A dataset: public facts and accounts. Where its data lies is for stewards."""

    name: str
    description: str
    state: Checked
    neighbours: Literal["add-remove", "replace-one"]
    unit: str = Field(description="`record`, or the column of the privacy unit")
    max_records_per_unit: int
    public_size: int | None = Field(description="declared by a steward, never counted")
    labels: list[str]
    policy: Policy
    overdrawn: bool
    account: Account | None = Field(description="null before the first allowance")
    ex_post: ExPostAccount
    secret: SecretAccount | None
    statements: list[Statement]
    entries: int = Field(description="entries in its ledger")
    versions: list[Version] | None = Field(None, description="for stewards")
    text_template: str | None = Field(None, description="for stewards")
    label_column: str | None = Field(None, description="for stewards")


class Dataset(DatasetInCatalogue):
    """A dataset with what the policy's caps leave to whoever asks."""

    caps: list[Cap]


# --- prices and refusals ------------------------------------------------------------------------


class Refusal(Answer):
    """Why a request does not fit: `asked` and `left` are decimals in the unit of the cap that binds."""

    cap: str = Field(description="what binds: a filter, ex-post, secret, a cap of the policy, ...")
    left: str
    asked: str
    why: str
    size_field: str | None
    largest: int | float | None = Field(description="the largest value of `size_field` that would fit")
    by: str | None = Field(None, description="of a job: `account`, or the steward who said no")


class DpPrice(Answer):
    """(epsilon, delta) of the job alone, and its curve."""

    epsilon: float
    delta: float
    accountant: str
    rdp: dict[str, float]
    event: Json


class ExPostPrice(Answer):
    """The cap of an ex-post cost."""

    cap: float


class FilterStep(Answer):
    """The used share of one filter before and after the job."""

    kind: str
    before: float
    after: float | None
    closed: bool
    limit: Decimal
    cost: Decimal | None
    left: Decimal
    left_after: Decimal | None


class OtherStep(Answer):
    """The same of another account: ex-post, secrets, a cap of the policy."""

    name: str
    unit: str
    limit: Decimal | None
    left: Decimal | None
    cost: Decimal | None
    left_after: Decimal | None
    before: float | None
    after: float | None


class Room(Answer):
    """The limit that stops the next job of a shape: `left` and `asked` are decimals in its unit."""

    cap: str
    jobs: int
    left: str
    asked: str


class OnDataset(Answer):
    """What admission would say now."""

    name: str
    decision: Literal["Admitted", "NeedsApproval", "Refused"]
    refusal: Refusal | Annotated[Json, Field(max_length=0)] = Field(description="empty unless Refused")
    filters: list[FilterStep]
    currencies: list[OtherStep]
    jobs_of_this_shape: int | None = Field(description="how many more would fit; null: free, or not told")
    binding: Room | None = Field(description="what stops the next one; null: nothing, or it is not told")


class Fit(Answer):
    """The field that was fitted."""

    field: str
    value: int | float


class Quote(Answer):
    """The price of a request, and what a dataset's accounts say to it."""

    mechanism: str
    parameters: Json
    neighbours: str
    dp: DpPrice | None
    ex_post: ExPostPrice | None
    secret: Json | None
    breakdown: list[str]
    fit: Fit | None = None
    dataset: OnDataset


# --- jobs ---------------------------------------------------------------------------------------


class Progress(Answer):
    """How far a job is, in public quantities."""

    done: int
    total: int
    unit: str


class JobInList(Answer):
    """A job."""

    id: Id
    dataset: str
    mechanism: str
    model: str | None
    analyst: str
    purpose: str
    project: str | None
    parameters: Json
    terms: Json = Field(description="what the price rests on: neighbours, delta, labels, ...")
    event: Json | None
    epsilon_alone: float | None
    ex_post_cap: float | None
    delta: float
    breakdown: list[str]
    state: State
    refusal: Refusal | None
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


class Card(Answer):
    """The data card of a published output."""

    format: str
    version: int
    job: Id
    dataset: Json
    mechanism: Json
    guarantee: str = Field(description="one true sentence")
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
    """What a job released besides its texts."""

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


class Proposal(Answer):
    """What one steward asks for and another confirms."""

    id: Id
    kind: Literal["allowance", "correction", "policy"]
    dataset: str
    job: Id | None
    asked: Json
    reason: str
    state: Literal["open", "confirmed", "withdrawn", "expired"]
    proposed_by: str
    decided_by: str | None
    decision_reason: str | None
    entry: int | None
    created_at: Time
    expires_at: Time
    decided_at: Time | None


class Proposed(Answer):
    """It waits for a second steward."""

    proposal: Proposal


# --- ledger -------------------------------------------------------------------------------------


class Entry(Answer):
    """An entry, in plain values."""

    version: int
    dataset: str
    seq: int
    kind: Literal["ALLOW", "RESERVE", "COMMIT", "VOID", "REVERSAL"]
    at: Time
    actor: str
    job: Id | None
    body: Json
    previous: str
    hash: Sha256


class SignedKey(Answer):
    """A public key with the signature of the key before it."""

    key: Json
    signature: str | None


class Checkpoint(Answer):
    """A signed statement of what a ledger was."""

    checkpoint: Json
    signature: str
    keys: list[SignedKey]


class LedgerCheck(Answer):
    """What disagrees among entries, cached balances and jobs; nothing: an empty list."""

    dataset: str
    problems: list[str]


class ExPostCost(Answer):
    """What an ex-post job really cost. The figure depends on the data."""

    job: Id
    cap: Decimal
    realized: Decimal
    curve: Json | None
    finished_at: Time | None
