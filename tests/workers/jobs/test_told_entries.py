"""A notice leaves when the log outside holds what it tells of, and not before."""

import threading
import time
from unittest import mock

import pytest
from sqlalchemy import text

from accountant import faults
from accountant.catalogue import notices
from accountant.catalogue.notices import Outcome
from accountant.core.errors import LogUnusable
from accountant.core.webhook_rules import networks
from accountant.ledger_log.files import FolderLog
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.log import entries as logged_entries
from accountant.settings import Settings
from accountant.transactions import leases, settlement
from tests.restores import ground
from tests.support import person
from workers.jobs import notice_sender
from workers.jobs.notice_sender import Sender

PATIENCE_SECONDS = 120


@pytest.fixture
def at(servers, tmp_path):
    with ground(servers, tmp_path / "log") as made:
        yield made


@pytest.fixture
def sent(at, tmp_path, monkeypatch):
    """A sender, and for each message that it sends the (event, entries in the log by then)."""
    told: list[tuple[str, int]] = []

    def send(delivery, *_):
        told.append((delivery.event, logged(at)))
        return Outcome(200)

    monkeypatch.setattr(notice_sender, "send", send)
    url = at.engine.url.render_as_string(hide_password=False)
    sender = Sender(at.engine, Settings(home=tmp_path / "home", DATABASE_URL=url))
    notices.add(
        *(at.engine, "http://127.0.0.1:9/", "json", ["job.cancelled"], at.bench.analyst.name),
        person(at.engine, "administrator"),
        allowed=networks("127.0.0.0/8"),
    )
    yield sender, told
    sender.close()


def logged(at) -> int:
    return sum(1 for _ in logged_entries(log_at(at.folder)))


def committed(at) -> int:
    with at.engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM entries")).scalar_one())


def due(at) -> None:
    """The claims of senders that died have run out."""
    with at.engine.begin() as connection:
        connection.execute(
            text("UPDATE hook_deliveries SET due_at = clock_timestamp(), claim = NULL")
        )


def step(sender: Sender, told: list, count: int) -> None:
    """Send what is due; waits for the threads that send."""
    sender.step()
    ends = time.monotonic() + PATIENCE_SECONDS
    while len(told) < count and time.monotonic() < ends:
        time.sleep(0.01)


def test_a_message_waits_for_the_log(at, sent):
    """Its writer stands still between COMMIT and log: the sender appends the entry before it tells
    of it.
    """
    sender, told = sent
    job_id = at.bench.submit(10)
    before, arrived, go = committed(at), threading.Event(), threading.Event()
    cancelling = threading.Thread(
        target=settlement.cancel, args=(at.engine, job_id, at.bench.analyst)
    )

    def stop(name: str, _: object) -> None:
        if name == "writing.committed" and threading.current_thread() is cancelling:
            arrived.set()
            go.wait(PATIENCE_SECONDS)

    with mock.patch.object(faults, "hook", stop):
        cancelling.start()
        try:
            assert arrived.wait(PATIENCE_SECONDS)
            assert (committed(at), logged(at)) == (before + 1, before)
            step(sender, told, 1)
        finally:
            go.set()
            cancelling.join()
    assert told == [("job.cancelled", before + 1)]


def test_a_message_that_the_log_can_not_take_is_not_sent(at, sent):
    sender, told = sent
    job_id = at.bench.submit(10)
    with mock.patch.object(FolderLog, "append", side_effect=LogUnusable("the disk is full")):
        with pytest.raises(LogUnusable):
            settlement.cancel(at.engine, job_id, at.bench.analyst)
        with pytest.raises(LogUnusable):
            sender.step()
    assert not told
    due(at)
    step(sender, told, 1)
    assert told == [("job.cancelled", committed(at))]


def test_nothing_is_told_of_a_ledger_that_is_behind_its_log(at, sent):
    sender, told = sent
    job_id = at.bench.submit(10)
    settlement.cancel(at.engine, job_id, at.bench.analyst)
    copy = at.backup()
    at.bench.submit(10)
    at.restore(copy)
    assert sender.step() == 1
    assert not sender._under_way
    at.heal()
    due(at)
    sender._engine = at.engine
    step(sender, told, 1)
    assert [event for event, _ in told] == ["job.cancelled"]
    assert leases.claim(at.engine, job_id, 1, "worker", 60) is None
