"""Shared by several mechanisms: disjoint batches and groups, and tokens drawn from a batch's mean.

Every token is the exponential mechanism on scores that one unit moves by at most a shift: zCDP
shift^2 / 2. Batches are disjoint, so a job costs the tokens of one batch and not of all.

Amplification by allocation: which of the k batches a unit lies in is known to nobody but the job's
key, so a job costs what its tokens tell of a unit in one of k batches (events.Allocated). In each
round every unit draws its batch anew. The number of a batch is that of the unit's coin whatever its
label, so batches of one number are one batch here, and a unit of b records moves it by b of their
shifts at most.

The public support is the tokens that a draw chooses from: the likeliest of a public context, which
is the prompt without a record and the text so far. That is a function of public things and of what
was released, so neighbouring worlds draw from the same tokens, and it changes no price
(docs/accounting.md, section 15). What it changes is the floor: a clip leaves every token
e^(-2 clip / temperature) of the likeliest one's weight, and a vocabulary has 50,000 of them.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import Field

from accountant.core.errors import FieldProblem, invalid
from accountant.core.mechanisms.base import Parameters, Yield
from accountant.core.privacy.events import (
    Allocated,
    AllocatedReplaced,
    Event,
    Exponential,
    SelfComposed,
    WorstOf,
)
from accountant.core.privacy.price import Neighbours, Terms
from accountant.core.privacy.units import float_up, up

#: A text of fewer tokens is a stub: none is begun where fewer are left of a batch.
STUB_TOKENS = 16

#: The kind of artifact that counts the texts that public rules left out, and what it holds.
LEFT_OUT = "texts-left-out"
LEFT_OUT_TEXTS = {LEFT_OUT: "how many texts were written, and how many left out, by reason"}


def texts_of_batches(
    parameters: "Batched", terms: Terms, each: int, tokens: int, at_least: bool = False
) -> Yield | None:
    """Return the texts that all batches write in all rounds; None if not public."""
    if parameters.batches_per_label is None and not parameters.label_counts:
        return None
    number = parameters.batches_run(terms) * parameters.rounds * each
    return Yield("texts", number, tokens, "at least" if at_least else "at most")


def texts_of_tokens(parameters: Any, terms: Terms) -> Yield | None:
    """Return the same where a batch writes T tokens: a text ends early or at its limit, and the
    next begins unless too few tokens are left for it.
    """
    tokens = parameters.tokens_per_batch
    longest = parameters.max_text_tokens or tokens
    least = 1 + (tokens - least_begun(parameters)) // longest
    return texts_of_batches(parameters, terms, least, longest, at_least=True)


def least_begun(parameters: Any) -> int:
    """Return the tokens that must be left of a batch for it to begin a text."""
    tokens: int = parameters.tokens_per_batch
    return min(STUB_TOKENS, parameters.max_text_tokens or tokens, tokens)


def token_draw(shift: Fraction, terms: Terms) -> Event:
    """Return one token of one batch, where adding or removing a unit moves every score by at most
    `shift`.

    Under replace-one the unit that leaves and the one that comes share a batch, which moves twice
    as far, or lie in two, which move by `shift` each: every filter charges the larger.
    """
    if terms.neighbours is Neighbours.ADD_REMOVE:
        return Exponential(float_up(shift))
    stays = Exponential(float_up(2 * shift))
    moves = SelfComposed(Exponential(float_up(shift)), 2)
    return WorstOf((stays, moves))


class Supported(Parameters):
    """The field of a mechanism that draws tokens from a public support."""

    top_k: int = Field(
        100,
        ge=0,
        le=10_000_000,
        description="draw from this many of the likeliest tokens after the prompt without a"
        " record and the text so far: free; 0: all",
    )
    min_tokens: int = Field(
        8,
        ge=0,
        le=1_000_000,
        description="no text ends before so many tokens: none is drawn that would end it",
    )


def describe_support(parameters: Supported) -> tuple[str, ...]:
    """Return the line of a breakdown: what is drawn from, and that it is free."""
    if not parameters.top_k:
        return ()
    what = "after the prompt without a record and the text so far"
    return (f"drawn from the {parameters.top_k:,} tokens likeliest {what}: free",)


#: Batches of one label, at most.
MOST_BATCHES = 1_000_000


#: Fields that are used only where batches are secret (`Mechanism.needs`).
NEEDS_ALLOCATION = {"amplification=allocation": "rounds batches_to_run"}


class Batched(Supported):
    """The parameters of a mechanism that writes from batches of records."""

    batches_per_label: int | None = Field(
        None,
        ge=1,
        le=MOST_BATCHES,
        description="how many batches each label has, over all its clusters, such as 8. "
        "Nothing: public size / labels / records of a batch, and at least one a"
        " cluster",
    )
    label_counts: tuple[Annotated[int, Field(ge=0, le=10**12)], ...] = Field(
        (),
        max_length=1_000,
        strict=False,  # JSON has lists
        description="how many records each label has, in order, such as 300, 200: a public "
        "figure or a noisy count. Each label gets as many batches as they fill;"
        " nothing: all alike",
    )
    labels: tuple[str, ...] = Field(
        (),
        max_length=1_000,
        strict=False,  # JSON has lists
        description="labels to write, of the dataset's; nothing: all",
    )
    amplification: Literal["none", "allocation"] = Field(
        "none",
        description="allocation: pay for what is learned by those who do not know the "
        "batches, all of it once a token is drawn. none: as if all knew them",
    )
    rounds: int = Field(
        1,
        ge=1,
        le=1_000_000,
        description="with allocation: how often each unit draws a new batch, such as 2. "
        "Each round writes as many tokens as one alone",
    )
    batches_to_run: int | None = Field(
        None,
        ge=1,
        le=MOST_BATCHES,
        description="for allocation: how many of a label's batches run, which costs less; nothing: "
        "all",
    )
    batch_size: int

    @property
    def amplified(self) -> bool:
        """True if the price counts on nobody knowing which batch a unit lies in."""
        return self.amplification == "allocation"

    @property
    def units(self) -> int:
        """Records that a batch is meant to hold."""
        return self.batch_size

    def batches_by_label(self, terms: Terms) -> dict[str | None, int]:
        """Return the batches of each label, under None if the dataset has no labels."""
        labels: tuple[str | None, ...] = self.written(terms) or (None,)
        counts = (
            dict(zip(terms.labels, self.label_counts, strict=True)) if self.label_counts else {}
        )
        return {
            label: max(1, round(counts[label] / self.units))
            if label in counts
            else self.batches_per_label or 1
            for label in labels
        }

    def coin_sides(self, terms: Terms) -> int:
        """Return the number of batches that a unit's coin picks from: the fewest of any label.

        More batches never cost more (docs/accounting.md, 10.9).
        """
        return min(self.batches_by_label(terms).values())

    def batches_run(self, terms: Terms) -> int:
        """Return batches that run in one round, over all labels."""
        label_batches = self.batches_by_label(terms).values()
        return sum(self.batches_to_run or batches for batches in label_batches)

    def written(self, terms: Terms) -> tuple[str, ...]:
        """Return the labels that the job writes; records of others are not in its batches."""
        return self.labels or terms.labels


def unfit_to_end(parameters: Any, facts: Mapping[str, Any]) -> FieldProblem | None:
    """Return a model that names no end token never ends a text; a stop text may."""
    ends = facts.get("end_tokens", True) or parameters.stop is not None
    problem = "the model names no token that ends a text"
    return None if ends else FieldProblem("stop", problem, "a text that ends each text")


def check_batches(parameters: Batched, terms: Terms) -> None:
    """Refuse labels, counts of labels and allocations that can't be."""
    _check_labels(parameters, terms)
    _check_allocation(parameters)


