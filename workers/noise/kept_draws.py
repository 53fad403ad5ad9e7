"""Draws that outlive their attempt: kept before anything depends on them, and never made twice.

    attempt 1:  draw draw  keep  pass  draw draw  keep  pass  ...  lost
    attempt 2:  take take              take take              draw draw  keep  ...

An attempt that goes on after another takes what was kept, part by part and in order, and draws only
what comes after (docs/accounting.md, section 13). Nothing new is drawn for a part before all of its
kept draws are taken, nor before the last new one is kept. What else a run leaves to chance between
its releases (private coins, seeds of public texts) is kept as a *step*, before anything is computed
from it.
"""

import hashlib
import json
import secrets
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

#: The outcome of one draw as JSON: a token; a token with its ex-post cost; noisy values.
Outcome = int | list[Any] | dict[str, Any]


class Store(Protocol):
    """Where draws are kept, for one part of a job's work at a time."""

    def kept(self) -> Iterable[tuple[str, Outcome]]:
        """(part of the data, outcome) of every draw that earlier attempts kept, in order."""

    def keep(self, draws: Sequence[tuple[str, Outcome]]) -> None:
        """Keep all of these behind the others before this returns, or none. Raises LeaseLost."""


class KeptDraws:
    """The draws of one attempt and of those before it. Without a store nothing is kept or taken."""

    def __init__(self, store: Store | None = None) -> None:
        self._store = store
        self._earlier: dict[str, deque[Outcome]] = {}
        for name, outcome in () if store is None else store.kept():
            self._earlier.setdefault(name, deque()).append(outcome)
        self._new: list[tuple[str, Outcome]] = []
        self._places: dict[str, int] = {}  # of a part's latest new draw
        self._names: dict[Hashable, str] = {}

    def take(self, part: Hashable | None) -> Outcome | None:
        """Return the next outcome kept for this part, or None if it must be drawn."""
        waiting = self._earlier.get(self._name(part)) if self._earlier else None
        return waiting.popleft() if waiting else None

    def before_drawing(self, part: Hashable | None) -> None:
        """Keep the part's latest draw. Raises ValueError while kept outcomes wait."""
        if self._store is None:
            return
        name = self._name(part)
        if self._earlier.get(name):
            raise ValueError(f"draws of {name} were kept, and none of them is made again")
        if name in self._places:
            self.keep()

    def add(self, part: Hashable | None, outcome: Outcome) -> None:
        """A new draw of this part."""
        if self._store is not None:
            name = self._name(part)
            self._places[name] = len(self._new)
            self._new.append((name, outcome))

    def rename(self, part: Hashable | None, token: int) -> None:
        """Keep the part's latest draw, which is not kept yet, as this token; a cost stays."""
        if self._store is not None:
            name = self._name(part)
            _, drawn = self._new[self._places[name]]
            cost = drawn[1:] if isinstance(drawn, list) else None
            self._new[self._places[name]] = name, token if cost is None else [token, *cost]

    def keep(self) -> None:
        """Keep all new draws. Raises LeaseLost where another attempt may have begun."""
        if self._store is not None and self._new:
            self._store.keep(self._new)
            self._new, self._places = [], {}

    def step(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what `make` gives, a JSON value, or gave in an earlier attempt. It is kept before
        it is returned.

        For chance that is not the meter's. A step that is cut is made anew, so what `make` tosses
        itself must not decide how long it takes: coins are tossed in one go, and texts are written
        from a kept `seed`. Every run must ask for all of its steps, whatever it took of its
        releases.
        """
        part = "step", name
        stored_draw = self.take(part)
        if stored_draw is None:
            new_draw = make()
            self.before_drawing(part)
            self.add(part, {"made": new_draw})
            self.keep()
            return new_draw
        if not (isinstance(stored_draw, dict) and "made" in stored_draw):
            raise ValueError("another kind of step was kept here")
        return stored_draw["made"]

    def seed(self, name: str, stated: int | None) -> int:
        """Return the seed of a step's public chance, below 2^48: from a user's `stated` one and the
        name.

        Where none is stated, the operating system's, kept before it is used.
        """
        if stated is None:
            return int(self.step(f"seed of {name}", lambda: secrets.randbits(48)))
        return int.from_bytes(hashlib.sha256(f"{stated} {name}".encode()).digest()[:6], "big")

    @property
    def keeps(self) -> bool:
        """True if draws are kept."""
        return self._store is not None

    @property
    def left(self) -> bool:
        """True if an earlier attempt's draws have not all been taken."""
        return any(self._earlier.values())

    def _name(self, part: Hashable | None) -> str:
        name = self._names.get(part)
        if name is None:
            name = self._names[part] = json.dumps(part, ensure_ascii=False)
        return name
