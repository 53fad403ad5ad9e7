"""The ledger on a real PostgreSQL: what it promises, and what refuses to be done to it."""

import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accountant.catalogue import models, registration
from accountant.core.errors import (
    Conflict,
    InvalidRequest,
    LeaseLost,
    NotFound,
    NotPermitted,
    VerificationFailed,
)
from accountant.core.ledger.export_formats import json_header, json_row, verify_lines
from accountant.core.privacy.events import SelfComposed, from_json
from accountant.queries import datasets, entries, integrity, quotes
from accountant.queries import jobs as job_queries
from accountant.transactions import leases, settlement, submission
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.rows import Claim
from accountant.transactions.settlement import Output
from tests.support import Bench, kinds, person, yes


def state(bench: Bench, job_id) -> str:
    return job_queries.job(bench.engine, job_id, bench.steward)["state"]


def account(bench: Bench) -> dict:
    return datasets.dataset(bench.engine, bench.dataset, bench.steward)["account"]


def renyi(bench: Bench) -> dict:
    return account(bench)["filters"][0]


def claimed(bench: Bench, job_id, attempt: int = 1, seconds: float = 60) -> Claim:
    claim = leases.claim(bench.engine, job_id, attempt, "worker", seconds)
    assert claim is not None
    return claim


def event_of(bench: Bench, job_id):
    return from_json(job_queries.job(bench.engine, job_id, bench.steward)["event"])


# --- the way of a job ---------------------------------------------------------------------------


def test_a_job_is_priced_approved_reserved_charged_and_verified(bench):
    job_id = bench.submit(10)
    assert state(bench, job_id) == "submitted"
    bench.probe(job_id)
    assert state(bench, job_id) == "awaiting_approval"
    assert renyi(bench)["reserved"] == "0"
    yes(bench.engine, job_id, bench.steward, "it fits the study")
    assert state(bench, job_id) == "queued"
    assert float(renyi(bench)["reserved"]) > 0
    claim = claimed(bench, job_id)
    leases.begin_reading(bench.engine, claim)
    reserved = renyi(bench)["reserved"]
    settlement.publish(
        bench.engine, claim, event_of(bench, job_id), Output("x", "0" * 64), "worker"
    )
    assert state(bench, job_id) == "succeeded"
    assert renyi(bench)["reserved"] == "0"
    assert renyi(bench)["spent"] == reserved
    assert integrity.check(bench.engine, bench.dataset) == []
    assert kinds(bench) == ["COMMIT", "RESERVE", "ALLOW"]


def test_an_early_stop_returns_the_steps_not_taken(open_bench):
    job_id = open_bench.submit(10)
    claim = claimed(open_bench, job_id)
    leases.begin_reading(open_bench.engine, claim)
    whole = event_of(open_bench, job_id)
    reserved = float(renyi(open_bench)["reserved"])
    settlement.publish(
        open_bench.engine, claim, SelfComposed(whole.event, 4), Output("x", "0" * 64), "worker"
    )
    assert float(renyi(open_bench)["spent"]) == pytest.approx(0.4 * reserved, rel=1e-6)
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def test_nothing_is_realized_beyond_the_reservation(open_bench):
    job_id = open_bench.submit(10)
    claim = claimed(open_bench, job_id)
    leases.begin_reading(open_bench.engine, claim)
    whole = event_of(open_bench, job_id)
    with pytest.raises(VerificationFailed, match="more than was reserved"):
        settlement.publish(
            open_bench.engine, claim, SelfComposed(whole.event, 11), Output("x", "0" * 64), "worker"
        )
    assert state(open_bench, job_id) == "running"


def test_a_refusal_names_the_cap_and_the_largest_that_fits_and_consumes_nothing(open_bench):
    before = account(open_bench)
    job_id = open_bench.submit(400)
    job = job_queries.job(open_bench.engine, job_id, open_bench.analyst)
    assert job["state"] == "refused"
    assert job["refusal"]["cap"] == "renyi"
    # Paper 001: 373 alone. The filter keeps 359 for adaptive use; a first job alone may have all of
    # delta.
    assert job["refusal"]["largest"] == 375
    assert account(open_bench) == before


