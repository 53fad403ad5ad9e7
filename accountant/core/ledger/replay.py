"""Replay of a ledger from its beginning: the books and the live reservations, one step per entry.

`books` gives entries their meaning; this module only finds the reservation that an entry refers to.
A ledger of a million entries is replayed in one pass and in little memory.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from accountant.core.errors import VerificationFailed
from accountant.core.ledger import reversals
from accountant.core.ledger.books import Books, failing
from accountant.core.ledger.hash_chain import JOBLESS, EntryKind
from accountant.core.ledger.reservations import Reservation, read_costs, read_reservation
from accountant.core.privacy.filters import Kind


class Replay:
    """The books and the live reservations while entries are replayed in order.

    One entry is one step of constant cost. A job takes a few hundred bytes at most, and shares its
    reservation with all jobs of its shape.
    """

    def __init__(self) -> None:
        #: The current books without the jobs that closed filters.
        self.now = Books()
        #: The live reservation of each job; None: resolved.
        self._jobs: dict[bytes | str, Reservation | None] = {}
        self._closers: dict[Kind, dict[bytes | str, None]] = {kind: {} for kind in Kind}
        self.live_count = 0

    @property
    def books(self) -> Books:
        """The current books, with the first job, not voided, that closed each filter."""
        firsts = tuple(
            (kind, _job_name(next(iter(jobs)))) for kind, jobs in self._closers.items() if jobs
        )
        return replace(self.now, history=self.now.history._replace(closers=firsts))

    def held(self, job: str) -> Reservation | None:
        """Return the live reservation of a job; None: it has none."""
        return self._jobs.get(_job_key(job))

    def live(self) -> dict[str, Reservation]:
        """Return every live reservation by its job."""
        return {_job_name(key): held for key, held in self._jobs.items() if held is not None}

    def apply(self, kind: EntryKind, job: str | None, body: Mapping[str, Any]) -> None:
        """Apply an entry. Raises VerificationFailed, and changes nothing, if it is invalid."""
        if kind is EntryKind.LOSS and self.live_count:
            raise VerificationFailed("a reservation is live, and its job may have run")
        if kind in JOBLESS:
            self.now = self.now.apply(kind, None, body)
            return
        if not isinstance(job, str):
            raise VerificationFailed("it names no reservation")
        key = _job_key(job)
        if kind is EntryKind.RESERVE:
            if key in self._jobs:
                raise VerificationFailed("its job is reserved already")
            with failing():
                held = read_reservation(body)
            self.now = self.now.apply(kind, job, body, held)
            self._jobs[key] = held
            self.live_count += 1
            for shut in (each for each, cost in held.costs.items() if cost is None):
                self._closers[shut][key] = None
            return
        if kind is EntryKind.REVERSAL:
            self._reverse(job, key, body)
            return
        self.now = self.now.apply(kind, job, body, self._jobs.get(key))
        self._jobs[key] = None
        self.live_count -= 1
        if kind is EntryKind.VOID:
            self._reopen(key)

    # --- corrections
    # --------------------------------------------------------------------------------

    def _reverse(self, job: str, key: bytes | str, body: Mapping[str, Any]) -> None:
        if key not in self._jobs or self._jobs[key] is not None:
            raise VerificationFailed("it corrects a job that is not settled")
        self.now = reversals.apply(self.now, EntryKind.REVERSAL, job, body)
        self._reopen(key)
        for shut in (kind for kind, cost in read_costs(body["costs"]).items() if cost is None):
            self._closers[shut][key] = None

    def _reopen(self, key: bytes | str) -> None:
        for jobs in self._closers.values():
            jobs.pop(key, None)


@lru_cache(maxsize=16)  # the same is asked for a few times in an entry
def _job_key(job: str) -> bytes | str:
    """Return the 16 bytes of a UUID; any other text, or a UUID in another spelling, unchanged."""
    try:
        key = bytes.fromhex(job.replace("-", ""))
    except ValueError:
        return job
    return key if len(key) == 16 and _job_name(key) == job else job


def _job_name(key: bytes | str) -> str:
    if isinstance(key, str):
        return key
    text = key.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
