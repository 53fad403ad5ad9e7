"""The price of `private-prediction` (paper 001, Algorithm 1; Amin et al. 2024).

Mean: every token is a draw from softmax(mean of clipped logits / temperature): the exponential
mechanism, zCDP (Delta / temperature)^2 / 2 with Delta = clip / batch_size under add-remove. The
denominator is the *public* batch size, whatever a batch really holds. Batches are disjoint, so the
job costs the tokens of one batch and not of all.

A unit with at most b records moves one batch by at most b * clip / batch_size. Where labels or
clusters differ its records may lie in several batches, b_1 + ... + b_k = b; each filter's cost of n
tokens is superadditive in the shift, so one batch with all b is the worst (tests check it). Under
replace-one a unit leaves and another comes: one batch moves by twice the shift, or two batches by
the shift each; each filter charges the larger.

Two examples in a context: with the second one public or a fixed shot nothing changes. With both
private, (batch, slot) is a keyed hash of the record, and a slot takes part while exactly two
records fall in it (a record adds or removes one context) or, where two or more do, shows its two
lowest hashes (a record *changes* a context, which moves twice as far). Paper 001 puts two private
records into every context and charges clip / batch_size, which costs twice that: its T = 373 is
then epsilon 23.7 and not 10.

Tokens are drawn from a public support (batches.py): each context's logits are clipped
relative to the best of the support's, so they lie in [-clip, clip] there as they do without one,
and no price changes.

Median (paper 001, Theorem 2): the cost depends on the data, so the price is a cap that an analyst
plans with, in the currency `ex-post`. Refused under replace-one, where the theorem fails with its
ends.

Amplification (batches.py): for the mean in uniform batches; clusters and the median cost the plain
price. Clusters: one Laplace histogram over pairs of a label and a public centre. A record lies in
one pair: L1 sensitivity 1 (2 under replace-one), b times that for units of b records. `clusters` is
their number over all labels, as in the paper's tables: each label keeps an equal share, its largest
noisy counts. Its batches are shared out among them by these counts, which is free; how many there
are in all is public beforehand.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field

from accountant.core.errors import FieldProblem, invalid
from accountant.core.mechanisms.base import Mechanism
from accountant.core.mechanisms.batches import (
    LEFT_OUT,
    LEFT_OUT_TEXTS,
    NEEDS_ALLOCATION,
    Batched,
    all_rounds,
    batches_per_label,
    check_batches,
    describe,
    describe_allocation,
    describe_support,
    describe_temperature,
    doubled,
    missing_batches,
    texts_of_tokens,
    token_draw,
    tokens_of_one_batch,
    turn,
    unfit_to_end,
)
from accountant.core.mechanisms.noise_fields import cost
from accountant.core.privacy.calibration import LEAST_EPSILON, MOST_EPSILON, laplace_multiplier
from accountant.core.privacy.events import Composed, Event, Laplace
from accountant.core.privacy.price import Neighbours, Price, Terms
from accountant.core.privacy.units import up
from accountant.core.template import (
    DEFAULT_TEMPLATE,
    DEFAULT_TEMPLATE_OF_TWO,
    NAMED_TEMPLATES,
    check_template,
    check_turns,
    line_stop,
)

MEDIAN_CLIP = 6.0


class PrivatePrediction(Batched):
    """Parameters of `private-prediction`; the defaults are the paper's where it gives one."""

    aggregation: Literal["mean", "median"] = Field(
        "mean", description="how the logits of a batch become one; median has no (ε, δ) but a cap"
    )
    ex_post_cap: float | None = Field(
        None,
        gt=0,
        le=1_000_000,
        description="median only: the ex-post ε set aside, a planning figure; the real one may "
        "exceed it",
    )
    public_contexts: int = Field(
        2, ge=2, le=10_000, description="for median: how many public texts each batch has"
    )
    batching: Literal["uniform", "clusters"] = Field(
        "uniform", description="how records are put into batches, after their label"
    )
    public_centres: int = Field(
        1_000,
        ge=1,
        le=1_000_000,
        description="for clusters: how many centres come from public data",
    )
    clusters: int = Field(
        60,
        ge=1,
        le=1_000_000,
        description="for clusters: how many centres are kept, an equal part for each label",
    )
    cluster_epsilon: float = Field(
        0.1,
        ge=LEAST_EPSILON,
        le=MOST_EPSILON,
        description="clusters only: pure ε of the noisy counts",
    )
    public_corpus: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="a public corpus, which centres, partners and the median's texts come from",
    )
    embedding: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="for clusters: a model that turns texts into vectors",
    )
    batch_size: int = Field(
        64,
        ge=1,
        le=1_000_000,
        description="how many records a batch stands for, such as 125, however many it holds",
    )
    examples_per_context: Literal[1, 2] = Field(
        1, description="records in one context, private or not"
    )
    context_partner: Literal["public", "shot", "exact-slot", "lowest-hash"] | None = Field(
        None,
        description="the second record of a context: public, a fixed shot, or private by one of "
        "two rules; nothing: public where there are two",
    )
    shots: str | None = Field(
        None,
        min_length=1,
        max_length=100_000,
        description="for the partner `shot`: a public text, or one for each label in order, with "
        "--- between them",
    )
    clip: float = Field(
        9.0,
        ge=1e-6,
        le=1_000,
        description="how far logits may go up or down, such as 9: what is beyond is cut. "
        "For the median the default is 6",
    )
    temperature: float = Field(1.5, ge=0.001, le=1_000, description="temperature of every draw")
    tokens_per_batch: int = Field(
        373,
        ge=1,
        le=10_000_000,
        description="how many tokens each batch writes in a round, over all its texts, "
        "such as 48. No text begins with fewer than 16 left",
    )
    max_text_tokens: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="how many tokens a text may have, such as 48. Empty: all that its batch "
        "writes in a round",
    )
    record_tokens: int = Field(
        256, ge=1, le=1_000_000, description="a record is cut after this many"
    )
    template: str = Field(
        DEFAULT_TEMPLATE,
        max_length=8_000,
        description="the prompt with {label}, {record} and, for pairs, {partner}. For a chat "
        "model, put {user} … {assistant} around what it is asked. Or take base or "
        "instruction",
    )
    stop: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="a text ends before this; nothing: before a line break, where the template "
        "ends in a colon",
    )

    @property
    def units(self) -> int:
        """Records that a batch is meant to hold."""
        private = self.context_partner in ("exact-slot", "lowest-hash")
        return 2 * slots(self) if private else self.batch_size


