"""What a metric gives: a value, its settings, and what a plot needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One figure of a report.

    `settings` are all that the value depends on beside the texts. `ideal` says where better lies in words.
    `series` are lines of a plot: name -> (x, y).
    """

    name: str
    value: float
    settings: Mapping[str, Any]
    ideal: str
    details: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, tuple[list[float], list[float]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As it stands in a report's JSON; without the points of its plot."""
        return {
            "name": self.name,
            "value": self.value,
            "settings": dict(self.settings),
            "ideal": self.ideal,
            **({"details": dict(self.details)} if self.details else {}),
        }
