"""The price of `summary-token` (paper 004, Algorithm 1).

For every token: last-layer hidden state of each record, clipped to norm C, summed, divided by the
*public* n, Gaussian noise, the model's head, a draw (free). Delta = b * C / n where a unit of at most b
records is added or removed, 2 b C / n where it is replaced. T tokens are T Gaussians of the same unit,
mu = sqrt(T) * Delta / sigma, exactly (Equations 3 and 4). The paper states sigma under replace-one
only, and its Section 3 speaks of Rényi divergence where its mechanism composes exactly; the same Delta
stands here in calibration and in the noise. An end token stops and returns the tokens not written.

Groups (a product, a patient) are disjoint and a unit lies in one, so all cost as one. A replaced unit
that changes its group moves two means by C / n each: L2 sqrt(2) C / n, less than 2 C / n in one.
"""

from pydantic import Field

from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.batches import doubled, group_size
from accountant.core.mechanisms.noise_fields import GaussianNoise, cost, resolved, with_multiplier
from accountant.core.privacy.calibration import gaussian_multiplier
from accountant.core.privacy.events import Gaussian, SelfComposed
from accountant.core.privacy.price import Price, Terms
from accountant.core.template import check_template

DEFAULT_TEMPLATE = "Review: {record}\nSummary of all reviews:"


class SummaryToken(GaussianNoise):
    """Parameters of `summary-token`; tokens and temperature are the paper's."""

    max_tokens: int = Field(50, ge=1, le=1_000_000, description="tokens T of a summary, at most")
    clip: float = Field(
        10.0, ge=1e-6, le=1_000_000, description="norm C that a hidden state is clipped to; a public constant"
    )
    public_size: int | None = Field(
        None,
        ge=1,
        le=1_000_000_000_000,
        description="public n that a group's sum is divided by; nothing: the dataset's, without groups",
    )
    groups: str | None = Field(
        None, min_length=1, max_length=100, description="column that tells the groups; one summary of each"
    )
    temperature: float = Field(0.7, ge=0.001, le=1_000, description="temperature of every draw")
    record_tokens: int = Field(256, ge=1, le=1_000_000, description="a record is cut after this many")
    template: str = Field(DEFAULT_TEMPLATE, max_length=8_000, description="the prompt; slot {record}")


def sensitivity(parameters: SummaryToken, terms: Terms) -> float:
    """L2 sensitivity of one mean hidden state: b C / n, twice that under replace-one."""
    size = resolved(parameters.public_size, "public_size")
    return doubled(terms) * terms.max_records_per_unit * parameters.clip / size


def sigma(parameters: SummaryToken, terms: Terms) -> float:
    """Standard deviation of the noise on one mean hidden state (Equation 4)."""
    return resolved(parameters.noise_multiplier, "noise_multiplier") * sensitivity(parameters, terms)


def price(parameters: SummaryToken, terms: Terms) -> Price:
    """T Gaussians of one group."""
    multiplier = resolved(parameters.noise_multiplier, "noise_multiplier")
    event = SelfComposed(Gaussian(multiplier), parameters.max_tokens)
    line = (
        f"{parameters.max_tokens:,} mean hidden states: Gaussian, σ {sigma(parameters, terms):.6g} "
        f"(sensitivity {sensitivity(parameters, terms):.4g}), together {cost(event, terms)}"
    )
    groups = ("groups are disjoint, so all cost as one",) if parameters.groups else ()
    return Price(event, (line, *groups))


def resolve(parameters: SummaryToken, terms: Terms) -> SummaryToken:
    """Fill in the public size and calibrate the noise; refuse a template that can't be filled."""
    check_template(parameters.template, required=("record",), optional=())
    size = group_size(parameters.public_size, parameters.groups, terms)
    parameters = parameters.model_copy(update={"public_size": size})
    return with_multiplier(
        parameters, lambda epsilon: gaussian_multiplier(epsilon, terms.delta, parameters.max_tokens)
    )


def context_tokens(parameters: SummaryToken, template_tokens: int) -> int:
    """Longest context: template, one record, and the summary."""
    return template_tokens + parameters.record_tokens + parameters.max_tokens


MECHANISM = Mechanism(
    id="summary-token",
    title="Token-level summary",
    summary="Writes one summary of many records, each token from their noisy mean hidden state.",
    source="Gutierrez and Khalaf: Differentially private summarization, Algorithm 1",
    parameters=SummaryToken,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    size_field="epsilon",
    groups={
        "Size and privacy": "epsilon noise_multiplier clip temperature",
        "Texts": "max_tokens record_tokens template",
    },
    order=7,
    example={"epsilon": 2.0},
)