def shift(parameters: PrivatePrediction, terms: Terms) -> Fraction:
    """Return most by which one unit, added or removed, moves a score: b * c / (s * temperature),
    exactly.

    Twice that where a record may change a context that stays (`lowest-hash`).
    """
    sensitivity = Fraction(parameters.clip) / parameters.batch_size * terms.max_records_per_unit
    changed = 2 if parameters.context_partner == "lowest-hash" else 1
    return changed * sensitivity / Fraction(parameters.temperature)


def token_event(parameters: PrivatePrediction, terms: Terms) -> Event:
    """Return the event that the meter records at every token, or round with amplification."""
    if parameters.aggregation == "median":
        raise invalid(
            "aggregation", "a token of the median has an ex-post cost and no event", "mean"
        )
    if parameters.amplified:
        return turn(parameters, shift(parameters, terms), parameters.tokens_per_batch, terms)
    return token_draw(shift(parameters, terms), terms)


def cluster_event(parameters: PrivatePrediction) -> Event:
    """Return noisy counts over public centres; scale = multiplier * (2 if replaced) * records."""
    return Laplace(laplace_multiplier(parameters.cluster_epsilon))


def count_sensitivity(terms: Terms) -> int:
    """Return the L1 sensitivity of cluster counts between neighbours."""
    return doubled(terms) * terms.max_records_per_unit


def clusters_per_label(parameters: PrivatePrediction, terms: Terms) -> int:
    """Return centres that each label keeps."""
    return parameters.clusters // max(1, len(terms.labels))


