"""A planned stop of a worker: its attempt is handed back at the next look and goes on elsewhere.

SIGTERM reaches the worker's main process, the attempt runs in a child: one byte of memory that both
share tells it. The main process then waits for the child as ever, which is soon done.
"""

import mmap
from typing import Any

from celery import signals

_byte = mmap.mmap(-1, 1)  # anonymous and shared: children that are forked later see what is written


def begin() -> None:
    """Ask this worker's attempts to stop."""
    _byte[0] = 1


def wanted() -> bool:
    """Return True once the worker is to stop."""
    return _byte[0] == 1


@signals.worker_shutting_down.connect
def on_shutdown(**_: Any) -> None:
    """In the main process, whatever the kind of shutdown."""
    begin()
