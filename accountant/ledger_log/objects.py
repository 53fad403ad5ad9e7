"""The log in an object store: each write creates an object that nobody replaces.

    ADDRESS/entries/<first / 1024>/<first>.jsonl    lines, by the number of the first entry
    ADDRESS/heads/<n>.json                          a header (lines.py) after `n` entries; a process
                                                    that starts reads the newest

The next object's name follows from the entries before it, and it is created with If-None-Match: of
two writers one creates it, and the other reads it and goes on after it. So there is no lock, and a
look is one GET, of the next name. Listings say what may be read ahead, and what has to be there;
what they leave out is asked for by its name (decision 0083).
"""

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from secrets import token_hex
from typing import IO, Any

from accountant.core.errors import LogUnusable
from accountant.core.ledger.hash_chain import GENESIS
from accountant.faults import reached
from accountant.ledger_log import lines
from accountant.ledger_log.kept_heads import create_object, read_object
from accountant.ledger_log.lines import Logged, Position
from accountant.ledger_log.log import LOCK_SECONDS, LedgerLog, Segment, add_lines
from accountant.ledger_log.signed import SignedPlaces

logger = logging.getLogger(__name__)

#: Entries whose objects share a folder; so often a header is written.
TOGETHER = 1024
#: Each call of the store ends after this.
CALL_SECONDS = 10.0
#: After a call that failed nobody asks the store again for so long.
_PAUSE_SECONDS = 1.0
#: Objects that are read one by one before others are listed and read ahead, so many at once.
_ONE_BY_ONE, _AT_ONCE = 8, 128
_PROBE = "probe"


