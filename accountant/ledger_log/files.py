"""The files of the log: appended under a lock between processes, synced before anybody is answered.

    folder/00000001.jsonl, 00000002.jsonl, …    each begins with a header (lines.py); only the last one grows
    folder/lock                                 held while lines are written, and waits for nothing

A process keeps each dataset's head in memory and reads what others appended from where it stopped, so a look
costs one `stat`. A line that a crash cut short has no newline: it was never answered for, and the next writer
cuts it off. Whoever writes does not hold the lock while it syncs: a sync covers what others wrote before it.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from threading import Lock

from accountant.core.errors import LedgerBehind, LogUnusable
from accountant.core.ledger.hash_chain import GENESIS
from accountant.core.transparency.proofs import leaf
from accountant.core.transparency.witnesses import leaf_digest
from accountant.faults import reached
from accountant.ledger_log import lines
from accountant.ledger_log.lines import Head, Logged, Position
from accountant.ledger_log.signed import SignedHead, SignedPlaces

#: A file is closed when it has reached this size in bytes. A process that starts reads the last one.
SEGMENT_BYTES = 16 * 2**20
_BLOCK = 2**20


class Gap(Exception):
    """Entries between the log's head and those to be appended are missing: they come from the database."""

    def __init__(self, after: int):
        self.after = after
        super().__init__(f"the log ends at entry {after}")


