"""`exchequer ledger check` finds what the database's owner changed: any column that an entry
states.
"""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError

from accountant import tables
from accountant.core.ledger.accounts import Settlement
from accountant.core.ledger.allowances import Allowance
from accountant.core.privacy.events import from_json
from accountant.queries import entries, integrity, jobs
from accountant.transactions import (
    allowances,
    corrections,
    leases,
    settlement,
    submission,
)
from accountant.transactions.artifacts import Stored
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.settlement import Output
from tests.support import Bench, person, yes

#: Columns that no entry states. `id`s are kept by foreign keys.
UNSTATED = {
    # another dataset's or job's entry breaks the chain, as below
    "entries": {"dataset_id", "job_id"},
    "jobs": {
        *("id", "purpose", "idempotency_key", "request_sha256", "breakdown", "approval_expires"),
        *("started_at", "decided_at", "cancel_requested", "refusal", "to_reserve"),
    },
    "artifacts": {"job_id", "media_type", "size", "created_at"},
    "realized_ex_post": {"job_id", "curve"},
    "checkpoints": {"dataset_id", "key_id"},  # there is no other key
    "decisions": {
        "id",
        "dataset_id",
        "asked",
        "basis_seq",
        "state",
        "created_at",
        "expires_at",
        "answered_at",
        "made_job",
        "made_decision",
    },
    "datasets": {"id", "name", "description", "created_by", "created_at"},
    "dataset_versions": {"id", "dataset_id", "error", "created_by", "created_at", "shared_with"},
    "accounts": {"dataset_id"},
}
#: How a value of a type becomes another; a time moves to where the entry says that it can't be.
CHANGES = {
    "TEXT": "coalesce({}, '') || 'x'",
    "INTEGER": "{} + 1",
    "BIGINT": "{} + 1",
    "NUMERIC": "{} + 1",
    "DOUBLE": "{} + 0.01",
    "BOOLEAN": "NOT {}",
    "UUID": ":other",
}
SPECIAL = {
    ("entries", "hash"): "repeat('0', 64)",
    ("entries", "document"): "replace({}, 'the plan', 'the pla')",
    ("entries", "kind"): "'VOID'",
    ("jobs", "state"): "'failed'",
    ("jobs", "output_sha256"): "repeat('f', 64)",
    ("jobs", "finished_at"): "{} - interval '1 day'",
    ("jobs", "failure"): "'another reason'",
    ("artifacts", "sha256"): "repeat('e', 64)",
    ("artifacts", "name"): "'another'",
    ("checkpoints", "document"): 'replace({}, \'"signature": "\', \'"signature": "00\')',
    ("datasets", "neighbours"): "'replace-one'",
    ("datasets", "labels"): "'[\"one\"]'::jsonb",
    ("datasets", "groups"): "'[\"one\"]'::jsonb",
    ("datasets", "secret_patterns"): "'[\"[a-z]{{4}}\"]'::jsonb",
    ("datasets", "secret_terms"): "'[\"one\"]'::jsonb",
    ("dataset_versions", "state"): "'invalid'",
    ("datasets", "policy"): "jsonb_set({}, '{{solo}}', 'true')",
    ("accounts", "secret"): '\'{{"kind": "many"}}\'::jsonb',
    ("accounts", "ex_post_settlement"): "'planned'",
    ("jobs", "project"): "'another'",
    ("decisions", "kind"): "'allowance'",
}


@pytest.fixture(scope="module")
def book(engine) -> Bench:
    """A ledger with a row in each table: jobs of every end, an artifact, a correction, a
    checkpoint.
    """
    Bench(engine)  # another dataset, with people and a model of its own
    policy = {"auto_approve_epsilon": "1", "two_people": True}
    bench = Bench(engine, policy=policy, secret_terms=["pin"], secret_patterns=["[0-9]{4}"])
    bench.second = person(engine, "steward")
    proposed = allowances.allow(
        engine,
        bench.dataset,
        Allowance(
            "10", "1e-6", "the plan", ex_post="100", ex_post_settlement=str(Settlement.REALIZED)
        ),
        bench.steward,
    )
    assert proposed is not None
    yes(engine, proposed, bench.second, "seen")
    bench.counted = count(bench, "count")
    ask(
        bench,
        "private-prediction",
        bench.model,
        aggregation="median",
        ex_post_cap=2,
        tokens_per_batch=8,
    )
    bench.median = ask(
        bench,
        "private-prediction",
        bench.model,
        aggregation="median",
        ex_post_cap=2,
        tokens_per_batch=8,
    )
    publish(bench, bench.median, ex_post=1_000_000_000)
    bench.void = ask(bench, "noisy-count", epsilon=0.2)
    settlement.cancel(engine, bench.void, bench.analyst)
    found = corrections.correct(engine, bench.void, bench.steward, "it did read")
    yes(engine, found, bench.second, "agreed")
    bench.live = ask(bench, "noisy-count", epsilon=0.2)
    entries.checkpoint(engine, bench.dataset, bench.auditor, b"k" * 32)
    assert integrity.check(engine, bench.dataset) == []
    return bench


