"""A JSON Lines export in blocks, read by several processes at once and verified in order by one.

Taking texts apart and hashing them is most of the work and needs no order (entry_runs.py): forked processes
do it and hand over runs through pipes. The one that keeps the books takes the blocks in order, and reads
others itself while it waits, so that all are busy to the end. What has to be judged in full it reads from the
file again. Nothing is written anywhere.
"""

import gc
import io
import marshal
import os
import signal
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from typing import NamedTuple

from accountant.core.errors import HelperLost, VerificationFailed
from accountant.core.ledger.checkpoints import Checkpoint
from accountant.core.ledger.entry_runs import Run, runs
from accountant.core.ledger.export_formats import add_json_row, checked_totals, going_on, read_header
from accountant.core.ledger.saved_exports import WINDOWS, blank_lines, find_end, read_start
from accountant.core.ledger.verified_state import line_after
from accountant.core.ledger.verifier import Verified, Verifier

#: Bytes of a block: a few hundred entries. What is handed over of a few of them fits into a pipe.
BLOCK = 1 << 18
#: Blocks that a helper has before it, and blocks that are read before their turn, at the most.
ASKED, AHEAD = 4, 32
#: Below so many bytes, about 20,000 entries, helpers save little.
SMALL = 20_000_000
#: Processes, if nobody says how many: the books alone take a fifth of the work, so more would wait for them.
MOST = 4


