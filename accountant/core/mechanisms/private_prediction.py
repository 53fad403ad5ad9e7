"""The price of `private-prediction` (paper 001, Algorithm 1; Amin et al. 2024).

Every token is a draw from softmax(mean of clipped logits / temperature): the exponential mechanism,
zCDP (Delta / temperature)^2 / 2 with Delta = clip / batch_size under add-remove. The denominator is
the *public* batch size, whatever a batch really holds. Batches are disjoint, so the job costs the
tokens of one batch and not of all.

A unit with at most b records moves one batch by at most b * clip / batch_size. Where labels differ its
records may lie in several batches, b_1 + ... + b_k = b; each filter's cost of n tokens is superadditive
in the shift, so one batch with all b is the worst (tests check this for mu^2, whose cost is not a
square).

Under replace-one a unit leaves and another comes: one batch moves by twice the shift, or two batches by
the shift each; each filter charges the larger.
"""

from fractions import Fraction
from typing import Literal

from pydantic import Field

from accountant.core.budget import float_up
from accountant.core.errors import FieldProblem, invalid
from accountant.core.events import Event, Exponential, SelfComposed, WorstOf
from accountant.core.pricing import Mechanism, Neighbours, Parameters, Price, Terms
from accountant.core.template import check_template

DEFAULT_TEMPLATE = "A text ({label}): {record}\nAnother text ({label}):"


class PrivatePrediction(Parameters):
    """Parameters of `private-prediction`; the defaults are the paper's where it gives one."""

    aggregation: Literal["mean"] = Field("mean", description="how the logits of a batch become one")
    batching: Literal["uniform"] = Field("uniform", description="how records are put into batches")
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
        description="batches per label; nothing: public size / labels / batch size, at least 1",
    )
    examples_per_context: Literal[1] = Field(1, description="private records in one context")
    clip: float = Field(9.0, gt=0, le=1_000, description="logits are shifted and clipped to [-c, c]")
    temperature: float = Field(1.5, gt=0, le=1_000, description="temperature of every draw")
    tokens_per_batch: int = Field(
        373, ge=1, le=10_000_000, description="tokens T that every batch writes, over all its texts"
    )
    max_text_tokens: int | None = Field(
        None, ge=1, le=1_000_000, description="a text ends here at the latest; nothing: T"
    )
    record_tokens: int = Field(256, ge=1, le=1_000_000, description="a record is cut after this many")
    template: str = Field(
        DEFAULT_TEMPLATE, max_length=8_000, description="the prompt, with slots {label} and {record}"
    )
    stop: str | None = Field(None, min_length=1, max_length=100, description="a text ends before this")


def shift(parameters: PrivatePrediction, terms: Terms) -> Fraction:
    """Most by which one unit, added or removed, moves a score: b * c / (s * temperature), exactly."""
    sensitivity = Fraction(parameters.clip) / parameters.batch_size * terms.max_records_per_unit
    return sensitivity / Fraction(parameters.temperature)


def token_event(parameters: PrivatePrediction, terms: Terms) -> Event:
    """The privacy event of one token of one batch, which the meter records at every draw."""
    once = shift(parameters, terms)
    if terms.neighbours is Neighbours.ADD_REMOVE:
        return Exponential(float_up(once))
    stays = Exponential(float_up(2 * once))
    moves = SelfComposed(Exponential(float_up(once)), 2)
    return WorstOf((stays, moves))


def price(parameters: PrivatePrediction, terms: Terms) -> Price:
    """T tokens of one batch."""
    token = token_event(parameters, terms)
    tokens = parameters.tokens_per_batch
    event = SelfComposed(token, tokens) if tokens > 1 else token
    doubled = 2 if terms.neighbours is Neighbours.REPLACE_ONE else 1
    rho = float((doubled * shift(parameters, terms)) ** 2 / 2 * tokens)
    relation = "replacing a unit" if doubled == 2 else "adding or removing a unit"
    bound = terms.max_records_per_unit
    records = f" of at most {bound} records" if bound > 1 else ""
    moves = float(Fraction(parameters.clip) / parameters.batch_size * bound * doubled)
    return Price(
        event,
        breakdown=(
            f"{relation}{records} moves the mean logits of a batch by at most {moves:.6g}",
            f"{tokens:,} tokens of one batch: zCDP {rho:.4g}; batches are disjoint, so all cost as one",
        ),
    )


def resolve(parameters: PrivatePrediction, terms: Terms) -> PrivatePrediction:
    """Fill in the number of batches and the text length; refuse a template that can't be filled."""
    check_template(parameters.template, required=("record",), optional=("label",))
    text = parameters.max_text_tokens or parameters.tokens_per_batch
    if text > parameters.tokens_per_batch:
        raise invalid(
            "max_text_tokens", f"{text} is more than tokens_per_batch", f"1 to {parameters.tokens_per_batch}"
        )
    batches = parameters.batches_per_label
    if batches is None and terms.public_size is not None:
        batches = max(1, terms.public_size // (max(1, len(terms.labels)) * parameters.batch_size))
    return parameters.model_copy(update={"max_text_tokens": text, "batches_per_label": batches})


def context_tokens(parameters: PrivatePrediction, template_tokens: int) -> int:
    """Longest context: template, one record, and one text."""
    text = parameters.max_text_tokens or parameters.tokens_per_batch
    return template_tokens + parameters.record_tokens + text


def missing(parameters: PrivatePrediction) -> FieldProblem | None:
    """The number of batches must be public: stated, or from the dataset's declared size."""
    if parameters.batches_per_label is not None:
        return None
    problem = "not given, and the dataset declares no public size to derive it from"
    return FieldProblem("batches_per_label", problem, "a whole number from 1")


MECHANISM = Mechanism(
    id="private-prediction",
    title="Private prediction",
    summary="Writes texts token by token from the mean of clipped logits over a batch of records.",
    source="paper 001, Algorithm 1; Amin et al. 2024",
    parameters=PrivatePrediction,
    price=price,
    resolve=resolve,
    context_tokens=context_tokens,
    size_field="tokens_per_batch",
    missing=missing,
)
