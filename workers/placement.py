"""Which of a worker's GPUs a model is put on: one that holds it, else all, layer by layer."""

from pathlib import Path
from typing import Any

from accountant.core.device_memory import put_on
from workers import networks
from workers.model_shelf import whole_memory
from workers.weights import ModelError


def devices(needed: int, kind: str) -> list[str]:
    """Return the one device that holds `needed` bytes, or all GPUs that the worker sees."""
    import torch

    count = torch.cuda.device_count() if kind == "cuda" else 1
    if count < 2 or put_on(needed, whole_memory(kind), count) == 1:
        return [kind]
    return [f"cuda:{number}" for number in range(count)]


def layers(folder: Path, dtype: Any, rooms: list[int]) -> dict[str, int]:
    """Return the GPU of each part of a model: in order, evenly by bytes, no layer cut.

    `rooms`: free bytes of each GPU. Raises ModelError for a layer that no GPU has room for.
    """
    from accelerate import infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    from workers.engine import structure_of

    network = networks.empty(folder, dtype)
    whole = [type(structure_of(network).blocks[0]).__name__]
    most = get_balanced_memory(network, dict(enumerate(rooms)), whole)
    found = infer_auto_device_map(network, most, whole)
    if not {*found.values()} <= {*range(len(rooms))}:  # else it would run from a disk
        raise ModelError("it does not fit into the memory of the worker's GPUs")
    return dict(found)
