"""The log of a process: one JSON object a line on standard error, or text where a person reads it.

Lines of the standard library, of structlog and of every library come out alike, with what is bound
to the request or job at hand (`about`). Tracebacks name no values.
"""

import logging
import sys
from contextlib import AbstractContextManager
from typing import Any

import structlog

#: Libraries that tell more than anybody reads.
_QUIET = ("celery", "kombu", "alembic", "waitress", "werkzeug", "httpx2", "httpcore2")

_BEFORE: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure() -> None:
    """Write every line of this process from now on."""
    structlog.configure(
        processors=[*_BEFORE, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(for_people=sys.stderr.isatty()))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def formatter(*, for_people: bool) -> logging.Formatter:
    """Return what makes a line of a record."""
    written: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if for_people:
        plain = structlog.dev.plain_traceback
        written.append(structlog.dev.ConsoleRenderer(exception_formatter=plain))
    else:
        written += [
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(default=str),
        ]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_BEFORE, structlog.stdlib.ExtraAdder()], processors=written
    )


def about(**facts: str) -> AbstractContextManager[None]:
    """Add facts to each line that is written within."""
    return structlog.contextvars.bound_contextvars(**facts)
