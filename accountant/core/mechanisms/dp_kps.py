"""The price of `dp-kps` (paper 002).

Vocabulary: the first S *distinct* vocabulary terms of a record count once each; Laplace noise on
every term of the public vocabulary, not only on those seen. L1 sensitivity b S for a unit of at
most b records, 2 b S under replace-one.

Sketches, of what a record has of the released vocabulary (its first S distinct terms there):
  histogram    the mean of its terms' indicators: weights that are not negative and add up to 1 at
               most. L1 b and L2 b; under replace-one L1 2 b, and L2 sqrt(2) b, for ||u - v||^2 <=
                 ||u||^2 + ||v||^2
  fourier      random Fourier features in [-sqrt 2, sqrt 2], I of them: their mean over its terms
               (independent), or those of its first terms side by side (sequences): either way L1
                 sqrt(2) I b
               and L2 sqrt(2 I) b, twice that under replace-one
A sequence of length L is drawn from one sketch (independent), L (linear) or ceil(log2 L) + 1
(logarithmic), which share kde_epsilon equally. Densities, sequences and prompts are free.

Sketches of all labels are one release: a record has one label, so what a unit moves adds up to no
more than if all its records had the same one. docs/accounting.md section 7 has the proofs.

Departures from the paper: its scale 2 sqrt(2) I / epsilon omits the 1 / |X| that it states
elsewhere, its |X| counts phrases and not records, and a record with S phrases would cost S times as
much; its ceil(log L) sketches leave none for a prefix of one phrase. It counts a record's first S
terms, repeated or not; distinct ones give the Gaussian variant its L2 norm and cost nothing. Its
Fourier sum is a linear image of the histogram, with more noise: docs/mechanisms/dp-kps.md.
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal

from pydantic import Field

from accountant.core.errors import FieldProblem, invalid
from accountant.core.mechanisms.base import Mechanism, Parameters, Yield, by_label
from accountant.core.mechanisms.batches import LEFT_OUT, LEFT_OUT_TEXTS, doubled
from accountant.core.mechanisms.noise_fields import (
    ARTIFACTS_ARE_FREE,
    cost,
    from_job_field,
    resolved,
    with_multiplier,
    without_noise,
)
from accountant.core.mechanisms.vocabulary import TERM_LIST
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

DEFAULT_PROMPT = "These terms stand in a text: {phrases}\nThe text:"
#: A phrase is cut here in a prompt, so that the longest context is known beforehand.
PHRASE_TOKENS = 16
#: Tokens set aside for what a chat template puts around a request.
CHAT_TOKENS = 64
#: Grid steps of a record's whole weight: up to 16 terms share it without a remainder, up to 10 of
#: the second.
WEIGHT_STEPS = {"histogram": 720_720, "fourier": 5_040}
#: Grid steps of the largest feature, at most and at least.
MOST_FEATURE_STEPS, LEAST_FEATURE_STEPS = 2**15, 2**4
#: Scale or sigma in grid steps: nearly all draws below the first are decided by floating point, and
#: the samplers draw none beyond 2^40.
FAST_NOISE, MOST_NOISE = 2**32, 2**39
#: Phases of all Fourier sketches together: two bytes each.
MOST_PHASES = 2**30


class DpKps(Parameters):
    """Parameters of `dp-kps`; the defaults are the paper's where it gives one and nothing better is
    known.

    A job with `from_job` draws from the vocabulary and sketches of the earlier one, with other
    bandwidths and embeddings where these are histograms.
    """

    either: ClassVar[tuple[tuple[str, str], ...]] = (
        ("vocabulary_noise_multiplier", "vocabulary_epsilon"),
        ("kde_noise_multiplier", "kde_epsilon"),
    )

    from_job: str | None = from_job_field("vocabulary and sketches")
    vocabulary: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="the job that released the public list of terms",
    )
    terms_per_record: int = Field(
        10,
        ge=1,
        le=100_000,
        description="how many terms of each record count, such as 10: the first ones",
    )
    record_words: int = Field(
        2_000, ge=1, le=1_000_000, description="a record is cut after this many words"
    )
    vocabulary_size: int = Field(
        1_000,
        ge=1,
        le=100_000,
        description="how many terms are kept, such as 500: those of the largest noisy counts",
    )
    vocabulary_epsilon: float | None = Field(
        1.0, ge=LEAST_EPSILON, le=MOST_EPSILON, description="pure ε of the vocabulary"
    )
    vocabulary_noise_multiplier: float | None = Field(
        None,
        ge=LEAST_MULTIPLIER,
        le=MOST_MULTIPLIER,
        description="noise of each count, as a multiple of what one unit changes; or give "
        "`vocabulary_epsilon`",
    )
    kde_epsilon: float | None = Field(
        5.0,
        ge=LEAST_EPSILON,
        le=MOST_EPSILON,
        description="ε of all sketches in total: pure for Laplace noise, else at the dataset's δ",
    )
    kde_noise_multiplier: float | None = Field(
        None,
        ge=LEAST_MULTIPLIER,
        le=MOST_MULTIPLIER,
        description="noise of each sketch, in units of what one unit can change; or give "
        "kde_epsilon",
    )
    noise: Literal["laplace", "gaussian"] = Field("laplace", description="noise of the sketches")
    sketch: Literal["histogram", "fourier"] | None = Field(
        None,
        description="how terms are weighed: each by itself, or by Fourier features. Nothing: the "
        "first for single terms, else the second",
    )
    method: Literal["independent", "linear", "logarithmic"] = Field(
        "independent",
        description="independent: each phrase stands alone, in one sketch. linear: one sketch for "
        "each length of a sequence. logarithmic: for a few lengths",
    )
    embedding: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="a model that says which terms are alike, for Fourier sketches; nothing: each "
        "term stands alone",
    )
    bandwidth: float = Field(
        0.25,
        ge=0.01,
        le=100,
        description="how far apart two terms may be and still count as alike, such as 0.25",
    )
    features: int = Field(
        1_000,
        ge=1,
        le=1_000_000,
        description="how many random features a sketch has, such as 500: more are finer",
    )
    sequence_length: int = Field(10, ge=1, le=1_000, description="phrases of a sequence")
    top_phrases: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="draw from this many of the heaviest phrases; nothing: from all",
    )
    sequences_per_label: int = Field(
        1_000, ge=1, le=100_000_000, description="sequences per label: free"
    )
    output: Literal["texts", "phrases"] = Field(
        "texts",
        description="texts that the model writes of the phrases, or just the phrases",
    )
    writer: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="language model that writes; with from_job also an endpoint",
    )
    prompt: str = Field(
        DEFAULT_PROMPT, max_length=8_000, description="slot {phrases}, and {label} if wanted"
    )
    prompting: Literal["chat", "plain"] = Field(
        "plain",
        description="plain: the model goes on from the prompt; chat: it is asked by its chat "
        "template, where it has one",
    )
    examples: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="a public corpus, whose texts are shown in the prompt",
    )
    shots: int = Field(
        3, ge=1, le=100, description="example texts in a prompt, where examples are named"
    )
    stop: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="ends a text; nothing: the model's own end, and a new line where prompting is "
        "plain",
    )
    temperature: float = Field(1.0, ge=0.001, le=1_000, description="temperature of the texts")
    max_tokens: int = Field(300, ge=1, le=1_000_000, description="a text ends here at the latest")
    seed: int | None = Field(
        None,
        ge=0,
        le=2**53 - 1,
        description="of features, sequences and texts; private noise has none",
    )


def blocks(parameters: DpKps) -> tuple[int, ...]:
    """Return phrases of each sketch: (1,), or 1 to L, or 1, 2, 4, ... and L."""
    length = parameters.sequence_length
    match parameters.method:
        case "independent":
            return (1,)
        case "linear":
            return tuple(range(1, length + 1))
        case _:
            return tuple(min(2**place, length) for place in range((length - 1).bit_length() + 1))


def vocabulary_sensitivity(parameters: DpKps, terms: Terms) -> int:
    """Return L1 sensitivity of the term counts: b S, 2 b S under replace-one."""
    return doubled(terms) * terms.max_records_per_unit * parameters.terms_per_record


def shift(parameters: DpKps, terms: Terms) -> Fraction:
    """Return sensitivity of one sketch, in parts of the most that a record adds to one number;
    roots rounded up.

    L1 for Laplace noise, L2 for Gaussian. The sketches of all labels count as one.
    """
    bound = terms.max_records_per_unit
    if parameters.sketch == "histogram":
        if parameters.noise == "laplace" or doubled(terms) == 1:
            return Fraction(doubled(terms) * bound)
        return _root(2) * bound
    numbers = (
        Fraction(parameters.features)
        if parameters.noise == "laplace"
        else _root(parameters.features)
    )
    return doubled(terms) * bound * numbers


def _root(value: int) -> Fraction:
    exact = math.isqrt(value)
    return Fraction(exact if exact**2 == value else math.nextafter(math.sqrt(value), math.inf))


def sketch_sensitivity(parameters: DpKps, terms: Terms) -> float:
    """Return the same in weights (histogram, 1 for a record) or features (fourier, sqrt 2 each)."""
    largest = 1 if parameters.sketch == "histogram" else math.sqrt(2)
    return largest * float(shift(parameters, terms))


def weight_steps(parameters: DpKps) -> int:
    """Return grid steps of a record's weight: terms share it, unless they stand side by side."""
    return (
        WEIGHT_STEPS[parameters.sketch or "histogram"] if parameters.method == "independent" else 1
    )


