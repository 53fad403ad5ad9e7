"""Replay of a ledger from its beginning: the books and the live reservations, one step per entry.

`books` gives entries their meaning; this module only finds the reservation that an entry refers to. A ledger
of a million entries is replayed in one pass and in little memory.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from accountant.core.errors import VerificationFailed
from accountant.core.ledger import reversals
from accountant.core.ledger.books import Books, failing
from accountant.core.ledger.entry_bodies import reservation_json
from accountant.core.ledger.hash_chain import JOBLESS, EntryKind
from accountant.core.ledger.reservations import Reservation, read_costs, read_reservation
from accountant.core.ledger.sorted_keys import SortedKeys
from accountant.core.ledger.tallies import Charged, Known, Tally, countable
from accountant.core.privacy.filters import Kind

_BOOKS = TypeAdapter(Books)


class Replay:
    """The books and the live reservations while entries are replayed in order.

    One entry is one step of constant cost. A job takes a few hundred bytes at most, and shares its
    reservation with all jobs of its shape.
    """

    def __init__(self) -> None:
        self._settled = Books()
        self._tally: Tally | None = None  # newer than the books, if there is one
        #: The live reservation of each job; None: resolved.
        self._jobs: dict[bytes | str, Reservation | None] = {}
        self._ended = SortedKeys()  # those of a verification that this one goes on with
        self._closers: dict[Kind, dict[bytes | str, None]] = {kind: {} for kind in Kind}
        self.live_count = 0

    @property
    def books(self) -> Books:
        """The current books, with the first job, not voided, that closed each filter."""
        firsts = tuple((kind, _job_name(next(iter(jobs)))) for kind, jobs in self._closers.items() if jobs)
        return replace(self.now, history=replace(self.now.history, closers=firsts))

    @property
    def now(self) -> Books:
        """The current books without the jobs that closed filters."""
        if self._tally is not None:
            self._settled, self._tally = self._tally.books(), None
        return self._settled

    @now.setter
    def now(self, books: Books) -> None:
        self._settled, self._tally = books, None

    def held(self, job: str) -> Reservation | None:
        """The live reservation of a job; None: it has none."""
        return self._jobs.get(_job_key(job))

    def live(self) -> dict[str, Reservation]:
        """Every live reservation by its job."""
        return {_job_name(key): held for key, held in self._jobs.items() if held is not None}

    def apply(self, kind: EntryKind, job: str | None, body: Mapping[str, Any]) -> None:
        """Apply one more entry. Raises VerificationFailed, with nothing changed, if it is not valid here."""
        if kind in JOBLESS:
            self.now = self.now.apply(kind, None, body)
            return
        if not isinstance(job, str):
            raise VerificationFailed("it names no reservation")
        key = _job_key(job)
        if kind is EntryKind.RESERVE:
            if key in self._jobs or key in self._ended:
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

    # --- entries of shapes that were judged before (shapes.py) --------------------------------------

    def reserve_again(self, job: str, known: Known) -> bool:
        """Apply a RESERVE like one that was applied under the same rules; False, and nothing changes, if
        the books have to judge it."""
        key, tally = _job_key(job), self._counting()
        if tally is None or key in self._jobs or key in self._ended:
            return False
        if not tally.reserve(known.costs, known.spends, known.coins):
            return False
        self._jobs[key] = known.held
        self.live_count += 1
        for shut in known.closes:
            self._closers[shut][key] = None
        return True

    def end_again(self, job: str, known: Known, charged: Charged | None) -> bool:
        """Apply a COMMIT that charges so much, or a VOID (None), of a live reservation; False as above."""
        tally = self._counting()
        if tally is None:
            return False
        if charged is None:
            done = tally.void(known.costs, known.spends, known.coins)
        else:
            done = tally.commit(known.costs, charged.costs, charged.failed)
        if not done:
            return False
        key = _job_key(job)
        self._jobs[key] = None
        self.live_count -= 1
        if charged is None and known.closes:
            self._reopen(key)
        return True

    def _counting(self) -> Tally | None:
        if self._tally is None and countable(self._settled):
            self._tally = Tally(self._settled)
        return self._tally

    # --- a verification that goes on later (verified_state.py) --------------------------------------

    def state(self) -> tuple[dict[str, Any], SortedKeys]:
        """Everything that it holds: as JSON, and the keys of jobs that ended."""
        ended = [key for key, held in self._jobs.items() if held is None]
        closers = {kind: [_job_name(key) for key in jobs] for kind, jobs in self._closers.items()}
        stated = {
            "books": _BOOKS.dump_python(self.now, mode="json"),
            "live": {name: reservation_json(held) for name, held in self.live().items()},
            "ended": sorted(key for key in ended if isinstance(key, str)),
            "closers": closers,
        }
        return stated, self._ended.with_more(key for key in ended if isinstance(key, bytes))

    @classmethod
    def restored(cls, stated: Mapping[str, Any], ended: SortedKeys) -> "Replay":
        """The inverse of `state`."""
        made = cls()
        made._settled, made._ended = _BOOKS.validate_python(stated["books"]), ended
        made._jobs = {_job_key(name): read_reservation(body) for name, body in stated["live"].items()}
        made.live_count = len(made._jobs)
        made._jobs |= dict.fromkeys(stated["ended"])
        for kind, jobs in stated["closers"].items():
            made._closers[Kind(kind)] = {_job_key(name): None for name in jobs}
        return made

    # --- corrections --------------------------------------------------------------------------------

    def _reverse(self, job: str, key: bytes | str, body: Mapping[str, Any]) -> None:
        if self._jobs.get(key) is not None or not (key in self._jobs or key in self._ended):
            raise VerificationFailed("it corrects a job that is not settled")
        self.now = reversals.apply(self.now, EntryKind.REVERSAL, job, body)
        self._reopen(key)
        for shut in (each for each, cost in read_costs(body["costs"]).items() if cost is None):
            self._closers[shut][key] = None

    def _reopen(self, key: bytes | str) -> None:
        for jobs in self._closers.values():
            jobs.pop(key, None)


@lru_cache(maxsize=16)  # the same is asked for a few times in an entry
def _job_key(job: str) -> bytes | str:
    """The 16 bytes of a UUID; any other text, or a UUID in another spelling, unchanged."""
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
