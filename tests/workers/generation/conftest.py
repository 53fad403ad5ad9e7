"""The endpoint of completions.py as a process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Served:
    """A served endpoint: its address, and the requests it received."""

    port: int
    log: Path

    def url(self, behaviour: str) -> str:
        return f"http://127.0.0.1:{self.port}/{behaviour}"

    def asked(self, behaviour: str) -> list[dict]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        found = [json.loads(line) for line in lines]
        return [each for each in found if each["path"].split("/")[1] == behaviour]


@pytest.fixture(scope="session")
def served(tmp_path_factory) -> Iterator[Served]:
    log = tmp_path_factory.mktemp("endpoint") / "log.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.workers.generation.completions", str(log)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield Served(int(process.stdout.readline()), log)
    process.kill()
    process.wait()
