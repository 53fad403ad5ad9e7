"""A release that has happened already and is more than what is left: two people declare it."""

import json
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from accountant.core.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    NotPermitted,
    SignatureNeeded,
    VerificationFailed,
)
from accountant.core.ledger import entry_bodies, runners
from accountant.core.ledger.admission import Account
from accountant.core.ledger.allowances import Allowance, allowance_body
from accountant.core.ledger.books import Books
from accountant.core.ledger.commitments import opened
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.hash_chain import EntryKind, digest
from accountant.core.ledger.policy import ACTS, Policy
from accountant.core.ledger.registry_entries import registry_entry
from accountant.core.ledger.reservations import read_reservation
from accountant.core.ledger.signatures import first_act
from accountant.core.ledger.verifier import Verified
from accountant.core.privacy import cross_check
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import (
    FREE,
    Composed,
    EpsilonDelta,
    Event,
    Gaussian,
    SelfComposed,
    stated_delta,
    to_json,
)
from accountant.core.privacy.units import EPSILON_UNITS
from accountant.database import connect
from accountant.queries import datasets, entries, integrity
from accountant.queries import jobs as job_queries
from accountant.transactions import (
    allowances,
    charges,
    job_requests,
    overdrafts,
    policies,
    second_calculation,
    settlement,
    signed_acts,
)
from accountant.transactions.batches import looked_up
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.ledger_log import Writing, writing
from accountant.transactions.locked_account import LockedAccount
from tests import support
from tests.accountant.core.ledger.test_registry_entries import PEOPLE
from tests.accountant.transactions.test_charges import (
    POLICY,
    RUNNER,
    SEED,
    ask,
    begun,
    parameters,
    signed,
)
from tests.accountant.transactions.test_signed_acts import register
from tests.conftest import as_process
from tests.passkeys import Passkey
from tests.support import Bench, awaiting, kinds, person, unjudged, yes

pytestmark = pytest.mark.slow

BIG = EpsilonDelta(12.0, 0.0)
EPSILON = "11.999997095"  # of BIG at the allowance's δ
DELTA = "0.0000029053"


@pytest.fixture(scope="module")
def web(owner_url) -> Iterator[Engine]:
    """The credentials of the web alone."""
    engine = connect(as_process(owner_url, "web"), pool_size=4)
    yield engine
    engine.dispose()


@pytest.fixture
def bench(engine) -> Bench:
    made = Bench(engine, policy=POLICY | {"solo": True})
    made.allow()
    return made


def declare(engine: Engine, bench: Bench, event: Event = BIG, **others: object) -> UUID:
    stated = parameters(event, **others)
    return overdrafts.declare(engine, bench.dataset, stated, bench.steward, "a script ran twice")


def declared(engine: Engine, bench: Bench, event: Event = BIG, **others: object) -> UUID:
    job = declare(engine, bench, event, **others)
    yes(engine, job, person(bench.engine, "steward"), "I saw its log")
    return job


def verified(bench: Bench, public: bool = False) -> Verified:
    exported = entries.export(bench.engine, bench.dataset, bench.auditor, "jsonl", public=public)
    return verify_lines(list(exported))


def statement(bench: Bench) -> str:
    shown = datasets.dataset(bench.engine, bench.dataset, bench.auditor)["statements"]
    return next(each["text"] for each in shown if each["currency"] == "dp")


def allow(bench: Bench, epsilon: str, delta: str = DELTA) -> None:
    allowed = Allowance(epsilon, delta, "to cover it")
    allowances.allow(bench.engine, bench.dataset, allowed, bench.steward)