def slots(parameters: PrivatePrediction) -> int:
    """Return contexts' places in a batch where both records are private; public.

    With two records a slot on average, P(exactly two) = 2 / e^2 and P(two or more) = 1 - 3 / e^2 of
    them take part: so many slots that these are about `batch_size` contexts. Their number costs
    nothing, as a record lies in one slot.
    """
    share = {"exact-slot": 2 * math.exp(-2), "lowest-hash": 1 - 3 * math.exp(-2)}
    return math.ceil(parameters.batch_size / share[str(parameters.context_partner)])


def fixed_shots(parameters: PrivatePrediction) -> list[str]:
    """Return the texts in `shots`: one for all labels, or one for each."""
    return [
        text.strip()
        for text in re.split(r"^---[ \t]*$", parameters.shots or "", flags=re.MULTILINE)
    ]


def price(parameters: PrivatePrediction, terms: Terms) -> Price:
    """Return T tokens of one batch, and the cluster counts where there are clusters."""
    parts: list[Event] = []
    lines: list[str] = []
    if parameters.batching == "clusters":
        counts = cluster_event(parameters)
        scale = laplace_multiplier(parameters.cluster_epsilon) * count_sensitivity(terms)
        suffix = f" for each of {len(terms.labels):,} labels" if len(terms.labels) > 1 else ""
        lines.append(
            f"{parameters.public_centres:,} cluster counts{suffix}: Laplace, scale {scale:.6g}, "
            f"{cost(counts, terms)}"
        )
        parts.append(counts)
    if parameters.aggregation == "median":
        cap = parameters.ex_post_cap
        assert cap is not None  # resolve asks for it
        lines.append(
            f"{parameters.tokens_per_batch:,} tokens of the median: ex-post, planned at "
            f"{up(cap, 6):g}, settled by the batch that cost most; the cap is neither a bound nor "
            "a mean"
        )
        lines += describe_support(parameters)
        return Price(
            parts[0] if parts else None,
            tuple(lines),
            ex_post_cap=Fraction(cap),
            ex_post_draws=parameters.tokens_per_batch,
        )
    tokens, moved = parameters.tokens_per_batch, shift(parameters, terms)
    temperature = Fraction(parameters.temperature)
    moves, costs = describe(moved, temperature, tokens, terms, "the mean logits of a batch")
    warm = (
        describe_temperature(parameters, temperature, terms)
        if parameters.batching == "uniform"
        else ()
    )
    warm = (*describe_support(parameters), *warm)
    if parameters.amplified:
        description = describe_allocation(parameters, moved, tokens, terms, parameters.batch_size)
        return Price(
            all_rounds(parameters, token_event(parameters, terms)), (moves, *description, *warm)
        )
    lines += [moves, costs, *warm]
    parts.append(tokens_of_one_batch(token_event(parameters, terms), tokens))
    return Price(parts[0] if len(parts) == 1 else Composed(tuple(parts)), tuple(lines))


def resolve(parameters: PrivatePrediction, terms: Terms) -> PrivatePrediction:
    """Fill in what depends on other parameters or the dataset. Refuse what can't be priced."""
    fields_set = parameters.model_fields_set
    two = parameters.examples_per_context == 2
    changes: dict[str, object] = {}
    stop = parameters.stop
    if two:
        changes["context_partner"] = parameters.context_partner or "public"
        if "template" not in fields_set:
            changes["template"] = DEFAULT_TEMPLATE_OF_TWO
    elif parameters.context_partner is not None:
        raise invalid(
            "context_partner", "given for contexts of one record", "examples_per_context 2"
        )
    if parameters.template in NAMED_TEMPLATES:
        *texts, ending = NAMED_TEMPLATES[parameters.template]
        stop = parameters.stop or ending
        changes |= {"template": texts[two], "stop": stop}
    if parameters.aggregation == "median" and "clip" not in fields_set:
        changes["clip"] = MEDIAN_CLIP
    changes |= line_stop(str(changes.get("template", parameters.template)), stop)
    parameters = parameters.model_copy(update=changes)
    _check_aggregation(parameters, terms)
    _check_template(parameters)
    _check_public(parameters, terms)
    tokens = parameters.tokens_per_batch
    text = min(parameters.max_text_tokens or tokens, tokens)
    batches = _batches_per_label(parameters, terms)
    resolved = parameters.model_copy(update={"max_text_tokens": text, "batches_per_label": batches})
    check_batches(resolved, terms)
    return resolved


