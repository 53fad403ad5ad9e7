"""The price of `summary-adapter`: nothing. A public job that trains what `summary-oneshot` decodes
by.

An adapter is a small network from one mean hidden state to m soft tokens (paper 004, Section 4.2).
It is trained on a registered public corpus, and the model is held fixed. There are no reference
summaries: one text of a set is the target of the others. Training adds noise of the sigma that the
private means will have.
"""

from pydantic import Field

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.group_means import beyond_context
from accountant.core.mechanisms.summary_oneshot import ADAPTER, OneshotReading, unfit
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Price, Terms
from accountant.core.template import check_template, check_turns

DEFAULT_START = "A summary of all reviews:"

#: Held-out sets of one measure, at most.
MEASURED = 32


class SummaryAdapter(OneshotReading):
    """Parameters of `summary-adapter`."""

    corpus: str = Field(min_length=1, max_length=63, description="the name of a public corpus here")
    sigma: float = Field(
        0.0,
        ge=0,
        le=1_000_000,
        description="how strong the noise on each number of the means to be decoded is, as "
        "their price states it",
    )
    start: str = Field(
        DEFAULT_START,
        min_length=1,
        max_length=8_000,
        description="the soft tokens begin at the embeddings of this text",
    )
    set_size: int = Field(
        32, ge=1, le=100_000, description="texts of a set, of one label where the corpus has labels"
    )
    target_tokens: int = Field(
        50,
        ge=1,
        le=100_000,
        description="a target is as many whole sentences of a text as fit so many tokens",
    )
    steps: int = Field(300, ge=1, le=1_000_000, description="steps of training, at most")
    batch_size: int = Field(8, ge=1, le=10_000, description="sets of a step")
    learning_rate: float = Field(0.001, ge=1e-7, le=1.0, description="learning rate of Adam")
    held_out: float = Field(
        0.1, ge=0.01, le=0.5, description="share of the texts that measures the loss"
    )
    evaluate_every: int = Field(
        20, ge=1, le=1_000_000, description="steps between two such measures"
    )
    patience: int = Field(
        3, ge=1, le=1_000, description="after how many tries without a gain it stops"
    )
    seed: int | None = Field(
        None, ge=0, le=2**53 - 1, description="of the sets, the noise and the weights"
    )


def price(_: SummaryAdapter, __: Terms) -> Price:
    """Return nothing, in every currency."""
    return Price(FREE, ("public texts only: free",))


def resolve(parameters: SummaryAdapter, _: Terms) -> SummaryAdapter:
    """Refuse what no training can do."""
    check_template(parameters.template, required=("record",), optional=("user", "assistant"))
    check_turns(parameters.template)
    if parameters.components is not None and parameters.components > parameters.public_texts:
        most = parameters.public_texts
        raise invalid(
            "components", f"{parameters.components} directions of {most} texts", f"1 to {most}"
        )
    return parameters


def context_tokens(parameters: SummaryAdapter, template_tokens: int) -> int:
    """Return longest context: template and one text, or soft tokens and the target."""
    return max(
        template_tokens + parameters.record_tokens,
        parameters.soft_tokens + parameters.target_tokens + 1,
    )


MECHANISM = Mechanism(
    id="summary-adapter",
    title="Adapter of summaries",
    summary="Trains on public texts what turns a mean state into words, and reads no records.",
    source="Gutierrez and Khalaf: Differentially private summarization, Section 4.2",
    parameters=SummaryAdapter,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    unfit=lambda parameters, facts: (
        unfit(parameters, facts)
        or beyond_context(
            "target_tokens", parameters.soft_tokens + parameters.target_tokens + 1, facts
        )
    ),
    size_field="steps",
    progress_unit="steps",
    resources=lambda _: {"corpus": "corpus"},
    public=True,
    runner="workers.mechanisms.summary_adapter",
    groups={
        "Size and privacy": "corpus public_texts sigma soft_tokens start",
        "States": "clip centre components record_tokens template",
        "Training": "steps batch_size set_size target_tokens learning_rate held_out evaluate_every "
        "patience",
    },
    order=9,
    goal="preparation",
    advice="what summary-oneshot reads its means out with, trained on a public corpus",
    plain="corpus soft_tokens",
    example={
        "corpus": "public-reviews",
        "public_texts": 200,
        "steps": 2,
        "set_size": 4,
        "target_tokens": 12,
    },
    artifacts={"adapter": "the weights of the adapter, with the centre and scale of its input"},
    releases=(ADAPTER,),
)