def ask(bench: Bench, mechanism: str, model: str | None = None, **parameters: Any) -> uuid.UUID:
    request = JobRequest(bench.dataset, mechanism, model, parameters, "why", "atlas")
    job_id = submission.submit(bench.engine, request, bench.analyst)
    if jobs.job(bench.engine, job_id, bench.steward)["state"] == "submitted":
        bench.probe(job_id)
    if jobs.job(bench.engine, job_id, bench.steward)["state"] == "awaiting_approval":
        yes(bench.engine, job_id, bench.steward, "within it")
    return job_id


def publish(
    bench: Bench, job_id: uuid.UUID, artifacts: tuple[Stored, ...] = (), **others: Any
) -> None:
    claim = leases.claim(bench.engine, job_id, 1, "worker", 60)
    leases.begin_reading(bench.engine, claim)
    with bench.engine.connect() as connection:
        query = text("SELECT document::jsonb -> 'body' -> 'event' FROM entries WHERE job_id = :id")
        event = from_json(connection.execute(query, {"id": job_id}).scalar_one())
    output = Output("/x", "0" * 64, artifacts)
    settlement.publish(bench.engine, claim, event, output, "worker", **others)


def count(bench: Bench, name: str) -> uuid.UUID:
    job_id = ask(bench, "noisy-count", epsilon=1.5)
    publish(bench, job_id, (Stored(name, "count", "application/json", "d" * 64, 10, "/a"),))
    return job_id


def row_of(bench: Bench, table: str) -> str:
    """One row of each table, as a condition."""
    own = f"dataset_id = (SELECT id FROM datasets WHERE name = '{bench.dataset}')"
    return {
        "entries": f"{own} AND kind = 'ALLOW'",
        "jobs": f"id = '{bench.counted}'",
        "artifacts": f"job_id = '{bench.counted}'",
        "realized_ex_post": f"job_id = '{bench.median}'",
        "checkpoints": own,
        "decisions": f"{own} AND kind = 'correction'",
        "datasets": f"name = '{bench.dataset}'",
        "dataset_versions": own,
        "accounts": own,
    }[table]


def columns() -> Iterator[tuple[str, str]]:
    for table, unstated in UNSTATED.items():
        for column in tables.metadata.tables[table].c:
            if column.name not in unstated:
                yield table, column.name


def another(table: str, column: str) -> str:
    if (table, column) in SPECIAL:
        return SPECIAL[table, column].format(column)
    kind = str(tables.metadata.tables[table].c[column].type).split("(")[0].upper()
    if kind == "JSONB":
        return f"{column} || '{{\"x\": 1}}'::jsonb"
    if kind in ("DATETIME", "TIMESTAMP"):
        return f"{column} + interval '1 day'"
    if tables.metadata.tables[table].c[column].foreign_keys:
        return ":other"
    return CHANGES[kind.split(" ")[0]].format(column)


def changed(owner: Engine, table: str, statement: str, values: dict[str, Any]) -> int:
    """Run a statement as the owner, without the triggers that forbid it; returns the rows that it
    changed.
    """
    with owner.begin() as connection:
        connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
        found = connection.execute(text(statement), values).rowcount
        connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER USER"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("table", "column"), list(columns()), ids="{}".format)
