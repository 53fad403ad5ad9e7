"""The price of `invisible-ink` (Vinod et al. 2025, a baseline of paper 000).

Each private context's difference from the public context's logits is clipped to [-c, c], summed,
divided by the public batch size s, and added to the public logits; the token is drawn from softmax
of that over the public top k, widened by 2c/s ("top-k+"). The set drawn from depends on public
logits alone, so it costs nothing. A unit of at most b records moves a score by b * c / s (twice
under replace-one): the exponential mechanism, zCDP (b * c / (s * temperature))^2 / 2 per token. The
public context comes on top of s and does not count. Batches are disjoint: T = texts_per_batch *
max_tokens tokens of one. Lengths and numbers are given, never read from private lengths. With
amplification a round is charged whole once a token of it is drawn, also where its texts end early
(batches.py).
"""

from fractions import Fraction

from pydantic import Field

from accountant.core.errors import invalid
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
    missing_batches,
    texts_of_batches,
    token_draw,
    tokens_of_one_batch,
    turn,
)
from accountant.core.privacy.events import Event
from accountant.core.privacy.price import Price, Terms
from accountant.core.template import DEFAULT_TEMPLATE, check_template, check_turns, line_stop

DEFAULT_PUBLIC_TEMPLATE = "A text ({label}):"


class InvisibleInk(Batched):
    """Parameters of `invisible-ink`; batch size, temperature and top k are the paper's."""

    batch_size: int = Field(
        8, ge=1, le=1_000_000, description="how many records are read at once, such as 8"
    )
    clip: float = Field(
        1.0,
        ge=1e-6,
        le=1_000,
        description="how far records may move a logit, up or down, such as 1",
    )
    temperature: float = Field(1.0, ge=0.001, le=1_000, description="temperature of every draw")
    top_k: int = Field(
        100,
        ge=0,
        le=10_000_000,
        description="draw from this many of the likeliest tokens by the public prompt, such as "
        "100, and all nearly as likely: free; 0: all",
    )
    max_tokens: int = Field(200, ge=1, le=1_000_000, description="a text ends here at the latest")
    texts_per_batch: int = Field(
        1, ge=1, le=1_000_000, description="texts that every batch writes, in each round"
    )
    record_tokens: int = Field(
        256, ge=1, le=1_000_000, description="a record is cut after this many"
    )
    template: str = Field(
        DEFAULT_TEMPLATE,
        max_length=8_000,
        description="the prompt with {label} and {record}. For a chat model, put {user} … "
        "{assistant} around what it is asked",
    )
    public_template: str = Field(
        DEFAULT_PUBLIC_TEMPLATE,
        max_length=8_000,
        description="the prompt without a record, such as: A review of a {label}:",
    )
    stop: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="a text ends before this; nothing: before a line break, where the template "
        "ends in a colon",
    )


def shift(parameters: InvisibleInk, terms: Terms) -> Fraction:
    """Return the most by which one unit moves a score: b * c / (s * temperature), exactly."""
    sensitivity = Fraction(parameters.clip) / parameters.batch_size * terms.max_records_per_unit
    return sensitivity / Fraction(parameters.temperature)


def tokens(parameters: InvisibleInk) -> int:
    """Return tokens T that every batch may write in a round: texts_per_batch * max_tokens."""
    return parameters.texts_per_batch * parameters.max_tokens


def token_event(parameters: InvisibleInk, terms: Terms) -> Event:
    """Return the event that the meter records at every token, or round with amplification."""
    if parameters.amplified:
        return turn(parameters, shift(parameters, terms), tokens(parameters), terms)
    return token_draw(shift(parameters, terms), terms)


def price(parameters: InvisibleInk, terms: Terms) -> Price:
    """Return T tokens of one batch."""
    count, temperature = tokens(parameters), Fraction(parameters.temperature)
    what = "the logits that a batch draws from"
    moves, costs = describe(shift(parameters, terms), temperature, count, terms, what)
    lines: tuple[str, ...] = (moves, costs)
    event = tokens_of_one_batch(token_event(parameters, terms), count)
    if parameters.amplified:
        description = describe_allocation(
            parameters, shift(parameters, terms), count, terms, parameters.batch_size
        )
        event, lines = all_rounds(parameters, token_event(parameters, terms)), (moves, *description)
    kept = f"the top {parameters.top_k:,} come from public logits: free"
    return Price(event, (*lines, kept) if parameters.top_k else lines)


def resolve(parameters: InvisibleInk, terms: Terms) -> InvisibleInk:
    """Fill in the number of batches; refuse templates that can't be filled."""
    optional = ("label", "user", "assistant")
    check_template(parameters.template, required=("record",), optional=optional)
    check_template(
        parameters.public_template, required=(), optional=optional, field="public_template"
    )
    check_turns(parameters.template)
    check_turns(parameters.public_template, "public_template")
    if not parameters.public_template.strip():
        raise invalid(
            "public_template", "empty: nothing to continue", "a text, with or without {label}"
        )
    changes: dict[str, object] = {"batches_per_label": batches_per_label(parameters, terms)}
    changes |= line_stop(parameters.template, parameters.stop)
    resolved = parameters.model_copy(update=changes)
    check_batches(resolved, terms)
    return resolved


def context_tokens(parameters: InvisibleInk, template_tokens: int) -> int:
    """Return longest context: template, one record, and one text."""
    return template_tokens + parameters.record_tokens + parameters.max_tokens


def batches(parameters: InvisibleInk, terms: Terms) -> int:
    """Return batches that run independently: all of them."""
    return parameters.batches_run(terms)


MECHANISM = Mechanism(
    id="invisible-ink",
    title="InvisibleInk",
    summary="Writes texts by what a model says without the records, plus a bounded part of "
    "what they change.",
    source="Vinod et al. 2025; Banayeeanzade et al.: EPSVec, Appendix C.1",
    parameters=InvisibleInk,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    size_field="texts_per_batch",
    stops_early=True,
    missing=missing_batches,
    batches=batches,
    needs=NEEDS_ALLOCATION,
    releases=(LEFT_OUT,),
    artifacts=LEFT_OUT_TEXTS,
    runner="workers.mechanisms.invisible_ink",
    groups={
        "Size and privacy": "texts_per_batch batch_size batches_per_label label_counts clip "
        "temperature amplification rounds batches_to_run",
        "Texts": "labels max_tokens min_tokens record_tokens top_k stop template public_template",
    },
    order=2,
    advice="few records stand behind each text, which a public prompt leads",
    plain="texts_per_batch max_tokens",
    yields=lambda p, terms: texts_of_batches(p, terms, p.texts_per_batch, p.max_tokens),
)
