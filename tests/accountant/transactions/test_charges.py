"""Charges of other programs: the same ledger, and nobody vouches for more than they can."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from accountant.core.errors import (
    Conflict,
    InvalidRequest,
    LeaseLost,
    NotFound,
    NotPermitted,
    VerificationFailed,
)
from accountant.core.ledger import entry_bodies, runners
from accountant.core.ledger.export_formats import read_document, verify_lines
from accountant.core.ledger.hash_chain import EntryKind, read_entry
from accountant.core.ledger.realization import Ends
from accountant.core.privacy.events import (
    Allocated,
    Composed,
    EpsilonDelta,
    Event,
    Exponential,
    Gaussian,
    PoissonSampled,
    PoissonSwapped,
    SelfComposed,
    WorstOf,
    from_json,
    to_json,
)
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, to_decimal
from accountant.database import connect
from accountant.queries import datasets, entries, integrity
from accountant.queries import jobs as job_queries
from accountant.transactions import (
    charges,
    corrections,
    leases,
    messages,
    settlement,
    submission,
)
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.ledger_log import Writing
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import Claim, show
from tests.conftest import as_process
from tests.support import Bench, awaiting, kinds, person, unjudged, yes

SEED = bytes(range(32))
RUNNER = f"trainer {runners.public_key(SEED)}"
POLICY = {
    "auto_approve_epsilon": "5",
    "stated_charges_epsilon": "20",
    "signed_charges_epsilon": "20",
    "runners": [RUNNER],
}


def dp_sgd(steps: int = 3000) -> Event:
    return SelfComposed(PoissonSampled(0.01, Gaussian(1.0)), steps)


@pytest.fixture(scope="module")
def web(owner_url) -> Iterator[Engine]:
    """The credentials of the web alone."""
    engine = connect(as_process(owner_url, "web"), pool_size=4)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def relay(owner_url) -> Iterator[Engine]:
    engine = connect(as_process(owner_url, "relay"), pool_size=2)
    yield engine
    engine.dispose()


@pytest.fixture
def bench(engine) -> Bench:
    made = Bench(engine, policy=POLICY)
    made.allow()
    return made


def parameters(event: Event, **others: object) -> dict[str, object]:
    stated = {"tool": "opacus 1.6", "unit": "record", "relation": "add-remove"}
    return {"event": to_json(event), **stated, **others}


def signed(bench: Bench, event: Event, **others: object) -> dict[str, object]:
    """Parameters that the runner signs, as a client makes them."""
    raw = parameters(event, runner=RUNNER, image="git 01234567")
    raw |= {"nonce": str(uuid4()), **others}
    whole = {"records_per_unit": 1, **raw}
    return {**raw, "signature": runners.sign(runners.begin_act(bench.dataset, whole), SEED)}


def ask(engine: Engine, bench: Bench, raw: dict[str, object], key: str | None = None):
    request = JobRequest(bench.dataset, "charge", None, raw, "a model")
    return submission.submit(engine, request, bench.analyst, key)


def settled(bench: Bench, job: object, event: Event, output: str | None = None) -> str:
    """The runner's signature of an end."""
    return runners.sign(runners.settle_act(bench.dataset, str(job), to_json(event), output), SEED)


def verified(bench: Bench):
    return verify_lines(list(entries.export(bench.engine, bench.dataset, bench.auditor, "jsonl")))


def test_a_training_run_is_charged_what_its_runner_signs(web, bench):
    job = ask(web, bench, signed(bench, dp_sgd()))
    secret = secrets.token_bytes(32)
    charges.begin(web, job, bench.analyst, secret, 60)
    charges.begin(web, job, bench.analyst, secret, 60)  # an answer that was lost
    assert charges.alive(web, job, bench.analyst, secret, 60, 1000) is False
    history = Composed((dp_sgd(2000),))
    output = "ab" * 32
    end = settled(bench, job, history, output)
    for _ in range(2):
        charges.settle(web, job, bench.analyst, secret, to_json(history), output, end)
    assert kinds(bench)[:2] == ["COMMIT", "RESERVE"]
    shown = job_queries.job(web, job, bench.analyst)
    reserve, commit = shown.entries
    whole, part = (int(each.costs["renyi"]["main"]) for each in (reserve, commit))
    assert shown.state == "succeeded"
    assert 0.66 < part / whole < 0.67
    assert integrity.check(bench.engine, bench.dataset) == []
    (unproved,) = verified(bench).unproved
    assert unproved.startswith("not measured here: 1 charge of opacus 1.6, signed by the runner")


