"""A thread that keeps a worker's lease alive and reports cancellation back to it."""

import threading
import time

import structlog

from accountant.core.errors import Cancelled, Drained, LeaseLost, TimeLimit
from accountant.database import Engine
from accountant.faults import reached
from accountant.transactions import leases
from accountant.transactions.rows import Claim
from workers.interface import Progress
from workers.jobs import draining

log = structlog.get_logger()


class Heartbeat:
    """Renews `claim` four times per lease while the block runs; `check` raises when the run must
    stop.

    A worker that can't renew stops itself before its lease expires, since another attempt may start
    then. It also stops itself when the attempt has taken `limit_seconds` and, unless it `stays`,
    when its worker is to stop.
    """

    def __init__(
        self,
        engine: Engine,
        claim: Claim,
        lease_seconds: float,
        limit_seconds: float,
        progress: Progress,
        stays: bool = False,
    ) -> None:
        self._engine, self._claim, self._seconds = engine, claim, lease_seconds
        self._progress, self._stays = progress, stays
        self._limit = time.monotonic() + limit_seconds
        self._stop = threading.Event()
        self._lost = False
        self._cancelled = False
        self._renewed = time.monotonic()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=self._seconds)

    def held(self) -> bool:
        """Return True if the lease certainly still holds: nobody else can have the part."""
        return not self._lost and time.monotonic() - self._renewed <= 0.8 * self._seconds

    def check(self) -> None:
        """Raise LeaseLost, Cancelled, TimeLimit or Drained if the run must end."""
        if not self.held():
            raise LeaseLost("the lease could not be renewed in time")
        if self._cancelled:
            raise Cancelled("cancelled")
        if time.monotonic() > self._limit:
            raise TimeLimit("the attempt took longer than it may")
        self._check_drained()

    def wait(self, seconds: float) -> None:
        """Wait while only the job's end is left to do. Raises LeaseLost or Drained meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self.held():
                raise LeaseLost("the lease could not be renewed in time")
            self._check_drained()
            time.sleep(min(left, 0.1))

    def _check_drained(self) -> None:
        if draining.wanted() and not self._stays:
            raise Drained("the worker is to stop")

    def _beat(self) -> None:
        while not self._stop.wait(min(self._seconds / 4, 2.0)):
            # the lease counts from before the request, never from after it
            asked = time.monotonic()
            try:
                self._cancelled = leases.renew(
                    self._engine,
                    self._claim,
                    self._seconds,
                    self._progress.told,
                    self._progress.total,
                )
                self._renewed = asked
                reached("heartbeat.renewed")
            except LeaseLost:
                self._lost = True
                return
            # the database is away: try again until the lease is nearly over
            except Exception as error:
                log.warning(
                    "lease not renewed", job=str(self._claim.job_id), error=type(error).__name__
                )
