"""Entries that were published are in no copy any more: two people settle it, or nothing goes on."""

import json
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accountant.core.errors import Conflict, LogUnusable, NotFound, NotPermitted, VerificationFailed
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.checkpoints import read_checkpoint
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.hash_chain import EntryKind
from accountant.core.ledger.losses import loss_body
from accountant.core.ledger.registry_entries import registry_entry
from accountant.core.ledger.rules import policy_body
from accountant.core.transparency.witnesses import LogSigner
from accountant.database import connect, logging_to
from accountant.identities import credentials
from accountant.ledger_log.homes import log_at
from accountant.ledger_log.publication import publish_log
from accountant.ledger_log.signed import SignedHead, SignedPlaces
from accountant.queries import datasets as dataset_queries
from accountant.queries import exports, integrity, log_comparison
from accountant.transactions import allowances, losses, recovery
from accountant.transactions.ledger_log import writing
from accountant.transactions.locked_account import LockedAccount
from tests.accountant.core.ledger.test_registry_entries import PEOPLE
from tests.accountant.transactions.test_ledger_log import (
    alone,
    dataset_id,
    entries,
    logged,
    state,
)
from tests.accountant.transactions.test_signed_heads import NAME, LastNight, command, refused
from tests.object_stores import s3
from tests.restores import removed
from tests.support import Bench, person, yes
from web import signing_in
from web.passwords import hash_password

pytestmark = pytest.mark.slow

__all__ = ["alone", "command", "s3"]

SEED = b"s" * 32
HEADS = [{"log": NAME, "entries": 9, "leaf": None}]


@pytest.fixture
def mending(alone):
    """The database as its owner, with the log as it is; all services are stopped."""

    @contextmanager
    def opened():
        alone.stop()
        places = SignedPlaces(alone.public, alone.memory)
        engine = logging_to(connect(alone.owner_url), alone.folder, places, mending=True)
        try:
            yield engine
        finally:
            engine.dispose()
            alone.restart()

    return opened


class Loss:
    """Database and log of last night are put back, and nobody has a newer copy."""

    def __init__(self, site, mending) -> None:
        self.site, self.mending = site, mending
        with mending() as engine:
            self.anna, self.ben = (person(engine, "steward", name) for name in ("anna", "ben"))
        self.other = Bench(site.engine, policy={"auto_approve_epsilon": "10"})
        self.other.allow()
        self.other.warm()
        self.night = LastNight(site)
        self.checkpoint = exports.checkpoint(site.engine, dataset_id(site), SEED)
        self.signed = entries(site)
        self.night.restore("database", "log")
        site.restart()

    def bring_forward(self) -> None:
        """As `exchequer ledger recover --lost`."""
        with self.mending() as engine:
            for plan in recovery.plan(engine, restored=True):
                recovery.recover(engine, plan, lambda *_: None)

    def ask(self, engine, dataset: str | None = None):
        found = losses.find(engine)
        return losses.say(engine, found, dataset or self.dataset, self.anna, "the disk is gone")

    @property
    def dataset(self) -> str:
        return self.site.bench.dataset

    def settle(self, *datasets: str) -> None:
        """Two people settle it, of these datasets or all."""
        with self.mending() as engine:
            for name in datasets or losses.find(engine).unsettled:
                yes(engine, self.ask(engine, name), self.ben, "so it is")


@pytest.fixture
def lost(alone, mending) -> Loss:
    return Loss(alone, mending)


def exported(site, public: bool = False) -> list[str]:
    form = {"public": public, "seed": None}
    return list(exports.export(site.engine, dataset_id(site), "jsonl", **form))


def post_loss(site, people: dict[str, str], actor: str) -> None:
    with writing(site.engine) as connection:
        locked = LockedAccount(connection, site.bench.dataset)
        said = {"reason": "gone", "confirmation": "gone", **people}
        body = loss_body(said, locked.accounts, HEADS, None)
        locked.append(EntryKind.LOSS, actor, None, body)


def count_loss(site, actor: str) -> None:
    """A loss is counted beside an entry that says nothing of it."""
    with writing(site.engine) as connection:
        locked = LockedAccount(connection, site.bench.dataset)
        locked.post(EntryKind.POLICY, actor, None, policy_body(locked.rules.policy))
        history = locked.books.history._replace(losses=1)
        locked.books = replace(locked.books, history=history)
        locked.write()


