"""Many requests on one dataset: one transaction, the order of arrival, an answer of its own for
each.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import DataError, OperationalError

from accountant.core.errors import Conflict, InvalidRequest, NotPermitted
from accountant.core.ledger.policy import Policy
from accountant.database import connect, logging_to, run_by_driver
from accountant.queries import integrity
from accountant.queries import jobs as job_queries
from accountant.transactions import batches, job_requests, policies, settlement, submission
from accountant.transactions.group_commit import Combiner, Take
from accountant.transactions.locked_account import LockedAccount
from tests.support import Bench, person

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


def wait_until(true: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.005)


class Gathering:
    """Requests sent one after the other while the account's row is kept from all of them."""

    def __init__(self, bench: Bench, engine: Engine) -> None:
        self.bench, self.engine = bench, engine
        self.pool = ThreadPoolExecutor(64)
        self.sent: list[Future[UUID]] = []

    def send(self, tokens: int = 10, key: str | None = None, **changes: object) -> Future[UUID]:
        actor = changes.pop("actor", self.bench.analyst)
        purpose = str(changes.pop("purpose", "test"))
        request = self.bench.request(tokens, **changes)
        request = job_requests.JobRequest(
            request.dataset, request.mechanism, request.model, request.parameters, purpose
        )
        future = self.pool.submit(submission.submit, self.engine, request, actor, key)
        self.sent.append(future)
        queue = (self.engine, self.bench.dataset)
        wait_until(lambda: submission._combiner.waiting(queue) == len(self.sent))
        return future


@contextmanager
def gathering(bench: Bench, engine: Engine | None = None) -> Iterator[Gathering]:
    """Hold requests sent inside the block, and decide them together at its end."""
    gathered = Gathering(bench, engine or bench.engine)
    with bench.engine.begin() as connection:
        LockedAccount(connection, bench.dataset)
        yield gathered
    gathered.pool.shutdown(wait=True)


def rows(bench: Bench, what: str) -> list[tuple]:
    with bench.engine.connect() as connection:
        query = (
            f"SELECT {what} AND dataset_id = (SELECT id FROM datasets WHERE name = :name) "
            "ORDER BY 1"
        )
        return [tuple(row) for row in connection.execute(text(query), {"name": bench.dataset})]


def state(bench: Bench, job_id: UUID) -> str:
    return job_queries.job(bench.engine, job_id, bench.steward)["state"]


# --- one batch ----------------------------------------------------------------------------------


def test_those_who_wait_are_admitted_together_and_in_the_order_of_their_arrival(open_bench):
    before = len(rows(open_bench, "seq FROM entries WHERE true"))
    with gathering(open_bench) as gathered:
        for tokens in range(1, 21):
            gathered.send(tokens)
    jobs = [future.result() for future in gathered.sent]
    entries = rows(open_bench, f"seq, job_id, at, xmin::text FROM entries WHERE seq > {before}")
    assert [job for _, job, _, _ in entries] == jobs
    assert len({transaction for *_, transaction in entries}) == 1
    assert all(earlier[2] < later[2] for earlier, later in pairwise(entries))
    listed = rows(open_bench, "created_at, id FROM jobs WHERE state = 'queued'")
    assert [job for _, job in listed] == jobs
    with open_bench.engine.connect() as connection:
        query = text(
            "SELECT subject FROM outbox WHERE task = 'generate' AND subject = ANY(:ids) ORDER BY id"
        )
        assert list(connection.execute(query, {"ids": jobs}).scalars()) == jobs
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def test_each_in_a_batch_gets_its_own_answer(engine):
    bench = Bench(engine, policy={"auto_approve_epsilon": "1"})
    bench.allow()
    bench.warm()
    other = person(engine, "analyst")
    with gathering(bench) as gathered:
        good = gathered.send(5, key="good")
        bad = gathered.send(0)
        unknown = gathered.send(5, nonsense=1)
        again = gathered.send(5, key="good")
        another_body = gathered.send(6, key="good")
        same_key_of_another = gathered.send(5, key="good", actor=other)
        approval = gathered.send(200)
        too_much = gathered.send(400, key="too much")
        too_much_again = gathered.send(400, key="too much")
        unlooked_at = gathered.send(5, template="Else: {record}")
        last = gathered.send(4)
    assert state(bench, good.result()) == "queued"
    for wrong, field in ((bad, "parameters.tokens_per_batch"), (unknown, "parameters.nonsense")):
        assert field in str(wrong.exception())
        assert isinstance(wrong.exception(), InvalidRequest)
    assert again.result() == good.result()
    assert isinstance(another_body.exception(), Conflict)
    assert same_key_of_another.result() != good.result()
    assert state(bench, approval.result()) == "awaiting_approval"
    refused = job_queries.job(engine, too_much.result(), bench.analyst)
    assert (refused["state"], refused["refusal"]["cap"]) == ("refused", "renyi")
    assert refused["refusal"]["largest"] == 359 - 10  # what two before it reserved
    assert too_much_again.result() == too_much.result()
    assert state(bench, unlooked_at.result()) == "submitted"
    assert state(bench, last.result()) == "queued"
    assert integrity.check(engine, bench.dataset) == []
    # What was answered stays the answer.
    assert bench.submit(5, key="good") == good.result()
    bench.allow("100")
    assert bench.submit(400, key="too much") == too_much.result()
    assert state(bench, too_much.result()) == "refused"


