"""The web service on a real database, with people who can sign in; no worker runs."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from unittest.mock import patch

import pytest
from argon2 import PasswordHasher
from flask import Flask
from jinja2 import BytecodeCache, FileSystemBytecodeCache
from sqlalchemy import Engine

from accountant.database import connect
from accountant.identities.actor import Actor
from accountant.settings import Settings
from accountant.transactions import signing
from tests.conftest import as_process
from tests.recorded import Recorded, with_probe
from tests.support import put
from tests.web.api.conformance import watch
from tests.web.browsers import PASSWORD, Site
from web import passwords
from web.app import create_app
from workers.jobs.signer import sign_wanted

#: A guess at a stolen hash costs next to nothing, and a sign-in too.
CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
SERVED = passwords._hasher


@pytest.fixture(scope="session", autouse=True)
def cheap_hashes() -> Iterator[None]:
    """Passwords are hashed as ever, and quickly; `served_hashes` are those of the service."""
    with patch.object(passwords, "_hasher", lambda: CHEAP):
        passwords.nobodys_hash.cache_clear()
        yield


@pytest.fixture
def served_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_hasher", SERVED)


@pytest.fixture(scope="session")
def password_hash() -> str:
    return CHEAP.hash(PASSWORD)


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> BytecodeCache:
    """Templates as they were compiled: each application would do it anew."""
    return FileSystemBytecodeCache(str(tmp_path_factory.mktemp("templates")))


@pytest.fixture(scope="module")
def app(
    owner_url: str, signer: Path, templates: BytecodeCache, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flask]:
    """The service as its own database role; every answer of the API is held against its
    description.
    """
    home = tmp_path_factory.mktemp("web")
    unlimited = {"requests_per_person": 0, "requests_per_address": 0, "sign_ins_per_address": 0}
    made = create_app(Settings(home=home, DATABASE_URL=as_process(owner_url, "web"), **unlimited))
    made.jinja_env.bytecode_cache = templates
    wrong = watch(made)
    yield made
    assert not wrong, sorted(set(wrong))[:20]


@pytest.fixture(scope="module")
def signer(owner_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The home of the process that signs checkpoints: a thread with a key and a database role of
    its own.
    """
    home = tmp_path_factory.mktemp("signer")
    engine, stop = connect(as_process(owner_url, "signer"), pool_size=1), Event()
    seed = Settings(home=home).secret("checkpoint")

    def run() -> None:
        knows_key = False
        while not stop.wait(0.05):
            # An error of SQLAlchemy: a test begins or ends to listen to every statement.
            with suppress(RuntimeError):
                knows_key = knows_key or bool(signing.keys(engine, seed))
                sign_wanted(engine, seed)

    thread = Thread(target=run)
    thread.start()
    yield home
    stop.set()
    thread.join()
    engine.dispose()


@pytest.fixture
def site(app: Flask, engine: Engine, password_hash: str, recorded: Recorded) -> Site:
    return Site(app, engine, recorded.bench(engine, with_probe), password_hash)


def open_site(app: Flask, engine: Engine, password_hash: str) -> Site:
    """A site whose dataset has an allowance, and whose probe is known."""
    return Site(app, engine, with_probe(engine), password_hash)


@pytest.fixture
def results(app: Flask) -> Path:
    """The results folder of the service."""
    return Path(app.extensions["exchequer"]["settings"].results)


@pytest.fixture
def publish(results: Path, engine: Engine) -> Callable[[str, bytes], None]:
    """Ends an approved job as a worker would, with these bytes as its output."""
    from uuid import UUID

    from accountant.core.privacy.events import from_json
    from accountant.queries import jobs
    from accountant.transactions import leases, settlement

    def end(job_id: str, content: bytes) -> None:
        claim = leases.claim(engine, UUID(job_id), 1, "a worker", 60)
        assert claim is not None
        leases.begin_reading(engine, claim)
        overseer = Actor(claim.token, "nobody", frozenset({"auditor"}))
        event = from_json(jobs.job(engine, UUID(job_id), overseer)["event"])
        _, sha256 = put(results, content)
        settlement.publish(engine, claim, event, settlement.Output("draft", sha256), "a worker")

    return end
