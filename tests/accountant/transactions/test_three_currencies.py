"""Three currencies on a real PostgreSQL: accounts, jobs that pay in several, and what holds now."""

from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from accountant.catalogue import datasets
from accountant.core import mechanisms
from accountant.core.errors import Conflict, InvalidRequest
from accountant.core.ledger import orders
from accountant.core.ledger.accounts import Settlement
from accountant.core.ledger.allowances import Allowance, SecretDeclaration
from accountant.core.ledger.export_formats import Verifier, read_document, verify_lines
from accountant.core.privacy.blowup import Without
from accountant.core.privacy.events import FREE, SelfComposed, from_json, to_json
from accountant.core.privacy.price import Price
from accountant.core.privacy.secrets import SecretKind, SecretTerms
from accountant.queries import datasets as dataset_queries
from accountant.queries import effects as allowance_queries
from accountant.queries import entries, integrity, jobs, quotes
from accountant.transactions import allowances, corrections, leases, settlement, submission
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.locked_account import LockedAccount
from accountant.transactions.settlement import Output
from tests.support import Bench, person, public_things, yes

pytestmark = pytest.mark.slow

DELTA = "0.0000029053"
#: A four-digit PIN, in one record; a guesser may be right with probability 0.02 afterwards.
PIN = SecretTerms(1e-4, 0.02, 1, 1.0, Without.REMOVED)


@pytest.fixture
def all_run(monkeypatch):
    """As if every mechanism had a runner: the ledger must be ready for them. `secpe` needs no
    corpus here.
    """
    for name, each in mechanisms.MECHANISMS.items():
        missing = (lambda _: None) if name == "secpe" else each.missing
        changed = replace(each, runner=each.runner or "none", missing=missing)
        monkeypatch.setitem(mechanisms.MECHANISMS, name, changed)


def ready(engine, allowance=None, **policy) -> Bench:
    """A dataset whose dp jobs up to epsilon 1000 run at once, under `allowance`."""
    made = Bench(engine, policy={"auto_approve_epsilon": "1000", **policy})
    allow(made, allowance or Allowance("10", DELTA, "test"))
    made.warm()
    return made


def allow(bench: Bench, allowance: Allowance) -> None:
    allowances.allow(bench.engine, bench.dataset, allowance, bench.steward)


def with_pin(engine, kind=SecretKind.MANY, **policy) -> Bench:
    order = 16 if kind is SecretKind.MANY else None
    declared = SecretDeclaration(PIN, kind, order)
    return ready(engine, Allowance("10", DELTA, "test", secret=declared), **policy)


def ask(bench: Bench, mechanism: str, **parameters):
    """A job of another mechanism, approved where that is needed."""
    request = JobRequest(bench.dataset, mechanism, bench.model, parameters, "test")
    job_id = submission.submit(bench.engine, request, bench.analyst)
    if job(bench, job_id)["state"] == "submitted":
        bench.probe(job_id)
    if job(bench, job_id)["state"] == "awaiting_approval":
        yes(bench.engine, job_id, bench.steward, "it fits the study")
    return job_id


def median(bench: Bench, cap: float, **parameters):
    return ask(bench, "private-prediction", aggregation="median", ex_post_cap=cap, **parameters)


def job(bench: Bench, job_id) -> dict:
    return jobs.job(bench.engine, job_id, bench.steward)


def facts(bench: Bench, viewer=None) -> dict:
    return dataset_queries.dataset(bench.engine, bench.dataset, viewer or bench.steward)


def says(bench: Bench) -> dict[str, str]:
    return {each["currency"]: each["text"] for each in facts(bench)["statements"]}


def run(bench: Bench, job_id, realized=None, outcome="succeeded", **others) -> None:
    """Take the job through a worker's steps."""
    claim = leases.claim(bench.engine, job_id, 1, "worker", 60)
    assert claim is not None
    leases.begin_reading(bench.engine, claim)
    if outcome == "failed":
        settlement.fail(bench.engine, claim, outcome, "kept from view", "worker")
        return
    event = job(bench, job_id)["event"]
    whole = FREE if event is None else from_json(event)
    output = Output("x", "0" * 64)
    settlement.publish(bench.engine, claim, realized or whole, output, "worker", **others)


