"""Webhooks from the change to a receiver: both of them real processes, and the sender one that is killed."""

import base64
import hashlib
import hmac
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
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import text

from accountant.catalogue import datasets
from accountant.core.errors import Conflict, InvalidRequest, NotFound
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.policy import Policy
from accountant.core.webhook_rules import EVENTS, JOB_EVENTS, networks
from accountant.settings import Settings
from accountant.transactions import allowances, approval, proposals, settlement, signing
from accountant.webhooks import delivery, registration
from tests.support import Bench, found_right, person
from workers.jobs import webhook_sender as sending
from workers.jobs.webhook_sender import Sender, post

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
LOOPBACK = "127.0.0.0/8|::1/128"
KEY = bytes(range(32))


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
        [sys.executable, str(ROOT / "tests/workers/jobs/receiver.py"), str(log)], stdout=subprocess.PIPE
    )
    port = int(process.stdout.readline())
    yield Receiver(f"http://localhost:{port}", log)
    process.kill()
    process.wait()


@pytest.fixture
def configured(tmp_path, monkeypatch, database_url) -> Settings:
    monkeypatch.setenv("EXCHEQUER_KEY_WEBHOOKS", KEY.hex())
    return Settings(
        home=tmp_path, DATABASE_URL=database_url, webhook_networks=LOOPBACK, webhook_first_seconds=0.01
    )