def verify(
    path: str,
    checkpoints: Iterable[Checkpoint] = (),
    pinned: bytes | None = None,
    verifier: Verifier | None = None,
    processes: int | None = None,
) -> Verified | None:
    """Verify an export, as export_formats.verify_lines does; None: it is no regular file of JSON Lines.

    `processes`: this one and its helpers; None: as many as there are processors, where that pays. Raises
    VerificationFailed, OSError, and HelperLost where a helper ended before its work.
    """
    with open(path, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        begins = read_start(file.read(4))
        end, blank = find_end(file, begins.skip)
        file.seek(begins.skip)
        first = file.readline()
        start: int | None = begins.skip + len(first)
        if verifier is not None and verifier.count:
            file.seek(0)
            start = None if begins.added else line_after(file, verifier.count)
        if start is None or not first.startswith(b"{") or b"\r" in first[:-2]:
            return None
        added = [*begins.added, *([WINDOWS] if first.endswith(b"\r\n") else [])]
        added += [blank_lines(blank)] if blank else []
        claimed = read_header(_text(first))
        checked = going_on(verifier, checkpoints)
        if checked.dataset is None:
            checked.dataset = claimed.get("dataset")
        blocks = Blocks(file.fileno(), min(start, end), end)
        if processes is None:
            processes = min(processors(), MOST) if blocks.bytes >= SMALL else 1
        with closing(in_order(blocks, processes)) as ordered:
            for number, block in enumerate(ordered):
                add_block(checked, block, partial(blocks.lines, number))
        found = checked_totals(claimed, checked.result(), pinned)
        return replace(found, added=tuple(added))


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# --- blocks -------------------------------------------------------------------------------------


class Block(NamedTuple):
    """What was found in a block: how many lines, whether all of it is text, and the runs among them."""

    lines: int
    text: bool
    runs: list[Run]


class Blocks:
    """The lines of a file from `start` to `end` in blocks: a line belongs to the one that it begins in.

    `end` None: that of the file.
    """

    def __init__(self, file: int, start: int, end: int | None = None) -> None:
        self._end = os.fstat(file).st_size if end is None else end
        self._file, self._start, self._size = file, start, BLOCK
        self.bytes = self._end - start
        self.count = -(-self.bytes // self._size)

    def lines(self, number: int) -> list[str]:
        """The lines of a block. Of one that is not UTF-8 text, those before what is none."""
        return self._lines(number)[0]

    def block(self, number: int) -> Block:
        """A block, read."""
        lines, text = self._lines(number)
        return Block(len(lines), text, runs(lines))

    def _lines(self, number: int) -> tuple[list[str], bool]:
        data, whole = self._data(number), True
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            text, whole = data[: data.rfind(b"\n", 0, error.start) + 1].decode(), False
        return list(io.StringIO(text, newline="")), whole

    def _data(self, number: int) -> bytes:
        begin = self._start + number * self._size
        stop = min(begin + self._size, self._end)
        if number == 0:
            data = self._read(begin, stop)
        else:  # with the byte before: a line begins after the end of another
            data = self._read(begin - 1, stop)
            first = data.find(b"\n", 0, -1) + 1
            if first == 0:
                return b""
            data = data[first:]
        parts = [data]
        while not parts[-1].endswith(b"\n") and (more := self._read(stop, min(stop + BLOCK, self._end))):
            stop += len(more)
            parts.append(more[: more.find(b"\n") + 1] or more)
        return b"".join(parts)

    def _read(self, begin: int, stop: int) -> bytes:
        parts = []
        while begin < stop and (part := os.pread(self._file, stop - begin, begin)):
            parts.append(part)
            begin += len(part)
        return b"".join(parts)


def add_block(verifier: Verifier, block: Block, lines: Callable[[], list[str]]) -> None:
    """Add the entries of a block; `lines` reads it again, where an entry has to be judged in full."""
    reread = cache(lines)
    at = 0
    for run in block.runs:
        for line in reread()[at : run.line] if at < run.line else ():
            add_json_row(verifier, line)
        done = 0
        while done < len(run.entries):
            known = verifier.add_run(run, done)
            if known == done:
                add_json_row(verifier, reread()[run.line + done])
                known += 1
            done = known
        at = run.line + done
    for line in reread()[at:] if at < block.lines else ():
        add_json_row(verifier, line)
    if not block.text:
        raise VerificationFailed("the file is not UTF-8 text")


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise VerificationFailed("the file is not UTF-8 text") from None


# --- processes ----------------------------------------------------------------------------------


def in_order(blocks: Blocks, processes: int) -> Generator[Block, None, None]:
    """Every block in turn, read here and by `processes` - 1 helpers. Raises HelperLost."""
    ready: dict[int, Block] = {}
    unread = 0  # the first block that nobody was asked for
    with _helpers(blocks, min(processes, blocks.count) - 1) as helpers:
        for number in range(blocks.count):
            while True:
                last = min(blocks.count, number + AHEAD)
                for each in helpers:
                    each.take(ready)
                    while unread < last and each.asked < ASKED:
                        each.ask(unread)
                        unread += 1
                if number in ready:
                    break
                if unread < last:
                    ready[unread] = blocks.block(unread)
                    unread += 1
                else:
                    connection.wait([each.pipe for each in helpers])
            yield ready.pop(number)


class _Helper:
    """A process that reads blocks for this one."""

    def __init__(self, blocks: Blocks, others: list["_Helper"]) -> None:
        self.asked = 0
        self.pipe, its_end = connection.Pipe()
        known = [self.pipe, *(each.pipe for each in others)]
        # Forked: it has the open file, and nothing to import. A command has no other thread.
        self._process = get_context("fork").Process(target=_serve, args=(blocks, its_end, known), daemon=True)
        self._process.start()
        its_end.close()

    def ask(self, number: int) -> None:
        try:
            self.pipe.send_bytes(marshal.dumps(number))
        except OSError:
            raise HelperLost from None
        self.asked += 1

    def take(self, ready: dict[int, Block]) -> None:
        """Take what it has read."""
        try:
            while self.pipe.poll():
                number, lines, text, found = marshal.loads(self.pipe.recv_bytes())  # noqa: S302 (own process)
                ready[number] = Block(lines, text, [Run(*each) for each in found])
                self.asked -= 1
        except (EOFError, OSError):
            raise HelperLost from None

    def end(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.join()


@contextmanager
def _helpers(blocks: Blocks, count: int) -> Iterator[list[_Helper]]:
    helpers: list[_Helper] = []
    try:
        for _ in range(count):
            helpers.append(_Helper(blocks, helpers))
        yield helpers
    finally:
        for each in helpers:
            each.end()


def _serve(blocks: Blocks, pipe: Connection, known: list[Connection]) -> None:
    """Read blocks until the other end is closed. `known`: ends of its parent, which would keep it open."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it
    gc.disable()  # it makes no circles, and memory that it shares stays shared
    for each in known:
        each.close()
    with suppress(EOFError, OSError):
        while True:
            number = marshal.loads(pipe.recv_bytes())  # noqa: S302 (own process)
            lines, text, found = blocks.block(number)
            pipe.send_bytes(marshal.dumps((number, lines, text, [tuple(run) for run in found])))