def begun(engine: Engine, bench: Bench, raw: dict[str, object]):
    """A charge that runs, and the secret of its lease."""
    job, secret = ask(engine, bench, raw), secrets.token_bytes(32)
    charges.begin(engine, job, bench.analyst, secret, 60)
    return job, secret


def charged(bench: Bench, job: object) -> tuple[object, object]:
    """What a charge reserved and what it was charged, on every filter."""
    reserve, commit = job_queries.job(bench.engine, job, bench.analyst).entries
    return reserve.costs, commit.costs


def test_a_beginning_that_was_cut_off_goes_on(web, bench):
    job, secret = ask(web, bench, parameters(dp_sgd(1))), secrets.token_bytes(32)
    assert leases.claim(web, job, 1, "a script", 60, secret=secret, charges=True) is not None
    charges.begin(web, job, bench.analyst, secret, 60)
    charges.settle(web, job, bench.analyst, secret, None, None, None)
    assert kinds(bench)[0] == "COMMIT"


def test_without_a_signature_all_is_charged(web, bench):
    job, secret = begun(web, bench, parameters(dp_sgd()))
    charges.settle(web, job, bench.analyst, secret, to_json(dp_sgd(2000)), "ab" * 32, None)
    reserved, paid = charged(bench, job)
    assert reserved == paid
    (told,) = verified(bench).unproved
    assert told.startswith(
        f"not measured here: 1 charge of opacus 1.6, as stated by {bench.analyst.name}, ε "
    )


def test_a_lost_client_is_charged_whole_and_nobody_runs_it_again(web, relay, bench):
    job, secret = begun(web, bench, parameters(dp_sgd()))
    charges.alive(web, job, bench.analyst, secret, 0, 7)
    leases.expire(relay, 3)
    shown = job_queries.job(web, job, bench.analyst)
    reserved, paid = charged(bench, job)
    assert shown.state == "failed"
    assert reserved == paid
    with pytest.raises(LeaseLost):
        charges.settle(web, job, bench.analyst, secret, None, None, None)
    with pytest.raises(LeaseLost):
        charges.alive(web, job, bench.analyst, secret, 60, 1)


def test_what_was_never_begun_is_given_back(web, relay, bench, owner_url):
    first, second = (ask(web, bench, parameters(dp_sgd(steps))) for steps in (1, 2))
    settlement.cancel(web, first, bench.analyst)
    leases.expire(relay, 3)
    assert kinds(bench)[0] == "VOID"
    assert kinds(bench)[1] == "RESERVE"
    age(owner_url, second)
    leases.expire(relay, 3)
    assert kinds(bench)[:2] == ["VOID", "VOID"]
    states = [job_queries.job(web, job, bench.analyst).state for job in (first, second)]
    assert states == ["cancelled", "failed"]
    assert verified(bench).unproved == ()


def test_a_void_charge_that_ran_after_all_counts_in_pages_and_verification_alike(
    web, engine, bench
):
    job = ask(web, bench, parameters(dp_sgd(1)))
    settlement.cancel(web, job, bench.analyst)
    found = corrections.correct(engine, job, bench.steward, "it ran", event=to_json(dp_sgd(1)))
    yes(engine, found, person(engine, "steward"), "seen")
    (shown,) = (
        statement["text"]
        for statement in datasets.dataset(engine, bench.dataset, bench.steward)["statements"]
        if statement["currency"] == "dp"
    )
    found = verified(bench)
    assert found.vouched["stated"] > 0
    epsilon = to_decimal(found.vouched["stated"], EPSILON_UNITS)
    assert f"by themselves ε {epsilon} as stated" in shown
    (unproved,) = found.unproved
    assert f"ε {epsilon} by themselves" in unproved


