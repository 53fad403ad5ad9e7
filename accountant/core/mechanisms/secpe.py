"""The price of `secpe`, secret-protected evolution (paper 003, Algorithms 1 to 3).

Private records move public cluster counts and centres; noisy counts and centres are released, and
the evolution reads nothing else. With shift and noise counted in records (a centre's by 2R / n_k),
counts and centres of all clusters are one Gaussian vector, and one release calibrated for both.
sigma is the least for which an attacker's success B(p) stays within r (blowup.py,
docs/accounting.md).

Departures from the paper, which calibrates N(X, sigma^2) for the counts and again for the centres:
both are released, so the shift is sqrt(2) X (2 X where redacted); sampling rates are declared, for
the weights of its linear program depend on which records hold which secrets; and the job has no
(epsilon, delta) price at all, for a record without secrets always takes part.

The paper's centre votes for its nearest sample, with the public texts in its count. So at most K
samples have votes, all other survivors are drawn by lot, and where n_k is not small beside m_k the
public corpus decides. Released counts and centres with public n_k allow better votes for nothing,
which are the default.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import Field

from accountant.core.errors import FieldProblem, invalid
from accountant.core.mechanisms.base import Mechanism, texts
from accountant.core.mechanisms.evolution_fields import (
    EVOLUTION,
    NEEDS_VARYING,
    EvolvingTexts,
    evolution_context,
    evolution_resources,
    with_prompts,
)
from accountant.core.mechanisms.noise_fields import (
    ARTIFACTS_ARE_FREE,
    from_job_field,
    without_noise,
)
from accountant.core.privacy.blowup import GroupSampling, Without, least_sigma
from accountant.core.privacy.events import FREE
from accountant.core.privacy.price import Price, Terms
from accountant.core.privacy.secrets import (
    LEAST_PRIOR,
    MOST_RECORDS,
    MOST_ROUNDS,
    SecretRelease,
    SecretTerms,
)
from accountant.core.privacy.units import down, up

LEAST_SIGMA, MOST_SIGMA = 1e-2, 1e8
#: The least bound / prior that noise is calibrated to.
LEAST_RATIO = 1.01

#: What the released counts and centres are to a job that reads them.
CLUSTERS = "noisy-clusters"


class SecPe(EvolvingTexts):
    """Parameters of `secpe`. The four that state secrets are the dataset's and need no repeating on
    it.

    A job with `from_job` evolves texts by the counts and centres that an earlier one released.
    """

    prior: float | None = Field(
        None,
        ge=LEAST_PRIOR,
        le=0.5,
        description="the best chance to guess a secret before any job",
    )
    records_per_secret: int | None = Field(
        None,
        ge=1,
        le=MOST_RECORDS,
        description="how many records carry one secret at most, such as 3: a public figure",
    )
    sampling_rate: float | None = Field(
        None,
        ge=1e-6,
        le=1,
        description="public rate at which a record with a secret takes part in a round",
    )
    neighbour: Literal["removed", "redacted"] | None = Field(
        None,
        description="what 'without the secret' means: its records are gone, or it is blanked in "
        "them",
    )
    bound: float | None = Field(
        None,
        gt=0,
        le=0.999,
        description="the best chance to guess a secret after this job; nothing: the dataset's",
    )
    noise_multiplier: float | None = Field(
        None,
        ge=LEAST_SIGMA,
        le=MOST_SIGMA,
        description="noise of each release, in units of what one record moves; or give bound",
    )
    public_corpus: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="the public corpus whose clusters are moved; none with `from_job`",
    )
    public_texts: int = Field(
        10_000,
        ge=1,
        le=10_000_000,
        description="texts of the corpus that are clustered at most, per label",
    )
    clusters: int = Field(
        20, ge=1, le=100_000, description="how many public clusters each label has"
    )
    radius: float = Field(
        1.0,
        gt=0,
        le=1_000,
        description="how long an embedding may be, such as 1: a longer one is cut",
    )
    iterations: int = Field(10, ge=1, le=MOST_ROUNDS, description="rounds of evolution")
    recluster: bool = Field(
        False, description="release counts and centres in every round; else once, for all rounds"
    )
    variations: int = Field(
        6, ge=0, le=1_000, description="how many new forms of each kept text are written"
    )
    temperature: float = Field(
        1.2, ge=0.001, le=1_000, description="how bold the texts are: 0.7 is calm, 1.2 is wild"
    )
    voting: Literal["shares", "nearest"] = Field(
        "shares",
        description="shares: by its count, each centre fills a part of the places. Nearest: each "
        "gives its vote to one sample, the nearest",
    )
    counted: Literal["private", "all"] = Field(
        "private",
        description="what a centre's vote weighs: the noisy number of private records, or with the "
        "public texts of its cluster, as in the paper",
    )
    from_job: str | None = from_job_field("noisy counts and centres")
    start: Literal["anew", "samples"] = Field(
        "anew",
        description="with from_job: begin with new samples, or with those of that job's last round",
    )

    either: ClassVar[tuple[tuple[str, str], ...]] = (("bound", "noise_multiplier"),)


def release(parameters: SecPe) -> SecretRelease:
    """Return the release of a job with these resolved parameters."""
    rounds = parameters.iterations if parameters.recluster else 1
    declared = (
        parameters.records_per_secret,
        parameters.sampling_rate,
        parameters.neighbour,
        parameters.noise_multiplier,
    )
    records, rate, neighbour, sigma = declared
    if records is None or rate is None or neighbour is None or sigma is None:
        raise invalid(
            "noise_multiplier", "the parameters are not resolved", "parameters from Mechanism.parse"
        )
    return SecretRelease(records, rate, Without(neighbour), sigma, rounds)


def price(parameters: SecPe, terms: Terms) -> Price:  # noqa: ARG001 - all it needs is resolved
    """Return one release of counts and centres, or one a round."""
    if parameters.from_job is not None:
        return Price(FREE, (ARTIFACTS_ARE_FREE,))
    released = release(parameters)
    prior = parameters.prior
    assert prior is not None  # resolved with the rest
    bound = released.blow_up(prior)
    rounds = (
        f"{released.rounds} rounds, fresh coins and noise in each"
        if released.rounds > 1
        else "one round"
    )
    lines = (
        f"{rounds}: counts and centres of {parameters.clusters:,} clusters as one Gaussian, σ "
        f"{released.sigma:.6g} of one record's move; labels side by side",
        f"a secret in at most {released.records:,} records, each taking part at rate "
        f"{released.rate:g}, {released.without}: guessed with probability at most "
        f"{up(bound, 4):.4g} after {down(prior, 6):g} before",
        "no (ε, δ): records without secrets always take part",
        "rounds of evolution read released counts and centres only: free",
    )
    secret = {"release": released.to_json(), "prior": prior, "bound": bound}
    return Price(None, lines, secret=secret)


def resolve(parameters: SecPe, terms: Terms) -> SecPe:
    """Fill in the dataset's declarations and calibrate σ; refuse what contradicts either."""
    parameters = with_prompts(parameters)
    if parameters.from_job is not None:
        # nothing is clustered
        return without_noise(parameters.model_copy(update={"public_corpus": None}))
    if parameters.start != "anew":
        raise invalid(
            "start", "there is no from_job whose samples to begin with", "anew, or a from_job"
        )
    if parameters.public_texts < parameters.clusters:
        most = parameters.public_texts
        raise invalid("clusters", f"{parameters.clusters} of {most} public texts", f"1 to {most}")
    if terms.max_records_per_unit != 1:
        raise invalid(
            "mechanism", "secpe needs at most one record per unit", "max_records_per_unit 1"
        )
    filled = _with_declared(parameters, terms.secret)
    if parameters.bound is not None and parameters.noise_multiplier is not None:
        raise invalid(
            "bound", "given together with noise_multiplier", "one of bound and noise_multiplier"
        )
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
        raise invalid(
            "bound", f"{bound!r} is not above the prior {filled.prior!r}", f"at least {least:g}"
        )
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
    """Return the parameters with what the dataset declares about its secrets."""
    facts: dict[str, object] = {}
    if declared is not None:
        facts = {
            "prior": declared.prior,
            "records_per_secret": declared.records,
            "sampling_rate": declared.rate,
            "neighbour": str(declared.without),
        }
    for name in ("prior", "records_per_secret", "sampling_rate", "neighbour"):
        value = getattr(parameters, name)
        if value is None and name not in facts:
            raise invalid(
                name, "neither the request nor the dataset states it", "see the parameter"
            )
        if value is not None and name in facts and value != facts[name]:
            raise invalid(name, f"{value!r} is not what the dataset declares", f"{facts[name]!r}")
    return parameters.model_copy(update=facts)


