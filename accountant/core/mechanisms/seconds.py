"""How long a job takes, from public sizes and from what rehearsals took: nothing else is known.

Seconds are a + b * reading + c * writing. Reading is the records that are read, writing the rows of
the model's passes, one for each record and token. Both follow from parameters and public figures.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from accountant.core.mechanisms.batches import Batched
from accountant.core.privacy.price import Terms

#: Runs from which on seconds are told.
LEAST_RUNS = 3

#: (records read, rows of passes)
Work = tuple[float, float]


def work(parameters: Any, terms: Terms, texts: int | None) -> Work | None:
    """Return the work of a job on so many texts; None where public figures don't tell.

    A record that several rounds read is read once, and one more row of each pass has no record.
    """
    if not isinstance(parameters, Batched) or not texts:
        return None
    batches = parameters.batches_run(terms)
    part = batches / sum(parameters.batches_by_label(terms).values())
    labels = max(1, len(terms.labels))
    records = texts * max(1, len(parameters.written(terms))) / labels
    tokens = getattr(parameters, "tokens_per_batch", 0)  # of a round; else over its texts
    tokens = tokens or parameters.texts_per_batch * parameters.max_tokens  # type: ignore[attr-defined]
    reading = records * min(1.0, part * parameters.rounds)
    return reading, parameters.rounds * (records * part + batches) * tokens


def predicted(runs: Sequence[tuple[Work, float]], wanted: Work) -> float | None:
    """Return the seconds of a job, from the work and the seconds of runs; None of too few.

    Least squares of the relative errors, with no part below zero.
    """
    if len(runs) < LEAST_RUNS or any(seconds <= 0 for _, seconds in runs):
        return None
    matrix = np.array([(1.0, *done) for done, _ in runs]) / np.array([[s] for _, s in runs])
    scale = matrix.max(axis=0)
    scale[scale == 0] = 1.0
    parts, _ = nnls(matrix / scale, np.ones(len(runs)))
    return float(parts / scale @ (1.0, *wanted))
