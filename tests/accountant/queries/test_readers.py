"""Queries read on READ ONLY transactions: PostgreSQL refuses whatever would write."""

import ast
from pathlib import Path

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import InternalError

from accountant import queries, tables
from accountant.database import reading
from accountant.queries import datasets

FILES = sorted(Path(queries.__file__).parent.glob("*.py"))
WRITES = (
    "UPDATE datasets SET description = ''",
    "DELETE FROM sign_in_limits",
    "SELECT id FROM jobs FOR UPDATE",
    "SET TRANSACTION READ WRITE",
)


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("statement", WRITES)
def test_postgresql_refuses_what_a_reader_writes(engine, statement, snapshot):
    with reading(engine, snapshot=snapshot) as connection:
        connection.execute(text("SELECT 1"))
        with pytest.raises(InternalError, match=r"read-only|read-write mode"):
            connection.execute(text(statement))


def test_a_query_that_tries_to_write_is_refused(open_bench, monkeypatch):
    def writes(connection, row, _):
        connection.execute(
            update(tables.datasets).where(tables.datasets.c.id == row.id).values(labels=["x"])
        )
        connection.commit()

    monkeypatch.setattr(datasets, "_caps", writes)
    with pytest.raises(InternalError, match="read-only"):
        datasets.dataset(open_bench.engine, open_bench.dataset, open_bench.analyst)


def test_a_connection_returns_to_the_pool_as_it_was(open_bench):
    """One pool serves both: writers get it back able to write."""
    with reading(open_bench.engine) as connection:
        backend = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    with open_bench.engine.begin() as connection:
        assert connection.execute(text("SELECT pg_backend_pid()")).scalar_one() == backend
        connection.execute(text("UPDATE datasets SET description = description"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_queries_open_connections_for_reading_alone(file):
    """No `engine.connect()` or `engine.begin()`, and no statement that writes."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in ("connect", "begin", "raw_connection"), (
                file.name,
                node.lineno,
            )
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sqlalchemy"):
            names = {each.name for each in node.names}
            assert not names & {"insert", "update", "delete"}, (file.name, node.lineno)
