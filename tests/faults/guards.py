"""Writes that a constraint of the database had to stop: a second line of defence that should never
fire.
"""

from pathlib import Path

from sqlalchemy import Engine, event
from sqlalchemy.exc import IntegrityError

from tests.faults.orders import append


def watch(path: Path) -> None:
    """Record every such error of this process."""

    @event.listens_for(Engine, "handle_error")
    def _(context) -> None:
        if isinstance(context.sqlalchemy_exception, IntegrityError):
            append(path, {"error": str(context.original_exception)[:300]})
