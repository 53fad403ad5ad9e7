"""The parts of the service as processes of the harness: real code, with a hook at its crash points.

They are forked from a server that has imported everything, so that a killed part is back in a
moment. Shortened for the harness: the relay sweeps twice a second instead of every five.
"""

import mmap
import multiprocessing
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

SWEEP_SECONDS = 0.5
WORKER = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")


@dataclass(frozen=True)
class Skew:
    """A wrong clock: `offset` seconds beside the others, and a monotonic clock of the wrong
    `rate`.
    """

    offset: float = 0.0
    rate: float = 1.0

    def apply(self) -> None:
        wall, steady, begin = time.time, time.monotonic, time.monotonic()
        time.time = lambda: wall() + self.offset
        time.monotonic = lambda: begin + (steady() - begin) * self.rate


@dataclass(frozen=True)
class Part:
    """One part: its name, what it is (api, relay, worker), and what it needs to know."""

    name: str
    kind: str
    argument: str = ""


PARTS = (
    Part("api-1", "api", "0"),
    Part("api-2", "api", "1"),
    Part("relay-1", "relay"),
    Part("relay-2", "relay"),
    Part("worker-1", "worker", "prefork"),
    Part("worker-2", "worker", "solo"),
)


def run(part: Part, folder: str, ports: tuple[int, ...], skew: Skew, mutation: str) -> None:
    """Be `part` until killed. Runs in a process of its own, which leads a group of its own."""
    os.setsid()
    log = os.open(Path(folder) / f"{part.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    from accountant import faults
    from tests.faults import guards, mutations, split_counts
    from tests.faults.orders import Hook

    faults.hook = Hook(Path(folder))
    split_counts.register()
    guards.watch(Path(folder) / "guards.jsonl")
    skew.apply()
    if mutation:
        mutations.MUTATIONS[mutation].apply()
    {"api": _api, "relay": _relay, "worker": _worker}[part.kind](part, ports)


def _api(part: Part, ports: tuple[int, ...]) -> None:
    from waitress import serve

    from accountant.settings import load
    from web import probes
    from web.app import create_app

    os.environ["EXCHEQUER_PROBE_ADDRESS"] = f"127.0.0.1:{ports[2 + int(part.argument)]}"
    load.cache_clear()  # of the process that this one is forked from
    app = create_app(load())
    probes.listen(app)
    serve(app, host="127.0.0.1", port=ports[int(part.argument)], threads=6, ident=None)


def _relay(part: Part, ports: tuple[int, ...]) -> None:
    from workers.jobs import relay

    relay.SWEEP_SECONDS = SWEEP_SECONDS
    relay.main()


def _worker(part: Part, ports: tuple[int, ...]) -> None:
    from workers.jobs import draining
    from workers.jobs.app import app

    draining._byte = mmap.mmap(-1, 1)  # parts are forked from one process: the drain of one is its
    sys.argv = ["celery"]
    app.worker_main(
        [
            "worker",
            "-Q",
            "generate,free,checks",
            "-c",
            "1",
            "-P",
            part.argument,
            "-n",
            f"{part.name}@%h",
            *WORKER,
        ]
    )


PRELOAD = [
    "tests.faults.parts",
    "workers.jobs.tasks",
    "workers.jobs.checks",
    "workers.jobs.relay",
    "web.app",
    "waitress",
    "celery.bin.celery",
]
PRELOAD += [
    "tests.faults.split_counts",
    "workers.mechanisms.dp_kps",
    "celery.apps.worker",
    "kombu.transport.redis",
    "pyarrow",
]


@dataclass
class Running:
    """The processes of the parts, started from the fork server."""

    folder: Path
    ports: tuple[int, ...]
    mutation: str = ""
    processes: dict[str, ForkServerProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)

    def start(self, part: Part, skew: Skew = Skew()) -> None:
        arguments = (part, str(self.folder), self.ports, skew, self.mutation)
        process = self._context.Process(target=run, args=arguments, name=part.name)
        process.start()
        self.processes[part.name] = process

    def dead(self) -> list[Part]:
        """Parts that don't run."""
        return [part for part in PARTS if not self.processes[part.name].is_alive()]

    def kill(self) -> None:
        """All of them, and wait for their end."""
        for part in PARTS:
            self.signal(part.name, signal.SIGKILL)
        for process in self.processes.values():
            process.join(5)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a part and to whatever it started."""
        import psutil

        try:
            top = psutil.Process(self.processes[name].pid)
            for process in [*top.children(recursive=True), top]:
                process.send_signal(number)
        except psutil.NoSuchProcess:
            pass


def free_ports(count: int) -> tuple[int, ...]:
    """Ports of this machine that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = tuple(each.getsockname()[1] for each in sockets)
    for each in sockets:
        each.close()
    return ports
