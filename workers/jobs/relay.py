"""The relay: carries messages from the outbox to the broker and ends leases that ran out.

Safe to run twice: rows are taken with FOR UPDATE SKIP LOCKED, and a message sent twice is claimed
once.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

import structlog
from kombu.exceptions import OperationalError as BrokerError

from accountant import logs, settings
from accountant.catalogue import uploads
from accountant.catalogue.upload_places import place_of
from accountant.core.errors import LogUnusable
from accountant.database import UNAVAILABLE, Engine, engine_for
from accountant.deadlines import Bounded
from accountant.faults import reached
from accountant.identities import activity_log
from accountant.ledger_log.signed import SignedPlaces
from accountant.results import Results
from accountant.transactions import (
    asking,
    hardware,
    leases,
    ledger_log,
    messages,
    releases,
    spending_sums,
)
from workers.jobs import notice_sender, staging
from workers.jobs.alive import sign_of_life
from workers.jobs.app import app
from workers.jobs.broker import queue_of

log = structlog.get_logger()

POLL_SECONDS = 0.2
SWEEP_SECONDS = 5.0


def send(task: str, subject: UUID, attempt: int, part: int) -> None:
    """One message to the broker; the class of its workers may stand behind the task."""
    name = task.partition(".")[0]
    numbers = [attempt, part] if name in messages.FAIR else [attempt]
    try:
        app.send_task(
            f"exchequer.{name}",
            args=[str(subject), *numbers],
            queue=queue_of(task),
            retry=False,
            ignore_result=True,
        )
    except (BrokerError, OSError):
        raise
    except Exception as error:  # of this message: the others go out, and it is tried again later
        log.error(
            "a message can't be sent", task=task, job=str(subject), error=type(error).__name__
        )


def sweep(engine: Engine, configured: settings.Settings, resend_seconds: float) -> tuple[int, int]:
    """End expired leases, destroy what they staged, resend unclaimed messages, expire undecided
    jobs, admit what is released.

    Returns the number of leases ended and of messages sent again.
    """
    ended: list[tuple[UUID, UUID]] = []
    resent = 0
    with _duty("end leases that ran out"):
        ended = leases.expire(engine, configured.max_attempts)
    for job_id, _ in ended:
        log.warning("lease expired", job=str(job_id))
        reached("reaper.expired")
    if ended:
        _leftovers(engine, configured)
    with _duty("expire what nobody decided on"):
        asking.sweep(engine)
    with _duty("admit what is released"):
        releases.admit(engine)
    with _duty("sum up what was spent"):
        spending_sums.roll(engine)
    with _duty("compare ledgers with their log"):
        watch_log(engine)
    with _duty("send messages again"):
        resent = messages.resend(engine, resend_seconds)
    return len(ended), resent


def look_around(engine: Engine, configured: settings.Settings) -> int:
    """Destroy what is left over or too old; returns how many files of attempts.

    And look through all that exists or waits, where a sweep looks at what changed.
    """
    destroyed = _leftovers(engine, configured)
    with _duty("end what is old"):
        activity_log.prune(engine, configured)
    with _duty("compare each ledger with its log"):
        watch_log(engine, whole=True)
    with _duty("write missing messages"):
        messages.resend(engine, configured.resend_seconds, whole=True)
    return destroyed


#: Nobody's lease or message waits longer for the places of results and uploads: they may hang.
STORE_SECONDS = 1.0
_stores: dict[tuple[Engine, str], Bounded[int]] = {}


def _leftovers(engine: Engine, configured: settings.Settings) -> int:
    """Destroy what ended attempts staged, and unused uploads; returns how many files of attempts.

    One run at a time, in a thread. Returns 0 if it takes longer, or fails.
    """

    def destroy() -> int:
        destroyed = 0
        with _duty("destroy what ended attempts staged"):
            destroyed = staging.tidy(engine, Results(configured.results))
        with _duty("destroy unused uploads"):
            uploads.sweep(engine, uploads.Store.of(configured))
        return destroyed

    place = engine, str(configured.results)
    run = _stores.setdefault(place, Bounded(destroy)).begin()
    return run.result(time.monotonic() + STORE_SECONDS) or 0


@contextmanager
def _duty(name: str) -> Iterator[None]:
    """Let one duty fail alone, so that one bad row stops nobody's messages. An outage is raised."""
    try:
        yield
    except (LogUnusable, *UNAVAILABLE):
        raise
    except Exception as error:  # its text may quote a row
        log.error("a duty failed, and the others go on", duty=name, error=type(error).__name__)


def watch_log(engine: Engine, *, whole: bool = False) -> None:
    """Compare all ledgers with the log outside. Append what dead processes left out."""
    try:
        for problem in ledger_log.tend(engine, whole=whole):
            log.error("a ledger is not what its log holds", problem=problem)
    except LogUnusable as error:
        log.error("the log outside the database can't be used", problem=error.problem)


def reconcile(engine: Engine, configured: settings.Settings) -> None:
    """Resend all waiting messages at the start (a broker may lose them) and end what is overdue."""
    watch_log(engine, whole=True)
    expired, resent = sweep(engine, configured, 0.0)
    destroyed = look_around(engine, configured)
    log.info(
        "reconciled",
        expired_leases=expired,
        messages_sent_again=resent,
        leftovers_destroyed=destroyed,
    )


@dataclass
class _Every:
    """True once every so many seconds, starting immediately."""

    seconds: float
    next: float = 0.0

    def due(self) -> bool:
        return time.monotonic() >= self.next

    def done(self) -> None:
        self.next = time.monotonic() + self.seconds


def run(stop: threading.Event) -> None:
    """Relay until `stop` is set; outages are waited out, and no error ends it."""
    configured = settings.load()
    if configured.database_url is None:
        raise SystemExit("DATABASE_URL is not set")
    engine = engine_for(
        configured.database_url, configured.ledger_log, signed=SignedPlaces.of(configured)
    )
    notice_sender.start(stop, engine, configured)
    places = Results(configured.results), place_of(configured.uploads)
    for looking in [Bounded(place.problem).begin() for place in places]:
        if problem := looking.result(time.monotonic() + STORE_SECONDS):
            log.error("nothing can be tidied up", problem=problem)
    reconciled, ahead = False, messages.AHEAD
    sweeps, looks = _Every(SWEEP_SECONDS), _Every(configured.leftover_seconds)
    while not stop.is_set():
        sign_of_life()
        try:
            if not reconciled:
                reconcile(engine, configured)
                reconciled = True
                sweeps.done()
                looks.done()
            if sweeps.due():
                sweep(engine, configured, configured.resend_seconds)
                # enough for every worker that may share a job
                ahead = max(messages.AHEAD, configured.fan_out or hardware.all_workers(engine))
                sweeps.done()
            if looks.due():
                look_around(engine, configured)
                looks.done()
            if messages.deliver(engine, send, ahead=ahead):
                continue
        except (BrokerError, *UNAVAILABLE, OSError, LogUnusable) as error:
            log.warning("relay waits for a server", error=type(error).__name__)
            stop.wait(1.0)
        except Exception as error:  # of whatever kind: nobody else ends leases and sends messages
            log.error("the relay goes on after an error", error=type(error).__name__)
            stop.wait(1.0)
        stop.wait(POLL_SECONDS)


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    logs.configure()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    run(stop)


if __name__ == "__main__":
    main()