def missing_batches(parameters: Batched) -> FieldProblem | None:
    """Return a public number of batches if neither request nor declared size says one."""
    if parameters.batches_per_label is not None or parameters.label_counts:
        return None
    problem = "not given, and the dataset declares no public size to derive it from"
    return FieldProblem("batches_per_label", problem, "a whole number from 1")


def _check_labels(parameters: Batched, terms: Terms) -> None:
    """Refuse labels that the dataset lacks, labels named twice, and counts without a use."""
    counts = len(parameters.label_counts)
    if counts and counts != len(terms.labels):
        problem = f"{counts} for a dataset with {len(terms.labels)} labels"
        raise invalid("label_counts", problem, "one for each label, in their order, or nothing")
    if counts and parameters.batches_per_label is not None:
        raise invalid("batches_per_label", "given beside label_counts", "one of the two")
    if counts and parameters.amplified and terms.max_records_per_unit > 1:
        why = "a unit's records in two labels share a coin, which wants as many batches in each"
        raise invalid("label_counts", why, "nothing, or amplification none")
    if counts and parameters.batches_to_run is not None:
        raise invalid("batches_to_run", "given beside label_counts", "one of the two")
    most = max(parameters.label_counts, default=0)
    if most > MOST_BATCHES * parameters.units:
        problem = f"{most:,} records are over {MOST_BATCHES:,} batches of {parameters.units:,}"
        raise invalid("label_counts", problem, f"0 to {MOST_BATCHES * parameters.units:,}")
    unknown = [label for label in parameters.labels if label not in terms.labels]
    if unknown:
        allowed = ", ".join(terms.labels) or "nothing: the dataset has no labels"
        raise invalid("labels", f"{unknown[0]!r} is no label of the dataset", allowed)
    if len(set(parameters.labels)) < len(parameters.labels):
        raise invalid("labels", "a label is named twice", "each of them once")