def raised(site, actor, epsilon: str):
    return allowances.allow(
        site.engine, site.bench.dataset, Allowance(epsilon, "0.0000029053", "known loss"), actor
    )


# --- settled by two people ------------------------------------------------------------------------


def test_all_datasets_are_settled_before_anything_goes_on(alone, lost):
    lost.bring_forward()
    lost.settle(lost.dataset)
    refused(alone, LogUnusable)
    lost.settle(lost.other.dataset)
    assert log_comparison.standing(alone.engine) == "ok"
    assert entries(alone) == logged(alone)
    lost.other.engine = alone.engine
    for bench in (alone.bench, lost.other):
        assert state(alone, bench.submit(5)) == "refused"  # nothing is left
        assert integrity.check(alone.engine, bench.dataset) == []


def test_the_entry_says_what_was_lost_and_who_says_so(alone, lost):
    lost.bring_forward()
    lost.settle()
    (loss,) = [
        document for document in map(json.loads, exported(alone)[1:]) if document["kind"] == "LOSS"
    ]
    body = loss["body"]
    people = {name: body[name]["value"] for name in ("proposed_by", "confirmed_by", "reason")}
    assert people == {"proposed_by": "anna", "confirmed_by": "ben", "reason": "the disk is gone"}
    (head,) = body["signed"]
    assert head == {"log": NAME, "entries": head["entries"], "leaf": head["leaf"]}
    assert head["entries"] > sum(len(found) for found in (entries(alone), lost.signed)) / 2
    common = [one for one in lost.signed if one in entries(alone)]
    assert body["lost"] == {
        "first": len(common) + 1,
        "last": len(lost.signed),
        "hash": lost.signed[-1][-1],
    }


@pytest.mark.parametrize("public", [False, True])
def test_a_verifier_takes_old_checkpoints_for_lost_by_their_word_alone(alone, lost, public):
    lost.bring_forward()
    old = read_checkpoint(lost.checkpoint)
    with lost.mending() as engine:
        alone.engine, kept = engine, alone.engine
        before = exported(alone, public)
        alone.engine = kept
    with pytest.raises(VerificationFailed, match="checkpoint was signed"):
        verify_lines(before, [old])
    lost.settle()
    found = verify_lines(exported(alone, public), [old])
    assert found.checkpoints == ()
    settled, of_checkpoint = (each for each in found.unproved if "lost" in each)
    assert ("anna and ben" in settled) is not public
    assert "on the word of" in settled
    assert "is not of this ledger" in of_checkpoint
    # a checkpoint that is signed later is held against the ledger
    late = replace(old, at=datetime.now(UTC) + timedelta(days=1))
    with pytest.raises(VerificationFailed, match="checkpoint was signed"):
        verify_lines(exported(alone, public), [late])
    # and so is one of entries that were never lost
    another = replace(old, seq=2)
    with pytest.raises(VerificationFailed, match="checkpoint was signed"):
        verify_lines(exported(alone, public), [another])


def test_no_statement_sums_up_what_was_lost_and_two_people_allow_more(alone, lost):
    lost.bring_forward()
    lost.settle()
    shown = dataset_queries.dataset(alone.engine, lost.dataset, lost.anna)
    (said,) = [each for each in shown.statements if each.currency == "dp"]
    assert said.text.startswith("No (ε, δ) statement holds of all releases")
    assert not said.unqualified
    entry = registry_entry(verify_lines(exported(alone)), PEOPLE)
    assert "privacy_parameters" not in entry["deployment"]["privacy_loss"]
    decision = raised(alone, lost.anna, "20")  # though the policy asks for one person
    assert decision is not None
    assert state(alone, alone.bench.submit(5)) == "refused"
    yes(alone.engine, decision, lost.ben, "in full knowledge")
    assert state(alone, alone.bench.submit(5)) == "queued"
    found = verify_lines(exported(alone))
    assert found.books.history.losses == 1
    (still,) = [each for each in found.unproved if "lost" in each]
    assert "anna and ben" in still


