"""The price of `length-histogram`: how many records there are of each length in words.

A record lies in one of the public bins. A unit of at most b records moves the counts by b in L1,
and by 2 b if it is replaced. All counts are one release with Laplace noise.
"""

from pydantic import Field

from accountant.core.mechanisms.base import Mechanism, Parameters
from accountant.core.mechanisms.batches import doubled
from accountant.core.mechanisms.noise_fields import cost
from accountant.core.privacy.calibration import laplace_multiplier
from accountant.core.privacy.events import Laplace
from accountant.core.privacy.price import Price, Terms


class LengthHistogram(Parameters):
    """Parameters of `length-histogram`."""

    epsilon: float = Field(0.1, ge=1e-6, le=1_000, description="pure ε of all counts together")
    bins: int = Field(
        10, ge=1, le=1_000, description="number of bins; the last holds all longer records"
    )
    width: int = Field(20, ge=1, le=10_000, description="words from one bin to the next")


def sensitivity(terms: Terms) -> int:
    """Return how far one unit moves the counts, in L1."""
    return doubled(terms) * terms.max_records_per_unit


def event(parameters: LengthHistogram) -> Laplace:
    """Return the one release."""
    return Laplace(laplace_multiplier(parameters.epsilon))


def price(parameters: LengthHistogram, terms: Terms) -> Price:
    """Price one Laplace release of all counts."""
    scale = event(parameters).noise_multiplier * sensitivity(terms)
    spent = cost(event(parameters), terms)
    return Price(
        event(parameters), (f"{parameters.bins:,} counts: Laplace, scale {scale:.6g}, {spent}",)
    )


MECHANISM = Mechanism(
    id="length-histogram",
    title="Histogram of lengths",
    summary="Counts records by their length in words, with Laplace noise. Uses no model.",
    source="Dwork, McSherry, Nissim and Smith 2006",
    parameters=LengthHistogram,
    price=price,
    resolve=lambda parameters, terms: parameters,  # nothing depends on the dataset's terms
    context_tokens=lambda parameters, template_tokens: 0,
    size_field="epsilon",
    runner="workers.mechanisms.length_histogram",
    groups={"Size and privacy": "epsilon bins width"},
    artifacts={"histogram": "noisy counts, a bin after the other"},
    uses_model=False,
    progress_unit="releases",
)
