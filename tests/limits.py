"""No test waits for ever, and whatever does is named. tests/conftest.py makes this a plugin.

pytest-timeout ends what a test waits for, by a signal, and its fixtures clean up behind it. A lock
within C, or a fixture that waits in its turn, does not end by that. So the process ends
`GRACE_SECONDS` later, with all that it started: pytest-xdist names the test as the one that ended
it, and goes on in another process.
"""

import faulthandler
import os
import time
from contextlib import suppress
from threading import Thread

import psutil
import pytest

#: For the tear-down of a test that was ended, with all that the whole run started.
GRACE_SECONDS = 120.0
#: For threads that nobody stopped, after the last test.
END_SECONDS = 60.0


class Watch(Thread):
    """The thread that ends this process when it is late."""

    def __init__(self) -> None:
        super().__init__(name="limits", daemon=True)
        self.due: float | None = None
        self.what = ""
        #: Where the run writes its errors; those of a test are captured.
        self.errors = os.dup(2)

    def expect(self, what: str, seconds: float) -> None:
        self.due, self.what = time.monotonic() + seconds, what

    def run(self) -> None:
        while True:
            time.sleep(0.5)
            due = self.due
            if due is not None and time.monotonic() > due:
                self.end()

    def end(self) -> None:
        """End this process, and what it started, in the state that is written."""
        os.write(self.errors, f"\n{self.what}: not over, its process is ended\n".encode())
        faulthandler.dump_traceback(self.errors)
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
        os._exit(1)


WATCH = pytest.StashKey[Watch]()
#: The tests that run in all processes, and since when.
RUNNING: dict[str, float] = {}


def pytest_configure(config: pytest.Config) -> None:
    watch = config.stash[WATCH] = Watch()
    watch.start()


def pytest_timeout_set_timer(item: pytest.Item, settings) -> None:
    """pytest-timeout sets its own, shorter one after this."""
    item.config.stash[WATCH].expect(item.nodeid, settings.timeout + GRACE_SECONDS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    try:
        return (yield)
    finally:
        item.config.stash[WATCH].due = None


@pytest.hookimpl(wrapper=True)
def pytest_enter_pdb(config: pytest.Config):
    """Whoever debugs takes their time."""
    config.stash[WATCH].due = None
    return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # pytest-xdist ends its processes
        config.stash[WATCH].expect("the end of the run", END_SECONDS)


def pytest_runtest_logstart(nodeid: str) -> None:
    RUNNING[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    RUNNING.pop(nodeid, None)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when not in ("setup", "call", "teardown"):  # its process died
        RUNNING.pop(report.nodeid, None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was running when the run was ended."""
    for nodeid, since in RUNNING.items():
        terminalreporter.write_line(f"STILL RUNNING {nodeid} ({time.monotonic() - since:.0f} s)")
