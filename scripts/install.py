"""Install what a lock names into the virtual environment that runs this, and say what goes on.

    python scripts/install.py libraries  what the service needs
    python scripts/install.py service    that, and this checkout as a package
    python scripts/install.py dev        what tests and linters need besides

Everything is checked against the hashes in the locks and nothing is resolved anew. The one exception is torch
from TORCH_INDEX or a local folder: the package index that the hashes come from does not have such builds, so
their version alone is checked.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
LOCKED = ("--require-hashes", "--no-deps", "--no-build-isolation")
LARGE = 20.0  # megabytes; smaller files are counted and not named
HEARTBEAT = 10.0  # seconds
TERMINAL = shutil.get_terminal_size().columns - 1
MEGABYTES = {"kB": 1e-3, "MB": 1.0, "GB": 1e3}

PLAN = """\
Installing into {venv}, once. Outside it only pip's cache grows. Ctrl-C stops; the same command goes on.
  to download   libraries, 0.2 GB; then torch: {torch}
  on disk       {disk}
"""
CPU = "a build for the CPU, 0.2 GB"
INDEXED = "the build that the index in TORCH_INDEX has, 0.2 GB where it is for the CPU"
CUDA = """\
built for CUDA, with NVIDIA's libraries, 2.7 GB
                No NVIDIA GPU here? Take PyTorch's build for the CPU, 0.2 GB: stop this with Ctrl-C and run it
                with TORCH_INDEX=ADDRESS, which pytorch.org names under "Get started" for pip and CPU"""


def main() -> None:
    """Install the service or what development needs."""
    wanted = " ".join(sys.argv[1:])
    if wanted == "dev":
        print("Installing what tests and linters need: 0.1 GB to download.", flush=True)
        pip("tools", *LOCKED, "-r", "requirements-dev.lock")
        return
    if wanted not in ("libraries", "service"):
        sys.exit(f"{wanted or 'nothing'} can't be installed: say libraries, service or dev")
    index = os.environ.get("TORCH_INDEX", "")
    pin = re.search(r"^torch==(\S+)", (ROOT / "requirements-cuda.lock").read_text(), re.MULTILINE)
    assert pin, "requirements-cuda.lock names no torch"
    torch = pin[1]
    print("Looking which build of torch pip finds here ...", flush=True)
    for_cpu = bool(index) or has_cpu_build(torch)
    build = (INDEXED if index else CPU) if for_cpu else CUDA
    disk = "1.9 GB" if for_cpu else "5.8 GB"
    venv = Path(sys.prefix)
    shown = venv.relative_to(Path.cwd()) if venv.is_relative_to(Path.cwd()) else venv
    print(PLAN.format(venv=shown, torch=build, disk=disk), flush=True)
    pip("build tools", *LOCKED, "-r", "requirements-build.lock")
    pip("libraries", *LOCKED, "-r", "requirements.lock")
    if not for_cpu:
        pip("torch", *LOCKED, "-r", "requirements-cuda.lock")
    elif index:
        pip("torch", "--index-url", index, f"torch=={torch}")  # brings what that index's build needs
    else:
        pip("torch", "--no-deps", f"torch=={torch}+cpu")
    if wanted == "service":
        pip("Exchequer", "--no-deps", "--no-build-isolation", "--editable", ".")


def has_cpu_build(torch: str) -> bool:
    """Return True if a CPU build is installed, or pip finds one, such as in a local folder."""
    try:
        if version("torch").startswith(torch):
            return version("torch").endswith("+cpu")
    except PackageNotFoundError:
        pass
    looked = command("--dry-run", "--quiet", "--no-deps", f"torch=={torch}+cpu")
    return subprocess.run(looked, capture_output=True, check=False, cwd=ROOT).returncode == 0


def command(*arguments: str) -> list[str]:
    options = ["--disable-pip-version-check", "--no-input", "install", "--progress-bar", "off"]
    return [sys.executable, "-m", "pip", *options, *arguments]


def pip(stage: str, *arguments: str) -> None:
    """Run pip, and show that it goes on; end with its last lines where it fails.

    Its warnings are shown on failure only: most are of folders that this machine's pip is set to look in.
    """
    shown = Progress(stage)
    said: list[str] = []
    running = subprocess.Popen(
        command(*arguments), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert running.stdout
    try:
        for line in as_they_come(running.stdout):
            if line is None:
                shown.tick()
            else:
                said.append(line)
                shown.read(line)
    except KeyboardInterrupt:
        running.terminate()
        sys.exit("\nstopped; the same command goes on from here")
    if running.wait():
        sys.exit("".join(said[-40:]) + f"\npip failed while it installed {stage}; its last lines are above.")
    shown.say(f"done, {shown.packages} packages" if shown.packages > 1 else "done")


class Progress:
    """The progress of an installation stage: a changing line on a terminal, a few lines elsewhere."""

    def __init__(self, stage: str) -> None:
        self.stage, self.began = stage, time.monotonic()
        self.packages, self.now = 0, "starting"
        self._spoke = self.began

    def read(self, line: str) -> None:
        """Take in a line of pip's."""
        words = line.split()
        file = re.match(r"(?:Downloading|Using cached) (\S+) \(([\d.]+) ([kMG]B)\)", line.strip())
        if line.startswith(("Collecting ", "Processing ", "Requirement already ")):
            self.packages += 1
            self.now = Path(words[1]).name if line.startswith(("C", "P")) else "what is there already"
        elif file:
            self.now = f"{file[1].split('-')[0]} ({file[2]} {file[3]})"
            if float(file[2]) * MEGABYTES[file[3]] >= LARGE:
                self.say(self.now)
        elif line.startswith("Obtaining "):
            self.now = "building"
        elif line.startswith("Installing collected"):
            self.now = "unpacking"
        elif "Retrying" in line:
            self.say(line.strip())
        self.tick()

    def tick(self) -> None:
        """Show that time goes by."""
        if sys.stdout.isatty():
            print(f"\r\x1b[K{self._line(self.now)}", end="", flush=True)
        elif time.monotonic() - self._spoke >= HEARTBEAT:
            self.say(f"{self.now} ...")

    def say(self, what: str) -> None:
        """A line that stays."""
        print(("\r\x1b[K" if sys.stdout.isatty() else "") + self._line(what), flush=True)
        self._spoke = time.monotonic()

    def _line(self, what: str) -> str:
        seconds = int(time.monotonic() - self.began)
        return f"  {self.stage:<12} {seconds // 60}:{seconds % 60:02}  {what}"[:TERMINAL]


def as_they_come(stream: IO[str]) -> Iterator[str | None]:
    """Lines of a stream, and None whenever a second brings none."""
    queue: Queue[str] = Queue()

    def fill() -> None:
        for line in stream:
            queue.put(line)
        queue.put("")

    Thread(target=fill, daemon=True).start()
    while True:
        try:
            line = queue.get(timeout=1.0)
        except Empty:
            yield None
            continue
        if not line:
            return
        yield line


if __name__ == "__main__":
    main()