@pytest.mark.parametrize("tokens_first", [0, 1, 100, 358])
def test_admission_agrees_with_the_fit_on_the_dataset_to_the_token(open_bench, tokens_first):
    if tokens_first:
        open_bench.submit(tokens_first)
    quote = quotes.quote_on(
        open_bench.engine,
        open_bench.dataset,
        "private-prediction",
        {},
        fit_field="tokens_per_batch",
    )
    fitted = quote["parameters"]["tokens_per_batch"]
    assert fitted == (359 - tokens_first if tokens_first else 375)
    assert state(open_bench, open_bench.submit(fitted + 1)) == "refused"
    # A quote is by zCDP: 375 tokens are quoted at more than the 10 that the policy approves by
    # itself.
    expected = "queued" if tokens_first else "awaiting_approval"
    assert state(open_bench, open_bench.submit(fitted)) == expected


def test_an_exhausted_account_refuses_the_smallest_job(open_bench):
    open_bench.submit(359)
    job_id = open_bench.submit(1, temperature=1000.0, clip=0.001)
    # It costs almost nothing, and what is left after 359 tokens covers it: the books stay exact.
    assert state(open_bench, job_id) == "queued"
    assert integrity.check(open_bench.engine, open_bench.dataset) == []
    assert state(open_bench, open_bench.submit(1)) == "refused"


# --- races --------------------------------------------------------------------------------------


def test_sixty_four_clients_race_for_room_for_twenty(open_bench):
    open_bench.submit(10)  # leaves 349 of 359 tokens: room for 20 jobs of 17
    with ThreadPoolExecutor(64) as pool:
        jobs = list(pool.map(lambda _: open_bench.submit(17), range(64)))
    states = [state(open_bench, job_id) for job_id in jobs]
    assert states.count("queued") == 20
    assert states.count("refused") == 44
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def test_the_accounts_row_is_held_until_the_decision_is_written(open_bench):
    """Without FOR UPDATE on the account the second would read a balance that is about to change."""
    dataset_id = dataset_id_of(open_bench)
    with open_bench.engine.connect() as first, open_bench.engine.connect() as second:
        LockedAccount(first, dataset_id)
        second.execute(text("SET lock_timeout = '200ms'"))
        with pytest.raises(DBAPIError, match="lock timeout"):
            LockedAccount(second, dataset_id)


def dataset_id_of(bench: Bench):
    with bench.engine.connect() as connection:
        query = text("SELECT id FROM datasets WHERE name = :name")
        return connection.execute(query, {"name": bench.dataset}).scalar_one()


def test_one_key_makes_one_job_however_often_it_is_sent(open_bench):
    with ThreadPoolExecutor(8) as pool:
        jobs = set(pool.map(lambda _: open_bench.submit(10, key="once"), range(8)))
    assert len(jobs) == 1
    with pytest.raises(Conflict):
        open_bench.submit(11, key="once")


def test_a_refused_request_stays_refused_under_its_key(open_bench):
    job_id = open_bench.submit(400, key="too much")
    open_bench.allow("100")
    assert open_bench.submit(400, key="too much") == job_id
    assert state(open_bench, job_id) == "refused"


# --- leases -------------------------------------------------------------------------------------


def test_only_one_worker_gets_an_attempt(open_bench):
    job_id = open_bench.submit(10)
    with ThreadPoolExecutor(8) as pool:
        claims = pool.map(lambda _: leases.claim(open_bench.engine, job_id, 1, "w", 60), range(8))
    assert sum(claim is not None for claim in claims) == 1


