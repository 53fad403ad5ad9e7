"""The price of `summary-oneshot` (paper 004, Algorithm 2).

The hidden state of each record's last token, clipped to norm C, summed, divided by the *public* n,
one Gaussian; an adapter trained on public data turns the noisy mean into soft tokens, and any
number of decodings is free. Delta = b * C / n, 2 b C / n under replace-one, for one group of
records as for many (group_means). k releases share one budget by exact composition, multiplier
sqrt(k) / mu: one Gaussian at the whole budget beats k at epsilon / k each, and says as much.

Two options that the paper lacks change what is clipped, never the sensitivity, and so cost nothing
(docs/accounting.md, section 2): with `centre` a record adds clip_C(h - c), c the mean state of a
public corpus, which is added to the mean again; with `components` q it adds clip_C(V (h - c)), V
the q principal directions of the corpus's states, and the noise has q coordinates instead of all.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from accountant.core.errors import FieldProblem, invalid
from accountant.core.mechanisms import group_means
from accountant.core.mechanisms.base import Mechanism, Yield, by_label
from accountant.core.mechanisms.group_means import GroupMeans, StateReading
from accountant.core.mechanisms.noise_fields import (
    ARTIFACTS_ARE_FREE,
    cost,
    from_job_field,
    resolved,
    without_noise,
)
from accountant.core.privacy.calibration import gaussian_multiplier
from accountant.core.privacy.events import FREE, Event, Gaussian, SelfComposed
from accountant.core.privacy.price import Price, Terms
from accountant.core.template import check_template, check_turns

DEFAULT_TEMPLATE = "Review: {record}"

#: About the length that nine of ten states keep within around their mean, by the model's hash: of
#: public texts before "In short, this is about", as benchmarks.summaries takes a clip from them.
STATE_LENGTHS: Mapping[str, float] = {
    # SmolLM2-135M-Instruct, as `exchequer model get smollm2` converts it
    "ec3c2b41b640159d0344162df53ebe9657fc889cf090ef0341aa645aa228dafb": 18.0,
}

#: What the means and an adapter's weights are to a job that reads them.
MEANS, ADAPTER = "noisy-means", "soft-prompt-adapter"


class OneshotReading(StateReading):
    """The fields, besides records and noise, that set a mean state, for the adapter too."""

    template: str = Field(
        DEFAULT_TEMPLATE,
        max_length=8_000,
        description="the prompt whose last token has the state; slot {record}, and {user} and "
        "{assistant}",
    )
    centre: bool = Field(
        True,
        description="clip around the mean state of the public corpus, where one is named: free",
    )
    components: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="keep this many main directions of the public corpus: free; nothing: do"
        " not project",
    )
    public_texts: int = Field(
        1_000,
        ge=2,
        le=1_000_000,
        description="texts of the public corpus whose states are read, at most",
    )
    soft_tokens: int = Field(
        10, ge=1, le=1_000, description="how many soft tokens are made of each mean"
    )


class SummaryOneshot(GroupMeans, OneshotReading):
    """Parameters of `summary-oneshot`."""

    from_job: str | None = from_job_field("noisy means")
    releases: int = Field(
        1,
        ge=1,
        le=10_000,
        description="how many noisy means each group has, on one budget; their mean is used",
    )
    adapter: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="the job that trained the adapter; nothing: the means come out as they are",
    )
    public_corpus: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="the corpus that centre and axes come from; nothing: neither",
    )
    decodings: int = Field(
        1, ge=1, le=1_000_000, description="how many are written for each group, free"
    )
    max_tokens: int = Field(50, ge=1, le=1_000_000, description="a summary ends here at the latest")
    temperature: float = Field(0.7, ge=0.001, le=1_000, description="temperature of every draw")
    seed: int | None = Field(
        None,
        ge=0,
        le=2**53 - 1,
        description="of the draws of tokens; the noise before them has none",
    )


def event(parameters: SummaryOneshot) -> Event:
    """Return the k releases of one group."""
    gaussian = Gaussian(resolved(parameters.noise_multiplier, "noise_multiplier"))
    return SelfComposed(gaussian, parameters.releases) if parameters.releases > 1 else gaussian


def price(parameters: SummaryOneshot, terms: Terms) -> Price:
    """k Gaussians of one group, or nothing where an earlier job's means are decoded again."""
    if parameters.from_job is not None:
        return Price(FREE, (ARTIFACTS_ARE_FREE,))
    count = parameters.releases
    what = "1 mean hidden state" if count == 1 else f"{count:,} mean hidden states"
    if parameters.components is not None:
        what += f" in {parameters.components:,} coordinates"
    lines = group_means.describe(parameters, terms, what, cost(event(parameters), terms))
    if parameters.adapter is not None:
        lines = (*lines, f"{parameters.decodings:,} decodings of it: free")
    return Price(event(parameters), tuple(lines))