def test_later_ones_in_a_batch_are_decided_on_what_earlier_ones_left(open_bench):
    with gathering(open_bench) as gathered:
        for _ in range(5):
            gathered.send(100)
    states = [state(open_bench, future.result()) for future in gathered.sent]
    assert states == ["queued"] * 3 + ["refused"] * 2
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def test_a_batch_that_fails_in_the_middle_leaves_nothing_half_and_fails_one_request_only(
    open_bench,
):
    before = len(rows(open_bench, "seq FROM entries WHERE true"))
    with gathering(open_bench) as gathered:
        for tokens in range(1, 4):
            gathered.send(tokens)
        # No text of PostgreSQL holds it. Over HTTP it is refused before; here the whole statement
        # fails.
        poisoned = gathered.send(4, purpose="\x00")
        for tokens in range(5, 8):
            gathered.send(tokens)
    assert isinstance(poisoned.exception(), DataError)
    jobs = [future.result() for future in gathered.sent if future is not poisoned]
    entries = rows(open_bench, f"seq, job_id, xmin::text FROM entries WHERE seq > {before}")
    assert [job for _, job, _ in entries] == jobs
    assert len({transaction for *_, transaction in entries}) == 6  # each alone
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def test_a_request_that_breaks_the_decision_itself_disturbs_no_other(open_bench, monkeypatch):
    decide = batches.consider

    def breaks(locked, job_id, analyst, job, *rest):
        verdict = decide(locked, job_id, analyst, job, *rest)
        if job.parameters["tokens_per_batch"] == 2:
            raise ZeroDivisionError
        return verdict

    def broken_before(locked, job_id, analyst, job, *rest):
        if job.parameters["tokens_per_batch"] == 2:
            raise ZeroDivisionError
        return decide(locked, job_id, analyst, job, *rest)

    monkeypatch.setattr(batches, "consider", broken_before)
    with gathering(open_bench) as gathered:
        first, second, third = (gathered.send(tokens) for tokens in (1, 2, 3))
    assert isinstance(second.exception(), ZeroDivisionError)
    assert [state(open_bench, each.result()) for each in (first, third)] == ["queued", "queued"]
    assert integrity.check(open_bench.engine, open_bench.dataset) == []
    # Nor where its entry was posted already: the books would say what no job holds.
    monkeypatch.setattr(batches, "consider", breaks)
    with gathering(open_bench) as gathered:
        first, second, third = (gathered.send(tokens) for tokens in (1, 2, 3))
    assert isinstance(second.exception(), ZeroDivisionError)
    assert [state(open_bench, each.result()) for each in (first, third)] == ["queued", "queued"]
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


