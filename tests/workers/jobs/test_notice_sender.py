"""Notices from the change to a receiver: both of them real processes, and the sender one that is
killed.
"""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import text

from accountant.catalogue import datasets, notices
from accountant.core.errors import InvalidRequest, NotFound, NotPermitted
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.policy import Policy
from accountant.core.webhook_rules import EVENTS, JOB_EVENTS, networks
from accountant.identities.actor import Actor
from accountant.settings import Settings
from accountant.transactions import allowances, policies, settlement, signing
from tests.support import Bench, found_right, no, person, yes
from workers.jobs import notice_sender as sending
from workers.jobs.notice_sender import Sender, post

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
LOOPBACK = "127.0.0.0/8|::1/128"


@dataclass
class Receiver:
    """The receiving process, and what it got."""

    url: str
    log: Path

    def got(self, path: str) -> list[dict]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [each for each in map(json.loads, lines) if each["path"] == path]


@pytest.fixture(scope="module")
def receiver(tmp_path_factory) -> Iterator[Receiver]:
    log = tmp_path_factory.mktemp("receiver") / "log"
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/workers/jobs/receiver.py"), str(log)],
        stdout=subprocess.PIPE,
    )
    port = int(process.stdout.readline())
    yield Receiver(f"http://localhost:{port}", log)
    process.kill()
    process.wait()


@pytest.fixture
def configured(tmp_path, database_url) -> Settings:
    return Settings(
        home=tmp_path,
        DATABASE_URL=database_url,
        public_url="https://x.example",
        notice_networks=LOOPBACK,
        notice_first_seconds=0.01,
    )


@pytest.fixture
def sender(engine, configured) -> Iterator[Sender]:
    """Sends what is due to this test's addresses; those of earlier tests are removed."""
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM hooks"))
    made = Sender(engine, configured)
    yield made
    made.close()


@pytest.fixture
def administrator(engine) -> Actor:
    return person(engine, "administrator")


@pytest.fixture
def told_at(engine, receiver, administrator):
    """A function that sets an address of the receiver for a person; returns its id."""

    def at(who: Actor, path: str, events=EVENTS, kind="json"):
        allowed = networks(LOOPBACK)
        url = receiver.url + path
        return notices.add(
            engine, url, kind, list(events), who.name, administrator, allowed=allowed
        )

    return at


def deliver(sender: Sender, engine, seconds: float = 30) -> None:
    """Step until nothing waits."""
    deadline = time.monotonic() + seconds
    while True:
        sender.step()
        with engine.connect() as connection:
            if not connection.execute(text("SELECT count(*) FROM hook_deliveries")).scalar_one():
                return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def waiting(engine, notice_id) -> list:
    query = text("SELECT * FROM hook_deliveries WHERE hook_id = :id ORDER BY occurred_at, id")
    with engine.connect() as connection:
        return connection.execute(query, {"id": notice_id}).all()


def events_of(engine, notice_id) -> list[str]:
    return [row.event for row in waiting(engine, notice_id)]


def until(look, seconds: float = 30):
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return seen


# --- what is written ----------------------------------------------------------------------------


def test_a_change_and_its_message_are_one_transaction(bench, sender, engine, told_at):
    bench.warm()
    notice_id = told_at(bench.steward, "/ok")
    job = bench.submit(3)
    assert events_of(engine, notice_id) == ["job.awaiting_approval"]
    with engine.connect() as connection:
        connection.execute(text("UPDATE jobs SET state = 'cancelled' WHERE id = :id"), {"id": job})
        connection.rollback()
    assert len(waiting(engine, notice_id)) == 1
    yes(engine, job, bench.steward, "fine")
    settlement.cancel(engine, job, bench.analyst)
    bench.submit(10**6)
    assert events_of(engine, notice_id)[1:] == ["job.queued", "job.cancelled", "job.refused"]


def test_where_there_is_no_address_nothing_is_written(bench, sender, engine, told_at):
    bench.warm()
    notices.remove(engine, told_at(bench.steward, "/ok"), bench.steward)
    yes(engine, bench.submit(3), bench.steward, "fine")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM hook_deliveries")).scalar_one() == 0


