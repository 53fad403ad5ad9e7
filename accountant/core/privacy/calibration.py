"""Noise from epsilon: the least multiplier whose exact price does not pass it.

Never the classical sqrt(2 ln(1.25/delta))/epsilon, which is wrong for epsilon > 1 and wasteful below
(DESIGN, trap 3; Balle and Wang 2018). A multiplier is sigma, or the Laplace scale, over the sensitivity
under the dataset's relation. Resolved parameters carry the multiplier and no epsilon, so that runner,
ledger and verifier use one number that nobody computes again.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Parameters
from accountant.core.privacy.composition import check_delta, epsilon_alone, gaussian_mu
from accountant.core.privacy.divergences import pure_epsilon
from accountant.core.privacy.events import Event
from accountant.core.privacy.price import Terms
from accountant.core.privacy.units import float_up, up

#: Bounds of every `noise_multiplier`: below, epsilon passes 500,000; above, no release tells anything.
LEAST_MULTIPLIER, MOST_MULTIPLIER = 1e-3, 1e9
#: Bounds of every `epsilon` that noise is calibrated to.
LEAST_EPSILON, MOST_EPSILON = 1e-6, 1_000.0

#: Root-finding is good to 1e-13; this much more noise keeps the price below its target.
_SLACK = 1 + 1e-11

P = TypeVar("P", bound=Parameters)


class GaussianNoise(Parameters):
    """Fields of a mechanism whose main release is Gaussian: one of the two, never both."""

    noise_multiplier: float | None = Field(
        None,
        ge=LEAST_MULTIPLIER,
        le=MOST_MULTIPLIER,
        description="σ over the sensitivity under the dataset's relation, of each release; or give epsilon",
    )
    epsilon: float | None = Field(
        None,
        ge=LEAST_EPSILON,
        le=MOST_EPSILON,
        description="what these releases cost together at the dataset's δ; or give noise_multiplier",
    )

    either: ClassVar[tuple[tuple[str, str], ...]] = (("noise_multiplier", "epsilon"),)


def gaussian_multiplier(epsilon: float, delta: float, releases: int = 1) -> float:
    """Least sigma / sensitivity of each of `releases` Gaussians that cost (`epsilon`, `delta`) together.

    sqrt(releases) / mu with mu the root of the exact profile (paper 004, Equations 3 and 4).
    """
    check_delta(delta)
    return math.sqrt(releases) / gaussian_mu(epsilon, delta) * _SLACK


def sampled_multiplier(epsilon: float, delta: float, releases: int, probability: float) -> float:
    """The same for `releases` Gaussians on one sample of rate `probability`, by coin or of fixed size.

    Amplification is exact and can be undone: epsilon before sampling is ln(1 + (e^epsilon - 1)/q) at
    delta / q (Balle, Barthe and Gaboardi 2018, Theorems 8 and 9).
    """
    check_delta(delta)
    if delta >= probability:
        raise invalid("epsilon", f"any noise will do: delta {delta} is not below the rate {probability}")
    before = math.log1p(math.expm1(epsilon) / probability) if epsilon < 700 else epsilon
    return gaussian_multiplier(before, delta / probability, releases)


def laplace_multiplier(epsilon: float, releases: int = 1) -> float:
    """Least scale / sensitivity of each of `releases` Laplace releases of pure `epsilon` together."""
    return float_up(releases / Fraction(epsilon))


def with_multiplier(
    parameters: P,
    calibrate: Callable[[float], float],
    multiplier: str = "noise_multiplier",
    epsilon: str = "epsilon",
) -> P:
    """The parameters with field `multiplier` filled in and `epsilon` taken out.

    Raises InvalidRequest where both are asked for, or neither. An epsilon that stands there by default
    gives way to a multiplier.
    """
    given, target = getattr(parameters, multiplier), getattr(parameters, epsilon)
    either = f"one of {multiplier} and {epsilon}"
    if given is not None and target is not None and epsilon in parameters.model_fields_set:
        raise invalid(multiplier, f"given together with {epsilon}", either)
    if given is None and target is None:
        raise invalid(multiplier, f"neither this nor {epsilon} is given", either)
    if given is None:
        given = calibrate(target)
        if not LEAST_MULTIPLIER <= given <= MOST_MULTIPLIER:
            raise invalid(epsilon, f"{target!r} needs a noise multiplier of {given:.3g}", "a nearer value")
    return parameters.model_copy(update={multiplier: given, epsilon: None})


ARTIFACTS_ARE_FREE = "reads released artifacts and nothing private: free"


def from_job_field(artifacts: str) -> Any:
    """The field by which a job reads what an earlier one released, at no cost."""
    return Field(
        None,
        min_length=1,
        max_length=100,
        description=f"an earlier job whose {artifacts} are read instead of the records: free",
    )


def without_noise(parameters: P) -> P:
    """The parameters of a job that reads artifacts only. Raises InvalidRequest where noise is asked for."""
    for pair in parameters.either:
        for name in pair:
            if name in parameters.model_fields_set and getattr(parameters, name) is not None:
                raise invalid(name, "given together with from_job", "nothing: no noise is added")
    return parameters.model_copy(update=dict.fromkeys((n for pair in parameters.either for n in pair), None))


def resolved(value: float | None, field: str) -> float:
    """A multiplier that `with_multiplier` has filled in."""
    if value is None:
        raise invalid(field, "the parameters are not resolved", "parameters from Mechanism.parse")
    return value


def cost(event: Event, terms: Terms) -> str:
    """What a part costs alone, in words: "ε 0.10" where it is pure, else "ε 0.90 at δ 1e-06"."""
    pure = pure_epsilon(event)
    if pure is not None:
        return f"ε {amount(float(pure))}"
    return f"ε {amount(epsilon_alone(event, terms.delta)[0])} at δ {up(terms.delta, 3):.3g}"


def amount(value: float) -> str:
    """Two decimals, or two significant digits where those would show nothing; never below the value."""
    if 0 < value < 0.05:
        return f"{up(value, 2):.2g}"
    digits = math.floor(math.log10(value)) + 3 if value else 1
    return f"{up(value, digits):,.2f}"
