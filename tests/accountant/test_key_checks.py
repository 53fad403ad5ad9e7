"""A process whose key is not the cluster's is told so, and the database knows no key."""

import os
import secrets
import subprocess
import sys

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import DBAPIError

from accountant import tables
from accountant.database import connect
from accountant.settings import Settings
from accountant.transactions import key_checks
from tests.conftest import as_process


def settings(monkeypatch, name: str) -> bytes:
    key = secrets.token_bytes(32)
    monkeypatch.setenv(f"EXCHEQUER_KEY_{name.upper()}", key.hex())
    return key


def test_the_first_process_says_the_key_and_another_key_is_told(engine, monkeypatch):
    for name in ("session", "units"):
        key = settings(monkeypatch, name)
        assert key_checks.problem(engine, name, Settings()) is None
        assert key_checks.problem(engine, name, Settings()) is None
        other = settings(monkeypatch, name)
        told = f"the key `{name}` is not the cluster's: give every node the same"
        assert key_checks.problem(engine, name, Settings()) == told
        with engine.connect() as connection:
            kept = connection.execute(select(tables.key_checks.c.proof)).scalars().all()
        assert key not in kept
        assert other not in kept
    with engine.connect() as connection:
        assert len(connection.execute(select(tables.key_checks)).all()) == 2


def test_no_process_says_the_key_of_another_or_changes_one(owner, owner_url):
    with owner.begin() as connection:
        connection.execute(tables.key_checks.delete())
    for process, theirs in (("web", "units"), ("worker", "session"), ("web", "identity")):
        engine = connect(as_process(owner_url, process))
        with pytest.raises(DBAPIError, match="another process's"), engine.begin() as connection:
            connection.execute(insert(tables.key_checks).values(name=theirs, proof=b"0" * 32))
        for change in (tables.key_checks.delete(), tables.key_checks.update().values(name="x")):
            with pytest.raises(DBAPIError, match="permission denied"), engine.begin() as connection:
                connection.execute(change)
        engine.dispose()


@pytest.mark.slow
def test_a_worker_with_another_key_ends_before_it_takes_a_message(
    servers, owner, database_url, monkeypatch
):
    settings(monkeypatch, "units")
    with owner.begin() as connection:
        row = {"name": "units", "proof": b"0" * 32}
        connection.execute(tables.key_checks.delete())
        connection.execute(insert(tables.key_checks).values(row))
    command = ["-m", "celery", "-A", "workers.jobs.app", "worker", "-c", "1", "-Q", "generate"]
    told = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "DATABASE_URL": database_url, "BROKER_URL": servers.broker_url},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert told.returncode == os.EX_CONFIG
    assert "the key `units` is not the cluster's" in told.stderr
