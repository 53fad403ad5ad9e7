"""The price of `dp-kps` (paper 002).

Vocabulary: the first S *distinct* vocabulary terms of a record count once each; Laplace noise on every
term of the public vocabulary, not only on those seen. L1 sensitivity b S for a unit of at most b records,
2 b S under replace-one.

Sketches: random Fourier features in [-sqrt 2, sqrt 2], I of them. A record contributes the *mean* of its
phrases' features (independent), or those of its first phrases side by side (sequences): either way
L1 sqrt(2) I b and L2 sqrt(2 I) b, twice that under replace-one. A sequence of length L is drawn from
one sketch (independent), L (linear) or ceil(log2 L) + 1 (logarithmic), which share kde_epsilon equally.
Densities, sequences and prompts are free.

A vocabulary is charged once for all labels. Sketches are per label: labels partition the records; a unit
that changes its label moves two sketches by half of what it may move one, which has the same L1 norm
(and a smaller L2). Of all shifts of one L1 norm, the one on a single coordinate is the worst for Laplace
noise (Dong et al. 2022, Theorem 2.14: log-concave noise makes the chain of shifts exact).

Departures from the paper: its scale 2 sqrt(2) I / epsilon omits the 1 / |X| that it states elsewhere, its
|X| counts phrases and not records, and a record with S phrases would cost S times as much; its
ceil(log L) sketches leave none for a prefix of one phrase. It counts a record's first S terms, repeated
or not; distinct ones give the Gaussian variant its L2 norm and cost nothing.
"""

import math
from typing import ClassVar, Literal

from pydantic import Field

from accountant.core.errors import invalid
from accountant.core.mechanisms.base import Mechanism, Parameters
from accountant.core.mechanisms.batches import doubled
from accountant.core.mechanisms.noise_fields import (
    ARTIFACTS_ARE_FREE,
    cost,
    from_job_field,
    resolved,
    with_multiplier,
    without_noise,
)
from accountant.core.privacy.calibration import (
    LEAST_EPSILON,
    LEAST_MULTIPLIER,
    MOST_EPSILON,
    MOST_MULTIPLIER,
    gaussian_multiplier,
    laplace_multiplier,
)
from accountant.core.privacy.events import FREE, Composed, Event, Gaussian, Laplace, SelfComposed
from accountant.core.privacy.price import Price, Terms
from accountant.core.template import check_template

DEFAULT_PROMPT = "Write a text ({label}) that contains these terms: {phrases}"
#: A phrase is cut here in a prompt, so that the longest context is known beforehand.
PHRASE_TOKENS = 16


class DpKps(Parameters):
    """Parameters of `dp-kps`; the defaults are the paper's where it gives one."""

    either: ClassVar[tuple[tuple[str, str], ...]] = (
        ("vocabulary_noise_multiplier", "vocabulary_epsilon"),
        ("kde_noise_multiplier", "kde_epsilon"),
    )

    from_job: str | None = from_job_field("vocabulary and sketches")
    vocabulary: str | None = Field(
        None, min_length=1, max_length=200, description="public term list; nothing: the service's own"
    )
    terms_per_record: int = Field(
        10, ge=1, le=100_000, description="first distinct vocabulary terms S of a record that count"
    )
    vocabulary_size: int = Field(1_000, ge=1, le=10_000_000, description="terms N kept, by noisy count")
    vocabulary_epsilon: float | None = Field(
        1.0, ge=LEAST_EPSILON, le=MOST_EPSILON, description="pure ε of the vocabulary"
    )
    vocabulary_noise_multiplier: float | None = Field(
        None,
        ge=LEAST_MULTIPLIER,
        le=MOST_MULTIPLIER,
        description="Laplace scale over sensitivity, instead of vocabulary_epsilon",
    )
    kde_epsilon: float | None = Field(
        5.0,
        ge=LEAST_EPSILON,
        le=MOST_EPSILON,
        description="ε of all sketches together: pure with Laplace noise, at the dataset's δ with Gaussian",
    )
    kde_noise_multiplier: float | None = Field(
        None,
        ge=LEAST_MULTIPLIER,
        le=MOST_MULTIPLIER,
        description="scale or σ over the sensitivity of each sketch, instead of kde_epsilon",
    )
    noise: Literal["laplace", "gaussian"] = Field("laplace", description="noise of the sketches")
    method: Literal["independent", "linear", "logarithmic"] = Field(
        "independent", description="one sketch of phrases, or L or log2 L + 1 sketches of sequences"
    )
    sequence_length: int = Field(10, ge=1, le=1_000, description="phrases L of a sequence")
    features: int = Field(1_000, ge=1, le=10_000_000, description="random Fourier features I of a sketch")
    sequences_per_label: int = Field(1_000, ge=1, le=100_000_000, description="texts per label: free")
    prompt: str = Field(DEFAULT_PROMPT, max_length=8_000, description="slots {label} and {phrases}")
    temperature: float = Field(1.0, ge=0.001, le=1_000, description="temperature of the texts")
    max_tokens: int = Field(300, ge=1, le=1_000_000, description="a text ends here at the latest")


