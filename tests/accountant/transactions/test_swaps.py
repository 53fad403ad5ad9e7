"""Swaps of several accounts in one statement: all of them, or each by itself, and never half of
one.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Barrier
from unittest.mock import patch

import psycopg
import pytest

from accountant.queries import integrity
from accountant.transactions import swaps
from accountant.transactions.expected_account import ExpectedAccount
from accountant.transactions.group_commit import Take, Ticket
from tests.accountant.transactions.test_expected_account import counted, known, state, swap_of
from tests.support import Bench


def opened_bench(engine):
    made = Bench(engine, policy={"auto_approve_epsilon": "10"})
    made.allow()
    made.warm()
    return made


@pytest.fixture(scope="module")
def benches(engine):
    """Three datasets, each of people of its own."""
    return [opened_bench(engine) for _ in range(3)]


def prepared(benches, **changes):
    """A swap of each account, as this process knows it."""
    return [swap_of(bench, ExpectedAccount(known(bench)), **changes) for bench in benches]


def together(engine, asked):
    """The answers to swaps that wait at one moment; and how many each statement had."""
    tickets, sizes, write = [Ticket(each) for each in asked], [], swaps._write

    def noted(engine, written):
        sizes.append(len(written))
        return write(engine, written)

    take = Take(swaps._writing, engine, tickets[0])
    with patch.object(swaps, "_write", noted), patch.object(Take, "__call__", lambda _: tickets):
        swaps._write_all(engine, take)
    return tickets, sizes


def test_swaps_that_wait_are_written_in_one_statement(engine, benches):
    asked = prepared(benches)
    with counted(engine) as written:
        tickets, sizes = together(engine, asked)
    assert sizes == [3]
    assert written == [3, 3]
    assert all(ticket.result() is not None for ticket in tickets)


@pytest.mark.parametrize("stale", [0, 1, 2])
def test_a_swap_that_comes_too_late_stops_no_other(engine, benches, stale):
    asked = prepared(benches)
    benches[stale].submit(2)
    with counted(engine) as written:
        tickets, sizes = together(engine, asked)
    assert sizes == [3, 1, 1, 1]
    assert written == [2, 2]
    assert [ticket.result() is None for ticket in tickets] == [n == stale for n in range(3)]


def test_what_waits_is_counted_over_all_of_a_statement(engine, benches):
    """Each of one person's three jobs is within their limit, and all three are not."""
    person = benches[0].analyst
    asked = [
        replace(each, most=waiting(engine, person) + 2) for each in prepared(benches, who=person)
    ]
    with counted(engine) as written:
        tickets, sizes = together(engine, asked)
    assert sizes == [3, 1, 1, 1]
    assert written == [2, 2]
    assert [ticket.result() is None for ticket in tickets] == [False, False, True]


def waiting(engine, person):
    with engine.connect() as connection:
        query = (
            "SELECT count(*) FROM jobs WHERE analyst_id = %s AND reads_records AND state = 'queued'"
        )
        return connection.exec_driver_sql(query, (person.id,)).scalar_one()


@contextmanager
def holding_all(owner):
    """The database's function compares nothing any more."""
    with owner.begin() as connection:
        before = connection.exec_driver_sql(
            "SELECT pg_get_functiondef('hold_account'::regproc)"
        ).scalar_one()
        begin, end = before.index("$function$"), before.rindex("$function$")
        blind = "BEGIN RETURN clock_timestamp(); END "
        connection.exec_driver_sql(f"{before[:begin]}$function${blind}{before[end:]}")
    yield
    with owner.begin() as connection:
        connection.exec_driver_sql(before)


def test_a_statement_has_no_more_entries_than_are_written_in_tens_of_milliseconds():
    def ticket(entries, **account):
        return Ticket(swaps.Swap({}, account, [("entries", [{}] * entries)], {}, 1))

    waiting = [ticket(60), ticket(30), ticket(5, other=1), ticket(30), ticket(300), ticket(1)]
    sizes = [
        [each.question.entries for each in together] for together in swaps._statements(waiting)
    ]
    assert sizes == [[60, 30], [5], [30], [300], [1]]


def test_a_statement_that_would_move_one_account_of_two_writes_nothing(engine, benches, owner):
    asked = prepared(benches[:2])
    benches[0].submit(2)
    with (
        holding_all(owner),
        counted(engine) as written,
        pytest.raises(psycopg.errors.DivisionByZero),
    ):
        swaps._write(engine, asked)
    assert written == [0, 0]
    assert swaps.write(engine, asked[0]) is None
    assert swaps.write(engine, asked[1]) is not None  # the connection that failed is not met again


def test_an_error_is_everybodys(engine, benches):
    """It may have been written before a connection broke: nobody tries again by themselves."""
    asked = prepared(benches[:2])
    asked = [
        replace(each, groups=[("jobs", [{**each.groups[0][1][0], "state": "?"}])]) for each in asked
    ]
    with counted(engine) as written:
        tickets, sizes = together(engine, asked)
    assert sizes == [2]
    assert written == [0, 0]
    for ticket in tickets:
        with pytest.raises(psycopg.errors.Error):
            ticket.result()


def test_requests_on_many_datasets_share_statements(engine):
    """Twenty on ten datasets: each is decided as if it were alone, one of each pair of 200 tokens
    fits.
    """
    benches, barrier, sizes, write = (
        [opened_bench(engine) for _ in range(10)],
        Barrier(20),
        [],
        swaps._write,
    )
    for bench in benches:
        bench.submit(10)

    def noted(engine, written):
        sizes.append(len(written))
        return write(engine, written)

    def ask(n):
        barrier.wait()
        return benches[n % 10].submit(200)

    with patch.object(swaps, "_write", noted), ThreadPoolExecutor(20) as pool:
        jobs = list(pool.map(ask, range(20)))
    states = [state(benches[n % 10], job_id) for n, job_id in enumerate(jobs)]
    for n in range(10):
        assert sorted((states[n], states[n + 10])) == ["queued", "refused"]
        assert integrity.check(engine, benches[n].dataset) == []
    assert max(sizes) > 1
