"""Loaded models that stay for the next job: as many as memory has room for beside the one that comes.

A judge and a writer stay both where there is room for both. Where there isn't, what was used longest ago goes
*before* the next one is loaded: two large models, one after the other, never lie in memory together.
"""

import gc
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

#: Models that stay at most.
MOST = 2

_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


class Shelf(Generic[T]):
    """Models by key, the latest used last."""

    def __init__(self) -> None:
        self._held: dict[Hashable, T] = {}

    def get(self, key: Hashable, needed: int, room: Callable[[], int], load: Callable[[], T]) -> T:
        """The model of this key, loaded by `load` if it is not held.

        Others go first until `room` has the `needed` bytes. What a running job still uses is not freed.
        """
        found = self._held.pop(key, None)
        if found is None:
            while self._held and (len(self._held) >= MOST or room() < needed):
                self._held.pop(next(iter(self._held)))
                _free()
            found = load()
        self._held[key] = found
        return found


def _free() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def free_memory(device: str) -> int:
    """Bytes that can still be used: of a GPU's memory, or of the host's within its control group."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0])
    free = [_available()] if _MEMORY.exists() else []
    try:
        most, used = ((_GROUP / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        free += [int(most) - int(used)] if most != "max" else []
    except (OSError, ValueError):
        pass  # no control group, or an older kind: the host's memory is all there is to know
    return min(free, default=2**62)


def _available() -> int:
    rows = (line.split() for line in _MEMORY.read_text().splitlines())
    return next((int(row[1]) * 1024 for row in rows if row[0] == "MemAvailable:"), 2**62)
