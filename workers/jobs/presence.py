"""A worker says while it lives which classes of jobs it takes; one with another key ends."""

import os
import threading
import time
from typing import Any

import structlog
from celery import signals

from accountant import settings
from accountant.database import UNAVAILABLE, Engine, unpooled
from accountant.transactions import hardware, key_checks
from workers.jobs.broker import classes_of
from workers.jobs.results_watch import name

log = structlog.get_logger()


@signals.celeryd_after_setup.connect
def require_key(instance: Any, **_: Any) -> None:
    """End a worker whose key is not the cluster's before it takes a message.

    Without a database it takes none either, and each claim compares the job's key.
    """
    configured = settings.load()
    if configured.database_url is None or not classes_of(instance.app.amqp.queues.consume_from):
        return
    try:
        problem = key_checks.problem(unpooled(configured.database_url), "units", configured)
    except UNAVAILABLE:
        return
    if problem is not None:
        log.error("the worker ends", problem=problem)
        raise SystemExit(os.EX_CONFIG)


# Not before the children were made: one that is forked while a thread holds a lock waits for ever.
@signals.worker_ready.connect
def start(sender: Any, **_: Any) -> None:
    """Begin to say so, in the main process of a worker that takes jobs."""
    url, classes = settings.load().database_url, classes_of(sender.app.amqp.queues.consume_from)
    if url is not None and classes:
        said = (unpooled(url), name(os.getpid()))
        threading.Thread(target=say, args=(*said, classes), name="presence", daemon=True).start()
        _said.append(said)


#: The worker of this process, if it takes jobs: where it says so, and by which name.
_said: list[tuple[Engine, str]] = []


def say(engine: Engine, worker: str, classes: list[str]) -> None:
    """Say so until the process ends."""
    while True:
        try:
            hardware.say(engine, worker, classes)
        except UNAVAILABLE as error:
            log.warning("nobody is told that this worker lives", error=type(error).__name__)
        time.sleep(hardware.EVERY_SECONDS)


@signals.worker_shutdown.connect
def end(**_: Any) -> None:
    """Say that it ended; without a database that shows after a while."""
    for engine, worker in _said:
        try:
            hardware.forget(engine, worker)
        except UNAVAILABLE as error:
            log.warning("nobody is told that this worker ended", error=type(error).__name__)