def sound(bench: Bench) -> None:
    """Balances, history and prices are those of the entries, here and offline."""
    assert integrity.check(bench.engine, bench.dataset) == []
    verify_lines(entries.export(bench.engine, bench.dataset, bench.auditor, "jsonl"))


# --- an account in its row ----------------------------------------------------------------------


def test_an_account_rebuilt_from_its_row_is_the_one_its_entries_made(engine):
    declared = SecretDeclaration(PIN, SecretKind.MANY)
    bench = ready(
        engine,
        Allowance(
            "10", DELTA, "test", ex_post="2.5", ex_post_settlement="realized", secret=declared
        ),
    )
    run(bench, bench.submit(10))
    bench.submit(20)
    verifier = Verifier(bench.dataset)
    with engine.begin() as connection:
        query = text(
            "SELECT e.dataset_id, document, hash FROM entries e JOIN datasets d ON d.id = "
            "dataset_id "
            "WHERE d.name = :name ORDER BY seq"
        )
        rows = connection.execute(query, {"name": bench.dataset}).all()
        for row in rows:
            verifier.add(read_document(row.document), row.hash)
        rebuilt = LockedAccount(connection, rows[0].dataset_id).books
    assert rebuilt.accounts == verifier.result().books.accounts
    assert rebuilt.history == verifier.result().books.history
    assert rebuilt.account.filters[-1].filter.step_delta > 0
    assert rebuilt.secret.order is not None
    assert rebuilt.ex_post.settlement is Settlement.REALIZED


def test_a_job_that_is_not_pure_passes_reserve_commit_check_and_verify(engine, all_run):
    bench = ready(engine)
    job_id = ask(bench, "aug-pe", epsilon=2.0)
    assert job(bench, job_id)["state"] == "queued"
    basic = facts(bench)["account"]["filters"][-1]
    assert basic["kind"] == "basic"
    assert basic["closed"] == 0  # a job that is not pure pays a step of delta
    assert float(basic["reserved"]) > 0
    sound(bench)
    run(bench, job_id)
    sound(bench)


# --- ex-post ------------------------------------------------------------------------------------


def test_planned_caps_add_up_and_are_charged_whole(engine):
    bench = ready(engine, Allowance("10", DELTA, "test", ex_post="2.5"))
    first = median(bench, 1.0)
    assert job(bench, first)["state"] == "queued"
    assert job(bench, first)["event"] is None
    assert job(bench, first)["epsilon_alone"] is None
    assert facts(bench)["ex_post"]["reserved"] == "1"
    refusal = job(bench, median(bench, 1.6))["refusal"]
    assert (refusal["cap"], refusal["size_field"], refusal["largest"]) == (
        "ex-post",
        "ex_post_cap",
        1.5,
    )
    run(bench, first, ex_post=123_456_789)
    account = facts(bench, bench.analyst)["ex_post"]
    assert (account["spent"], account["reserved"], account["left"]) == ("1", "0", "1.5")
    newest = entries.entries(bench.engine, bench.dataset, bench.auditor)[0]
    assert newest["body"]["ex_post"] == {"cap": "1000000000"}  # the real figure is nowhere
    assert "except for the outputs of 1 ex-post job" in says(bench)["dp"]
    assert "planning figure" in says(bench)["ex-post"]
    sound(bench)


def test_a_median_over_clusters_pays_in_two_currencies(engine):
    bench = ready(engine, Allowance("10", DELTA, "test", ex_post="2.5"))
    named = public_things(bench.engine, bench.steward, 1_000, [])
    job_id = median(bench, 1.0, batching="clusters", **named)
    assert job(bench, job_id)["epsilon_alone"] == pytest.approx(0.1, rel=1e-3)
    run(bench, job_id, outcome="failed")
    assert facts(bench)["ex_post"]["spent"] == "1"
    assert float(facts(bench)["account"]["filters"][0]["spent"]) > 0
    assert "1 job failed" in says(bench)["dp"]
    sound(bench)