def test_a_late_worker_publishes_nothing(open_bench):
    job_id = open_bench.submit(10)
    late = claimed(open_bench, job_id, seconds=0.01)
    time.sleep(0.05)
    leases.expire(open_bench.engine, max_attempts=3)
    fresh = claimed(open_bench, job_id, attempt=2)
    with pytest.raises(LeaseLost):
        settlement.publish(
            open_bench.engine,
            late,
            event_of(open_bench, job_id),
            Output("late", "0" * 64),
            "worker",
        )
    with pytest.raises(LeaseLost):
        leases.begin_reading(open_bench.engine, late)
    leases.begin_reading(open_bench.engine, fresh)
    settlement.publish(
        open_bench.engine, fresh, event_of(open_bench, job_id), Output("good", "1" * 64), "worker"
    )
    assert job_queries.output(open_bench.engine, job_id, open_bench.analyst).sha256 == "1" * 64


def test_a_job_that_never_said_that_it_reads_publishes_nothing(open_bench):
    """Its charge could be lowered again, for the ledger would say that nothing private was read."""
    job_id = open_bench.submit(10)
    claim = claimed(open_bench, job_id)
    with pytest.raises(VerificationFailed, match="it says that nothing was read"):
        settlement.publish(
            open_bench.engine, claim, event_of(open_bench, job_id), Output("x", "0" * 64), "worker"
        )
    assert state(open_bench, job_id) == "running"
    assert renyi(open_bench)["spent"] == "0"


def test_an_expired_lease_refunds_nothing_and_the_last_attempt_is_charged(open_bench):
    job_id = open_bench.submit(10)
    for attempt in (1, 2, 3):
        before = renyi(open_bench)["reserved"]
        claim = claimed(open_bench, job_id, attempt, seconds=30)
        leases.begin_reading(open_bench.engine, claim)
        assert renyi(open_bench)["reserved"] == before
        with open_bench.engine.begin() as connection:
            connection.execute(
                text(
                    "UPDATE parts SET lease_expires = clock_timestamp() - interval '1 s' WHERE "
                    "job_id = :id"
                ),
                {"id": job_id},
            )
        leases.expire(open_bench.engine, max_attempts=3)
    assert state(open_bench, job_id) == "failed"
    assert renyi(open_bench)["reserved"] == "0"
    assert float(renyi(open_bench)["spent"]) > 0
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def test_before_reading_a_failure_is_void_and_after_it_is_charged_whole(open_bench):
    early = open_bench.submit(10)
    settlement.fail(open_bench.engine, claimed(open_bench, early), "failed", "no model", "worker")
    assert renyi(open_bench)["spent"] == "0"
    late = open_bench.submit(10)
    claim = claimed(open_bench, late)
    leases.begin_reading(open_bench.engine, claim)
    reserved = renyi(open_bench)["reserved"]
    settlement.fail(open_bench.engine, claim, "failed", "kept from view", "worker")
    assert renyi(open_bench)["spent"] == reserved
    assert integrity.check(open_bench.engine, open_bench.dataset) == []


def test_cancelling(open_bench):
    queued = open_bench.submit(10)
    settlement.cancel(open_bench.engine, queued, open_bench.analyst)
    assert state(open_bench, queued) == "cancelled"
    assert renyi(open_bench)["reserved"] == "0"
    running = open_bench.submit(10)
    claim = claimed(open_bench, running)
    settlement.cancel(open_bench.engine, running, open_bench.analyst)
    assert leases.renew(open_bench.engine, claim, 60, 0, 10) is True
    with pytest.raises(NotFound):
        settlement.cancel(open_bench.engine, running, person(open_bench.engine, "analyst"))


# --- approval -----------------------------------------------------------------------------------


def test_nobody_approves_their_own_job_unless_solo(engine):
    strict = Bench(engine)
    strict.allow()
    job_id = submission.submit(engine, strict.request(), strict.steward)
    strict.probe(job_id)
    with pytest.raises(NotPermitted):
        yes(engine, job_id, strict.steward, "mine")
    solo = Bench(engine, policy={"solo": True})
    solo.allow()
    job_id = submission.submit(engine, solo.request(), solo.steward)
    solo.probe(job_id)
    yes(engine, job_id, solo.steward, "mine")
    assert state(solo, job_id) == "queued"


