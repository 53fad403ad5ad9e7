"""Sets of 16-byte keys that lie sorted in a file, for what millions of jobs leave behind."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

WIDTH = 16


class SortedKeys:
    """A set of keys in sorted runs, looked up where they lie: reading it costs nothing."""

    def __init__(self, data: bytes = b"", runs: Sequence[int] = ()) -> None:
        self.data, self.runs = data, tuple(runs)
        ends = [sum(self.runs[:place]) for place in range(len(self.runs) + 1)]
        self._runs = [_Run(data, start, end) for start, end in pairwise(ends)]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and any(key in run for run in self._runs)

    def with_more(self, keys: Iterable[bytes]) -> "SortedKeys":
        """The set with keys that it lacks, as one more run."""
        more = sorted(keys)
        return SortedKeys(self.data + b"".join(more), (*self.runs, len(more))) if more else self


class _Run(Sequence[bytes]):
    def __init__(self, data: bytes, start: int, end: int) -> None:
        self._data, self._start, self._size = data, start, end - start

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, at: Any) -> Any:
        return self._data[WIDTH * (self._start + at) : WIDTH * (self._start + at + 1)]

    def __contains__(self, key: Any) -> bool:
        at = bisect_left(self, key)
        return at < self._size and bool(self[at] == key)