def test_realized_settlement_returns_and_is_hidden_from_analysts(engine):
    bench = ready(
        engine, Allowance("10", DELTA, "test", ex_post="2", ex_post_settlement="realized")
    )
    run(bench, median(bench, 1.0), ex_post=250_000_000)
    assert facts(bench)["ex_post"]["spent"] == "0.25"
    assert facts(bench, bench.analyst)["ex_post"]["spent"] is None
    assert "0.25" not in str(facts(bench, bench.analyst))
    run(bench, median(bench, 1.0), ex_post=5_000_000_000)
    assert facts(bench)["ex_post"]["left"] == "-3.25"
    sound(bench)
    with pytest.raises(InvalidRequest, match="ex_post_settlement"):
        allow(bench, Allowance(None, None, "hide it", ex_post="9", ex_post_settlement="planned"))


def test_a_cancelled_ex_post_job_returns_its_cap(engine):
    bench = ready(engine, Allowance("10", DELTA, "test", ex_post="2"))
    settlement.cancel(engine, median(bench, 1.5), bench.analyst)
    assert facts(bench)["ex_post"]["left"] == "2"
    assert says(bench)["dp"] == "Nothing has been released."
    sound(bench)


# --- secrets ------------------------------------------------------------------------------------


def test_a_dp_job_pays_on_the_secret_account_and_half_a_pin_passes_once(engine):
    bench = with_pin(engine)
    limit = float(facts(bench)["secret"]["limit"])
    quote = quotes.quote_on(
        engine, bench.dataset, "private-prediction", {}, fit_field="tokens_per_batch"
    )
    most = quote["parameters"]["tokens_per_batch"]
    assert most < 360  # less than the filters alone would give
    assert job(bench, bench.submit(most + 1))["refusal"]["cap"] == "secret"
    first = bench.submit(most * 2 // 3)
    assert job(bench, first)["state"] == "queued"
    assert job(bench, first)["terms"]["secret"]["prior"] == 1e-4
    assert limit / 2 < float(facts(bench)["secret"]["reserved"]) <= limit
    refusal = job(bench, bench.submit(most * 2 // 3))["refusal"]
    assert refusal["cap"] == "secret"
    assert refusal["largest"] == most - most * 2 // 3
    event = from_json(job(bench, first)["event"])
    run(bench, first, SelfComposed(event.event, 3))  # what was not taken returns
    assert float(facts(bench)["secret"]["spent"]) < limit / 20
    for fact in ("0.0001", "0.02", "at most 1 record", "removed"):
        assert fact in says(bench)["secret"]
    sound(bench)


def test_no_removal_of_records_is_stated_where_the_unit_is_a_column(engine):
    """A unit that loses a record stays, changed: two steps, and removal is priced as one."""
    removed = SecretDeclaration(PIN, SecretKind.MANY, 16)
    redacted = replace(removed, terms=replace(PIN, without=Without.REDACTED))
    bench = Bench(engine, unit_column="patient_id", max_records_per_unit=1)
    for declare in (allowances.allow, allowance_queries.preview):
        with pytest.raises(InvalidRequest, match="patient_id"):
            declare(
                engine, bench.dataset, Allowance("10", DELTA, "test", secret=removed), bench.steward
            )
    allow(bench, Allowance("10", DELTA, "test", secret=redacted))
    account = facts(bench)["secret"]
    assert (account["neighbour"], account["records_per_secret"]) == ("redacted", PIN.records)
    sound(bench)


def test_nor_does_a_correction_make_the_unit_a_column_after_that(engine):
    bench = Bench(engine)
    raw = {"name": f"refused-{bench.dataset}", "uri": "/nowhere.csv", "public_size": 1000}
    version = datasets.add_dataset(engine, datasets.read_dataset(raw), bench.steward)
    datasets.dataset_refused(engine, version, "no such file")
    bench.dataset = raw["name"]
    allow(bench, Allowance("10", DELTA, "test", secret=SecretDeclaration(PIN, SecretKind.MANY, 16)))
    with pytest.raises(InvalidRequest, match="patient_id"):
        datasets.correct_dataset(
            engine, bench.dataset, {"unit_column": "patient_id"}, bench.steward
        )
    assert datasets.correct_dataset(engine, bench.dataset, {"uri": "/elsewhere.csv"}, bench.steward)


def test_one_exact_job_that_reveals_half_a_pin_and_never_a_second(engine, all_run):
    bench = with_pin(engine, SecretKind.ONE, secret_jobs=True)
    first = ask(bench, "secpe", bound=0.01)
    assert job(bench, first)["state"] == "queued"
    second = job(bench, ask(bench, "secpe", bound=0.01))
    assert second["refusal"]["why"] == "its one exact job is taken"
    run(bench, first)
    assert float(facts(bench)["secret"]["spent"]) == pytest.approx(0.01, rel=1e-3)
    assert facts(bench)["secret"]["jobs"] == 1
    assert says(bench)["dp"].startswith("No (ε, δ) statement holds")
    sound(bench)


def test_a_secret_job_needs_a_statement_and_takes_its_facts(engine, all_run):
    bench = Bench(engine, policy={"secret_jobs": True})
    own = {"prior": 1e-4, "records_per_secret": 3, "sampling_rate": 0.5, "neighbour": "removed"}
    request = JobRequest(bench.dataset, "secpe", bench.model, {**own, "bound": 5e-4}, "test")
    early = submission.submit(engine, request, bench.analyst)
    bench.probe(early)
    assert job(bench, early)["refusal"]["cap"] == "secret"
    allow(bench, Allowance(None, None, "secrets", secret=SecretDeclaration(PIN, SecretKind.MANY)))
    with pytest.raises(InvalidRequest, match="records_per_secret"):
        ask(bench, "secpe", **own, bound=5e-4)


def test_secrets_are_declared_before_the_first_job_and_only_the_bound_moves(engine):
    late = ready(engine)
    late.submit(10)
    with pytest.raises(Conflict, match="outside a statement"):
        allow(late, Allowance(None, None, "late", secret=SecretDeclaration(PIN, SecretKind.MANY)))
    bench = with_pin(engine)
    bench.submit(30)
    raised = replace(PIN, bound=0.05)
    allow(bench, Allowance(None, None, "raised", secret=SecretDeclaration(raised)))
    assert facts(bench)["secret"]["bound"] == 0.05
    with pytest.raises(InvalidRequest, match="only the bound"):
        allow(bench, Allowance(None, None, "x", secret=SecretDeclaration(replace(PIN, records=2))))
    with pytest.raises(InvalidRequest, match=r"secret\.bound"):
        allow(bench, Allowance(None, None, "x", secret=SecretDeclaration(replace(PIN, bound=2e-4))))
    assert "1 raise" in says(bench)["dp"]
    sound(bench)


# --- filters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("shares", {"shares": {"renyi": "1"}}),
        ("shares", {"shares": {"other": "1"}}),
        (
            "shares.basic",
            {"shares": {"renyi": 0, "gaussian": 0, "renyi2": 0, "basic": float("nan")}},
        ),
        ("order", {"order": "1"}),
        ("order", {"order": "x"}),
        ("ex_post", {"ex_post": "-1"}),
        ("ex_post", {"ex_post_settlement": "planned"}),
        ("ex_post_settlement", {"ex_post": "1", "ex_post_settlement": "other"}),
        ("secret.kind", {"secret": SecretDeclaration(PIN)}),
        ("order", {"secret": SecretDeclaration(PIN, SecretKind.MANY, 1)}),
        ("secret.order", {"secret": SecretDeclaration(PIN, SecretKind.MANY, "x")}),
    ],
)
def test_a_wrong_allowance_names_its_field(engine, field, wrong):
    bench = Bench(engine)
    with pytest.raises(InvalidRequest) as caught:
        allow(bench, Allowance("10", DELTA, "test", **wrong))
    assert field in [each.field for each in caught.value.problems]
    assert facts(bench)["account"] is None


def test_a_declaration_as_it_arrives_is_checked():
    raw = {**PIN.to_json(), "kind": "many", "order": 16}
    assert SecretDeclaration.from_json(raw) == SecretDeclaration(PIN, SecretKind.MANY, 16)
    for wrong in (
        [],
        {**raw, "kind": "two"},
        {**raw, "prior": 0.5},
        {**raw, "other": 1},
        {"prior": 0.1},
    ):
        with pytest.raises(InvalidRequest):
            SecretDeclaration.from_json(wrong)


def test_a_closed_filter_names_the_job_that_closed_it(engine, monkeypatch):
    from accountant.core.privacy.events import ZCDp

    own = mechanisms.MECHANISMS["private-prediction"]
    zcdp = replace(
        own, price=lambda parameters, _: Price(ZCDp(parameters.tokens_per_batch / 10_000))
    )
    monkeypatch.setitem(mechanisms.MECHANISMS, "private-prediction", zcdp)
    # prices are kept by the mechanism's name: neither others' nor this one's for others
    monkeypatch.setattr(orders, "_of_shape", orders._of_shape.__wrapped__)
    bench = ready(engine)
    first, second = bench.submit(10), bench.submit(11)

    def gaussian() -> dict:
        return facts(bench)["account"]["filters"][1]

    assert (gaussian()["state"], gaussian()["closed_by"]) == ("closed", str(first))
    settlement.cancel(engine, first, bench.analyst)
    assert (gaussian()["state"], gaussian()["closed_by"]) == ("closed", str(second))
    settlement.cancel(engine, second, bench.analyst)
    assert (gaussian()["state"], gaussian()["closed_by"]) == ("open", None)
    assert integrity.check(engine, bench.dataset) == []


# --- what runs ----------------------------------------------------------------------------------


def test_what_has_a_price_and_no_runner_is_refused_at_submission(engine, monkeypatch):
    bench = ready(engine)
    priced = replace(mechanisms.get("aug-pe"), runner=None)
    monkeypatch.setitem(mechanisms.MECHANISMS, "aug-pe", priced)
    with pytest.raises(InvalidRequest) as caught:
        ask(bench, "aug-pe", epsilon=1.0)
    (problem,) = caught.value.problems
    assert (problem.field, problem.allowed) == (
        "mechanism",
        ", ".join(sorted(mechanisms.runnable())),
    )
    assert "no runner" in problem.problem


# --- quotes -------------------------------------------------------------------------------------


def test_a_quote_on_a_dataset_decides_in_every_currency(engine):
    bench = with_pin(engine)
    raw = {"aggregation": "median", "ex_post_cap": 1.0}
    answer = quotes.quote_on(engine, bench.dataset, "private-prediction", raw)["dataset"]
    assert (answer["decision"], answer["refusal"]["cap"]) == ("Refused", "secret")
    answer = quotes.quote_on(engine, bench.dataset, "private-prediction", {"tokens_per_batch": 340})
    largest = answer["dataset"]["refusal"]["largest"]
    fits = quotes.quote_on(
        engine, bench.dataset, "private-prediction", {"tokens_per_batch": largest}
    )
    assert fits["dataset"]["decision"] == "Admitted"
    answer = quotes.quote_on(engine, bench.dataset, "secpe", {"bound": 0.01})
    assert answer["dataset"]["refusal"]["cap"] == "policy"


# --- what the database refuses ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("others_not_negative", "ex_post_reserved = -1"),
        ("others_not_negative", "basic_step_delta = -1"),
        ("ex_post_fits", "ex_post_spent = ex_post_limit + 1"),
        ("ex_post_settlement", "ex_post_settlement = 'other'"),
        ("secret_fits", "secret_spent = secret_limit + 1"),
        ("secret_kind", "secret = jsonb_set(secret, '{kind}', '\"two\"')"),
        ("one_secret_job", "secret = jsonb_set(secret, '{kind}', '\"one\"'), secret_jobs = 2"),
        ("no_secret", "secret = NULL"),
    ],
)
def test_the_database_refuses_balances_beyond_an_account(engine, check, change):
    bench = Bench(engine)
    declared = SecretDeclaration(PIN, SecretKind.MANY)
    allow(bench, Allowance("10", DELTA, "test", ex_post="1", secret=declared))
    statement = (
        f"UPDATE accounts SET {change} WHERE dataset_id = (SELECT id FROM datasets WHERE "
        "name = :name)"
    )
    with pytest.raises(DBAPIError, match=f"ck_accounts_{check}"), engine.begin() as connection:
        connection.execute(text(statement), {"name": bench.dataset})