def feature_steps(parameters: DpKps, terms: Terms) -> int:
    """Return grid steps of the largest feature, a power of two, as fine as noise is drawn fast; 1
    for a histogram.

    0 if no grid has room for the noise.
    """
    noise = Fraction(resolved(parameters.kde_noise_multiplier, "kde_noise_multiplier"))
    scale = noise * shift(parameters, terms) * weight_steps(parameters)
    steps = 1
    if parameters.sketch == "fourier":
        steps = 1 << max(int(FAST_NOISE / scale).bit_length() - 1, 0)
        steps = min(max(steps, LEAST_FEATURE_STEPS), MOST_FEATURE_STEPS)
    return steps if scale * steps <= MOST_NOISE else 0


def vocabulary_event(parameters: DpKps) -> Laplace:
    """Return the counts of all terms."""
    return Laplace(resolved(parameters.vocabulary_noise_multiplier, "vocabulary_noise_multiplier"))


def sketches_event(parameters: DpKps) -> Event:
    """Return all sketches: one row of numbers each."""
    multiplier = resolved(parameters.kde_noise_multiplier, "kde_noise_multiplier")
    one = Laplace(multiplier) if parameters.noise == "laplace" else Gaussian(multiplier)
    count = len(blocks(parameters))
    return SelfComposed(one, count) if count > 1 else one


