"""Selection of samples by released counts: a function of what is public, so it costs nothing."""

import numpy as np
from numpy.typing import NDArray


def survivors(
    counts: NDArray[np.float64] | NDArray[np.int64],
    samples: int,
    select: str,
    random: np.random.Generator,
) -> list[int]:
    """Return the places of `samples` survivors among these candidates: fewer if there are fewer, by
    "rank".

    "rank": those with the largest counts, the largest first; equals in random order. "draw": drawn
    with replacement, in proportion to counts, negative ones as 0; any alike where none is above 0.
    """
    weights = np.maximum(np.asarray(counts, np.float64), 0)
    if not len(weights):
        return []
    if select == "draw":
        total = weights.sum()
        shares = weights / total if total > 0 else None
        found: list[int] = random.choice(len(weights), samples, p=shares).tolist()
        return found
    order = np.lexsort((random.random(len(weights)), -np.asarray(counts, np.float64)))
    ranked: list[int] = order[:samples].tolist()
    return ranked