def _check_allocation(parameters: Batched) -> None:
    """Refuse rounds or idle batches without amplification, and it without a batch count."""
    k, g = parameters.batches_per_label, parameters.batches_to_run
    if not parameters.amplified:
        if parameters.rounds > 1:
            raise invalid(
                "rounds",
                f"{parameters.rounds} without amplification",
                "1, or amplification allocation",
            )
        if g is not None:
            raise invalid(
                "batches_to_run",
                "given without amplification",
                "nothing, or amplification allocation",
            )
        return
    if k is None and not parameters.label_counts:
        why = (
            "not given, and no public size to derive it from: what a secret batch is worth "
            "depends on it"
        )
        raise invalid("batches_per_label", why, "a whole number from 1")
    if g is not None and k is not None and g > k:
        raise invalid("batches_to_run", f"{g} of {k} batches", f"1 to {k}")


def turn(
    parameters: Batched, shift: Fraction, tokens: int, terms: Terms
) -> Allocated | AllocatedReplaced:
    """Return a round: `tokens` of each batch, where one unit moves scores by at most `shift`."""
    k = parameters.coin_sides(terms)
    kind = Allocated if terms.neighbours is Neighbours.ADD_REMOVE else AllocatedReplaced
    return kind(k, parameters.batches_to_run or k, tokens, Exponential(float_up(shift)))


def all_rounds(parameters: Batched, each: Event) -> Event:
    """Return the rounds of a job, each under coins of its own."""
    return SelfComposed(each, parameters.rounds) if parameters.rounds > 1 else each


#: Orders at which the longest sensible round is told: those of accounts of large, middling and
#: small epsilon.
_TOLD_ORDERS = (4, 10, 20)


