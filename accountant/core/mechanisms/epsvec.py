"""The price of `epsvec` (paper 000).

Shots: each private record counts for its nearest public candidate, Gaussian noise on all counts. L2
sensitivity b for a unit of at most b records, sqrt(2) b under replace-one; a record counts under
its own label, and the counts of all labels together move by no more.

Vectors: per layer, differences of hidden states from a synthetic partner, clipped to norm C,
summed, noise, divided by the *public* m, normalised (free). The L vectors of one draw of records
are L Gaussians of the same unit, sampled once: Sampled(SelfComposed(Gaussian(sigma / Delta), L)),
never the reverse; or the stacked vector is clipped as a whole, one Gaussian. Partners go by a keyed
hash of the record, or are their mean: pairing by position would shift every pair when one record
comes or goes.

Sampling, with b records of a unit drawn together by one coin:
  poisson, add-remove      Delta = b C / m, PoissonSampled: a unit's coin of public rate q
  poisson, replace-one     Delta = 2 b C / m, PoissonSwapped: without either unit a sum lies half as
                           far. A unit that changes its label moves two vectors by C / m each,
                           sqrt(2) C / m together, which that covers
  without-replacement      Delta = 2 b C / m, replace-one only, exact public numbers: under
                           add-remove a unit would displace another, which is a replacement
                           (DESIGN, trap 5)
Every filter takes the smaller of the amplified and the plain price; alone, both are exact and the
amplified is never larger. Labels partition the records: the price is that of one label.

What else a job reads is public: the language model, an embedding model, a judge. Candidates,
partners and texts are the model's own, made of what was released, so their number, prompts and
seeds cost nothing.

Departures from the paper: it calibrates by sqrt(2 ln(1.25/delta))/epsilon, wrong for epsilon > 1,
adds up L layers as (L epsilon, L delta), and amplifies that; here the L Gaussians are one,
calibrated exactly, and amplified once (its Theorem 4.2 with the exact profile: Balle et al. 2018,
Theorems 8 and 9).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from accountant.core.errors import FieldProblem, invalid
from accountant.core.mechanisms.base import Mechanism, texts
from accountant.core.mechanisms.batches import LEFT_OUT, LEFT_OUT_TEXTS, doubled
from accountant.core.mechanisms.noise_fields import (
    ARTIFACTS_ARE_FREE,
    GaussianNoise,
    cost,
    fixed_rate,
    from_job_field,
    poisson_rate,
    population,
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
    sampled_multiplier,
    swapped_multiplier,
)
from accountant.core.privacy.events import (
    FREE,
    Composed,
    Event,
    Gaussian,
    PoissonSampled,
    PoissonSwapped,
    Sampled,
    SampledWithoutReplacement,
    SelfComposed,
)
from accountant.core.privacy.price import Neighbours, Price, Terms
from accountant.core.template import check_template

#: The prompt of every step (paper 000, B.3 to B.5, in other words): with no example, some, and one
#: text more.
DEFAULT_TEMPLATE = (
    "What follows is a varied collection: every entry is a {description}, and a person wrote it. "
    "An entry "
    "stands between [start] and [end] and has two parts. Kind tells what sort of entry it is. "
    "Content is the "
    "text itself.\n\n{examples}[start]\nKind: {label}\nContent:"
)
DEFAULT_STOP = "[end]"
MOST_LAYERS = 1_000

#: The paper's layers and coefficients (Table 5). For other models: python -m
#: benchmarks.epsvec_sweep.
PAPER_SETTINGS: Mapping[str, tuple[str, float]] = {
    "Llama-3.1-8B": ("18-21", 1.4),
    "OLMo-3-1025-7B": ("15-16", 1.0),
    "Qwen3-4B-Base": ("19-20", 10.0),
    "gemma-3-4b-pt": ("17-18", 800.0),
}


@dataclass(frozen=True)
class Steering:
    """The layers, clip and coefficient at which vectors steer a model well."""

    layers: str
    clip: float
    coefficient: float


#: By the model's hash. Layers are those of benchmarks.epsvec_sweep on public texts; clip and
#: coefficient are those of a study on DBpedia and AG News, for a chat prompt (docs/utility.md).
SWEPT: Mapping[str, Steering] = {
    # SmolLM2-135M-Instruct, as `exchequer model get smollm2` converts it
    "ec3c2b41b640159d0344162df53ebe9657fc889cf090ef0341aa645aa228dafb": Steering(
        "17-18", 45.0, 4.0
    ),
}

#: Tokens set aside for what a chat template puts around a request.
CHAT_TOKENS = 128

#: sigma in units of what a record may add to a sum, at most: above, no steering would be left to
#: see, and sums with their noise would leave the integers that they are kept in.
MOST_NOISE = 2**22


class Epsvec(GaussianNoise):
    """Parameters of `epsvec`; the defaults are the paper's for Llama-3.1-8B where it gives one.

    noise_multiplier and epsilon are those of the vectors. A job with `from_job` writes with the
    prompts, shots, layers and vectors of the earlier one.
    """

    either: ClassVar[tuple[tuple[str, str], ...]] = (
        ("noise_multiplier", "epsilon"),
        ("shots_noise_multiplier", "shots_epsilon"),
    )

    from_job: str | None = from_job_field("fixed shots and vectors")
    shots: int = Field(2, ge=0, le=100, description="fixed shots per label; 0: none, and no cost")
    candidates: int = Field(
        1_000,
        ge=1,
        le=1_000_000,
        description="how many texts of the model alone the shots are picked from, per label",
    )
    shots_epsilon: float | None = Field(
        0.1,
        ge=LEAST_EPSILON,
        le=MOST_EPSILON,
        description="what the noisy counts cost at the dataset's δ",
    )
    shots_noise_multiplier: float | None = Field(
        None,
        ge=LEAST_MULTIPLIER,
        le=MOST_MULTIPLIER,
        description="noise of these counts, in units of what one unit can change; or give"
        " shots_epsilon",
    )
    embedding: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="a model that says which texts are alike; nothing: the writer's own states",
    )
    samples_per_label: int = Field(
        500,
        ge=1,
        le=1_000_000_000,
        description="how many records are drawn for a label on average, such as 100",
    )
    sampling: Literal["poisson", "without-replacement"] = Field(
        "poisson",
        description="a coin for each unit, or an exact number of units: that needs "
        "replace-one and a public size",
    )
    sampling_rate: float | None = Field(
        None,
        ge=1e-9,
        le=1,
        description="poisson only: how often the coin takes a unit, such as 0.05. Empty: so that "
        "as many are drawn as asked",
    )
    layers: str = Field(
        "18-21",
        pattern=r"^\d{1,4}(-\d{1,4})?$",
        description="layers of the vectors, first to last, from 0",
    )
    clip: float = Field(
        5.5,
        ge=1e-6,
        le=1_000_000,
        description="how long a difference may be, such as 5.5: a longer one is cut",
    )
    clipping: Literal["per-layer", "joint"] = Field(
        "per-layer",
        description="cut each layer by itself and pay for each, or all together and pay once",
    )
    partner: Literal["hashed", "mean"] = Field(
        "hashed", description="subtract a synthetic text picked by a keyed hash, or the mean of all"
    )
    partners: int = Field(
        500,
        ge=1,
        le=100_000,
        description="how many made-up texts the records of a label are held against, free",
    )
    coefficient: float = Field(1.4, ge=0, le=1_000_000, description="how strongly a vector steers")
    temperature: float = Field(1.6, ge=0.001, le=1_000, description="temperature of every draw")
    rejection: Literal["none", "judge", "rule"] = Field(
        "none", description="what drops poor samples: free"
    )
    judge: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="a model that rates samples, where a judge rejects",
    )
    min_quality: int = Field(
        6, ge=0, le=10, description="drop each text that is rated below this, such as 5"
    )
    samples: int = Field(1_000, ge=1, le=100_000_000, description="texts written per label: free")
    drafts: int = Field(
        1,
        ge=1,
        le=100,
        description="texts written for each that is kept; 1: all. First come those that surprise "
        "the model least, vary most and lie nearest to their label. Free",
    )
    label: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="write texts of this label only; nothing: of each",
    )
    max_tokens: int = Field(300, ge=1, le=1_000_000, description="a text ends here at the latest")
    record_tokens: int = Field(
        300, ge=1, le=1_000_000, description="a record is cut after this many"
    )
    description: str = Field(
        "text",
        min_length=1,
        max_length=500,
        description="what a text is, as the prompt says it; slot {label}",
    )
    template: str = Field(
        DEFAULT_TEMPLATE,
        max_length=8_000,
        description="the prompt; slot {examples} for the shots, and {label} and {description}. "
        "What comes after {examples} stands before each shot and before the new text. "
        "Without shots, leave it out",
    )
    stop: str | None = Field(
        DEFAULT_STOP,
        min_length=1,
        max_length=100,
        description="ends each shot and each text; nothing: a new line",
    )
    prompting: Literal["chat", "plain"] = Field(
        "chat", description="chat: by the model's chat template, where it has one; plain: never"
    )
    seed: int | None = Field(
        None, ge=0, le=2**53 - 1, description="of what the model writes; private noise has none"
    )


def layer_range(parameters: Epsvec) -> range:
    """Return the layers of the vectors. Raises InvalidRequest where they are out of range."""
    first, _, last = parameters.layers.partition("-")
    layers = range(int(first), int(last or first) + 1)
    if not layers or layers[-1] >= MOST_LAYERS:
        allowed = f"first-last with first at most last, 0 to {MOST_LAYERS - 1}"
        raise invalid("layers", f"{parameters.layers!r} is out of range", allowed)
    return layers


def gaussians(parameters: Epsvec) -> int:
    """Return Gaussians on one draw: one per layer, or one for the stacked vector."""
    return len(layer_range(parameters)) if parameters.clipping == "per-layer" else 1


def shots_sensitivity(terms: Terms) -> float:
    """Return L2 sensitivity of the candidates' counts: b, or sqrt(2) b under replace-one."""
    return terms.max_records_per_unit * math.sqrt(doubled(terms))


