"""Whether each web node says the truth of itself: one process a node, which looks each second.

    python -m tests.faults.looks PROBE URL FILE    TOKEN and DATASET come from the environment

A line of JSON a look. A process of its own, before others in the queue for the processor: whoever
asks from outside does not share it with thirty clients.
"""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

#: A state that lasts for less may be told a moment late.
LATE_SECONDS = 3.0
#: A probe answers within it, whatever hangs.
PROBE_SECONDS = 1.0
#: What a probe waits for, until it says that there is no answer (web/probes.py).
SLOW_SECONDS = 0.8

Windows = Sequence[tuple[float, float]]


@dataclass
class Look:
    """What a web node said of itself at a second, and whether it served then."""

    at: float
    ready: int  # the status of /readyz; 0: no answer
    served: int  # of a request that writes; 0: no answer
    seconds: float  # until /readyz was answered
    live: int = 200  # the status of /livez
    live_seconds: float = 0.0
    served_seconds: float = 0.0
    said: str = ""


@dataclass
class Watch:
    """A process that looks at one web node."""

    process: subprocess.Popen[bytes]
    file: Path

    @classmethod
    def of(cls, probe: str, url: str, token: str, dataset: str, file: Path) -> "Watch":
        """Begin to look."""
        command = [sys.executable, "-m", "tests.faults.looks", probe, url, str(file)]
        told = os.environ | {"TOKEN": token, "DATASET": dataset}
        return cls(subprocess.Popen(command, env=told), file)

    def looks(self) -> list[Look]:
        """End it, and return what it saw."""
        self.process.kill()
        self.process.wait(20)
        lines = self.file.read_text().split("\n")[:-1]  # the last may be cut off
        return [Look(**json.loads(line)) for line in lines]


def untrue(looks: Sequence[Look], closed: Windows, away: Windows, full: Windows) -> list[str]:
    """Return seconds at which readiness was not what requests met, and went on so.

    Under maintenance (`closed`) a node is ready, for reads; while results are `away` it is not,
    although it admits. While a disk is `full` it may say so before a request meets it. What gives a
    probe no answer in time may answer a request, which waits for longer.
    """
    wrong = []
    for before, look, after in zip(looks, looks[1:], looks[2:], strict=False):
        if any(begin - 1 <= look.at <= end + LATE_SECONDS for begin, end in closed):
            continue
        said, did = look.ready == 200, 0 < look.served < 500
        if any(begin - 1 <= look.at <= end + LATE_SECONDS for begin, end in away):
            if said and any(begin + LATE_SECONDS < look.at < end - 1 for begin, end in away):
                wrong.append(f"results away: {look}")
            continue
        if not said and any(begin - 1 <= look.at <= end + LATE_SECONDS for begin, end in full):
            continue
        if not said and "does not answer" in look.said and look.served_seconds > SLOW_SECONDS:
            continue
        around = {before.ready == 200, after.ready == 200}
        if said != did and did not in around and after.at - before.at < 4 * LATE_SECONDS:
            wrong.append(f"{look}")
    return wrong


def _ask(
    address: str, path: str, seconds: float, body: str | None = None, token: str = ""
) -> tuple[int, float, str]:
    """Return the status (0: no answer), the seconds until it came, and the answer's text."""
    began = time.monotonic()
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=seconds)
    status, text = 0, ""
    with suppress(OSError, http.client.HTTPException):
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        connection.request("GET" if body is None else "POST", path, body, headers)
        answer = connection.getresponse()
        status, text = answer.status, answer.read(300).decode()
    connection.close()
    return status, time.monotonic() - began, text


def main() -> None:
    """Look each second until killed."""
    probe, url, file = sys.argv[1:]
    with suppress(PermissionError):
        os.nice(-10)
    body = json.dumps(
        {
            "dataset": os.environ["DATASET"],
            "mechanism": "noisy-count",
            "parameters": {"epsilon": 0.001},
            "purpose": "a drill",
        }
    )
    with Path(file).open("w") as lines:
        while True:
            began = time.monotonic()
            live, live_seconds, _ = _ask(probe, "/livez", 2.0)
            ready, seconds, said = _ask(probe, "/readyz", 2.0)
            served, served_seconds, _ = _ask(url, "/api/v1/jobs", 4.0, body, os.environ["TOKEN"])
            times = seconds, live, live_seconds, served_seconds
            look = Look(began, ready, served, *times, said.strip())
            lines.write(json.dumps(asdict(look)) + "\n")
            lines.flush()
            time.sleep(max(0.0, began + 1.0 - time.monotonic()))


if __name__ == "__main__":
    main()
