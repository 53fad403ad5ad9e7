"""`exchequer verify` of several exports at a time: each in a process, as many as there are processors."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Outcome = dict[str, Any]


def outcomes(
    files: Sequence[str], check: Callable[[str], Outcome], processes: int | None = None
) -> list[Outcome]:
    """What `check`, of a module, finds of each export, in the order of the files."""
    from accountant.core import mechanisms  # noqa: F401
    from accountant.core.ledger.export_blocks import processors

    longest = sorted(range(len(files)), key=lambda place: -_size(files[place]))
    workers = min(len(files), processes or processors())
    # Forked, after the imports that all of them need: the command line has no other thread.
    with ProcessPoolExecutor(workers, get_context("fork")) as pool:
        found = pool.map(check, [files[place] for place in longest])
        by_place = dict(zip(longest, found, strict=True))
    return [by_place[place] for place in range(len(files))]


def _size(file: str) -> int:
    try:
        return Path(file).stat().st_size
    except OSError:
        return 0