def test_what_happens_to_datasets_proposals_and_checkpoints_is_told_to_overseers(
    sender, engine, told_at
):
    bench = Bench(engine, policy={"auto_approve_epsilon": "100"})
    steward, auditor = told_at(bench.steward, "/ok"), told_at(bench.auditor, "/ok")
    analyst = told_at(bench.analyst, "/ok", JOB_EVENTS)
    bench.allow()
    bench.warm()
    job = bench.submit(1)
    policies.set_policy(engine, bench.dataset, Policy(two_people=True), bench.steward)
    proposal = allowances.allow(
        engine, bench.dataset, Allowance("30", "0.0000029053", "more"), bench.steward
    )
    no(engine, proposal, bench.steward, "no")
    spec = {"name": f"{bench.dataset}-2", "uri": "/nowhere-2.csv"}
    found_right(engine, datasets.add_dataset(engine, datasets.read_dataset(spec), bench.steward))
    with engine.connect() as connection:
        dataset_id = connection.execute(
            text("SELECT id FROM datasets WHERE name = :name"), {"name": bench.dataset}
        ).scalar_one()
    signing.make(engine, dataset_id, bench.dataset, 1, "0" * 64, {}, bytes(32))
    found = Counter(events_of(engine, steward))
    assert {
        "job.queued",
        "decision.open",
        "decision.withdrawn",
        "version.ready",
        "checkpoint.made",
    } <= set(found)
    assert Counter(events_of(engine, auditor)) == found
    assert {each.split(".")[0] for each in events_of(engine, analyst)} == {"job"}
    settlement.cancel(engine, job, bench.analyst)


STAGES = [
    (0, None),
    (89, None),
    (90, "dataset.low"),
    (99, "dataset.low"),
    (100, "dataset.exhausted"),
]
KINDS = ("renyi", "gaussian", "renyi2", "basic")
OWN = "WHERE dataset_id = (SELECT id FROM datasets WHERE name = :name)"


def moved(owner, bench: Bench, **columns: str) -> None:
    changes = ", ".join(f"{name} = {value}" for name, value in columns.items())
    with owner.begin() as connection:
        connection.execute(text(f"UPDATE accounts SET {changes} {OWN}"), {"name": bench.dataset})


def used(percent: int, *kinds: str) -> dict[str, str]:
    return {f"{kind}_spent": f"div({kind}_limit * {percent} + 99, 100)" for kind in kinds}


@pytest.mark.parametrize(("percent", "event"), STAGES)
def test_a_dataset_that_runs_out_is_told_once(
    bench, sender, engine, told_at, percent, event, owner
):
    notice_id = told_at(bench.steward, "/ok")
    moved(owner, bench, **used(percent, *KINDS))
    moved(owner, bench, **used(percent, *KINDS))  # the same again is no change
    assert events_of(engine, notice_id) == ([] if event is None else [event])


def test_one_filter_with_room_is_room_and_a_closed_one_is_none(
    bench, sender, engine, told_at, owner
):
    notice_id = told_at(bench.steward, "/ok")
    moved(owner, bench, **used(100, *KINDS[:3]))
    assert events_of(engine, notice_id) == []
    moved(owner, bench, renyi_closed="1", renyi_spent="0", **used(90, "basic"))
    assert events_of(engine, notice_id) == ["dataset.low"]


def test_an_overdrawn_dataset_is_told(bench, sender, engine, told_at, owner):
    notice_id = told_at(bench.steward, "/ok")
    moved(owner, bench, overdrawn="true")
    assert events_of(engine, notice_id) == ["dataset.overdrawn"]


# --- who is told --------------------------------------------------------------------------------


def test_analysts_are_told_of_their_own_jobs_alone_and_only_of_public_facts(
    bench, receiver, sender, engine, told_at
):
    bench.warm()
    other = person(engine, "analyst")
    told_at(bench.analyst, "/mine", JOB_EVENTS)
    theirs = told_at(other, "/theirs", JOB_EVENTS)
    job = bench.submit(3)
    assert events_of(engine, theirs) == []
    deliver(sender, engine)
    assert receiver.got("/theirs") == []
    (message,) = receiver.got("/mine")
    said = json.loads(message["body"])
    assert (said["event"], said["link"]) == (
        "job.awaiting_approval",
        f"https://x.example/jobs/{job}",
    )
    assert said["text"].endswith("it is now awaiting approval.")
    assert said["data"].pop("name").startswith("Texts, ")  # and no word of its purpose
    assert said["data"] == {
        "job": str(job),
        "dataset": bench.dataset,
        "mechanism": "private-prediction",
        "analyst": bench.analyst.name,
        "state": "awaiting_approval",
    }
    assert set(said) == {"id", "event", "text", "link", "data"}
    with pytest.raises(InvalidRequest, match="stewards and auditors"):
        told_at(bench.analyst, "/mine", ["dataset.exhausted"])