def age(owner_url: str, job: object) -> None:
    """A charge that waited for a day to be begun."""
    owner = connect(owner_url, pool_size=1)
    with owner.begin() as connection:
        query = "UPDATE jobs SET queued_at = queued_at - interval '25 hours' WHERE id = :job"
        connection.execute(text(query), {"job": job})
    owner.dispose()


def test_the_database_holds_the_delta_that_all_filters_share(engine, bench):
    """Rényi has all of its room: what is known by (epsilon, delta) alone is paid beside it."""
    beyond = (
        "UPDATE accounts SET basic_delta_spent = basic_delta_limit + 1 WHERE dataset_id = "
        "(SELECT id FROM datasets WHERE name = :name)"
    )
    with pytest.raises(DBAPIError, match="deltas_fit"), engine.begin() as connection:
        connection.execute(text(beyond), {"name": bench.dataset})


def test_no_worker_is_sent_a_charge(web, engine, bench):
    ask(web, bench, parameters(dp_sgd(1)))
    sent: list[str] = []
    messages.resend(engine, 0.0, whole=True)
    messages.deliver(engine, lambda task, *_: sent.append(task))
    assert "generate" not in sent


def test_another_person_or_secret_moves_no_charge(web, engine, bench):
    job, secret = begun(web, bench, parameters(dp_sgd(1)))
    with pytest.raises(NotFound):
        charges.settle(web, job, person(engine, "analyst"), secret, None, None, None)
    other = secrets.token_bytes(32)
    with pytest.raises(Conflict):
        charges.begin(web, job, bench.analyst, other, 60)
    with pytest.raises(LeaseLost):
        charges.settle(web, job, bench.analyst, other, None, None, None)


def test_a_steward_decides_on_a_charge_as_on_a_job(web, bench):
    job = ask(web, bench, parameters(EpsilonDelta(6.0, 0.0)))
    assert [each.id for each in awaiting(web, bench.steward, bench.dataset)] == [str(job)]
    with pytest.raises(Conflict):
        charges.begin(web, job, bench.analyst, secrets.token_bytes(32), 60)
    yes(web, job, bench.steward, "a model")
    charges.begin(web, job, bench.analyst, secrets.token_bytes(32), 60)


# --- traps ---------------------------------------------------------------------------------------


