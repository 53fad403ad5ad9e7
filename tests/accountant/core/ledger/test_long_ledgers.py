"""Replaying long ledgers: one step an entry, a few hundred bytes a job, one meaning with the
writer.
"""

import tracemalloc
import uuid

import pytest

from accountant.core import mechanisms
from accountant.core.errors import VerificationFailed
from accountant.core.ledger.books import Books
from accountant.core.ledger.entry_bodies import allow_body, commit_body, reserve_body
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.lineage import of_version
from accountant.core.ledger.replay import Replay
from accountant.core.ledger.reservations import read_reservation
from accountant.core.privacy.price import Terms

TERMS = Terms()


def shape(account, tokens=1):
    """The RESERVE and COMMIT bodies of one job, as JSON gives them: nothing shared."""
    mechanism = mechanisms.get("private-prediction")
    parameters = mechanism.parse({"tokens_per_batch": tokens, "batches_per_label": 1}, TERMS)
    event = mechanism.price(parameters, TERMS).dp
    raw = mechanism.recorded(parameters)
    own = {"model": None, "approval": None, "source": of_version(1)}
    body = reserve_body(account, mechanism.id, raw, TERMS, event, **own)
    return body, commit_body(account, event, "succeeded", 1, "0" * 64)


def allowed():
    replay = Replay()
    replay.apply(EntryKind.ALLOW, None, allow_body(None, "100000", "1e-6", "why"))
    return replay


def test_the_writer_and_the_replay_apply_the_same_steps():
    replay = allowed()
    writer = replay.books
    for tokens in (1, 2, 1, 3):
        reserve, commit = shape(writer.account, tokens)
        job = str(uuid.uuid4())
        replay.apply(EntryKind.RESERVE, job, reserve)
        writer = writer.apply(EntryKind.RESERVE, job, reserve)
        assert replay.live() == {job: read_reservation(reserve)}
        replay.apply(EntryKind.COMMIT, job, commit)
        writer = writer.apply(EntryKind.COMMIT, job, commit, read_reservation(reserve))
        assert replay.books == writer
    assert (replay.live_count, replay.live()) == (0, {})


def test_a_job_is_reserved_once_and_resolved_once():
    replay = allowed()
    reserve, commit = shape(replay.books.account)
    job = str(uuid.uuid4())
    with pytest.raises(VerificationFailed, match="not live"):
        replay.apply(EntryKind.COMMIT, job, commit)
    replay.apply(EntryKind.RESERVE, job, reserve)
    with pytest.raises(VerificationFailed, match="reserved already"):
        replay.apply(EntryKind.RESERVE, job, reserve)
    replay.apply(EntryKind.COMMIT, job, commit)
    for kind, body in ((EntryKind.COMMIT, commit), (EntryKind.VOID, {"outcome": "cancelled"})):
        with pytest.raises(VerificationFailed, match="not live"):
            replay.apply(kind, job, body)
    with pytest.raises(VerificationFailed, match="reserved already"):
        replay.apply(EntryKind.RESERVE, job, reserve)
    assert replay.live_count == 0


@pytest.mark.parametrize("job", ["a", "a" * 16, "A" * 32, "é" * 8])
def test_names_that_are_no_uuids_stay_apart(job):
    replay = allowed()
    reserve, _ = shape(replay.books.account)
    others = {job, str(uuid.UUID(bytes=job.encode()[:16].ljust(16))), str(uuid.UUID(int=1))}
    if len(job) == 32:
        others |= {str(uuid.UUID(job)), str(uuid.UUID(job)).upper()}
    for each in others:
        replay.apply(EntryKind.RESERVE, each, reserve)
    assert set(replay.live()) == others


def test_nothing_has_changed_where_an_entry_fails():
    replay = allowed()
    reserve, _ = shape(replay.books.account)
    before = replay.books
    with pytest.raises(VerificationFailed):
        replay.apply(EntryKind.RESERVE, "a", {**reserve, "costs": {}})
    assert (replay.books, replay.live_count) == (before, 0)
    with pytest.raises(VerificationFailed, match="not live"):
        Books().apply(EntryKind.VOID, "a", {})


@pytest.mark.slow
def test_memory_is_a_few_hundred_bytes_a_job():
    """Live and settled jobs alike, whatever their entries hold."""
    import json

    replay = allowed()
    bodies = [json.dumps(shape(replay.books.account, tokens)) for tokens in range(1, 9)]
    jobs = 2000

    def run() -> None:
        for number in range(jobs):
            reserve, commit = json.loads(bodies[number % 8])
            job = str(uuid.uuid4())
            replay.apply(EntryKind.RESERVE, job, reserve)
            if number % 2:
                replay.apply(EntryKind.COMMIT, job, commit)

    run()  # prices of shapes are kept once, and Python keeps some 2,000 tuples of each length
    tracemalloc.start()
    run()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / jobs < 300
