"""The fields of a price: what a request costs and what admission would say of it."""

from typing import Annotated, Literal

from pydantic import Field

from accountant.schema.base import Answer, Decimal, Json
from accountant.schema.datasets import Remaining
from accountant.schema.jobs import Refusal


class DpPrice(Answer):
    """(epsilon, delta) of the job alone, and its curve."""

    epsilon: float
    delta: float
    pure: float | None = Field(None, description="the ε of a cost without any δ; null: it has one")
    to_key_holders: float | None = Field(
        None, description="ε for whoever knows the batches; null: no batch is secret"
    )
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
    """The decision of admission, were the job asked for now."""

    name: str
    unit: str = Field(description="`record`, or the column of the privacy unit")
    decision: Literal["Admitted", "NeedsApproval", "Refused", "Waits"]
    waits: str | None = Field(None, description="what it waits for; null: it does not wait")
    refusal: Refusal | Annotated[Json, Field(max_length=0)] = Field(
        description="empty unless Refused"
    )
    filters: list[FilterStep]
    currencies: list[OtherStep]
    jobs_of_this_shape: int | None = Field(
        description="how many more would fit; null: free, or not told"
    )
    binding: Room | None = Field(
        description="what stops the next one; null: nothing, or it is not told"
    )
    remaining: Remaining | None = Field(
        None, description="what is left now; null before the first allowance"
    )
    remaining_after: Remaining | None = Field(
        None, description="what would be left after the job; null where it does not fit, or is free"
    )
    closes: str | None = Field(
        None, description="which filters it closes for good, and what that costs later; null: none"
    )
    results_every_seconds: int | None = Field(
        None,
        description="the job ends, for all who watch it, so many seconds after it began, or a "
        "multiple of that; null: when it is done",
    )


class Output(Answer):
    """What a job would write: `number` of `what`, of at most `tokens` each, if it writes any."""

    what: str
    number: int
    tokens: int | None
    bound: Literal["exactly", "at least", "at most"] = Field(description="how sure the number is")
    sentence: str = Field(description="the same in words")


class Outlook(Answer):
    """What a request is worth, judged from public figures alone."""

    verdict: Literal["good", "thin", "not enough"]
    sentence: str = Field(description="the same in words, with why")
    floor: float | None = Field(
        description="the share of each draw that falls on other tokens than the likeliest, at "
        "least; null: no tokens are drawn"
    )
    noise: float | None = Field(
        description="noise as a part of what it hides; null: none is added, or nothing public tells"
    )


class Duration(Answer):
    """How long it takes by jobs here that read no private record, with its mechanism and model."""

    seconds: float = Field(description="for its size, or the median")
    jobs: int = Field(description="the newest that were counted")
    sized: bool = Field(description="whether it is for the size of what is asked")
    sentence: str = Field(description="the same in words")


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
    output: Output | None = Field(None, description="null: nothing public tells")
    outlook: Outlook | None = Field(None, description="null: nothing public tells")
    duration: Duration | None = Field(None, description="null: no such job has run here")
    fit: Fit | None = None
    dataset: OnDataset


class Effect(Answer):
    """The effect on its dataset of admitting a request now."""

    filters: list[FilterStep]
    currencies: list[OtherStep]
    jobs_of_this_shape: int | None = Field(
        description="how many more would fit; null: free, or not told"
    )
    binding: Room | None
    refusal: Refusal | None = Field(description="why it would be refused now")
    unit: str | None = Field(None, description="`record`, or the column of the privacy unit")
    output: Output | None = Field(None, description="what it writes; null: nothing public tells")
    outlook: Outlook | None = Field(
        None, description="what the request is worth; null: nothing public tells"
    )
    remaining: Remaining | None = Field(
        None, description="what is left now; null before the first allowance"
    )
    remaining_after: Remaining | None = Field(
        None, description="what is left after it; null if it doesn't fit"
    )
    closes: str | None = Field(
        None, description="which filters it closes for good, and what that costs later; null: none"
    )


class Proposal(Answer):
    """What to ask for to reach a goal, and what it would be worth."""

    goal: str
    share: float = Field(description="the part of what is left that it may spend")
    outlook: Outlook
    mechanism: str | None = Field(description="null: nothing would be enough")
    model: str | None = Field(description="the model that it is for; null: it needs none")
    parameters: Json = Field(description="those that are not the mechanism's defaults")
    output: Output | None
    lacks: str | None = Field(description="what you still have to name; null: nothing")
    notes: list[str] = Field(description="why it is as it is")
