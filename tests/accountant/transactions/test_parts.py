"""One job on several workers: parts with leases of their own, one reservation, one settlement."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from accountant import settings as settings_module
from accountant import tables
from accountant.core.errors import Cancelled, Conflict, LeaseLost
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.privacy.events import SelfComposed, from_json
from accountant.queries import entries, integrity, jobs, workers
from accountant.settings import Settings
from accountant.transactions import leases, messages, set_aside, settlement
from accountant.transactions.rows import Claim
from accountant.transactions.settlement import Output
from tests.support import Bench

pytestmark = pytest.mark.slow

PARTS = 3
PRIVATE = ("realized", "realized_ex_post", "ex_post_curve", "draft", "staged_sha256")


@pytest.fixture
def shared(open_bench, monkeypatch) -> Iterator[Bench]:
    """A dataset whose jobs are split into three parts. Their messages name whose turn they take."""
    monkeypatch.setattr(settings_module, "load", lambda: Settings(fan_out=PARTS))
    yield open_bench
    of_jobs = tables.jobs.c.id == tables.outbox.c.subject, tables.outbox.c.task.in_(messages.FAIR)
    whose = tables.outbox.c.analyst_id.is_distinct_from(tables.jobs.c.analyst_id)
    with open_bench.engine.connect() as connection:
        assert connection.execute(select(tables.outbox.c.id).where(*of_jobs, whose)).all() == []


def held(bench: Bench, job_id, part: int, attempt: int = 1, seconds: float = 60) -> Claim:
    claim = leases.claim(bench.engine, job_id, attempt, f"worker {part}", seconds, part)
    assert claim is not None
    leases.begin_reading(bench.engine, claim)
    return claim


def job(bench: Bench, job_id) -> dict:
    return jobs.job(bench.engine, job_id, bench.analyst).document()


def tokens(bench: Bench, job_id, count: int) -> SelfComposed:
    return SelfComposed(from_json(job(bench, job_id)["event"]).event, count)


def staged(job_id, number: int) -> Output:
    return Output(f"{job_id}.part-{number}", str(number) * 64)


def finish(bench: Bench, claim: Claim, count: int = 10):
    return leases.finish(
        bench.engine,
        claim,
        tokens(bench, claim.job_id, count),
        staged(claim.job_id, claim.part),
        None,
    )


def settle(bench: Bench, claim: Claim, count: int = 10) -> None:
    settlement.publish(
        bench.engine, claim, tokens(bench, claim.job_id, count), Output("all", "a" * 64), "worker"
    )


def rows(bench: Bench, job_id) -> list:
    parts = tables.parts
    with bench.engine.connect() as connection:
        query = select(parts).where(parts.c.job_id == job_id).order_by(parts.c.number)
        return list(connection.execute(query))


def lose(bench: Bench, claim: Claim) -> None:
    """Let the lease of one part run out, and the reaper find it."""
    past = func.clock_timestamp() - timedelta(seconds=1)
    with bench.engine.begin() as connection:
        found = tables.parts.c.lease_token == claim.token
        connection.execute(update(tables.parts).where(found).values(lease_expires=past))
    leases.expire(bench.engine, max_attempts=3)


def sound(bench: Bench) -> None:
    assert integrity.check(bench.engine, bench.dataset) == []
    verify_lines(entries.export(bench.engine, bench.dataset, bench.steward, "jsonl"))


def test_parts_run_side_by_side_and_the_last_one_settles_the_most_that_any_spent(shared):
    job_id = shared.submit(10)
    claims = [held(shared, job_id, part) for part in range(PARTS)]
    for claim, done in zip(claims, (3, 5, 8), strict=True):
        leases.renew(shared.engine, claim, 60, done, 150)
    assert job(shared, job_id)["progress"] == {"done": 16, "total": 150, "unit": "tokens"}
    assert finish(shared, claims[2], 4) is None
    assert finish(shared, claims[0], 7) is None
    assert job(shared, job_id)["state"] == "running"
    assert finish(shared, claims[1], 5) == [
        staged(job_id, 0),
        staged(job_id, 1),
        staged(job_id, 2),
    ], "in order"
    assert job(shared, job_id)["state"] == "settling"
    settle(shared, claims[1], 5)
    ended = job(shared, job_id)
    assert (ended["state"], ended["progress"]) == (
        "succeeded",
        {"done": 150, "total": 150, "unit": "tokens"},
    )
    assert [each["kind"] for each in ended["entries"]] == ["RESERVE", "COMMIT"]
    entry = entries.entries(shared.engine, shared.dataset, shared.steward, limit=1)[0]["body"]
    assert from_json(entry["event"]) == tokens(shared, job_id, 7)
    sound(shared)


def test_nothing_is_published_while_a_part_still_runs(shared):
    job_id = shared.submit(10)
    claims = [held(shared, job_id, part) for part in range(PARTS)]
    finish(shared, claims[0])
    with pytest.raises(Conflict):
        settle(shared, claims[1])
    assert job(shared, job_id)["state"] == "running"


@pytest.mark.parametrize("_", range(5))
def test_of_parts_that_end_at_once_exactly_one_settles(shared, _):
    job_id = shared.submit(10)
    claims = [held(shared, job_id, part) for part in range(PARTS)]
    with ThreadPoolExecutor(PARTS) as pool:
        found = list(pool.map(lambda claim: finish(shared, claim), claims))
    last = [claim for claim, outputs in zip(claims, found, strict=True) if outputs is not None]
    assert len(last) == 1
    settle(shared, last[0])
    for claim in claims:
        with pytest.raises(LeaseLost):
            settle(shared, claim)
    sound(shared)


def test_a_lost_part_runs_again_and_the_others_keep_what_they_have(shared):
    job_id = shared.submit(10)
    claims = [held(shared, job_id, part) for part in range(PARTS)]
    finish(shared, claims[0], 9)
    lose(shared, claims[1])
    assert (job(shared, job_id)["state"], job(shared, job_id)["attempt"]) == ("running", 2)
    with pytest.raises(LeaseLost):
        finish(shared, claims[1])
    assert leases.renew(shared.engine, claims[2], 60, 1, 150) is False
    again = held(shared, job_id, 1, attempt=2)
    assert finish(shared, claims[2]) is None
    assert finish(shared, again) is not None
    settle(shared, again)
    sound(shared)


def test_a_worker_lost_while_it_settles_runs_its_part_again(shared):
    job_id = shared.submit(10)
    claims = [held(shared, job_id, part) for part in range(PARTS)]
    for claim in claims[:2]:
        finish(shared, claim)
    assert finish(shared, claims[2]) is not None
    lose(shared, claims[2])
    with pytest.raises(LeaseLost):
        settle(shared, claims[2])
    again = held(shared, job_id, 2, attempt=2)
    assert finish(shared, again) == [staged(job_id, 0), staged(job_id, 1), staged(job_id, 2)]
    settle(shared, again)
    assert job(shared, job_id)["state"] == "succeeded"
    sound(shared)


def test_a_part_that_fails_for_good_charges_the_job_once_and_fences_off_the_others(shared):
    job_id = shared.submit(10)
    claims = [held(shared, job_id, part) for part in range(PARTS)]
    finish(shared, claims[0])
    settlement.fail(shared.engine, claims[1], "failed", "what the data did", "worker")
    ended = job(shared, job_id)
    assert (ended["state"], ended["failure"]) == ("failed", settlement.UNSAID)
    assert ended["entries"][1]["costs"] == ended["entries"][0]["costs"], "all of it"
    for step in (
        lambda: leases.renew(shared.engine, claims[2], 60, 1, 150),
        lambda: finish(shared, claims[2]),
        lambda: settle(shared, claims[2]),
        lambda: settlement.fail(shared.engine, claims[2], "failed", "", "worker"),
    ):
        with pytest.raises(LeaseLost):
            step()
    assert leases.claim(shared.engine, job_id, 1, "late", 60, 2) is None
    sound(shared)


def test_what_parts_left_for_the_settlement_is_gone_when_the_job_has_ended(shared):
    for outcome in ("succeeded", "failed"):
        job_id = shared.submit(10)
        claims = [held(shared, job_id, part) for part in range(PARTS)]
        for claim in claims:
            finish(shared, claim)
        assert [row.realized is not None for row in rows(shared, job_id)] == [True, True, False]
        if outcome == "succeeded":
            settle(shared, claims[2])
        else:
            settlement.fail(shared.engine, claims[2], outcome, "", "worker")
        for row in rows(shared, job_id):
            assert row.state == "stopped"
            assert all(getattr(row, name) is None for name in PRIVATE)


def test_no_part_reaches_a_report(shared):
    job_id = shared.submit(10)
    before = job(shared, job_id)
    claim = held(shared, job_id, 0)
    finish(shared, claim, 3)
    changed = {name for name, value in job(shared, job_id).items() if value != before[name]}
    # when it started depends on the data, and is for stewards and auditors
    assert changed == {"state"}


def test_attempts_of_one_part_are_capped_and_then_the_job_fails(shared):
    job_id = shared.submit(10)
    first = held(shared, job_id, 0)
    for attempt in (1, 2, 3):
        lose(shared, held(shared, job_id, 1, attempt))
    assert job(shared, job_id)["state"] == "failed"
    with pytest.raises(LeaseLost):
        finish(shared, first)
    sound(shared)


# --- cancelling ---------------------------------------------------------------------------------


def test_cancelling_stops_parts_that_run_and_ends_a_job_that_only_waits(shared):
    running, waiting = shared.submit(10), shared.submit(10)
    claim = held(shared, running, 0)
    settlement.cancel(shared.engine, running, shared.analyst)
    assert leases.renew(shared.engine, claim, 60, 0, 1) is True
    with pytest.raises(Cancelled):
        finish(shared, claim)
    settlement.fail(shared.engine, claim, "cancelled", "cancelled while it ran", "worker")
    finish(shared, held(shared, waiting, 0))
    settlement.cancel(shared.engine, waiting, shared.analyst)
    for job_id in (running, waiting):
        assert job(shared, job_id)["state"] == "cancelled"
        assert job(shared, job_id)["entries"][1]["kind"] == "COMMIT"
    sound(shared)


def test_a_cancelled_job_whose_worker_is_lost_does_not_run_again(shared):
    job_id = shared.submit(10)
    claim = held(shared, job_id, 0)
    settlement.cancel(shared.engine, job_id, shared.analyst)
    lose(shared, claim)
    assert job(shared, job_id)["state"] == "cancelled"
    sound(shared)


# --- processes that die -------------------------------------------------------------------------


def test_only_who_ran_an_attempt_can_say_that_it_died(shared):
    job_id = shared.submit(10)
    claim = held(shared, job_id, 1)
    assert leases.died(shared.engine, job_id, 1, 1, "worker 0", claim.secret) is None
    assert leases.died(shared.engine, job_id, 2, 1, "worker 1", claim.secret) is None
    assert leases.died(shared.engine, job_id, 1, 0, "worker 1", claim.secret) is None
    assert leases.died(shared.engine, job_id, 1, 1, "worker 1", claim.secret) == claim


def test_a_dataset_may_charge_each_attempt(engine):
    bench = Bench(engine, policy={"auto_approve_epsilon": "10", "charge_each_attempt": True})
    bench.allow()
    bench.warm()
    unread = bench.submit(10)
    claim = leases.claim(engine, unread, 1, "worker", 60)
    lose(bench, claim)
    assert (job(bench, unread)["state"], job(bench, unread)["attempt"]) == ("queued", 2)
    lose(bench, held(bench, unread, 0, attempt=2))
    ended = job(bench, unread)
    assert (ended["state"], ended["entries"][1]["kind"]) == ("failed", "COMMIT")
    assert ended["entries"][1]["costs"] == ended["entries"][0]["costs"]
    sound(bench)


# --- loops that run twice -----------------------------------------------------------------------


def test_two_relays_at_once_end_a_lease_once_and_send_each_message_once_more(shared):
    job_id = shared.submit(10)
    claim = held(shared, job_id, 0)
    sent = []
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda _: messages.deliver(shared.engine, lambda *each: sent.append(each)), range(8)
            )
        )
    assert sorted(each for each in sent if each[1] == job_id) == [
        ("generate", job_id, 1, part) for part in range(PARTS)
    ]
    past = func.clock_timestamp() - timedelta(seconds=1)
    with shared.engine.begin() as connection:
        found = tables.parts.c.lease_token == claim.token
        connection.execute(update(tables.parts).where(found).values(lease_expires=past))
    with ThreadPoolExecutor(8) as pool:
        ended = [
            each
            for many in pool.map(lambda _: leases.expire(shared.engine, 3), range(8))
            for each in many
        ]
        assert ended == [(job_id, claim.token)]
        assert sum(pool.map(lambda _: messages.resend(shared.engine, 60.0), range(8))) == 0
        sent.clear()
        list(pool.map(lambda _: messages.resend(shared.engine, 0.0), range(8)))
        list(
            pool.map(
                lambda _: messages.deliver(shared.engine, lambda *each: sent.append(each)), range(8)
            )
        )
    expected = [("generate", job_id, 2, 0), ("generate", job_id, 1, 1), ("generate", job_id, 1, 2)]
    assert sorted(each for each in sent if each[1] == job_id) == sorted(expected)


def test_waiting_is_measured_from_when_the_message_was_sent(shared):
    job_id = shared.submit(10)
    assert messages.longest_wait(shared.engine, {"check_model"}) == 0
    messages.deliver(shared.engine, lambda *_: None)
    with shared.engine.begin() as connection:
        past = func.clock_timestamp() - timedelta(seconds=500)
        connection.execute(
            update(tables.outbox)
            .where(tables.outbox.c.subject == job_id)
            .values(first_sent_at=past)
        )
    assert messages.longest_wait(shared.engine, {"generate"}) >= 500
    assert messages.longest_wait(shared.engine, {"probe"}) == 0
    settlement.cancel(shared.engine, job_id, shared.analyst)
    assert messages.longest_wait(shared.engine, {"generate"}) < 500


def test_what_waits_is_sent_again_ever_more_rarely_in_one_row_which_ends(shared):
    outbox, job_id = tables.outbox, shared.submit(10)
    mine = outbox.c.subject == job_id, outbox.c.part == 0
    sent = []

    def later(seconds, whole=False):
        """Let so long pass; returns the messages that are sent then."""
        with shared.engine.begin() as connection:
            back = {outbox.c.sent_at: outbox.c.sent_at - timedelta(seconds=seconds)}
            connection.execute(update(outbox).where(*mine).values(back))
        messages.resend(shared.engine, 100.0, whole=whole)
        sent.clear()
        while messages.deliver(shared.engine, lambda *each: sent.append(each)):
            pass
        return sent.count(("generate", job_id, 1, 0))

    def rows():
        with shared.engine.connect() as connection:
            return len(connection.execute(select(outbox.c.id).where(*mine)).all())

    assert later(0) == 1
    assert [later(90), later(20)] == [0, 1]  # a hundred seconds after the first
    assert [later(190), later(20)] == [0, 1]  # twice as long after the second
    for _ in range(3):
        later(100_000)
    assert [later(790), later(20), rows()] == [0, 1, 1]  # eight times as long at most
    with shared.engine.begin() as connection:
        connection.execute(outbox.delete().where(*mine))
    assert [later(0), later(0, whole=True)] == [0, 1]  # lost, and written anew
    settlement.cancel(shared.engine, job_id, shared.analyst)
    messages.resend(shared.engine, 100.0)
    assert rows() == 0


def test_no_message_is_sent_for_a_while_about_what_no_worker_can_take(shared):
    """Its messages end, and leave its analyst's turns to others; what merely waits is sent."""
    bad, good = shared.submit(10), shared.submit(10)
    refused, sent = tables.refused_parts, []

    def later() -> set[tuple[object, int]]:
        """All is overdue; returns the parts about which messages are sent then."""
        messages.resend(shared.engine, 0)
        sent.clear()
        while messages.deliver(shared.engine, lambda *each: sent.append(each), ahead=2 * PARTS):
            pass
        return {(subject, part) for _, subject, _, part in sent if subject in (bad, good)}

    everything = {(each, part) for each in (bad, good) for part in range(PARTS)}
    assert later() == everything
    for part in range(PARTS):
        messages.refuse(shared.engine, bad, part)
    messages.refuse(shared.engine, bad, PARTS)  # there is no such part
    assert later() == {(good, part) for part in range(PARTS)}
    with shared.engine.connect() as connection:
        mine = select(func.count()).where(tables.outbox.c.subject == bad)
        assert connection.execute(mine).scalar_one() == 0
        assert connection.execute(select(func.count()).select_from(refused)).scalar_one() == PARTS
    told = workers.problem(shared.engine, in_their_words=False)
    assert "1 job can't be taken" in told
    past = func.clock_timestamp() - timedelta(seconds=messages.REFUSED_SECONDS + 1)
    with shared.engine.begin() as connection:
        connection.execute(update(refused).values(at=past))
    assert later() == everything  # whoever mended it need not say so
    assert workers.problem(shared.engine, in_their_words=False) is None
    messages.refuse(shared.engine, bad, 0)
    assert (bad, 0) not in later()


