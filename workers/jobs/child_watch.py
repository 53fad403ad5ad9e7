"""Supervision by a worker's main process: children that die, and messages that never arrive.

A process that dies inside the mechanism has failed. Its death may depend on the data, so the job is
charged and not run again. After the loss of a whole machine nobody is left to report it: its lease
runs out.

An idle worker that receives nothing while messages wait has lost its broker without noticing (kombu
issues 2492 and 2629). It exits, and its supervisor starts it again.
"""

import hashlib
import hmac
import os
import secrets
import signal
import socket
import threading
import time
from typing import Any
from uuid import UUID

import structlog
from billiard import active_children  # type: ignore[import-untyped]
from billiard.exceptions import TimeLimitExceeded, WorkerLostError  # type: ignore[import-untyped]
from celery import signals
from celery.worker import state

from accountant import settings
from accountant.core.errors import LeaseLost, LedgerBehind, LogUnusable
from accountant.database import UNAVAILABLE, logging_to, unpooled
from accountant.ledger_log.signed import SignedPlaces
from accountant.results import Results
from accountant.transactions import leases, messages, settlement
from workers.jobs import staging
from workers.jobs.broker import QUEUES, classes_of, is_served

log = structlog.get_logger()

DIED = (
    "its process died, perhaps for want of memory, or was stopped at its time limit, before any "
    "data was read"
)
TRIES = 30
STOP_SECONDS = 10.0


def process_name(parent: int, task_id: str) -> str:
    """Return an attempt's process by name: machine, worker's main process, message."""
    return f"{socket.gethostname()}/{parent}/{task_id}"


#: Drawn as this module is imported, before the main process makes its children: they have the same.
_FAMILY = secrets.token_bytes(leases.SECRET_BYTES)


def lease_secret(job_id: str, attempt: int, part: int) -> bytes:
    """Return the secret of the lease on an attempt, known to this worker's processes and to no
    other worker.

    The main process makes it again to end an attempt whose child died.
    """
    return hmac.digest(_FAMILY, f"{job_id}/{attempt}/{part}".encode(), hashlib.sha256)


# --- a child that died --------------------------------------------------------------------------


@signals.task_failure.connect
def on_failure(sender: Any, task_id: str, exception: BaseException, args: Any, **_: Any) -> None:
    """Note in the main process that a child died in a task, unless all are shut down."""
    lost = isinstance(exception, WorkerLostError | TimeLimitExceeded)
    if (
        lost
        and sender.name in ("exchequer.generate", "exchequer.free")
        and not state.should_terminate
    ):
        worker = process_name(os.getpid(), task_id)
        threading.Thread(
            target=end_dead, args=(worker, *args), name="end-dead", daemon=True
        ).start()


def end_dead(worker: str, job_id: str, attempt: int, part: int = 0) -> None:
    """End the job of an attempt whose process died; without a database its lease runs out."""
    configured = settings.load()
    assert configured.database_url is not None  # the child had one
    engine = unpooled(configured.database_url)
    logging_to(engine, configured.ledger_log, SignedPlaces.of(configured))
    for _ in range(TRIES):
        try:
            secret = lease_secret(job_id, attempt, part)
            claim = leases.died(engine, UUID(job_id), attempt, part, worker, secret)
            if claim is not None:
                settlement.fail(engine, claim, "failed", DIED, f"worker@{socket.gethostname()}")
                log.error("process died, job failed", job=job_id, attempt=attempt, part=part)
                staging.tidy(engine, Results(configured.results), claim.job_id)
            return
        except LeaseLost:
            return
        except (*UNAVAILABLE, LogUnusable, LedgerBehind):
            time.sleep(1.0)


# --- work that never comes ----------------------------------------------------------------------


@signals.celeryd_after_setup.connect
def start_watchdog(instance: Any, **_: Any) -> None:
    """Start the watchdog in the main process, before the broker may hang it."""
    configured = settings.load()
    if configured.watchdog_seconds and configured.database_url is not None:
        queues = set(instance.app.amqp.queues.consume_from)
        tasks = {task for task in QUEUES if is_served(task, queues)}
        seconds = configured.watchdog_seconds
        watchdog = Watchdog(configured.database_url, tasks, seconds, classes_of(queues))
        threading.Thread(target=watchdog.run, name="watchdog", daemon=True).start()


# Not before the children were made: one that is forked while a thread holds a lock waits for ever.
@signals.worker_ready.connect
def start_publishing(sender: Any, **_: Any) -> None:
    """Start a thread that publishes what a worker committed that died before it could publish."""
    configured = settings.load()
    queues = sender.app.amqp.queues.consume_from
    if configured.database_url is not None and is_served("generate", queues):
        threading.Thread(
            target=publish_waiting, args=(configured,), name="publisher", daemon=True
        ).start()


def publish_waiting(configured: settings.Settings) -> None:
    """Look for committed drafts now and again until the process ends."""
    assert configured.database_url is not None
    engine = unpooled(configured.database_url)
    logging_to(engine, configured.ledger_log, SignedPlaces.of(configured))
    while True:
        try:
            drafts = staging.Drafts.of(configured)
            staging.tidy(engine, drafts.results, None, drafts)
        except Exception as error:  # of a store's library too: nobody else publishes them
            log.warning("drafts stay for now", error=type(error).__name__)
        time.sleep(configured.leftover_seconds)


class Watchdog:
    """Ends this process once it has been idle, and its messages have waited, for `seconds`."""

    def __init__(
        self, database_url: str, tasks: set[str], seconds: float, classes: list[str]
    ) -> None:
        self._engine = unpooled(database_url)
        self._tasks, self._seconds, self._classes = tasks, seconds, classes

    def run(self) -> None:
        """Watch until the process ends."""
        idle_since = time.monotonic()
        while True:
            time.sleep(min(self._seconds / 5, 10.0))
            if _busy():
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > self._seconds and self._waits():
                log.error(
                    "messages wait and none arrives: the worker restarts", tasks=sorted(self._tasks)
                )
                end_process()
                idle_since = time.monotonic()  # it got a task after all

    def _waits(self) -> bool:
        try:
            return messages.longest_wait(self._engine, self._tasks, self._classes) > self._seconds
        except UNAVAILABLE:
            return False  # nothing can be known, and nothing could be claimed


def _busy() -> bool:
    return bool(state.reserved_requests or state.active_requests)


def end_process() -> None:
    """Stop this worker gently, then by force: its loop may hang. Never during a task."""
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    if not _busy():
        for child in active_children():
            os.kill(child.pid, signal.SIGKILL)
        os._exit(os.EX_TEMPFAIL)
