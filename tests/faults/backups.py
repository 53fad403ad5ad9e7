"""A backup of the database, restored while the service runs, and the operator who recovers from the
log.

What the backup lacks and no entry states is gone: requests that nobody had decided on, keys of
requests. `forgotten` says of which answers that may be so; a job that was admitted is never among
them.
"""

import shutil
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field

from sqlalchemy import Engine

from accountant.results import Results
from accountant.transactions import recovery
from tests.faults.traffic import Answer
from web.stack.addresses import POSTGRES
from web.stack.servers import Servers

#: States of a request of which the ledger says nothing yet.
UNDECIDED = ("submitted", "awaiting_approval", "refused")
#: How old a copy is at least when it is restored: something has happened since.
OLD_SECONDS = 5.0


@dataclass
class Backups:
    """One copy at a time of the folder of a home's PostgreSQL."""

    servers: Servers
    engine: Engine
    taken: float | None = None
    #: When the service, which is refused everything until then, is stopped and its database
    #: recovered.
    recovers: float | None = None
    #: (when a copy was taken, when the database was recovered after it came back)
    gone: list[tuple[float, float]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    #: What could not be recovered.
    problems: list[str] = field(default_factory=list)

    def next(self, until: float) -> bool:
        """Take a copy, or restore the one there is, to be recovered from `until` on; True if
        restored.
        """
        data, copy = self.servers.home / POSTGRES, self.servers.home / "backup"
        now = time.monotonic()
        if self.recovers is not None or (self.taken is not None and now < self.taken + OLD_SECONDS):
            return False
        self.servers.children[POSTGRES].stop(((signal.SIGQUIT, 20.0),))
        source, target = (data, copy) if self.taken is None else (copy, data)
        shutil.rmtree(target, ignore_errors=True)
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)
        self.servers.start(POSTGRES)
        if self.taken is None:
            self.taken = now
            return False
        self.recovers = until
        return True

    def recover(self) -> None:
        """Bring the restored database forward, with nothing else running."""
        assert self.taken is not None
        self.engine.dispose()
        plans = recovery.plan(self.engine, restored=True)
        for each in plans:
            if each.problem is not None:
                self.problems.append(f"{each.dataset} can't be recovered: {each.problem}")
                continue
            recovery.recover(self.engine, each, Results(str(self.servers.home / "results")).facts)
            self.counts["entries"] += len(each.missing)
            self.counts["charged"] += len(each.charged)
        self.counts["restores"] += 1
        self.gone.append((self.taken, time.monotonic()))
        self.taken = self.recovers = None

    def told(self) -> str:
        """What the restores of a run came to."""
        return (
            f"{self.counts['restores']} restores: {self.counts['entries']} entries written again "
            "from the "
            f"log, {self.counts['charged']} jobs charged in full"
        )


def forgotten(answer: Answer, gone: list[tuple[float, float]]) -> bool:
    """True if a restored database may know nothing of this answer any more."""
    return any(begin <= answer.at <= end for begin, end in gone)