@lru_cache(maxsize=256)
def _sigma(group: GroupSampling, rounds: int, prior: float, bound: float) -> float:
    """Round up to six digits: any sigma above the least is sound, and a short one reads better."""
    sigma = least_sigma(group, rounds, prior, bound, LEAST_SIGMA)
    digits = 10.0 ** (5 - math.floor(math.log10(sigma)))
    return math.ceil(sigma * digits) / digits


def missing(parameters: SecPe) -> FieldProblem | None:
    """Return a corpus: the price does without."""
    if parameters.from_job is None and parameters.public_corpus is None:
        return FieldProblem(
            "public_corpus", "the clusters are those of one", "the name of a registered corpus"
        )
    return None


def resources(parameters: SecPe) -> dict[str, str]:
    """Return the registered things that the parameters name."""
    named = {} if parameters.public_corpus is None else {"public_corpus": "corpus"}
    return named | evolution_resources(parameters)


def unfit_public(
    parameters: SecPe,
    terms: Terms,  # noqa: ARG001
    facts: Mapping[str, Mapping[str, Any]],
) -> FieldProblem | None:
    """Return a corpus with fewer texts than clusters."""
    texts = facts.get("public_corpus", {}).get("texts")
    if texts is None or texts >= parameters.clusters:
        return None
    why = f"{parameters.clusters} are asked for, the corpus has {texts:,} texts"
    return FieldProblem("clusters", why, f"1 to {texts}")


