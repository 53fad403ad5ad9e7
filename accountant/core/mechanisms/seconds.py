"""How long a job takes, from public sizes and from what rehearsals took: nothing else is known.

Seconds are a + b * reading + c * writing. Reading is the records that are read, writing the rows of
the model's passes, one for each record and token. Both follow from parameters and public figures.
For `dp-kps` a is 0, since its rehearsals take most of their time for the report: reading is prompts
and the texts that a report compares, and a pass counts as PASS rows more.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import nnls

from accountant.core.mechanisms.batches import Batched
from accountant.core.mechanisms.dp_kps import DpKps
from accountant.core.privacy.price import Terms

#: Runs from which on seconds are told.
LEAST_RUNS = 3

#: Rows of a language model's pass whose time its weights take, and rows of a full pass.
PASS = 64
#: Texts of a side that a rehearsal's report compares at most, and texts that it writes beside: more
#: of these cost time and tell little.
MOST_COMPARED, MOST_ZERO_SHOT = 1_000, 200

#: (1 if there is a part that no size moves, texts read, rows of passes)
Work = tuple[float, float, float]


def work(parameters: Any, terms: Terms, texts: int | None, held_out: int = 0) -> Work | None:
    """Return the work of a job on so many texts; None where public figures don't tell.

    A record that several rounds read is read once, and one more row of each pass has no record.
    `held_out`: texts that the report of a rehearsal compares.
    """
    if isinstance(parameters, DpKps) and parameters.output == "texts" and texts:
        return _of_phrases(parameters, max(1, len(terms.labels)), texts, held_out)
    if not isinstance(parameters, Batched) or not texts:
        return None
    batches = parameters.batches_run(terms)
    part = batches / sum(parameters.batches_by_label(terms).values())
    labels = max(1, len(terms.labels))
    records = texts * max(1, len(parameters.written(terms))) / labels
    tokens = getattr(parameters, "tokens_per_batch", 0)  # of a round; else over its texts
    tokens = tokens or parameters.texts_per_batch * parameters.max_tokens  # type: ignore[attr-defined]
    reading = records * min(1.0, part * parameters.rounds)
    return 1.0, reading, parameters.rounds * (records * part + batches) * tokens


def _of_phrases(parameters: DpKps, labels: int, texts: int, held_out: int) -> Work:
    """Return the work of sequences that become texts, each label's apart, and of a report."""
    sequences = labels * parameters.sequences_per_label
    reading, rows = sequences, labels * _rows(parameters.sequences_per_label)
    if held_out:
        beside = min(sequences, MOST_ZERO_SHOT)
        reading += min(sequences, MOST_COMPARED) + beside + min(texts, MOST_COMPARED) + held_out
        rows += _rows(beside)
    return 0.0, reading, rows * parameters.max_tokens


def _rows(texts: int) -> int:
    return texts + PASS * -(-texts // PASS)


def predicted(runs: Sequence[tuple[Work, float]], wanted: Work) -> float | None:
    """Return the seconds of a job, from the work and the seconds of runs; None of too few.

    Least squares of the relative errors, with no part below zero.
    """
    if len(runs) < LEAST_RUNS or any(seconds <= 0 for _, seconds in runs):
        return None
    matrix = np.array([done for done, _ in runs]) / np.array([[s] for _, s in runs])
    scale = matrix.max(axis=0)
    scale[scale == 0] = 1.0
    parts, _ = nnls(matrix / scale, np.ones(len(runs)))
    return float(parts / scale @ wanted)