def test_a_changed_column_is_found(book, owner, table, column):
    where = row_of(book, table)
    before = rows(owner, table, where)
    with owner.connect() as connection:
        found = connection.execute(text(f"SELECT {quoted(column)} FROM {table} WHERE {where}"))
        kept = found.scalars().all()[0]
        values = {}
        if another(table, column) == ":other":
            values["other"] = connection.execute(
                text(other(table, column)), {"kept": kept}
            ).scalar_one()
    try:
        change = f"UPDATE {table} SET {quoted(column)} = {another(table, column)} WHERE {where}"
        assert changed(owner, table, change, values) >= 1
    except IntegrityError:
        return  # a CHECK or a key of the database refuses it, whoever asks
    try:
        found = integrity.check(book.engine, book.dataset)
    finally:
        back = json.dumps(kept) if isinstance(kept, dict | list) else kept
        cast = "CAST(:kept AS jsonb)" if isinstance(kept, dict | list) else ":kept"
        changed(
            owner,
            table,
            f"UPDATE {table} SET {quoted(column)} = {cast} WHERE {where}",
            {"kept": back},
        )
    assert found, f"{table}.{column} was changed, and nothing noticed"
    assert rows(owner, table, where) == before


def rows(owner: Engine, table: str, where: str) -> list[str]:
    query = f"SELECT each::text FROM {table} AS each WHERE {where} ORDER BY 1"
    with owner.connect() as connection:
        return list(connection.execute(text(query)).scalars())


def quoted(column: str) -> str:
    return f'"{column}"'


def other(table: str, column: str) -> str:
    """A query of another value that the foreign key allows."""
    (key,) = tables.metadata.tables[table].c[column].foreign_keys
    target = key.column
    return (
        f"SELECT {target.name} FROM {target.table.name} WHERE {target.name} IS DISTINCT FROM "
        ":kept LIMIT 1"
    )


# --- rows that no entry states ------------------------------------------------------------------


def test_an_output_that_was_published_without_an_entry_is_found(book, owner):
    """A job that was never reserved, as a hand in the database would publish it."""
    where = f"id = '{book.live}'"
    with owner.begin() as connection:
        connection.execute(
            text(f"UPDATE jobs SET state = 'succeeded', output_sha256 = 'x' WHERE {where}")
        )
    found = integrity.check(book.engine, book.dataset)
    with owner.begin() as connection:
        connection.execute(
            text(f"UPDATE jobs SET state = 'queued', output_sha256 = NULL WHERE {where}")
        )
    assert f"job {book.live}: it is succeeded, and no entry settles it" in found
    unasked = uuid.uuid4()
    names = [
        column.name for column in tables.jobs.c if column.name not in ("id", "idempotency_key")
    ]
    copied = ", ".join(quoted(name) for name in names)
    with owner.begin() as connection:
        connection.execute(
            text(
                f"INSERT INTO jobs (id, {copied}) SELECT :id, {copied} FROM jobs WHERE id = "
                f"'{book.counted}'"
            ),
            {"id": unasked},
        )
    found = integrity.check(book.engine, book.dataset)
    with owner.begin() as connection:
        connection.execute(text("DELETE FROM jobs WHERE id = :id"), {"id": unasked})
    assert f"job {unasked}: it is succeeded, and no entry reserves it" in found


def test_an_artifact_that_no_entry_names_is_found(book, owner):
    for job_id in (book.counted, book.live):
        with owner.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO artifacts (job_id, name, kind, media_type, sha256, size) "
                    "VALUES (:id, 'more', 'count', 'application/json', repeat('b', 64), 1)"
                ),
                {"id": job_id},
            )
        found = integrity.check(book.engine, book.dataset)
        changed(owner, "artifacts", "DELETE FROM artifacts WHERE name = 'more'", {})
        assert [each for each in found if str(job_id) in each]


def test_a_version_that_nobody_registered_is_found(book, owner):
    found_before = integrity.check(book.engine, book.dataset)
    with owner.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO dataset_versions "
                "(id, dataset_id, number, uri, text_template, state, created_by) "
                "SELECT gen_random_uuid(), dataset_id, 7, uri, text_template, state, created_by "
                f"FROM dataset_versions WHERE {row_of(book, 'accounts')}"
            )
        )
    found = integrity.check(book.engine, book.dataset)
    with owner.begin() as connection:
        connection.execute(text("DELETE FROM dataset_versions WHERE number = 7"))
    assert (found_before, found) == (
        [],
        ["the versions that were found right are not those that are registered"],
    )


def test_a_part_that_outlived_its_job_is_found(book, owner):
    with owner.begin() as connection:
        connection.execute(text(f"UPDATE parts SET state = 'done' WHERE job_id = '{book.counted}'"))
    found = integrity.check(book.engine, book.dataset)
    with owner.begin() as connection:
        connection.execute(
            text(f"UPDATE parts SET state = 'stopped' WHERE job_id = '{book.counted}'")
        )
    assert found == [f"job {book.counted}: its part 0 outlived it"]
