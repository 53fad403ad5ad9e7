"""Processes that are found again: started with a mark, recognised by it, and stopped for good.

A pid alone names nobody, because the kernel gives it away again. So a process is a pid with its
start time, and every process of a stack carries two environment variables, the stack's home and its
own name. They outlive the supervisor, its state file and the pid files: the next command finds
them.
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path

HOME_MARK = "EXCHEQUER_STACK"
NAME_MARK = "EXCHEQUER_PROCESS"

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_POLL_SECONDS = 0.05
_HEADER = "=== started "


class StackError(Exception):
    """A process of the stack failed: which one, why, its log's end, and what helps if known."""

    def __init__(self, process: str, reason: str, log: str = "", remedy: str = "") -> None:
        self.remedy = remedy
        self.process = process
        self.reason = reason
        self.log = log
        super().__init__(f"{process}: {reason}" + (f"\n{log}" if log else ""))


@dataclass(frozen=True)
class Handle:
    """A process that can't be mistaken for a later one with the same pid."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "Handle | None":
        """Return the living process with this pid, if there is one."""
        started = _start_mark(pid)
        return cls(pid, started) if started else None

    def alive(self) -> bool:
        """Return True if this very process still runs; a zombie doesn't."""
        return _start_mark(self.pid) == self.started

    def send(self, number: int) -> None:
        """Signal the process, unless it is gone."""
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


@dataclass
class Child:
    """A process that we started (`popen` is set) or adopted from a supervisor that was killed."""

    name: str
    handle: Handle
    popen: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def alive(self) -> bool:
        """Return True if it runs; collects the exit status of a child of ours."""
        if self.popen is not None:
            return self.popen.poll() is None
        return self.handle.alive()

    def ending(self) -> str:
        """Return how it ended, in words."""
        code = self.popen.poll() if self.popen is not None else None
        if code is None:
            return "ended"
        return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"

    def send(self, number: int) -> None:
        """Signal the process, unless it is gone."""
        if self.alive():
            self.handle.send(number)

    def stop(self, steps: Iterable[tuple[int, float]]) -> None:
        """Send each signal in turn and wait that many seconds; SIGKILL ends the list."""
        for number, seconds in steps:
            self.send(number)
            if wait_until(lambda: not self.alive(), seconds):
                break
        else:
            self.send(signal.SIGKILL)
            wait_until(lambda: not self.alive(), 10)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for a condition; returns True if it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def spawn(
    name: str,
    argv: Sequence[str],
    *,
    home: Path,
    cwd: Path,
    environment: Mapping[str, str],
    death_signal: int | None,
    become: Callable[[], None] | None = None,
    inherited: Sequence[int] = (),
) -> Child:
    """Start a process in a session of its own, its output appended to home/logs/<name>.log.

    `death_signal` reaches it when our process dies, however that happens; None lets it live on.
    `become` runs in the child before its program, and gives up rights of ours. The child keeps the
    file descriptors in `inherited`.
    """
    try:
        with open(log_path(home, name), "ab") as output:  # append: `rotate_logs` may truncate it
            output.write(f"{_HEADER}{name} {datetime.now().astimezone().isoformat()}\n".encode())
            output.flush()
            popen = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env={**environment, HOME_MARK: str(home), NAME_MARK: name},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=inherited,
                preexec_fn=_preparation(become, death_signal),  # noqa: PLW1509 (it takes no lock)
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise StackError(name, f"can't be started: {error}") from error
    # Not yet collected, so the pid is still its own: a mark of "" says that it is a zombie already.
    return Child(name, Handle(popen.pid, _start_mark(popen.pid) or ""), popen)


def find(home: Path, names: Sequence[str] = (), *, but: Sequence[str] = ()) -> list[Child]:
    """Return living processes that carry the mark of this home: those named, or all `but` some.

    The oldest comes first, so that a server comes before the workers that it forked.
    """
    import psutil  # type: ignore[import-untyped]

    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    children: list[Child] = []
    for process in psutil.process_iter():
        try:
            marks = process.environ()
        except (psutil.Error, OSError):
            continue  # gone, or somebody else's
        name = marks.get(NAME_MARK, "")
        wanted = name in names if names else name not in but
        if process.pid in ours or marks.get(HOME_MARK) != str(home) or not wanted:
            continue
        handle = Handle.of(process.pid)
        if handle:
            children.append(Child(name, handle))
    return sorted(children, key=lambda child: _age_key(child.handle))


def stop_together(children: Sequence[Child], seconds: float) -> None:
    """SIGTERM to all, one wait for all, then SIGKILL to those that remain."""
    for child in children:
        child.send(signal.SIGTERM)
    wait_until(lambda: not any(child.alive() for child in children), seconds)
    for child in children:
        child.stop([])


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; waits for its holder. The kernel frees it when its holder dies."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def log_path(home: Path, name: str) -> Path:
    """Return the path of the log of a process of this home."""
    return home / "logs" / f"{name}.log"


def log_tail(home: Path, name: str, lines: int = 20) -> str:
    """Return the last lines that the latest start of a process wrote."""
    try:
        with open(log_path(home, name), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 64 * 1024))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    _, header, latest = text.rpartition(_HEADER)
    return "\n".join(latest.splitlines()[bool(header) :][-lines:])


def rotate_logs(home: Path, bound: int) -> None:
    """Copy a log beyond the bound aside and truncate it: its writer keeps the file open."""
    import shutil

    for log in (home / "logs").glob("*.log"):
        if log.stat().st_size > bound:
            with suppress(OSError):  # on a full disk the bound matters more than the copy
                shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)


def _start_mark(pid: int) -> str | None:
    """Return when a living process started, by no changeable clock; None if it is gone."""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else f"{_boot()}/{fields[19]}"
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(process.create_time())
    except psutil.Error:
        return None


@lru_cache(maxsize=1)
def _boot() -> str:
    """Return the id of this boot: start times count from it, and the state file survives it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _age_key(handle: Handle) -> tuple[float, int]:
    return float(handle.started.rpartition("/")[2]), handle.pid


def _preparation(
    become: Callable[[], None] | None, death_signal: int | None
) -> Callable[[], None] | None:
    """Return what a child runs before its program; it dies with us if the kernel can."""
    if death_signal is None or sys.platform != "linux":
        return become
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def prepare() -> None:
        if become is not None:
            become()  # first: the kernel forgets the signal when the user changes
        libc.prctl(_PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return prepare