def test_two_people_declare_what_was_spent_and_the_dataset_is_closed_until_it_is_covered(
    web, bench
):
    waits = ask(web, bench, parameters(EpsilonDelta(6.0, 0.0)))
    job = declared(web, bench)
    assert kinds(bench)[:3] == ["COMMIT", "RESERVE", "ALLOW"]
    assert job_queries.job(web, job, bench.steward).state == "succeeded"
    sentence = f"Two people declared 1 overdraft, ε {EPSILON} by itself"
    assert statement(bench).startswith("Overdrawn: more is charged than the allowance.")
    assert sentence in statement(bench)
    found = verified(bench)
    (unproved,) = found.unproved
    assert (
        f"as stated by {bench.steward.name}, ε {EPSILON} by themselves, an overdraft that"
        in unproved
    )
    assert found.books.history.overdrafts == 1
    assert "an overdraft that somebody confirmed" in verified(bench, public=True).unproved[0]
    loss = registry_entry(found, PEOPLE)["deployment"]["privacy_loss"]
    assert sentence in loss["privacy_parameters_details"]
    assert "privacy_parameters" not in loss, "no (ε, δ) holds"
    assert integrity.check(bench.engine, bench.dataset) == []

    small = ask(web, bench, parameters(EpsilonDelta(0.01, 0.0)))
    refusal = job_queries.job(web, small, bench.analyst).refusal
    assert refusal is not None
    assert (refusal.cap, "a new allowance covers it" in refusal.why) == ("overdrawn", True)
    assert [each.id for each in awaiting(web, bench.steward, bench.dataset)] == [str(waits)]
    yes(web, waits, bench.steward, "it may run")
    assert job_queries.job(web, waits, bench.analyst).state == "refused"

    with pytest.raises(Conflict, match="no filter holds"):
        allow(bench, "11.9")
    allow(bench, "13")
    again = ask(web, bench, parameters(EpsilonDelta(0.9, 0.0)))
    over = ask(web, bench, parameters(EpsilonDelta(0.2, 0.0)))
    states = [job_queries.job(web, each, bench.analyst).state for each in (again, over)]
    assert states == ["queued", "refused"]  # 12 of 13 are charged, exactly
    assert sentence in statement(bench)
    assert not datasets.dataset(bench.engine, bench.dataset, bench.auditor)["overdrawn"]
    found = verified(bench)
    assert found.books.history.overdraft_epsilon == 11_999_997_095
    loss = registry_entry(found, PEOPLE)["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"]["epsilon"] == 13
    assert integrity.check(bench.engine, bench.dataset) == []


def test_one_person_declares_nothing_even_where_the_policy_is_solo(web, bench):
    job = declare(web, bench)
    with pytest.raises(NotPermitted, match="it takes two people"):
        yes(web, job, bench.steward, "sure")
    with pytest.raises(NotFound):
        yes(web, job, bench.analyst, "sure")
    with pytest.raises(NotPermitted):
        overdrafts.declare(web, bench.dataset, parameters(BIG), bench.analyst, "I broke it")
    assert kinds(bench) == ["ALLOW"]


def test_what_fits_is_no_overdraft(web, bench):
    with pytest.raises(InvalidRequest, match="it fits what is left"):
        declare(web, bench, EpsilonDelta(9.0, 0.0))
    job = declare(web, bench)
    allow(bench, "20")
    with pytest.raises(InvalidRequest, match="it fits what is left"):
        yes(web, job, person(bench.engine, "steward"), "seen")
    assert kinds(bench) == ["ALLOW", "ALLOW"]


def test_its_price_is_calculated_twice(web, bench, monkeypatch):
    monkeypatch.setattr(second_calculation, "_known", OrderedDict())
    monkeypatch.setattr(cross_check, "findings", lambda asked: ["it costs more"])
    with pytest.raises(Conflict, match="it costs more"):
        declare(web, bench, EpsilonDelta(12.5, 0.0))
    assert kinds(bench) == ["ALLOW"]


def test_a_stated_delta_beyond_its_part_is_covered_by_a_larger_delta(web, bench):
    ask(web, bench, parameters(EpsilonDelta(0.1, 0.0)))
    declared(web, bench, Composed((Gaussian(1.0), EpsilonDelta(0.5, 1e-6))))
    with pytest.raises(Conflict, match="no filter holds"):
        allow(bench, "100")
    allow(bench, "10", "0.00002")
    assert not datasets.dataset(bench.engine, bench.dataset, bench.auditor)["overdrawn"]


def test_the_delta_of_whole_jobs_closes_its_filter_before_it_stands_in_the_way(web, bench):
    """A larger ε alone covers a Gaussian overdraft, whatever its δ by the basic filter would be."""
    declared(web, bench, Gaussian(0.25))
    declared(web, bench, Gaussian(0.25))
    allow(bench, "60")
    accounts = datasets.dataset(bench.engine, bench.dataset, bench.auditor)
    assert not accounts["overdrawn"]
    assert verified(bench).books.history.overdrafts == 2


def test_two_that_race_are_both_counted(web, bench):
    jobs = [declare(web, bench), declare(web, bench, EpsilonDelta(11.0, 0.0))]
    second = person(bench.engine, "steward")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda job: yes(web, job, second, "seen"), jobs))
        list(pool.map(lambda job: yes(web, job, second, "seen"), jobs))  # an answer that was lost
    assert kinds(bench)[:5] == ["COMMIT", "RESERVE", "COMMIT", "RESERVE", "ALLOW"]
    assert verified(bench).books.history.overdrafts == 2
    assert verified(bench).books.account.filters[-1].spent.main == 23 * EPSILON_UNITS
    assert integrity.check(bench.engine, bench.dataset) == []