def test_a_policy_without_a_list_admits_no_charges(web, engine):
    bench = Bench(engine, policy={"auto_approve_epsilon": "5"})
    bench.allow()
    for raw in (parameters(dp_sgd(1)), signed(bench, dp_sgd(1))):
        with pytest.raises(NotPermitted, match="admits no charges that are"):
            ask(web, bench, raw)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("unit", "patient", "'patient', and the dataset's is 'record'"),
        ("relation", "replace-one", "replace-one, and the dataset's is add-remove"),
        ("records_per_unit", 3, "3, and the dataset's is 1"),
    ],
)
def test_the_terms_are_the_datasets(web, bench, field, value, told):
    with pytest.raises(InvalidRequest, match=told):
        ask(web, bench, parameters(dp_sgd(1)) | {field: value})


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (Allocated(10, 1, 5, Exponential(0.1)), "a secret coin from outside"),
        (WorstOf((Gaussian(1.0), Gaussian(2.0))), "not known to be disjoint"),
        (PoissonSwapped(0.1, Gaussian(1.0)), "it holds where a unit is replaced"),
        (Composed(()), "releases nothing"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_nobody_outside_can_vouch_for_is_refused(web, bench, event, told):
    with pytest.raises(InvalidRequest, match=told):
        ask(web, bench, parameters(event))


def test_more_than_is_left_is_refused_before_anything_runs(web, bench):
    job = ask(web, bench, parameters(EpsilonDelta(11.0, 0.0)))
    assert job_queries.job(web, job, bench.analyst).state == "refused"
    assert "RESERVE" not in kinds(bench)


def test_each_level_has_a_cap_of_its_own(web, engine):
    bench = Bench(engine, policy=POLICY | {"stated_charges_epsilon": "1"})
    bench.allow()
    pure = EpsilonDelta(0.6, 0.0)
    states = [
        job_queries.job(web, ask(web, bench, raw), bench.analyst)
        for raw in (parameters(pure), parameters(pure), signed(bench, pure))
    ]
    assert [each.state for each in states] == ["queued", "refused", "queued"]
    assert states[1].refusal is not None
    assert states[1].refusal.cap == "stated cap"


@pytest.mark.parametrize("change", ["seed", "event", "job", "output", "dataset"])
def test_an_end_that_the_runner_did_not_sign_settles_nothing(web, bench, change):
    job, secret = begun(web, bench, signed(bench, dp_sgd()))
    said = {"event": to_json(dp_sgd(2000)), "job": str(job), "output": None}
    said |= {"dataset": bench.dataset}
    said |= (
        {change: "0" * 64 if change == "output" else to_json(dp_sgd(1))} if change in said else {}
    )
    act = runners.settle_act(said["dataset"], said["job"], said["event"], said["output"])
    end = runners.sign(act, bytes(32) if change == "seed" else SEED)
    with pytest.raises(InvalidRequest, match="signature"):
        charges.settle(web, job, bench.analyst, secret, to_json(dp_sgd(2000)), None, end)
    assert job_queries.job(web, job, bench.analyst).state == "running"


def test_a_history_beyond_the_reservation_is_refused(web, bench):
    job, secret = begun(web, bench, signed(bench, dp_sgd(100)))
    more = dp_sgd(101)
    with pytest.raises(InvalidRequest, match="1 of its 101 releases are not among the 100"):
        charges.settle(
            web, job, bench.analyst, secret, to_json(more), None, settled(bench, job, more)
        )


@pytest.mark.parametrize("change", ["image", "runner", "signature"])
def test_a_beginning_that_the_runner_did_not_sign_is_refused(web, bench, change):
    raw = signed(bench, dp_sgd(1))
    other = str(raw[change])[:-1] + ("1" if str(raw[change])[-1] == "0" else "0")
    with pytest.raises((InvalidRequest, NotPermitted)):
        ask(web, bench, raw | {change: other})


def test_a_signature_begins_one_charge(web, bench):
    """Whoever saw it can't send it again, whether the first was reserved, waits or was refused."""
    raw = signed(bench, dp_sgd(1))
    job = ask(web, bench, raw, "first")
    assert ask(web, bench, raw, "first") == job
    with pytest.raises(InvalidRequest, match="another charge already"):
        ask(web, bench, raw, "second")
    with pytest.raises(InvalidRequest, match="signature"):
        ask(web, bench, raw | {"signature": str(raw["signature"]).upper()})
    with pytest.raises(InvalidRequest, match="nonce"):
        ask(web, bench, signed(bench, dp_sgd(1), nonce=None))
    assert ask(web, bench, signed(bench, dp_sgd(1))) != job


def test_of_two_that_send_a_signature_at_once_one_is_charged(web, bench):
    raw = signed(bench, dp_sgd(1))

    def attempt(_: int) -> object:
        try:
            return ask(web, bench, raw)
        except InvalidRequest as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(attempt, range(4)))
    assert sum(isinstance(answer, InvalidRequest) for answer in answers) == 3
    assert kinds(bench).count("RESERVE") == 1


