"""Workers of one machine: a process for each GPU or MIG slice that it has, else one on the CPU.

With EXCHEQUER_GPUS_PER_WORKER a process has several GPUs, and the classes that they hold together.

    python -m workers.jobs.launcher [CLASS ...]

Each sees its own device alone (CUDA_VISIBLE_DEVICES) and takes jobs of the classes that it has the
memory for (EXCHEQUER_HARDWARE), or of those named. One that ends is started again. SIGTERM goes to
all, which hand their jobs back.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from accountant import logs, settings
from workers.jobs.alive import ALIVE_SECONDS, sign_of_life

log = structlog.get_logger()

_GPU = re.compile(r"^GPU (\d+): .*\(UUID: (\S+)\)")
_SLICE = re.compile(r"^\s+MIG \d+[gc]\S*?\.(\d+)gb\S*\s.*\(UUID: (\S+)\)")
#: A worker's file that is older says that it takes no messages.
QUIET_SECONDS = 30.0


@dataclass(frozen=True)
class Device:
    """A GPU or a MIG slice, by its UUID; "" is the CPU, whose memory nobody counts.

    Several GPUs of one worker have all their UUIDs, parted by commas.
    """

    uuid: str
    gib: float = 0.0


CPU = Device("")


def devices(listing: str, memory: str, visible: str | None = None) -> list[Device]:
    """Return the devices of a machine: slices where a GPU is cut into them, else the GPU.

    Args:
        listing: What `nvidia-smi -L` says.
        memory: UUID and MiB of each GPU, a line each, parted by a comma.
        visible: CUDA_VISIBLE_DEVICES: numbers or UUIDs of those that may be used; None: all.
    """
    sizes = dict(line.split(", ") for line in memory.splitlines() if ", " in line)
    found: dict[str, list[Device]] = {}
    names: dict[str, str] = {}
    for line in listing.splitlines():
        if gpu := _GPU.match(line):
            number, uuid = gpu.groups()
            names[number] = uuid
            found[uuid] = []
        elif cut := _SLICE.match(line):
            found[uuid].append(Device(cut[2], float(cut[1])))
    whole = {uuid: [Device(uuid, float(sizes.get(uuid, 0)) / 1024)] for uuid in found}
    usable = [device for uuid in found for device in found[uuid] or whole[uuid]]
    if visible is None:
        return usable
    wanted = {names.get(name.strip(), name.strip()) for name in visible.split(",")}
    return [
        device
        for uuid in found
        for device in found[uuid] or whole[uuid]
        if {uuid, device.uuid} & wanted
    ]


def here() -> list[Device]:
    """Return this machine's devices: its GPUs, else the CPU."""
    if shutil.which("nvidia-smi") is None:
        return [CPU]
    return devices(
        _say("-L"),
        _say("--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits"),
        os.environ.get("CUDA_VISIBLE_DEVICES"),
    ) or [CPU]


def grouped(found: Sequence[Device], size: int) -> list[Device]:
    """Return each worker's device: `size` GPUs, or the rest of them; CUDA joins no slices."""
    slices = [device for device in found if device.uuid.startswith("MIG-")]
    whole = [device for device in found if device not in slices]
    groups = [whole[first : first + size] for first in range(0, len(whole), size)]
    joined = [
        Device(",".join(each.uuid for each in group), sum(each.gib for each in group))
        for group in groups
    ]
    return joined + slices


def _say(*arguments: str) -> str:
    command = ["nvidia-smi", *arguments]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if told.returncode:  # a job for a GPU must not run on the CPU unseen
        raise SystemExit(f"nvidia-smi ended with {told.returncode}: {told.stdout.strip()[:200]}")
    return told.stdout


#: Of a GPU's memory so much is its driver's: a class of 80 GiB is served by one that has 79.
SLACK = 0.95


def served(device: Device, classes: Mapping[str, float], named: Sequence[str] = ()) -> list[str]:
    """Return the classes that a device has the memory for, smallest first, or those named.

    The largest class also takes the jobs that wait for none.
    """
    if not classes:
        return [""]
    ordered = sorted(classes, key=lambda name: classes[name])
    fitting = [*named] or [
        name
        for name in ordered
        if (SLACK * classes[name] <= device.gib if device.uuid else name.startswith("cpu"))
    ]
    return fitting + ([""] if ordered[-1] in fitting else [])


def command(number: int, classes: list[str]) -> list[str]:
    """Return the command of one worker."""
    queues = [f"{queue}.{name}".rstrip(".") for name in classes for queue in ("generate", "free")]
    flags = ["--quiet", "-A", "workers.jobs.app", "worker", "-c", "1", "--loglevel", "WARNING"]
    name = ["-n", f"generate{number}@%h", "-Q", ",".join(queues)]
    return [sys.executable, "-m", "celery", *flags, *name]


class Worker:
    """A worker of one device, started again whenever it ends."""

    def __init__(self, number: int, device: Device, classes: list[str]) -> None:
        self._command = command(number, classes)
        alive = os.environ.get("EXCHEQUER_ALIVE_FILE")
        self._alive = None if alive is None else Path(f"{alive}.{number}")
        self._environment = {**os.environ, "CUDA_VISIBLE_DEVICES": device.uuid}
        if self._alive is not None:
            self._environment["EXCHEQUER_ALIVE_FILE"] = str(self._alive)
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, env=self._environment)

    def tend(self) -> bool:
        """Start it again if it ended. Returns whether it lives and takes messages."""
        if self.process.poll() is not None:
            log.error("a worker ended and is started again", status=self.process.returncode)
            self.process = self._start()
            return False
        if self._alive is None:
            return True
        return self._alive.exists() and time.time() - self._alive.stat().st_mtime < QUIET_SECONDS


def run(stop: threading.Event, named: list[str]) -> None:
    """Keep a worker for each device until `stop` is set, and end them all then."""
    configured = settings.load()
    classes = configured.hardware
    unknown = sorted(set(named) - {*classes})
    if unknown:
        known = ", ".join(classes) or "none"
        raise SystemExit(f"{', '.join(unknown)}: no class of EXCHEQUER_HARDWARE, which has {known}")
    workers = []
    for number, device in enumerate(grouped(here(), configured.gpus_per_worker)):
        taken = served(device, classes, named)
        if not taken:
            log.error("a device is too small for any class", device=device.uuid, gib=device.gib)
            continue
        log.info("a worker starts", device=device.uuid or "cpu", classes=taken)
        workers.append(Worker(number, device, taken))
    if not workers:
        raise SystemExit("no device of this machine serves a class of EXCHEQUER_HARDWARE")
    while not stop.wait(ALIVE_SECONDS):
        well = [worker.tend() for worker in workers]
        if all(well):
            sign_of_life()
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.wait()


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    logs.configure()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    run(stop, sys.argv[1:])


if __name__ == "__main__":
    main()