class LedgerLog:
    """The log in one folder, as one process sees it. Threads may share it.

    Every method raises LogUnusable where the files can't be read or written, do not follow one another,
    have become shorter than they were, or are not what was `signed`.
    """

    def __init__(
        self, folder: Path, segment_bytes: int = SEGMENT_BYTES, signed: SignedPlaces | None = None
    ) -> None:
        self.folder = folder
        self._signed = SignedPlaces() if signed is None else signed
        #: The state of those places when the log was last found to hold what they say.
        self._compared: tuple[object, ...] = ()
        #: The database that this process found to be the log's.
        self.attached_to: object = None
        self._segment_bytes = segment_bytes
        self._syncing = Lock()
        self._mutex = Lock()  # of what follows; taken after the lock between processes, never before
        self._identity: str | None = None
        self._segment = 0
        self._paths: dict[int, Path] = {}
        self._inode = 0
        self._offset = 0
        self._position = Position(0, GENESIS, {})
        self._unsynced = False
        self._failed: str | None = None

    # --- reading --------------------------------------------------------------------------------

    @property
    def identity(self) -> str | None:
        """The random name in the log's header; None: nothing was written to this folder yet."""
        with self._reading():
            return self._identity

    def head(self, dataset: str) -> Head:
        """A dataset's last entry in the log, as of now."""
        with self._reading():
            return self._position.heads.get(dataset, Head())

    def seen(self, dataset: str) -> Head:
        """A dataset's last entry, as of this process's last look."""
        with self._mutex:
            return self._position.heads.get(dataset, Head())

    def folded(self) -> int:
        """All datasets' heads in one number (lines.Position), as of now."""
        with self._reading():
            return self._position.folded

    def position(self) -> Position:
        """Where the log stands, as of now."""
        with self._reading():
            return self._position.copy()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._mutex:
            with _unusable("read"):
                self._read_on()
            yield

    def _read_on(self) -> None:
        """Take in what was appended since the last look, by whomever, and compare it with what was signed."""
        if self._failed is not None:
            raise LogUnusable(self._failed)
        state = self._signed.state()
        heads = [] if state == self._compared else self._signed.heads()  # before the log, which moves on
        self._read_lines()
        for head in heads:
            if (problem := signed_problem(self, self._position.n, head)) is not None:
                raise LogUnusable(
                    f"{problem}. Nothing is admitted, run or handed out: stop all services, then `exchequer "
                    "ledger recover`"
                )
        self._compared = state

    def _read_lines(self) -> None:
        if not self._segment:
            self._open_last()
        while self._segment:
            self._read_segment()
            if not self._path(self._segment + 1).exists():
                return
            self._segment, self._inode, self._offset = self._segment + 1, 0, 0

    def _open_last(self) -> None:
        found = self.segments()
        if not found:
            return
        if [int(path.stem) for path in found] != list(range(1, len(found) + 1)):
            raise LogUnusable("one of its files is missing")
        self._segment = len(found)
        self._unsynced = True  # whoever wrote it may have been killed before its sync

    def _read_segment(self) -> None:
        path = self._path(self._segment)
        state = path.stat()
        if state.st_size < self._offset or self._inode not in (0, state.st_ino):
            raise LogUnusable(f"{path.name} was cut short or replaced")
        self._inode = state.st_ino
        if state.st_size == self._offset:
            return
        with path.open("rb") as file:
            file.seek(self._offset)
            rest = b""
            while block := file.read(_BLOCK):
                *whole, rest = (rest + block).split(b"\n")
                for line in whole:
                    self._take(line)

    def _take(self, line: bytes) -> None:
        if self._offset:
            lines.follow(self._position, line)
        else:
            self._begin_at(line)
        self._offset += len(line) + 1
        self._unsynced = True

    def _begin_at(self, line: bytes) -> None:
        log, segment, begins = lines.read_header(line)
        if segment != self._segment or self._identity not in (None, log):
            raise LogUnusable(f"{self._path(self._segment).name} belongs to another log")
        if self._identity is not None and line != lines.header(log, segment, self._position):
            raise LogUnusable(f"{self._path(segment).name} does not follow the file before it")
        self._identity, self._position = log, begins

    def segments(self) -> list[Path]:
        """The files, in order."""
        return sorted(path for path in self.folder.glob("*.jsonl") if path.stem.isdigit())

    def _path(self, segment: int) -> Path:
        if segment not in self._paths:
            self._paths[segment] = self.folder / f"{segment:08}.jsonl"
        return self._paths[segment]

    # --- writing --------------------------------------------------------------------------------

    def begin(self) -> str:
        """Make the first file where there is none; returns the log's identity."""
        with _unusable("written"):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._writing():
            if not self._segment:
                self._make_segment(token_hex(16))
            assert self._identity is not None
            return self._identity

    def append(self, groups: Sequence[tuple[str, Sequence[Logged]]]) -> list[Exception | None]:
        """Append entries of several datasets, each in order, in one write and one sync, without known ones.

        Returns for each group None once it is on the disk, else what is wrong with it: Gap, or LedgerBehind
        where the log holds another entry. Of such a group nothing is written.
        """
        with self._writing():
            if self._identity is None:
                raise LogUnusable("it was not begun")
            if self._offset >= self._segment_bytes:
                self._make_segment(self._identity)
            after, payload = self._position.copy(), bytearray()
            outcomes = [_add(after, payload, dataset, entries) for dataset, entries in groups]
            if payload:
                self._write(bytes(payload), after)
        reached("log.written")
        self.sync()
        return outcomes

    def sync(self) -> None:
        """Put on the disk what this process knows of the log, its own and others'."""
        with self._syncing:  # whoever waits here finds its lines synced by the one before, or syncs for all
            with self._mutex:
                if self._failed is not None:
                    raise LogUnusable(self._failed)
                if not self._unsynced:
                    return
                self._unsynced = False  # what is read from here on is not covered
                path = self._path(self._segment)
            try:
                _sync(path)
            except OSError as error:
                # The kernel may have dropped what it could not write, and calls it clean from now on.
                self._failed = f"a sync failed ({error.strerror}); restart the service when the disk is sound"
                raise LogUnusable(self._failed) from None
        reached("log.synced")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The lock between processes; all that was written is read, a line that was cut short is cut off."""
        with _unusable("written"), (self.folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                with self._mutex:
                    self._read_on()
                    if self._segment and self._path(self._segment).stat().st_size > self._offset:
                        os.truncate(self._path(self._segment), self._offset)
                    yield
            finally:
                # Said, not left to the end of the file: a child that was forked meanwhile has it open too.
                fcntl.flock(lock, fcntl.LOCK_UN)

    def _write(self, payload: bytes, after: Position) -> None:
        """Write lines; where the disk is full, those that are whole stay, and are found by the next look."""
        handle = os.open(self._path(self._segment), os.O_WRONLY | os.O_APPEND)
        self._unsynced = True
        try:
            rest = memoryview(payload)
            while rest:
                rest = rest[os.write(handle, rest) :]
        finally:
            os.close(handle)
        self._offset += len(payload)
        self._position = after

    def _make_segment(self, identity: str) -> None:
        """Begin the next file; the one before it is on the disk by then, whoever wrote it."""
        if self._segment:
            _sync(self._path(self._segment))
        path = self._path(self._segment + 1)
        draft = path.with_suffix(".new")
        with draft.open("wb") as file:
            file.write(lines.header(identity, self._segment + 1, self._position) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        _sync(self.folder)
        self._read_on() if self._segment else self._open_and_read()

    def _open_and_read(self) -> None:
        self._open_last()
        self._read_segment()


def _add(after: Position, payload: bytearray, dataset: str, entries: Sequence[Logged]) -> Exception | None:
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


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _unusable(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LogUnusable(f"it can't be {what}: {error.strerror}") from None


# --- the whole of it ----------------------------------------------------------------------------


def entries(log: LedgerLog) -> Iterator[tuple[int, str, Logged]]:
    """Every entry with its number and dataset, each line checked against all before it: (n, dataset, entry).

    A last line without a newline is left out: nobody was answered for it. Raises LogUnusable.
    """
    position, identity = Position(0, GENESIS, {}), None
    found = log.segments()
    if [int(path.stem) for path in found] != list(range(1, len(found) + 1)):
        raise LogUnusable("one of its files is missing")
    for number, path in enumerate(found, 1):
        with _unusable("read"), path.open("rb") as file:
            first = file.readline().removesuffix(b"\n")
            name, _, begins = lines.read_header(first)
            identity = name if identity is None else identity
            if first != lines.header(identity, number, position):
                raise LogUnusable(f"{path.name} does not follow the file before it")
            position = begins
            for line in file:
                if not line.endswith(b"\n"):
                    if number < len(found):
                        raise LogUnusable(f"{path.name} ends within a line")
                    break
                dataset, entry = lines.follow(position, line[:-1], thorough=True)
                yield position.n, dataset, entry


def signed_problem(log: LedgerLog, n: int, head: SignedHead) -> str | None:
    """Return how a log of `n` entries is not the one of which a head was signed, or None."""
    if n < head.size:
        return f"it holds {n:,} entries, and {head.size:,} were signed: an older copy was put back"
    entry = entry_at(log, head.size)
    if entry is None or head.leaf not in (None, leaf_digest(leaf(*entry[1:]))):
        return f"its entry {head.size:,} is another one than was signed: an older copy went on"
    return None


def entry_at(log: LedgerLog, n: int) -> tuple[str, str, int, str] | None:
    """Return the `n`-th entry, or None: (hash of its line, dataset, number, hash). One file is read."""
    for path in reversed(log.segments()):
        with _unusable("read"), path.open("rb") as file:
            _, _, position = lines.read_header(file.readline().removesuffix(b"\n"))
            if position.n >= n:
                continue
            for line in file:
                if not line.endswith(b"\n"):
                    return None
                dataset, entry = lines.follow(position, line[:-1])
                if position.n == n:
                    return position.line, dataset, entry.seq, entry.hash
            return None
    return None