def resolve(parameters: SummaryOneshot, terms: Terms) -> SummaryOneshot:
    """Fill in the public size and calibrate the noise; refuse a template that can't be filled."""
    check_template(parameters.template, required=("record",), optional=("user", "assistant"))
    check_turns(parameters.template)
    if parameters.from_job is not None:
        return without_noise(parameters)
    if parameters.components is not None and parameters.public_corpus is None:
        raise invalid(
            "components", "there is no public_corpus to find them in", "nothing, or a public_corpus"
        )
    if parameters.components is not None and parameters.components > parameters.public_texts:
        most = parameters.public_texts
        raise invalid(
            "components", f"{parameters.components} directions of {most} texts", f"1 to {most}"
        )
    if (
        parameters.public_corpus is not None
        and not parameters.centre
        and parameters.components is None
    ):
        raise invalid(
            "public_corpus", "neither centre nor components uses it", "nothing, or one of the two"
        )
    return group_means.resolve(
        parameters,
        terms,
        lambda epsilon: gaussian_multiplier(epsilon, terms.delta, parameters.releases),
    )


def context_tokens(parameters: SummaryOneshot, template_tokens: int) -> int:
    """Return longest context: template and one record, or soft tokens and the summary."""
    reading = 0 if parameters.from_job is not None else template_tokens + parameters.record_tokens
    return max(reading, parameters.soft_tokens + parameters.max_tokens)


def missing(parameters: SummaryOneshot) -> FieldProblem | None:
    """Return what decodes: a job over released means does nothing else."""
    if parameters.from_job is not None and parameters.adapter is None:
        return FieldProblem(
            "adapter", "nothing decodes the means", "the id of a job of summary-adapter"
        )
    return None


def unfit(parameters: OneshotReading, facts: Mapping[str, Any]) -> FieldProblem | None:
    """Return more tokens than the model's context or directions than its states have."""
    most = facts.get("hidden_size")
    if parameters.components is not None and most is not None and parameters.components > most:
        problem = f"{parameters.components} of the {most} dimensions of a state"
        return FieldProblem("components", problem, f"1 to {most}, or nothing")
    if isinstance(parameters, SummaryOneshot):
        written = parameters.soft_tokens + parameters.max_tokens
        return group_means.beyond_context("max_tokens", written, facts)
    return None


def resources(parameters: SummaryOneshot) -> dict[str, str]:
    """Return the corpus of centre and components; a job over means needs none."""
    read = parameters.public_corpus is not None and parameters.from_job is None
    return {"public_corpus": "corpus"} if read else {}


#: Fields of a job over means that have to be those of the job that released them, or of the
#: adapter's.
_SAME = ("template", "record_tokens", "clip", "centre", "components", "soft_tokens")


def unfit_sources(
    parameters: SummaryOneshot, sources: Mapping[str, Mapping[str, Any]]
) -> FieldProblem | None:
    """Return an adapter that was trained on states made in another way than these means.

    `sources`: the parameters of the jobs in `adapter` and `from_job`, by field.
    """
    adapter = sources.get("adapter")
    if adapter is None:
        return None
    means = {**parameters.model_dump(), **sources.get("from_job", {})}
    means["soft_tokens"] = parameters.soft_tokens
    centred = means["centre"] and means["public_corpus"] is not None
    trained = adapter["centre"] or adapter["components"] is not None
    for name in _SAME:
        mean = centred if name == "centre" else means[name]
        if mean != adapter[name]:
            field = "adapter" if "from_job" in sources and name != "soft_tokens" else name
            problem = f"{name} {mean!r} is not that of the adapter's training, {adapter[name]!r}"
            return FieldProblem(field, problem, f"{adapter[name]!r}, or an adapter trained so")
    if trained and means["public_corpus"] != adapter["corpus"]:
        problem = f"the adapter's training took centre and components of {adapter['corpus']!r}"
        return FieldProblem("public_corpus", problem, repr(adapter["corpus"]))
    return None


MECHANISM = Mechanism(
    id="summary-oneshot",
    title="One-shot summary",
    summary="Writes a summary of many records from one noisy mean of what a model makes of them.",
    source="Gutierrez and Khalaf: Differentially private summarization, Algorithm 2",
    parameters=SummaryOneshot,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    missing=missing,
    unfit=unfit,
    resources=resources,
    sources=lambda parameters: {} if parameters.adapter is None else {"adapter": ADAPTER},
    unfit_sources=unfit_sources,
    needs={
        "from_job=": "epsilon noise_multiplier",
        "public_corpus": "centre components public_texts",
        "adapter": "decodings max_tokens temperature",
    },
    releases=(MEANS,),
    artifacts={"means": "the noisy mean hidden states of every group"},
    size_field="epsilon",
    progress_unit="summaries",
    runner="workers.mechanisms.summary_oneshot",
    groups={
        "Size and privacy": "from_job epsilon noise_multiplier clip public_size group_sizes "
        "min_group temperature",
        "Texts": "adapter soft_tokens max_tokens decodings record_tokens template",
        "Around a public mean": "public_corpus centre components public_texts",
    },
    order=8,
    goal="summaries",
    advice="one noisy mean of each group, which an adapter reads out as often as one likes",
    plain="epsilon public_size adapter decodings from_job",
    yields=lambda p, terms: (
        Yield("noisy means", by_label(p.releases, terms.groups))
        if p.adapter is None
        else Yield("summaries", by_label(p.decodings, terms.groups), p.max_tokens)
    ),
    example={"epsilon": 2.0},
)
