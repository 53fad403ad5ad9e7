"""A duty of the relay that fails stops no other, and nobody's messages."""

import pytest
from sqlalchemy.exc import OperationalError

from accountant import settings
from accountant.transactions import asking, leases, messages
from workers.jobs import relay, staging


def _fails(*_, **__):
    raise ValueError("what the row holds")


@pytest.mark.parametrize("duty", [(leases, "expire"), (asking, "sweep"), (staging, "tidy")])
def test_messages_are_sent_again_whatever_else_fails(engine, monkeypatch, capfd, duty):
    monkeypatch.setattr(*duty, _fails)
    sent = []
    monkeypatch.setattr(messages, "resend", lambda *_: sent.append(1) or 7)
    assert relay.sweep(engine, settings.load(), 1.0)[1] == 7
    relay.look_around(engine, settings.load())
    assert sent == [1]
    assert "what the row holds" not in "".join(capfd.readouterr())


def test_an_outage_is_waited_out(engine, monkeypatch):
    def away(*_):
        raise OperationalError("SELECT", {}, Exception("gone"))

    monkeypatch.setattr(leases, "expire", away)
    with pytest.raises(OperationalError):
        relay.sweep(engine, settings.load(), 1.0)
