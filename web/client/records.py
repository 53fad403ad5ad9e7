"""What the service answers, as typed and frozen values. Fields that a newer server adds are left out."""

from datetime import datetime
from decimal import Decimal
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from web.client.errors import Json, Unreadable


class Record(BaseModel):
    """Base of all records."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def of(cls, document: Any) -> Self:
        """The record in a JSON document. Raises Unreadable where the server speaks another version."""
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            where = ".".join(str(each) for each in error.errors()[0]["loc"])
            raise Unreadable(
                f"the server's {cls.__name__} has another form than this client knows (at {where!r}): "
                "install the version of exchequer that the server runs"
            ) from None


class Person(Record):
    """Whose token this is."""

    name: str
    roles: tuple[str, ...]


# --- datasets -------------------------------------------------------------------------------------


class Filter(Record):
    """One privacy filter of an account; amounts are in the filter's own unit (RDP, μ², ε)."""

    kind: str
    limit: Decimal
    spent: Decimal
    reserved: Decimal
    left: Decimal
    spent_share: float
    reserved_share: float
    used_share: float
    closed: int
    holds: bool


class Cap(Record):
    """What a cap of the policy leaves to one person or project, in sums of stand-alone ε."""

    kind: str
    name: str
    limit: Decimal
    used: Decimal
    left: Decimal


class Statement(Record):
    """What holds of everything released so far, in a sentence; `unqualified`: without exceptions."""

    currency: str
    text: str
    unqualified: bool


class Account(Record):
    """The (ε, δ) allowance with its filters: a job is admitted while one filter holds with it."""

    epsilon: Decimal
    delta: Decimal
    used_share: float
    best_filter: str | None
    filters: tuple[Filter, ...]


class ExPost(Record):
    """The allowance for caps of data-dependent ε. What is spent may be hidden, as it depends on the data."""

    limit: Decimal
    spent: Decimal | None
    reserved: Decimal | None
    left: Decimal | None
    settlement: str


class Version(Record):
    """A version of a dataset's data, as its stewards see it."""

    number: int
    uri: str
    state: str
    error: str | None = None


class DatasetFacts(Record):
    """What is public about a dataset, and its accounts."""

    name: str
    description: str
    state: str
    neighbours: str
    unit: str
    max_records_per_unit: int
    public_size: int | None
    labels: tuple[str, ...]
    policy: dict[str, Any]
    overdrawn: bool
    account: Account | None
    ex_post: ExPost
    secret: dict[str, Any] | None
    statements: tuple[Statement, ...]
    entries: int
    caps: tuple[Cap, ...] = ()
    versions: tuple[Version, ...] = ()


class Budget(Record):
    """What a dataset allows, and what is left of it. `account` is None before the first allowance."""

    dataset: str
    account: Account | None
    ex_post: ExPost
    secret: dict[str, Any] | None
    caps: tuple[Cap, ...]
    statements: tuple[Statement, ...]

    @property
    def epsilon(self) -> Decimal | None:
        """The allowed ε, in all."""
        return None if self.account is None else self.account.epsilon

    @property
    def delta(self) -> Decimal | None:
        """The allowed δ, in all."""
        return None if self.account is None else self.account.delta

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The filters; none before the first allowance."""
        return () if self.account is None else self.account.filters

    @property
    def used_share(self) -> float:
        """How much of the filter with most room is used, from 0 to 1."""
        return 0.0 if self.account is None else self.account.used_share


# --- prices ---------------------------------------------------------------------------------------


class Refusal(Record):
    """Which cap binds, what was asked, what is left, and the largest size that would fit."""

    cap: str
    left: str | None = None
    asked: str | None = None
    why: str
    size_field: str | None = None
    largest: int | float | None = None


class Quote(Record):
    """The price of a request on a dataset, and what admission would say of it now."""

    mechanism: str
    dataset: str
    parameters: dict[str, Any]
    neighbours: str
    epsilon: float | None = Field(description="alone, at `delta`; None where the job has no (ε, δ) price")
    delta: float | None
    accountant: str | None
    ex_post_cap: float | None
    breakdown: tuple[str, ...]
    decision: str = Field(description="Admitted, NeedsApproval or Refused")
    refusal: Refusal | None
    jobs_of_this_shape: int | None = Field(description="that are left; None: free, or not told")
    fitted: tuple[str, int | float] | None = Field(description="the field that was fitted, and its value")

    @classmethod
    def of(cls, document: Any) -> Self:
        try:
            dp, on = document["dp"] or {}, document["dataset"]
            flat: Json = {**document, "dataset": on["name"], "decision": on["decision"]}
            flat |= {name: dp.get(name) for name in ("epsilon", "delta", "accountant")}
            flat["ex_post_cap"] = (document["ex_post"] or {}).get("cap")
            flat |= {"refusal": on["refusal"] or None, "jobs_of_this_shape": on["jobs_of_this_shape"]}
            fit = document.get("fit")
            flat["fitted"] = fit and (fit["field"], fit["value"])
        except (LookupError, TypeError):
            flat = {}  # told field by field
        return super().of(flat)

    @property
    def fits(self) -> bool:
        """Whether the request would be admitted, at once or after a steward's approval."""
        return self.decision != "Refused"


# --- jobs -----------------------------------------------------------------------------------------


class Progress(Record):
    """How far a job is, in public quantities."""

    done: int
    total: int | None
    unit: str = "tokens"


class JobFacts(Record):
    """A job as it stood when the server was asked."""

    id: str
    dataset: str
    mechanism: str
    model: str | None
    analyst: str
    purpose: str
    project: str | None = None
    parameters: dict[str, Any]
    epsilon_alone: float | None
    delta: float
    ex_post_cap: float | None = None
    breakdown: tuple[str, ...] = ()
    state: str
    refusal: Refusal | None
    decision_reason: str | None
    failure: str | None
    attempt: int = 0
    cancel_requested: bool = False
    progress: Progress
    output_sha256: str | None = None
    created_at: datetime
    approval_expires: datetime | None = None
    decided_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Artifact(Record):
    """What a job released besides texts; a job that reads only these costs nothing."""

    sha256: str
    name: str
    kind: str
    size: int
    dataset: str
    mechanism: str
    job: str


class Entry(Record):
    """One entry of a ledger."""

    seq: int
    kind: str
    at: datetime
    actor: str
    job: str | None
    body: dict[str, Any]
    hash: str


# --- what jobs are asked with ---------------------------------------------------------------------


class Model(Record):
    """A registered model."""

    name: str
    kind: str
    state: str
    trained_on: str
    facts: dict[str, Any] | None


class Corpus(Record):
    """A registered public corpus."""

    name: str
    state: str
    declaration: str
    statement: str
    facts: dict[str, Any] | None


class Mechanism(Record):
    """What can be asked for; `parameters` is the JSON Schema of its parameters."""

    id: str
    title: str
    summary: str
    source: str
    size_field: str | None
    uses_model: bool
    runnable: bool
    parameters: dict[str, Any]