# --- those who give up --------------------------------------------------------------------------


def test_a_row_that_is_not_to_be_had_is_the_answer_to_all_and_the_queue_goes_on(
    open_bench, database_url
):
    impatient = connect(database_url)

    @event.listens_for(impatient, "connect")
    def hurry(connection, _: object) -> None:
        connection.execute("SET lock_timeout = '300ms'")
        connection.commit()

    with open_bench.engine.begin() as connection:
        LockedAccount(connection, open_bench.dataset)
        with ThreadPoolExecutor(4) as pool:
            sent = [
                pool.submit(submission.submit, impatient, open_bench.request(), open_bench.analyst)
                for _ in range(4)
            ]
        assert all(isinstance(future.exception(), OperationalError) for future in sent)
    job_id = submission.submit(impatient, open_bench.request(), open_bench.analyst)
    assert state(open_bench, job_id) == "queued"
    assert not submission._combiner.queues
    impatient.dispose()


def test_an_error_of_the_driver_is_sqlalchemys_and_quotes_no_value(engine):
    with engine.connect() as connection, pytest.raises(DataError) as caught:
        run_by_driver(connection, "SELECT CAST(%s AS integer)", ("a private value",))
    assert "SQLSTATE 22P02" in str(caught.value)
    assert "private value" not in f"{caught.value} {caught.value.orig}"


@pytest.mark.parametrize("moment", ["_admit", "_settle"])
def test_a_leader_that_is_interrupted_loses_nobody_and_makes_nobody_two_jobs(
    open_bench, monkeypatch, moment
):
    """Before anything is written, or after the commit and before anybody heard of it."""
    original, interrupted = getattr(submission, moment), threading.Event()

    def interrupt(*arguments):
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(submission, moment, interrupt)
    with gathering(open_bench) as gathered:
        for tokens in range(1, 8):
            gathered.send(tokens)
    assert isinstance(gathered.sent[0].exception(), KeyboardInterrupt)
    jobs = [future.result() for future in gathered.sent[1:]]
    assert [state(open_bench, job_id) for job_id in jobs] == ["queued"] * 6
    queued = rows(open_bench, "created_at FROM jobs WHERE state = 'queued'")
    assert len(queued) == (6 if moment == "_admit" else 7)
    assert not submission._combiner.queues
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def test_one_that_stops_waiting_is_taken_out_and_hands_the_lead_on():
    go, seen = threading.Event(), []

    def serve(_, take):
        go.wait(20)
        for ticket in take():
            seen.append(ticket.question)
            ticket.answer(ticket.question)

    combiner: Combiner[str, int, int] = Combiner(serve, 1)
    with ThreadPoolExecutor(4) as pool:
        sent = []
        for number in range(4):
            sent.append(pool.submit(combiner.ask, "key", number))
            wait_until(lambda n=number: combiner.waiting("key") == n + 1)
        queue = combiner.queues["key"]
        gone = queue.waiting[2]
        combiner._leave("key", gone)  # as its thread does when an exception ends its wait
        next_leader = queue.waiting[1]
        queue.leader, first = next_leader, queue.leader
        combiner._leave("key", next_leader)  # one who was just told to lead, and leaves instead
        assert queue.leader is first
        go.set()
        assert sent[0].result(20) == 0
        assert sent[3].result(20) == 3
        for left in (gone, next_leader):
            left.fail(KeyboardInterrupt())
            left.gate.release()
    assert seen == [0, 3]
    assert combiner.queues == {}