def _batches_per_label(parameters: PrivatePrediction, terms: Terms) -> int | None:
    """Return the number asked for or by the declared size, at least one a cluster."""
    batches = batches_per_label(parameters, terms)
    if parameters.batching == "uniform":
        return batches
    if parameters.labels:
        why = "clusters are counted over all labels at once"
        raise invalid("labels", why, "nothing, or batching uniform")
    counts, labels = parameters.clusters, max(1, len(terms.labels))
    if counts > parameters.public_centres:
        raise invalid(
            "clusters", f"{counts} is more than public_centres", f"1 to {parameters.public_centres}"
        )
    if counts < labels:
        raise invalid(
            "clusters", f"{counts} for {labels} labels, each of which keeps one", f"from {labels}"
        )
    least = clusters_per_label(parameters, terms)
    if batches is None or parameters.batches_per_label is None:
        return batches and max(batches, least)
    if batches < least:
        why = f"{batches} for the {least} clusters of a label, of which each has one"
        raise invalid("batches_per_label", why, f"from {least}")
    return batches


def _check_template(parameters: PrivatePrediction) -> None:
    """Slots, and the turn of a chat, which begins the prompt."""
    template = parameters.template
    partner = ("partner",) if parameters.examples_per_context == 2 else ()
    check_template(template, required=("record", *partner), optional=("label", "user", "assistant"))
    check_turns(template)


def _check_public(parameters: PrivatePrediction, terms: Terms) -> None:
    """Refuse public texts that nothing would use, and a number of shots that fits no labels."""
    used = parameters.batching == "clusters" or _shows_corpus(parameters)
    if parameters.public_corpus is not None and not used:
        allowed = "nothing; or batching clusters, context_partner public, aggregation median"
        raise invalid("public_corpus", "given, and nothing uses it", allowed)
    if parameters.embedding is not None and parameters.batching != "clusters":
        raise invalid("embedding", "given, and nothing uses it", "nothing, or batching clusters")
    if parameters.shots is None:
        return
    if parameters.context_partner != "shot":
        raise invalid(
            "shots", "given, and no context shows them", "nothing, or context_partner shot"
        )
    sizes, labels = len(fixed_shots(parameters)), max(1, len(parameters.written(terms)))
    if sizes not in (1, labels):
        raise invalid(
            "shots", f"{sizes} texts", "one text" + (f", or {labels}, one a label" * (labels > 1))
        )


def _shows_corpus(parameters: PrivatePrediction) -> bool:
    """Return True if contexts show texts of the corpus: those with the context's label."""
    return parameters.context_partner == "public" or parameters.aggregation == "median"


def _check_aggregation(parameters: PrivatePrediction, terms: Terms) -> None:
    """Refuse what Theorem 2 or an allocation does not cover, and a cap where nothing is ex-post."""
    if parameters.amplified and parameters.aggregation == "median":
        raise invalid(
            "amplification", "the median's cost is that of the batch that is known", "none, or mean"
        )
    if parameters.amplified and parameters.batching == "clusters":
        why = (
            "how many batches a cluster has follows from noisy counts, and one of a single batch "
            "has no coin"
        )
        raise invalid("amplification", why, "none, or batching uniform")
    if parameters.aggregation == "mean":
        if parameters.ex_post_cap is not None:
            raise invalid(
                "ex_post_cap", "the mean has no ex-post cost", "nothing, or aggregation median"
            )
        return
    if terms.neighbours is Neighbours.REPLACE_ONE:
        why = "the median's cost bounds adding or removing a record, not replacing one"
        raise invalid("aggregation", why, "mean, or a dataset whose neighbours are add-remove")
    if (bound := terms.max_records_per_unit) > 1:
        why = f"the median's cost is that of one record, and a unit here has {bound}"
        raise invalid("aggregation", why, "mean, or a dataset with one record per unit")
    if parameters.context_partner == "lowest-hash":
        why = "with the median a record may add or remove a context but not change one"
        raise invalid("context_partner", why, "public, shot, exact-slot")
    if parameters.ex_post_cap is None:
        raise invalid("ex_post_cap", "the median needs one", "a number above 0 to 1000000")