def test_the_log_is_published_under_another_name(alone, lost):
    lost.bring_forward()
    lost.settle()
    with pytest.raises(VerificationFailed):  # the old name signs nothing that contradicts it
        alone.publish()
    old = alone.copy_folder(alone.public)
    removed(alone.public)
    signer = LogSigner(alone.memory, "exchequer.example/second", b"p" * 32)
    publish_log(log_at(alone.folder), alone.public, signer, {})
    alone.restart()
    assert log_comparison.standing(alone.engine) == "ok"
    # and of the new name's heads none may be lost by the old word
    alone.restore_folder(alone.public, old)
    settled, memory = alone.copy_folder(alone.folder), alone.memory
    raised(alone, lost.anna, "10")
    with pytest.raises(VerificationFailed):
        publish_log(log_at(alone.folder), alone.public, signer, {})
    removed(alone.public)
    publish_log(log_at(alone.folder), alone.public, signer, {})
    alone.restore_folder(alone.folder, settled)
    alone.restart()
    with pytest.raises(LogUnusable, match="an older copy was put back"):
        log_at(alone.folder, signed=SignedPlaces(None, memory)).position()


def test_where_only_sizes_are_known_nobody_knows_which_entries(alone, lost):
    """The published tiles are gone too: the signer remembers how many entries it signed."""
    removed(alone.public)
    lost.bring_forward()
    lost.settle()
    assert log_comparison.standing(alone.engine) == "ok"
    found = verify_lines(exported(alone), [read_checkpoint(lost.checkpoint)])
    assert len([each for each in found.unproved if "lost" in each]) == 2


# --- attacks --------------------------------------------------------------------------------------


def test_one_person_alone_settles_nothing(alone, lost):
    lost.bring_forward()
    with lost.mending() as engine:
        decision = lost.ask(engine)
        with pytest.raises(NotPermitted, match="two people"):
            yes(engine, decision, lost.anna, "and so do I")
        both = credentials.add_user(engine, "carl", None, ["steward", "administrator"])
        carl = credentials.actor_of(credentials.find_user(engine, user_id=both))
        with pytest.raises(NotPermitted, match="steward and administrator"):
            yes(engine, decision, carl, "and so do I")
        analyst = person(engine, "analyst")
        with pytest.raises(NotFound):
            yes(engine, decision, analyst, "and so do I")
        with pytest.raises(NotPermitted):
            losses.say(engine, losses.find(engine), lost.other.dataset, analyst, "gone")
    refused(alone, LogUnusable)


def test_a_ledger_with_one_name_twice_does_not_verify(alone):
    """Nor is it written: the writer judges as a verifier does."""
    for second in ("anna", "Anna"):
        people = {"proposed_by": "anna", "confirmed_by": second}
        with pytest.raises(VerificationFailed):
            post_loss(alone, people, second)


def test_where_nothing_is_lost_nothing_is_settled(alone, mending):
    alone.bench.submit(10)
    alone.publish()
    steward = person(alone.engine, "steward")
    with mending() as engine:
        with pytest.raises(Conflict, match="no entries are lost"):
            losses.find(engine)
        found = losses.Found([SignedHead(NAME, 9, None)], {}, [alone.bench.dataset], [])
        decision = losses.say(engine, found, alone.bench.dataset, steward, "gone")
        with pytest.raises(Conflict, match="no entries are lost"):
            yes(engine, decision, person(engine, "steward"), "gone")


def test_what_a_newer_copy_holds_is_not_lost(alone, lost):
    """Somebody asked, and then the newest copy of the log was found."""
    with lost.mending() as engine, pytest.raises(Conflict, match="recover --lost"):
        losses.find(engine)
    lost.bring_forward()
    with lost.mending() as engine:
        decision = lost.ask(engine)
    night = lost.night
    alone.restore_folder(alone.public, night.folders[alone.public])
    with lost.mending() as engine, pytest.raises(Conflict, match="ask again"):
        yes(engine, decision, lost.ben, "so it is")


