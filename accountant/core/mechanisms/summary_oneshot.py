"""The price of `summary-oneshot` (paper 004, Algorithm 2).

The hidden state of each record's last token, clipped to norm C, summed, divided by the *public* n, one
Gaussian; an adapter trained on public data turns the noisy mean into soft tokens, and any number of
decodings is free. Delta = b * C / n, 2 b C / n under replace-one, for one group of records as for many
(see `summary-token`). k releases share one budget by exact composition, multiplier sqrt(k) / mu: one
Gaussian at the whole budget beats k at epsilon / k each, and says as much.
"""

from pydantic import Field

from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.batches import doubled, group_size
from accountant.core.mechanisms.noise_fields import (
    ARTIFACTS_ARE_FREE,
    GaussianNoise,
    cost,
    from_job_field,
    resolved,
    with_multiplier,
    without_noise,
)
from accountant.core.privacy.calibration import gaussian_multiplier
from accountant.core.privacy.events import FREE, Gaussian, SelfComposed
from accountant.core.privacy.price import Price, Terms
from accountant.core.template import check_template

DEFAULT_TEMPLATE = "Review: {record}"


class SummaryOneshot(GaussianNoise):
    """Parameters of `summary-oneshot`."""

    releases: int = Field(
        1, ge=1, le=10_000, description="noisy means k of every group; they share one budget"
    )
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
        None, min_length=1, max_length=100, description="column that tells the groups; one mean of each"
    )
    from_job: str | None = from_job_field("noisy means")
    adapter: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="the soft-prompt adapter, an artifact of public training",
    )
    soft_tokens: int = Field(10, ge=1, le=1_000, description="embeddings m that the adapter makes of a mean")
    decodings: int = Field(1, ge=1, le=1_000_000, description="summaries decoded from every mean: free")
    max_tokens: int = Field(50, ge=1, le=1_000_000, description="a summary ends here at the latest")
    temperature: float = Field(0.7, ge=0.001, le=1_000, description="temperature of every draw")
    record_tokens: int = Field(256, ge=1, le=1_000_000, description="a record is cut after this many")
    template: str = Field(DEFAULT_TEMPLATE, max_length=8_000, description="the prompt; slot {record}")


def sensitivity(parameters: SummaryOneshot, terms: Terms) -> float:
    """L2 sensitivity of a mean hidden state: b C / n, twice that under replace-one."""
    size = resolved(parameters.public_size, "public_size")
    return doubled(terms) * terms.max_records_per_unit * parameters.clip / size


def sigma(parameters: SummaryOneshot, terms: Terms) -> float:
    """Standard deviation of the noise on a mean hidden state."""
    return resolved(parameters.noise_multiplier, "noise_multiplier") * sensitivity(parameters, terms)


def price(parameters: SummaryOneshot, terms: Terms) -> Price:
    """k Gaussians of one group, or nothing where an earlier job's means are decoded again."""
    if parameters.from_job is not None:
        return Price(FREE, (ARTIFACTS_ARE_FREE,))
    multiplier = resolved(parameters.noise_multiplier, "noise_multiplier")
    gaussian, count = Gaussian(multiplier), parameters.releases
    event = SelfComposed(gaussian, count) if count > 1 else gaussian
    what = "1 mean hidden state" if count == 1 else f"{count:,} mean hidden states"
    line = (
        f"{what}: Gaussian, σ {sigma(parameters, terms):.6g} (sensitivity "
        f"{sensitivity(parameters, terms):.4g}), together {cost(event, terms)}"
    )
    groups = ("groups are disjoint, so all cost as one",) if parameters.groups else ()
    return Price(event, (line, *groups, f"{parameters.decodings:,} decodings of each: free"))


def resolve(parameters: SummaryOneshot, terms: Terms) -> SummaryOneshot:
    """Fill in the public size and calibrate the noise; refuse a template that can't be filled."""
    check_template(parameters.template, required=("record",), optional=())
    if parameters.from_job is not None:
        return without_noise(parameters)
    size = group_size(parameters.public_size, parameters.groups, terms)
    parameters = parameters.model_copy(update={"public_size": size})
    return with_multiplier(
        parameters, lambda epsilon: gaussian_multiplier(epsilon, terms.delta, parameters.releases)
    )


def context_tokens(parameters: SummaryOneshot, template_tokens: int) -> int:
    """Longest context: template and one record, or soft tokens and the summary."""
    reading = template_tokens + parameters.record_tokens
    return max(reading, parameters.soft_tokens + parameters.max_tokens)


MECHANISM = Mechanism(
    id="summary-oneshot",
    title="One-shot summary",
    summary="Decodes summaries from one noisy mean hidden state of many records.",
    source="Gutierrez and Khalaf: Differentially private summarization, Algorithm 2",
    parameters=SummaryOneshot,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    size_field="epsilon",
    groups={
        "Size and privacy": "from_job epsilon noise_multiplier clip temperature",
        "Texts": "max_tokens record_tokens template",
    },
    order=8,
    example={"epsilon": 2.0},
)
