"""Random Fourier features of phrase sequences (Rahimi and Recht 2007; paper 002, Lemma B.1), in
integers.

    f_i(x) = sqrt(2) cos(sqrt(2) w_i . x + b_i)        w_i standard normal, b_i uniform on a turn

so that the mean over i of f_i(x) f_i(y) is about exp(-|x - y|^2). A sequence x is the vectors of
its phrases side by side, each of squared norm u / bandwidth^2. The angle is therefore a sum with a
part for each phrase and place: these parts are tabled once, in 2^16ths of a turn, and integers wrap
where turns do. The cosine is a table of integers too. So what a record adds to a sum depends on its
phrases alone, to the last bit, whatever stands beside it.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from workers.embedding.neighbours import Floats

TURN = 2**16
#: Rows in one product or one look into a table.
ROWS = 2048

Phases = NDArray[np.uint16]
Integers = NDArray[np.int64]
Doubles = NDArray[np.float64]

_ANGLES = 2 * math.pi * np.arange(TURN) / TURN
_COSINE, _SINE = np.cos(_ANGLES).astype(np.float32), np.sin(_ANGLES).astype(np.float32)


def _random(seed: int, stream: int, count: int) -> NDArray[np.uint64]:
    """Return public random words, equal for a seed and stream on every machine."""
    return np.random.Philox(key=[seed, stream]).random_raw(count)


@dataclass(frozen=True)
class Features:
    """The features of sequences of up to `blocks` phrases.

    `parts`: (blocks, terms, features), the angle that a term adds at a place. `offsets`:
    (features,), the b_i. `squared_norm`: that of each block.
    """

    parts: Phases
    offsets: Phases
    squared_norm: float

    @classmethod
    def of(
        cls,
        points: Floats,
        blocks: int,
        features: int,
        bandwidth: float,
        norm: float,
        seed: int,
        number: int,
    ) -> "Features":
        """Return features. `points`: (terms, d), unit vectors; `norm`: the squared norm u."""
        squared_norm = norm / bandwidth**2
        factor = math.sqrt(2 * squared_norm) * TURN / (2 * math.pi)
        parts = np.empty((blocks, len(points), features), np.uint16)
        for block in range(blocks):
            words = _random(seed, 2**32 * (number + 1) + block, points.shape[1] * features)
            directions = ndtri(((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
            directions = directions.reshape(points.shape[1], features) * factor
            for first in range(0, len(points), ROWS):
                angles = np.rint(points[first : first + ROWS].astype(np.float64) @ directions)
                parts[block, first : first + ROWS] = angles.astype(np.int64) & (TURN - 1)
        offsets = (_random(seed, number, features) >> np.uint64(48)).astype(np.uint16)
        return cls(parts, offsets, squared_norm)

    @property
    def blocks(self) -> int:
        """The most phrases of a sequence."""
        return len(self.parts)

    def phases(self, sequences: Integers) -> Phases:
        """Return angles of sequences of terms by their places: (n, length) to (n, features)."""
        total = np.broadcast_to(self.offsets, (len(sequences), len(self.offsets))).copy()
        for block, terms in enumerate(sequences.T):
            total += self.parts[block, terms]
        return total

    def integers(self, sequences: Integers, steps: int) -> NDArray[np.int32]:
        """Return features of sequences, (n, features), `steps` for sqrt(2): |each| <= steps."""
        table = np.rint(steps * np.cos(_ANGLES)).astype(np.int32)
        return table[self.phases(sequences)]

    def densities(self, weights: Doubles, prefixes: Integers) -> Doubles:
        """Return densities of every prefix with every term after it: (n, length) to (n, terms).

        `weights`: (features,), a sum over records of their features, 1 for sqrt(2). A query that is
        shorter than the blocks is padded with zeros, which divides its density by exp(squared_norm)
        a block (paper 002, Theorem B.2). Sums over records, not means. Not clipped.
        """
        place = prefixes.shape[1]
        padded = math.exp(min(self.squared_norm * (self.blocks - place - 1), 700.0))
        angles = self.phases(prefixes)
        scale = np.asarray(weights * (2 / len(weights)), np.float32)
        # cos(a + b) = cos a cos b - sin a sin b: one product for all prefixes and terms.
        left = np.concatenate([scale * _COSINE[angles], -scale * _SINE[angles]], axis=1)
        log_densities = np.empty((len(prefixes), self.parts.shape[1]))
        for first in range(0, self.parts.shape[1], ROWS):
            parts = self.parts[place, first : first + ROWS]
            right = np.concatenate([_COSINE[parts], _SINE[parts]], axis=1)
            log_densities[:, first : first + ROWS] = left @ right.T
        return log_densities * padded