def texts_written(parameters: SecPe) -> tuple[int, int]:
    """Return texts of each label at the most: (by the prompt, varied from another)."""
    first = parameters.samples * (parameters.variations + 1) if parameters.start == "anew" else 0
    return first, (parameters.iterations - 1) * parameters.samples * parameters.variations


MECHANISM = Mechanism(
    id="secpe",
    title="Secret-protected evolution",
    summary="Makes public texts more like the data by noisy votes. It guards the stated "
    "secrets, not records.",
    source="Wang et al.: Secret-protected evolution, Algorithms 1 to 3",
    parameters=SecPe,
    price=price,
    resolve=resolve,
    context_tokens=evolution_context,
    size_field="bound",
    missing=missing,
    resources=resources,
    unfit_public=unfit_public,
    releases=(CLUSTERS, EVOLUTION),
    needs={
        **NEEDS_VARYING,
        "from_job=": "bound noise_multiplier public_corpus public_texts clusters",
        "from_job": "start",
    },
    artifacts_need_model=False,
    progress_unit="texts",
    runner="workers.mechanisms.secpe",
    groups={
        "Size and privacy": "from_job start bound noise_multiplier iterations recluster "
        "temperature",
        "Secrets": "prior records_per_secret sampling_rate neighbour",
        "Texts": "samples variations select max_tokens record_tokens stop prompt prompting seed",
        "Variations": "varying kept rewriting writer",
        "Aggregation and clusters": "public_corpus public_texts clusters radius voting counted "
        "embedding",
    },
    order=6,
    advice="it protects declared secrets and nothing else",
    plain="bound public_corpus samples max_tokens from_job",
    yields=lambda p, terms: texts(p.samples, terms.labels, p.max_tokens, "at most"),
    example={
        "prior": 0.0001,
        "bound": 0.02,
        "records_per_secret": 3,
        "sampling_rate": 0.5,
        "neighbour": "removed",
        "public_corpus": "public-reviews",
        "clusters": 5,
        "iterations": 3,
        "samples": 8,
        "variations": 2,
        "varying": "continue",
        "prompting": "plain",
        "seed": 1,
    },
    artifacts={
        "clusters": "noisy counts and centres of the public clusters",
        EVOLUTION: "every sample with its origin, and each round's votes and survivors",
    },
)