def test_jobs_that_run_stay_reserved_and_are_counted(web, bench):
    runs, secret = begun(web, bench, signed(bench, EpsilonDelta(4.0, 0.0)))
    declared(web, bench, EpsilonDelta(7.0, 0.0))  # 6 were left
    with pytest.raises(Conflict, match="no filter holds"):
        allow(bench, "10.9")
    charges.settle(web, runs, bench.analyst, secret, None, None, None)
    found = verified(bench)
    assert found.books.overdrawn
    basic = found.books.accounts.dp.filters[-1]
    assert (basic.spent.main, basic.reserved.main) == (11 * EPSILON_UNITS, 0)


def test_a_runner_signs_what_it_ran_and_no_job_of_this_service_is_declared(web, bench):
    raw = signed(bench, BIG)
    job = overdrafts.declare(web, bench.dataset, raw, bench.steward, "it ran by night")
    yes(web, job, person(bench.engine, "steward"), "seen")
    (unproved,) = verified(bench).unproved
    assert "signed by the runner trainer" in unproved
    with pytest.raises(InvalidRequest, match="signature"):
        declare(web, bench, runner=RUNNER, image="git 1", nonce="1", signature="0" * 128)
    with pytest.raises(InvalidRequest):
        overdrafts.declare(web, bench.dataset, {"tokens_per_batch": 9}, bench.steward, "ours")
    policies.set_policy(bench.engine, bench.dataset, Policy(), bench.steward)
    with pytest.raises(NotPermitted, match="admits no charges that are as stated"):
        declare(web, bench)


# --- what nobody writes --------------------------------------------------------------------------


def body_of(locked: LockedAccount, bench: Bench, event: Event = BIG) -> dict[str, Any]:
    said = {"by": "another-steward", "reason": "seen"}
    made = second_calculation.admitting(overdrafts._declared)
    return dict(made(locked, signed(bench, event), {"reason": "late"}, said)[1])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"approval": None}, "it names no two people"),
        ({"approval": "own"}, "one person declared and confirmed it"),
        (
            {"mechanism": "noisy-count", "parameters": "count", "event": "price"},
            "only a charge is declared",
        ),
        ({"overdraft": {"reason": "late", "more": 1}}, "a field 'more', which no reader knows"),
        ({"costs": "plain"}, "its costs are not those of its event"),
    ],
    ids=["nobody", "alone", "a job", "more", "costs"],
)
def test_the_writer_judges_as_verify_does(web, bench, change, told):
    with writing(bench.engine) as connection:
        locked = LockedAccount(connection, bench.dataset)
        body = body_of(locked, bench)
        own = {"by": bench.steward.name, "reason": "seen"}
        request = JobRequest(bench.dataset, "noisy-count", None, {"epsilon": 12.0})
        count = job_requests.priced(request, looked_up(locked, []).facts.terms).candidate
        found = {"own": own, "plain": {**body["costs"], "basic": None}}
        found |= {"count": count.parameters, "price": to_json(count.asked.dp)}
        changes = {name: found.get(str(value), value) for name, value in change.items()}
        with pytest.raises((VerificationFailed, InvalidRequest), match=told):
            locked.post(EntryKind.RESERVE, bench.steward.name, uuid4(), body | changes)
        locked.post(EntryKind.RESERVE, bench.steward.name, uuid4(), body)


def test_the_ledger_holds_no_overdraft_that_fits_and_none_that_is_given_back(web, bench):
    with writing(bench.engine) as connection:
        locked = LockedAccount(connection, bench.dataset)
        body = body_of(locked, bench)
        books = replace(locked.books, account=replace_epsilon(bench, locked))
        with pytest.raises(VerificationFailed, match="it fits what is left"):
            books.apply(EntryKind.RESERVE, "j", body)
        held = read_reservation(body)
        after = locked.books.apply(EntryKind.RESERVE, "j", body)
        assert after.overdrawn
        void = {"outcome": "failed", "reason": "no", "read": False}
        with pytest.raises(VerificationFailed, match="it voids a reservation"):
            after.apply(EntryKind.VOID, "j", void, held)
        less = entry_bodies.commit_body(after.account, FREE, "succeeded", 1, None)
        with pytest.raises(VerificationFailed, match="charged less than was reserved"):
            after.apply(EntryKind.COMMIT, "j", less, held)


