"""The result of a metric: a value, its settings, and the data of its plot."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One figure of a report.

    `settings` are everything that the value depends on besides the texts. `ideal` says in words
    which direction is better. `series` are lines of a plot: name -> (x, y).
    """

    name: str
    value: float
    settings: Mapping[str, Any]
    ideal: str
    details: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, tuple[list[float], list[float]]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the figure as in reports and outputs. A missing value (NaN) is null."""
        value = None if math.isnan(self.value) else self.value
        figure: dict[str, Any] = {"name": self.name, "value": value, "ideal": self.ideal}
        figure |= {"settings": dict(self.settings), "details": dict(self.details)}
        return figure | {"series": {name: {"x": x, "y": y} for name, (x, y) in self.series.items()}}
