"""The log as its callers see it, wherever it lies: a folder (files.py), or an object store
(objects.py).

A process keeps each dataset's head in memory, and reads what others appended from where it stopped.
Callers name a place, and `homes.log_at` returns its log.
"""

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import IO, Any

from accountant.core.errors import LedgerBehind, LogUnusable
from accountant.core.ledger.hash_chain import GENESIS, EntryKind
from accountant.core.transparency.proofs import leaf
from accountant.core.transparency.witnesses import leaf_digest
from accountant.ledger_log import lines
from accountant.ledger_log.lines import Head, Logged, Position
from accountant.ledger_log.signed import SignedHead, SignedPlaces

#: Nobody waits for longer for a lock of the log: the thread that has it may wait for storage.
LOCK_SECONDS = 10.0


class Gap(Exception):
    """Entries between the log's head and new ones are missing, and come from the database."""

    def __init__(self, after: int):
        self.after = after
        super().__init__(f"the log ends at entry {after}")


class Lock:
    """A lock between threads. Raises LogUnusable where another thread has it for too long."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        if not self.lock.acquire(timeout=LOCK_SECONDS):
            raise LogUnusable("its disk does not answer")

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@dataclass(frozen=True)
class Segment:
    """A stretch of the log that begins with a header: `lines` reads it, newlines included.

    `chained`: whether its first entry names the header as the line before it.
    """

    number: int
    name: str
    lines: Callable[[], Iterator[bytes]]
    chained: bool


class LedgerLog(ABC):
    """The log at one place, as one process sees it. Threads may share it.

    Every method raises LogUnusable where the log can't be read or written, its parts do not follow
    one another, it has become shorter than it was, or is not what was `signed`.
    """

    def __init__(self, place: str, signed: SignedPlaces | None, mending: bool) -> None:
        #: The folder or the address, for people to read.
        self.place = place
        #: The places in which heads of this log were signed.
        self.signed = SignedPlaces() if signed is None else signed
        #: Whether it is opened although it is not what was signed.
        self._mending = mending
        #: Signed heads that it does not hold, as entries were lost, by the LOSS of every dataset.
        self._settled: set[SignedHead] = set()
        self._settled_at = -1  # so many entries were read to find these
        #: The state of those places when the log was last found to hold what they say.
        self._compared: tuple[object, ...] = ()
        #: The database that this process found to be the log's.
        self.attached_to: object = None
        self._mutex = Lock()  # of all that follows
        self._identity: str | None = None
        self._position = Position(0, GENESIS, {})

    # --- reading --------------------------------------------------------------------------------

    @property
    def identity(self) -> str | None:
        """The random name in the log's header, or None if nothing was written to this place yet."""
        with self._reading():
            return self._identity

    def head(self, dataset: str) -> Head:
        """Return a dataset's last entry in the log, as of now."""
        with self._reading():
            return self._position.heads.get(dataset, Head())

    def seen(self, dataset: str) -> Head:
        """Return a dataset's last entry, as of this process's last look."""
        with self._mutex:
            return self._position.heads.get(dataset, Head())

    def folded(self) -> int:
        """Return all datasets' heads in one number (lines.Position), as of now."""
        with self._reading():
            return self._position.folded

    def length(self) -> int:
        """Return the number of entries in the log, as of now."""
        with self._reading():
            return self._position.n

    def position(self) -> Position:
        """Return where the log stands, as of now."""
        with self._reading():
            return self._position.copy()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._mutex:
            with unusable("read"):
                self._read_on()
            yield

    def _read_on(self) -> None:
        """Read what any process appended since the last look, and compare it with signed heads."""
        if self._mending:
            self._read_lines()
            return
        state = self.signed.state()
        # before the log, which moves on
        heads = [] if state == self._compared else self.signed.heads()
        self._read_lines()
        for problem in self._problems(heads).values():
            raise LogUnusable(
                f"{problem}. Nothing is admitted, run or handed out: stop all services, then "
                "`exchequer ledger recover`"
            )
        self._compared = state

    def problems(self) -> dict[SignedHead, str]:
        """Return the signed heads that this log does not hold, each with what is wrong.

        Those that a LOSS of every dataset names are left out.
        """
        with self._mutex, unusable("read"):
            heads = self.signed.heads()
            self._read_lines()
            return self._problems(heads)

    def _problems(self, heads: Sequence[SignedHead]) -> dict[SignedHead, str]:
        problems = {}
        for head in heads:
            problem = self._signed_problem(head)
            if problem is not None and head not in self._settled:
                problems[head] = problem
        if problems and self._settled_at != self._position.n:
            self._settled |= settled_heads(self)
            self._settled_at = self._position.n
        return {head: problem for head, problem in problems.items() if head not in self._settled}

    def _signed_problem(self, head: SignedHead) -> str | None:
        """Return how this log is not the one of which a head was signed, or None."""
        n = self._position.n
        if n < head.size:
            return (
                f"it holds {n:,} entries, and {head.size:,} were signed: an older copy was put back"
            )
        entry = self.entry_at(head.size)
        if entry is None or head.leaf not in (None, leaf_digest(leaf(*entry[1:]))):
            return f"its entry {head.size:,} is another one than was signed: an older copy went on"
        return None

    def entry_at(self, n: int) -> tuple[str, str, int, str] | None:
        """Return (hash of line, dataset, number, hash) of the `n`-th entry, or None."""
        for position, dataset, entry in entries_after(self, n - 1, thorough=False):
            return position.line, dataset, entry.seq, entry.hash
        return None

    # --- what a home does -----------------------------------------------------------------------

    @abstractmethod
    def _read_lines(self) -> None:
        """Read on from where this process stopped; `_identity` stays None without a header."""

    @abstractmethod
    def ordered_segments(self) -> Sequence[Segment]:
        """Return the whole log in order. Raises LogUnusable if a segment is missing."""

    @abstractmethod
    def begin(self) -> str:
        """Write the first header where there is none; returns the log's identity."""

    @abstractmethod
    def append(self, groups: Sequence[tuple[str, Sequence[Logged]]]) -> list[Exception | None]:
        """Append entries of several datasets, each in order, without known ones, in one write.

        Returns for each group None once it is durable, else what is wrong with it: Gap, or
        LedgerBehind where the log holds another entry. Of such a group nothing is written.
        """

    @abstractmethod
    def sync(self) -> None:
        """Make durable what this process knows of the log, its own and others'."""

    @abstractmethod
    def require_room(self) -> None:
        """Raise LogUnusable unless lines could be written now, before anything is reserved."""

    @abstractmethod
    def require_writable(self) -> None:
        """Like `require_room`, but a write is tried too."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return whether nothing lies at this place."""

    @abstractmethod
    def keep(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Return a block that writes a file kept beside the log, whole and durable or not at all.

        It takes the place of an older one. `name`: with slashes.
        """

    @abstractmethod
    def open_kept(self, name: str) -> IO[bytes]:
        """Open a file that was kept beside the log. Raises OSError."""

    @abstractmethod
    def is_kept(self, name: str) -> bool:
        """Return whether a file of this name was kept beside the log."""


def add_lines(
    after: Position, groups: Sequence[tuple[str, Sequence[Logged]]]
) -> tuple[bytes, list[Exception | None]]:
    """Return the lines of what is new in `groups`, and what `LedgerLog.append` returns.

    `after` moves on.
    """
    payload = bytearray()
    outcomes = [_add(after, payload, dataset, entries) for dataset, entries in groups]
    return bytes(payload), outcomes


def _add(
    after: Position, payload: bytearray, dataset: str, entries: Sequence[Logged]
) -> Exception | None:
    """Put the lines of one dataset's new entries into `payload`."""
    head = after.heads.get(dataset, Head())
    last = entries[-1].seq if entries else 0
    for entry in entries:
        if entry.seq == head.seq and entry.hash != head.hash:
            return LedgerBehind(dataset, last, head.seq, head.seq)
    new = [entry for entry in entries if entry.seq > head.seq]
    if not new:
        return None
    if new[0].seq != head.seq + 1:
        return Gap(head.seq)
    if new[0].previous != head.hash:
        return LedgerBehind(dataset, last, head.seq, head.seq)
    for entry in new:
        payload += lines.append(after, dataset, entry) + b"\n"
    return None


@contextmanager
def unusable(what: str) -> Iterator[None]:
    """Raise LogUnusable for an error of the operating system."""
    try:
        yield
    except OSError as error:
        raise LogUnusable(f"it can't be {what}: {error.strerror}") from None


# --- the whole of it ----------------------------------------------------------------------------


def entries(log: LedgerLog, *, thorough: bool = True) -> Iterator[tuple[int, str, Logged]]:
    """Yield every entry as (number, dataset, entry), like `entries_after`."""
    for position, dataset, entry in entries_after(log, 0, thorough=thorough):
        yield position.n, dataset, entry


def entries_after(
    log: LedgerLog, count: int, *, thorough: bool = True
) -> Iterator[tuple[Position, str, Logged]]:
    """Yield the entries after the first `count`: where the log stands then, dataset and entry.

    Each line is checked against all before it that are read: from the segment where entry `count`
    stands. `thorough`: as for lines.follow. A last line without a newline is left out: nobody was
    answered for it. Raises LogUnusable.
    """
    segments = log.ordered_segments()
    first = _segment_of(segments, count)
    position = None if first else Position(0, GENESIS, {})
    identity = None
    for segment in segments[first:]:
        with unusable("read"):
            read = segment.lines()
            header = next(read, b"").removesuffix(b"\n")
            name, number, begins = lines.read_header(header, chained=segment.chained)
            identity = name if identity is None else identity
            follows = position is None or header == lines.header(identity, number, position)
            if number != segment.number or not follows:
                raise LogUnusable(f"{segment.name} does not follow the file before it")
            position = begins
            for line in read:
                if not line.endswith(b"\n"):
                    if segment is not segments[-1]:
                        raise LogUnusable(f"{segment.name} ends within a line")
                    break
                checked = thorough and position.n >= count
                dataset, entry = lines.follow(position, line[:-1], thorough=checked)
                if position.n > count:
                    yield position, dataset, entry


def _segment_of(segments: Sequence[Segment], count: int) -> int:
    """Return the place of the last segment that begins after so many entries or fewer."""
    if count:
        for place in range(len(segments) - 1, 0, -1):
            with unusable("read"):
                header = next(segments[place].lines(), b"").removesuffix(b"\n")
                if lines.read_header(header)[2].n <= count:
                    return place
    return 0


def settled_heads(log: LedgerLog) -> set[SignedHead]:
    """Return the signed heads that every dataset of the log has a LOSS for.

    Datasets that were registered after the first of these are left out. Raises LogUnusable.
    """
    datasets: set[str] = set()
    waiting: dict[SignedHead, set[str]] = {}
    for _, dataset, entry in entries(log, thorough=False):
        if entry.text and (document := json.loads(entry.text))["kind"] == EntryKind.LOSS:
            for head in named_heads(document):
                waiting.setdefault(head, set(datasets)).discard(dataset)
        datasets.add(dataset)
    return {head for head, unsaid in waiting.items() if not unsaid}


def named_heads(document: Mapping[str, Any]) -> list[SignedHead]:
    """Return the signed heads that a LOSS names. Raises LogUnusable for another document."""
    try:
        named = [
            (each["log"], each["entries"], each["leaf"]) for each in document["body"]["signed"]
        ]
    except (LookupError, TypeError):
        raise LogUnusable("an entry about lost entries can't be read") from None
    return [SignedHead(*each) for each in named]
