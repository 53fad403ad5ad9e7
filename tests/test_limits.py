"""No test waits for ever: a small suite that hangs in every way ends, and says where."""

import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from unittest import mock

import psutil
import pytest

from tests import scheduling

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow

CONFTEST = """
import signal

from tests import limits, scheduling

limits.GRACE_SECONDS, limits.END_SECONDS = 2, 5

def pytest_configure(config):
    config.pluginmanager.register(limits)
    if not hasattr(config, "workerinput"):  # ignored where this suite runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)

def pytest_xdist_make_scheduler(config, log):
    return scheduling.OneProcessAModule(config, log)
"""
#: What a fixture below waits for, in this run alone.
SECONDS = 100_000 + os.getpid()
#: What one process runs: each kind of hang with tests behind it.
MODULES = {
    "test_a_waits": """
import subprocess, threading

def test_for_a_process():
    subprocess.Popen(["sleep", "3141"]).wait()

def test_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def test_after():
    pass
""",
    "test_b_tear_down": """
import subprocess, pytest

@pytest.fixture
def stubborn():
    process = subprocess.Popen(["sleep", "3142"])
    yield
    process.wait()

def test_that_fails(stubborn):
    assert False

def test_after():
    pass
""",
    "test_c_swallows": """
import time, pytest

def test_its_end():
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass

def test_after():
    pass
""",
    "test_d_dies": """
import os

def test_before():
    pass

def test_of_it():
    os._exit(3)

def test_after():
    pass
""",
    "test_e": "def test_alone():\n    pass\n",
    "test_f": "def test_alone():\n    pass\n",
}


def run(folder: Path, *options: str) -> tuple[int, str]:
    """Run a suite in a process, and return its status and what it said."""
    plugins = ["-p", "xdist", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "--timeout=3", *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    return tmp_path


def sleepers(seconds: int) -> list[int]:
    """Return the processes that a test of MODULES started and that still run."""
    found = psutil.process_iter(["cmdline"])
    return [each.pid for each in found if each.info["cmdline"] == ["sleep", str(seconds)]]


def test_every_hang_ends_by_name_and_the_rest_is_run(folder: Path):
    for name, source in MODULES.items():
        (folder / f"{name}.py").write_text(source.replace("3142", str(SECONDS)))
    status, said = run(folder, "-n", "2")
    assert status == 1, said
    for late in ("test_a_waits.py::test_for_a_process", "test_a_waits.py::test_for_a_lock"):
        assert f"FAILED {late} - Failed: Timeout" in said
    for died_of in (
        "test_b_tear_down.py::test_that_fails",
        "test_c_swallows.py::test_its_end",
        "test_d_dies.py::test_of_it",
    ):
        assert f"crashed while running '{died_of}'" in said
    assert "test_b_tear_down.py::test_that_fails: not over" in said
    assert "in stubborn" in said  # where it stood
    assert "6 failed, 7 passed" in said  # each once, and all that stand behind them
    assert "STILL RUNNING" not in said
    assert not sleepers(SECONDS)  # what a fixture did not end


def test_a_process_that_died_a_moment_ago_is_given_nothing():
    """The run would else end by an internal error, its status 3."""
    dead = mock.Mock(shutting_down=False)
    dead.send_runtest_some.side_effect = OSError("cannot send to a closed channel")
    dead.shutdown.side_effect = lambda: setattr(dead, "shutting_down", True)
    made = scheduling.OneProcessAModule.__new__(scheduling.OneProcessAModule)
    unit = {"test_a.py::test_it": False}
    made.log = mock.Mock()
    made.workqueue, made.assigned_work = OrderedDict({"test_a.py": unit}), {dead: {}}
    made.registered_collections = {dead: list(unit)}
    made._reschedule(dead)
    assert (made.workqueue, made.assigned_work) == ({"test_a.py": unit}, {dead: {}})


def test_a_run_that_is_ended_names_what_was_running(folder: Path):
    source = "import os, signal, time\n\ndef test_it():\n    time.sleep(3)\n"  # until it is known
    (folder / "test_long.py").write_text(
        f"{source}    os.kill(os.getppid(), signal.SIGINT)\n    time.sleep(300)\n"
    )
    _, said = run(folder, "-n", "1", "--timeout=400")
    assert "STILL RUNNING test_long.py::test_it" in said


def test_a_thread_that_nobody_stopped_does_not_keep_the_run(folder: Path):
    source = "import threading, time\n\ndef test_it():\n"
    (folder / "test_left.py").write_text(
        f"{source}    threading.Thread(target=time.sleep, args=(600,)).start()\n"
    )
    status, said = run(folder)
    assert status == 1
    assert "1 passed" in said
    assert "the end of the run: not over" in said