def test_a_steward_is_led_to_the_card_where_the_job_is_decided(
    bench, receiver, sender, engine, told_at
):
    bench.warm()
    told_at(bench.steward, "/card", ["job.awaiting_approval"])
    job = bench.submit(3)
    deliver(sender, engine)
    (message,) = receiver.got("/card")
    assert json.loads(message["body"])["link"] == f"https://x.example/decisions/{job}"


@pytest.mark.parametrize("lost", ["active = false", "roles = ARRAY['analyst']"])
def test_what_somebody_may_see_is_looked_up_when_it_is_sent(
    bench, receiver, sender, engine, lost, told_at
):
    bench.warm()
    overseer = person(engine, "steward")
    path = f"/lost-{overseer.name}"
    notice_id = told_at(overseer, path)
    bench.submit(3)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE users SET {lost} WHERE id = :id"), {"id": overseer.id})
    deliver(sender, engine)
    assert receiver.got(path) == []
    bench.submit(3)
    assert waiting(engine, notice_id) == []  # nothing more is written for them


def test_who_is_no_owner_of_a_dataset_any_more_is_told_nothing_of_it(
    bench, receiver, sender, engine, told_at
):
    bench.warm()
    auditor = person(engine, "auditor")
    told_at(auditor, "/disowned")
    bench.submit(3)
    with engine.begin() as connection:
        owners = (
            'UPDATE datasets SET policy = policy || \'{"auditors": ["nobody"]}\' WHERE name = :name'
        )
        connection.execute(text(owners), {"name": bench.dataset})
    deliver(sender, engine)
    assert receiver.got("/disowned") == []


def test_an_administrator_alone_sets_an_address_and_its_person_ends_it(
    bench, engine, sender, told_at, administrator
):
    for who in (bench.analyst, bench.steward, bench.auditor):
        with pytest.raises(NotPermitted):
            notices.add(engine, "https://x.example/", "json", ["job.failed"], who.name, who)
    notice_id = told_at(bench.analyst, "/ok", JOB_EVENTS, "chat")
    for who in (bench.steward, bench.auditor):
        with pytest.raises(NotFound):
            notices.remove(engine, notice_id, who)
    with pytest.raises(NotPermitted):
        notices.test(engine, notice_id, bench.analyst)
    assert "/ok" in notices.show(engine, notice_id, administrator)["url"]
    # who knows it may write there
    assert "/ok" not in notices.show(engine, notice_id, bench.analyst)["url"]
    notices.remove(engine, notice_id, bench.analyst)
    with pytest.raises(NotFound):
        notices.show(engine, notice_id, administrator)


# --- how it is sent -----------------------------------------------------------------------------


def test_each_kind_gets_a_sentence_and_a_link(bench, receiver, sender, engine, told_at):
    bench.warm()
    for kind in ("chat", "teams", "json"):
        told_at(bench.analyst, f"/{kind}", ["job.awaiting_approval"], kind)
    job = bench.submit(3)
    deliver(sender, engine)
    chat, teams, program = (
        json.loads(receiver.got(f"/{kind}")[-1]["body"]) for kind in ("chat", "teams", "json")
    )
    said, link = program["text"], f"https://x.example/jobs/{job}"
    assert chat == {"text": f"{said} {link}"}
    card = teams["attachments"][0]["content"]
    assert card["body"][0]["text"] == said
    assert card["actions"][0]["url"] == link


def test_openlineage_is_told_of_each_settled_job(bench, receiver, sender, engine, told_at):
    bench.warm()
    told_at(bench.steward, "/lineage", ["job.cancelled"], "openlineage")
    job = bench.submit(3)
    settlement.cancel(engine, job, bench.analyst)
    deliver(sender, engine)
    event = json.loads(receiver.got("/lineage")[-1]["body"])
    for name in ("eventTime", "producer", "schemaURL"):  # what its specification requires
        assert event[name], name
    assert (event["run"]["runId"], event["eventType"]) == (str(job), "ABORT")
    assert set(event["job"]) == {"namespace", "name"}
    assert [each["name"] for each in event["inputs"]] == [f"datasets/{bench.dataset}"]
    assert event["outputs"] == []
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None


def test_openlineage_tells_an_analyst_no_end_of_their_own_job(
    bench, receiver, sender, engine, told_at
):
    """Who set the address was a steward then."""
    bench.warm()
    role = text("UPDATE users SET roles = CAST(:roles AS text[]) WHERE id = :id")
    with engine.begin() as connection:
        connection.execute(role, {"id": bench.analyst.id, "roles": ["analyst", "auditor"]})
    told_at(bench.analyst, "/own-ends", ["job.cancelled"], "openlineage")
    with engine.begin() as connection:
        connection.execute(role, {"id": bench.analyst.id, "roles": ["analyst"]})
    settlement.cancel(engine, bench.submit(3), bench.analyst)
    deliver(sender, engine)
    assert receiver.got("/own-ends") == []


