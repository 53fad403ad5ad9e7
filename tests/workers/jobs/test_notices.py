"""Notices in words and by mail, with names and states alone."""

import json
import socketserver
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from accountant.catalogue import notices as addressed
from accountant.core import notices
from accountant.core.errors import InvalidRequest
from accountant.settings import Settings
from accountant.transactions import comments
from tests.support import person
from tests.workers.jobs.test_notice_sender import LOOPBACK, deliver
from workers.jobs.notice_sender import Sender

FACTS = {"job": "43b13a9f-0000-4000-8000-000000000000", "dataset": "reviews", "analyst": "ada"}
FACTS |= {"mechanism": "noisy-count", "state": "awaiting_approval"}
FACTS |= {"name": "Counts, 3 March, no. 12"}

# --- what is said -------------------------------------------------------------------------------


def test_a_notice_is_a_sentence_of_names_and_states_with_a_link():
    said = "Counts, 3 March, no. 12, of ada on reviews: it is now awaiting approval."
    assert notices.sentence("job.awaiting_approval", FACTS) == said
    where = "https://x.example/"
    assert json.loads(notices.body("chat", "job.awaiting_approval", FACTS, where, "msg_1")) == {
        "text": f"{said} https://x.example/jobs/{FACTS['job']}"
    }
    subject, body = notices.letter("dataset.low", {"dataset": "reviews", "entry": 7}, None)
    assert subject == (
        "Exchequer: Dataset reviews: every filter that is open has used nine tenths of its "
        "allowance, or more"
    )
    assert "Your account, Notices" in body


def test_no_name_makes_a_link_or_a_line_in_a_notice():
    odd = notices.sentence(
        "job.queued", {**FACTS, "analyst": "<!channel>\r\nBcc: x@y.example [a](b)"}
    )
    assert not set("<>@[]\r\n") & set(odd)


@pytest.mark.parametrize(
    ("url", "domains", "why"),
    [
        ("mailto:ada@example.org", [], "sends no mail"),
        ("https://example.org", ["example.org"], "no address for mail"),
        ("mailto:ada@elsewhere.org", ["example.org"], "does not write to"),
        ("mailto:ada@example.org,eve@elsewhere.org", ["example.org"], "no address"),
        ("mailto:ada@example.org?bcc=eve@x.org", ["example.org"], "no address"),
        ("mailto:ada@example.org\nBcc: e", ["example.org"], "no address"),
    ],
)
def test_mail_goes_to_one_address_of_an_allowed_domain(url, domains, why):
    assert notices.read_mail("mailto:ada@Example.org", ["example.org"]) == "ada@Example.org"
    with pytest.raises(InvalidRequest, match=why):
        notices.read_mail(url, domains)


# --- on the way ---------------------------------------------------------------------------------


class Mailbox(socketserver.ThreadingTCPServer):
    """A mail server that keeps what it is sent; `answer` is what it says to a recipient."""

    allow_reuse_address = daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Conversation)
        self.letters: list[str] = []
        self.answer = "250 fine"


class Conversation(socketserver.StreamRequestHandler):
    server: Mailbox

    def handle(self) -> None:
        self.say("220 here")
        while line := self.rfile.readline().decode():
            word = line[:4].upper().strip()
            if word == "DATA":
                self.say("354 go on")
                lines = iter(lambda: self.rfile.readline().decode(), ".\r\n")
                self.server.letters.append("".join(lines))
            self.say(
                "221 bye"
                if word == "QUIT"
                else self.server.answer
                if word == "RCPT"
                else "250 fine"
            )

    def say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    server = Mailbox()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def sender(engine, mailbox, tmp_path, database_url) -> Iterator[Sender]:
    mail = {
        "smtp_host": "127.0.0.1",
        "smtp_port": mailbox.server_address[1],
        "smtp_security": "none",
    }
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM hooks"))
    configured = Settings(
        **{"home": tmp_path, "DATABASE_URL": database_url, "public_url": "https://x.example"},
        **{"notice_networks": LOOPBACK, "notice_first_seconds": 0.01, "notice_hours": 1e-4},
        **{**mail, "mail_domains": "example.org"},
    )
    made = Sender(engine, configured)
    yield made
    made.close()


def by_mail(engine, event: str, who) -> object:
    """Set an address for mail; returns its id."""
    address, setter = "mailto:ada@example.org", person(engine, "administrator")
    return addressed.add(
        engine, address, "mail", [event], who.name, setter, domains=["example.org"]
    )


@pytest.mark.slow
def test_a_question_is_told_by_mail_without_its_words(bench, engine, sender, mailbox):
    bench.warm()
    by_mail(engine, "job.asked_back", bench.analyst)
    job_id = bench.submit(3)
    comments.say(engine, job_id, bench.steward, "a very private word", asks=True)
    deliver(sender, engine)
    (letter,) = mailbox.letters
    assert "To: ada@example.org" in letter
    assert f"https://x.example/jobs/{job_id}" in letter.replace("=\r\n", "")
    assert "private word" not in letter


@pytest.mark.slow
def test_a_server_that_refuses_blocks_nothing_and_is_given_up(bench, engine, sender, mailbox):
    bench.warm()
    mailbox.answer = "550 nobody of that name, says the server at length"
    by_mail(engine, "job.awaiting_approval", bench.analyst)
    bench.submit(3)
    deliver(sender, engine)
    assert mailbox.letters == []