def price(parameters: DpKps, terms: Terms) -> Price:
    """Return the vocabulary, and one label's sketches; nothing if an earlier job's are used."""
    if parameters.from_job is not None:
        return Price(FREE, (ARTIFACTS_ARE_FREE,))
    counts, kde, count = (
        vocabulary_event(parameters),
        sketches_event(parameters),
        len(blocks(parameters)),
    )
    scale = counts.noise_multiplier * vocabulary_sensitivity(parameters, terms)
    noise = resolved(parameters.kde_noise_multiplier, "kde_noise_multiplier")
    noise *= sketch_sensitivity(parameters, terms)
    kind = (
        f"Laplace, scale {noise:.6g}"
        if parameters.noise == "laplace"
        else f"Gaussian, σ {noise:.6g}"
    )
    if parameters.sketch == "histogram":
        what = f"weights of {parameters.vocabulary_size:,} terms"
    else:
        what = (
            "1 sketch" if count == 1 else f"{count:,} sketches"
        ) + f" of {parameters.features:,} features"
    labels = (
        ("a record has one label, so the sketches of all cost as one",)
        if len(terms.labels) > 1
        else ()
    )
    return Price(
        Composed((counts, kde)),
        (
            f"counts of every vocabulary term: Laplace, scale {scale:.6g}, {cost(counts, terms)}",
            f"{what}: {kind}, together {cost(kde, terms)}",
            *labels,
            f"{parameters.sequences_per_label:,} sequences and texts per label: free",
        ),
    )


