"""Clipping onto a grid: what one record may add to a sum, in whole numbers."""

import numpy as np
from numpy.typing import NDArray

#: Steps of the grid to the clipping norm. A record's integers, squared and added up, stay below
#: 2^32.
GRID = 2**16


def to_grid(value: NDArray[np.float64], clip: float, axis: int | None = None) -> NDArray[np.int64]:
    """Return a value of any shape clipped to norm C = 2^16 steps, as a whole or along `axis`:
    int64, same shape.

    Values are cut towards zero, so the integers' norm is at most 2^16, exactly: the norm in
    floating point is off by less than 2^-36 of itself, which leaves the sum of squares below 2^32 +
    1, and it is an integer. What is not finite contributes zero.
    """
    if not np.isfinite(value).all():
        return np.zeros(value.shape, np.int64)
    with np.errstate(over="ignore"):
        norms = np.sqrt(np.sum(value**2, axis=axis, keepdims=True))
    return np.trunc(value * (GRID / np.maximum(norms, clip))).astype(np.int64)
