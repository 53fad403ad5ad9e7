"""The price of `noisy-count`: the number of privacy units, per declared label or in all.

One noisy vector with a count for every declared label, those without records too. A unit keeps at
most b records, so it is counted under at most k = min(b, labels) of them, by 1 each. Adding or
removing it moves k counts by 1: L1 norm k, L2 sqrt(k). Replacing it moves the counts of the unit
that leaves and of the one that comes, at most min(2k, labels) of them, for a label of both cancels;
of a single count it is still 1, because a unit may be unreadable and count nowhere.

Laplace noise (Dwork, McSherry, Nissim and Smith 2006) is pure and the better one for few labels;
Gaussian noise grows with the square root of the moved counts only. Noisy counts are whole numbers
and may be negative: cutting them at zero would bias every sum of them, and anyone may do it later
for free.
"""

import math
from typing import ClassVar, Literal

from pydantic import Field

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Mechanism, Parameters, Yield
from accountant.core.mechanisms.batches import doubled
from accountant.core.mechanisms.noise_fields import amount, cost, resolved, with_multiplier
from accountant.core.privacy.calibration import (
    LEAST_EPSILON,
    LEAST_MULTIPLIER,
    MOST_EPSILON,
    MOST_MULTIPLIER,
    gaussian_multiplier,
    laplace_multiplier,
)
from accountant.core.privacy.events import Event, Gaussian, Laplace
from accountant.core.privacy.price import Price, Terms

#: Scale or sigma, at most: nothing would be told beyond, and the sampler draws none beyond 2^40.
MOST_NOISE = 2**39


class NoisyCount(Parameters):
    """Parameters of `noisy-count`."""

    either: ClassVar[tuple[tuple[str, str], ...]] = (("noise_multiplier", "epsilon"),)

    per: Literal["label", "dataset"] = Field(
        "label", description="a count for each label, or one of all records"
    )
    noise: Literal["laplace", "gaussian"] = Field(
        "laplace",
        description="Laplace is pure ε; Gaussian is less noise where a unit has many labels",
    )
    epsilon: float | None = Field(
        0.1,
        ge=LEAST_EPSILON,
        le=MOST_EPSILON,
        description="what all counts cost together: pure with Laplace, at the dataset's δ with "
        "Gaussian",
    )
    noise_multiplier: float | None = Field(
        None,
        ge=LEAST_MULTIPLIER,
        le=MOST_MULTIPLIER,
        description="noise of each count, in units of what one unit can change, such as "
        "2; or give epsilon",
    )


def count_labels(parameters: NoisyCount, terms: Terms) -> int:
    """Return the number of counts released, which is public."""
    return max(1, len(terms.labels)) if parameters.per == "label" else 1


def counts_moved(parameters: NoisyCount, terms: Terms) -> int:
    """Return most counts that differ between neighbours, each by 1: the L1 sensitivity."""
    labels = count_labels(parameters, terms)
    return min(doubled(terms) * min(terms.max_records_per_unit, labels), labels)


def sensitivity(parameters: NoisyCount, terms: Terms) -> float:
    """Return L1 for Laplace noise, L2 (a square root, rounded up) for Gaussian."""
    moved = counts_moved(parameters, terms)
    if parameters.noise == "laplace" or math.isqrt(moved) ** 2 == moved:
        return float(moved if parameters.noise == "laplace" else math.isqrt(moved))
    return math.nextafter(math.sqrt(moved), math.inf)


def count_event(parameters: NoisyCount) -> Event:
    """Return the one release that all counts are."""
    multiplier = resolved(parameters.noise_multiplier, "noise_multiplier")
    return Laplace(multiplier) if parameters.noise == "laplace" else Gaussian(multiplier)


def noise_scale(parameters: NoisyCount, terms: Terms) -> float:
    """Return the scale of Laplace noise on each count, or the σ of Gaussian noise."""
    multiplier = resolved(parameters.noise_multiplier, "noise_multiplier")
    return multiplier * sensitivity(parameters, terms)


def near(parameters: NoisyCount, terms: Terms) -> float:
    """Return the distance within which 95 % of noisy counts are of the true one.

    95 % of a Laplace lie within ln(20) scales, of a normal within 1.96 sigma; rounding adds a half.
    """
    reach = math.log(20) if parameters.noise == "laplace" else 1.959964
    return noise_scale(parameters, terms) * reach + 0.5


def price(parameters: NoisyCount, terms: Terms) -> Price:
    """Return one release of the vector of counts."""
    event, labels = count_event(parameters), count_labels(parameters, terms)
    scale = noise_scale(parameters, terms)
    laplace = parameters.noise == "laplace"
    named = f"Laplace, scale {scale:.6g}" if laplace else f"Gaussian, σ {scale:.6g}"
    relation = "replacing a unit" if doubled(terms) == 2 else "adding or removing a unit"
    moved = counts_moved(parameters, terms)
    counts = "1 count" if labels == 1 else f"{labels:,} counts, one for each label"
    return Price(
        event,
        (
            f"{counts}: {named}, together {cost(event, terms)}",
            f"{relation} moves at most {moved:,} of them, by 1",
            f"each count is within ±{amount(near(parameters, terms))} of the true one with 95 % "
            "probability",
        ),
    )


def resolve(parameters: NoisyCount, terms: Terms) -> NoisyCount:
    """Fill in the multiplier; refuse noise that nobody can draw."""

    def calibrate(epsilon: float) -> float:
        if parameters.noise == "laplace":
            return laplace_multiplier(epsilon)
        return gaussian_multiplier(epsilon, terms.delta)

    parameters = with_multiplier(parameters, calibrate)
    multiplier = resolved(parameters.noise_multiplier, "noise_multiplier")
    most = MOST_NOISE / sensitivity(parameters, terms)
    if multiplier > most:
        why = f"a noise multiplier of {multiplier:.6g} leaves nothing but noise"
        raise invalid("noise_multiplier", why, f"a multiplier of at most {most:.6g}")
    return parameters


MECHANISM = Mechanism(
    id="noisy-count",
    title="Noisy count",
    summary="Says how many privacy units there are, per label or in all, with noise.",
    source="Dwork, McSherry, Nissim and Smith 2006",
    parameters=NoisyCount,
    price=price,
    resolve=resolve,
    context_tokens=lambda _parameters, _template_tokens: 0,
    size_field="epsilon",
    uses_model=False,
    progress_unit="counts",
    runner="workers.mechanisms.noisy_count",
    groups={"Size and privacy": "per noise epsilon noise_multiplier"},
    order=1,
    goal="counts",
    advice="it counts units with noise of a size that is told beforehand",
    plain="per epsilon",
    yields=lambda p, terms: Yield("counts", count_labels(p, terms)),
)