def test_balances_that_are_not_those_of_the_entries_are_found(engine, owner):
    bench = with_pin(engine)
    bench.submit(10)
    for change in (
        "secret_reserved = secret_reserved - 1",
        "ex_post_limit = 1",
        "basic_step_delta = 0",
        "failure_count = 1",
    ):
        with owner.connect() as connection:  # whom alone the database lets
            where = "WHERE dataset_id = (SELECT id FROM datasets WHERE name = :name)"
            before = connection.execute(
                text(f"SELECT * FROM accounts {where}"), {"name": bench.dataset}
            ).one()
            column = change.split(" ")[0]
            connection.execute(
                text(f"UPDATE accounts SET {change} {where}"), {"name": bench.dataset}
            )
            connection.commit()
            assert integrity.check(engine, bench.dataset), change
            undo = f"UPDATE accounts SET {column} = :value {where}"
            connection.execute(
                text(undo), {"name": bench.dataset, "value": getattr(before, column)}
            )
            connection.commit()
    sound(bench)


# --- corrections of secret accounts -------------------------------------------------------------


def correct(bench: Bench, job_id, event) -> None:
    """Two stewards correct the charge of a settled job."""
    asked = None if event is None else to_json(event)
    found = corrections.correct(
        bench.engine, job_id, bench.steward, "it was mispriced", event=asked
    )
    yes(bench.engine, found, person(bench.engine, "steward"), "seen")


