"""The price of `private-prediction` (paper 001, Algorithm 1; Amin et al. 2024).

Mean: every token is a draw from softmax(mean of clipped logits / temperature): the exponential
mechanism, zCDP (Delta / temperature)^2 / 2 with Delta = clip / batch_size under add-remove. The
denominator is the *public* batch size, whatever a batch really holds. Batches are disjoint, so the job
costs the tokens of one batch and not of all.

A unit with at most b records moves one batch by at most b * clip / batch_size. Where labels or clusters
differ its records may lie in several batches, b_1 + ... + b_k = b; each filter's cost of n tokens is
superadditive in the shift, so one batch with all b is the worst (tests check it). Under replace-one a
unit leaves and another comes: one batch moves by twice the shift, or two batches by the shift each; each
filter charges the larger.

Two examples in a context: with the second one public or a fixed shot nothing changes. With both private,
(batch, slot) is a keyed hash of the record, and a slot takes part while exactly two records fall in it
(a record adds or removes one context) or shows its two lowest hashes (a record *changes* a context, which
moves twice as far). Paper 001 puts two private records into every context and charges clip / batch_size,
which costs twice that: its T = 373 is then epsilon 23.7 and not 10.

Median (paper 001, Theorem 2): the cost depends on the data, so the price is a cap that an analyst
plans with, in the currency `ex-post`. Refused under replace-one, where the theorem fails with its ends.

Clusters: one Laplace histogram over public centres, L1 sensitivity 1 (2 under replace-one).
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field

from accountant.core.batches import batches_per_label, describe, doubled, token_draw, tokens_of_one_batch
from accountant.core.calibration import LEAST_EPSILON, MOST_EPSILON, cost, laplace_multiplier
from accountant.core.errors import FieldProblem, invalid
from accountant.core.events import Composed, Event, Laplace
from accountant.core.pricing import Mechanism, Neighbours, Parameters, Price, Terms
from accountant.core.template import check_template

DEFAULT_TEMPLATE = "A text ({label}): {record}\nAnother text ({label}):"
DEFAULT_TEMPLATE_OF_TWO = "A text ({label}): {record}\nA text ({label}): {partner}\nAnother text ({label}):"
MEDIAN_CLIP = 6.0


class PrivatePrediction(Parameters):
    """Parameters of `private-prediction`; the defaults are the paper's where it gives one."""

    aggregation: Literal["mean", "median"] = Field(
        "mean", description="how the logits of a batch become one; median has no (ε, δ) but a cap"
    )
    ex_post_cap: float | None = Field(
        None,
        gt=0,
        le=1_000_000,
        description="median only: the ex-post ε set aside, a planning figure; the real one may exceed it",
    )
    public_contexts: int = Field(
        2, ge=2, le=10_000, description="median only: public contexts k_0 that every batch includes"
    )
    batching: Literal["uniform", "clusters"] = Field(
        "uniform", description="how records are put into batches, after their label"
    )
    public_centres: int = Field(
        1_000, ge=1, le=1_000_000, description="clusters only: centres computed from public data"
    )
    clusters: int = Field(
        60, ge=1, le=1_000_000, description="clusters only: centres kept, those with the largest noisy counts"
    )
    cluster_epsilon: float = Field(
        0.1, ge=LEAST_EPSILON, le=MOST_EPSILON, description="clusters only: pure ε of the noisy counts"
    )
    batch_size: int = Field(
        64,
        ge=1,
        le=1_000_000,
        description="public batch size s: the denominator of the mean, whatever a batch really holds",
    )
    batches_per_label: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="batches per label; nothing: public size / labels / records of a batch, at least 1",
    )
    examples_per_context: Literal[1, 2] = Field(1, description="records in one context, private or not")
    context_partner: Literal["public", "shot", "exact-slot", "lowest-hash"] | None = Field(
        None,
        description="the second record of a context: public, a fixed shot, or private by one of two rules; "
        "nothing: public where there are two",
    )
    clip: float = Field(
        9.0,
        ge=1e-6,
        le=1_000,
        description="logits are shifted and clipped to [-c, c]; the median's default is 6",
    )
    temperature: float = Field(1.5, ge=0.001, le=1_000, description="temperature of every draw")
    tokens_per_batch: int = Field(
        373, ge=1, le=10_000_000, description="tokens T that every batch writes, over all its texts"
    )
    max_text_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="a text ends here at the latest; nothing: T"
    )
    record_tokens: int = Field(256, ge=1, le=1_000_000, description="a record is cut after this many")
    template: str = Field(
        DEFAULT_TEMPLATE,
        max_length=8_000,
        description="the prompt, with slots {label} and {record}, and {partner} where contexts hold two",
    )
    stop: str | None = Field(None, min_length=1, max_length=100, description="a text ends before this")