def describe_allocation(
    parameters: Batched, shift: Fraction, tokens: int, terms: Terms, contexts: int
) -> tuple[str, ...]:
    """Return lines of a breakdown: what is secret, who pays what, and how long a round is worth
    while.

    `contexts`: the public number of prompts that a batch reads.
    """
    k = parameters.coin_sides(terms)
    g, rounds = parameters.batches_to_run or k, parameters.rounds
    far = doubled(terms) * shift
    zcdp = up(float(far**2 / 2 * rounds * tokens), 4)
    prompts = rounds * parameters.batches_run(terms) * contexts
    idle = f", of which {g:,} are run," if g < k else ""
    least = " of the label with the fewest" if parameters.label_counts else ""
    begun = f"{rounds:,} rounds of {tokens:,} tokens, each" if rounds > 1 else f"{tokens:,} tokens,"
    lines = [
        f"nobody but the job's key, deleted when it ends, knows which of {k:,} batches{idle} a "
        f"unit{least} lies in: {begun} charged whole once a token of it is drawn",
        f"for whoever holds the key it costs {rounds * tokens:,} tokens of one batch: zCDP "
        f"{zcdp:.4g}",
        f"a round's prompts that memory has no room for are read anew: at most {prompts:,} in all",
    ]
    if k > 1:
        steep = 1.4 * math.log(k) / float(far**2)
        longest = [f"{steep / order:,.0f} at order {order}" for order in _TOLD_ORDERS]
        lines.append(
            "beyond about 1.4 ln k / (order * shift^2) tokens of one coin the price climbs steeply "
            f"({', '.join(longest)}): more rounds cost less than longer ones"
        )
    return tuple(lines)


def describe_temperature(
    parameters: Batched, temperature: Fraction, terms: Terms
) -> tuple[str, ...]:
    """Return what dividing sums of logits by a public number does where a batch holds more or fewer
    records.

    No line where no public figure says how many it holds, nor where records share contexts.
    """
    if parameters.units != parameters.batch_size:
        return ()
    batches = parameters.batches_by_label(terms)
    if parameters.label_counts:
        counts = dict(zip(terms.labels, parameters.label_counts, strict=True))
        held = [counts[str(label)] / many for label, many in batches.items()]
    elif terms.public_size is not None and parameters.batches_per_label is not None:
        held = [terms.public_size / max(1, len(terms.labels)) / parameters.batches_per_label]
    else:
        return ()
    warm = [float(temperature) * parameters.units / bound for bound in held if bound]
    if not warm:
        return ()
    return (
        f"a batch holds {_ends(held)} records by the public figures, and {parameters.units:,} are "
        f"divided by: an effective temperature of {_ends(warm)}",
    )


def _ends(values: list[float]) -> str:
    return " to ".join(dict.fromkeys(f"{value:,.4g}" for value in (min(values), max(values))))


def tokens_of_one_batch(draw: Event, tokens: int) -> Event:
    """Return all tokens of one batch."""
    return SelfComposed(draw, tokens) if tokens > 1 else draw


def doubled(terms: Terms) -> int:
    """Return the factor by which replacing a unit moves a sum more than adding one: 2 or 1."""
    return 2 if terms.neighbours is Neighbours.REPLACE_ONE else 1


def describe(
    shift: Fraction, scale: Fraction, tokens: int, terms: Terms, what: str
) -> tuple[str, str]:
    """Return the two lines of a breakdown: how far `what` moves, and what the tokens cost.

    `scale` is the temperature, so that shift * scale is the movement before dividing by it.
    """
    far = doubled(terms) * shift
    relation = "replacing a unit" if doubled(terms) == 2 else "adding or removing a unit"
    bound = terms.max_records_per_unit
    records = f" of at most {bound} records" if bound > 1 else ""
    return (
        f"{relation}{records} moves {what} by at most {up(float(far * scale), 6):.6g}",
        f"{tokens:,} tokens of one batch: zCDP {up(float(far**2 / 2 * tokens), 4):.4g}; "
        "batches are disjoint, so all cost as one",
    )


def batches_per_label(parameters: Batched, terms: Terms) -> int | None:
    """Return the number asked for, or that of batches with `units` records on average, by the
    declared size.

    None where the labels' own counts say it, or nothing does.
    """
    batches_per_label = parameters.batches_per_label
    if batches_per_label is not None or terms.public_size is None or parameters.label_counts:
        return batches_per_label
    return max(1, terms.public_size // (max(1, len(terms.labels)) * parameters.units))


def group_size(asked: int | None, groups: str | None, terms: Terms) -> int:
    """Return the n of a group: as asked, or the dataset's where there are no groups."""
    size = terms.public_size if asked is None and groups is None else asked
    if size is None:
        why = "a mean needs a public number to divide by" + (
            ", one for each group" if groups else ""
        )
        raise invalid("public_size", why, "a whole number from 1 to 1000000000000")
    return size
