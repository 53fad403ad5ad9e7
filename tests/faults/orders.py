"""Orders: the harness tells a process by file what shall happen to it at a crash point.

An order is a file named after the point. The first process to reach the point renames it away, so
each order is carried out once, by one process, and what is in `taken` has happened.
"""

import errno
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from accountant import faults

WITNESSED = "worker.opens data"


@dataclass(frozen=True)
class Taken:
    """An order that a process took: where, by which process, and what it was."""

    point: str
    pid: int
    action: str


class Hook:
    """The hook that a process of the harness runs at every crash point."""

    def __init__(self, folder: Path) -> None:
        self.orders, self.taken = folder / "orders", folder / "taken"
        self.witness, self.reached = folder / "witness.jsonl", folder / "reached"

    def __call__(self, point: str, facts: dict[str, object]) -> None:
        if point == WITNESSED:
            append(
                self.witness,
                {"at": time.time_ns(), **{name: str(fact) for name, fact in facts.items()}},
            )
        mark = self.reached / point
        if not mark.exists():
            mark.touch()
        pid = os.getpid()
        mine = self.taken / f"{point}~{pid}~{time.monotonic_ns()}"
        try:
            os.rename(self.orders / point, mine)
        except FileNotFoundError:
            return
        match mine.read_text().split():
            case ["kill"]:
                os.kill(pid, signal.SIGKILL)
            case ["stop", _]:
                os.kill(pid, signal.SIGSTOP)  # the harness sends SIGCONT when the time is over
            case ["error"]:
                raise OSError(errno.ENOSPC, "the fault harness says that the disk is full")


def append(path: Path, document: dict[str, object]) -> None:
    """One line, on the disk before this returns."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, json.dumps(document).encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)


class Board:
    """The harness's side: gives orders and sees which were taken."""

    def __init__(self, folder: Path) -> None:
        self.hook = Hook(folder)
        for path in (self.hook.orders, self.hook.taken, self.hook.reached):
            path.mkdir(parents=True)
        self._seen: set[str] = set()

    def give(self, point: str, action: str) -> None:
        """Let this happen to the next process that reaches `point`."""
        draft = self.hook.orders.parent / "draft"
        draft.write_text(action)
        os.rename(draft, self.hook.orders / point)

    def withdraw(self, point: str) -> bool:
        """Take an order back; False where somebody took it before."""
        try:
            (self.hook.orders / point).unlink()
        except FileNotFoundError:
            return False
        return True

    def news(self) -> list[Taken]:
        """Orders taken since the last look."""
        found = []
        for path in sorted(self.hook.taken.iterdir()):
            if path.name not in self._seen:
                self._seen.add(path.name)
                point, pid, _ = path.name.split("~")
                found.append(Taken(point, int(pid), path.read_text()))
        return found

    def points_reached(self) -> set[str]:
        """Every point that any process has been at."""
        return {path.name for path in self.hook.reached.iterdir()} & set(faults.POINTS)
