"""The price of `aug-pe` (Xie et al. 2024, a baseline of papers 000 to 003).

In every epoch each private record votes for its k nearest samples, and all counts get Gaussian
noise, those without a vote too. k distinct votes of one record have L2 norm sqrt(k); a replaced
record moves k counts down and k up, sqrt(2k); b records of one unit make that b times as much,
whether their votes fall together or not. Threshold, ranks and variations by the model read noisy
counts only: free. A record votes under its own label, and replacing one moves the counts of two
labels by no more in total. Numbers of samples per label are given, never counted. All epochs
together are one Gaussian: exact.
"""

from fractions import Fraction

from pydantic import Field

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Mechanism, texts
from accountant.core.mechanisms.batches import doubled
from accountant.core.mechanisms.evolution_fields import (
    EVOLUTION,
    MOST_SCALE,
    NEEDS_VARYING,
    EvolvingTexts,
    evolution_context,
    evolution_resources,
    root_up,
    with_prompts,
)
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


class AugPe(EvolvingTexts, GaussianNoise):
    """Parameters of `aug-pe`; the defaults are the paper's where it gives one.

    A job with `from_job` selects among the samples of an earlier one by its noisy counts, and
    varies them; one with `population` pays for epochs of its own that go on from what an earlier
    one released.
    """

    from_job: str | None = from_job_field("samples and noisy counts")
    from_epoch: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="with from_job: the epoch whose samples and counts are read; nothing: the last",
    )
    population: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="an earlier job of aug-pe or secpe with whose survivors this one begins; "
        "nothing: with samples of the prompt",
    )
    epochs: int = Field(
        10, ge=1, le=10_000, description="rounds of voting; each reads every record once"
    )
    votes: int = Field(
        1, ge=1, le=1_000, description="how many samples each record votes for: no one twice"
    )
    lookahead: int = Field(
        0,
        ge=0,
        le=1_000,
        description="how many variations speak for a sample by their mean; 0: it speaks for itself",
    )
    threshold: float = Field(
        0.0,
        ge=0,
        le=1_000_000_000,
        description="noisy counts below this turn to 0, such as 2",
    )


def sensitivity(parameters: AugPe, terms: Terms) -> Fraction:
    """Return L2 sensitivity of an epoch's counts, up: b sqrt(k), sqrt(2) more if replaced."""
    return terms.max_records_per_unit * root_up(doubled(terms) * parameters.votes)


def votes_event(parameters: AugPe) -> Gaussian:
    """Return one epoch's histograms of all labels."""
    return Gaussian(resolved(parameters.noise_multiplier, "noise_multiplier"))


def price(parameters: AugPe, terms: Terms) -> Price:
    """Return one Gaussian histogram per epoch, or nothing where an earlier job's are read."""
    if parameters.from_job is not None:
        return Price(FREE, (ARTIFACTS_ARE_FREE,))
    event = SelfComposed(votes_event(parameters), parameters.epochs)
    far = float(sensitivity(parameters, terms))
    sigma = votes_event(parameters).noise_multiplier * far
    line = (
        f"{parameters.epochs:,} histograms of votes: Gaussian, σ {sigma:.6g} (sensitivity "
        f"{far:.4g}), together {cost(event, terms)}"
    )
    return Price(event, (line, "selection and variations read noisy counts only: free"))


def resolve(parameters: AugPe, terms: Terms) -> AugPe:
    """Calibrate the noise; refuse prompts that can't be filled and more votes than samples."""
    parameters = with_prompts(parameters)
    if parameters.from_job is not None:
        # it begins with its own
        return without_noise(parameters.model_copy(update={"population": None}))
    if parameters.from_epoch is not None:
        raise invalid("from_epoch", "there is no from_job", "nothing, or a job in from_job")
    if parameters.votes > parameters.samples:
        raise invalid(
            "votes", f"{parameters.votes} is more than samples", f"1 to {parameters.samples}"
        )
    field = "epsilon" if parameters.noise_multiplier is None else "noise_multiplier"
    parameters = with_multiplier(
        parameters, lambda epsilon: gaussian_multiplier(epsilon, terms.delta, parameters.epochs)
    )
    scale = Fraction(votes_event(parameters).noise_multiplier) * sensitivity(parameters, terms)
    if scale > MOST_SCALE:
        raise invalid(
            field, f"σ would be {float(scale):.3g} votes", f"noise of at most {MOST_SCALE:.3g}"
        )
    return parameters


def texts_written(parameters: AugPe) -> tuple[int, int]:
    """Return texts of each label at the most: (by the prompt, varied from another)."""
    samples, tokens = parameters.samples, parameters.variations
    if parameters.from_job is not None:
        return 0, samples * tokens
    ahead = parameters.epochs * parameters.lookahead * samples * (tokens + 1)
    return samples * (tokens + 1), ahead + (parameters.epochs - 1) * samples * tokens


MECHANISM = Mechanism(
    id="aug-pe",
    title="Augmented private evolution",
    summary="Writes samples from a prompt and keeps varying those that private records vote for.",
    source="Xie et al. 2024; papers 000 to 003 as a baseline",
    parameters=AugPe,
    price=price,
    resolve=resolve,
    context_tokens=evolution_context,
    size_field="epsilon",
    resources=evolution_resources,
    sources=lambda parameters: {} if parameters.population is None else {"population": EVOLUTION},
    releases=(EVOLUTION,),
    needs={
        **NEEDS_VARYING,
        "from_job=": "epsilon noise_multiplier population",
        "from_job": "from_epoch",
    },
    artifacts_need_model=False,
    progress_unit="texts",
    runner="workers.mechanisms.aug_pe",
    groups={
        "Size and privacy": "from_job epsilon noise_multiplier epochs votes threshold temperature",
        "Texts": "population samples variations select max_tokens record_tokens stop prompt "
        "prompting seed",
        "Variations": "varying kept rewriting lookahead writer",
        "Aggregation and clusters": "embedding",
    },
    order=5,
    advice="the model never reads a record: records only vote for texts that it wrote",
    plain="epsilon samples max_tokens from_job",
    yields=lambda p, terms: texts(p.samples, terms.labels, p.max_tokens, "at most"),
    example={
        "epsilon": 2.0,
        "epochs": 3,
        "samples": 8,
        "variations": 2,
        "varying": "continue",
        "prompting": "plain",
        "seed": 1,
    },
    artifacts={
        EVOLUTION: "every sample with its origin, and each epoch's noisy counts and survivors"
    },
)


#: Rounds and variations of a form's defaults.
EPOCHS, VARIATIONS = 3, 3


def evolution_shape(terms: Terms, epsilon: float) -> dict[str, int]:
    """Return parameters with so few candidates that their votes stand out of the noise: three
    times its σ each, if all were alike.

    Raises InvalidRequest for an ε that it can't serve.
    """
    shape = {"epochs": EPOCHS, "variations": VARIATIONS}
    parsed = MECHANISM.parse({**shape, "epsilon": epsilon}, terms)
    multiplier = resolved(parsed.noise_multiplier, "noise_multiplier")
    sigma = multiplier * float(sensitivity(parsed, terms))
    voters = (terms.public_size or 0) / max(1, len(terms.labels))
    return {**shape, "samples": max(1, int(voters / (3 * sigma)) // (VARIATIONS + 1))}
