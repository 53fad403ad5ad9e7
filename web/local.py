"""The local stack: `up` starts it in the background, `down` stops it, `status` looks.

    up ── starts ──▶ supervisor (own session, one thread, home/logs/supervisor.log)
                        ├─ PostgreSQL, Valkey      live on when the supervisor is killed
                        ├─ migrate                 runs once
                        └─ web, relay, workers     end with the supervisor, however it ends

The supervisor writes what it does to home/run/stack.json, and the functions here read it.
DATABASE_URL and BROKER_URL replace a server, which then isn't started.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from accountant.settings import Settings
from web.stack import conditions, postgres, state
from web.stack.addresses import SERVERS, database_url, environment, page_address, redis_url
from web.stack.processes import (
    HOME_MARK,
    NAME_MARK,
    Handle,
    StackError,
    find,
    locked,
    log_tail,
    stop_together,
    wait_until,
)
from web.stack.programs import PROGRAMS, ROOT, Program
from web.stack.servers import Servers
from web.stack.state import ProcessStatus, Status

__all__ = [
    "PROGRAMS",
    "ProcessStatus",
    "Program",
    "Servers",
    "StackError",
    "Status",
    "down",
    "environment",
    "redis_url",
    "status",
    "up",
]

Say = Callable[[str], None]

_LOOK_SECONDS = 0.1
_STOP_SECONDS = 180.0  # more than all that the supervisor grants together
_LEFT_SECONDS = 10.0  # for programs whose supervisor was killed, until SIGKILL
_TITLES = {"postgres": "PostgreSQL", "valkey": "Valkey", "migrate": "migrations"}
_TITLES |= {"generate": "generate worker", "checks": "checks worker"}


def up(settings: Settings, *, on_progress: Say, programs: Sequence[Program] = PROGRAMS) -> Status:
    """Start the stack unless it runs, and wait until every process is ready.

    Raises StackError with the name and the last lines of the process that failed. When the start
    fails, nothing is left running.
    """
    home = settings.home.resolve()
    embedded = environment(settings)["DATABASE_URL"] == database_url(home)
    conditions.require(settings, database=embedded)
    with locked(home / "run" / "up.lock"):
        record = state.read(home)
        supervisor = record.supervisor() if record else None
        if record and supervisor and record.phase == "running":
            on_progress("already running")
        else:
            if record and supervisor and record.phase != "starting":  # on its way out
                _await_end(record)
                supervisor = None
            if supervisor is None:
                if embedded and (outside := postgres.touched_outside()):
                    on_progress(outside)
                _launch(settings, programs)
            _follow_start(home, on_progress)
    running = status(settings)
    for process in running.processes:
        if process.state == "waiting":
            raise StackError(process.name, "doesn't stay up", log_tail(home, process.name))
    return running


def down(settings: Settings, *, on_progress: Say) -> None:
    """Stop the stack and processes left by a killed supervisor; both servers keep their data."""
    home = settings.home.resolve()
    if not (home / "run").is_dir():
        return
    with locked(home / "run" / "up.lock"):
        record = state.read(home)
        supervisor = record.supervisor() if record else None
        if supervisor:
            _end(home, supervisor, on_progress)
        servers = Servers(home)
        servers.claim()  # refuses while somebody else, such as a test run, uses this home
        left = find(home) + state.survivors(home)
        if left:
            names = sorted({_title(child.name) for child in left})
            on_progress(f"stopping what was left behind: {', '.join(names)}")
        stop_together([child for child in left if child.name not in SERVERS], _LEFT_SECONDS)
        servers.stop()
        state.forget(home)


def status(settings: Settings) -> Status:
    """Return the state of the stack now."""
    home = settings.home.resolve()
    record = state.read(home)
    supervised = record is not None and record.supervisor() is not None
    urls = environment(settings)
    return Status(
        running=record is not None and supervised and record.phase == "running",
        phase=record.phase if record and supervised else "stopped",
        processes=[p.observed(supervised) for p in record.processes.values()] if record else [],
        address=record.address if record and supervised else page_address(settings),
        database_url=urls["DATABASE_URL"],
        broker_url=urls["BROKER_URL"],
    )


def _launch(settings: Settings, programs: Sequence[Program]) -> None:
    """Start a supervisor that owes nothing to our terminal, session or process.

    It has let go of the pipes, and written its first record, when `run` returns.
    """
    home = settings.home.resolve()
    before = state.read(home)
    outside = {key: value for key, value in os.environ.items() if key not in (HOME_MARK, NAME_MARK)}
    started = subprocess.run(
        (sys.executable, "-m", "web.stack.supervisor"),
        input=json.dumps([program.model_dump() for program in programs]),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**outside, **environment(settings)},
    )
    after = state.read(home)
    if after is None or (before and (before.pid, before.started) == (after.pid, after.started)):
        raise StackError("supervisor", "did not start", started.stderr[-2000:])


def _follow_start(home: Path, on_progress: Say) -> None:
    """Report each process that becomes ready until all are; the supervisor keeps the time."""
    lines: set[str] = set()
    while True:
        record = state.read(home)
        alive = record is not None and record.supervisor() is not None
        if not alive:  # what it wrote is final now
            record = state.read(home)
        if record is None:
            raise StackError("supervisor", "was stopped while it started")
        if record.taken and "port" not in lines:
            lines.add("port")
            on_progress(record.taken)
        for name, process in record.processes.items():
            if process.state in ("running", "done") and name not in lines:
                lines.add(name)
                on_progress(f"{_title(name)} {'ready' if process.state == 'running' else 'done'}")
        if record.phase == "running":
            return
        if record.failed:
            _await_end(record)
            raise StackError(
                record.failed, record.reason, log_tail(home, record.failed), record.remedy
            )
        if not alive:
            raise StackError("supervisor", "ended", log_tail(home, "supervisor"))
        time.sleep(_LOOK_SECONDS)


def _end(home: Path, supervisor: Handle, on_progress: Say) -> None:
    """Ask the supervisor to stop all, report each process, and kill it when it takes too long."""
    lines: set[str] = set()

    def gone() -> bool:
        ended = not supervisor.alive()  # looked at first: the record is then final
        record = state.read(home)
        for name, process in (record.processes if record else {}).items():
            if process.state == "stopped" and name not in lines:
                lines.add(name)
                on_progress(f"{_title(name)} stopped")
        return ended

    supervisor.send(signal.SIGTERM)
    if not wait_until(gone, _STOP_SECONDS):
        supervisor.send(signal.SIGKILL)
        wait_until(gone, 10.0)


def _await_end(record: state.Record) -> None:
    wait_until(lambda: record.supervisor() is None, _STOP_SECONDS)


def _title(name: str) -> str:
    return _TITLES.get(name, name)
