"""The price of `secpe`, secret-protected evolution (paper 003, Algorithms 1 to 3).

Private records move public cluster counts and centres; noisy counts and centres are released, and the
evolution reads nothing else. With shift and noise counted in records (a centre's by 2R / n_k), counts and
centres of all clusters are one Gaussian vector, and one release calibrated for both. sigma is the least
for which an attacker's success B(p) stays within r (blowup.py, docs/accounting.md).

Departures from the paper, which calibrates N(X, sigma^2) for the counts and again for the centres:
both are released, so the shift is sqrt(2) X (2 X where redacted); sampling rates are declared, for the
weights of its linear program depend on which records hold which secrets; and the job has no (epsilon,
delta) price at all, for a record without secrets always takes part.
"""

import math
from functools import lru_cache
from typing import ClassVar, Literal

from pydantic import Field

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Mechanism, Parameters
from accountant.core.mechanisms.noise_fields import ARTIFACTS_ARE_FREE, from_job_field, without_noise
from accountant.core.privacy.blowup import GroupSampling, Without, least_sigma
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Price, Terms
from accountant.core.privacy.secrets import LEAST_PRIOR, MOST_RECORDS, MOST_ROUNDS, SecretRelease, SecretTerms
from accountant.core.privacy.units import down, up

LEAST_SIGMA, MOST_SIGMA = 1e-2, 1e8
#: The least bound / prior that noise is calibrated to.
LEAST_RATIO = 1.01


class SecPe(Parameters):
    """Parameters of `secpe`. The first four are the dataset's and need no repeating on it."""

    prior: float | None = Field(
        None, ge=LEAST_PRIOR, le=0.5, description="p: how likely a secret is guessed beforehand, at most"
    )
    records_per_secret: int | None = Field(
        None, ge=1, le=MOST_RECORDS, description="public cap M on the records that carry one secret"
    )
    sampling_rate: float | None = Field(
        None, ge=1e-6, le=1, description="public rate at which a record with a secret takes part in a round"
    )
    neighbour: Literal["removed", "redacted"] | None = Field(
        None, description="what 'without the secret' means: its records are gone, or it is blanked in them"
    )
    bound: float | None = Field(
        None,
        gt=0,
        le=0.999,
        description="r: how likely a secret is guessed afterwards, at most; nothing: the dataset's",
    )
    noise_multiplier: float | None = Field(
        None, ge=LEAST_SIGMA, le=MOST_SIGMA, description="σ of one record's move; or give bound"
    )
    clusters: int = Field(20, ge=1, le=100_000, description="public clusters K")
    radius: float = Field(1.0, gt=0, le=1_000, description="embeddings are clipped to this norm R")
    iterations: int = Field(10, ge=1, le=MOST_ROUNDS, description="rounds of evolution T")
    recluster: bool = Field(
        False, description="release counts and centres in every round; else once, for all rounds"
    )
    variations: int = Field(6, ge=0, le=1_000, description="variations L written of each survivor")
    samples: int = Field(2_000, ge=1, le=10_000_000, description="samples that survive a round")
    temperature: float = Field(1.2, gt=0, le=1_000, description="temperature of samples and variations")
    max_tokens: int = Field(128, ge=1, le=1_000_000, description="a sample ends here at the latest")
    record_tokens: int = Field(256, ge=1, le=1_000_000, description="a record is cut after this many")
    from_job: str | None = from_job_field("noisy counts and centres")

    either: ClassVar[tuple[tuple[str, str], ...]] = (("bound", "noise_multiplier"),)


def release(parameters: SecPe) -> SecretRelease:
    """The release of a job with these resolved parameters."""
    rounds = parameters.iterations if parameters.recluster else 1
    given = (
        parameters.records_per_secret,
        parameters.sampling_rate,
        parameters.neighbour,
        parameters.noise_multiplier,
    )
    records, rate, neighbour, sigma = given
    if records is None or rate is None or neighbour is None or sigma is None:
        raise invalid(
            "noise_multiplier", "the parameters are not resolved", "parameters from Mechanism.parse"
        )
    return SecretRelease(records, rate, Without(neighbour), sigma, rounds)