def vector_sensitivity(parameters: Epsvec, terms: Terms) -> float:
    """Return L2 sensitivity of the mean of a vector: b C / m, twice that under replace-one."""
    bound = doubled(terms) * terms.max_records_per_unit
    return bound * parameters.clip / parameters.samples_per_label


def vector_noise(parameters: Epsvec, terms: Terms, hidden: int) -> float:
    """Return the length of the noise on a vector of `hidden` numbers, as a part of the clip."""
    multiplier = resolved(parameters.noise_multiplier, "noise_multiplier")
    layers = len(layer_range(parameters)) if parameters.clipping == "joint" else 1
    sigma = multiplier * vector_sensitivity(parameters, terms)
    return sigma * math.sqrt(hidden * layers) / parameters.clip


def vectors_event(parameters: Epsvec, terms: Terms) -> Event:
    """Return all vectors of one label: one draw of records, L Gaussians (or one) on it."""
    multiplier = resolved(parameters.noise_multiplier, "noise_multiplier")
    count = gaussians(parameters)
    whole = SelfComposed(Gaussian(multiplier), count) if count > 1 else Gaussian(multiplier)
    if parameters.sampling == "without-replacement":
        size = population(terms)
        assert size is not None  # resolve asks for it
        return SampledWithoutReplacement(parameters.samples_per_label, size, whole)
    rate = resolved(parameters.sampling_rate, "sampling_rate")
    if rate == 1:
        return whole  # nothing is left to chance
    sampled = PoissonSampled if terms.neighbours is Neighbours.ADD_REMOVE else PoissonSwapped
    return sampled(rate, whole)


