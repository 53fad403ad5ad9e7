"""Admission by what is known of an account: written where it is still so, else as if nothing was
known.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch
from uuid import uuid4

import pytest
from sqlalchemy import event, text

from accountant import tables
from accountant.core.errors import InvalidRequest, NotPermitted
from accountant.core.ledger.commitments import opened
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.policy import Policy
from accountant.database import connect, logging_to
from accountant.queries import integrity
from accountant.queries import jobs as job_queries
from accountant.transactions import policies, settlement, submission, swaps
from accountant.transactions.expected_account import Clock, ExpectedAccount


@contextmanager
def statements(engine):
    """The statements that an engine sends within the block, and those that pass it by."""
    sent, write = [], swaps._write

    def note(connection, cursor, statement, *_):
        sent.append(statement)

    def once(engine, written):
        sent.append("a swap")
        return write(engine, written)

    event.listen(engine, "before_cursor_execute", note)
    with patch.object(swaps, "_write", once):
        yield sent
    event.remove(engine, "before_cursor_execute", note)


def known(bench):
    """What this process knows of the dataset after an admission."""
    bench.submit(1)
    return submission._known_of(bench.engine)[bench.dataset]


def state(bench, job_id):
    return job_queries.job(bench.engine, job_id, bench.steward)["state"]


NEWEST = (
    "SELECT job_id, document FROM entries WHERE dataset_id = :id AND kind = 'RESERVE' ORDER "
    "BY seq DESC"
)


def swap_of(bench, expected, keys=(), who=None):
    """A RESERVE like the newest, to be written by what `expected` knows."""
    with bench.engine.connect() as connection:
        newest = text(NEWEST)
        job_id, document = connection.execute(newest, {"id": expected.dataset_id}).first()
        row = connection.execute(tables.jobs.select().where(tables.jobs.c.id == job_id)).one()
        body = opened(json.loads(document))["body"]
    analyst = who or bench.analyst
    job = {**row._mapping, "id": uuid4(), "idempotency_key": None, "analyst_id": analyst.id}
    expected.post(EntryKind.RESERVE, bench.analyst.name, job["id"], {**body, "approval": None})
    names = sorted(expected._known.facts.models)
    return expected.swap([(tables.jobs, [job])], names, keys, ({analyst.id: 1}, 1000))


def swapped(bench, expected, keys=()):
    """True if that is written; else nothing is."""
    swap = swap_of(bench, expected, keys)
    with counted(bench.engine) as written:
        at = swaps.write(bench.engine, swap)
    assert written == ([1, 1] if at is not None else [0, 0])
    return at is not None


@contextmanager
def counted(engine):
    """How many entries and jobs came within the block."""
    count, found = text("SELECT (SELECT count(*) FROM entries), (SELECT count(*) FROM jobs)"), []
    with engine.connect() as connection:
        before = connection.execute(count).one()
    yield found
    with engine.connect() as connection:
        found += [
            now - then for now, then in zip(connection.execute(count).one(), before, strict=True)
        ]


def test_the_second_admission_is_one_statement(open_bench):
    open_bench.submit(1)
    with statements(open_bench.engine) as sent:
        job_id = open_bench.submit(2, key="a key")
    assert len(sent) == 1
    assert state(open_bench, job_id) == "queued"
    with statements(open_bench.engine) as sent:  # its own entries are what is known next
        jobs = [open_bench.submit(tokens) for tokens in (3, 2, 3)]
    assert len(sent) == 3
    assert {state(open_bench, each) for each in jobs} == {"queued"}
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def test_what_is_known_is_written_once(open_bench):
    expected = known(open_bench)
    assert swapped(open_bench, ExpectedAccount(expected))
    assert not swapped(open_bench, ExpectedAccount(expected))  # the account went on


def change_dataset(bench):
    return "UPDATE datasets SET description = 'another' WHERE name = :dataset"


def change_model(bench):
    return "UPDATE models SET state = 'invalid', facts = NULL WHERE name = :model"


def change_version(bench):
    return (
        "UPDATE dataset_versions SET uri = '/elsewhere' "
        "WHERE dataset_id = (SELECT id FROM datasets WHERE name = :dataset)"
    )


@pytest.mark.parametrize("change", [change_dataset, change_model, change_version])
def test_nothing_is_written_where_dataset_model_or_version_is_another(open_bench, owner, change):
    expected = known(open_bench)
    with owner.begin() as connection:
        named = {"dataset": open_bench.dataset, "model": open_bench.model}
        connection.execute(text(change(open_bench)), named)
    assert not swapped(open_bench, ExpectedAccount(expected))


@pytest.mark.parametrize("hours", [-1, 1])
def test_nothing_is_written_at_a_time_that_is_not_the_databases(open_bench, hours):
    expected = known(open_bench)
    off = replace(
        expected,
        clock=Clock(expected.now + timedelta(hours=hours)),
        at=expected.at - timedelta(hours=2),
    )
    assert not swapped(open_bench, ExpectedAccount(off))


def test_nothing_is_written_under_a_key_that_was_used(open_bench):
    open_bench.submit(1, key="used")
    expected = submission._known_of(open_bench.engine)[open_bench.dataset]
    assert not swapped(open_bench, ExpectedAccount(expected), [(open_bench.analyst.id, "used")])
    assert swapped(open_bench, ExpectedAccount(expected), [(open_bench.analyst.id, "new")])


def test_a_row_that_is_held_is_not_waited_for(open_bench):
    expected = known(open_bench)
    with open_bench.engine.begin() as connection:
        connection.execute(text("SELECT FROM accounts FOR UPDATE"))
        assert not swapped_beside(open_bench, expected)


def swapped_beside(bench, expected):
    waiting = ExpectedAccount(expected)
    waiting._posted = [{"dataset_id": expected.dataset_id, "seq": expected.head.seq + 1}]
    swap = waiting.swap([], sorted(expected.facts.models), [], ({}, 1000))
    return swaps.write(bench.engine, swap) is not None


def test_a_policy_a_model_and_a_cancelled_job_count_at_once(open_bench, owner):
    bench = open_bench
    first = bench.submit(300)
    assert state(bench, bench.submit(100)) == "refused"
    settlement.cancel(bench.engine, first, bench.analyst)
    assert state(bench, bench.submit(300)) == "queued"
    bench.submit(1)
    others = Policy(auto_approve_epsilon="10", analysts=(bench.steward.name,))
    policies.set_policy(bench.engine, bench.dataset, others, bench.steward)
    with pytest.raises(NotPermitted):
        bench.submit(1)
    policies.set_policy(
        bench.engine, bench.dataset, Policy(auto_approve_epsilon="10"), bench.steward
    )
    bench.submit(1)
    with owner.begin() as connection:
        withdrawn = text("UPDATE models SET state = 'invalid', facts = NULL WHERE name = :name")
        connection.execute(withdrawn, {"name": bench.model})
    with pytest.raises(InvalidRequest, match="model"):
        bench.submit(1)
    assert integrity.check(bench.engine, bench.dataset) == []


def test_processes_that_know_different_things_spend_an_allowance_once(
    open_bench, database_url, tmp_path
):
    """Each engine knows what it did last; 350 of 360 tokens are left for twenty jobs of 17."""
    bench = open_bench
    bench.submit(10)
    engines = [logging_to(connect(database_url), tmp_path / "log") for _ in range(3)]
    with ThreadPoolExecutor(12) as pool:
        asked = [
            pool.submit(
                submission.submit, engines[n % 3], bench.request(17), bench.analyst, f"key {n}"
            )
            for n in range(48)
        ]
        jobs = [each.result() for each in asked]
    states = [state(bench, each) for each in jobs]
    assert (states.count("queued"), states.count("refused")) == (20, 28)
    again = submission.submit(engines[0], bench.request(17), bench.analyst, "key 7")
    assert again == jobs[7]
    assert integrity.check(engines[0], bench.dataset) == []
    for each in engines:
        each.dispose()
