"""The migrations make the schema that accountant.tables states, and the first of them never
changes.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import IntegrityError

from accountant import tables
from accountant.database import MIGRATIONS, connect, problem
from accountant.queries import integrity, jobs
from accountant.transactions import settlement
from tests.conftest import as_application, fresh_database
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
    files = [*sorted((MIGRATIONS / "schema").glob("*.sql")), *MIGRATIONS.glob("versions/0131_*.py")]
    stands = sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    assert stands == "7a5c2b95c67c92e84d66c62015bb50dfe728049cd5e7c6fd1e12c7965efa75ec"


def test_revisions_are_numbered_in_the_order_in_which_they_run(alembic):
    """A service compares its revision with the database's as texts."""
    walked = ScriptDirectory.from_config(alembic).walk_revisions()
    newest_first = [each.revision for each in walked]
    assert newest_first == sorted(newest_first, reverse=True)
    assert {len(each) for each in newest_first} == {4}


DECISION = (
    "INSERT INTO decisions (id, dataset_id, asked, reason, asked_by, kind, state, answered_by) "
    "SELECT gen_random_uuid(), dataset_id, '{{}}', 'x', analyst_id, {} FROM jobs"
)
#: By the name of what refuses it.
REFUSED = {
    "ck_accounts_numbers": "UPDATE accounts SET renyi_spent = 'NaN'",
    "ck_usage_numbers": "INSERT INTO usage SELECT id, 'analyst', 'ada', 'NaN' FROM datasets",
    "ck_realized_ex_post_numbers": "INSERT INTO realized_ex_post SELECT id, 'NaN' FROM jobs",
    "ck_dataset_versions_no_data": "UPDATE dataset_versions SET uri = NULL, state = 'checking'",
    "uq_jobs_signature": "UPDATE jobs SET mechanism = 'charge', "
    """parameters = '{"signature": "00"}'""",
    "ck_jobs_state": "UPDATE jobs SET state = 'lost'",
    "ck_decisions_kind": DECISION.format("'gift', 'open', NULL"),
    "ck_decisions_job": DECISION.format("'push', 'open', NULL"),
    "ck_decisions_made_job": DECISION.format("'overdraft', 'accepted', dataset_id"),
    "ck_decisions_two_people": DECISION.format("'policy', 'accepted', analyst_id"),
}


def test_tables_refuse_by_themselves_what_makes_no_sense(owner, engine):
    bench = Bench(engine)
    bench.allow()
    for _ in range(2):
        bench.submit()
    for name, statement in REFUSED.items():
        with owner.connect() as connection, pytest.raises(IntegrityError, match=name):
            connection.exec_driver_sql(statement)


NEXT = '''"""A table and a column more."""

import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "9999", "0131", None, None


def upgrade() -> None:
    op.create_table("of_the_next", sa.Column("id", sa.Integer, primary_key=True))
    op.add_column("jobs", sa.Column("of_the_next", sa.Text, server_default="new"))
'''


@pytest.fixture
def apart(servers, alembic, tmp_path) -> Iterator[Engine]:
    """A database that `alembic` upgrades to a next version, which has one revision more."""
    skipped = shutil.ignore_patterns("__pycache__")
    following = shutil.copytree(MIGRATIONS, tmp_path / "migrations", ignore=skipped)
    (following / "versions" / "9999_next.py").write_text(NEXT)
    alembic.set_main_option("script_location", str(following))
    with fresh_database(servers) as url:
        alembic.attributes.update(url=url, application_url=as_application(servers, url))
        engine = connect(alembic.attributes["application_url"])
        yield engine
        engine.dispose()


def test_a_database_with_data_is_upgraded_under_this_version_and_goes_on(alembic, apart):
    """Its rows stay, a new table is the application's too, and this version serves it."""
    bench = Bench(apart, policy={"auto_approve_epsilon": "10"})
    bench.allow()
    bench.warm()
    before = bench.submit()
    command.upgrade(alembic, "head")
    assert problem(apart) is None
    after = bench.submit()
    states = [jobs.job(apart, job, bench.analyst)["state"] for job in (before, after)]
    settlement.cancel(apart, before, bench.analyst)
    assert states == ["queued", "queued"]
    assert integrity.check(apart, bench.dataset) == []
    with apart.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM of_the_next")).scalar_one() == 0
        added = connection.execute(text("SELECT DISTINCT of_the_next FROM jobs")).scalars().all()
    assert added == ["new"]


@pytest.mark.parametrize(
    ("revision", "told"),
    [
        ("0130", "is older than the first release"),
        ("9999", "is newer than this version: it ends at 0131"),
    ],
)
def test_a_database_of_an_unknown_revision_is_told_what_to_do(owner_url, owner, revision, told):
    change = text("UPDATE alembic_version SET version_num = :revision")
    with owner.begin() as connection:
        current = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        connection.execute(change, {"revision": revision})
    done = run_alembic("upgrade", "head", DATABASE_URL=owner_url)
    with owner.begin() as connection:
        connection.execute(change, {"revision": current})
    said = done.stderr + done.stdout
    assert done.returncode != 0
    assert "Traceback" not in said
    assert f"at revision {revision}, which {told}" in said


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
