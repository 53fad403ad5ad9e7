"""Shared by several mechanisms: disjoint batches and groups, and tokens drawn from a batch's mean.

Every token is the exponential mechanism on scores that one unit moves by at most a shift: zCDP
shift^2 / 2. Batches are disjoint, so a job costs the tokens of one batch and not of all.
"""

from fractions import Fraction

from accountant.core.errors import invalid
from accountant.core.privacy.events import Event, Exponential, SelfComposed, WorstOf
from accountant.core.privacy.price import Neighbours, Terms
from accountant.core.privacy.units import float_up, up


def token_draw(shift: Fraction, terms: Terms) -> Event:
    """One token of one batch, where adding or removing a unit moves every score by at most `shift`.

    Under replace-one the unit that leaves and the one that comes share a batch, which moves twice as
    far, or lie in two, which move by `shift` each: every filter charges the larger.
    """
    if terms.neighbours is Neighbours.ADD_REMOVE:
        return Exponential(float_up(shift))
    stays = Exponential(float_up(2 * shift))
    moves = SelfComposed(Exponential(float_up(shift)), 2)
    return WorstOf((stays, moves))


def tokens_of_one_batch(draw: Event, tokens: int) -> Event:
    """All tokens of one batch."""
    return SelfComposed(draw, tokens) if tokens > 1 else draw


def doubled(terms: Terms) -> int:
    """Return the factor by which replacing a unit moves a sum more than adding one: 2 or 1."""
    return 2 if terms.neighbours is Neighbours.REPLACE_ONE else 1


def describe(shift: Fraction, scale: Fraction, tokens: int, terms: Terms, what: str) -> tuple[str, str]:
    """The two lines of a breakdown: how far `what` moves, and what the tokens cost.

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


def batches_per_label(asked: int | None, batch_units: int, terms: Terms) -> int | None:
    """Return `asked`, or the number of batches with `batch_units` each on average, by the declared size."""
    if asked is not None or terms.public_size is None:
        return asked
    return max(1, terms.public_size // (max(1, len(terms.labels)) * batch_units))


def group_size(asked: int | None, groups: str | None, terms: Terms) -> int:
    """The n of a group: as asked, or the dataset's where there are no groups."""
    size = terms.public_size if asked is None and groups is None else asked
    if size is None:
        why = "a mean needs a public number to divide by" + (", one for each group" if groups else "")
        raise invalid("public_size", why, "a whole number from 1 to 1000000000000")
    return size