def shift(parameters: PrivatePrediction, terms: Terms) -> Fraction:
    """Most by which one unit, added or removed, moves a score: b * c / (s * temperature), exactly.

    Twice that where a record may change a context that stays (`lowest-hash`).
    """
    sensitivity = Fraction(parameters.clip) / parameters.batch_size * terms.max_records_per_unit
    changed = 2 if parameters.context_partner == "lowest-hash" else 1
    return changed * sensitivity / Fraction(parameters.temperature)


def token_event(parameters: PrivatePrediction, terms: Terms) -> Event:
    """The privacy event of one token of one batch, which the meter records at every draw."""
    if parameters.aggregation == "median":
        raise invalid("aggregation", "a token of the median has an ex-post cost and no event", "mean")
    return token_draw(shift(parameters, terms), terms)


def cluster_event(parameters: PrivatePrediction) -> Event:
    """The noisy counts over the public centres; scale = multiplier * records per unit, twice for a
    replaced one.
    """
    return Laplace(laplace_multiplier(parameters.cluster_epsilon))


def price(parameters: PrivatePrediction, terms: Terms) -> Price:
    """T tokens of one batch, and the cluster counts where there are clusters."""
    parts: list[Event] = []
    lines: list[str] = []
    if parameters.batching == "clusters":
        counts = cluster_event(parameters)
        scale = laplace_multiplier(parameters.cluster_epsilon) * doubled(terms) * terms.max_records_per_unit
        lines.append(
            f"{parameters.public_centres:,} cluster counts: Laplace, scale {scale:.6g}, {cost(counts, terms)}"
        )
        parts.append(counts)
    if parameters.aggregation == "median":
        cap = parameters.ex_post_cap
        assert cap is not None  # resolve asks for it
        lines.append(
            f"{parameters.tokens_per_batch:,} tokens of the median: ex-post, planned at {cap:g}, "
            "settled by the batch that cost most; the cap is neither a bound nor a mean"
        )
        return Price(
            parts[0] if parts else None,
            tuple(lines),
            ex_post_cap=Fraction(cap),
            ex_post_draws=parameters.tokens_per_batch,
        )
    tokens = parameters.tokens_per_batch
    temperature = Fraction(parameters.temperature)
    what = "the mean logits of a batch"
    lines.extend(describe(shift(parameters, terms), temperature, tokens, terms, what))
    parts.append(tokens_of_one_batch(token_event(parameters, terms), tokens))
    return Price(parts[0] if len(parts) == 1 else Composed(tuple(parts)), tuple(lines))


