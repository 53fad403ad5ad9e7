"""Shapes of entries that were judged under the rules in force, and what is left to check of the next one.

An entry was judged: its price recomputed, its costs, terms, source and policy compared. All of that follows
from its shape (entry_texts.py), from the filters and from the rules, so it holds for the next entry of that
shape until an entry changes the rules. What is left depends on the entry's place or on people: the chain, the
states of jobs, the sums, and who approved whose job. Those are checked each time. Whatever is not plainly
right is judged in full, which also finds the words for what is wrong.
"""

from dataclasses import dataclass

from accountant.core.ledger.entry_runs import shape_key
from accountant.core.ledger.entry_texts import EntryText
from accountant.core.ledger.hash_chain import Entry, EntryKind
from accountant.core.ledger.lineage import is_free
from accountant.core.ledger.realization import Live
from accountant.core.ledger.reservations import SHAPES, UNFINISHED, Reservation, read_costs, settled
from accountant.core.ledger.tallies import Charged, Known, pairs

#: Sources that name an earlier job, whose entry has to be looked up each time.
_EARLIER = ("job", "sources", "output", "artifacts")


@dataclass(frozen=True, slots=True)
class KnownReserve:
    """A RESERVE's shape: what it moves, whether it is free, and what is kept of it until its job ends."""

    hidden: int
    known: Known
    free: bool
    live: Live


@dataclass(frozen=True, slots=True)
class KnownEnd:
    """The shape of a COMMIT or VOID that ended a reservation; `charged` None: it gave all back."""

    hidden: int
    known: Known
    charged: Charged | None


class Shapes:
    """The shapes of RESERVEs, and of COMMITs and VOIDs with the reservations that they ended, by keys."""

    def __init__(self) -> None:
        self._reserves: dict[bytes, KnownReserve] = {}
        self._ends: dict[tuple[bytes, int, Live], KnownEnd] = {}

    def forget(self) -> None:
        """Rules or filters changed: every shape has to be judged anew."""
        self._reserves.clear()
        self._ends.clear()

    def reserve(self, shape: bytes) -> KnownReserve | None:
        return self._reserves.get(shape)

    def end(self, shape: bytes, held: Reservation, live: Live) -> KnownEnd | None:
        # By identity: reservations of one shape are one object, and the one kept here stays alive.
        return self._ends.get((shape, id(held), live))

    def learn(self, text: EntryText, entry: Entry, held: Reservation, live: Live) -> None:
        """Keep the shape of an entry that was judged right; `held` and `live` are its job's."""
        known = Known.of(held)
        body = entry.body
        if known is None or "ex_post" in body or "secret" in body or "whole" in body:
            return
        if len(self._reserves) + len(self._ends) >= SHAPES:
            self.forget()
        shape, hidden = shape_key(text.shape), text.hidden
        if entry.kind is EntryKind.RESERVE:
            if not any(name in body.get("source", {}) for name in _EARLIER):
                self._reserves[shape] = KnownReserve(hidden, known, is_free(body), live)
        elif entry.kind is EntryKind.VOID:
            self._ends[shape, id(held), live] = KnownEnd(hidden, known, None)
        elif not body.get("artifacts"):
            costs = settled(held.costs, read_costs(body["costs"]))
            charged = Charged(pairs(costs), body.get("outcome") in UNFINISHED)
            self._ends[shape, id(held), live] = KnownEnd(hidden, known, charged)