def test_a_stolen_web_reserves_no_second_charge_by_a_signature(web, bench):
    job = ask(web, bench, signed(bench, dp_sgd(1)))
    refused = ask(web, bench, parameters(Gaussian(0.01)))
    again = text(
        "INSERT INTO entries (dataset_id, seq, kind, at, actor, job_id, document, previous, hash) "
        "SELECT dataset_id, seq + 9, kind, at, actor, :other, document, reverse(hash), hash "
        "FROM entries WHERE kind = 'RESERVE' AND job_id = :job"
    )
    with pytest.raises(DBAPIError, match="uq_entries_signature"), web.begin() as connection:
        connection.execute(again, {"job": job, "other": refused})


def test_verify_finds_a_second_charge_by_a_signature(web, bench):
    job = ask(web, bench, signed(bench, dp_sgd(1)))
    with bench.engine.connect() as connection:
        query = text("SELECT document, seq FROM entries WHERE job_id = :job")
        document, seq = connection.execute(query, {"job": job}).one()
    reserve = read_entry(read_document(document), seq)
    ends = Ends()
    ends.add(reserve, None)
    with pytest.raises(VerificationFailed, match="began another charge already"):
        ends.add(replace(reserve, job=str(uuid4())), None)


def test_an_end_before_the_beginning_says_so(web, bench):
    job, secret = ask(web, bench, parameters(dp_sgd(1))), secrets.token_bytes(32)
    for act in (
        lambda: charges.settle(web, job, bench.analyst, secret, None, None, None),
        lambda: charges.alive(web, job, bench.analyst, secret, 60, 1),
    ):
        with pytest.raises(Conflict, match="the charge is queued: it has not begun"):
            act()


# --- what a stolen process can't do ---------------------------------------------------------------

TAKE = (
    "UPDATE parts SET state = 'running', lease_token = gen_random_uuid(), lease_expires = now(), "
    "worker = 'me', lease_secret_sha256 = lease_shown() WHERE job_id = :job"
)
BEGIN = "UPDATE jobs SET started_at = now(), reading_began_at = now() WHERE id = :job"
REQUEUE = (
    "UPDATE parts SET state = 'queued', attempt = 2, lease_token = NULL, lease_expires = NULL "
    "WHERE job_id = :job"
)
STOP = (
    "UPDATE parts SET state = 'stopped', lease_token = NULL, lease_expires = NULL "
    "WHERE job_id = :job"
)


@pytest.fixture(scope="module")
def worker(owner_url) -> Iterator[Engine]:
    engine = connect(as_process(owner_url, "worker"), pool_size=2)
    yield engine
    engine.dispose()


def refused(engine: Engine, statement: str, job: object, secret: bytes = b"x" * 32) -> None:
    """A stolen process tries a statement under a lease of its own."""
    with engine.connect() as connection:
        show(connection, Claim(uuid4(), 1, uuid4(), secret=secret))
        with pytest.raises(DBAPIError) as found:
            connection.execute(text(statement), {"job": job})
    assert "may not do this" in str(found.value.orig)


def forged(
    engine: Engine,
    bench: Bench,
    job: object,
    secret: bytes,
    body: dict[str, object],
    told: str | None,
) -> None:
    """A COMMIT by a stolen process, which judges nothing; `told`: why the database refuses it."""
    stolen = engine.connect().execution_options(ledger_writing=Writing(None))
    with stolen as connection, unjudged():
        show(connection, Claim(uuid4(), 1, uuid4(), secret=secret))
        locked = LockedAccount(connection, bench.dataset)
        event = body.pop("event", None) or from_json(locked.reservation(job)["event"])
        made = entry_bodies.commit_body(locked.accounts.dp, event, "succeeded", 1, None) | body
        if told is None:
            locked.append(EntryKind.COMMIT, "me", job, made)
            connection.execute(text(STOP), {"job": job})
            connection.commit()
            return
        with pytest.raises(DBAPIError) as found:
            locked.append(EntryKind.COMMIT, "me", job, made)
    assert told in str(found.value.orig)


