"""Public rates at which units are drawn: a coin for each, or exactly so many of all.

Used by `epsvec`. Refusals name its fields.
"""

from fractions import Fraction

from accountant.core.errors import invalid
from accountant.core.privacy.price import Neighbours, Terms
from accountant.core.privacy.units import float_up


def population(terms: Terms) -> int | None:
    """Return the public number of units in the smallest label; None if it isn't public."""
    if terms.labels:
        return min(terms.label_sizes, default=None)
    return terms.public_size


def poisson_rate(samples: int, rate: float | None, terms: Terms) -> float:
    """Return the coin's rate: as asked, or the expected number over the public size of a label."""
    if rate is not None:
        return rate
    if terms.public_size is None:
        raise invalid(
            "sampling_rate", "the dataset has no public size to derive it from", "above 0 to 1"
        )
    derived = Fraction(samples * max(1, len(terms.labels)), terms.public_size)
    if derived > 1:
        most = terms.public_size // max(1, len(terms.labels))
        raise invalid(
            "samples_per_label",
            f"{samples} is more than the public size of a label",
            f"1 to {most}",
        )
    return float_up(derived)


def fixed_rate(samples: int, rate: float | None, terms: Terms) -> float:
    """m / n of a sample of exactly m of n, which needs replace-one and exact public numbers."""
    if terms.neighbours is Neighbours.ADD_REMOVE:
        why = "under add-remove a unit would displace another from the sample"
        raise invalid("sampling", why, "poisson, or a dataset whose neighbours are replace-one")
    if rate is not None:
        raise invalid(
            "sampling_rate", "a sample of fixed size has no coin", "nothing, or sampling poisson"
        )
    if terms.labels and terms.max_records_per_unit > 1:
        why = "a unit with records in several labels would be drawn in each"
        raise invalid("sampling", why, "poisson, or a dataset with one record per unit")
    size = population(terms)
    if size is None:
        what = "the sizes of its labels are" if terms.labels else "its size is"
        raise invalid(
            "sampling", f"the dataset does not declare that {what} exact and public", "poisson"
        )
    if samples > size:
        why = f"{samples} is more than the {size} units there are"
        raise invalid("samples_per_label", why, f"1 to {size}")
    return samples / size
