"""The role that the service connects as: it adds to the ledger, and can do nothing else to it."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from accountant.database import excess_rights, grant, migrate
from tests.support import Bench

FORBIDDEN = [
    "UPDATE entries SET actor = 'me'",
    "DELETE FROM entries",
    "TRUNCATE entries",
    "TRUNCATE jobs CASCADE",
    "ALTER TABLE entries DISABLE TRIGGER entries_rows",
    "ALTER TABLE entries DISABLE TRIGGER ALL",
    "DROP TRIGGER entries_truncate ON entries",
    "CREATE OR REPLACE FUNCTION entries_are_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RETURN NEW; END $$",
    "CREATE RULE quiet AS ON INSERT TO entries DO INSTEAD NOTHING",
    "ALTER TABLE entries OWNER TO CURRENT_USER",
    "ALTER TABLE accounts DROP CONSTRAINT ck_accounts_a_filter_holds",
    "DROP TABLE entries",
    "DELETE FROM jobs",
    "DELETE FROM accounts",
    "UPDATE alembic_version SET version_num = 'x'",
    "CREATE TABLE mine (x int)",
    "GRANT UPDATE ON entries TO PUBLIC",
    "SET session_replication_role = replica",
    "SET ROLE exchequer",
    "CREATE ROLE other",
]


@pytest.mark.parametrize("statement", FORBIDDEN)
def test_the_application_can_do_nothing_to_the_ledger_but_add(bench, statement):
    with bench.engine.connect() as connection:
        before = connection.execute(text("SELECT count(*), max(hash) FROM entries")).one()
    # A GRANT without the right to grant is a warning, not an error: what matters is what stands
    # after.
    with bench.engine.connect() as connection:
        if statement.startswith("GRANT"):
            connection.execute(text(statement))
        else:
            with pytest.raises(DBAPIError, match=r"permission denied|must be (able|owner)"):
                connection.execute(text(statement))
    assert excess_rights(bench.engine) == []
    with bench.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*), max(hash) FROM entries")).one() == before


def test_the_application_owns_nothing(bench):
    query = text(
        "SELECT relname FROM pg_class JOIN pg_roles r ON r.oid = relowner WHERE rolname = "
        "current_user"
    )
    with bench.engine.connect() as connection:
        assert connection.execute(query).all() == []
        flags = text(
            "SELECT rolsuper, rolcreaterole, rolcreatedb, rolbypassrls FROM pg_roles "
            "WHERE rolname = current_user"
        )
        assert connection.execute(flags).one() == (False, False, False, False)


def test_one_role_for_both_is_told(owner):
    assert excess_rights(owner) == ["UPDATE", "DELETE", "TRUNCATE", "TRIGGER", "OWNER"]


def test_one_url_still_works(servers):
    name = f"one_{uuid.uuid4().hex[:8]}"
    admin = create_engine(servers.owner_url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    url = admin.url.set(database=name).render_as_string(hide_password=False)
    migrate(url, url)
    alone = create_engine(url)
    bench = Bench(alone)
    bench.allow()
    with alone.connect() as connection:
        assert connection.execute(text("SELECT kind FROM entries")).scalars().all() == [
            *("REGISTER", "POLICY", "REGISTER", "ALLOW")
        ]
    alone.dispose()
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


def test_a_role_that_four_databases_make_at_once_is_made_once(servers):
    """Roles belong to the cluster: migrations of several databases may meet there."""
    superuser = make_url(servers.owner_url).set(username="postgres")
    admin = create_engine(superuser, isolation_level="AUTOCOMMIT")
    role = f"role_{uuid.uuid4().hex[:8]}"
    names = [f"db_{uuid.uuid4().hex[:8]}" for _ in range(4)]
    with admin.connect() as connection:
        for name in names:
            connection.execute(text(f"CREATE DATABASE {name}"))

    meet = threading.Barrier(4)

    def made(name: str) -> None:
        engine = create_engine(superuser.set(database=name))
        with engine.begin() as connection:
            connection.execute(text("SELECT 1"))
            meet.wait()
            grant(connection, f"postgresql://{role}:a'b%25c@/{name}")
        engine.dispose()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(made, names))
    with admin.connect() as connection:
        query = text("SELECT rolcanlogin, rolsuper FROM pg_roles WHERE rolname = :role")
        assert connection.execute(query, {"role": role}).all() == [(True, False)]
    with admin.connect() as connection:
        for name in names:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        connection.execute(text(f"DROP ROLE {role}"))
    admin.dispose()