def test_nobody_waits_beyond_the_limit_for_a_leader_that_hangs():
    go, served = threading.Event(), []

    def serve(_, take):
        taken = take()
        go.wait(20)
        for ticket in taken:
            served.append(ticket.question)
            ticket.answer(ticket.question)

    combiner: Combiner[str, int, int] = Combiner(serve, 9, 0.2, lambda: ValueError("late"))
    with ThreadPoolExecutor(3) as pool:
        leads = pool.submit(combiner.ask, "key", 0)
        wait_until(lambda: "key" in combiner.queues and combiner.waiting("key") == 0)
        for number in (1, 2):
            with pytest.raises(ValueError, match="late"):
                combiner.ask("key", number)
        go.set()
        assert leads.result(20) == 0
        assert combiner.ask("key", 3) == 3
    assert (served, combiner.queues) == ([0, 3], {})


@pytest.mark.parametrize("seed", range(3))
def test_everybody_is_answered_whatever_leaders_do(seed):
    """Leaders take once, twice or never, and fail early or late: each asker has one answer."""
    chance, served, answered = random.Random(seed), Counter(), Counter()
    lock = threading.Lock()

    def serve(_: int, take: Take[int, int]) -> None:
        with lock:
            drawn = [chance.random() for _ in range(3)]
        if drawn[0] < 0.2:
            raise ValueError("the lock was not to be had")
        take()
        if drawn[1] < 0.5:
            time.sleep(drawn[2] / 1000)
            take()
        if drawn[1] > 0.9:
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
        for each in [pool.submit(ask, number) for number in range(200)]:
            each.result(60)
    assert answered == Counter(range(200))
    assert not served or max(served.values()) == 1
    assert combiner.queues == {}


# --- what needs no lock -------------------------------------------------------------------------


def test_the_search_for_the_largest_request_holds_nobody_up(open_bench, monkeypatch):
    from accountant.transactions import job_requests

    searching, go_on, search = threading.Event(), threading.Event(), job_requests.with_largest

    def slow(*arguments):
        searching.set()
        assert go_on.wait(20)
        return search(*arguments)

    monkeypatch.setattr(job_requests, "with_largest", slow)
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(open_bench.submit, 400)
        assert searching.wait(20)
        assert state(open_bench, open_bench.submit(10)) == "queued"
        go_on.set()
        found = job_queries.job(open_bench.engine, refused.result(20), open_bench.analyst)
    # of an account that nobody had used when it was decided
    assert found["refusal"]["largest"] == 375


def test_terms_that_changed_after_the_price_was_found_are_those_of_the_job(open_bench):
    open_bench.submit(10)
    stale = submission._last_seen[open_bench.dataset]
    open_bench.allow("10", "0.000004")
    submission._last_seen[open_bench.dataset] = stale
    job = job_queries.job(open_bench.engine, open_bench.submit(10), open_bench.analyst)
    assert stale[0].delta != job["terms"]["delta"] == 0.000004
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def waiting_for_a_lock(bench: Bench) -> int:
    here = "datname = current_database() AND wait_event_type = 'Lock'"
    with bench.engine.connect() as connection:
        return connection.execute(
            text(f"SELECT count(*) FROM pg_stat_activity WHERE {here}")
        ).scalar_one()


def test_a_policy_set_before_a_request_is_the_one_that_decides_it(open_bench, monkeypatch):
    """The late request joins a batch whose leader asked for the row before the policy was set.

    The row goes to `set_policy`, then to the leader, which stands still before it takes the batch.
    """
    locked, go_on, lock = threading.Event(), threading.Event(), submission._lock

    def lock_and_stand_still(*arguments):
        held = lock(*arguments)
        locked.set()
        assert go_on.wait(20)
        return held

    monkeypatch.setattr(submission, "_lock", lock_and_stand_still)
    engine, dataset = open_bench.engine, open_bench.dataset
    gathered, policy = Gathering(open_bench, engine), Policy(analysts=(open_bench.steward.name,))
    with engine.begin() as connection:
        LockedAccount(connection, dataset)
        setting = gathered.pool.submit(
            policies.set_policy, engine, dataset, policy, open_bench.steward
        )
        wait_until(lambda: waiting_for_a_lock(open_bench) == 1)
        early = gathered.send(10)
        wait_until(lambda: waiting_for_a_lock(open_bench) == 2)
    assert setting.result(20) is None
    assert locked.wait(20)
    late = gathered.send(10)
    go_on.set()
    assert isinstance(late.exception(20), NotPermitted)
    assert isinstance(early.exception(20), NotPermitted)
    gathered.pool.shutdown(wait=True)
    assert integrity.check(engine, dataset) == []


