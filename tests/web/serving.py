"""Real servers for tests: the web service under waitress or gunicorn, as a process that can be
killed.
"""

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Served:
    """A server process, and where it answers."""

    process: subprocess.Popen[bytes]
    url: str
    home: Path
    port: int

    @property
    def uploads(self) -> Path:
        return self.home / "uploads"

    def kept(self) -> list[str]:
        """Every file that lies there, drafts too."""
        return sorted(os.listdir(self.uploads)) if self.uploads.is_dir() else []

    def peak_bytes(self) -> int:
        """The most memory that any process of the server has had resident."""
        found = 0
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
                if os.getpgid(int(fields["Pid"])) == self.process.pid:
                    found = max(found, int(fields["VmHWM"].split()[0]) * 1024)
            except (OSError, KeyError):
                continue
        return found


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextmanager
def serving(
    database_url: str,
    home: Path,
    *,
    gunicorn: bool = False,
    workers: int = 1,
    file_bytes: int | None = None,
    port: int | None = None,
    log: Path = Path(os.devnull),
    **settings: object,
) -> Iterator[Served]:
    """A server with these settings; `file_bytes`: the largest file that the kernel lets it
    write.
    """
    port = port or free_port()
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "EXCHEQUER_HOME": str(home),
        "EXCHEQUER_PORT": str(port),
        "PYTHONPATH": str(ROOT),
        **{f"EXCHEQUER_{name.upper()}": str(value) for name, value in settings.items()},
    }
    command = [sys.executable, "-m", "web.serve"]
    if gunicorn:
        command = [
            sys.executable,
            "-m",
            "gunicorn",
            "--config=python:web.gunicorn_settings",
            f"--bind=127.0.0.1:{port}",
            f"--workers={workers}",
        ]
        command += ["web.app:create_app()"]

    def bound() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    with log.open("ab") as lines:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
            preexec_fn=bound,  # noqa: PLW1509 (it takes no lock)
            stderr=lines,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, process)
        yield Served(process, url, home, port)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(20)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx2.get(f"{url}/healthz", timeout=5).status_code == 200:
                return
        except httpx2.HTTPError:
            time.sleep(0.1)
    raise AssertionError("the server did not start")