@pytest.fixture
def sender(engine, configured) -> Iterator[Sender]:
    """Sends what this test's hooks are due; hooks of earlier tests are told nothing any more."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE hooks SET active = false"))
    made = Sender(engine, configured)
    yield made
    made.close()


def hook(bench: Bench, actor, receiver: Receiver, path: str, events=EVENTS) -> tuple:
    return registration.add(bench.engine, receiver.url + path, list(events), actor, KEY, networks(LOOPBACK))


def deliver(sender: Sender, engine, seconds: float = 30) -> None:
    """Step until nothing is pending."""
    waiting = "FROM hook_deliveries d JOIN hooks h ON h.id = hook_id WHERE h.active AND d.state = 'pending'"
    left = text(f"SELECT count(*) {waiting}")
    deadline = time.monotonic() + seconds
    while True:
        sender.step()
        with engine.connect() as connection:
            if not connection.execute(left).scalar_one():
                return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def told(engine, hook_id) -> list:
    query = text("SELECT * FROM hook_deliveries WHERE hook_id = :id ORDER BY occurred_at, id")
    with engine.connect() as connection:
        return connection.execute(query, {"id": hook_id}).all()


def events_of(engine, hook_id) -> list[str]:
    return [row.event for row in told(engine, hook_id)]


# --- what is written ----------------------------------------------------------------------------


def test_a_change_and_its_message_are_one_transaction(bench, receiver, sender, engine):
    bench.warm()
    hook_id, _ = hook(bench, bench.steward, receiver, "/ok")
    job = bench.submit(3)
    assert events_of(engine, hook_id) == ["job.awaiting_approval"]
    with engine.connect() as connection:
        connection.execute(text("UPDATE jobs SET state = 'cancelled' WHERE id = :id"), {"id": job})
        connection.rollback()
    assert len(told(engine, hook_id)) == 1
    approval.approve(engine, job, bench.steward, "fine")
    assert events_of(engine, hook_id)[1:] == ["job.queued"]
    settlement.cancel(engine, job, bench.analyst)
    assert events_of(engine, hook_id)[2:] == ["job.cancelled"]
    bench.submit(10**6)
    assert events_of(engine, hook_id)[3:] == ["job.refused"]


def test_where_no_hook_is_active_nothing_is_written(bench, receiver, sender, engine):
    bench.warm()
    hook_id, _ = hook(bench, bench.steward, receiver, "/ok")
    registration.disable(engine, hook_id, bench.steward)
    count = text("SELECT count(*) FROM hook_deliveries")
    with engine.connect() as connection:
        before = connection.execute(count).scalar_one()
    approval.approve(engine, bench.submit(3), bench.steward, "fine")
    with engine.connect() as connection:
        assert connection.execute(count).scalar_one() == before


def test_what_happens_to_datasets_proposals_and_checkpoints_is_told_to_overseers(receiver, sender, engine):
    bench = Bench(engine, policy={"auto_approve_epsilon": "100"})
    steward, _ = hook(bench, bench.steward, receiver, "/ok")
    auditor, _ = hook(bench, bench.auditor, receiver, "/ok")
    analyst, _ = hook(bench, bench.analyst, receiver, "/ok", JOB_EVENTS)
    bench.allow()
    bench.warm()
    job = bench.submit(1)
    proposals.set_policy(engine, bench.dataset, Policy(two_people=True), bench.steward)
    proposal = allowances.allow(engine, bench.dataset, Allowance("30", "0.0000029053", "more"), bench.steward)
    proposals.withdraw(engine, proposal, bench.steward, "no")
    spec = {"name": f"{bench.dataset}-2", "uri": "/nowhere-2.csv"}
    found_right(engine, datasets.add_dataset(engine, datasets.read_dataset(spec), bench.steward))
    with engine.connect() as connection:
        dataset_id = connection.execute(
            text("SELECT id FROM datasets WHERE name = :name"), {"name": bench.dataset}
        ).scalar_one()
    signing.make(engine, dataset_id, bench.dataset, 1, "0" * 64, {}, bytes(32))
    found = Counter(events_of(engine, steward))
    assert {"job.queued", "proposal.open", "proposal.withdrawn", "version.ready", "checkpoint.made"} <= set(
        found
    )
    assert Counter(events_of(engine, auditor)) == found
    assert {each.split(".")[0] for each in events_of(engine, analyst)} == {"job"}
    settlement.cancel(engine, job, bench.analyst)


STAGES = [(0, None), (89, None), (90, "dataset.low"), (99, "dataset.low"), (100, "dataset.exhausted")]
KINDS = ("renyi", "gaussian", "renyi2", "basic")
OWN = "WHERE dataset_id = (SELECT id FROM datasets WHERE name = :name)"


def moved(owner, bench: Bench, **columns: str) -> None:
    changes = ", ".join(f"{name} = {value}" for name, value in columns.items())
    with owner.begin() as connection:
        connection.execute(text(f"UPDATE accounts SET {changes} {OWN}"), {"name": bench.dataset})


def used(percent: int, *kinds: str) -> dict[str, str]:
    return {f"{kind}_spent": f"div({kind}_limit * {percent} + 99, 100)" for kind in kinds}


@pytest.mark.parametrize(("percent", "event"), STAGES)
def test_a_dataset_that_runs_out_is_told_once(bench, receiver, sender, engine, percent, event, owner):
    hook_id, _ = hook(bench, bench.steward, receiver, "/ok")
    moved(owner, bench, **used(percent, *KINDS))
    moved(owner, bench, **used(percent, *KINDS))  # the same again is no change
    assert events_of(engine, hook_id) == ([] if event is None else [event])


def test_one_filter_with_room_is_room_and_a_closed_one_is_none(bench, receiver, sender, engine, owner):
    hook_id, _ = hook(bench, bench.steward, receiver, "/ok")
    moved(owner, bench, **used(100, *KINDS[:3]))
    assert events_of(engine, hook_id) == []
    moved(owner, bench, renyi_closed="1", renyi_spent="0", **used(90, "basic"))
    assert events_of(engine, hook_id) == ["dataset.low"]


def test_an_overdrawn_dataset_is_told(bench, receiver, sender, engine, owner):
    hook_id, _ = hook(bench, bench.steward, receiver, "/ok")
    moved(owner, bench, overdrawn="true")
    assert events_of(engine, hook_id) == ["dataset.overdrawn"]


# --- who is told --------------------------------------------------------------------------------


def test_analysts_are_told_of_their_own_jobs_alone_and_only_of_public_facts(bench, receiver, sender, engine):
    bench.warm()
    other = person(engine, "analyst")
    hook(bench, bench.analyst, receiver, "/mine", JOB_EVENTS)
    theirs, _ = hook(bench, other, receiver, "/theirs", JOB_EVENTS)
    job = bench.submit(3)
    deliver(sender, engine)
    assert events_of(engine, theirs) == []
    assert receiver.got("/theirs") == []
    (message,) = receiver.got("/mine")
    told_of = json.loads(message["body"])
    assert set(told_of) == {"type", "timestamp", "data"}
    assert told_of["type"] == "job.awaiting_approval"
    assert told_of["data"] == {
        "job": str(job),
        "dataset": bench.dataset,
        "mechanism": "private-prediction",
        "analyst": bench.analyst.name,
        "state": "awaiting_approval",
    }
    with pytest.raises(InvalidRequest, match="stewards and auditors"):
        hook(bench, bench.analyst, receiver, "/mine", ["dataset.exhausted"])


@pytest.mark.parametrize("lost", ["active = false", "roles = ARRAY['analyst']"])
def test_what_somebody_may_see_is_looked_up_when_it_is_sent(bench, receiver, sender, engine, lost):
    bench.warm()
    overseer = person(engine, "steward")
    path = f"/lost-{overseer.name}"
    hook_id, _ = hook(bench, overseer, receiver, path)
    bench.submit(3)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE users SET {lost} WHERE id = :id"), {"id": overseer.id})
    deliver(sender, engine)
    (row,) = told(engine, hook_id)
    assert (row.state, row.attempts, row.status) == ("dropped", 0, None)
    assert receiver.got(path) == []
    bench.submit(3)
    assert len(told(engine, hook_id)) == 1  # and nothing more is written for them


# --- how it is sent -----------------------------------------------------------------------------


def check(message: dict, shown: str) -> None:
    """Check a message as a receiver does, by the specification."""
    secret = base64.b64decode(shown.removeprefix("whsec_"))
    head = message["headers"]
    assert abs(time.time() - int(head["webhook-timestamp"])) < 300
    signed = f"{head['webhook-id']}.{head['webhook-timestamp']}.{message['body']}".encode()
    wanted = base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()
    assert f"v1,{wanted}" in head["webhook-signature"].split(" ")


def test_a_message_is_tried_again_under_its_id_until_it_is_taken(bench, receiver, sender, engine):
    hook_id, secret = hook(bench, bench.analyst, receiver, "/flaky/3", JOB_EVENTS)
    delivery.test(engine, hook_id, bench.analyst)
    deliver(sender, engine)
    messages = receiver.got("/flaky/3")
    assert len(messages) == 4
    assert len({each["headers"]["webhook-id"] for each in messages}) == 1
    assert len({each["body"] for each in messages}) == 1
    for each in messages:
        check(each, secret)
    (row,) = delivery.log(engine, hook_id, bench.analyst)
    assert (row["state"], row["attempts"], row["status"], row["problem"]) == ("delivered", 4, 200, None)
    assert registration.show(engine, hook_id, bench.analyst)["last_success_at"] is not None

    delivery.redeliver(engine, hook_id, told(engine, hook_id)[0].id, bench.analyst)
    deliver(sender, engine)
    again = receiver.got("/flaky/3")[-1]
    assert again["headers"]["webhook-id"] == messages[0]["headers"]["webhook-id"]
    check(again, secret)


def test_a_new_secret_replaces_the_old_one(bench, receiver, sender, engine):
    hook_id, old = hook(bench, bench.analyst, receiver, "/renewed", JOB_EVENTS)
    new = registration.renew_secret(engine, hook_id, bench.analyst, KEY)
    delivery.test(engine, hook_id, bench.analyst)
    deliver(sender, engine)
    (message,) = receiver.got("/renewed")
    check(message, new)
    with pytest.raises(AssertionError):
        check(message, old)


def test_a_secret_lies_encrypted_and_belongs_to_its_hook(bench, receiver, sender, engine):
    first, secret = hook(bench, bench.analyst, receiver, "/ok", JOB_EVENTS)
    second, _ = hook(bench, bench.analyst, receiver, "/moved", JOB_EVENTS)
    raw = base64.b64decode(secret.removeprefix("whsec_"))
    with engine.begin() as connection:
        query = text("SELECT secret FROM hooks WHERE id = :id")
        kept = bytes(connection.execute(query, {"id": first}).scalar_one())
        assert raw not in kept
        move = text("UPDATE hooks SET secret = :secret WHERE id = :id")
        connection.execute(move, {"secret": kept, "id": second})
    delivery.test(engine, second, bench.analyst)
    sender.step()
    until(lambda: delivery.log(engine, second, bench.analyst)[0]["problem"])
    assert "another key" in delivery.log(engine, second, bench.analyst)[0]["problem"]
    assert receiver.got("/moved") == []
    registration.disable(engine, second, bench.analyst)


def until(look, seconds: float = 30):
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return seen


def test_where_nothing_gets_through_for_a_day_the_hook_is_disabled(bench, receiver, sender, engine, tmp_path):
    down = tmp_path / "down"
    down.touch()
    hook_id, _ = hook(bench, bench.analyst, receiver, f"/fails-while/{quote(str(down), safe='')}", JOB_EVENTS)
    for _ in range(2):
        delivery.test(engine, hook_id, bench.analyst)
    until(lambda: sender.step() == 0 and all(row.attempts >= 2 for row in told(engine, hook_id)))
    assert registration.show(engine, hook_id, bench.analyst)["active"]
    with engine.begin() as connection:
        age = "UPDATE hook_deliveries SET began_at = began_at - interval '25 hours' WHERE id = :id"
        connection.execute(text(age), {"id": told(engine, hook_id)[0].id})
    until(
        lambda: sender.step() is not None and not registration.show(engine, hook_id, bench.analyst)["active"]
    )
    shown = registration.show(engine, hook_id, bench.analyst)
    assert shown["disabled_reason"] == "nothing reached it for 24 hours; the last attempt answered 503"
    assert {row.state for row in told(engine, hook_id)} == {"failed"}
    with pytest.raises(Conflict, match="enable it first"):
        delivery.test(engine, hook_id, bench.analyst)
    count = len(told(engine, hook_id))
    bench.warm()
    assert len(told(engine, hook_id)) == count

    down.unlink()
    registration.enable(engine, hook_id, bench.analyst)
    delivery.redeliver(engine, hook_id, told(engine, hook_id)[0].id, bench.analyst)
    deliver(sender, engine)
    assert Counter(row.state for row in told(engine, hook_id)) == {"delivered": 1, "failed": 1}


def test_one_message_that_is_never_taken_disables_no_hook(bench, receiver, sender, engine):
    hook_id, _ = hook(bench, bench.analyst, receiver, "/flaky/1", JOB_EVENTS)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE hooks SET last_success_at = clock_timestamp() WHERE id = :id"), {"id": hook_id}
        )
    message = delivery.test(engine, hook_id, bench.analyst)
    with engine.begin() as connection:
        age = "UPDATE hook_deliveries SET began_at = began_at - interval '25 hours' WHERE id = :id"
        connection.execute(text(age), {"id": message})
        path = receiver.url + "/fail"
        connection.execute(text("UPDATE hooks SET url = :url WHERE id = :id"), {"url": path, "id": hook_id})
    deliver(sender, engine)
    assert told(engine, hook_id)[0].state == "failed"
    assert registration.show(engine, hook_id, bench.analyst)["active"]


def test_gone_disables_at_once(bench, receiver, sender, engine):
    hook_id, _ = hook(bench, bench.analyst, receiver, "/gone", JOB_EVENTS)
    delivery.test(engine, hook_id, bench.analyst)
    until(
        lambda: sender.step() is not None and not registration.show(engine, hook_id, bench.analyst)["active"]
    )
    assert registration.show(engine, hook_id, bench.analyst)["disabled_reason"] == "it answered 410 Gone"


def test_a_removed_hook_is_told_nothing(bench, receiver, sender, engine):
    hook_id, _ = hook(bench, bench.analyst, receiver, "/removed", JOB_EVENTS)
    delivery.test(engine, hook_id, bench.analyst)
    registration.remove(engine, hook_id, bench.analyst)
    sender.step()
    time.sleep(0.3)
    assert receiver.got("/removed") == []
    with pytest.raises(NotFound):
        delivery.log(engine, hook_id, bench.analyst)


# --- where it may not lead ----------------------------------------------------------------------


def test_redirects_are_not_followed(receiver):
    outcome = post(f"{receiver.url}/redirect", b"{}", {}, networks(LOOPBACK))
    assert (outcome.status, outcome.delivered) == (302, False)
    assert "redirects are not followed" in outcome.problem
    assert receiver.got("/redirect")


def test_a_name_that_leads_inside_is_not_called(receiver):
    port = receiver.url.rpartition(":")[2]
    for url in (f"https://localhost:{port}/inside", f"{receiver.url}/inside"):
        outcome = post(url, b"{}", {}, ())
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
        post("https://rebound.example/x", b"{}", {}, ()).problem == "leads to an address that is not public"
    )


def test_a_name_that_answers_otherwise_the_second_time_gains_nothing(monkeypatch):
    """DNS rebinding: the connection goes to the address that was checked, whatever the name says then."""
    answers = iter(["93.184.216.34", "127.0.0.1", "127.0.0.1"])
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 1, 6, "", (next(answers), 443))]
    )
    called = []

    def connect(address, *_, **__):
        called.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    assert "could not be reached" in post("https://rebound.example/x", b"{}", {}, ()).problem
    assert called == [("93.184.216.34", 443)]


@pytest.mark.parametrize("path", ["/slow", "/drip"])
def test_a_receiver_that_takes_its_time_is_left(receiver, monkeypatch, path):
    monkeypatch.setattr(sending, "ATTEMPT_SECONDS", 1.0)
    outcome = post(receiver.url + path, b"{}", {}, networks(LOOPBACK))
    assert outcome.status is None
    assert outcome.problem


@pytest.fixture
def dripping(tmp_path, monkeypatch) -> Iterator[str]:
    """The address of a receiver behind TLS, trusted here, that sends a byte of its answer now and then."""
    key, written = ec.generate_private_key(ec.SECP256R1()), tmp_path / "receiver.pem"
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
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
        target=lambda: came.append(post(dripping, b"{}", {}, networks(LOOPBACK))), daemon=True
    )
    thread.start()
    thread.join(30)  # left to itself it would take hours
    (outcome,) = came
    assert outcome.status is None
    assert "could not be reached" in outcome.problem or "TLS" in outcome.problem


def test_an_answer_without_end_is_not_read(receiver):
    assert post(f"{receiver.url}/endless", b"{}", {}, networks(LOOPBACK)).status == 200


# --- crashes and races --------------------------------------------------------------------------


def test_two_senders_share_the_work(bench, receiver, engine, configured, sender):
    hook_id, _ = hook(bench, bench.analyst, receiver, "/shared", JOB_EVENTS)
    for _ in range(30):
        delivery.test(engine, hook_id, bench.analyst)
    other = Sender(engine, configured)
    meet = threading.Barrier(2)

    def work(each: Sender) -> None:
        meet.wait()
        deliver(each, engine)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (sender, other)))
    other.close()
    ids = [each["headers"]["webhook-id"] for each in receiver.got("/shared")]
    assert len(ids) == len(set(ids)) == 30


def test_a_sender_that_is_killed_in_the_middle_loses_nothing(
    bench, receiver, engine, configured, servers, tmp_path, sender
):
    hook_id, secret = hook(bench, bench.analyst, receiver, "/slow", JOB_EVENTS)
    delivery.test(engine, hook_id, bench.analyst)
    environment = {
        **os.environ,
        "DATABASE_URL": configured.database_url,
        "BROKER_URL": servers.broker_url,
        "EXCHEQUER_HOME": str(tmp_path),
        "EXCHEQUER_WEBHOOK_NETWORKS": LOOPBACK,
        "PYTHONPATH": str(ROOT),
    }
    before = len(receiver.got("/slow"))
    relay = subprocess.Popen([sys.executable, "-m", "workers.jobs.relay"], cwd=ROOT, env=environment)
    try:
        until(lambda: len(receiver.got("/slow")) > before, 60)
    finally:
        relay.send_signal(signal.SIGKILL)
        relay.wait()
    (row,) = told(engine, hook_id)
    assert (row.state, row.attempts, row.status) == ("pending", 1, None)
    with engine.begin() as connection:  # its claim runs out, and the receiver has woken up
        connection.execute(
            text("UPDATE hook_deliveries SET due_at = clock_timestamp() WHERE hook_id = :id"), {"id": hook_id}
        )
        url = receiver.url + "/awake"
        connection.execute(text("UPDATE hooks SET url = :url WHERE id = :id"), {"url": url, "id": hook_id})
    relay = subprocess.Popen([sys.executable, "-m", "workers.jobs.relay"], cwd=ROOT, env=environment)
    try:
        until(lambda: told(engine, hook_id)[0].state == "delivered", 60)
    finally:
        relay.terminate()
        relay.wait(30)
    (message,) = receiver.got("/awake")
    assert message["headers"]["webhook-id"] == receiver.got("/slow")[-1]["headers"]["webhook-id"]
    assert message["body"] == receiver.got("/slow")[-1]["body"]
    check(message, secret)


def test_who_comes_late_changes_nothing(bench, receiver, engine, sender, configured):
    """A sender that was given up for lost writes its outcome after another's: the claim has ended."""
    hook_id, _ = hook(bench, bench.analyst, receiver, "/ok", JOB_EVENTS)
    delivery.test(engine, hook_id, bench.analyst)
    (late,) = delivery.take(engine, KEY, 10)
    assert delivery.take(engine, KEY, 10) == []
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE hook_deliveries SET due_at = clock_timestamp() WHERE hook_id = :id"), {"id": hook_id}
        )
    (second,) = delivery.take(engine, KEY, 10)
    assert second.message_id == late.message_id
    retries = delivery.Retries(5, 24)
    failed = delivery.Outcome(500, "answered 500")
    assert delivery.settle(engine, late, failed, retries) is None
    assert told(engine, hook_id)[0].status is None
    assert delivery.settle(engine, second, delivery.Outcome(200), retries) == "delivered"
    assert delivery.settle(engine, late, failed, retries) is None
    assert told(engine, hook_id)[0].state == "delivered"


