"""The price of `aug-pe` (Xie et al. 2024, a baseline of papers 000 to 003).

In every epoch each private record votes for its k nearest samples, and all counts get Gaussian noise,
those without a vote too. k distinct votes of one record have L2 norm sqrt(k); a replaced record moves
k counts down and k up, sqrt(2k); b records of one unit make that b times as much, whether their votes
fall together or not. Threshold, ranks and variations by the model read noisy counts only: free. A record
votes under its own label, and replacing one moves the counts of two labels by no more in total.
Numbers of samples per label are given, never counted. All epochs together are one Gaussian: exact.
"""

import math
from typing import Literal

from pydantic import Field

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.batches import doubled
from accountant.core.mechanisms.noise_fields import GaussianNoise, cost, resolved, with_multiplier
from accountant.core.privacy.calibration import gaussian_multiplier
from accountant.core.privacy.events import Gaussian, SelfComposed
from accountant.core.privacy.price import Price, Terms
from accountant.core.template import check_template

DEFAULT_PROMPT = "A text ({label}):"
DEFAULT_REWRITING = "Rewrite this text ({label}) in other words: {text}\nRewritten:"


class AugPe(GaussianNoise):
    """Parameters of `aug-pe`; the defaults are the paper's where it gives one."""

    epochs: int = Field(10, ge=1, le=10_000, description="rounds of voting; each reads every record once")
    votes: int = Field(1, ge=1, le=1_000, description="distinct samples k that a record votes for")
    samples: int = Field(2_000, ge=1, le=10_000_000, description="samples per label that survive an epoch")
    variations: int = Field(7, ge=0, le=1_000, description="variations L written of each survivor")
    lookahead: int = Field(
        0,
        ge=0,
        le=1_000,
        description="variations whose mean embedding stands for a sample; 0: the sample's own",
    )
    threshold: float = Field(
        0.0, ge=0, le=1_000_000_000, description="noisy counts below this become 0; a public constant"
    )
    temperature: float = Field(1.4, ge=0.001, le=1_000, description="temperature of samples and variations")
    varying: Literal["rewrite", "continue"] = Field(
        "rewrite", description="rewrite by a prompt, or continue a random prefix, which suits base models"
    )
    max_tokens: int = Field(128, ge=1, le=1_000_000, description="a sample ends here at the latest")
    record_tokens: int = Field(256, ge=1, le=1_000_000, description="a record is cut after this many")
    prompt: str = Field(DEFAULT_PROMPT, max_length=8_000, description="of first samples; slot {label}")
    rewriting: str = Field(
        DEFAULT_REWRITING, max_length=8_000, description="of variations; slots {label} and {text}"
    )


def sensitivity(parameters: AugPe, terms: Terms) -> float:
    """L2 sensitivity of an epoch's counts: b sqrt(k), or b sqrt(2k) under replace-one."""
    return terms.max_records_per_unit * math.sqrt(doubled(terms) * parameters.votes)


def price(parameters: AugPe, terms: Terms) -> Price:
    """One Gaussian histogram per epoch."""
    multiplier = resolved(parameters.noise_multiplier, "noise_multiplier")
    event = SelfComposed(Gaussian(multiplier), parameters.epochs)
    sigma = multiplier * sensitivity(parameters, terms)
    line = (
        f"{parameters.epochs:,} histograms of votes: Gaussian, σ {sigma:.6g} (sensitivity "
        f"{sensitivity(parameters, terms):.4g}), together {cost(event, terms)}"
    )
    return Price(event, (line, "selection and variations read noisy counts only: free"))


def resolve(parameters: AugPe, terms: Terms) -> AugPe:
    """Calibrate the noise; refuse prompts that can't be filled and more votes than samples."""
    check_template(parameters.prompt, required=(), optional=("label",), field="prompt")
    check_template(parameters.rewriting, required=("text",), optional=("label",), field="rewriting")
    if parameters.votes > parameters.samples:
        raise invalid("votes", f"{parameters.votes} is more than samples", f"1 to {parameters.samples}")
    return with_multiplier(
        parameters, lambda epsilon: gaussian_multiplier(epsilon, terms.delta, parameters.epochs)
    )


def context_tokens(parameters: AugPe, template_tokens: int) -> int:
    """Longest context: the prompt, a sample, and its variation. The model never sees a record."""
    return template_tokens + 2 * parameters.max_tokens


MECHANISM = Mechanism(
    id="aug-pe",
    title="Augmented private evolution",
    summary="Writes samples from a prompt and keeps varying those that private records vote for.",
    source="Xie et al. 2024; papers 000 to 003 as a baseline",
    parameters=AugPe,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    size_field="epsilon",
    groups={
        "Size and privacy": "epsilon noise_multiplier temperature",
        "Texts": "samples max_tokens record_tokens",
    },
    order=5,
    example={"epsilon": 2.0},
)
