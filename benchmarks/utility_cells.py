"""Bookkeeping of benchmarks.utility: cells that are kept and resumed, repeats, tables in Markdown.

A cell is one run or one measurement, named by everything that its outcome depends on. A finished
cell is never run again, and a cell of other settings is another cell, so that tables can be filled
in pieces.
"""

import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Settings = Mapping[str, Any]
Made = dict[str, Any]


class Store:
    """Cells in a folder, one JSON file each, written whole or not at all.

    `seconds`: when so many have passed no further cell is begun; nothing: all are.
    """

    def __init__(self, folder: Path, seconds: float | None = None) -> None:
        self.folder = folder
        self.ends = None if seconds is None else time.monotonic() + seconds
        self.left_out = 0
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, kind: str, settings: Settings) -> Path:
        """The path of the cell. Raises TypeError for settings that JSON can't express."""
        named = json.dumps([kind, settings], sort_keys=True, allow_nan=False)
        return self.folder / f"{kind}-{hashlib.sha256(named.encode()).hexdigest()[:24]}.json"

    def once(self, kind: str, settings: Settings, make: Callable[[], Made]) -> Made | None:
        """The result of `make` for these settings, now or cached; None if the time is over."""
        path = self.path(kind, settings)
        if path.exists():
            made: Made = json.loads(path.read_text("utf-8"))["made"]
            return made
        if self.ends is not None and time.monotonic() >= self.ends:
            self.left_out += 1
            return None
        made = make()
        whole = {"kind": kind, "settings": settings, "made": made}
        beside = path.with_suffix(f".{os.getpid()}.tmp")
        beside.write_text(json.dumps(whole, ensure_ascii=False, allow_nan=False), "utf-8")
        beside.replace(path)
        return made


@dataclass(frozen=True)
class Table:
    """A table with the settings that its figures depend on; `cells` as they are shown."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    settings: Settings
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        lines = [f"### {self.title}", ""]
        lines += [
            "; ".join(f"{key} {shown(value)}" for key, value in self.settings.items()) + ".",
            "",
        ]
        lines += [f"| {' | '.join(self.columns)} |", f"|{'---|' * len(self.columns)}"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        lines += ["", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines).rstrip() + "\n"


@dataclass
class Repeats:
    """The values of one figure over repeats; missing ones are counted and never filled in."""

    wanted: int
    values: list[float] = field(default_factory=list)

    def add(self, value: float | None) -> None:
        if value is not None:
            self.values.append(value)

    def shown(self, digits: int = 3) -> str:
        """Mean ± standard deviation (n - 1), and how many repeats there are where some are
        missing.
        """
        if not self.values:
            return "–"
        text = f"{statistics.fmean(self.values):.{digits}f}"
        if len(self.values) > 1:
            text += f" ± {statistics.stdev(self.values):.{digits}f}"
        return (
            text
            if len(self.values) == self.wanted
            else f"{text} ({len(self.values)} of {self.wanted})"
        )


def shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    return str(value)