def test_the_log_is_kept_for_so_long(bench, receiver, engine, sender):
    hook_id, _ = hook(bench, bench.analyst, receiver, "/ok", JOB_EVENTS)
    for _ in range(2):
        delivery.test(engine, hook_id, bench.analyst)
    deliver(sender, engine)
    with engine.begin() as connection:
        older = "UPDATE hook_deliveries SET occurred_at = occurred_at - interval '31 days' WHERE id = :id"
        connection.execute(text(older), {"id": told(engine, hook_id)[0].id})
    assert delivery.forget(engine, 30) == 1
    assert len(told(engine, hook_id)) == 1


def test_the_receiver_of_the_documentation_takes_what_is_sent(bench, engine, sender, tmp_path):
    """docs/webhooks.md, run as it stands."""
    page = (ROOT / "docs/webhooks.md").read_text()
    program = tmp_path / "receiver.py"
    program.write_text(page.split("```python\n")[1].split("```")[0])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    hook_id, secret = registration.add(
        engine, f"http://127.0.0.1:{port}/", list(JOB_EVENTS), bench.analyst, KEY, networks(LOOPBACK)
    )
    command = [sys.executable, str(program), secret, str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout.readline().startswith("listening")
        bench.warm()
        deliver(sender, engine)
        events = {process.stdout.readline().split()[0] for _ in events_of(engine, hook_id)}
        assert events == set(events_of(engine, hook_id))
        assert {row.status for row in told(engine, hook_id)} == {204}
        registration.renew_secret(engine, hook_id, bench.analyst, KEY)  # now it knows another
        delivery.test(engine, hook_id, bench.analyst)
        until(lambda: sender.step() is not None and told(engine, hook_id)[-1].status == 401)
    finally:
        process.kill()
        process.wait()