def test_nothing_is_settled_twice(alone, lost):
    lost.bring_forward()
    with lost.mending() as engine:
        decision = lost.ask(engine)
        made = yes(engine, decision, lost.ben, "so it is")
        assert yes(engine, decision, lost.ben, "so it is") == made
        found = losses.find(engine)
        assert found.unsettled == [lost.other.dataset]
        again = losses.say(engine, found, lost.dataset, lost.anna, "once more")
        with pytest.raises(Conflict, match="says already"):
            yes(engine, again, lost.ben, "so it is")
    lost.settle(lost.other.dataset)
    with lost.mending() as engine, pytest.raises(Conflict, match="no entries are lost"):
        losses.find(engine)


def test_no_job_is_live_when_all_is_charged(alone, lost):
    lost.bring_forward()
    with lost.mending() as engine:
        decision = lost.ask(engine)
        query = "UPDATE jobs SET state = 'queued', finished_at = NULL WHERE state = 'failed'"
        with engine.begin() as connection:
            connection.execute(text(query))
        with pytest.raises(Conflict, match="a job has no end"):
            yes(engine, decision, lost.ben, "so it is")


def test_the_webs_credentials_lose_nothing(alone):
    """Neither the entry, nor what is asked, nor the count: the owner of the tables writes them."""
    second = person(alone.engine, "steward")
    people = {"proposed_by": alone.bench.steward.name, "confirmed_by": second.name}
    with pytest.raises(DBAPIError, match="settles what nobody reserved"):
        post_loss(alone, people, second.name)
    with pytest.raises(DBAPIError, match="that entries are lost"):
        count_loss(alone, second.name)
    found = losses.Found([SignedHead(NAME, 9, None)], {}, [alone.bench.dataset], [])
    with pytest.raises(DBAPIError, match="that entries are lost"):
        losses.say(alone.engine, found, alone.bench.dataset, second, "gone")


# --- the command ----------------------------------------------------------------------------------


def test_the_command_asks_one_and_another(alone, lost, command):
    with lost.mending() as engine:
        until = datetime.now(UTC) + timedelta(days=1)
        keys = {
            name: credentials.add_token(
                engine, credentials.find_user(engine, name=name).id, "t", until
            )
            for name in ("anna", "ben")
        }
        weak = credentials.add_token(engine, lost.ben.id, "weak", until, scopes=["read"])
    alone.stop()

    def settle(name: str, key: str, *more: str):
        return command("settle-loss", name, "--reason", "a fire", *more, typed=f"{key}\n")

    code, told = command("recover", "--yes")
    assert (code != 0, "exchequer ledger settle-loss" in told) == (True, True)
    code, told = settle("anna", keys["anna"])
    assert (code != 0, "exchequer ledger recover --lost" in told) == (True, True)
    assert command("recover", "--lost", "--yes")[0] == 0
    for name, key in (("anna", "wrong"), ("anna", keys["ben"]), ("ben", weak)):
        assert settle(name, key)[0] != 0
    code, told = settle("anna", keys["anna"])
    assert (code, "asked. Another steward runs" in told) == (0, True)
    code, told = settle("anna", keys["anna"])
    assert (code != 0, "it takes two people" in told) == (True, True)
    code, told = settle("ben", keys["ben"], "--dataset", lost.dataset)
    assert (code, "all that was left is charged" in told) == (0, True)
    assert settle("ben", keys["ben"], "--refuse")[0] != 0
    code, told = settle("ben", keys["ben"])
    assert (code, "asked. Another steward runs" in told) == (0, True)
    code, told = settle("anna", keys["anna"])
    assert (code, "all is settled" in told) == (0, True)
    assert command("check", "--all", "--database")[0] == 0
    alone.restart()
    assert log_comparison.standing(alone.engine) == "ok"


def test_a_password_signs_in_and_one_beside_a_passkey_does_not(alone, mending):
    secret = "long words in a row 1"
    with mending() as engine:
        credentials.add_user(engine, "dora", hash_password(secret, "dora"), ["steward"])
        assert signing_in.actor(engine, "Dora", secret).name == "dora"
        for name, typed in (("dora", "another"), ("nobody", secret)):
            with pytest.raises(NotPermitted):
                signing_in.actor(engine, name, typed)
        a_passkey = mock.patch("web.signing_in.passkeys.of", return_value=[{}])
        with a_passkey, pytest.raises(NotPermitted, match="passkey"):
            signing_in.actor(engine, "dora", secret)
