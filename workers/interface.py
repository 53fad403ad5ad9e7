"""What a mechanism may use: parameters, records, a model, the meter and a progress report. Nothing else.

A runner is `run(parameters, terms, records, model, meter, progress)` and yields texts as they are written,
or counts. It never prices itself, never sees the ledger, and has no noise but the meter's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from accountant.core.pricing import Terms
from workers.meter import Meter
from workers.records import Records


@dataclass(frozen=True)
class Text:
    """One synthetic text. `complete` is false where the token budget ended it."""

    text: str
    label: str | None = None
    complete: bool = True

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "label": self.label, "complete": self.complete}


@dataclass(frozen=True)
class Count:
    """A noisy number of privacy units; `label` None: of the whole dataset."""

    label: str | None
    count: int

    def to_json(self) -> dict[str, Any]:
        return {"label": self.label, "count": self.count}


@dataclass
class Progress:
    """Public progress: how much of a publicly known amount is done.

    `check` is called at every step; it raises where the job was cancelled or its lease was lost.
    """

    total: int
    done: int = 0
    check: Callable[[], None] = field(default=lambda: None)

    def advance(self, amount: int = 1) -> None:
        self.done += amount
        self.check()


class Runner(Protocol):
    """The algorithm of one mechanism."""

    def total(self, parameters: Any, terms: Terms) -> int:
        """How many public steps a run takes."""

    def run(
        self,
        parameters: Any,
        terms: Terms,
        records: Records,
        model: Any,
        meter: Meter,
        progress: Progress,
    ) -> Iterator[Text | Count]:
        """Run it; every random draw that touches private data goes through `meter`.

        `model`: a LocalModel; None for a mechanism that uses none.
        """