def price(parameters: Epsvec, terms: Terms) -> Price:
    """Return shots and vectors of one label, or nothing where an earlier job's are used."""
    if parameters.from_job is not None:
        return Price(FREE, (ARTIFACTS_ARE_FREE,))
    parts: list[Event] = []
    lines: list[str] = []
    if parameters.shots:
        counts = Gaussian(resolved(parameters.shots_noise_multiplier, "shots_noise_multiplier"))
        sigma = counts.noise_multiplier * shots_sensitivity(terms)
        lines.append(
            f"{parameters.candidates:,} candidate counts: Gaussian, σ {sigma:.6g}, "
            f"{cost(counts, terms)}"
        )
        parts.append(counts)
    vectors = vectors_event(parameters, terms)
    parts.append(vectors)
    lines.append(_describe_vectors(parameters, terms, vectors))
    if len(terms.labels) > 1:
        lines.append("labels partition the records, so all cost as one")
    lines.append(f"{parameters.samples:,} texts per label steered by the vectors: free")
    return Price(parts[0] if len(parts) == 1 else Composed(tuple(parts)), tuple(lines))


def _describe_vectors(parameters: Epsvec, terms: Terms, vectors: Event) -> str:
    count = gaussians(parameters)
    sensitivity = vector_sensitivity(parameters, terms)
    sigma = resolved(parameters.noise_multiplier, "noise_multiplier") * sensitivity
    what = f"{count:,} layer vectors" if count > 1 else "1 vector"
    text = (
        f"{what}: Gaussian, σ {sigma:.6g} (sensitivity {sensitivity:.4g}), together "
        f"{cost(vectors, terms)}"
    )
    if not isinstance(vectors, Sampled):
        return text
    draw = (
        f"{vectors.sample_size:,} of {vectors.population:,} units without replacement"
        if isinstance(vectors, SampledWithoutReplacement)
        else f"a coin of rate {vectors.probability:.4g} per unit"
    )
    return f"{text}; one draw for all, {draw}; unsampled {cost(vectors.event, terms)}"