def replace_epsilon(bench: Bench, locked: LockedAccount) -> Account:
    allowed = allowance_body(Allowance("20", DELTA, "more"), locked.books, "add-remove")
    grown = locked.books.apply(EntryKind.ALLOW, None, allowed).account
    assert grown is not None
    return grown


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("plain", "an account is overdrawn by a correction or an overdraft alone"),
        ("uncounted", "the overdrafts are not those that the entries declare"),
        ("void", "a reservation under which data was read is not given back"),
        ("less", "it does not post COMMIT here"),
    ],
)
def test_a_stolen_web_overdraws_by_an_overdraft_alone(web, bench, change, told):
    with writing(bench.engine) as connection:
        body, job = body_of(LockedAccount(connection, bench.dataset), bench), uuid4()
    stolen = web.connect().execution_options(ledger_writing=Writing(None))
    with stolen as connection, unjudged():
        locked = LockedAccount(connection, bench.dataset)
        connection.execute(
            text(
                "INSERT INTO jobs (id, dataset_id, version_id, analyst_id, mechanism, parameters, "
                "terms, breakdown, purpose, request_sha256, state) SELECT :job, d.id, v.id, "
                "d.created_by, 'charge', '{}', '{}', '[]', '', '', 'queued' FROM datasets d JOIN "
                "dataset_versions v ON v.dataset_id = d.id WHERE d.name = :name"
            ),
            {"job": job, "name": bench.dataset},
        )
        if change in ("void", "less"):
            locked.append(EntryKind.RESERVE, bench.steward.name, job, body)
        else:
            locked.post(EntryKind.RESERVE, bench.steward.name, job, body)
            miscounted = locked.books.history._replace(overdrafts=2)
            locked.books = replace(locked.books, history=miscounted)
        if change == "plain":
            (row,) = locked._posted
            row["document"] = row["document"].replace('"overdraft"', '"overdrafts"')
            row["hash"] = locked.head = digest(json.loads(row["document"]))
        gone = {"outcome": "cancelled", "reason": "no", "read": False}
        said = {"signature": "0" * 128}
        made = locked.accounts.dp, FREE, "succeeded", 1, None
        less = entry_bodies.commit_body(*made, evidence=said)
        acts = {
            "void": lambda: locked.append(EntryKind.VOID, "me", job, gone),
            "less": lambda: locked.append(EntryKind.COMMIT, "me", job, less),
        }
        plain = mock.patch.object(
            support,
            "read_reservation",
            lambda body: replace(read_reservation(body), overdraft=False),
        )
        with plain, pytest.raises(DBAPIError) as found:
            acts.get(change, locked.write)()
    assert told in str(found.value.orig)


def test_both_sign_where_the_policy_asks_for_it(web, bench):
    second, keys = person(bench.engine, "steward"), {}
    for actor in (bench.steward, second):
        keys[actor.name] = key = Passkey(actor.name)
        register(bench, actor, key)
    signers = tuple(str(key.signer) for key in keys.values())
    policy = Policy(
        **POLICY | {"auto_approve_epsilon": "0"}, two_people=True, signed=ACTS, signers=signers
    )
    policies.set_policy(bench.engine, bench.dataset, policy, bench.steward)

    def sign(act):
        with pytest.raises(SignatureNeeded) as needed:
            act(None)
        return keys[needed.value.act["by"]].sign(needed.value.act)

    def asked(signature, reason="late"):
        stated = parameters(BIG)
        return overdrafts.declare(
            web, bench.dataset, stated, bench.steward, reason, signature=signature
        )

    given = sign(asked)
    with pytest.raises(Conflict):
        asked(given, "another reason")
    job = asked(given)
    assert asked(given) == job
    done = sign(lambda signature: yes(web, job, second, "seen", signature))
    yes(web, job, second, "seen", done)
    assert verified(bench).unproved[0].startswith("not measured here")
    with bench.engine.connect() as connection:
        query = "SELECT document FROM entries WHERE job_id = :job AND kind = 'RESERVE'"
        body = json.loads(connection.execute(text(query), {"job": job}).scalar_one())["body"]
    unsigned = {**body, "overdraft": {"reason": body["overdraft"]["reason"]}}
    with writing(bench.engine) as connection:
        locked = LockedAccount(connection, bench.dataset)
        for forged in (unsigned, body):  # the second: another job than was signed
            plain = opened({"kind": "RESERVE", "body": forged})["body"]
            with pytest.raises(VerificationFailed, match="sign"):
                locked.post(EntryKind.RESERVE, bench.steward.name, uuid4(), plain)
        # Whoever confirms one signs it alone, and takes the other's signature from another.
        lone, job = opened({"kind": "RESERVE", "body": body})["body"], uuid4()
        del lone["approval"]["signature"]
        basis = signed_acts._basis(connection, locked.dataset_id)
        about = EntryKind.RESERVE, bench.dataset, str(job), bench.steward.name
        lone["approval"]["signature"] = keys[second.name].sign(first_act(*about, lone, basis))
        with pytest.raises(VerificationFailed, match="sign"):
            locked.post(EntryKind.RESERVE, bench.steward.name, job, lone)


