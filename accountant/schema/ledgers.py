"""The fields of a ledger: entries, checkpoints, checks, the log of acts, the report."""

from typing import Literal

from pydantic import Field

from accountant.schema.base import Answer, ChainTime, Decimal, Id, Json, Sha256, Time
from accountant.schema.datasets import Account, ExPostAccount, SecretAccount, Spending
from accountant.schema.jobs import Refusal


class Entry(Answer):
    """An entry, in plain values."""

    version: int
    dataset: str
    seq: int
    kind: Literal["ALLOW", "RESERVE", "COMMIT", "VOID", "REVERSAL", "REGISTER", "POLICY", "LOSS"]
    at: ChainTime
    actor: str
    job: Id | None
    body: Json
    previous: str
    hash: Sha256
    job_name: str | None = Field(description="what people call its job")


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
    """Disagreements among entries, cached balances and jobs; an empty list where there are none."""

    dataset: str
    problems: list[str]


class ExPostCost(Answer):
    """The real cost of an ex-post job. The figure depends on the data."""

    job: Id
    cap: Decimal
    realized: Decimal
    curve: Json | None
    finished_at: Time | None


class EntryInList(Entry):
    """An entry with its job's mechanism."""

    mechanism: str | None


class Chain(Answer):
    """The check of an entry's place; no problems: it holds."""

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
    decision: Id | None
    after: Standing


class RefusedJob(Answer):
    """A request that was refused."""

    job: Id
    job_name: str | None = Field(description="what people call it")
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
    """An act in the audit log."""

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
    """All that a dataset's printed report says; a public one has null for what is private."""

    dataset: Json = Field(description="as /datasets/{name} answers")
    public: bool
    made_at: Time
    made_by: str | None
    entries: int
    head: str
    key: str | None = Field(description="the id of the newest key that signs checkpoints")
    by_kind: dict[str, int]
    jobs_by_state: dict[str, int]
    spending: Spending
    policies: list[Json]
    allowances: list[Json]
    corrections: list[Json]
    newest: list[Json]
    releases: list[Json] = Field(description="jobs that succeeded, newest first")
    refusals: list[Json] = Field(description="as /refusals answers")
    realized_ex_post: Json | None = Field(description="depends on the data; null in public")
    checkpoints: list[SignedCheckpoint]
    verification: Json
    shown: int = Field(description="the most rows of a list")
    definitions: dict[str, str]
