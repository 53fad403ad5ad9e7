"""Each process has a database role of its own, with the rights that `accountant.rights` states: no
more.
"""

import pytest
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import DBAPIError

from accountant import tables
from accountant.rights import PROCESSES, RIGHTS, stated
from tests.conftest import as_process
from web.stack.addresses import ROLES

WHOLE = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "MAINTAIN")
BY_COLUMN = ("SELECT", "INSERT", "UPDATE", "REFERENCES")
NOBODYS = {"process_roles", "private_places"}  # the owner's triggers alone read it

TABLES = text(
    "SELECT c.relname, r.kind, has_table_privilege(:role, c.oid, r.kind) AS held "
    "FROM pg_class c, unnest(CAST(:rights AS text[])) AS r(kind) "
    "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"
)
COLUMNS = text(
    "SELECT c.relname, r.kind, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = "
    "c.oid, "
    "unnest(CAST(:rights AS text[])) AS r(kind) "
    "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 "
    "AND NOT a.attisdropped AND has_column_privilege(:role, c.oid, a.attnum, r.kind)"
)


@pytest.mark.parametrize("process", PROCESSES)
def test_a_role_has_the_rights_that_are_stated_and_none_in_excess(owner, process):
    """Every table that there is, by every right that there is: 0 in excess and 0 missing."""
    with owner.connect() as connection:
        asked = {"role": ROLES[process], "rights": list(WHOLE)}
        whole = {(row.relname, row.kind) for row in connection.execute(TABLES, asked) if row.held}
        asked = {"role": ROLES[process], "rights": list(BY_COLUMN)}
        single = {tuple(row) for row in connection.execute(COLUMNS, asked)}
    found = {(table, right, None) for table, right in whole}
    found |= {each for each in single if each[:2] not in whole}
    declared = {
        (table, *each)
        for table, rights in RIGHTS[process].items()
        for each in stated(rights)
        if rights
    }
    assert found == declared


def test_every_table_is_named_for_some_process():
    named = (
        {table for rights in RIGHTS.values() for table in rights} | NOBODYS | {"alembic_version"}
    )
    unnamed = sorted(set(tables.metadata.tables) - named)
    assert not unnamed, (
        f"no process may touch {', '.join(unnamed)}: state in accountant/rights.py who may do what "
        "to it, "
        "and what a stolen process can do with that in docs/powers.md"
    )
    unknown = sorted(named - set(tables.metadata.tables) - {"alembic_version"})
    assert not unknown, (
        f"accountant/rights.py names tables that there are not: {', '.join(unknown)}"
    )


@pytest.mark.parametrize("process", PROCESSES)
def test_a_role_owns_nothing_and_is_no_member_of_another(owner_url, process):
    flags = text(
        "SELECT rolsuper, rolcreaterole, rolcreatedb, rolbypassrls, rolreplication, "
        "(SELECT count(*) FROM pg_auth_members WHERE member = r.oid), "
        "(SELECT count(*) FROM pg_class WHERE relowner = r.oid) FROM pg_roles r WHERE rolname = "
        "current_user"
    )
    engine = create_engine(as_process(owner_url, process), poolclass=NullPool)
    with engine.connect() as connection:
        assert connection.execute(flags).one() == (False, False, False, False, False, 0, 0)
    for act in (
        "CREATE TABLE mine (x int)",
        "CREATE SCHEMA mine",
        "SET ROLE exchequer",
        "CREATE ROLE other",
    ):
        with engine.connect() as connection, pytest.raises(DBAPIError, match="permission denied"):
            connection.execute(text(act))
