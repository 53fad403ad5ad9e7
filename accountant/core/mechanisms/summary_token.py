"""The price of `summary-token` (paper 004, Algorithm 1).

For every token: last-layer hidden state of each record, clipped to norm C, summed, divided by the
*public* n, Gaussian noise, the model's head, a draw (free). Delta = b * C / n where a unit of at
most b records is added or removed, 2 b C / n where it is replaced. T tokens are T Gaussians of the
same unit, mu = sqrt(T) * Delta / sigma, exactly (Equations 3 and 4). The paper states sigma under
replace-one only, and its Section 3 speaks of Rényi divergence where its mechanism composes exactly;
the same Delta stands here in calibration and in the noise. An end token stops and returns the
tokens not written.

Groups (a product, a patient) are disjoint and cost as one: group_means.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from accountant.core.errors import FieldProblem
from accountant.core.mechanisms import group_means
from accountant.core.mechanisms.base import Mechanism, Yield, by_label
from accountant.core.mechanisms.batches import Supported, describe_support
from accountant.core.mechanisms.group_means import GroupMeans
from accountant.core.mechanisms.noise_fields import cost, resolved
from accountant.core.privacy.calibration import gaussian_multiplier
from accountant.core.privacy.events import Gaussian, SelfComposed
from accountant.core.privacy.price import Price, Terms
from accountant.core.template import check_template, check_turns

DEFAULT_TEMPLATE = "Review: {record}\nSummary of all reviews:"


class SummaryToken(GroupMeans, Supported):
    """Parameters of `summary-token`; tokens and temperature are the paper's."""

    max_tokens: int = Field(50, ge=1, le=1_000_000, description="a summary ends here at the latest")
    temperature: float = Field(0.7, ge=0.001, le=1_000, description="temperature of every draw")
    template: str = Field(
        DEFAULT_TEMPLATE,
        max_length=8_000,
        description="the prompt; slot {record}, and {user} and {assistant} around what a chat "
        "model is asked",
    )
    seed: int | None = Field(
        None,
        ge=0,
        le=2**53 - 1,
        description="of the draws of tokens; the noise before them has none",
    )


def token(parameters: SummaryToken) -> Gaussian:
    """Return the release of one token."""
    return Gaussian(resolved(parameters.noise_multiplier, "noise_multiplier"))


def price(parameters: SummaryToken, terms: Terms) -> Price:
    """Return T Gaussians of one group."""
    event = SelfComposed(token(parameters), parameters.max_tokens)
    what = f"{parameters.max_tokens:,} mean hidden states"
    lines = group_means.describe(parameters, terms, what, cost(event, terms))
    return Price(event, (*lines, *describe_support(parameters)))


def resolve(parameters: SummaryToken, terms: Terms) -> SummaryToken:
    """Fill in the public size and calibrate the noise; refuse a template that can't be filled."""
    check_template(parameters.template, required=("record",), optional=("user", "assistant"))
    check_turns(parameters.template)
    return group_means.resolve(
        parameters,
        terms,
        lambda epsilon: gaussian_multiplier(epsilon, terms.delta, parameters.max_tokens),
    )


def context_tokens(parameters: SummaryToken, template_tokens: int) -> int:
    """Return longest context: template, one record, and the summary."""
    return template_tokens + parameters.record_tokens + parameters.max_tokens


def unfit(parameters: SummaryToken, facts: Mapping[str, Any]) -> FieldProblem | None:
    """Return more tokens than the model's context holds, before the template is counted."""
    return group_means.beyond_context("max_tokens", context_tokens(parameters, 0), facts)


MECHANISM = Mechanism(
    id="summary-token",
    title="Token-level summary",
    summary="Sums up many records in one text. Each token comes from a noisy mean of what "
    "a model makes of them.",
    source="Gutierrez and Khalaf: Differentially private summarization, Algorithm 1",
    parameters=SummaryToken,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    unfit=unfit,
    size_field="epsilon",
    stops_early=True,
    runner="workers.mechanisms.summary_token",
    groups={
        "Size and privacy": "epsilon noise_multiplier clip public_size group_sizes min_group "
        "temperature top_k",
        "Texts": "max_tokens min_tokens record_tokens template",
    },
    order=7,
    goal="summaries",
    advice="it needs no preparation: a model writes one summary of each group",
    plain="epsilon public_size max_tokens",
    yields=lambda p, terms: Yield("summaries", by_label(1, terms.groups), p.max_tokens),
    example={"epsilon": 2.0},
)
