"""A real Celery worker and a real relay, as processes, on the real servers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from sqlalchemy import Engine, make_url

from accountant.database import connect
from accountant.identities.actor import Actor
from accountant.queries import jobs
from accountant.results import Results
from accountant.rights import Process
from tests import scheduling
from tests.conftest import as_application, fresh_database
from web.local import redis_url
from web.stack.addresses import APPLICATION, ROLES

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "workers" / "sample"
#: Whose messages a worker takes.
QUEUES = {"generate": "generate,free", "generate2": "generate,free", "checks": "checks"}
RELAY = ["-m", "workers.jobs.relay"]
PROCESS: dict[str, Process] = {
    "generate": "worker",
    "generate2": "worker",
    "checks": "checks",
    "relay": "relay",
}
STARTED = ("generate", "checks", "relay")
#: What the endpoint `good` of a warm service is asked with.
ENDPOINT_KEY = "sk-kept-in-the-settings"
ENDPOINTS = {
    "EXCHEQUER_ENDPOINT_NETWORKS": "127.0.0.0/8",
    "EXCHEQUER_ENDPOINT_KEYS": json.dumps({"good": ENDPOINT_KEY}),
    "EXCHEQUER_ENDPOINT_SECONDS": "30",
}


@dataclass
class Service:
    """The background processes of one test module, or of many; `app` is the workers' Celery
    application.
    """

    environment: dict[str, str]
    app: str = "workers.jobs.app"
    running: dict[str, subprocess.Popen] = field(default_factory=dict)

    def url_of(self, name: str) -> str:
        """The database as the role of a process, in place of the role that the tests have."""
        url = make_url(self.environment["DATABASE_URL"])
        if url.username != APPLICATION:
            return self.environment["DATABASE_URL"]
        role = ROLES[PROCESS[name]]
        return url.set(username=role).render_as_string(hide_password=False)

    def start(self, name: str, **variables: str) -> None:
        worker = ["-m", "celery", "-A", self.app, "worker", "-c", "1", "-n", f"{name}@%h", "-Q"]
        self.running[name] = subprocess.Popen(
            [sys.executable, *([*worker, QUEUES[name]] if name in QUEUES else RELAY)],
            cwd=ROOT,
            env={**self.environment, "DATABASE_URL": self.url_of(name), **variables},
            start_new_session=True,
        )

    def kill(self, name: str) -> None:
        """kill -9 of the process and all its children."""
        process = self.running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Hold a process and all its children where they stand; what they loaded stays loaded."""
        group = self.running[name].pid
        os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(group, signal.SIGCONT)

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for name in list(self.running):
            try:
                self.running[name].wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.kill(name)
        self.running.clear()


@pytest.fixture(scope="module")
def variables() -> dict[str, str]:
    """Further environment variables for a module's processes; a module may override this."""
    return {}


@pytest.fixture(scope="module")
def service(servers, database_url, variables, tmp_path_factory) -> Iterator[Service]:
    """Relay and workers of a module's own, for what kills them or gives them other settings."""
    with serving(servers.broker_url, database_url, variables, tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="session")
def warm(servers, tmp_path_factory) -> Iterator[Service]:
    """Relay and workers that run on from module to module: their libraries and models are loaded
    once.

    Its workers know the mechanisms of tests, tests/tallies.py and others, besides those of the
    service, and may ask endpoints on this machine.
    """
    with fresh_database(servers) as owner_url:
        url = as_application(servers, owner_url)
        app = "tests.tally_worker"
        with serving(
            servers.broker_url, url, ENDPOINTS, tmp_path_factory, vhost=1, app=app
        ) as made:
            yield made


@pytest.fixture(scope="module")
def warm_service(request, warm) -> Iterator[Service]:
    """The warm service of a chain of modules, which ends with the last of them."""
    for name in STARTED:
        if name not in warm.running:
            warm.start(name)
    yield warm
    if scheduling.is_last_of_chain(request.path, request.session.items):
        warm.stop()


@pytest.fixture(scope="module")
def warm_engine(warm_service) -> Iterator[Engine]:
    engine = connect(warm_service.environment["DATABASE_URL"], pool_size=30)
    yield engine
    engine.dispose()


#: The results folders of the services that were started.
FOLDERS: list[Path] = []


def published(engine: Engine, job_id: object, viewer: Actor) -> Path:
    """The output of a job of a running service; it is there right after the COMMIT."""
    return result(jobs.output(engine, UUID(str(job_id)), viewer).sha256)


def result(sha256: str) -> Path:
    """A published file of a running service."""
    found = wait_for(lambda: [each / sha256 for each in FOLDERS if (each / sha256).exists()], bool)
    return found[0]


def folder_of(row: Any) -> Results:
    """The results folder that holds an artifact."""
    return Results(str(result(row.sha256).parent))


@contextmanager
def serving(
    broker_url: str, database_url: str, variables, folders, vhost: int = 0, app: str = Service.app
) -> Iterator[Service]:
    """Relay and workers on a database and a broker of their own."""
    import redis

    home = folders.mktemp("home")
    broker_url = broker_url.replace("virtual_host=0", f"virtual_host={vhost}")
    environment = {
        **os.environ,
        "DATABASE_URL": database_url,
        "BROKER_URL": broker_url,
        "EXCHEQUER_HOME": str(home),
        "EXCHEQUER_DATA_ROOTS": f"{ROOT}|{folders.getbasetemp()}",
        "EXCHEQUER_MODEL_ROOTS": f"{ROOT}|{folders.getbasetemp()}",
        "EXCHEQUER_LEASE_SECONDS": "8",  # a worker that gets no processor for so long lost its job
        "EXCHEQUER_RESEND_SECONDS": "10",
        "PYTHONPATH": str(ROOT),
        **variables,
    }
    redis.Redis.from_url(redis_url(broker_url)).flushdb()
    FOLDERS.append(home / "results")
    made = Service(environment, app)
    try:
        for name in STARTED:
            made.start(name)
        yield made
    finally:
        made.stop()


def wait_for(look: Callable[[], T], wanted: Callable[[T], bool], seconds: float = 300) -> T:
    """Look until what is seen is wanted; fail with the last thing seen.

    Only what will never come waits so long: a machine that is ten times slower loses nothing.
    """
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if wanted(seen):
            return seen
        if time.monotonic() > deadline:
            pytest.fail(f"still {seen!r} after {seconds} s")
        time.sleep(0.1)