def resolve(parameters: Epsvec, terms: Terms) -> Epsvec:
    """Fill in rates and noise; refuse sampling that the relation or the numbers don't allow."""
    # what shots stand in; without any, a template may be a whole request
    needed, free = (("examples",), ()) if parameters.shots else ((), ("examples",))
    check_template(parameters.template, required=needed, optional=("label", "description", *free))
    check_template(parameters.description, required=(), optional=("label",), field="description")
    if parameters.label is not None and parameters.label not in terms.labels:
        allowed = ", ".join(terms.labels) or "nothing: the dataset has no labels"
        raise invalid("label", f"{parameters.label!r} is not declared", allowed)
    if parameters.judge is not None and parameters.rejection != "judge":
        raise invalid(
            "judge", f"rejection is {parameters.rejection}", "nothing, or rejection judge"
        )
    count = gaussians(parameters)
    if parameters.from_job is not None:
        return without_noise(parameters)
    if parameters.shots > parameters.candidates:
        raise invalid(
            "shots", f"{parameters.shots} is more than candidates", f"0 to {parameters.candidates}"
        )
    if parameters.sampling == "poisson":
        rate = poisson_rate(parameters.samples_per_label, parameters.sampling_rate, terms)
        parameters = parameters.model_copy(update={"sampling_rate": rate})
    else:
        rate = fixed_rate(parameters.samples_per_label, parameters.sampling_rate, terms)
    swapped = parameters.sampling == "poisson" and terms.neighbours is Neighbours.REPLACE_ONE

    def calibrate(epsilon: float) -> float:
        if rate == 1:
            return gaussian_multiplier(epsilon, terms.delta, count)
        by = swapped_multiplier if swapped else sampled_multiplier
        return by(epsilon, terms.delta, count, rate)

    parameters = _with_bounded(parameters, terms, calibrate, "noise_multiplier", "epsilon")
    if not parameters.shots:
        return parameters
    return _with_bounded(
        parameters,
        terms,
        lambda epsilon: gaussian_multiplier(epsilon, terms.delta),
        "shots_noise_multiplier",
        "shots_epsilon",
    )