# --- races --------------------------------------------------------------------------------------

RACER = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID
from accountant.core.errors import Conflict
from accountant.database import connect, logging_to, run_by_driver
from accountant.identities.credentials import actor_of, find_user
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.submission import submit

url, dataset, model, analyst, mine = sys.argv[1:]
engine = connect(url)
actor = actor_of(find_user(engine, user_id=UUID(analyst)))

def ask(number):
    # Every second key is used by both processes, every tenth with a body of one's own.
    key = f"shared-{number}" if number % 2 else f"{mine}-{number}"
    purpose = mine if number % 10 == 1 else "test"
    request = JobRequest(dataset, "private-prediction", model, {"tokens_per_batch": 17}, purpose)
    try:
        return [key, str(submit(engine, request, actor, key))]
    except Conflict:
        return [key, "conflict"]

print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(16) as pool:
    print(json.dumps(list(pool.map(ask, range(60)))), flush=True)
"""


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


def test_engines_that_share_a_log_spend_an_allowance_once(open_bench, database_url, tmp_path):
    """349 of 359 tokens are left for twenty jobs of 17."""
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


def test_two_processes_race_for_room_for_twenty(open_bench, database_url):
    import json

    open_bench.submit(10)  # leaves 349 of 359 tokens: room for 20 jobs of 17
    arguments = [database_url, open_bench.dataset, open_bench.model, str(open_bench.analyst.id)]
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, *arguments, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for name in ("one", "two")
    ]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = [json.loads(racer.communicate(timeout=120)[0]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    one, two = (dict(each) for each in answers)
    for key in one.keys() & two.keys():
        if int(key.removeprefix("shared-")) % 10 == 1:
            assert sorted((one[key], two[key])).count("conflict") == 1
        else:
            assert one[key] == two[key] != "conflict"
    jobs = {job for each in (one, two) for job in each.values()} - {"conflict"}
    counted = Counter(state(open_bench, UUID(job)) for job in jobs)
    assert counted == {"queued": 20, "refused": len(jobs) - 20}
    assert len(jobs) == 90
    times = [at for _, at in rows(open_bench, "seq, at FROM entries WHERE true")]
    assert times == sorted(times)
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def test_one_key_on_two_datasets_at_once_is_one_job_and_a_conflict(engine):
    benches = [Bench(engine, policy={"auto_approve_epsilon": "10"}) for _ in range(2)]
    for each in benches:
        each.allow()
        each.warm()
    analyst = benches[0].analyst

    def ask(bench: Bench, key: str) -> object:
        try:
            return submission.submit(engine, bench.request(1), analyst, key)
        except Conflict as error:
            return type(error)

    with ThreadPoolExecutor(32) as pool:
        pairs = [[pool.submit(ask, each, f"key {n}") for each in benches] for n in range(40)]
    for pair in pairs:
        assert [future.result() for future in pair].count(Conflict) == 1
    assert all(integrity.check(engine, each.dataset) == [] for each in benches)


@pytest.mark.release
def test_many_claimants_on_many_datasets_overspend_none_and_meet_nothing_but_refusals(tmp_path):
    """Five seconds of what benchmarks/claimants.py does for two minutes."""
    from benchmarks.claimants import measure

    found = measure(datasets=20, seconds=5, processes=2, home=tmp_path)
    assert found["errors"] == {}
    assert found["wrong"] == {}
    assert found["answers"]["queued"] > 20
    assert set(found["answers"]) == {"queued", "refused"}