def resolve(parameters: DpKps, terms: Terms) -> DpKps:
    """Fill in both multipliers and the sketch; refuse what can't be drawn, held or written."""
    check_template(parameters.prompt, required=("phrases",), optional=("label",), field="prompt")
    for field in ("writer", "examples"):
        if parameters.output == "phrases" and getattr(parameters, field) is not None:
            raise invalid(
                field, "output is phrases, which nobody writes", "nothing, or output texts"
            )
    if parameters.from_job is not None:
        return without_noise(parameters).model_copy(update={"vocabulary": None})
    sequences = parameters.method != "independent"
    sketch = parameters.sketch or ("fourier" if sequences else "histogram")
    parameters = parameters.model_copy(update={"sketch": sketch})
    if sequences and sketch == "histogram":
        raise invalid(
            "sketch", f"method is {parameters.method}, of sequences", "fourier, or nothing"
        )
    if sequences and parameters.sequence_length > parameters.terms_per_record:
        why = (
            f"{parameters.sequence_length} is more than terms_per_record, of which sequences "
            "consist"
        )
        raise invalid("sequence_length", why, f"1 to {parameters.terms_per_record}")
    _check_phases(parameters)
    parameters = _with_vocabulary_noise(parameters, terms)
    return _with_sketch_noise(parameters, terms)


def _check_phases(parameters: DpKps) -> None:
    """Refuse Fourier sketches that no memory holds."""
    cells = sum(blocks(parameters)) * parameters.vocabulary_size
    if parameters.sketch == "fourier" and cells * parameters.features > MOST_PHASES:
        why = (
            f"{parameters.features:,} for {parameters.vocabulary_size:,} terms and these sequences"
        )
        most = MOST_PHASES // cells
        raise invalid(
            "features", why, f"1 to {most}" if most else "fewer terms, or shorter sequences"
        )


def _with_vocabulary_noise(parameters: DpKps, terms: Terms) -> DpKps:
    field = _asked(parameters, "vocabulary_noise_multiplier", "vocabulary_epsilon")
    parameters = with_multiplier(
        parameters, laplace_multiplier, "vocabulary_noise_multiplier", "vocabulary_epsilon"
    )
    most = MOST_NOISE / vocabulary_sensitivity(parameters, terms)
    _check_noise(field, vocabulary_event(parameters).noise_multiplier, most)
    return parameters


def _with_sketch_noise(parameters: DpKps, terms: Terms) -> DpKps:
    count = len(blocks(parameters))
    calibrate: Callable[[float], float] = lambda epsilon: laplace_multiplier(epsilon, count)  # noqa: E731
    if parameters.noise == "gaussian":
        calibrate = lambda epsilon: gaussian_multiplier(epsilon, terms.delta, count)  # noqa: E731
    field = _asked(parameters, "kde_noise_multiplier", "kde_epsilon")
    parameters = with_multiplier(parameters, calibrate, "kde_noise_multiplier", "kde_epsilon")
    if not feature_steps(parameters, terms):
        least = 1 if parameters.sketch == "histogram" else LEAST_FEATURE_STEPS
        most = MOST_NOISE / float(shift(parameters, terms) * weight_steps(parameters) * least)
        _check_noise(field, resolved(parameters.kde_noise_multiplier, "kde_noise_multiplier"), most)
    return parameters


def _asked(parameters: DpKps, multiplier: str, epsilon: str) -> str:
    return epsilon if getattr(parameters, multiplier) is None else multiplier


def _check_noise(asked: str, multiplier: float, most: float) -> None:
    """Refuse noise beside which nothing would be left to see."""
    if multiplier > most:
        why = f"a noise multiplier of {multiplier:.6g} leaves nothing but noise"
        raise invalid(asked, why, f"a multiplier of at most {most:.6g}")


