"""A dataset whose data never comes here: charges alone are made, and it says what that rests on."""

from uuid import uuid4

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from accountant.catalogue import datasets
from accountant.core.errors import Conflict, InvalidRequest, VerificationFailed
from accountant.core.ledger import entry_bodies
from accountant.core.ledger.entry_fields import check_fields
from accountant.core.ledger.export_formats import read_document, verify_lines
from accountant.core.ledger.hash_chain import EntryKind, read_entry
from accountant.core.ledger.registry_entries import registry_entry
from accountant.core.ledger.rules import register_body
from accountant.core.ledger.statements import NO_FINGERPRINTS
from accountant.core.privacy.events import EpsilonDelta
from accountant.database import connect
from accountant.queries import datasets as shown
from accountant.queries import entries, integrity, plans, preflight, quotes
from accountant.transactions import charges, job_requests, submission
from accountant.transactions.batches import looked_up
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.ledger_log import Writing, writing
from accountant.transactions.locked_account import LockedAccount
from tests.accountant.core.ledger.test_registry_entries import PEOPLE
from tests.accountant.transactions.test_charges import POLICY, begun, parameters
from tests.conftest import as_process
from tests.support import Bench, kinds, unjudged

NEVER = "the data of this dataset never comes here"


@pytest.fixture
def bench(engine: Engine) -> Bench:
    made = Bench(engine, policy=POLICY, uri=None, unit_column="patient", max_records_per_unit=3)
    made.allow()
    return made


def charge(bench: Bench) -> None:
    raw = parameters(EpsilonDelta(0.5, 0.0), unit="patient", records_per_unit=3)
    job, secret = begun(bench.engine, bench, raw)
    charges.settle(bench.engine, job, bench.analyst, secret, None, None, None)


def test_it_takes_charges_and_says_everywhere_what_nobody_compared(bench):
    assert kinds(bench) == ["ALLOW"]
    charge(bench)
    found = shown.dataset(bench.engine, bench.dataset, bench.steward)
    assert (found["state"], found["versions"][0]["uri"]) == ("ready", None)
    assert found["statements"][0]["text"].endswith(NO_FINGERPRINTS)
    assert not found["statements"][0]["unqualified"]
    assert integrity.check(bench.engine, bench.dataset) == []
    for public in (False, True):
        lines = entries.export(bench.engine, bench.dataset, bench.auditor, "jsonl", public=public)
        verified = verify_lines(list(lines))
        assert NO_FINGERPRINTS in verified.unproved
        stated = registry_entry(verified, PEOPLE)["deployment"]
        assert NO_FINGERPRINTS in stated["privacy_loss"]["privacy_parameters_details"]
        assert NO_FINGERPRINTS in stated["administrative"]["notes"]
        assert "Other programs" in stated["deployment_model"]["model_name_details"]
    with bench.engine.connect() as connection:
        waits = "SELECT count(*) FROM outbox o JOIN dataset_versions v ON v.id = o.subject"
        checks = connection.execute(text(f"{waits} WHERE v.uri IS NULL")).scalar_one()
    assert checks == 0


def test_a_job_of_this_service_is_refused_before_anything_is_reserved(bench):
    count = JobRequest(bench.dataset, "noisy-count", None, {"epsilon": 0.1})
    for asked in (
        lambda: submission.submit(bench.engine, count, bench.analyst),
        lambda: quotes.quote_on(bench.engine, bench.dataset, "noisy-count", {"epsilon": 0.1}),
        lambda: plans.proposal_on(bench.engine, bench.dataset, "counts", bench.analyst),
    ):
        with pytest.raises(InvalidRequest, match=NEVER):
            asked()
    (problem,) = preflight.problems(bench.engine, count, bench.analyst)
    assert (problem.field, problem.problem[: len(NEVER)]) == ("mechanism", NEVER)
    assert kinds(bench) == ["ALLOW"]


def test_nobody_posts_a_job_that_would_read_it(bench):
    with writing(bench.engine) as connection:
        locked = LockedAccount(connection, bench.dataset)
        facts = looked_up(locked, []).facts
        count = JobRequest(bench.dataset, "noisy-count", None, {"epsilon": 0.1})
        job = job_requests.priced(count, facts.terms).candidate
        body = entry_bodies.reserve_body(
            locked.accounts.dp,
            "noisy-count",
            job.parameters,
            job.terms,
            job.asked.dp,
            model=None,
            approval=None,
            source={"version": 1},
        )
        with pytest.raises(VerificationFailed, match="which never comes here"):
            locked.post(EntryKind.RESERVE, bench.analyst.name, uuid4(), body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text_template", "{title}"),
        ("labels", ["a"]),
        ("secret_terms", ["Sam"]),
        ("unit_spelling", "merge"),
        ("secret_column", "name"),
    ],
)
def test_what_only_a_reader_of_the_data_needs_is_not_declared(field, value):
    raw = {"name": "far", "uri": None, "unit_column": "patient", field: value}
    with pytest.raises(InvalidRequest) as refused:
        datasets.read_dataset(raw)
    assert field in {each.field for each in refused.value.problems}


def test_an_address_is_left_out_by_nobody_s_slip_and_never_comes_later(bench):
    with pytest.raises(InvalidRequest, match="uri"):
        datasets.read_dataset({"name": "far"})
    with pytest.raises(Conflict, match="never comes here"):
        datasets.add_version(bench.engine, bench.dataset, {"uri": "/data.csv"}, bench.steward)
    with pytest.raises(Conflict):
        datasets.correct_dataset(bench.engine, bench.dataset, {"uri": "/data.csv"}, bench.steward)


def test_the_process_that_checks_data_makes_none_go_away(engine, owner_url):
    """With its credentials no data becomes data that never comes here, and passes unread."""
    bench = Bench(engine, uri="/later.csv")
    checks = connect(as_process(owner_url, "checks"), pool_size=1)
    body = register_body(
        datasets.read_dataset({"name": bench.dataset, "uri": None, "public_size": 1000})
    )
    try:
        with checks.connect() as connection, pytest.raises(DBAPIError, match="permission denied"):
            connection.execute(text("UPDATE dataset_versions SET uri = NULL"))
        stated = EntryKind.REGISTER, bench.steward.name, None, {**body, "version": 1}
        with checks.connect().execution_options(ledger_writing=Writing(None)) as connection:
            locked = LockedAccount(connection, bench.dataset)
            with unjudged(), pytest.raises(DBAPIError, match="what a steward declared"):
                locked.append(*stated)
    finally:
        checks.dispose()


@pytest.mark.parametrize("lost", ["data", "layout"])
def test_an_entry_states_both_files_and_layout_or_neither(engine, lost):
    bench = Bench(engine)
    with engine.connect() as connection:
        query = "SELECT document FROM entries e JOIN datasets d ON d.id = e.dataset_id"
        rows = connection.execute(
            text(f"{query} WHERE d.name = :name AND kind = 'REGISTER' ORDER BY seq"),
            {"name": bench.dataset},
        ).scalars()
        document = read_document(list(rows)[-1])
    entry = read_entry(document, document["seq"])
    check_fields(entry)
    del entry.body[lost]
    with pytest.raises(VerificationFailed, match=lost):
        check_fields(entry)