class ObjectLog(LedgerLog):
    """The log at one address, whose processes share no folder."""

    def __init__(
        self,
        address: str,
        together: int = TOGETHER,
        signed: SignedPlaces | None = None,
        *,
        mending: bool = False,
    ) -> None:
        super().__init__(address.rstrip("/"), signed, mending)
        self._together = together
        self._opened: tuple[int, Any, str] | None = None
        self._listed = 0  # an object with this entry was there when the log was opened
        self._last = ""  # the object that was read or created last
        self._conditional = False  # whether the store refused to replace an object
        #: The object that a write without an answer may not have created, and its lines.
        self._unwritten: tuple[str, bytes] | None = None
        self._failed, self._try_again = "", 0.0

    # --- the store ------------------------------------------------------------------------------

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Raise LogUnusable for whatever the store's library raises, and for a moment after it."""
        if time.monotonic() < self._try_again:
            raise LogUnusable(self._failed)
        try:
            yield
        except LogUnusable:
            raise
        except Exception as error:  # each store's library has errors of its own
            named = error if isinstance(error, ImportError) else type(error).__name__
            self._failed = f"it can't be {what} at {self.place}: {named}"
            self._try_again = time.monotonic() + _PAUSE_SECONDS
            raise LogUnusable(self._failed) from None

    def _store(self) -> tuple[Any, str]:
        """Return the file system and the path in it. A forked process opens its own."""
        if self._opened is None or self._opened[0] != os.getpid():
            from accountant.results import place_at  # fsspec is where an address names it

            system, path = place_at(self.place, use_listings_cache=False)
            self._opened = (os.getpid(), system, path.rstrip("/"))
        return self._opened[1:]

    def _get(self, name: str) -> bytes | None:
        """Return an object, or None if it is not there."""
        system, root = self._store()
        return read_object(system, f"{root}/{name}", timeout=CALL_SECONDS)

    def _create(self, name: str, content: bytes) -> bool:
        """Return whether an object was created; False if it is there."""
        system, root = self._store()
        return create_object(system, f"{root}/{name}", content, timeout=CALL_SECONDS)

    def _numbers(self, folder: str) -> list[int]:
        """Return the numbers that a folder's objects or folders are named by, in order."""
        system, root = self._store()
        try:
            paths = system.ls(f"{root}/{folder}", detail=False, timeout=CALL_SECONDS)
        except FileNotFoundError:
            return []
        names = [path.rstrip("/").rsplit("/", 1)[-1].split(".")[0] for path in paths]
        return sorted(int(name) for name in names if name.isdigit())

    def _require_conditions(self) -> None:
        """Raise LogUnusable unless the store refuses to create an object that is there."""
        if not self._conditional and self._create(_PROBE, b"\n") and self._create(_PROBE, b"\n"):
            raise LogUnusable("its store replaces objects: it knows no If-None-Match")
        self._conditional = True

    def _group(self, first: int) -> str:
        return f"entries/{first // self._together:016}"

    def _name(self, first: int) -> str:
        """Return the name of the object whose first entry has this number."""
        return f"{self._group(first)}/{first:020}.jsonl"

    # --- reading --------------------------------------------------------------------------------

    def _read_lines(self) -> None:
        with self._asking("read"):
            if self._identity is None:
                # before what is read: all that was there by then has to be found
                self._listed = self._newest()
                self._open()
            if self._identity is not None:
                for name, batch in self._batches(self._position.n):
                    self._take(name, batch)
            if self._position.n < self._listed:
                raise LogUnusable("one of its objects is missing")

    def _newest(self) -> int:
        """Return the first entry of the newest object that a listing names, or 0."""
        for group in reversed(self._numbers("entries")):
            numbers = self._numbers(self._group(group * self._together))
            if numbers:
                return numbers[-1]
        return 0

    def _open(self) -> None:
        """Stand where the newest header says; the first one needs no listing."""
        for n in sorted({0, *self._numbers("heads")}, reverse=True):
            header = self._get(_head(n))
            if header is not None:
                header = header.removesuffix(b"\n")
                identity, number, begins = lines.read_header(header, chained=False)
                if not number == begins.n == n:
                    raise LogUnusable(f"{_head(n)} is the header of another place")
                self._identity, self._position = identity, begins
                return

    def _batches(self, n: int) -> Iterator[tuple[str, bytes]]:
        """Yield the objects after the first `n` entries, with their names."""
        ahead: dict[str, bytes] = {}
        count, listed = 0, ""
        while True:
            name, group = self._name(n + 1), self._group(n + 1)
            if count >= _ONE_BY_ONE and name not in ahead and group != listed:
                ahead, listed = self._read_ahead(n + 1), group
            batch = ahead.pop(name, None) or self._get(name)
            if batch is None:
                return
            if not batch.endswith(b"\n"):
                raise LogUnusable(f"{name} ends within a line")
            yield name, batch
            n, count = n + batch.count(b"\n"), count + 1

    def _read_ahead(self, first: int) -> dict[str, bytes]:
        """Return the objects that a listing of one folder names from here on, as far as it can."""
        system, root = self._store()
        names = [
            self._name(number) for number in self._numbers(self._group(first)) if number >= first
        ]
        found: dict[str, bytes] = {}
        for start in range(0, len(names), _AT_ONCE):
            paths = [f"{root}/{name}" for name in names[start : start + _AT_ONCE]]
            read = system.cat(paths, on_error="omit", start=0, timeout=CALL_SECONDS)
            found |= {path.removeprefix(f"{root}/"): content for path, content in read.items()}
        return found

    def _take(self, name: str, batch: bytes) -> None:
        """Move on by the lines of an object, all or none."""
        after = self._position.draft()
        for line in batch[:-1].split(b"\n"):
            lines.follow(after, line)
        self._position.take(after)
        self._last = name

    def ordered_segments(self) -> Sequence[Segment]:
        with self._asking("read"):
            newest = self._newest()
            begins = sorted({0, *self._numbers("heads")})
            if not newest and self._get(_head(0)) is None:
                return []
        ends = [*begins[1:], None]
        return [
            Segment(n, _head(n), partial(self._lines, n, end, newest), chained=False)
            for n, end in zip(begins, ends, strict=True)
        ]

    def _lines(self, n: int, end: int | None, newest: int) -> Iterator[bytes]:
        """Yield a header and the lines after it: up to entry `end`, or to the `newest` at least."""
        with self._asking("read"):
            yield self._get(_head(n)) or b""
            batches = self._batches(n)
            while (end is None or n < end) and (found := next(batches, None)) is not None:
                yield from found[1].splitlines(keepends=True)
                n += found[1].count(b"\n")
        if n < (newest if end is None else end):
            raise LogUnusable("one of its objects is missing")

    def entry_at(self, n: int) -> tuple[str, str, int, str] | None:
        with self._asking("read"):
            first = max(
                (number for number in self._numbers(self._group(n)) if number <= n), default=0
            )
            batch = self._get(self._name(first)) if first else None
        rows = (batch or b"").split(b"\n")[:-1]
        if n - first >= len(rows):  # it stands in another folder, or the listing left it out
            return super().entry_at(n)
        return lines.read_entry(rows[n - first], n)

    # --- writing --------------------------------------------------------------------------------

    def begin(self) -> str:
        with self._mutex, self._asking("written"):
            self._require_conditions()
            self._read_lines()
            if self._identity is None:
                header = lines.header(token_hex(16), 0, Position(0, GENESIS, {}))
                self._create(_head(0), header + b"\n")
                self._read_lines()
            assert self._identity is not None
            return self._identity

    def append(self, groups: Sequence[tuple[str, Sequence[Logged]]]) -> list[Exception | None]:
        ends = time.monotonic() + LOCK_SECONDS
        with self._mutex, self._asking("written"):
            if self._identity is None:
                self._read_lines()
                if self._identity is None:
                    raise LogUnusable("it was not begun")
            self._require_conditions()
            is_read = False
            while True:
                after = self._position.draft()
                payload, outcomes = add_lines(after, groups)
                is_known = is_read or not any(outcomes)  # others may have filled a gap
                if is_known and (not payload or self._is_written(payload, after)):
                    break
                if time.monotonic() > ends:
                    raise LogUnusable("other processes are always first to write")
                self._read_lines()  # what another process wrote, or this one without an answer
                is_read = True
        reached("log.written")
        reached("log.synced")
        return outcomes

    def _is_written(self, payload: bytes, after: Position) -> bool:
        """Return whether lines were written, to stand at `after`; False if others stand there."""
        n = self._position.n
        name = self._name(n + 1)
        self._unwritten = (name, payload)  # unless there is an answer
        created = self._create(name, payload)
        self._unwritten = None
        if created:
            self._position.take(after)
            self._last = name
            if n // self._together != self._position.n // self._together:
                self._write_header()
        return created

    def _write_header(self) -> None:
        """Write where the log stands, for processes that start. They can do without it."""
        assert self._identity is not None
        n = self._position.n
        try:
            self._create(_head(n), lines.header(self._identity, n, self._position) + b"\n")
        except Exception as error:
            logger.warning("a header of the log was not written: %s", type(error).__name__)

    def sync(self) -> None:
        """Do nothing: what was created or read is durable."""

    def require_room(self) -> None:
        """Like `LedgerLog.require_room`. Lines of a write that failed are written again before."""
        with self._mutex, self._asking("written"):
            self._read_on()
            if self._identity is None:  # nobody began the log
                return
            self._require_conditions()
            if self._unwritten is not None:
                self._create(*self._unwritten)  # if another process wrote since, its name is taken
                self._unwritten = None

    def require_writable(self) -> None:
        """Like `LedgerLog.require_writable`. The last object has to be what it was."""
        self._conditional = False
        self.require_room()
        with self._mutex, self._asking("read"):
            last = (self._get(self._last) or b"") if self._last else None
            if last is not None and not lines.ends_with(last, self._position.line):
                raise LogUnusable(f"{self._last} is not what it was")

    # --- kept beside it -------------------------------------------------------------------------

    def is_empty(self) -> bool:
        with self._asking("read"):
            system, root = self._store()
            try:
                return not system.ls(root, detail=False, timeout=CALL_SECONDS)
            except FileNotFoundError:
                return True

    @contextmanager
    def keep(self, name: str) -> Iterator[IO[bytes]]:
        with tempfile.NamedTemporaryFile() as draft:
            yield draft
            draft.flush()
            with self._asking("written"):
                system, root = self._store()
                system.put_file(draft.name, f"{root}/{name}")

    def open_kept(self, name: str) -> IO[bytes]:
        with self._asking("read"):
            system, root = self._store()
            file: IO[bytes] = system.open(f"{root}/{name}", "rb")
        return file

    def is_kept(self, name: str) -> bool:
        with self._asking("read"):
            system, root = self._store()
            found: bool = system.exists(f"{root}/{name}", timeout=CALL_SECONDS)
        return found


def _head(n: int) -> str:
    return f"heads/{n:020}.json"
