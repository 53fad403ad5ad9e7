"""Memory of a worker's devices: where a model is put, and what its contexts have beside it.

Admission chooses a job's class by it (transactions.hardware), and the engine sizes by it
(workers.placement, workers.engine.sizing): so both say the same.
"""

#: What contexts may take of the memory that a model leaves free.
SHARE = 0.8
#: Rows of the cache that hold a working set of activations while prompts are read, as a share of
#: the memory.
WORKING_SHARE = 8


def with_contexts(weights: float, each: float) -> float:
    """Return bytes that a GPU of `each` must have for a model: half of it is left for contexts."""
    return weights + each // 2


def put_on(needed: float, each: float, count: int) -> int:
    """Return how many of `count` GPUs hold a model: one if it has `needed` bytes, else all."""
    return 1 if needed <= each else count


def for_contexts(free: float, part: float = 1.0) -> float:
    """Return bytes for contexts where a device with `free` bytes has this part of the layers.

    It holds the keys and values of its own layers, and the whole working set.
    """
    return SHARE * free / (part + (1 - part) / WORKING_SHARE)
