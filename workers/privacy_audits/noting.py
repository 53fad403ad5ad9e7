"""A meter that hands each of its calls on, for audits and tests of what mechanisms release."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.core.privacy.events import Event
from accountant.core.privacy.secrets import SecretRelease
from workers.noise.meter import Meter, Values
from workers.noise.samplers import Grid

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Call:
    """A call of the meter. `per`: what a move of 1 in `values` is, in parts of what is declared."""

    kind: str
    event: Event | None
    values: Ints
    per: Fraction
    answer: Any
    costs: NDArray[np.float64] | None = None
    moves: tuple[Fraction, ...] = ()

    @property
    def form(self) -> tuple[Any, ...]:
        """The part of a call that must be the same for all records."""
        return self.kind, self.event, self.values.shape, self.per, self.moves


class NotingMeter(Meter, ABC):
    """A meter that draws, and then lets `note` see each call and decide on its answer."""

    @abstractmethod
    def note(self, part: Hashable | None, call: Call) -> Any:
        """Return what the mechanism gets for a call, mostly `call.answer`."""

    def sample_token(
        self, scores: Ints, scale: Fraction, event: Event, part: Hashable | None = None
    ) -> int:
        """Draw as `Meter.sample_token` does, and note the call."""
        token = super().sample_token(scores, scale, event, part)
        return int(self.note(part, Call("token", event, scores.copy(), Fraction(scale), token)))

    def ex_post_token(
        self,
        scores: Ints,
        scale: Fraction,
        costs: NDArray[np.float64],
        part: Hashable | None = None,
    ) -> int:
        """Draw as `Meter.ex_post_token` does, and note the call."""
        token = super().ex_post_token(scores, scale, costs, part)
        call = Call("ex-post token", None, scores.copy(), Fraction(scale), token, costs.copy())
        return int(self.note(part, call))

    def gaussian(
        self,
        values: Values,
        sensitivity: Fraction | float,
        event: Event,
        part: Hashable | None = None,
    ) -> Grid:
        """Add noise as `Meter.gaussian` does, and note the call."""
        return self._add("gaussian", super().gaussian, values, sensitivity, event, part)

    def laplace(
        self,
        values: Values,
        sensitivity: Fraction | float,
        event: Event,
        part: Hashable | None = None,
    ) -> Grid:
        """Add noise as `Meter.laplace` does, and note the call."""
        return self._add("laplace", super().laplace, values, sensitivity, event, part)

    def _add(
        self,
        kind: str,
        add: Callable[..., Grid],
        values: Values,
        sensitivity: Fraction | float,
        event: Event,
        part: Hashable | None,
    ) -> Grid:
        clean = values() if callable(values) else values
        noisy = add(clean, sensitivity, event, part)
        answer: Grid = self.note(
            part, Call(kind, event, clean.copy(), 1 / Fraction(sensitivity), noisy)
        )
        return answer

    def secret(
        self, counts: Grid, centres: Grid, moves: Sequence[Fraction], release: SecretRelease
    ) -> tuple[Grid, Grid]:
        """Add noise as `Meter.secret` does, and note the call."""
        noisy = super().secret(counts, centres, moves, release)
        values = np.concatenate([counts[:, None], centres], axis=1)
        call = Call("secret", None, values, Fraction(1), noisy, moves=tuple(moves))
        answer: tuple[Grid, Grid] = self.note(None, call)
        return answer
