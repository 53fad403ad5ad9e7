"""A look at something that may hang: one thread at a time, and nobody waits beyond a deadline."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Run(Generic[T]):
    """One look, in a thread of its own."""

    def __init__(self, look: Callable[[], T]) -> None:
        self._done = threading.Event()
        self._found: T | None = None
        threading.Thread(target=self._look, args=(look,), name="look", daemon=True).start()

    def _look(self, look: Callable[[], T]) -> None:
        try:
            self._found = look()
        except Exception as error:  # its text may quote a row
            logger.warning("a look failed: %s", type(error).__name__)
        finally:
            self._done.set()

    @property
    def is_done(self) -> bool:
        """Whether the look has ended."""
        return self._done.is_set()

    def result(self, deadline: float) -> T | None:
        """Return what was found, or None if it failed or takes beyond `deadline` (monotonic)."""
        self._done.wait(max(0.0, deadline - time.monotonic()))
        return self._found


class Bounded(Generic[T]):
    """A look that many may ask for: one that hangs is waited for, and none is begun beside it."""

    def __init__(self, look: Callable[[], T]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._run: Run[T] | None = None

    def begin(self) -> Run[T]:
        """Return the look that is under way, or a new one."""
        with self._lock:
            if self._run is None or self._run.is_done:
                self._run = Run(self._look)
            return self._run