# --- what covers it, and what can't be stated --------------------------------------------------


def test_what_another_charge_gives_back_does_not_open_the_dataset(web, bench):
    """Who settles for less than was reserved decides on nothing: a steward does, once more."""
    runs, secret = begun(web, bench, signed(bench, SelfComposed(EpsilonDelta(1.0, 0.0), 4)))
    waits = ask(web, bench, parameters(EpsilonDelta(0.5, 0.0)))
    declared(web, bench, EpsilonDelta(8.0, 0.0))
    part = EpsilonDelta(1.0, 0.0)
    charges.settle(web, runs, bench.analyst, secret, to_json(part), None, signed_end(bench, runs))
    settlement.cancel(web, waits, bench.analyst)
    found = verified(bench).books
    assert (found.overdrawn, found.accounts.passed) == (True, False)
    refusal = job_queries.job(web, ask(web, bench, parameters(part)), bench.analyst).refusal
    assert refusal is not None
    assert "until a new allowance covers it" in refusal.why
    allow(bench, "10")
    again = ask(web, bench, parameters(EpsilonDelta(0.9, 0.0)))
    assert job_queries.job(web, again, bench.analyst).state == "queued"
    assert integrity.check(bench.engine, bench.dataset) == []


def signed_end(bench: Bench, job: UUID) -> str:
    act = runners.settle_act(bench.dataset, str(job), to_json(EpsilonDelta(1.0, 0.0)), None)
    return runners.sign(act, SEED)


def test_a_stolen_web_opens_no_overdrawn_account(web, bench):
    runs, secret = begun(web, bench, signed(bench, SelfComposed(EpsilonDelta(1.0, 0.0), 4)))
    declared(web, bench, EpsilonDelta(8.0, 0.0))
    opened_row = "UPDATE accounts SET overdrawn = false"
    with web.connect() as connection, pytest.raises(DBAPIError):
        connection.execute(text(opened_row))
    commit = Books._commit

    def opening(books, held, body):
        return replace(commit(books, held, body), overdrawn=False)

    part = to_json(EpsilonDelta(1.0, 0.0))
    with (
        mock.patch.object(Books, "_commit", opening),
        pytest.raises(DBAPIError, match="opened by an allowance or a correction alone"),
    ):
        charges.settle(web, runs, bench.analyst, secret, part, None, signed_end(bench, runs))


@pytest.mark.parametrize(
    "event",
    [EpsilonDelta(0.5, 1e-4), Composed((Gaussian(1.0), EpsilonDelta(0.5, 3e-6)))],
    ids=["alone", "beside another"],
)
def test_a_stated_delta_of_more_than_the_allowance_s_is_declared_and_no_statement_holds(
    web, bench, event
):
    with pytest.raises(InvalidRequest, match="it is priced at"):
        ask(web, bench, parameters(event))
    job = declared(web, bench, event)
    shown = job_queries.job(web, job, bench.steward)
    stated = float(stated_delta(event))
    assert shown.delta == pytest.approx(stated + float(DELTA))
    assert shown.epsilon_alone == pytest.approx(epsilon_alone(event, shown.delta)[0])
    assert "no (ε, δ)" in statement(bench).lower() or "not even (10, " in statement(bench)
    with pytest.raises(Conflict, match="no filter holds"):
        allow(bench, "1000")  # an ε covers no δ
    allow(bench, "20", str(20 * stated))
    assert statement(bench).startswith("All releases together are (20, ")
    assert verified(bench).books.overdrawn is False
    assert integrity.check(bench.engine, bench.dataset) == []


def test_an_overdraft_is_stated_at_no_other_delta(web, bench):
    with writing(bench.engine) as connection:
        locked = LockedAccount(connection, bench.dataset)
        body = body_of(locked, bench, EpsilonDelta(0.5, 1e-4))
        terms = body["terms"] | {"delta": 2e-4}
        with pytest.raises(VerificationFailed, match="its delta is"):
            locked.post(EntryKind.RESERVE, bench.steward.name, uuid4(), body | {"terms": terms})
