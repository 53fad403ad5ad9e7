"""The service sets what it relies on in each session, whatever the database, the role or libpq
say.
"""

import shutil
import subprocess
from unittest.mock import patch

import psycopg
import pytest
from sqlalchemy import make_url

from accountant.connections import RELIED_ON
from accountant.core.privacy.events import from_json
from accountant.database import connect, migrate, problem, unpooled
from accountant.queries import entries, integrity, jobs
from accountant.transactions import leases, settlement
from accountant.transactions.settlement import Output
from tests.conftest import NOT_SYNCED
from tests.support import Bench

#: Values that somebody may have set for all programs of a database or a role.
OTHERS = {
    "DateStyle": "German, DMY",
    "IntervalStyle": "iso_8601",
    "client_encoding": "LATIN1",
    "TimeZone": "Asia/Kathmandu",
    "standard_conforming_strings": "off",
    "extra_float_digits": "-3",
    "bytea_output": "escape",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "search_path": "pg_catalog",
    "row_security": "off",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "synchronous_commit": "off",
    "statement_timeout": "1ms",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "1ms",
    "transaction_timeout": "50ms",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from web.local import Servers
    from web.stack import postgres

    with (
        patch.dict(postgres.SETTINGS, NOT_SYNCED),
        Servers(tmp_path_factory.mktemp("settings")) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def superuser(server):
    url = make_url(server.owner_url).set(username="postgres", drivername="postgresql")
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        yield connection


@pytest.fixture
def unusual(server, superuser):
    """All of them at once, for the database and for the role of the service; migrated under
    them.
    """
    url = make_url(server.database_url)
    targets = (
        f"DATABASE {url.database}",
        f"ROLE {url.username}",
        f"ROLE {make_url(server.owner_url).username}",
    )
    for target in targets:
        for name, value in OTHERS.items():
            superuser.execute(f"ALTER {target} SET {name} = {_literal(value)}")
    migrate(server.owner_url, server.database_url)
    yield
    for target in targets:
        superuser.execute(f"ALTER {target} RESET ALL")


def _literal(value: str) -> str:
    return ", ".join(f"'{part.strip()}'" for part in value.split(","))


def test_every_setting_is_overridden_and_a_job_runs_to_its_end_under_all_of_them(
    server, unusual, monkeypatch
):
    monkeypatch.setenv("PGTZ", "Europe/Berlin")  # libpq sends these after any option
    monkeypatch.setenv("PGDATESTYLE", "SQL")
    monkeypatch.setenv("PGOPTIONS", "-c extra_float_digits=-15")
    engine = connect(server.database_url)
    for made in (engine, unpooled(server.database_url)):
        with made.connect() as connection:
            for name, value in RELIED_ON.items():
                assert connection.exec_driver_sql(f"SHOW {name}").scalar_one() == value, name
            shown = (
                "SELECT 'ε Łódź', 0.1::float8, interval '36 hours', '\\x00ff'::bytea, "
                "clock_timestamp()"
            )
            text, number, wait, data, moment = connection.exec_driver_sql(shown).one()
            assert (text, number, wait.days, bytes(data)) == ("ε Łódź", 0.1, 1, b"\x00\xff")
            assert moment.utcoffset().total_seconds() == 0
    assert problem(engine) is None
    bench = Bench(engine, policy={"auto_approve_epsilon": "10"})
    bench.allow()
    bench.warm()
    job = bench.submit(10)
    claim = leases.claim(engine, job, 1, "worker", 60)
    leases.begin_reading(engine, claim)
    event = from_json(jobs.job(engine, job, bench.steward)["event"])
    settlement.publish(engine, claim, event, Output("x", "0" * 64), "worker")
    assert list(entries.export(engine, bench.dataset, bench.auditor, "jsonl"))
    assert integrity.check(engine, bench.dataset) == []
    engine.dispose()


def test_what_the_address_says_of_a_limit_stands_and_takes_nothing_else_away(server, unusual):
    engine = connect(f"{server.database_url}&options=-c%20lock_timeout%3D7s%20-c%20DateStyle%3DSQL")
    with engine.connect() as connection:
        shown = [
            connection.exec_driver_sql(f"SHOW {name}").scalar_one()
            for name in ("lock_timeout", "statement_timeout", "DateStyle")
        ]
    engine.dispose()
    assert shown == ["7s", "90s", "ISO, MDY"]


def test_readiness_names_each_setting_that_a_pooler_leaves_wrong(server, superuser):
    """Behind a pooler no session is set: the database says here what its connect_query would."""
    migrate(server.owner_url, server.database_url)
    database = make_url(server.database_url).database
    pooled = connect(f"{server.database_url}&pooler=transaction")
    limits = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
    try:
        assert "time limits" in (problem(pooled) or "")
        for name in limits:
            superuser.execute(f"ALTER DATABASE {database} SET {name} = '50s'")
        for name, value in RELIED_ON.items():
            superuser.execute(f"ALTER DATABASE {database} SET {name} = {_literal(value)}")
        assert problem(pooled) is None
        for name in RELIED_ON:
            superuser.execute(f"ALTER DATABASE {database} SET {name} = {_literal(OTHERS[name])}")
            assert name in (problem(pooled) or ""), name
            superuser.execute(f"ALTER DATABASE {database} SET {name} = {_literal(RELIED_ON[name])}")
    finally:
        superuser.execute(f"ALTER DATABASE {database} RESET ALL")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "undo", "told"),
    [
        (
            "ALTER SYSTEM SET default_transaction_read_only = on",
            "ALTER SYSTEM RESET default_transaction_read_only",
            "read-only",
        ),
        (
            "ALTER DATABASE exchequer SET session_replication_role = replica",
            "ALTER DATABASE exchequer RESET session_replication_role",
            "session_replication_role",
        ),
    ],
)
def test_readiness_finds_a_server_that_takes_no_writes_or_runs_no_trigger(
    server, superuser, statement, undo, told
):
    migrate(server.owner_url, server.database_url)
    engine = connect(server.database_url)
    assert problem(engine) is None
    superuser.execute(statement)
    try:
        superuser.execute("SELECT pg_reload_conf(), pg_sleep(0.3)")
        assert told in (problem(engine) or "")
    finally:
        superuser.execute(undo)
        superuser.execute("SELECT pg_reload_conf(), pg_sleep(0.3)")
    assert problem(engine) is None
    engine.dispose()


@pytest.mark.slow
def test_readiness_finds_a_disk_that_is_full(tmp_path):
    from web.local import Servers
    from web.stack import postgres

    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ("mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", disk), check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    try:
        with (
            patch.dict(postgres.SETTINGS, NOT_SYNCED),
            Servers(disk / "home", valkey=False) as running,
        ):
            migrate(running.owner_url, running.database_url)
            engine = connect(running.database_url)
            assert problem(engine) is None
            with (disk / "other program's").open("wb") as file:
                file.write(bytes(shutil.disk_usage(disk).free))
            assert "No space left" in (problem(engine) or "")
            (disk / "other program's").unlink()
            assert problem(engine) is None
            engine.dispose()
    finally:
        subprocess.run(("umount", disk), check=True)
