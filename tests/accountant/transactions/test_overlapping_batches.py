"""A batch is decided while the one before it is written, and written after it or not at all."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from uuid import UUID

import pytest
from sqlalchemy import text

from accountant.core.errors import InvalidRequest
from accountant.queries import integrity
from accountant.transactions import batches, submission
from accountant.transactions.expected_account import ExpectedAccount
from accountant.transactions.group_commit import Combiner, Take


def wait_until(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.002)


class Writer:
    """The first batch stands still when it is about to be written, until `go`; then `outcome`
    happens.
    """

    def __init__(self, monkeypatch, outcome=None) -> None:
        self.held, self.go = threading.Event(), threading.Event()
        self.decided, self.locked = [], []
        swap, consider, lock = ExpectedAccount.swap, batches.consider, submission._lock
        written = []

        def slow(account, *arguments):
            written.append(account)
            if len(written) > 1:
                return swap(account, *arguments)
            self.held.set()
            assert self.go.wait(20)
            return (
                swap(account, *arguments) if outcome is None else outcome(swap, account, *arguments)
            )

        def counted(*arguments):
            self.decided.append(arguments[1])
            return consider(*arguments)

        def locked(*arguments):
            self.locked.append(arguments)
            return lock(*arguments)

        monkeypatch.setattr(ExpectedAccount, "swap", slow)
        monkeypatch.setattr(batches, "consider", counted)
        monkeypatch.setattr(submission, "_lock", locked)


def reserved(bench) -> list[UUID]:
    """The jobs with a reservation, in the order of the ledger."""
    query = text(
        "SELECT job_id FROM entries WHERE kind = 'RESERVE' "
        "AND dataset_id = (SELECT id FROM datasets WHERE name = :name) ORDER BY seq"
    )
    with bench.engine.connect() as connection:
        return list(connection.execute(query, {"name": bench.dataset}).scalars())


def test_the_next_batch_is_decided_while_one_is_written(open_bench, monkeypatch):
    open_bench.submit(1)
    before, writer = reserved(open_bench), Writer(monkeypatch)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(open_bench.submit, 2)
        assert writer.held.wait(20)
        later = [pool.submit(open_bench.submit, tokens) for tokens in (3, 4, 5)]
        wait_until(lambda: len(writer.decided) == 4)  # all, and nothing of it is written
        assert reserved(open_bench) == before
        assert not first.done()
        writer.go.set()
        jobs = {first.result(20), *(each.result(20) for each in later)}
    assert writer.locked == []
    found = reserved(open_bench)
    assert found[: len(before) + 1] == [*before, first.result()]
    assert set(found[len(before) :]) == jobs
    assert integrity.check(open_bench.engine, open_bench.dataset) == []
    assert not submission._combiner.queues


def another_row(swap, *arguments):
    return False


def lost_before(swap, *arguments):
    raise RuntimeError("the connection broke")


def lost_after(swap, *arguments):
    assert swap(*arguments)
    raise RuntimeError("the connection broke after the COMMIT")


@pytest.mark.parametrize("outcome", [another_row, lost_before, lost_after])
def test_what_was_decided_on_a_batch_that_failed_is_decided_anew(open_bench, monkeypatch, outcome):
    open_bench.submit(1)
    before, writer = reserved(open_bench), Writer(monkeypatch, outcome)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(open_bench.submit, 2)
        assert writer.held.wait(20)
        later = [pool.submit(open_bench.submit, tokens) for tokens in (3, 4, 5)]
        wait_until(lambda: len(writer.decided) == 4)
        writer.go.set()
        jobs = {first.result(20), *(each.result(20) for each in later)}
    assert writer.locked  # nobody was answered by what had not come true
    assert len(jobs) == 4
    assert sorted(reserved(open_bench)) == sorted([*before, *jobs])  # each of them once
    assert integrity.check(open_bench.engine, open_bench.dataset) == []
    assert not submission._combiner.queues


def test_one_who_asks_wrongly_meanwhile_is_told_alone(open_bench, monkeypatch):
    open_bench.submit(1)
    writer = Writer(monkeypatch)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(open_bench.submit, 2)
        assert writer.held.wait(20)
        wrong = pool.submit(open_bench.submit, 0)
        wait_until(lambda: bool(writer.locked))
        writer.go.set()
        with pytest.raises(InvalidRequest, match="tokens_per_batch"):
            wrong.result(20)
        job = first.result(20)
    assert reserved(open_bench)[-1] == job
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def test_a_key_in_the_batch_that_is_written_makes_no_second_job(open_bench, monkeypatch):
    open_bench.submit(1)
    before, writer = reserved(open_bench), Writer(monkeypatch)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(open_bench.submit, 2, key="once")
        assert writer.held.wait(20)
        again = pool.submit(open_bench.submit, 2, key="once")
        wait_until(lambda: len(writer.decided) == 2)
        writer.go.set()
        assert again.result(20) == first.result(20)
    assert reserved(open_bench) == [*before, first.result()]


# --- the queue ----------------------------------------------------------------------------------


def test_a_leader_that_handed_over_is_put_back_before_those_who_came_later():
    turns: list[list[int]] = []
    led, back = threading.Event(), threading.Event()

    def serve(_: str, take: Take[int, int]) -> None:
        if not turns:
            turns.append([ticket.question for ticket in take()])
            take.hand_over()
            assert led.wait(20)
            take.put_back()
            back.set()
            return
        led.set()
        assert back.wait(20)
        taken = take()
        turns.append([ticket.question for ticket in taken])
        for ticket in taken:
            ticket.answer(10 * ticket.question)

    combiner: Combiner[str, int, int] = Combiner(serve, 100)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(combiner.ask, "key", 1)
        wait_until(lambda: bool(turns))
        second = pool.submit(combiner.ask, "key", 2)
        assert (first.result(20), second.result(20)) == (10, 20)
    assert turns == [[1], [1, 2]]
    assert combiner.queues == {}


def test_a_leader_that_nobody_followed_leads_again():
    turns = []

    def serve(_: str, take: Take[int, int]) -> None:
        turns.append(take())
        take.hand_over()
        if len(turns) == 1:
            take.put_back()
            return
        for ticket in turns[-1]:
            ticket.answer(ticket.question)

    combiner: Combiner[str, int, int] = Combiner(serve, 100)
    assert combiner.ask("key", 7) == 7
    assert len(turns) == 2
    assert combiner.queues == {}


@pytest.mark.parametrize("seed", range(5))
def test_everybody_is_answered_whatever_leaders_do(seed):
    """Leaders hand over early, late or never, put back, fail, and take twice: each asker has one
    answer.
    """
    chance, served, answered = random.Random(seed), Counter(), Counter()
    lock = threading.Lock()

    def serve(_: int, take: Take[int, int]) -> None:
        with lock:
            drawn = [chance.random() for _ in range(5)]
        if drawn[0] < 0.3:
            take.hand_over()  # before anybody is taken
            return
        take()
        if drawn[1] < 0.5:
            time.sleep(drawn[2] / 1000)
            take()
        if drawn[3] < 0.6:
            take.hand_over()
        time.sleep(drawn[2] / 1000)
        if drawn[4] < 0.3:
            take.put_back()
            if take.handed_over:
                return
            take()
        if drawn[4] > 0.9:
            raise ValueError("the batch failed")
        with lock:
            served.update(ticket.question for ticket in take.taken)
        for ticket in take.taken:
            ticket.answer(-ticket.question)

    combiner: Combiner[int, int, int] = Combiner(serve, 3)

    def ask(number: int) -> None:
        with suppress(ValueError):
            assert combiner.ask(number % 2, number) == -number
        with lock:
            answered[number] += 1

    with ThreadPoolExecutor(12) as pool:
        for each in [pool.submit(ask, number) for number in range(400)]:
            each.result(60)
    assert answered == Counter(range(400))
    assert not served or max(served.values()) == 1
    assert combiner.queues == {}