def sketches(parameters: DpKps) -> int:
    """Sketches that share the budget: 1, L, or ceil(log2 L) + 1."""
    length = parameters.sequence_length
    return {"independent": 1, "linear": length, "logarithmic": (length - 1).bit_length() + 1}[
        parameters.method
    ]


def vocabulary_sensitivity(parameters: DpKps, terms: Terms) -> int:
    """L1 sensitivity of the term counts: b S, 2 b S under replace-one."""
    return doubled(terms) * terms.max_records_per_unit * parameters.terms_per_record


def sketch_sensitivity(parameters: DpKps, terms: Terms) -> float:
    """Sensitivity of one sketch's sum: L1 for Laplace noise, L2 for Gaussian."""
    bound = doubled(terms) * terms.max_records_per_unit
    if parameters.noise == "laplace":
        return bound * math.sqrt(2) * parameters.features
    return bound * math.sqrt(2 * parameters.features)


def sketch_event(parameters: DpKps) -> Event:
    """One sketch of one label."""
    multiplier = resolved(parameters.kde_noise_multiplier, "kde_noise_multiplier")
    return Laplace(multiplier) if parameters.noise == "laplace" else Gaussian(multiplier)


def price(parameters: DpKps, terms: Terms) -> Price:
    """The vocabulary, and the sketches of one label; nothing where an earlier job's are used."""
    if parameters.from_job is not None:
        return Price(FREE, (ARTIFACTS_ARE_FREE,))
    counts = Laplace(resolved(parameters.vocabulary_noise_multiplier, "vocabulary_noise_multiplier"))
    scale = counts.noise_multiplier * vocabulary_sensitivity(parameters, terms)
    sketch, count = sketch_event(parameters), sketches(parameters)
    kde = SelfComposed(sketch, count) if count > 1 else sketch
    noise = resolved(parameters.kde_noise_multiplier, "kde_noise_multiplier")
    noise *= sketch_sensitivity(parameters, terms)
    kind = f"Laplace, scale {noise:.6g}" if parameters.noise == "laplace" else f"Gaussian, σ {noise:.6g}"
    what = "1 sketch" if count == 1 else f"{count:,} sketches"
    labels = ("labels partition the records, so their sketches cost as one",) if len(terms.labels) > 1 else ()
    return Price(
        Composed((counts, kde)),
        (
            f"counts of every vocabulary term: Laplace, scale {scale:.6g}, {cost(counts, terms)}",
            f"{what} of {parameters.features:,} features: {kind}, together {cost(kde, terms)}",
            *labels,
            f"{parameters.sequences_per_label:,} sequences and texts per label: free",
        ),
    )


def resolve(parameters: DpKps, terms: Terms) -> DpKps:
    """Fill in both multipliers; refuse a prompt that can't be filled."""
    check_template(parameters.prompt, required=("phrases",), optional=("label",), field="prompt")
    if parameters.from_job is not None:
        return without_noise(parameters)
    count = sketches(parameters)
    if parameters.method != "independent" and parameters.sequence_length > parameters.terms_per_record:
        why = f"{parameters.sequence_length} is more than terms_per_record, of which sequences consist"
        raise invalid("sequence_length", why, f"1 to {parameters.terms_per_record}")

    def calibrate(epsilon: float) -> float:
        if parameters.noise == "laplace":
            return laplace_multiplier(epsilon, count)
        return gaussian_multiplier(epsilon, terms.delta, count)

    parameters = with_multiplier(parameters, calibrate, "kde_noise_multiplier", "kde_epsilon")
    return with_multiplier(
        parameters, laplace_multiplier, "vocabulary_noise_multiplier", "vocabulary_epsilon"
    )


def context_tokens(parameters: DpKps, template_tokens: int) -> int:
    """Longest context: prompt, phrases, and one text. The model never sees a record."""
    return template_tokens + parameters.sequence_length * PHRASE_TOKENS + parameters.max_tokens


MECHANISM = Mechanism(
    id="dp-kps",
    title="DP keyphrase prompt seeding",
    summary="Releases a noisy vocabulary and densities of phrases, and prompts a model with draws from them.",
    source="Nagesh et al.: Private text generation by seeding large language model prompts",
    parameters=DpKps,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    size_field="kde_epsilon",
    groups={"Size and privacy": "from_job noise temperature", "Texts": "max_tokens"},
    order=4,
)
