"""A worker whose results folder takes nothing takes no more jobs, and says so, until the folder
does.

The attempt runs in a child, the watch in the worker's main process: one byte of memory that both
share counts the attempts in a row that could not open their output.
"""

import mmap
import os
import socket
import threading
import time
from typing import Any
from uuid import uuid4

import structlog
from celery import signals

from accountant import settings
from accountant.core.errors import Unwritable
from accountant.database import UNAVAILABLE, Engine, unpooled
from accountant.results import draft_name
from accountant.transactions import stopped_workers
from workers.jobs.broker import classes_of
from workers.jobs.staging import Drafts

log = structlog.get_logger()

#: Attempts in a row that can't open their output, after which no job is taken.
MOST = 3
PAUSE_SECONDS = 5.0
#: The least room that an output needs.
LEAST_BYTES = 4 * 2**20

# anonymous and shared: children that are forked later see what is written
_count = mmap.mmap(-1, 1)


def is_stopped() -> bool:
    """Return whether this worker takes no jobs."""
    return _count[0] >= MOST


def failed(engine: Engine, worker: str, why: str) -> None:
    """Count an attempt that could not open its output; the last of MOST stops the worker."""
    _count[0] = min(_count[0] + 1, MOST)
    if is_stopped():
        log.error("results can't be written: no job is taken", why=why)
        stopped_workers.say(engine, worker, why)


def worked() -> None:
    """Begin to count anew: an output was written."""
    _count[0] = 0


def name(process: int) -> str:
    """Return the name of the worker whose main process has this id."""
    return f"{socket.gethostname()}/{process}"


# Not before the children were made: one that is forked while a thread holds a lock waits for ever.
@signals.worker_ready.connect
def start(sender: Any, **_: Any) -> None:
    """Watch the results folder in the main process of a worker that takes jobs."""
    configured = settings.load()
    if configured.database_url is not None and classes_of(sender.app.amqp.queues.consume_from):
        threading.Thread(target=watch, args=(configured,), name="results", daemon=True).start()


def watch(configured: settings.Settings) -> None:
    """Try a stopped worker's results folder until the process ends."""
    assert configured.database_url is not None
    engine = unpooled(configured.database_url)
    while True:
        time.sleep(PAUSE_SECONDS)
        if is_stopped():
            try:
                look(engine, Drafts.of(configured))
            except UNAVAILABLE as error:
                log.warning("nobody is told of a full disk", error=type(error).__name__)


def look(engine: Engine, drafts: Drafts) -> None:
    """Take jobs again if a draft can be written; else say that none is taken."""
    draft, worker = draft_name(uuid4(), uuid4(), "probe"), name(os.getpid())
    try:
        with drafts.create(draft, LEAST_BYTES):
            pass
        drafts.results.remove(draft)
    except (Unwritable, OSError) as error:
        stopped_workers.say(engine, worker, str(error))
        return
    stopped_workers.forget(engine, worker)
    worked()
    log.info("results can be written again: jobs are taken")