def _with_bounded(
    parameters: Epsvec,
    terms: Terms,
    calibrate: Callable[[float], float],
    multiplier: str,
    epsilon: str,
) -> Epsvec:
    """`with_multiplier`; noise beyond all use is refused before anything is read."""
    field = epsilon if getattr(parameters, multiplier) is None else multiplier
    parameters = with_multiplier(parameters, calibrate, multiplier, epsilon)
    most = MOST_NOISE / (doubled(terms) * terms.max_records_per_unit)
    noise = resolved(getattr(parameters, multiplier), multiplier)
    if noise > most:
        why = f"a noise multiplier of {noise:.6g} leaves nothing but noise"
        raise invalid(field, why, f"a multiplier of at most {most:.6g}")
    return parameters


def context_tokens(parameters: Epsvec, template_tokens: int) -> int:
    """Return longest context: prompt, fixed shots (each at most a text), and one record or text.

    A text that is not in the template takes at most a token per byte, and one for each seam. A job
    over artifacts has the earlier job's prompt, which its runner compares with the model (nothing
    is charged).
    """
    if parameters.from_job is not None:
        return parameters.max_tokens
    tokens = template_tokens + parameters.template.count("{description}") * _most_tokens(
        parameters.description
    )
    shots = parameters.shots * (
        tokens + parameters.max_tokens + _most_tokens(parameters.stop or "") + 2
    )
    chat = CHAT_TOKENS if parameters.prompting == "chat" else 0
    return tokens + chat + shots + max(parameters.record_tokens, parameters.max_tokens)


def _most_tokens(text: str) -> int:
    return len(text.encode()) + 1


def unfit(parameters: Epsvec, facts: Mapping[str, Any]) -> FieldProblem | None:
    """Return layers that the model lacks; a job over artifacts uses the earlier job's."""
    count = facts.get("layers")
    if parameters.from_job is not None or count is None or layer_range(parameters)[-1] < count:
        return None
    problem = f"{parameters.layers} are asked for, the model has {count} layers"
    return FieldProblem("layers", problem, f"0 to {count - 1}")


def missing(parameters: Epsvec) -> FieldProblem | None:
    """Return a judge's name: rejection is free, so the price does without."""
    if parameters.rejection == "judge" and parameters.judge is None:
        return FieldProblem("judge", "rejection judge needs one", "the name of a language model")
    return None


def resources(parameters: Epsvec) -> dict[str, str]:
    """Return the registered models that the parameters name."""
    kinds = {"embedding": "embedding", "judge": "writer"}
    return {field: kind for field, kind in kinds.items() if getattr(parameters, field)}


MECHANISM = Mechanism(
    id="epsvec",
    title="EPSVec",
    summary="Steers a model by noisy means of what it makes of the data. All texts after that "
    "are free.",
    source="Banayeeanzade et al.: EPSVec, Algorithms 1 and 2",
    parameters=Epsvec,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    size_field="epsilon",
    missing=missing,
    unfit=unfit,
    resources=resources,
    releases=("fixed-shots", "dataset-vectors", LEFT_OUT),
    needs={
        "from_job=": "epsilon noise_multiplier shots candidates shots_epsilon "
        "shots_noise_multiplier "
        "embedding samples_per_label sampling layers clip clipping partner partners",
        "sampling=poisson": "sampling_rate",
        "rejection=judge": "judge min_quality",
        "rejection=rule": "min_quality",
    },
    progress_unit="texts",
    runner="workers.mechanisms.epsvec",
    groups={
        "Size and privacy": "from_job epsilon noise_multiplier samples_per_label sampling "
        "sampling_rate clip temperature",
        "Texts": "samples drafts label max_tokens record_tokens coefficient stop template "
        "description prompting",
        "Aggregation and clusters": "embedding",
    },
    order=3,
    advice="it pays once for vectors, and then writes as many texts as one likes",
    plain="epsilon samples max_tokens from_job",
    yields=lambda p, terms: texts(
        p.samples, () if p.label else terms.labels, p.max_tokens, "at most"
    ),
    example={
        "epsilon": 6.0,
        "layers": "1-2",
        "prompting": "plain",
        "seed": 1,
        "stop": None,
        "rejection": "rule",
        "template": "{examples}Another review ({label}):",
    },
    artifacts={
        "shots": "the prompt, the fixed shots and their noisy counts",
        "vectors": "one noisy direction for each label and layer",
        **LEFT_OUT_TEXTS,
    },
)
