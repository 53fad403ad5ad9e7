"""The draws of one part of a job, in the database: what earlier attempts kept, and what this one
adds.

A row is one write: JSON [new names, [[name's number, outcome], ...]]. A part of the data is named
once, in the row of its first draw, and has the number of names before it.
"""

import json
from collections.abc import Callable, Iterator, Sequence

from accountant.database import Engine
from accountant.transactions import kept_draws
from accountant.transactions.rows import Claim
from workers.noise.kept_draws import Outcome


class Journal:
    """The store of a part's draws (noise.kept_draws.Store). `write` runs a database step."""

    def __init__(
        self, engine: Engine, claim: Claim, write: Callable[[Callable[[], None]], None]
    ) -> None:
        self._engine, self._claim, self._write = engine, claim, write
        self._rows = kept_draws.kept(engine, claim)
        self._number = len(self._rows)
        self._names: dict[str, int] = {}

    def kept(self) -> Iterator[tuple[str, Outcome]]:
        """As `Store.kept`; to be read through once, before anything is kept."""
        names: list[str] = []
        for row in self._rows:
            new, draws = json.loads(row)
            names += new
            for number, outcome in draws:
                yield names[number], outcome
        self._names = {name: number for number, name in enumerate(names)}
        self._rows = []

    def keep(self, draws: Sequence[tuple[str, Outcome]]) -> None:
        """As `Store.keep`."""
        new = [name for name in dict.fromkeys(name for name, _ in draws) if name not in self._names]
        for name in new:
            self._names[name] = len(self._names)
        row = [new, [[self._names[name], outcome] for name, outcome in draws]]
        content = json.dumps(row, separators=(",", ":")).encode()
        self._write(lambda: kept_draws.keep(self._engine, self._claim, self._number, content))
        self._number += 1
