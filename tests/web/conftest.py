"""The web service on a real database, with people who can sign in; no worker runs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import Engine

from accountant.identities.actor import Actor
from accountant.settings import Settings
from tests.support import Bench
from tests.web.api.conformance import watch
from tests.web.browsers import PASSWORD, Site
from web.app import create_app
from web.passwords import hash_password


@pytest.fixture(scope="session")
def password_hash() -> str:
    return hash_password(PASSWORD)


@pytest.fixture(scope="module")
def app(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    """Every answer of the API that a test causes is held against its description."""
    home = tmp_path_factory.mktemp("web")
    unlimited = {"requests_per_person": 0, "requests_per_address": 0, "sign_ins_per_address": 0}
    made = create_app(Settings(home=home, DATABASE_URL=database_url, **unlimited))
    wrong = watch(made)
    yield made
    assert not wrong, sorted(set(wrong))[:20]


@pytest.fixture
def site(app: Flask, engine: Engine, password_hash: str) -> Site:
    bench = Bench(engine)
    bench.allow()
    bench.warm()
    return Site(app, engine, bench, password_hash)


@pytest.fixture
def publish(tmp_path: Path, engine: Engine) -> Callable[[str, bytes], None]:
    """Ends an approved job as a worker would, with these bytes as its output."""
    from hashlib import sha256
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
        file = tmp_path / f"{job_id}.jsonl"
        file.write_bytes(content)
        settlement.publish(
            engine, claim, event, settlement.Output(str(file), sha256(content).hexdigest()), "a worker"
        )

    return end