def test_a_corrected_dp_job_pays_the_secret_account_what_it_really_released(engine):
    bench = with_pin(engine)
    job_id = bench.submit(60)
    reserved = float(facts(bench)["secret"]["reserved"])
    event = from_json(job(bench, job_id)["event"])
    run(bench, job_id, SelfComposed(event.event, 3))
    little = float(facts(bench)["secret"]["spent"])
    assert little < reserved / 2
    correct(bench, job_id, None)  # all that was reserved
    assert float(facts(bench)["secret"]["spent"]) == pytest.approx(reserved, rel=1e-6)
    sound(bench)
    with pytest.raises(InvalidRequest, match="changes nothing"):  # no part falls again
        correct(bench, job_id, SelfComposed(event.event, 3))
    sound(bench)


def test_a_correction_beyond_the_secret_limit_is_recorded_and_nothing_is_admitted_after(engine):
    bench = with_pin(engine)
    job_id = bench.submit(60)
    event = from_json(job(bench, job_id)["event"])
    run(bench, job_id, event)
    limit = float(facts(bench)["secret"]["limit"])
    correct(bench, job_id, SelfComposed(event.event, 3000))
    assert float(facts(bench)["secret"]["spent"]) > limit
    assert facts(bench)["overdrawn"]
    assert job(bench, bench.submit(1))["state"] == "refused"
    sound(bench)