def missing(parameters: DpKps) -> FieldProblem | None:
    """Return the term list, the Fourier embedding and the writer, which a price does without."""
    if parameters.from_job is None and parameters.vocabulary is None:
        return FieldProblem(
            "vocabulary", "not given", "a job that released a term list, or from_job"
        )
    if (
        parameters.from_job is None
        and parameters.sketch == "fourier"
        and parameters.embedding is None
    ):
        return FieldProblem(
            "embedding", "Fourier sketches need one", "a registered embedding model"
        )
    if parameters.output == "texts" and parameters.writer is None:
        return FieldProblem("writer", "not given", "a registered language model, or output phrases")
    return None


def unfit_public(
    parameters: DpKps, _: Terms, facts: Mapping[str, Mapping[str, Any]]
) -> FieldProblem | None:
    """Return a writer whose context is too short for the longest prompt and text, in bytes."""
    context = facts.get("writer", {}).get("context_tokens")
    if context is None:
        return None
    prompt = len(parameters.prompt.encode()) + parameters.sequence_length * (PHRASE_TOKENS + 2)
    shots = (
        0
        if parameters.examples is None
        else parameters.shots * (prompt + parameters.max_tokens + 4)
    )
    chat = CHAT_TOKENS if parameters.prompting == "chat" else 0
    rest = context - shots - prompt - chat
    if parameters.max_tokens <= rest:
        return None
    problem = f"prompts may leave a text {max(rest, 0):,} of the writer's {context:,} tokens"
    return FieldProblem("max_tokens", problem, f"1 to {rest}" if rest > 0 else "a shorter prompt")


def resources(parameters: DpKps) -> dict[str, str]:
    """Return the registered things that the parameters name."""
    kinds = {"embedding": "embedding", "writer": "writer", "examples": "corpus"}
    return {field: kind for field, kind in kinds.items() if getattr(parameters, field) is not None}


def sources(parameters: DpKps) -> dict[str, str]:
    """Return the job whose term list is the vocabulary."""
    return {} if parameters.vocabulary is None else {"vocabulary": TERM_LIST}


MECHANISM = Mechanism(
    id="dp-kps",
    title="DP keyphrase prompt seeding",
    summary="Releases noisy words and weights of phrases, and has a model write from them.",
    source="Nagesh et al.: Private text generation by seeding large language model prompts",
    parameters=DpKps,
    price=price,
    resolve=resolve,
    context_tokens=lambda _parameters, _template_tokens: 0,
    size_field="kde_epsilon",
    missing=missing,
    unfit_public=unfit_public,
    uses_model=False,
    artifacts_need_model=False,
    resources=resources,
    sources=sources,
    releases=("noisy-vocabulary", "phrase-sketches", LEFT_OUT),
    needs={
        "from_job=": "vocabulary noise vocabulary_epsilon vocabulary_noise_multiplier kde_epsilon "
        "kde_noise_multiplier",
        "output=texts": "writer prompt prompting examples stop temperature max_tokens",
        "examples": "shots",
    },
    progress_unit="sequences",
    runner="workers.mechanisms.dp_kps",
    groups={
        "Size and privacy": "from_job vocabulary vocabulary_epsilon vocabulary_noise_multiplier "
        "kde_epsilon kde_noise_multiplier noise terms_per_record record_words vocabulary_size",
        "Sketches and sequences": "sketch method embedding bandwidth features sequence_length "
        "top_phrases sequences_per_label seed",
        "Texts": "output writer prompt prompting examples shots stop temperature max_tokens",
    },
    order=4,
    goal="phrases",
    advice="it counts the terms of a public list once, and then draws phrases of them as often as "
    "one likes",
    plain="from_job vocabulary vocabulary_epsilon kde_epsilon sequences_per_label output",
    begins={"output": "phrases"},
    yields=lambda p, terms: Yield(
        p.output if p.output == "texts" else "sequences of phrases",
        by_label(p.sequences_per_label, terms.labels),
        p.max_tokens if p.output == "texts" else None,
    ),
    example={
        "vocabulary": "JOB",
        "vocabulary_size": 4,
        "sequences_per_label": 2,
        "sequence_length": 3,
        "output": "phrases",
    },
    artifacts={
        "vocabulary": "the terms kept with their noisy counts, and what the sketches are of",
        "sketches": "noisy sums of each sketch and label, and the vectors of the terms",
        **LEFT_OUT_TEXTS,
    },
)