def test_approval_needs_a_reason_a_steward_and_room(bench):
    first, second = bench.submit(300), bench.submit(300)
    bench.probe(first)
    bench.probe(second)
    with pytest.raises(InvalidRequest):
        yes(bench.engine, first, bench.steward, " ")
    with pytest.raises(NotPermitted):
        yes(bench.engine, first, bench.analyst, "please")
    yes(bench.engine, first, bench.steward, "yes")
    yes(bench.engine, second, bench.steward, "yes")  # too late: the room is taken
    assert state(bench, second) == "refused"
    with pytest.raises(Conflict):
        yes(bench.engine, first, bench.steward, "again")


def test_a_context_that_does_not_fit_is_refused_before_anything_is_reserved(bench):
    job_id = bench.submit(10, record_tokens=99_980)
    bench.probe(job_id, tokens=20)
    refusal = job_queries.job(bench.engine, job_id, bench.analyst)["refusal"]
    assert refusal["cap"] == "model context"
    assert refusal["asked"] == "100010"
    assert renyi(bench)["reserved"] == "0"


def test_a_model_that_never_ends_a_text_is_refused_before_anything_is_reserved(bench):
    """Its public facts say so; with a text that ends each text it runs."""
    endless = models.add_model(
        bench.engine, f"endless-{uuid.uuid4().hex[:8]}", "/nowhere", "public", bench.steward
    )
    facts = {"sha256": uuid.uuid4().hex * 2, "context_tokens": 100_000, "end_tokens": []}
    registration.checked(bench.engine, "model", endless, facts, None)
    bench.model = registration.find(bench.engine, "model", endless).name
    job_id = bench.submit(10, template="A text: {record}. Another")
    bench.probe(job_id, tokens=20)
    job = job_queries.job(bench.engine, job_id, bench.analyst)
    assert (job["state"], job["refusal"]["cap"]) == ("refused", "model")
    assert "no token that ends a text" in job["refusal"]["why"]
    assert renyi(bench)["reserved"] == "0"
    ending = bench.submit(10, stop=".")
    bench.probe(ending, tokens=20)
    assert job_queries.job(bench.engine, ending, bench.analyst)["state"] == "awaiting_approval"


# --- allowances ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "epsilon", ["-1", "NaN", "Infinity", "1e400", "1e-30", "x", None, True, "1e999999999"]
)
def test_impossible_allowances_are_errors_that_name_the_field(bench, epsilon):
    with pytest.raises(InvalidRequest, match="epsilon"):
        bench.allow(epsilon)


# --- what the database refuses ------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET actor = 'me'",
        "DELETE FROM entries",
        "TRUNCATE entries",
        "TRUNCATE entries CASCADE",
    ],
)
def test_entries_are_append_only_for_the_owner_too(bench, owner, statement):
    with pytest.raises(DBAPIError, match="append-only"), owner.begin() as connection:
        connection.execute(text(statement))


def test_without_the_truncate_trigger_the_ledger_could_be_emptied(bench, owner):
    """The guard taken out, in a transaction that is rolled back: TRUNCATE then goes through."""
    with owner.connect() as connection:
        connection.execute(text("ALTER TABLE entries DISABLE TRIGGER entries_truncate"))
        connection.execute(text("TRUNCATE entries"))
        assert connection.execute(text("SELECT count(*) FROM entries")).scalar_one() == 0
        connection.rollback()


