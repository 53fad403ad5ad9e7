"""The relay: carries messages from the outbox to the broker and ends leases that ran out.

Safe to run twice: rows are taken with FOR UPDATE SKIP LOCKED, and a message sent twice is claimed once.
"""

import signal
import threading
import time
from uuid import UUID

import structlog
from kombu.exceptions import OperationalError as BrokerError
from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError

from accountant import expiry, leases, settings
from accountant.database import engine_for
from workers import staging
from workers.app import QUEUES, app

log = structlog.get_logger()

POLL_SECONDS = 0.2
SWEEP_SECONDS = 5.0


def send(task: str, subject: UUID, attempt: int) -> None:
    """One message to the broker."""
    app.send_task(
        f"exchequer.{task}", args=[str(subject), attempt], queue=QUEUES[task], retry=False, ignore_result=True
    )


def sweep(engine: Engine, configured: settings.Settings, resend_seconds: float) -> None:
    """End expired leases, destroy what they staged, send again what nobody took, end what nobody decided."""
    for job_id, token in leases.expire(engine, configured.max_attempts):
        staging.destroy(staging.staged_uri(configured.results, job_id, token))
        log.warning("lease expired", job=str(job_id))
    leases.resend(engine, resend_seconds)
    expiry.sweep(engine)


def run(stop: threading.Event) -> None:
    """Relay until `stop` is set; outages of either server are waited out."""
    configured = settings.load()
    if configured.database_url is None:
        raise SystemExit("DATABASE_URL is not set")
    engine = engine_for(configured.database_url)
    resend_seconds = 0.0  # at the start: whatever waits is sent, the broker may have lost it
    next_sweep = 0.0
    while not stop.is_set():
        try:
            if time.monotonic() >= next_sweep:
                sweep(engine, configured, resend_seconds)
                resend_seconds = configured.resend_seconds
                next_sweep = time.monotonic() + SWEEP_SECONDS
            if leases.deliver(engine, send):
                continue
        except (BrokerError, OperationalError, InterfaceError, OSError) as error:
            log.warning("relay waits for a server", error=type(error).__name__)
            stop.wait(1.0)
        stop.wait(POLL_SECONDS)


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    run(stop)


if __name__ == "__main__":
    main()
