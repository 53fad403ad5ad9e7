"""The migrations make the schema that accountant.tables states, and the first of them never
changes.
"""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from hashlib import sha256

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, insert, make_url, select, text

from accountant import tables
from accountant.database import MIGRATIONS, connect
from accountant.queries import integrity, jobs
from accountant.transactions import settlement
from tests.conftest import as_application, as_superuser, create
from tests.support import Bench

pytestmark = pytest.mark.slow


@pytest.fixture
def alembic(owner_url, database_url) -> Config:
    config = Config(str(MIGRATIONS / "alembic.ini"))
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["url"] = owner_url
    config.attributes["application_url"] = database_url
    return config


def test_alembic_finds_nothing_to_add(alembic):
    command.check(alembic)


def test_checks_and_defaults_are_those_of_the_tables(owner):
    """Alembic compares no CHECK: the tables made anew, in a schema of their own, have the same
    ones.
    """
    constraints = text(
        "SELECT r.relname, c.conname, pg_get_constraintdef(c.oid) FROM pg_constraint c "
        "JOIN pg_class r ON r.oid = c.conrelid JOIN pg_namespace n ON n.oid = r.relnamespace "
        "WHERE n.nspname = :schema AND c.contype = 'c' AND r.relname <> 'alembic_version' ORDER BY "
        "1, 2"
    )
    columns = text(
        "SELECT table_name, column_name, data_type, is_nullable, column_default "
        "FROM information_schema.columns "
        "WHERE table_schema = :schema AND table_name <> 'alembic_version' ORDER BY 1, 2"
    )
    with owner.connect().execution_options(schema_translate_map={None: "plain"}) as connection:
        connection.execute(text("CREATE SCHEMA plain"))
        tables.metadata.create_all(connection)
        for query in (constraints, columns):
            made = connection.execute(query, {"schema": "plain"}).all()
            migrated = connection.execute(query, {"schema": "public"}).all()
            assert made == migrated
        connection.rollback()


def test_the_first_revision_is_frozen():
    """Two databases at one revision have one schema: a change of it is a new revision, not an
    edit.
    """
    files = sorted((MIGRATIONS / "schema").glob("*.sql"))
    stands = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    assert stands == "db1f4e73412cc85ed122c4cede38c22cb422328c0719094306de83e34f944b74"


def test_revisions_are_numbered_in_the_order_in_which_they_run(alembic):
    """A service compares its revision with the database's as texts."""
    walked = ScriptDirectory.from_config(alembic).walk_revisions()
    newest_first = [each.revision for each in walked]
    assert newest_first == sorted(newest_first, reverse=True)
    assert {len(each) for each in newest_first} == {4}


@pytest.fixture
def at_first_revision(servers, alembic) -> Iterator[Config]:
    """A database of the first revision; its owner's and the application's addresses are in the
    attributes.
    """
    name, owner = f"test_{uuid.uuid4().hex[:12]}", make_url(servers.owner_url)
    with as_superuser(servers) as admin:
        create(admin, name, owner.username)
    url = owner.set(database=name).render_as_string(hide_password=False)
    alembic.attributes.update(url=url, application_url=as_application(servers, url))
    command.upgrade(alembic, "0100")
    yield alembic
    with as_superuser(servers) as admin:
        admin.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def copied(source: Engine, url: str) -> None:
    """Copy every row to a database of an earlier revision, as far as it has the columns."""
    target = connect(url)
    there = (
        "SELECT column_name FROM information_schema.columns WHERE table_name = :name AND "
        "is_identity = 'NO'"
    )
    with source.connect() as rows, target.begin() as connection:
        connection.execute(text("ALTER TABLE accounts DROP CONSTRAINT ck_accounts_price_edition"))
        for table in tables.metadata.sorted_tables:
            names = set(connection.execute(text(there), {"name": table.name}).scalars())
            columns = [column for column in table.c if column.name in names]
            found = rows.execute(select(*columns)).mappings().all() if columns else []
            if found and connection.execute(select(columns[0]).limit(1)).first() is None:
                connection.execute(insert(table).values([dict(row) for row in found]))
        connection.execute(text("UPDATE accounts SET price_edition = 2 WHERE epsilon IS NOT NULL"))
    target.dispose()


def test_a_database_with_data_is_upgraded_and_goes_on(at_first_revision, engine, owner):
    bench, _ = (Bench(engine, policy={"auto_approve_epsilon": "10"}) for _ in range(2))
    bench.allow()
    bench.probe(bench.submit(1))
    before = bench.submit()
    copied(owner, at_first_revision.attributes["url"])
    command.upgrade(at_first_revision, "head")
    engine = bench.engine = connect(at_first_revision.attributes["application_url"])
    with engine.connect() as connection:
        salts = connection.execute(select(tables.datasets.c.secrets_salt)).scalars().all()
    assert len(set(salts)) == len(salts) >= 2
    after = bench.submit()
    states = [jobs.job(engine, job, bench.analyst)["state"] for job in (before, after)]
    settlement.cancel(engine, before, bench.analyst)
    assert states == ["queued", "queued"]
    assert integrity.check(engine, bench.dataset) == []
    engine.dispose()


def test_a_database_from_before_the_first_release_is_told_what_to_do(owner_url, owner):
    change = text("UPDATE alembic_version SET version_num = :revision")
    with owner.begin() as connection:
        current = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        connection.execute(change, {"revision": "0019"})
    told = run_alembic("upgrade", "head", DATABASE_URL=owner_url)
    with owner.begin() as connection:
        connection.execute(change, {"revision": current})
    assert told.returncode != 0
    assert "Traceback" not in told.stderr + told.stdout
    assert "at revision 0019, which this version does not know" in told.stderr + told.stdout
    assert "make an empty database" in told.stderr + told.stdout


def run_alembic(*words: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "alembic", "-c", str(MIGRATIONS / "alembic.ini"), *words],
        cwd=MIGRATIONS.parent,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def test_a_connection_that_the_server_closed_while_idle_is_replaced(engine, owner, monkeypatch):
    from accountant import database

    monkeypatch.setattr(database, "IDLE_SECONDS", 0.0)
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    with owner.connect() as connection:
        own = connection.execute(text("SELECT current_database()")).scalar_one()
    admin = create_engine(owner.url.set(username="postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"{kill} AND datname = :own"), {"own": own})
    admin.dispose()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
