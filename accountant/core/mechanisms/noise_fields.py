"""Parameters of noise that mechanisms share: a multiplier or an epsilon, and what is free."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Parameters
from accountant.core.privacy.calibration import (
    LEAST_EPSILON,
    LEAST_MULTIPLIER,
    MOST_EPSILON,
    MOST_MULTIPLIER,
)
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.divergences import pure_epsilon
from accountant.core.privacy.events import Event
from accountant.core.privacy.price import Neighbours, Terms
from accountant.core.privacy.units import float_up, up

P = TypeVar("P", bound=Parameters)


class GaussianNoise(Parameters):
    """Fields of a mechanism whose main release is Gaussian: one of the two, never both."""

    noise_multiplier: float | None = Field(
        None,
        ge=LEAST_MULTIPLIER,
        le=MOST_MULTIPLIER,
        description="noise of each release, in units of what one unit can change, such as"
        " 2; or give epsilon",
    )
    epsilon: float | None = Field(
        None,
        ge=LEAST_EPSILON,
        le=MOST_EPSILON,
        description="what all of these releases cost at the dataset's δ, such as 0.5; or "
        "give noise_multiplier",
    )

    either: ClassVar[tuple[tuple[str, str], ...]] = (("noise_multiplier", "epsilon"),)


def with_multiplier(
    parameters: P,
    calibrate: Callable[[float], float],
    multiplier: str = "noise_multiplier",
    epsilon: str = "epsilon",
) -> P:
    """Return the parameters with field `multiplier` filled in and `epsilon` taken out.

    Raises InvalidRequest where both are asked for, or neither. An epsilon that stands there by
    default gives way to a multiplier.
    """
    noise, target = getattr(parameters, multiplier), getattr(parameters, epsilon)
    either = f"one of {multiplier} and {epsilon}"
    if noise is not None and target is not None and epsilon in parameters.model_fields_set:
        raise invalid(multiplier, f"given together with {epsilon}", either)
    if noise is None and target is None:
        raise invalid(multiplier, f"neither this nor {epsilon} is given", either)
    if noise is None:
        noise = calibrate(target)
        if not LEAST_MULTIPLIER <= noise <= MOST_MULTIPLIER:
            raise invalid(
                epsilon,
                f"{target!r} needs a noise multiplier of {noise:.3g}",
                "a nearer value",
            )
    return parameters.model_copy(update={multiplier: noise, epsilon: None})


ARTIFACTS_ARE_FREE = "reads released artifacts and nothing private: free"


def from_job_field(artifacts: str) -> Any:
    """Return the field by which a job reads what an earlier one released, at no cost."""
    return Field(
        None,
        min_length=1,
        max_length=100,
        description=f"an old job whose {artifacts} are used once more, free",
    )


def without_noise(parameters: P) -> P:
    """Return the parameters of a job over artifacts. Raises InvalidRequest for noise."""
    for pair in parameters.either:
        for name in pair:
            if name in parameters.model_fields_set and getattr(parameters, name) is not None:
                raise invalid(name, "given together with from_job", "nothing: no noise is added")
    return parameters.model_copy(
        update=dict.fromkeys((n for pair in parameters.either for n in pair), None)
    )


def resolved(value: float | None, field: str) -> float:
    """Return a multiplier that `with_multiplier` has filled in."""
    if value is None:
        raise invalid(field, "the parameters are not resolved", "parameters from Mechanism.parse")
    return value


def cost(event: Event, terms: Terms) -> str:
    """Return a part's cost alone, in words: "ε 0.10" if it is pure, else "ε 0.90 at δ 1e-06"."""
    pure = pure_epsilon(event)
    if pure is not None:
        return f"ε {amount(float(pure))}"
    return f"ε {amount(epsilon_alone(event, terms.delta)[0])} at δ {up(terms.delta, 3):.3g}"


def amount(value: float) -> str:
    """Return two decimals, or two significant digits of small values; never below the value."""
    if 0 < value < 0.05:
        return f"{up(value, 2):.2g}"
    digits = math.floor(math.log10(value)) + 3 if value else 1
    return f"{up(value, digits):,.2f}"


# --- samples ------------------------------------------------------------------------------------

# Public rates at which units are drawn. Refusals name fields of `epsvec`.


def population(terms: Terms) -> int | None:
    """Return the public number of units in the smallest label; None if it isn't public."""
    if terms.labels:
        return min(terms.label_sizes, default=None)
    return terms.public_size


def poisson_rate(samples: int, rate: float | None, terms: Terms) -> float:
    """Return the coin's rate: as asked, or the expected number over the public size of a label."""
    if rate is not None:
        return rate
    if terms.public_size is None:
        raise invalid(
            "sampling_rate", "the dataset has no public size to derive it from", "above 0 to 1"
        )
    derived = Fraction(samples * max(1, len(terms.labels)), terms.public_size)
    if derived > 1:
        most = terms.public_size // max(1, len(terms.labels))
        raise invalid(
            "samples_per_label",
            f"{samples} is more than the public size of a label",
            f"1 to {most}",
        )
    return float_up(derived)


def fixed_rate(samples: int, rate: float | None, terms: Terms) -> float:
    """m / n of a sample of exactly m of n, which needs replace-one and exact public numbers."""
    if terms.neighbours is Neighbours.ADD_REMOVE:
        why = "under add-remove a unit would displace another from the sample"
        raise invalid("sampling", why, "poisson, or a dataset whose neighbours are replace-one")
    if rate is not None:
        raise invalid(
            "sampling_rate", "a sample of fixed size has no coin", "nothing, or sampling poisson"
        )
    if terms.labels and terms.max_records_per_unit > 1:
        why = "a unit with records in several labels would be drawn in each"
        raise invalid("sampling", why, "poisson, or a dataset with one record per unit")
    size = population(terms)
    if size is None:
        what = "the sizes of its labels are" if terms.labels else "its size is"
        raise invalid(
            "sampling", f"the dataset does not declare that {what} exact and public", "poisson"
        )
    if samples > size:
        why = f"{samples} is more than the {size} units there are"
        raise invalid("samples_per_label", why, f"1 to {size}")
    return samples / size
