"""The files of the log: appended under a lock between processes, synced before anybody is answered.

    folder/00000001.jsonl, 00000002.jsonl, …    each begins with a header (lines.py); only the last
                                                one grows
    folder/lock                                 held while lines are written, and waits for nothing

A process keeps each dataset's head in memory and reads what others appended from where it stopped,
so a look costs one `stat`. A line that a crash cut short has no newline: it was never answered for,
and the next writer cuts it off. Whoever writes does not hold the lock while it syncs: a sync covers
what others wrote before it.
"""

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from secrets import token_hex
from typing import Any

from accountant.core.errors import LedgerBehind, LogUnusable
from accountant.core.files.private import sync_folder
from accountant.core.ledger.hash_chain import GENESIS, EntryKind
from accountant.core.transparency.proofs import leaf
from accountant.core.transparency.witnesses import leaf_digest
from accountant.faults import reached
from accountant.ledger_log import lines
from accountant.ledger_log.lines import Head, Logged, Position
from accountant.ledger_log.signed import SignedHead, SignedPlaces

#: A file is closed when it has reached this size in bytes. A process that starts reads the last
#: one.
SEGMENT_BYTES = 16 * 2**20
_BLOCK = 2**20
#: Kept free for what is being written when the disk fills: many entries of a few kilobytes.
ROOM_BYTES = 4 * 2**20
_ROOM = "room"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MEND_SECONDS = 1.0
#: Nobody waits for longer for a lock of the log: whoever has it may wait for a disk that hangs.
LOCK_SECONDS = 10.0


class Gap(Exception):
    """Entries between the log's head and new ones are missing, and come from the database."""

    def __init__(self, after: int):
        self.after = after
        super().__init__(f"the log ends at entry {after}")