def test_openlineage_takes_ends_of_jobs_alone_and_for_overseers(bench, told_at):
    for person_, events in (
        (bench.steward, ["job.queued"]),
        (bench.analyst, ["job.succeeded"]),
    ):
        with pytest.raises(InvalidRequest):
            told_at(person_, "/lineage", events, "openlineage")


def test_a_message_is_tried_again_under_its_id_until_it_is_taken(
    bench, receiver, sender, engine, told_at, administrator
):
    notice_id = told_at(bench.analyst, "/flaky/3", JOB_EVENTS)
    notices.test(engine, notice_id, administrator)
    deliver(sender, engine)
    messages = receiver.got("/flaky/3")
    assert len(messages) == 4
    assert len({each["body"] for each in messages}) == 1
    assert json.loads(messages[0]["body"])["id"].startswith("msg_")


def test_a_message_that_nothing_takes_is_given_up_after_a_day(
    bench, receiver, sender, engine, told_at, administrator
):
    notice_id = told_at(bench.analyst, "/fail", JOB_EVENTS)
    notices.test(engine, notice_id, administrator)
    until(
        lambda: sender.step() == 0 and all(row.attempts >= 2 for row in waiting(engine, notice_id))
    )
    with engine.begin() as connection:
        age = "UPDATE hook_deliveries SET occurred_at = occurred_at - interval '25 hours'"
        connection.execute(text(age))
    deliver(sender, engine)
    assert notices.show(engine, notice_id, administrator)


def test_an_address_that_is_removed_is_told_nothing(
    bench, receiver, sender, engine, told_at, administrator
):
    notice_id = told_at(bench.analyst, "/removed", JOB_EVENTS)
    notices.test(engine, notice_id, administrator)
    notices.remove(engine, notice_id, administrator)
    assert sender.step() == 0
    assert receiver.got("/removed") == []


# --- where it may not lead ----------------------------------------------------------------------


def test_redirects_are_not_followed(receiver):
    outcome = post(f"{receiver.url}/redirect", b"{}", networks(LOOPBACK))
    assert (outcome.status, outcome.delivered) == (302, False)
    assert "redirects are not followed" in outcome.problem
    assert receiver.got("/redirect")


def test_a_name_that_leads_inside_is_not_called(receiver):
    port = receiver.url.rpartition(":")[2]
    for url in (f"https://localhost:{port}/inside", f"{receiver.url}/inside"):
        outcome = post(url, b"{}", ())
        assert outcome.status is None
        assert "not public" in outcome.problem or "not https" in outcome.problem
    assert receiver.got("/inside") == []


@pytest.mark.parametrize(
    "inside", ["10.0.0.5", "127.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:10.0.0.5"]
)
def test_one_address_inside_is_enough_to_refuse_a_name(monkeypatch, inside):
    answers = [(0, 0, 0, "", ("93.184.216.34", 443)), (0, 0, 0, "", (inside, 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers)
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("it was called"))
    assert (
        post("https://rebound.example/x", b"{}", ()).problem
        == "leads to an address that is not public"
    )


def test_a_name_that_answers_otherwise_the_second_time_gains_nothing(monkeypatch):
    """DNS rebinding: the connection goes to the address that was checked, whatever the name says
    then.
    """
    answers = iter(["93.184.216.34", "127.0.0.1", "127.0.0.1"])
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 1, 6, "", (next(answers), 443))]
    )
    called = []

    def connect(address, *_, **__):
        called.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    assert "could not be reached" in post("https://rebound.example/x", b"{}", ()).problem
    assert called == [("93.184.216.34", 443)]


@pytest.mark.parametrize("path", ["/slow", "/drip"])
def test_a_receiver_that_takes_its_time_is_left(receiver, monkeypatch, path):
    monkeypatch.setattr(sending, "ATTEMPT_SECONDS", 1.0)
    outcome = post(receiver.url + path, b"{}", networks(LOOPBACK))
    assert outcome.status is None
    assert outcome.problem


