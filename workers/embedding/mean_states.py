"""Mean hidden states of groups of texts, as clipped sums of integers, and what they are clipped
around.

    h        the state of a prompt's last token, as the model hands it to its head
    V (h-c)  its coordinates: c a public mean state or 0, V public principal directions or none
    sum      of clip_C(V (h - c)) on a grid of 2^16 steps to C, exact in int64
    mean     c + V' (sum with noise) C / 2^16 n, n public

c and V are made of a public corpus. Neither can move a record's part of the sum beyond C, whatever
they are.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from accountant.core.errors import DataError
from workers.data.corpora import Corpus
from workers.data.public_text import PublicText
from workers.engine import Batch, Decoder, Shape, sizes
from workers.models import LocalModel, Prompt
from workers.noise.clipping import GRID, to_grid

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Texts in one forward pass, at most: public.
ROWS = 64


@dataclass(frozen=True)
class Reader:
    """Reads the states of texts inside one prompt, each cut after a public number of tokens."""

    model: LocalModel
    template: str
    record_tokens: int

    @property
    def prompt(self) -> Prompt:
        """The prompt around every text. Raises ModelError where the model can't fill its turns."""
        return Prompt(self.model.tokenizer, self.template, None)

    def states(self, texts: Iterable[str]) -> Iterator[Floats]:
        """Yield the head's input for each prompt's last token: (hidden,) float64, in order.

        Every pass has the same public shape; memory does not grow with the texts. A prompt without
        any token gives NaN.
        """
        prompt = self.prompt
        # Where a prompt ends with its text, an empty one is read in the token before it.
        shared = max(0, len(prompt.before) - 1)
        shape = Shape(shared, prompt.fixed_tokens - shared + self.record_tokens, 0)
        chosen = sizes(self.model.network, shape, 1, ROWS, self.model.memory_bytes)
        stream = iter(texts)
        while group := [
            prompt.tokens(text, self.record_tokens) for text in islice(stream, chosen.rows)
        ]:
            batch = Batch([ids[shared:] for ids in group], prompt.before[:shared])
            decoder = Decoder(self.model.structure, [batch], shape, chosen, hidden=True)
            for _, values in decoder.read():
                yield from values.double().cpu().numpy()


@dataclass(frozen=True)
class View:
    """Where states are clipped: around `centre` (hidden,), along rows of `basis` (q, hidden)."""

    centre: Floats
    basis: Floats | None = None

    @property
    def dimensions(self) -> int:
        """Coordinates of a state."""
        return len(self.centre) if self.basis is None else len(self.basis)

    def coordinates(self, state: Floats) -> Floats:
        """Return the coordinates of states: (..., hidden) -> (..., q)."""
        moved = state - self.centre
        return moved if self.basis is None else moved @ self.basis.T

    def state(self, coordinates: Floats) -> Floats:
        """Return the state at coordinates: (..., q) -> (..., hidden)."""
        return self.centre + (coordinates if self.basis is None else coordinates @ self.basis)


def plain(hidden: int) -> View:
    """Return states as they are."""
    return View(np.zeros(hidden))


def public_view(states: Floats, centre: bool, components: int | None) -> View:
    """Return the view that public states, (texts, hidden), give.

    `components`: the number of principal directions, those of largest variance around the centre
    first (of largest second moment where there is no centre). There are no more than texts or
    dimensions.
    """
    middle = states.mean(axis=0) if centre else np.zeros(states.shape[1])
    if components is None:
        return View(middle)
    _, _, directions = np.linalg.svd(states - middle, full_matrices=False)
    return View(middle, directions[:components])


def clipped_sum(
    view: View, states: Iterable[Floats], clip: float, check: Callable[[], None] = lambda: None
) -> Integers:
    """Return the exact sum of clipped states in a view, in steps of C / 2^16: (q,) int64."""
    total = np.zeros(view.dimensions, np.int64)
    for state in states:
        check()
        total += to_grid(view.coordinates(state), clip)
    return total


def mean_state(view: View, total: NDArray[np.int64], clip: float, size: int) -> Floats:
    """Return the mean state of a (noisy) sum of public n: (..., q) -> (..., hidden)."""
    return view.state(total.astype(np.float64) * (clip / GRID / size))


def clipped(view: View, states: Floats, clip: float) -> Integers:
    """Return public states clipped like private ones, in steps of C / 2^16: (texts, q) int64."""
    return np.stack([to_grid(coordinate, clip) for coordinate in view.coordinates(states)])


def clipped_means(
    view: View, clipped: Integers, sets: Sequence[Sequence[int]], clip: float
) -> Floats:
    """Return mean states of sets of public texts, made as private ones are, without noise: (sets,
    hidden).

    `clipped`: (texts, q). `sets`: the texts of each set, by their place.
    """
    return np.stack(
        [
            mean_state(view, clipped[members].sum(axis=0), clip, len(members))
            for members in map(list, sets)
        ]
    )


def corpus_states(
    reader: Reader, corpus: Corpus, most: int, check: Callable[[], None] = lambda: None
) -> tuple[Floats, list[tuple[PublicText, str | None]]]:
    """Return states, (texts, hidden), of the first `most` texts of a public corpus, and these texts
    with labels.

    Raises DataError for a corpus of fewer than two texts with a state.
    """
    texts = list(islice(corpus.texts(), most))
    states = []
    for state in reader.states(text for text, _ in texts):
        check()
        states.append(state)
    usable = [place for place, state in enumerate(states) if np.isfinite(state).all()]
    if len(usable) < 2:
        raise DataError("the public corpus has fewer than two texts")
    return np.stack([states[place] for place in usable]), [texts[place] for place in usable]
