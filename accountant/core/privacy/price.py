"""The terms of a dataset and the price of one job: what a ledger entry keeps, whatever the
mechanism.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from accountant.core.privacy.events import Event
from accountant.core.privacy.secrets import SecretTerms


class Neighbours(StrEnum):
    """The relation of neighbouring datasets: a privacy unit added or removed, or replaced."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


@dataclass(frozen=True)
class Terms:
    """The public facts of a dataset that a price may use.

    `delta` is the one at which epsilon is quoted; `public_size` is the steward's declared round
    figure, never a copied count; `labels` are the declared names, empty where there is no label.
    `label_sizes`, in the order of the labels, are exact and public: only where a replaced unit
    keeps its label does a steward declare them, and only then may a fixed number be drawn per
    label. `groups` are declared names too: a unit is in one of them only. `secret` is what the
    steward declares about secrets.
    """

    neighbours: Neighbours = Neighbours.ADD_REMOVE
    delta: float = 1e-6
    max_records_per_unit: int = 1
    public_size: int | None = None
    labels: tuple[str, ...] = ()
    label_sizes: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    secret: SecretTerms | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the form kept in a RESERVE entry, from which a verifier recomputes the price."""
        sizes = {"label_sizes": list(self.label_sizes)} if self.label_sizes else {}
        groups = {"groups": list(self.groups)} if self.groups else {}
        secret = {} if self.secret is None else {"secret": self.secret.to_json()}
        return {
            **sizes,
            **groups,
            **secret,
            "neighbours": str(self.neighbours),
            "delta": self.delta,
            "max_records_per_unit": self.max_records_per_unit,
            "public_size": self.public_size,
            "labels": list(self.labels),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Terms":
        return cls(
            Neighbours(value["neighbours"]),
            float(value["delta"]),
            int(value["max_records_per_unit"]),
            value["public_size"],
            tuple(value["labels"]),
            tuple(value.get("label_sizes", ())),
            tuple(value.get("groups", ())),
            SecretTerms.from_json(value["secret"]) if "secret" in value else None,
        )


@dataclass(frozen=True)
class Price:
    """The cost of one job in the three currencies, with an explanation for people.

    `dp` is None if the job has no (epsilon, delta) price at all. That differs from `events.FREE`,
    the event of a job that reads nothing private. `ex_post_draws` goes with a cap: the number of
    draws with an ex-post cost that each disjoint part of the data makes, fixed before the job
    starts.
    """

    dp: Event | None
    breakdown: tuple[str, ...] = ()
    ex_post_cap: Fraction | None = None
    ex_post_draws: int = 0
    secret: dict[str, Any] | None = None
