"""A duty of the relay that fails stops no other, and nobody's messages."""

import threading
import time
from contextlib import contextmanager
from unittest import mock
from uuid import UUID

import pytest
from sqlalchemy.exc import OperationalError

from accountant import settings
from accountant.core.ledger.policy import Policy
from accountant.queries import jobs
from accountant.transactions import (
    asking,
    cap_usage,
    leases,
    ledger_log,
    messages,
    policies,
    releases,
)
from workers.jobs import relay, staging


def _fails(*_, **__):
    raise ValueError("what the row holds")


DUTIES = [(leases, "expire"), (asking, "sweep"), (releases, "admit"), (staging, "tidy")]


@pytest.mark.parametrize("duty", DUTIES)
def test_messages_are_sent_again_whatever_else_fails(engine, monkeypatch, capfd, duty):
    monkeypatch.setattr(*duty, _fails)
    sent = []
    monkeypatch.setattr(messages, "resend", lambda *_, **named: sent.append(named) or 7)
    assert relay.sweep(engine, settings.load(), 1.0)[1] == 7
    relay.look_around(engine, settings.load())
    assert sent == [{}, {"whole": True}]
    assert "what the row holds" not in "".join(capfd.readouterr())


def test_a_sweep_admits_what_is_released(engine, bench):
    shared = {"shared_epsilon": "9", "release_start": "9000-01", "release_months": 1}
    waits = Policy(auto_approve_epsilon="10", wait_for_release=True, **shared)
    policies.set_policy(engine, bench.dataset, waits, bench.steward)
    bench.allow()
    bench.warm()
    job_id = bench.submit(10)
    relay.sweep(engine, settings.load(), 1.0)
    assert jobs.job(engine, job_id, bench.analyst).state == "awaiting_release"
    with mock.patch.object(cap_usage, "month_of", return_value=12 * 9000):
        relay.sweep(engine, settings.load(), 1.0)
    assert jobs.job(engine, job_id, bench.analyst).state == "queued"


def test_each_ledger_is_compared_at_the_start_and_at_each_look_around(engine, monkeypatch):
    looks = []
    monkeypatch.setattr(ledger_log, "tend", lambda _, whole: looks.append(whole) or [])
    relay.sweep(engine, settings.load(), 1.0)
    relay.look_around(engine, settings.load())
    assert looks == [False, True]
    relay.reconcile(engine, settings.load())
    assert looks[2:] == [True, False, True]


def test_an_outage_is_waited_out(engine, monkeypatch):
    def away(*_):
        raise OperationalError("SELECT", {}, Exception("gone"))

    monkeypatch.setattr(leases, "expire", away)
    with pytest.raises(OperationalError):
        relay.sweep(engine, settings.load(), 1.0)


@contextmanager
def running(engine, monkeypatch, tmp_path, **changed):
    """The relay's loop on this database, in a thread; its sign of life is the file `alive`."""
    stop, alive = threading.Event(), tmp_path / "alive"
    url = engine.url.render_as_string(hide_password=False)
    configured = settings.Settings(home=tmp_path, DATABASE_URL=url, **changed)
    monkeypatch.setattr(settings, "load", lambda: configured)
    monkeypatch.setenv("EXCHEQUER_ALIVE_FILE", str(alive))
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    try:
        yield alive
        assert thread.is_alive()
    finally:
        stop.set()
        thread.join(20)


def until(met):
    ends = time.monotonic() + 20
    while not met():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.parametrize("place", [(messages, "deliver"), (relay, "watch_log")])
def test_the_loop_goes_on_after_whatever_error(engine, monkeypatch, tmp_path, capfd, place):
    """It ended at the first one that no outage explains, and no lease was ended until a restart."""
    called = []

    def fails(*_, **__):
        called.append(1)
        raise KeyError("what the row holds")

    monkeypatch.setattr(*place, fails)
    monkeypatch.setattr(relay, "SWEEP_SECONDS", 0.05)
    with running(engine, monkeypatch, tmp_path) as alive:
        until(lambda: len(called) > 1)
        alive.unlink()
        until(alive.exists)
    assert "what the row holds" not in "".join(capfd.readouterr())


def test_a_message_that_cant_be_sent_holds_up_no_other(monkeypatch):
    monkeypatch.setattr(relay.app, "send_task", _fails)
    relay.send("probe", UUID(int=1), 1, 0)
    monkeypatch.setattr(relay.app, "send_task", _refused)
    with pytest.raises(ConnectionRefusedError):  # the broker is away: it is sent when it is back
        relay.send("probe", UUID(int=1), 1, 0)


def _refused(*_, **__):
    raise ConnectionRefusedError


def test_leases_and_messages_wait_for_no_store_that_hangs(engine, monkeypatch):
    go, tidied = threading.Event(), []
    monkeypatch.setattr(staging, "tidy", lambda *_: tidied.append(1) or go.wait(20))
    began = time.monotonic()
    assert relay.look_around(engine, settings.load()) == 0
    assert relay.look_around(engine, settings.load()) == 0
    assert time.monotonic() - began < 2 * relay.STORE_SECONDS + 2
    assert tidied == [1]  # none was begun beside the one that hangs
    go.set()


def test_the_relay_starts_without_a_library_for_its_store(engine, monkeypatch, tmp_path, capfd):
    sent = threading.Event()
    monkeypatch.setattr(messages, "resend", lambda *_, **__: sent.set() or 0)
    with running(engine, monkeypatch, tmp_path, results_url="gs://bucket/results"):
        assert sent.wait(20)
    lines = [line for line in "".join(capfd.readouterr()).splitlines() if "gcsfs" in line]
    assert len(lines) == 1
