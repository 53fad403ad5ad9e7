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
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import FileIO
from pathlib import Path
from secrets import token_hex
from typing import IO

from accountant.core.errors import LogUnusable
from accountant.core.files.private import sync_folder
from accountant.faults import reached
from accountant.ledger_log import lines
from accountant.ledger_log.lines import Logged, Position
from accountant.ledger_log.log import LOCK_SECONDS, LedgerLog, Lock, Segment, add_lines, unusable
from accountant.ledger_log.signed import SignedPlaces

#: A file is closed when it has reached this size in bytes. A process that starts reads the last
#: one.
SEGMENT_BYTES = 16 * 2**20
_BLOCK = 2**20
#: Kept free for what is being written when the disk fills: many entries of a few kilobytes.
ROOM_BYTES = 4 * 2**20
_ROOM = "room"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MEND_SECONDS = 1.0


class FolderLog(LedgerLog):
    """The log in one folder, whose processes take a lock between them."""

    def __init__(
        self,
        folder: Path,
        segment_bytes: int = SEGMENT_BYTES,
        signed: SignedPlaces | None = None,
        *,
        mending: bool = False,
    ) -> None:
        super().__init__(str(folder), signed, mending)
        self.folder = folder
        self._room = str(folder / _ROOM)
        self._segment_bytes = segment_bytes
        self._syncing = Lock()
        self._looking = Lock()  # at the room: where that hangs, one thread hangs
        # The mutex, taken after the lock between processes, is also of what follows.
        self._segment = 0
        self._paths: dict[int, Path] = {}
        self._inode = 0
        self._offset = 0
        self._last_bytes = 0  # of the last line, without its newline
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

    def _read_on(self) -> None:
        self._mend()
        super()._read_on()

    def _read_lines(self) -> None:
        if not self._segment:
            self._open_last()
        while self._segment:
            self._read_segment()
            if not self._path(self._segment + 1).exists():
                return
            self._segment, self._inode, self._offset, self._synced = self._segment + 1, 0, 0, 0

    def _open_last(self) -> None:
        segments = self.ordered_segments()
        if not segments:
            return
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

    def ordered_segments(self) -> Sequence[Segment]:
        paths = self.segments()
        if [int(path.stem) for path in paths] != list(range(1, len(paths) + 1)):
            raise LogUnusable("one of its files is missing")
        return [
            Segment(number, path.name, partial(_lines_of, path), chained=True)
            for number, path in enumerate(paths, 1)
        ]

    def _path(self, segment: int) -> Path:
        if segment not in self._paths:
            self._paths[segment] = self.folder / f"{segment:08}.jsonl"
        return self._paths[segment]

    # --- writing --------------------------------------------------------------------------------

    def begin(self) -> str:
        with unusable("written"):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._writing():
            if not self._segment:
                self._make_segment(token_hex(16))
            assert self._identity is not None
            return self._identity

    def append(self, groups: Sequence[tuple[str, Sequence[Logged]]]) -> list[Exception | None]:
        with self._writing():
            if self._identity is None:
                raise LogUnusable("it was not begun")
            if self._offset >= self._segment_bytes:
                self._make_segment(self._identity)
            after = self._position.draft()
            payload, outcomes = add_lines(after, groups)
            if payload:
                self._write(payload, after)
        reached("log.written")
        self.sync()
        return outcomes

    def sync(self) -> None:
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
        """Like `LedgerLog.require_room`.

        A file of `ROOM_BYTES` lies beside the log. It is given up when the disk fills, so that what
        is being committed still finds room; nothing more begins until it stands again.
        """
        with self._mutex:
            self._mend()
        with self._looking, unusable("written"):
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
            with unusable("written"), (self.folder / _ROOM).open("r+b") as file:
                file.write(b"\0")
                file.flush()
                os.fsync(file.fileno())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Return the lock between processes, all written lines read and a cut-off line removed."""
        with unusable("written"), (self.folder / "lock").open("ab") as lock:
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
        if self._segment:
            self._read_on()
        else:
            self._open_last()
            self._read_segment()

    # --- kept beside it -------------------------------------------------------------------------

    def is_empty(self) -> bool:
        return not (self.folder.exists() and any(self.folder.iterdir()))

    @contextmanager
    def keep(self, name: str) -> Iterator[IO[bytes]]:
        place = self.folder / name
        partial_file = place.with_suffix(".partial")
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with partial_file.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial_file.replace(place)
        for changed in (place.parent, place.parent.parent, self.folder):
            sync_folder(changed)

    def open_kept(self, name: str) -> IO[bytes]:
        return (self.folder / name).open("rb")

    def is_kept(self, name: str) -> bool:
        return (self.folder / name).is_file()


def _lines_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


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