@pytest.mark.parametrize(
    "change",
    [
        "renyi_spent = -1",
        "renyi_spent = renyi_limit + 1, gaussian_spent = gaussian_limit + 1, "
        "renyi2_spent = renyi2_limit + 1, basic_spent = basic_limit + 1",
        "renyi_closed = 1, gaussian_closed = 1, renyi2_closed = 1, basic_closed = 1",
    ],
)
def test_the_database_refuses_balances_under_which_no_filter_holds(bench, change):
    with pytest.raises(DBAPIError, match="ck_accounts"), bench.engine.begin() as connection:
        connection.execute(
            text(
                f"UPDATE accounts SET {change} "
                "WHERE dataset_id = (SELECT id FROM datasets WHERE name = :name)"
            ),
            {"name": bench.dataset},
        )


def test_a_reservation_is_resolved_once(open_bench):
    job_id = open_bench.submit(10)
    settlement.cancel(open_bench.engine, job_id, open_bench.analyst)
    with pytest.raises(DBAPIError, match="resolved_once"), open_bench.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO entries "
                "SELECT dataset_id, seq + 1, 'COMMIT', at, actor, job_id, document, hash, 'x' "
                "FROM entries WHERE job_id = :id AND kind = 'VOID'"
            ),
            {"id": job_id},
        )


# --- export -------------------------------------------------------------------------------------


@pytest.fixture
def exported(open_bench) -> list[str]:
    for tokens in (10, 20):
        job_id = open_bench.submit(tokens)
        claim = claimed(open_bench, job_id)
        leases.begin_reading(open_bench.engine, claim)
        settlement.publish(
            open_bench.engine, claim, event_of(open_bench, job_id), Output("x", "0" * 64), "w"
        )
    open_bench.submit(5)
    settlement.cancel(open_bench.engine, open_bench.submit(6), open_bench.analyst)
    return list(entries.export(open_bench.engine, open_bench.dataset, open_bench.auditor, "jsonl"))


def test_an_export_verifies(exported):
    found = verify_lines(exported)
    assert found.entries == len(exported) - 1
    assert found.live == 1


@pytest.mark.slow
def test_one_digit_of_any_amount_changed_is_found_and_the_entry_named(exported):
    for number, line in enumerate(exported[1:], 1):
        for position, character in enumerate(line):
            if not character.isdigit() or '"' in line[position - 1]:
                continue
            if position % 7:  # every seventh digit of every entry
                continue
            other = "1" if character != "1" else "2"
            tampered = [*exported]
            tampered[number] = line[:position] + other + line[position + 1 :]
            with pytest.raises(VerificationFailed) as caught:
                verify_lines(tampered)
            assert caught.value.seq == number


def test_entries_removed_reordered_or_cut_off_are_found(exported):
    with pytest.raises(VerificationFailed):
        verify_lines(exported[:-1])
    with pytest.raises(VerificationFailed):
        verify_lines([*exported[:2], *exported[3:]])
    with pytest.raises(VerificationFailed):
        verify_lines([*exported[:1], exported[2], exported[1], *exported[3:]])


def test_a_forged_chain_with_a_false_price_is_found(exported):
    """Somebody who rewrites every hash still can't change a price: it is recomputed."""
    from accountant.core.ledger.hash_chain import canonical, digest

    header, previous, forged = json.loads(exported[0]), "0" * 64, []
    for line in exported[1:]:
        document = json.loads(line)
        document.pop("hash")
        document["previous"] = previous
        if document["kind"] == "RESERVE":
            document["body"]["costs"]["renyi"]["main"] = "1"
        previous = digest(document)
        forged.append(json_row(previous, canonical(document).decode()))
    header["head"] = previous
    with pytest.raises(VerificationFailed, match="costs are not those of its event"):
        verify_lines([json_header(header), *forged])


def test_an_analyst_sees_own_jobs_only_and_no_ledger(open_bench):
    job_id = open_bench.submit(10)
    other = person(open_bench.engine, "analyst")
    with pytest.raises(NotFound):
        job_queries.job(open_bench.engine, job_id, other)
    with pytest.raises(NotPermitted):
        entries.entries(open_bench.engine, open_bench.dataset, open_bench.analyst)
    facts = datasets.dataset(open_bench.engine, open_bench.dataset, open_bench.analyst)
    assert "versions" not in facts