class _Lock:
    """A lock between threads. Raises LogUnusable where another thread has it for too long."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        if not self.lock.acquire(timeout=LOCK_SECONDS):
            raise LogUnusable("its disk does not answer")

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class LedgerLog:
    """The log in one folder, as one process sees it. Threads may share it.

    Every method raises LogUnusable where the files can't be read or written, do not follow one
    another, have become shorter than they were, or are not what was `signed`.
    """

    def __init__(
        self,
        folder: Path,
        segment_bytes: int = SEGMENT_BYTES,
        signed: SignedPlaces | None = None,
        *,
        mending: bool = False,
    ) -> None:
        self.folder = folder
        self._room = str(folder / _ROOM)
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
        self._segment_bytes = segment_bytes
        self._syncing = _Lock()
        self._looking = _Lock()  # at the room: where that hangs, one thread hangs
        self._mutex = _Lock()  # of what follows; taken after the lock between processes
        self._identity: str | None = None
        self._segment = 0
        self._paths: dict[int, Path] = {}
        self._inode = 0
        self._offset = 0
        self._last_bytes = 0  # of the last line, without its newline
        self._position = Position(0, GENESIS, {})
        self._unsynced = False
        self._synced = 0  # up to this byte of the last file a sync of this process succeeded
        #: The last file, open: of a write that failed later the kernel tells whoever had it open
        #: before.
        self._file: FileIO = open(os.devnull, "rb", buffering=0)  # noqa: SIM115
        self._file_of: tuple[int, int] = (0, 0)
        self._failed: str | None = None
        self._failed_file: FileIO | None = None
        self._try_again = 0.0  # when what a failed sync may have lost is written again

    # --- reading --------------------------------------------------------------------------------

    @property
    def identity(self) -> str | None:
        """The random name in the log's header; None: nothing was written to this folder yet."""
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
        """Read what any process appended since the last look, and compare it with signed heads."""
        self._mend()
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
        with self._mutex, _unusable("read"):
            heads = self.signed.heads()
            self._read_lines()
            return self._problems(heads)

    def _problems(self, heads: Sequence[SignedHead]) -> dict[SignedHead, str]:
        problems = {}
        for head in heads:
            problem = signed_problem(self, self._position.n, head)
            if problem is not None and head not in self._settled:
                problems[head] = problem
        if problems and self._settled_at != self._position.n:
            self._settled |= settled_heads(self)
            self._settled_at = self._position.n
        return {head: problem for head, problem in problems.items() if head not in self._settled}

    def _read_lines(self) -> None:
        if not self._segment:
            self._open_last()
        while self._segment:
            self._read_segment()
            if not self._path(self._segment + 1).exists():
                return
            self._segment, self._inode, self._offset, self._synced = self._segment + 1, 0, 0, 0

    def _open_last(self) -> None:
        segments = self.segments()
        if not segments:
            return
        if [int(path.stem) for path in segments] != list(range(1, len(segments) + 1)):
            raise LogUnusable("one of its files is missing")
        self._segment = len(segments)
        self._unsynced = True  # whoever wrote it may have been killed before its sync

    def _read_segment(self) -> None:
        path = self._path(self._segment)
        state = path.stat()
        if state.st_size < self._offset or self._inode not in (0, state.st_ino):
            raise LogUnusable(f"{path.name} was cut short or replaced")
        self._inode = state.st_ino
        if self._file_of != (os.getpid(), self._segment):  # one of a parent is told once for both
            self._file, self._file_of = path.open("rb", buffering=0), (os.getpid(), self._segment)
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
        self._last_bytes = len(line)
        self._unsynced = True

    def _begin_at(self, line: bytes) -> None:
        log, segment, begins = lines.read_header(line)
        if segment != self._segment or self._identity not in (None, log):
            raise LogUnusable(f"{self._path(self._segment).name} belongs to another log")
        if self._identity is not None and line != lines.header(log, segment, self._position):
            raise LogUnusable(f"{self._path(segment).name} does not follow the file before it")
        self._identity, self._position = log, begins

    def segments(self) -> list[Path]:
        """Return the files, in order."""
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
        """Append entries of several datasets, each in order, in one write and one sync, without
        known ones.

        Returns for each group None once it is on the disk, else what is wrong with it: Gap, or
        LedgerBehind where the log holds another entry. Of such a group nothing is written.
        """
        with self._writing():
            if self._identity is None:
                raise LogUnusable("it was not begun")
            if self._offset >= self._segment_bytes:
                self._make_segment(self._identity)
            after, payload = self._position.draft(), bytearray()
            outcomes = [_add(after, payload, dataset, entries) for dataset, entries in groups]
            if payload:
                self._write(bytes(payload), after)
        reached("log.written")
        self.sync()
        return outcomes

    def sync(self) -> None:
        """Put on the disk what this process knows of the log, its own and others'."""
        # whoever waits here finds its lines synced by the one before, or syncs for all
        with self._syncing:
            with self._mutex:
                self._mend()
                if not self._unsynced:
                    return
                self._unsynced = False  # what is read from here on is not covered
                file, offset = self._file, self._offset
            try:
                os.fsync(file.fileno())
            except OSError as error:
                with self._mutex.lock:  # however long it takes: a failed sync is never forgotten
                    self._failed, self._failed_file = f"a sync failed ({error.strerror})", file
                    self._mend()
            else:
                with self._mutex.lock:
                    self._synced = offset if self._file is file else self._synced
        reached("log.synced")

    def _mend(self) -> None:
        """After a failed sync, write the lines again that it may have lost, and sync them.

        The kernel may have dropped what it could not write, and calls it clean: another sync alone
        would succeed. Raises LogUnusable where that fails too; it is tried again a second later.
        """
        if self._failed is None:
            return
        if time.monotonic() < self._try_again:
            raise LogUnusable(self._failed)
        self._try_again = time.monotonic() + _MEND_SECONDS
        if self._failed_file is not self._file:
            raise LogUnusable(
                f"{self._failed}, and another file was begun since: restart the service"
            )
        try:
            with self._path(self._segment).open("r+b") as file:
                file.seek(self._synced)
                written = file.read(self._offset - self._synced)
                if written and not lines.ends_with(written, self._position.line):
                    raise LogUnusable(f"{self._failed}, and lines were lost: restart the service")
                file.seek(self._synced)
                file.write(written)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._failed = f"a sync failed ({error.strerror})"
            raise LogUnusable(self._failed) from None
        self._failed, self._unsynced, self._synced = None, False, self._offset

    def require_room(self) -> None:
        """Raise LogUnusable unless lines could be written now: call it before anything is reserved.

        A file of `ROOM_BYTES` lies beside the log. It is given up when the disk fills, so that what
        is being committed still finds room; nothing more begins until it stands again.
        """
        with self._mutex:
            self._mend()
        with self._looking, _unusable("written"):
            with suppress(FileNotFoundError):
                if os.stat(self._room).st_size == ROOM_BYTES:
                    return
            if not self.folder.exists():  # nobody began the log
                return
            draft = self.folder / f"{_ROOM}.{os.getpid()}.{threading.get_ident()}"
            try:
                with draft.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
                draft.rename(self._room)
            except OSError:
                draft.unlink(missing_ok=True)
                raise

    def require_writable(self) -> None:
        """Like `require_room`, but lock and disk are tried too.

        A byte beside the log is written and synced.
        """
        self.require_room()
        if self.folder.exists():
            with self._writing():
                pass
            with _unusable("written"), (self.folder / _ROOM).open("r+b") as file:
                file.write(b"\0")
                file.flush()
                os.fsync(file.fileno())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Return the lock between processes, all written lines read and a cut-off line removed."""
        with _unusable("written"), (self.folder / "lock").open("ab") as lock:
            _take_lock(lock.fileno())
            try:
                with self._mutex:
                    self._read_on()
                    self._require_last_line()
                    if self._segment and self._path(self._segment).stat().st_size > self._offset:
                        os.truncate(self._path(self._segment), self._offset)
                    yield
            finally:
                # Said, not left to the end of the file: a child that was forked meanwhile has it
                # open too.
                fcntl.flock(lock, fcntl.LOCK_UN)

    def _require_last_line(self) -> None:
        """Raise LogUnusable if the last line is another than was read: it was overwritten."""
        if not self._segment:
            return
        size = self._last_bytes + 1
        line = os.pread(self._file.fileno(), size, self._offset - size)
        if not lines.ends_with(line, self._position.line):
            raise LogUnusable(
                f"the last line of {self._path(self._segment).name} is another one than it was"
            )

    def _write(self, payload: bytes, after: Position) -> None:
        """Write lines. On a full disk whole lines stay, and the next look finds them."""
        handle = os.open(self._path(self._segment), os.O_WRONLY | os.O_APPEND)
        self._unsynced = True
        try:
            rest = memoryview(payload)
            while rest:
                try:
                    rest = rest[os.write(handle, rest) :]
                except OSError as error:
                    if error.errno not in _FULL or not (self.folder / _ROOM).exists():
                        raise
                    (self.folder / _ROOM).unlink(missing_ok=True)  # what was begun is ended
        finally:
            os.close(handle)
        self._offset += len(payload)
        self._last_bytes = len(payload) - payload.rfind(b"\n", 0, -1) - 2
        self._position.take(after)

    def _make_segment(self, identity: str) -> None:
        """Begin the next file; the one before it is on the disk by then, whoever wrote it."""
        if self._segment:
            self._unsynced = True
            try:
                os.fsync(self._file.fileno())
            except OSError as error:
                self._failed, self._failed_file = f"a sync failed ({error.strerror})", self._file
                self._mend()
        (self.folder / _ROOM).unlink(missing_ok=True)  # the new file's header finds room
        path = self._path(self._segment + 1)
        draft = path.with_suffix(".new")
        with draft.open("wb") as file:
            file.write(lines.header(identity, self._segment + 1, self._position) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        sync_folder(self.folder)
        self._read_on() if self._segment else self._open_and_read()

    def _open_and_read(self) -> None:
        self._open_last()
        self._read_segment()


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


def _take_lock(lock: int) -> None:
    """Take the lock between processes. Raises LogUnusable if another one has it for too long."""
    ends, pause = time.monotonic() + LOCK_SECONDS, 0.0005
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > ends:
                raise LogUnusable("another process holds its lock") from None
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


@contextmanager
def _unusable(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LogUnusable(f"it can't be {what}: {error.strerror}") from None


# --- the whole of it ----------------------------------------------------------------------------


def entries(log: LedgerLog, *, thorough: bool = True) -> Iterator[tuple[int, str, Logged]]:
    """Yield every entry with its number and dataset, each line checked against all before it: (n,
    dataset, entry).

    `thorough`: as for lines.follow. A last line without a newline is left out: nobody was answered
    for it. Raises LogUnusable.
    """
    position, identity = Position(0, GENESIS, {}), None
    segments = log.segments()
    if [int(path.stem) for path in segments] != list(range(1, len(segments) + 1)):
        raise LogUnusable("one of its files is missing")
    for number, path in enumerate(segments, 1):
        with _unusable("read"), path.open("rb") as file:
            first = file.readline().removesuffix(b"\n")
            name, _, begins = lines.read_header(first)
            identity = name if identity is None else identity
            if first != lines.header(identity, number, position):
                raise LogUnusable(f"{path.name} does not follow the file before it")
            position = begins
            for line in file:
                if not line.endswith(b"\n"):
                    if number < len(segments):
                        raise LogUnusable(f"{path.name} ends within a line")
                    break
                dataset, entry = lines.follow(position, line[:-1], thorough=thorough)
                yield position.n, dataset, entry


def signed_problem(log: LedgerLog, n: int, head: SignedHead) -> str | None:
    """Return how a log of `n` entries is not the one of which a head was signed, or None."""
    if n < head.size:
        return f"it holds {n:,} entries, and {head.size:,} were signed: an older copy was put back"
    entry = entry_at(log, head.size)
    if entry is None or head.leaf not in (None, leaf_digest(leaf(*entry[1:]))):
        return f"its entry {head.size:,} is another one than was signed: an older copy went on"
    return None


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


def entry_at(log: LedgerLog, n: int) -> tuple[str, str, int, str] | None:
    """Return the `n`-th entry (hash of line, dataset, number, hash) of one file, or None."""
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
