"""Rows that a sweep can't take: each fails alone, waits a while, and the sweep goes on with the
others.

    for row in overdue:
        if not set_aside.waits("lease", row.job_id):
            with set_aside.apart("lease", row.job_id):
                ...

What is set aside lives in this process's memory: one that starts anew tries every row again.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from accountant.core.errors import LedgerBehind, LogUnusable
from accountant.database import UNAVAILABLE

logger = logging.getLogger(__name__)

#: Seconds that a row waits after its first failure; they double with each, up to the longest.
FIRST, LONGEST = 60.0, 3600.0

#: Rows that failed: how often, and until when (time.monotonic) they wait.
_aside: dict[tuple[str, str], tuple[int, float]] = {}


def waits(kind: str, row: object) -> bool:
    """Return True while a row that failed waits for its next turn."""
    return _aside.get((kind, str(row)), (0, 0.0))[1] > time.monotonic()


@contextmanager
def apart(kind: str, row: object) -> Iterator[None]:
    """Let what one row raises end that row's turn alone, and log its kind: its text may quote the
    row.

    What an outage raises is raised, as it concerns every row; a ledger that waits for its recovery
    is tried at every turn.
    """
    key = (kind, str(row))
    try:
        yield
    except (LogUnusable, *UNAVAILABLE):
        raise
    except LedgerBehind as error:
        logger.error("%s %s is left as it is: %s", kind, row, error)
    except Exception as error:
        failures = _aside.get(key, (0, 0.0))[0] + 1
        pause = min(FIRST * 2 ** (failures - 1), LONGEST)
        _aside[key] = (failures, time.monotonic() + pause)
        problem = type(error).__name__
        logger.error("%s %s is set aside for %d s: %s", kind, row, pause, problem)
    else:
        _aside.pop(key, None)