def test_a_stolen_worker_takes_no_charge(web, worker, bench):
    job = ask(web, bench, parameters(dp_sgd(1)))
    refused(worker, TAKE, job)
    assert leases.claim(worker, job, 1, "worker", 60) is None
    secret = secrets.token_bytes(32)
    charges.begin(web, job, bench.analyst, secret, 60)
    forged(worker, bench, job, secret, {}, "no worker runs a charge")


def test_a_stolen_web_begins_and_settles_no_job(web, bench, engine):
    bench.warm()
    job = bench.submit(1)
    for statement in (TAKE, BEGIN):
        refused(web, statement, job)
    claim = leases.claim(engine, job, 1, "worker", 60, secret=b"y" * 32)
    assert claim is not None
    leases.begin_reading(engine, claim)
    for secret in (b"x" * 32, b"y" * 32):
        forged(web, bench, job, secret, {}, "does not post COMMIT here")


def test_a_stolen_web_settles_no_charge_of_a_client_that_it_never_met(web, bench):
    job, _ = begun(web, bench, parameters(dp_sgd(1)))
    forged(web, bench, job, b"x" * 32, {}, "does not post COMMIT here")
    refused(web, "UPDATE parts SET lease_expires = now() WHERE job_id = :job", job)


@pytest.mark.parametrize("evidence", [{}, {"evidence": {"signature": "00" * 64}}], ids=str)
def test_a_stolen_web_lowers_no_charge_that_no_runner_began(web, bench, evidence):
    job, secret = begun(web, bench, parameters(dp_sgd(10)))
    body = {"event": dp_sgd(5), **evidence}
    forged(web, bench, job, secret, body, "no runner signed is charged whole")


def test_a_signature_that_a_stolen_web_makes_up_is_found(web, bench):
    job, secret = begun(web, bench, signed(bench, dp_sgd(10)))
    evidence = {"history": to_json(dp_sgd(5)), "signature": "00" * 64}
    forged(web, bench, job, secret, {"event": dp_sgd(5), "evidence": evidence}, None)
    with pytest.raises(VerificationFailed, match="not the signature of the runner"):
        verified(bench)


def test_a_stolen_relay_runs_no_charge_again_and_ends_none_that_waits(web, relay, bench):
    job, secret = begun(web, bench, parameters(dp_sgd(1)))
    waits = ask(web, bench, parameters(dp_sgd(2)))
    charges.alive(web, job, bench.analyst, secret, 0, 0)
    refused(relay, REQUEUE, job)
    refused(relay, STOP, waits)


def test_charges_known_by_epsilon_and_delta_close_nothing_and_share_one_delta(web, bench):
    """Four tools on one dataset: each is charged on every filter, and the export verifies."""
    *_, basic = verified(bench).books.account.filters
    share = basic.limit.delta / DELTA_UNITS
    stated = EpsilonDelta(0.2, 0.4 * share)
    shapes = (stated, dp_sgd(500), Gaussian(20.0), EpsilonDelta(0.1, 0.0), stated)
    for event in shapes:
        job, secret = begun(web, bench, parameters(event))
        charges.settle(web, job, bench.analyst, secret, to_json(event), None, None)
    over = ask(web, bench, parameters(EpsilonDelta(0.01, 0.5 * share)))
    refusal = job_queries.job(web, over, bench.analyst).refusal
    assert refusal["cap"] == "basic δ"
    found = verified(bench).books.account
    assert [each.closed for each in found.filters[:3]] == [0, 0, 0]
    assert found.filters[-1].used.delta <= found.filters[-1].limit.delta
    assert integrity.check(bench.engine, bench.dataset) == []


def test_a_charge_that_takes_the_account_is_settled_whole(web, bench):
    whole = EpsilonDelta(4.9, 2e-6)
    job, secret = begun(web, bench, parameters(whole))
    charges.settle(web, job, bench.analyst, secret, to_json(whole), None, None)
    reserved, settled_at = charged(bench, job)
    assert reserved == settled_at
    assert [each.closed for each in verified(bench).books.account.filters] == [1, 1, 1, 0]