def resolve(parameters: PrivatePrediction, terms: Terms) -> PrivatePrediction:
    """Fill in what depends on other parameters or on the dataset; refuse what can't be run or priced."""
    asked = parameters.model_fields_set
    changes: dict[str, object] = {}
    if parameters.examples_per_context == 2:
        changes["context_partner"] = parameters.context_partner or "public"
        if "template" not in asked:
            changes["template"] = DEFAULT_TEMPLATE_OF_TWO
    elif parameters.context_partner is not None:
        raise invalid("context_partner", "given for contexts of one record", "examples_per_context 2")
    if parameters.aggregation == "median" and "clip" not in asked:
        changes["clip"] = MEDIAN_CLIP
    parameters = parameters.model_copy(update=changes)
    _check_aggregation(parameters, terms)
    partner = ("partner",) if parameters.examples_per_context == 2 else ()
    check_template(parameters.template, required=("record", *partner), optional=("label",))
    text = parameters.max_text_tokens or parameters.tokens_per_batch
    if text > parameters.tokens_per_batch:
        raise invalid(
            "max_text_tokens", f"{text} is more than tokens_per_batch", f"1 to {parameters.tokens_per_batch}"
        )
    if parameters.batching == "clusters" and parameters.clusters > parameters.public_centres:
        kept = parameters.clusters
        raise invalid("clusters", f"{kept} is more than public_centres", f"1 to {parameters.public_centres}")
    private = 2 if parameters.context_partner in ("exact-slot", "lowest-hash") else 1
    batches = batches_per_label(parameters.batches_per_label, parameters.batch_size * private, terms)
    return parameters.model_copy(update={"max_text_tokens": text, "batches_per_label": batches})


def _check_aggregation(parameters: PrivatePrediction, terms: Terms) -> None:
    """Refuse what Theorem 2 does not cover, and a cap where nothing is ex-post."""
    if parameters.aggregation == "mean":
        if parameters.ex_post_cap is not None:
            raise invalid("ex_post_cap", "the mean has no ex-post cost", "nothing, or aggregation median")
        return
    if terms.neighbours is Neighbours.REPLACE_ONE:
        why = "the median's cost bounds adding or removing a record, not replacing one"
        raise invalid("aggregation", why, "mean, or a dataset whose neighbours are add-remove")
    if terms.max_records_per_unit > 1:
        why = f"the median's cost is that of one record, and a unit here has {terms.max_records_per_unit}"
        raise invalid("aggregation", why, "mean, or a dataset with one record per unit")
    if parameters.context_partner == "lowest-hash":
        why = "with the median a record may add or remove a context but not change one"
        raise invalid("context_partner", why, "public, shot, exact-slot")
    if parameters.ex_post_cap is None:
        raise invalid("ex_post_cap", "the median needs one", "a number above 0 to 1000000")


def context_tokens(parameters: PrivatePrediction, template_tokens: int) -> int:
    """Longest context: template, its records, and one text."""
    text = parameters.max_text_tokens or parameters.tokens_per_batch
    return template_tokens + parameters.examples_per_context * parameters.record_tokens + text


def missing(parameters: PrivatePrediction) -> FieldProblem | None:
    """The number of batches must be public: stated, or from the dataset's declared size."""
    if parameters.batches_per_label is not None:
        return None
    problem = "not given, and the dataset declares no public size to derive it from"
    return FieldProblem("batches_per_label", problem, "a whole number from 1")


def batches(parameters: PrivatePrediction, terms: Terms) -> int:
    """Batches that run independently; the noisy counts of clusters are one release from all the data."""
    if parameters.batching == "clusters":
        return 1
    return (parameters.batches_per_label or 1) * max(1, len(terms.labels))


def unavailable(parameters: PrivatePrediction) -> FieldProblem | None:
    """Variants that have a price and no runner yet."""
    for name, runs in (("aggregation", "mean"), ("batching", "uniform"), ("examples_per_context", 1)):
        asked = getattr(parameters, name)
        if asked != runs:
            return FieldProblem(name, f"{asked!r} is priced, but this service can't run it yet", str(runs))
    return None


def unfit(parameters: PrivatePrediction, facts: Mapping[str, Any]) -> FieldProblem | None:
    """A model that names no end token never ends a text; a stop text may."""
    if facts.get("end_tokens", True) or parameters.stop is not None:
        return None
    return FieldProblem("stop", "the model names no token that ends a text", "a text that ends each text")


MECHANISM = Mechanism(
    id="private-prediction",
    title="Private prediction",
    summary="Writes texts token by token from the mean or median of clipped logits over a batch of records.",
    source="paper 001, Algorithm 1; Amin et al. 2024",
    parameters=PrivatePrediction,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    size_field="tokens_per_batch",
    missing=missing,
    unavailable=unavailable,
    batches=batches,
    unfit=unfit,
)
