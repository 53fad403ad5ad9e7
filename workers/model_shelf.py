"""Loaded models that stay for the next job: as many as memory has room for beside the one that
comes.

A judge and a writer stay both where there is room for both. Where there isn't, what was used
longest ago goes *before* the next one is loaded: two large models, one after the other, never lie
in memory together.
"""

import gc
from collections.abc import Callable, Hashable
from contextlib import suppress
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
        """Return the model of this key, loaded by `load` if it is not held.

        Others go first until `room` has the `needed` bytes. What a running job still uses is not
        freed.
        """
        shelved = self._held.pop(key, None)
        if shelved is None:
            while self._held and (len(self._held) >= MOST or room() < needed):
                self._held.pop(next(iter(self._held)))
                _free()
            shelved = load()
        self._held[key] = shelved
        return shelved


def _free() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def free_memory(device: str) -> int:
    """Return bytes free on a GPU, or on the host within its control group."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    free = [_host("MemAvailable:")] if _MEMORY.exists() else []
    # no control group, or an older kind: the host's memory alone counts
    with suppress(OSError, ValueError):
        free.append(_group_limit() - int((_GROUP / "memory.current").read_text()))
    return min(free, default=2**62)


def whole_memory(device: str) -> int:
    """Return bytes that a device has: a GPU's memory, or the host's within its control group."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[1])
    whole = [_host("MemTotal:")] if _MEMORY.exists() else []
    with suppress(OSError, ValueError):
        whole.append(_group_limit())
    return min(whole, default=2**62)


def _group_limit() -> int:
    limit = (_GROUP / "memory.max").read_text().strip()
    return 2**62 if limit == "max" else int(limit)


def _host(name: str) -> int:
    rows = (line.split() for line in _MEMORY.read_text().splitlines())
    return next((int(row[1]) * 1024 for row in rows if row[0] == name), 2**62)