def context_tokens(parameters: PrivatePrediction, template_tokens: int) -> int:
    """Return longest context: template, its records, and one text."""
    text = parameters.max_text_tokens or parameters.tokens_per_batch
    return template_tokens + parameters.examples_per_context * parameters.record_tokens + text


def missing(parameters: PrivatePrediction) -> FieldProblem | None:
    """Name what a run lacks: a public number of batches (stated or declared), or public texts."""
    if lacking := missing_batches(parameters):
        return lacking
    clusters = parameters.batching == "clusters"
    if parameters.public_corpus is None and (clusters or parameters.context_partner == "public"):
        whose = "the clusters' centres" if clusters else "a public second example"
        return FieldProblem(
            "public_corpus", f"not given, and {whose} must come from one", "its name"
        )
    if parameters.embedding is None and clusters:
        return FieldProblem(
            "embedding", "not given, and clusters need one", "an embedding model's name"
        )
    if parameters.shots is None and parameters.context_partner == "shot":
        return FieldProblem(
            "shots", "not given, and the second example is a fixed shot", "a public text"
        )
    return None


def resources(parameters: PrivatePrediction) -> dict[str, str]:
    """Return registered public things that a request names."""
    kinds = {"public_corpus": "corpus", "embedding": "embedding"}
    return {field: kind for field, kind in kinds.items() if getattr(parameters, field) is not None}


def unfit_public(
    parameters: PrivatePrediction, terms: Terms, facts: Mapping[str, Mapping[str, Any]]
) -> FieldProblem | None:
    """Return a corpus too small for its centres, or without a label of the dataset."""
    if "public_corpus" not in facts:
        return None
    corpus = facts["public_corpus"]
    if parameters.batching == "clusters" and corpus["texts"] < parameters.public_centres:
        problem = (
            f"{parameters.public_centres:,} centres of the {corpus['texts']:,} texts in the corpus"
        )
        return FieldProblem("public_centres", problem, f"1 to {corpus['texts']}")
    lacking = [label for label in parameters.written(terms) if label not in corpus["labels"]]
    if corpus["labels"] and lacking and _shows_corpus(parameters):
        problem = f"the corpus has labels, and no text of the dataset's label {lacking[0]!r}"
        return FieldProblem("public_corpus", problem, "a corpus with these labels, or without any")
    return None


def batches(parameters: PrivatePrediction, terms: Terms) -> int:
    """Return independent batches; the clusters' noisy counts are one release from all data."""
    return 1 if parameters.batching == "clusters" else parameters.batches_run(terms)


MECHANISM = Mechanism(
    id="private-prediction",
    title="Private prediction",
    summary="Writes texts token by token from the mean or median of clipped logits over a batch of "
    "records.",
    source="Clustering improves differentially private inference, Algorithm 1; Amin et al. 2024",
    parameters=PrivatePrediction,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    size_field="tokens_per_batch",
    stops_early=True,
    missing=missing,
    batches=batches,
    unfit=unfit_to_end,
    resources=resources,
    unfit_public=unfit_public,
    releases=("clusters", LEFT_OUT),
    needs={
        **NEEDS_ALLOCATION,
        "aggregation=median": "ex_post_cap public_contexts public_corpus",
        "batching=clusters": "public_centres clusters cluster_epsilon public_corpus embedding",
        "examples_per_context=2": "context_partner public_corpus",
        "context_partner=shot": "shots",
    },
    runner="workers.mechanisms.private_prediction",
    groups={
        "Size and privacy": "tokens_per_batch ex_post_cap batch_size batches_per_label "
        "label_counts clip temperature top_k amplification rounds batches_to_run",
        "Texts": "labels max_text_tokens min_tokens record_tokens stop template",
        "Aggregation and clusters": "aggregation public_contexts batching clusters public_centres "
        "cluster_epsilon public_corpus embedding",
    },
    order=0,
    advice="it needs nothing but a model, and every text comes from many records at once",
    plain="tokens_per_batch max_text_tokens ex_post_cap",
    yields=texts_of_tokens,
    artifacts={"clusters": "centres, noisy counts and batches of the clusters", **LEFT_OUT_TEXTS},
)
