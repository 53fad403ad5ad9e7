"""The sign of life of a process without a door: a file that EXCHEQUER_ALIVE_FILE names."""

import os
from pathlib import Path

import structlog

log = structlog.get_logger()

ALIVE_SECONDS = 2.0  # between two signs of a worker


def sign_of_life() -> None:
    """Touch the file, if one is named: call it in each turn of a loop."""
    file = os.environ.get("EXCHEQUER_ALIVE_FILE")
    try:
        if file is not None:
            Path(file).touch()
    except OSError as error:  # a full disk makes the file old, and the process looks ill: so it is
        log.error("no sign of life can be given", error=type(error).__name__)
