"""One worker for each GPU or slice of a machine: it sees that one alone and takes its classes."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select, text

from accountant import settings as settings_module
from accountant import tables
from accountant.core.ledger.allowances import Allowance
from accountant.settings import Settings
from accountant.transactions import allowances, submission
from accountant.transactions.job_requests import JobRequest
from tests.workers.conftest import ROOT, wait_for
from tests.workers.jobs.test_jobs import Desk
from workers.jobs import launcher
from workers.jobs.launcher import CPU, Device, devices, grouped, served

WHOLE = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
GPU 1: NVIDIA L4 (UUID: GPU-aaaaaaaa-d268-c3f3-1b07-005d5ae1dc3f)
"""
MEMORY = """\
GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f, 81559
GPU-aaaaaaaa-d268-c3f3-1b07-005d5ae1dc3f, 23034
"""
CUT = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
  MIG 3g.40gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)
GPU 1: NVIDIA L4 (UUID: GPU-aaaaaaaa-d268-c3f3-1b07-005d5ae1dc3f)
"""
CLASSES = {"cpu": 2.0, "gpu24": 24.0, "gpu80": 80.0}
FIRST, SECOND = (
    "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f",
    "GPU-aaaaaaaa-d268-c3f3-1b07-005d5ae1dc3f",
)


def test_devices_are_gpus_or_their_slices_that_may_be_used():
    assert [(each.uuid, round(each.gib)) for each in devices(WHOLE, MEMORY)] == [
        (FIRST, 80),
        (SECOND, 22),
    ]
    cut = devices(CUT, MEMORY)
    assert [(each.uuid[:7], round(each.gib)) for each in cut] == [
        ("MIG-c73", 40),
        ("MIG-a28", 10),
        ("GPU-aaa", 22),
    ]
    assert devices(CUT, MEMORY, "1") == cut[2:]
    assert devices(CUT, MEMORY, "0") == cut[:2]
    assert devices(CUT, MEMORY, cut[1].uuid) == cut[1:2]
    assert devices("No devices were found\n", "") == []


def test_a_device_serves_the_classes_that_it_has_the_memory_for():
    assert served(CPU, {}) == served(Device(FIRST, 80), {}) == [""]
    assert served(CPU, CLASSES) == ["cpu"]
    assert served(Device(SECOND, 22.5), CLASSES) == ["cpu"]
    assert served(Device(SECOND, 23.0), CLASSES) == ["cpu", "gpu24"]
    # the largest class takes what waits for none
    assert served(Device(FIRST, 79.6), CLASSES) == ["cpu", "gpu24", "gpu80", ""]
    assert served(Device(FIRST, 79.6), CLASSES, ["gpu24"]) == ["gpu24"]
    assert served(Device(FIRST, 79.6), CLASSES, ["gpu80"]) == ["gpu80", ""]
    queues = launcher.command(0, ["gpu24", ""])[-1]
    assert queues == "generate.gpu24,free.gpu24,generate,free"


def test_gpus_of_one_worker_serve_what_they_hold_together(monkeypatch):
    gpus = [Device(f"GPU-{name}", 79.6) for name in "abc"]
    cut = [Device(f"MIG-{name}", 20.0) for name in "de"]
    assert grouped(gpus, 1) == gpus
    assert grouped([CPU], 2) == [CPU]
    pair = Device("GPU-a,GPU-b", 159.2)
    assert grouped([*gpus, *cut], 2) == [pair, gpus[2], *cut]
    classes = {"gpu80": 80.0, "gpu160": 160.0}
    made = Settings(hardware=classes, gpus_per_worker=2)
    monkeypatch.setattr(settings_module, "load", lambda: made)
    monkeypatch.setattr(launcher, "here", lambda: gpus)
    started: list[tuple[str, list[str]]] = []

    class Started:
        process = subprocess.Popen(["true"])

        def __init__(self, number: int, device: Device, taken: list[str]) -> None:
            started.append((device.uuid, taken))

    monkeypatch.setattr(launcher, "Worker", Started)
    stop = threading.Event()
    stop.set()
    launcher.run(stop, [])
    assert started == [("GPU-a,GPU-b", ["gpu80", "gpu160", ""]), ("GPU-c", ["gpu80"])]


def test_an_unknown_class_is_refused_at_the_start():
    told = subprocess.run(
        [sys.executable, "-m", "workers.jobs.launcher", "gpu40"],
        cwd=ROOT,
        env={**os.environ, "EXCHEQUER_HARDWARE": json.dumps(CLASSES)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.returncode == 1
    assert "gpu40: no class of EXCHEQUER_HARDWARE, which has cpu, gpu24, gpu80" in told.stderr


@pytest.fixture(scope="module")
def variables(tmp_path_factory) -> dict[str, str]:
    """A machine with two GPUs, as its `nvidia-smi` says."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "list").write_text(WHOLE)
    (folder / "memory").write_text(MEMORY)
    smi = folder / "nvidia-smi"
    smi.write_text(
        f'#!/bin/sh\n[ "$1" = -L ] && exec cat {folder}/list\nexec cat {folder}/memory\n'
    )
    smi.chmod(0o755)
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "EXCHEQUER_HARDWARE": json.dumps(CLASSES),
        "EXCHEQUER_ALIVE_FILE": str(folder / "alive"),
    }


def live(engine) -> list[list[str]]:
    with engine.connect() as connection:
        return sorted(connection.execute(select(tables.live_workers.c.classes)).scalars())


@pytest.mark.slow
def test_each_gpu_has_a_process_that_takes_its_classes(
    service, engine, variables, tmp_path, monkeypatch
):
    """The workers are real; of GPUs there is the list."""
    made = Settings(hardware={"gpu80": 80})
    monkeypatch.setattr(settings_module, "load", lambda: made)
    service.kill("generate")
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM live_workers"))
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.jobs.launcher"],
        cwd=ROOT,
        env={**service.environment, "DATABASE_URL": service.url_of("generate")},
    )
    try:
        wait_for(lambda: live(engine), lambda seen: len(seen) == 2, 120)
        assert live(engine) == [["", "cpu", "gpu24", "gpu80"], ["cpu"]]
        started = psutil.Process(process.pid).children()
        seen = [each.environ()["CUDA_VISIBLE_DEVICES"] for each in started]
        assert sorted(seen) == sorted([FIRST, SECOND])
        wait_for(lambda: Path(variables["EXCHEQUER_ALIVE_FILE"]).exists(), bool, 60)
        desk = Desk(engine, tmp_path)
        name = desk.dataset()
        allowances.allow(engine, name, Allowance("10", "0.000001", "test"), desk.steward)
        request = JobRequest(name, "noisy-count", None, {"epsilon": 0.1}, "test")
        job_id = submission.submit(engine, request, desk.analyst)
        assert desk.ended(job_id, 120)["state"] == "succeeded"
        with engine.connect() as connection:
            waited = select(tables.parts.c.hardware).where(tables.parts.c.job_id == job_id)
            assert connection.execute(waited).scalars().all() == ["gpu80"]
        # one that dies is started again, and the launcher takes all of them with it
        first = started[0].pid
        os.kill(first, signal.SIGKILL)
        again = wait_for(
            lambda: [each.pid for each in psutil.Process(process.pid).children()],
            lambda seen: len(seen) == 2 and first not in seen,
            60,
        )
    finally:
        process.terminate()
        assert process.wait(60) == 0
    assert not any(psutil.pid_exists(pid) for pid in again)
    wait_for(lambda: len(live(engine)), lambda count: count <= 1, 30)  # the killed one said nothing
