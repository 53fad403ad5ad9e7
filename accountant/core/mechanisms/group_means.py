"""Shared by the summaries: noisy mean hidden states of public groups, and what a state is read
from.

Every group of a dataset is a small dataset with a public n of its own. A unit lies in one group, so
groups pay as one: where a unit is replaced and changes its group, it moves two sums by b C, sqrt(2)
b C in L2, and 2 b C is what replacing it inside one group costs. n divides afterwards, so groups of
different n share the noise multiplier. No price needs the real size of a group, and none is shown.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from pydantic import Field

from accountant.core.errors import FieldProblem, invalid
from accountant.core.mechanisms.base import Parameters
from accountant.core.mechanisms.batches import doubled, group_size
from accountant.core.mechanisms.noise_fields import GaussianNoise, resolved, with_multiplier
from accountant.core.privacy.price import Terms

Group = str | None
P = TypeVar("P", bound="GroupMeans")

#: sigma in units of what a record may add to a sum, at most: above, nothing would be left to see,
#: and sums with their noise would leave the integers that they are kept in.
MOST_NOISE = 2**22

_MOST_SIZE = 1_000_000_000_000


class StateReading(Parameters):
    """The fields that say what state a record has; an adapter reads states as it learned from."""

    clip: float = Field(
        10.0,
        ge=1e-6,
        le=1_000_000,
        description="how long a hidden state may be, such as 10: a longer one is cut. It is public",
    )
    record_tokens: int = Field(
        256, ge=1, le=1_000_000, description="a record is cut after this many"
    )


class GroupMeans(GaussianNoise, StateReading):
    """The fields of a mechanism that releases mean states of groups."""

    public_size: int | None = Field(
        None,
        ge=1,
        le=_MOST_SIZE,
        description="the public size that a group's sum is divided by; nothing: that of the "
        "dataset, if it has no groups",
    )
    group_sizes: str | None = Field(
        None,
        min_length=3,
        max_length=8_000,
        description="another public size for groups named here, as north=200,south=350",
    )
    min_group: int = Field(
        20,
        ge=1,
        le=_MOST_SIZE,
        description="a group with a public size below this is refused: noise would drown it",
    )


def sizes(parameters: GroupMeans, terms: Terms) -> dict[Group, int]:
    """Return the public n of every group, in the declared order; of None where the dataset has no
    groups.

    Raises InvalidRequest where one is missing, below `min_group`, or of a group that is not
    declared.
    """
    named = _named(parameters, terms)
    sizes: dict[Group, int] = {}
    for group in terms.groups or (None,):
        field = "group_sizes" if group in named else "public_size"
        stated_size = named.get(group)
        if stated_size is None:
            grouped = "group" if terms.groups else None
            stated_size = group_size(parameters.public_size, grouped, terms)
        if terms.groups and stated_size < parameters.min_group:
            problem = f"{stated_size} of group {group!r} is below min_group"
            raise invalid(field, problem, f"{parameters.min_group} or more, or a smaller min_group")
        sizes[group] = stated_size
    return sizes


def _named(parameters: GroupMeans, terms: Terms) -> dict[Group, int]:
    """Return the numbers in `group_sizes`."""
    sizes: dict[Group, int] = {}
    for part in parameters.group_sizes.split(",") if parameters.group_sizes else ():
        group, equals, number = part.strip().rpartition("=")
        if (
            not equals
            or not number.isascii()
            or not number.isdigit()
            or not 1 <= int(number) <= _MOST_SIZE
        ):
            raise invalid(
                "group_sizes", f"{part[:80]!r} is no size", "NAME=NUMBER, parted by commas"
            )
        if group not in terms.groups:
            allowed = ", ".join(terms.groups) or "nothing: the dataset has no groups"
            raise invalid("group_sizes", f"{group[:80]!r} is not declared", allowed)
        if group in sizes:
            raise invalid("group_sizes", f"{group!r} stands there twice", "each group once")
        sizes[group] = int(number)
    return sizes


def sensitivity(parameters: GroupMeans, terms: Terms) -> float:
    """Return L2 sensitivity of the smallest group's mean: b C / n, twice under replace-one."""
    least = min(sizes(parameters, terms).values())
    return doubled(terms) * terms.max_records_per_unit * parameters.clip / least


def sigma(parameters: GroupMeans, terms: Terms) -> float:
    """Return the standard deviation of noise on the smallest group's mean (Equation 4)."""
    return resolved(parameters.noise_multiplier, "noise_multiplier") * sensitivity(
        parameters, terms
    )


def describe(parameters: GroupMeans, terms: Terms, what: str, together: str) -> tuple[str, ...]:
    """Return the lines of a breakdown: `what` is released, its noise, the cost `together`."""
    least = min(sizes(parameters, terms).values())
    most = "at most " if len(set(sizes(parameters, terms).values())) > 1 else ""
    line = (
        f"{what}: Gaussian, σ {most}{sigma(parameters, terms):.6g} (sensitivity "
        f"{sensitivity(parameters, terms):.4g}, n {least:,}), together {together}"
    )
    if not terms.groups:
        return (line,)
    return (line, f"{len(terms.groups):,} groups are disjoint, so all cost as one")


def resolve(parameters: P, terms: Terms, calibrate: Callable[[float], float]) -> P:
    """Fill in the public size and the noise. Raises InvalidRequest."""
    if not terms.groups and parameters.public_size is None:
        size = group_size(None, None, terms)
        parameters = parameters.model_copy(update={"public_size": size})
    sizes(parameters, terms)
    field = "epsilon" if parameters.noise_multiplier is None else "noise_multiplier"
    parameters = with_multiplier(parameters, calibrate)
    most = MOST_NOISE / (doubled(terms) * terms.max_records_per_unit)
    multiplier = resolved(parameters.noise_multiplier, "noise_multiplier")
    if multiplier > most:
        why = f"a noise multiplier of {multiplier:.6g} leaves nothing but noise"
        raise invalid(field, why, f"a multiplier of at most {most:.6g}")
    return parameters


def beyond_context(field: str, tokens: int, facts: Mapping[str, object]) -> FieldProblem | None:
    """Return the problem of `tokens` that no context of the model can hold, or None."""
    limit = facts.get("context_tokens")
    if not isinstance(limit, int) or tokens <= limit:
        return None
    problem = f"{tokens:,} tokens would be needed, and the model's context has {limit:,}"
    return FieldProblem(field, problem, f"so few that all fit {limit:,}")