def test_a_lost_part_that_can_not_be_ended_keeps_no_other_and_waits_its_turn(
    shared, monkeypatch, caplog
):
    bad, good = shared.submit(10), shared.submit(10)
    past = func.clock_timestamp() - timedelta(seconds=1)
    for claim in (held(shared, bad, 0), held(shared, good, 0)):
        with shared.engine.begin() as connection:
            found = tables.parts.c.lease_token == claim.token
            connection.execute(update(tables.parts).where(found).values(lease_expires=past))
    ends, tried = leases._end_lost, []

    def end_lost(locked, job, part, most):
        tried.append(job.id)
        if job.id == bad:
            raise ValueError("what the row holds")
        ends(locked, job, part, most)

    def ended() -> set[object]:
        """What a look ends of the two; it may end others, whose leases a slow machine outlived."""
        return {job_id for job_id, _ in leases.expire(shared.engine, 3)} & {bad, good}

    monkeypatch.setattr(leases, "_end_lost", end_lost)
    assert ended() == {good}
    assert "what the row holds" not in caplog.text
    assert f"lease of job {bad} is set aside for 60 s: ValueError" in caplog.text
    assert rows(shared, good)[0].state == "queued"
    assert rows(shared, bad)[0].state == "running"
    assert ended() == set()
    assert tried.count(bad) == 1, "it waits"
    monkeypatch.setattr(set_aside, "_aside", {})
    monkeypatch.setattr(leases, "_end_lost", ends)
    assert ended() == {bad}
