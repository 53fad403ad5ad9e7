"""The process that starts the stack, looks after it and stops it: one thread, one loop.

A program that ends while the stack starts fails the start; one that ends later is started again,
ever more slowly. When the supervisor is killed, the programs end with it and the servers live on:
the next `up` adopts them, the next `down` stops them.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from accountant.rights import KEYS, PROCESSES, process_urls
from accountant.settings import Settings, load
from web.stack import ports
from web.stack.addresses import SERVERS, broker_url, database_url, environment, page_address
from web.stack.processes import (
    Child,
    Handle,
    StackError,
    find,
    log_path,
    rotate_logs,
    spawn,
    stop_together,
    wait_until,
)
from web.stack.programs import ROOT, Program
from web.stack.servers import Servers
from web.stack.state import Phase, ProcessStatus, Record, State, survivors, write

_START_SECONDS = 180.0  # a worker on a slow disk takes a minute to import its libraries
_TICK_SECONDS = 0.2
_STEADY_SECONDS = 60.0  # whoever ran this long starts again without delay
_LONGEST_DELAY_SECONDS = 30.0
_LOG_BYTES = 10_000_000


@dataclass
class _Running:
    """A program that is kept running."""

    program: Program
    child: Child
    since: float
    failures: int = 0
    retry_at: float | None = None


class Supervisor:
    """One thread that starts everything, looks after it, and stops everything."""

    def __init__(self, settings: Settings, programs: Sequence[Program]) -> None:
        self.settings = settings
        self.home = settings.home.resolve()
        self.programs = [program for program in programs if not program.once]
        self.tasks = [program for program in programs if program.once]
        self.variables = environment(settings)
        self.servers = Servers(
            self.home,  # a shell may have our own addresses in its variables: they replace nothing
            postgres=self.variables["DATABASE_URL"] == database_url(self.home),
            valkey=self.variables["BROKER_URL"] == broker_url(self.home),
            outlive_owner=True,
        )
        self.running: dict[str, _Running] = {}
        self.listener: socket.socket | None = None
        me = Handle.of(os.getpid())
        assert me is not None
        self.record = Record(pid=me.pid, started=me.started, address=page_address(settings))
        self.left_behind = survivors(self.home)  # by a supervisor that was killed
        self._note()

    def run(self) -> None:
        """Until SIGTERM or SIGINT, or until the start fails."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: sys.exit(0))
        try:
            self._start()
            self._note(phase="running")
            while True:
                self._look_after()
                time.sleep(_TICK_SECONDS)
        except StackError as error:
            _log(str(error))
            self.record.failed, self.record.reason = error.process, error.reason
            self.record.remedy = error.remedy
        # a full disk, say: a sentence for `up`
        except (OSError, subprocess.SubprocessError) as error:
            _log(str(error))
            self.record.failed, self.record.reason = "supervisor", f"can't go on: {error}"
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            self._stop()

    def _start(self) -> None:
        self.servers.claim()
        stop_together(self.left_behind + find(self.home, but=SERVERS), 10.0)
        if any(program.page for program in self.programs):
            self.listener, self.settings, self.record.taken = ports.claim(self.settings, self.home)
            self.variables = environment(self.settings)
            self.record.address = page_address(self.settings)
            self._note()
        for name in self.servers.wanted:
            self._note(name, "starting")
            self.servers.start(name)
            self._note(name, "running", self.servers.children[name])
        for task in self.tasks:
            self._run_task(task)
        for program in self.programs:
            self.running[program.name] = _Running(program, self._spawn(program), time.monotonic())
        self._await_ready()

    def _run_task(self, task: Program) -> None:
        child = self._spawn(task)
        if not wait_until(lambda: not child.alive(), _START_SECONDS):
            raise StackError(task.name, f"did not end within {_START_SECONDS:.0f} s")
        if child.popen is None or child.popen.returncode != 0:
            raise StackError(task.name, child.ending())
        self._note(task.name, "done")

    def _await_ready(self) -> None:
        """Wait until every program answers. One that ends fails the start, with its log."""
        waiting = dict(self.running)
        deadline = time.monotonic() + _START_SECONDS
        while waiting:
            for name, entry in list(waiting.items()):
                if not entry.child.alive():
                    raise StackError(name, entry.child.ending())
                if self._ready(entry):
                    self._note(name, "running", entry.child)
                    del waiting[name]
            if waiting and time.monotonic() > deadline:
                raise StackError(min(waiting), f"was not ready within {_START_SECONDS:.0f} s")
            time.sleep(_TICK_SECONDS)

    def _ready(self, entry: _Running) -> bool:
        if entry.program.page:
            return _answers(page_address(self.settings) + entry.program.page)
        if entry.program.alive:
            return self._alive_file(entry.program).exists()
        return time.monotonic() - entry.since > 1.0

    def _look_after(self) -> None:
        for name in self.servers.wanted:
            if not self.servers.children[name].alive():
                self._restart_server(name)
        for name, entry in self.running.items():
            if entry.retry_at is not None and time.monotonic() >= entry.retry_at:
                self._restart(name, entry)
            elif entry.retry_at is None and not entry.child.alive():
                self._schedule(name, entry)
        rotate_logs(self.home, _LOG_BYTES)
        if not (self.home / "run").is_dir():  # nobody could find or stop us any more
            raise StackError("supervisor", f"{self.home} was removed")

    def _schedule(self, name: str, entry: _Running) -> None:
        """The longer it fails, the longer the wait, up to half a minute."""
        stop_together(find(self.home, [name]), 5.0)  # what it forked and left behind
        if time.monotonic() - entry.since > _STEADY_SECONDS:
            entry.failures = 0
        delay = min(_LONGEST_DELAY_SECONDS, 0.5 * 2**entry.failures)
        entry.failures += 1
        entry.retry_at = time.monotonic() + delay
        _log(f"{name} {entry.child.ending()}; starting it again in {delay:.1f} s")
        self._note(name, "waiting")

    def _restart(self, name: str, entry: _Running) -> None:
        try:
            entry.child = self._spawn(entry.program)
        except StackError as error:  # a full disk, say: not a reason to end the others
            _log(str(error))
            entry.retry_at = time.monotonic() + _LONGEST_DELAY_SECONDS
            return
        entry.since, entry.retry_at = time.monotonic(), None
        self.record.processes[name].restarts += 1
        self._note(name, "running", entry.child)

    def _restart_server(self, name: str) -> None:
        _log(f"{name} {self.servers.children[name].ending()}; starting it again")
        self._note(name, "waiting")
        try:
            self.servers.start(name)
        except StackError as error:  # tried again in a while; the data is not ours to give up
            _log(str(error))
            time.sleep(5.0)
            return
        self.record.processes[name].restarts += 1
        self._note(name, "running", self.servers.children[name])

    def _stop(self) -> None:
        """Stop programs stage by stage, then processes that they left, then the servers."""
        self._note(phase="stopping")
        if not self.servers.held:  # somebody else's home
            self._note(phase="failed")
            return
        stages = groupby(sorted(self.programs, key=_stage), key=_stage)
        for _, group in stages:
            entries = [self.running[p.name] for p in group if p.name in self.running]
            bound = max((entry.program.stop_seconds for entry in entries), default=0.0)
            stop_together([entry.child for entry in entries], bound)
            for entry in entries:
                self._note(entry.program.name, "stopped")
        stop_together(find(self.home, but=SERVERS), 5.0)
        self.servers.stop()
        for name in self.servers.wanted:
            self._note(name, "stopped")
        self._note(phase="failed" if self.record.failed else "stopped")

    def _spawn(self, program: Program) -> Child:
        if program.alive:
            self._alive_file(program).unlink(missing_ok=True)
        child = spawn(
            program.name,
            program.argv,
            home=self.home,
            cwd=ROOT,
            environment=self._environment(program),
            death_signal=signal.SIGTERM,
            inherited=[self.listener.fileno()] if self.listener and program.page else [],
        )
        self._note(program.name, "starting", child)
        return child

    def _alive_file(self, program: Program) -> Path:
        """Return the file that a worker touches every two seconds, while it takes messages."""
        return self.home / "run" / f"{program.name}.alive"

    def _environment(self, program: Program) -> dict[str, str]:
        """Return what a program may know: its own keys, and how to connect as its own role, where
        it has one.

        Only what runs once, the migrations, learns how to connect as the owner of the tables.
        """
        variables = {**os.environ, **self.variables, "PYTHONUNBUFFERED": "1"}
        if program.once:
            return variables
        if program.page and self.listener:
            variables[ports.LISTENING] = str(self.listener.fileno())
        if program.alive:
            variables["EXCHEQUER_ALIVE_FILE"] = str(self._alive_file(program))
        urls = process_urls(variables)
        if program.process is not None:
            variables["DATABASE_URL"] = urls.get(program.process, variables["DATABASE_URL"])
            variables["EXCHEQUER_RUNS_AS"] = program.process
            for name, whose in KEYS.items():
                if program.process not in whose:
                    variables.pop(f"EXCHEQUER_KEY_{name.upper()}", None)
        for name in ("OWNER", *(process.upper() for process in PROCESSES)):
            variables.pop(f"DATABASE_{name}_URL", None)
        return variables

    def _note(
        self,
        name: str | None = None,
        state: State = "starting",
        child: Child | None = None,
        *,
        phase: Phase | None = None,
    ) -> None:
        """Publish a change."""
        if name:
            process = self.record.processes.setdefault(name, ProcessStatus(name=name))
            process.state = state
            process.pid = child.handle.pid if child else None
            process.started = child.handle.started if child else ""
        self.record.phase = phase or self.record.phase
        try:
            write(self.home, self.record)
        # a full disk must not take the stack down, nor keep it from ending
        except OSError as error:
            _log(f"can't write the record: {error}")


def _stage(program: Program) -> int:
    return program.stop_stage


def _answers(url: str) -> bool:
    """Return True if the web server answers 200 there. Asks directly, without a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        # until it accepts, the kernel holds the request
        with opener.open(url, timeout=2.0) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _log(line: str) -> None:
    print(time.strftime("%Y-%m-%dT%H:%M:%S"), line, flush=True)


def main() -> None:
    """Become the supervisor: fork, so that `up` leaves no child behind, and let go of its terminal.

    The programs come by standard input: an argument list is public.
    """
    programs = [Program.model_validate(entry) for entry in json.load(sys.stdin)]
    settings = load()
    if os.fork():
        os._exit(0)
    os.setsid()
    supervisor = Supervisor(settings, programs)  # writes the first record while `up` still waits
    output = os.open(
        log_path(supervisor.home, "supervisor"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
    )
    for number, target in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output), (2, output)):
        os.dup2(target, number)
    supervisor.run()


if __name__ == "__main__":
    main()
