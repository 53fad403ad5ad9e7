"""Figures of texts in a terminal: a value with its interval, beside zero-shot and real texts."""

from collections.abc import Mapping
from typing import Any

#: The columns of a table of figures.
SIDES = ("these", "zero-shot", "real texts")


def measured(figure: Mapping[str, Any]) -> list[str]:
    """Return the cells of a figure: its value and those beside it, each with its interval."""
    return [_shown(value) for value in (figure, *map(figure["beside"].get, SIDES[1:]))]


def _shown(value: Mapping[str, Any] | None) -> str:
    if value is None or value["value"] is None:
        return "none"
    ends = value["interval"]
    suffix = "" if ends is None else f" ({ends[0]:.3g} to {ends[1]:.3g})"
    return f"{value['value']:.3g}{suffix}"