def price(parameters: SecPe, terms: Terms) -> Price:  # noqa: ARG001 - all it needs is resolved
    """One release of counts and centres, or one a round."""
    if parameters.from_job is not None:
        return Price(FREE, (ARTIFACTS_ARE_FREE,))
    released = release(parameters)
    prior = parameters.prior
    assert prior is not None  # resolved with the rest
    bound = released.blow_up(prior)
    rounds = (
        f"{released.rounds} rounds, fresh coins and noise in each" if released.rounds > 1 else "one round"
    )
    lines = (
        f"{rounds}: counts and centres of {parameters.clusters:,} clusters as one Gaussian, σ "
        f"{released.sigma:.6g} of one record's move",
        f"a secret in at most {released.records:,} records, each taking part at rate {released.rate:g}, "
        f"{released.without}: guessed with probability at most {up(bound, 4):.4g} after "
        f"{down(prior, 6):g} before",
        "no (ε, δ): records without secrets always take part",
    )
    secret = {"release": released.to_json(), "prior": prior, "bound": bound}
    return Price(None, lines, secret=secret)


def resolve(parameters: SecPe, terms: Terms) -> SecPe:
    """Fill in the dataset's declarations and calibrate σ; refuse what contradicts either."""
    if parameters.from_job is not None:
        return without_noise(parameters)
    if terms.max_records_per_unit != 1:
        raise invalid("mechanism", "secpe needs at most one record per unit", "max_records_per_unit 1")
    filled = _with_declared(parameters, terms.secret)
    if parameters.bound is not None and parameters.noise_multiplier is not None:
        raise invalid("bound", "given together with noise_multiplier", "one of bound and noise_multiplier")
    bound = filled.bound
    if bound is None and terms.secret is not None:
        bound = terms.secret.bound
    if filled.noise_multiplier is not None:
        return filled
    if bound is None:
        raise invalid("bound", "neither this nor noise_multiplier is given", "one of the two")
    assert filled.prior is not None  # filled in above
    if bound < LEAST_RATIO * filled.prior:
        least = LEAST_RATIO * filled.prior
        raise invalid("bound", f"{bound!r} is not above the prior {filled.prior!r}", f"at least {least:g}")
    # A bound above the dataset's is the account's to refuse: its own figure decides, not the wish.
    rounds = filled.iterations if filled.recluster else 1
    records, rate, neighbour = filled.records_per_secret, filled.sampling_rate, filled.neighbour
    assert records is not None and rate is not None and neighbour is not None  # noqa: PT018
    group = GroupSampling(records, rate, Without(neighbour))
    sigma = _sigma(group, rounds, filled.prior, bound)
    if not sigma <= MOST_SIGMA:
        raise invalid("bound", f"{bound!r} needs noise of {sigma:.3g}", "a larger bound")
    return filled.model_copy(update={"noise_multiplier": sigma, "bound": None})


def _with_declared(parameters: SecPe, declared: SecretTerms | None) -> SecPe:
    """The parameters with what the dataset declares about its secrets."""
    facts: dict[str, object] = {}
    if declared is not None:
        facts = {
            "prior": declared.prior,
            "records_per_secret": declared.records,
            "sampling_rate": declared.rate,
            "neighbour": str(declared.without),
        }
    for name in ("prior", "records_per_secret", "sampling_rate", "neighbour"):
        given = getattr(parameters, name)
        if given is None and name not in facts:
            raise invalid(name, "neither the request nor the dataset states it", "see the parameter")
        if given is not None and name in facts and given != facts[name]:
            raise invalid(name, f"{given!r} is not what the dataset declares", f"{facts[name]!r}")
    return parameters.model_copy(update=facts)


@lru_cache(maxsize=256)
def _sigma(group: GroupSampling, rounds: int, prior: float, bound: float) -> float:
    """Rounded up to six digits: any sigma above the least is sound, and a short one reads better."""
    sigma = least_sigma(group, rounds, prior, bound, LEAST_SIGMA)
    digits = 10.0 ** (5 - math.floor(math.log10(sigma)))
    return math.ceil(sigma * digits) / digits


def context_tokens(parameters: SecPe, template_tokens: int) -> int:
    """Longest context: a prompt with one sample to vary, and the variation."""
    return template_tokens + 2 * parameters.max_tokens


MECHANISM = Mechanism(
    id="secpe",
    title="Secret-protected evolution",
    summary="Evolves public texts towards noisy clusters that protect declared secrets, not records.",
    source="Wang et al.: Secret-protected evolution, Algorithms 1 to 3",
    parameters=SecPe,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    size_field="bound",
    groups={
        "Size and privacy": "from_job noise_multiplier sampling_rate temperature",
        "Texts": "samples max_tokens record_tokens",
        "Aggregation and clusters": "clusters",
    },
    order=6,
    example={
        "prior": 0.0001,
        "bound": 0.02,
        "records_per_secret": 3,
        "sampling_rate": 0.5,
        "neighbour": "removed",
    },
)