@pytest.fixture
def dripping(tmp_path, monkeypatch) -> Iterator[str]:
    """The address of a receiver behind TLS, trusted here, that sends a byte of its answer now and
    then.
    """
    key, written = ec.generate_private_key(ec.SECP256R1()), tmp_path / "receiver.pem"
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(
        x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificate = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    written.write_bytes(private + certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(written))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(written)
    stop = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            taken, _ = listening.accept()
            with context.wrap_socket(taken, server_side=True) as secured:
                secured.sendall(b"HTTP/1.1 2")
                while not stop.wait(0.1):
                    secured.sendall(b"0")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://localhost:{listening.getsockname()[1]}/drip"
        stop.set()
    thread.join(10)


def test_tls_gives_a_receiver_no_more_time(dripping, monkeypatch):
    """A receiver that holds a sender's thread for long would hold up everybody's messages."""
    monkeypatch.setattr(sending, "ATTEMPT_SECONDS", 1.0)
    came = []
    thread = threading.Thread(
        target=lambda: came.append(post(dripping, b"{}", networks(LOOPBACK))), daemon=True
    )
    thread.start()
    thread.join(30)  # left to itself it would take hours
    (outcome,) = came
    assert outcome.status is None
    assert "could not be reached" in outcome.problem or "TLS" in outcome.problem


def test_an_answer_without_end_is_not_read(receiver):
    assert post(f"{receiver.url}/endless", b"{}", networks(LOOPBACK)).status == 200


# --- crashes and races --------------------------------------------------------------------------


def ids(receiver: Receiver, path: str) -> list[str]:
    return [json.loads(each["body"]).get("id") for each in receiver.got(path)]


def test_two_senders_share_the_work(
    bench, receiver, engine, configured, sender, told_at, administrator
):
    notice_id = told_at(bench.analyst, "/shared", JOB_EVENTS)
    for _ in range(30):
        notices.test(engine, notice_id, administrator)
    other = Sender(engine, configured)
    meet = threading.Barrier(2)

    def work(each: Sender) -> None:
        meet.wait()
        deliver(each, engine)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (sender, other)))
    other.close()
    assert len(ids(receiver, "/shared")) == len(set(ids(receiver, "/shared"))) == 30


def test_a_sender_that_is_killed_in_the_middle_loses_nothing(
    bench, receiver, engine, configured, servers, tmp_path, sender, told_at, administrator, owner
):
    notice_id = told_at(bench.analyst, "/slow", JOB_EVENTS)
    notices.test(engine, notice_id, administrator)
    environment = {
        **os.environ,
        "DATABASE_URL": configured.database_url,
        "BROKER_URL": servers.broker_url,
        "EXCHEQUER_HOME": str(tmp_path),
        "EXCHEQUER_NOTICE_NETWORKS": LOOPBACK,
        "PYTHONPATH": str(ROOT),
    }
    before = len(receiver.got("/slow"))
    relay = subprocess.Popen(
        [sys.executable, "-m", "workers.jobs.relay"], cwd=ROOT, env=environment
    )
    try:
        until(lambda: len(receiver.got("/slow")) > before, 60)
    finally:
        relay.send_signal(signal.SIGKILL)
        relay.wait()
    (row,) = waiting(engine, notice_id)
    assert (row.attempts, row.claim is None) == (1, False)
    url = "UPDATE hooks SET url = :url WHERE id = :id"
    with owner.begin() as connection:  # its claim runs out, and the receiver has woken up
        connection.execute(text("UPDATE hook_deliveries SET due_at = clock_timestamp()"))
        connection.execute(text(url), {"url": receiver.url + "/awake", "id": notice_id})
    relay = subprocess.Popen(
        [sys.executable, "-m", "workers.jobs.relay"], cwd=ROOT, env=environment
    )
    try:
        until(lambda: not waiting(engine, notice_id), 60)
    finally:
        relay.terminate()
        relay.wait(30)
    assert ids(receiver, "/awake") == [ids(receiver, "/slow")[-1]]


def test_who_comes_late_changes_nothing(bench, engine, sender, told_at, administrator):
    """A sender that was given up for lost writes its outcome after another's: the claim has
    ended.
    """
    notice_id = told_at(bench.analyst, "/ok", JOB_EVENTS)
    notices.test(engine, notice_id, administrator)
    (late,) = notices.take(engine, 10)
    assert notices.take(engine, 10) == []
    with engine.begin() as connection:
        connection.execute(text("UPDATE hook_deliveries SET due_at = clock_timestamp()"))
    (second,) = notices.take(engine, 10)
    assert second.message_id == late.message_id
    retries = notices.Retries(5, 24)
    failed = notices.Outcome(500, "answered 500")
    assert notices.settle(engine, late, notices.Outcome(200), retries) is None
    assert notices.settle(engine, second, failed, retries) == "waiting"
    assert notices.settle(engine, second, failed, retries) is None
    assert len(waiting(engine, notice_id)) == 1
