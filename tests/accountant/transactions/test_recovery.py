"""Recovery from the log: spent budget is spent, what was published is published once, and the chain
holds.
"""

import hashlib
import uuid
from dataclasses import replace

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from accountant import settings
from accountant.catalogue import datasets
from accountant.core.errors import Conflict, LedgerBehind, LogUnusable
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import from_json
from accountant.queries import datasets as dataset_queries
from accountant.queries import integrity
from accountant.queries import jobs as job_queries
from accountant.results import Results, draft_name
from accountant.transactions import (
    allowances,
    leases,
    policies,
    recovery,
    settlement,
    submission,
    unit_fingerprints,
)
from accountant.transactions.artifacts import Stored
from accountant.transactions.settlement import Output
from accountant.transactions.unit_fingerprints import Fingerprint
from tests.accountant.transactions.test_charges import POLICY as CHARGES
from tests.accountant.transactions.test_ledger_log import (
    alone,
    entries,
    in_a_store_too,
    logged,
    run,
    shared,
    site,
    state,
)
from tests.accountant.transactions.test_overdrafts import declared
from tests.object_stores import s3
from tests.restores import accounts
from tests.support import Bench, claimed, person
from web.cli import bootstrap
from web.cli.commands import app
from workers.jobs import staging

pytestmark = pytest.mark.slow

__all__ = ["alone", "s3", "shared", "site"]


def lost(_: uuid.UUID, __: str) -> None:
    """Nothing is found where outputs are kept."""
    return


def recovered(site, find=lost) -> list[recovery.Plan]:
    plans = recovery.plan(site.engine)
    for each in plans:
        recovery.recover(site.engine, each, find)
    return plans


def spend_all(site) -> list[uuid.UUID]:
    """Jobs until nothing more of their size fits; the last is refused."""
    done = []
    while True:
        job_id = site.bench.submit(50)
        if state(site, job_id) == "refused":
            return done
        done.append(job_id)
        run(site, job_id)


@in_a_store_too
def test_the_same_allowance_is_never_spent_twice(site):
    copy = site.backup()
    done = spend_all(site)
    assert len(done) > 3
    spent = accounts(site.engine, site.bench.dataset)
    site.restore(copy)
    with pytest.raises(LedgerBehind):
        site.bench.submit(50)
    (plan,) = recovered(site)
    assert (len(plan.missing), plan.charged) == (2 * len(done), [])
    assert accounts(site.engine, site.bench.dataset) == spent
    assert logged(site) == entries(site)
    assert integrity.check(site.engine, site.bench.dataset) == []
    assert recovery.plan(site.engine) == []
    assert state(site, site.bench.submit(50)) == "refused"
    assert state(site, site.bench.submit(1)) == "queued"


def test_what_was_handed_out_is_never_released_again(site):
    first = site.bench.submit(10)
    copy = site.backup()
    run(site, first)
    site.restore(copy)
    with pytest.raises(LedgerBehind):
        leases.claim(site.engine, first, 1, "worker", 60)
    recovered(site)
    assert state(site, first) == "succeeded"
    assert leases.claim(site.engine, first, 1, "worker", 60) is None
    assert leases.claim(site.engine, first, 2, "worker", 60) is None
    with site.engine.connect() as connection:
        row = connection.execute(text("SELECT * FROM jobs WHERE id = :id"), {"id": first}).one()
    assert row.output_sha256 == "a" * 64
    assert integrity.check(site.engine, site.bench.dataset) == []


def test_a_job_without_an_end_is_charged_in_full_and_runs_no_more(site):
    queued, begun = site.bench.submit(10), site.bench.submit(11)
    copy = site.backup()
    claim = leases.claim(site.engine, begun, 1, "worker", 60)
    leases.begin_reading(site.engine, claim)
    later = site.bench.submit(12)
    site.restore(copy)
    (plan,) = recovered(site)
    assert sorted(plan.charged) == sorted(map(str, (queued, begun, later)))
    for job_id in (queued, begun, later):
        assert state(site, job_id) == "failed"
        assert leases.claim(site.engine, job_id, 1, "worker", 60) is None
    books = accounts(site.engine, site.bench.dataset)
    assert books["renyi_reserved"] == 0
    assert books["failure_count"] == 3
    assert integrity.check(site.engine, site.bench.dataset) == []
    assert logged(site) == entries(site)


def test_an_overdraft_stands_again_and_the_dataset_stays_closed(site):
    policies.set_policy(site.engine, site.bench.dataset, Policy(**CHARGES), site.bench.steward)
    copy = site.backup()
    job = declared(site.engine, site.bench)
    before = accounts(site.engine, site.bench.dataset)
    site.restore(copy)
    (plan,) = recovered(site)
    assert (len(plan.missing), plan.charged) == (2, [])
    assert accounts(site.engine, site.bench.dataset) == before
    assert dataset_queries.dataset(site.engine, site.bench.dataset, site.bench.steward)["overdrawn"]
    assert state(site, job) == "succeeded"
    assert state(site, site.bench.submit(1)) == "refused"
    assert integrity.check(site.engine, site.bench.dataset) == []


def test_a_job_that_began_to_read_since_the_newest_entry_is_charged_where_the_operator_says_so(
    alone,
):
    """The log has nothing of it: no entry says that reading began."""
    begun = alone.bench.submit(11)
    copy = alone.backup()
    leases.begin_reading(alone.engine, leases.claim(alone.engine, begun, 1, "worker", 60))
    alone.restore(copy)
    assert recovery.plan(alone.engine) == []
    (plan,) = recovery.plan(alone.engine, restored=True)
    assert (plan.missing, plan.charged) == ([], [str(begun)])
    recovery.recover(alone.engine, plan, lost)
    assert state(alone, begun) == "failed"
    assert accounts(alone.engine, alone.bench.dataset)["renyi_reserved"] == 0
    assert integrity.check(alone.engine, alone.bench.dataset) == []
    assert logged(alone) == entries(alone)


def test_jobs_of_other_datasets_may_have_read_too(alone):
    """Nothing was written to the other ledger since the backup, but its job may have begun."""
    other = Bench(alone.engine, policy={"auto_approve_epsilon": "10"})
    other.allow()
    other.warm()
    waiting = other.submit(10)
    copy = alone.backup()
    alone.bench.submit(10)
    alone.restore(copy)
    other.engine = alone.engine
    assert {each.dataset for each in recovery.plan(alone.engine)} == {
        alone.bench.dataset,
        other.dataset,
    }
    assert {each.dataset for each in recovery.plan(alone.engine, alone.bench.dataset)} == {
        alone.bench.dataset
    }
    recovered(alone)
    with alone.engine.connect() as connection:
        found = connection.execute(text("SELECT state FROM jobs WHERE id = :id"), {"id": waiting})
        assert found.scalar_one() == "failed"
    assert integrity.check(alone.engine, other.dataset) == []


def test_everything_that_an_entry_states_is_there_again(site):
    """Jobs that were published, cancelled and void, artifacts, an allowance, and people who came
    after.
    """
    bench = site.bench
    waiting = bench.submit(10)
    copy = site.backup()
    bench.analyst = person(site.engine, "analyst")
    bench.allow("12", reason="more")
    published = bench.submit(20)
    claim = leases.claim(site.engine, published, 1, "worker", 60)
    leases.begin_reading(site.engine, claim)
    event = from_json(job_queries.job(site.engine, published, bench.steward)["event"])
    kept = b"kept"
    sha256 = hashlib.sha256(kept).hexdigest()
    released = Stored("shots", "shots", "application/json", sha256, 4, "draft")
    output = Output("draft", "c" * 64, (released,))
    settlement.publish(site.engine, claim, event, output, "worker")
    settlement.cancel(site.engine, bench.submit(5), bench.analyst)
    settlement.cancel(site.engine, waiting, bench.steward)
    before, books = entries(site), accounts(site.engine, bench.dataset)
    site.restore(copy)

    def find(sha256):
        return (4, "text/html") if sha256 == released.sha256 else None

    (plan,) = recovered(site, find)
    assert plan.charged == []
    assert entries(site) == before
    assert accounts(site.engine, bench.dataset) == books
    assert integrity.check(site.engine, bench.dataset) == []
    with site.engine.connect() as connection:
        row = connection.execute(text("SELECT * FROM jobs WHERE id = :id"), {"id": published}).one()
        assert row.output_sha256 == "c" * 64
        found = connection.execute(
            text("SELECT media_type, size FROM artifacts WHERE job_id = :id"), {"id": published}
        )
        assert tuple(found.one()) == ("text/html", 4)
        closed = text("SELECT active, roles FROM users WHERE name = :name")
        person_again = connection.execute(closed, {"name": bench.analyst.name}).one()
        assert tuple(person_again) == (False, [])


IDENTITY = b"i" * 32


def units(*names: object) -> list[Fingerprint]:
    return [Fingerprint(uuid.uuid5(uuid.NAMESPACE_URL, str(name)).bytes, True) for name in names]


def found_right(site, version: uuid.UUID, *names: object, key: bytes | None = IDENTITY) -> None:
    """A version is checked as by the worker that has the key of the fingerprints."""
    claimed(site.engine, version, b"the key", units(*names), key)


def added(site, name: str, **spec: object) -> uuid.UUID:
    raw = {"name": name, "uri": f"/data/{name}.csv", "public_size": 1000, **spec}
    return datasets.add_dataset(site.engine, datasets.read_dataset(raw), site.bench.steward)


def shown(site, name: str) -> dict:
    return dataset_queries.dataset(site.engine, name, site.bench.steward)


def test_a_dataset_that_the_backup_does_not_know_is_made_again_with_whoever_is_in_it(alone):
    bench, later, tag = alone.bench, f"later-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    copy = alone.backup()
    somebody = person(alone.engine, "analyst")
    wrong = added(alone, later, description="letters", labels=["a"], label_column="kind")
    datasets.dataset_refused(alone.engine, wrong, "row 3")
    corrected = datasets.correct_dataset(alone.engine, later, {"labels": ["a", "b"]}, bench.steward)
    found_right(alone, corrected, f"{tag}1", f"{tag}2")
    policy = Policy(auto_approve_epsilon="10", analysts=(bench.analyst.name, somebody.name))
    policies.set_policy(alone.engine, later, policy, bench.steward)
    allowances.allow(alone.engine, later, Allowance("10", "0.000001", "a pilot"), bench.steward)
    job_id = submission.submit(
        alone.engine, replace(bench.request(), dataset=later), bench.analyst, None
    )
    bench.probe(job_id)
    run(alone, job_id)
    before, books = shown(alone, later), accounts(alone.engine, later)

    alone.restore(copy)
    plans = {each.dataset: each for each in recovery.plan(alone.engine)}
    assert plans[later].problem is None
    for key, why in ((None, "not here"), (b"o" * 32, "not what was kept")):
        with pytest.raises(LogUnusable, match=why):
            recovery.recover(alone.engine, plans[later], lost, key)
    recovery.recover(alone.engine, plans[later], lost, IDENTITY)
    after = shown(alone, later)
    told = ("state", "description", "neighbours", "labels", "public_size", "policy")
    assert {each: after[each] for each in told} == {each: before[each] for each in told}
    assert [each["state"] for each in after["versions"]] == ["invalid", "ready"]
    assert after["versions"][1]["uri"] == before["versions"][1]["uri"]
    assert {**accounts(alone.engine, later), "dataset_id": books["dataset_id"]} == books
    assert integrity.check(alone.engine, later) == []
    assert recovery.plan(alone.engine) == []
    # The same people have no second account, and the name in the policy is nobody else's.
    again = added(alone, f"{later}-again")
    found_right(alone, again, f"{tag}2", f"{tag}3")
    assert later in shown(alone, f"{later}-again")["versions"][0]["error"]
    with pytest.raises(Conflict):
        person(alone.engine, "analyst", somebody.name)


def test_a_version_that_the_backup_does_not_know_is_there_again(alone):
    bench, tag = alone.bench, uuid.uuid4().hex
    waiting = datasets.add_version(
        alone.engine, bench.dataset, {"uri": "/data/may.csv"}, bench.steward
    )
    copy = alone.backup()
    found_right(alone, waiting, f"{tag}1")
    newer = datasets.add_version(
        alone.engine, bench.dataset, {"uri": "/data/june.csv"}, bench.steward
    )
    found_right(alone, newer, f"{tag}2")
    run(alone, bench.submit(10))
    alone.restore(copy)
    # Meanwhile the database knows every dataset, but not everybody who is in them.
    again = added(alone, f"again-{tag[:8]}")
    with pytest.raises(LedgerBehind):
        found_right(alone, again, f"{tag}2")
    with pytest.raises(LedgerBehind):
        unit_fingerprints.compare_corpus(alone.engine, again, b"the key", units(f"{tag}2"))
    (plan,) = recovery.plan(alone.engine)
    recovery.recover(alone.engine, plan, lost, IDENTITY)
    told = [(each["uri"], each["state"]) for each in shown(alone, bench.dataset)["versions"]]
    assert told[1:] == [("/data/may.csv", "ready"), ("/data/june.csv", "ready")]
    assert integrity.check(alone.engine, bench.dataset) == []
    found_right(alone, again, f"{tag}2")
    assert shown(alone, f"again-{tag[:8]}")["versions"][0]["state"] == "invalid"


def test_a_dataset_without_data_is_made_again_and_its_data_is_declared_anew(alone):
    copy, later = alone.backup(), f"later-{uuid.uuid4().hex[:8]}"
    added(alone, later)
    alone.restore(copy)
    with pytest.raises(LedgerBehind):
        added(alone, "another")
    for plan in recovery.plan(alone.engine):
        recovery.recover(alone.engine, plan, lost, IDENTITY)
    assert shown(alone, later)["versions"][0]["state"] == "invalid"
    changes = {"uri": "/data/again.csv"}
    found_right(
        alone, datasets.correct_dataset(alone.engine, later, changes, alone.bench.steward), later
    )
    assert shown(alone, later)["state"] == "ready"
    assert integrity.check(alone.engine, later) == []


def test_a_dataset_whose_data_never_comes_here_is_made_again_whole(alone):
    copy, later = alone.backup(), f"later-{uuid.uuid4().hex[:8]}"
    raw = {"name": later, "uri": None, "unit_column": "person", "policy": CHARGES}
    datasets.add_dataset(alone.engine, datasets.read_dataset(raw), alone.bench.steward)
    alone.restore(copy)
    recovered(alone)
    assert [(each["uri"], each["state"]) for each in shown(alone, later)["versions"]] == [
        (None, "ready")
    ]
    assert integrity.check(alone.engine, later) == []


def test_data_of_which_nothing_was_kept_is_said_and_left_as_it_is(alone):
    copy, later = alone.backup(), f"later-{uuid.uuid4().hex[:8]}"
    found_right(alone, added(alone, later), later, key=None)
    alone.bench.submit(10)
    alone.restore(copy)
    plans = {each.dataset: each for each in recovery.plan(alone.engine)}
    assert "not kept beside the log" in plans[later].problem
    with pytest.raises(Conflict, match="not kept"):
        recovery.recover(alone.engine, plans[later], lost, IDENTITY)
    recovery.recover(alone.engine, plans[alone.bench.dataset], lost)
    # Whoever was in it is in nobody's fingerprints any more, so nothing is added meanwhile.
    with pytest.raises(LedgerBehind):
        added(alone, "another")


def test_a_plan_of_before_is_not_carried_out(site):
    copy = site.backup()
    site.bench.submit(10)
    site.restore(copy)
    plans = recovery.plan(site.engine)
    recovery.recover(site.engine, plans[0], lost)
    with pytest.raises(Conflict, match="has changed"):
        recovery.recover(site.engine, plans[0], lost)


def test_a_log_with_an_entry_that_does_not_verify_recovers_nothing(site, monkeypatch):
    copy = site.backup()
    site.bench.submit(10)
    site.restore(copy)
    monkeypatch.setattr(recovery, "read_document", lambda body: {**_document(body), "kind": "VOID"})
    (plan,) = recovery.plan(site.engine)
    assert plan.problem
    with pytest.raises(Conflict):
        recovery.recover(site.engine, plan, lost)


def _document(body):
    import json

    return json.loads(body)


def test_the_command_recovers_and_finds_outputs_by_their_hash(alone, tmp_path, monkeypatch):
    home = tmp_path / "home"
    first = alone.bench.submit(10)
    copy = alone.backup()
    run(alone, first, home / "results")
    alone.restore(copy)
    environment = {
        "DATABASE_URL": alone.engine.url.render_as_string(hide_password=False),
        "EXCHEQUER_HOME": str(home),
        "EXCHEQUER_LEDGER_LOG": str(alone.folder),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    # not those that the process remembers
    monkeypatch.setattr(bootstrap, "load", settings.Settings)
    before = CliRunner().invoke(app, ["ledger", "check", "--all", "--database"])
    assert before.exit_code == 1
    assert "exchequer ledger recover" in before.stdout.replace("\n", " ")
    asked = CliRunner().invoke(app, ["ledger", "recover"], input="n\n")
    assert asked.exit_code != 0
    assert recovery.plan(alone.engine) != []
    done = CliRunner().invoke(app, ["ledger", "recover", "--yes"])
    assert done.exit_code == 0, done.output
    assert "recovered: 1, left: 0" in done.stdout
    with alone.engine.connect() as connection:
        output = text("SELECT output_sha256 FROM jobs WHERE id = :id").bindparams(id=first)
        assert Results(str(home / "results")).has(connection.execute(output).scalar_one())
    assert CliRunner().invoke(app, ["ledger", "check", "--all", "--database"]).exit_code == 0
    again = CliRunner().invoke(app, ["ledger", "recover", "--yes"])
    assert "nothing is behind the log; if the database was restored, say --restored" in again.stdout
    told = CliRunner().invoke(app, ["ledger", "recover", "--yes", "--restored"])
    assert told.stdout.strip() == "nothing is behind the log"


def test_what_was_published_is_not_swept_away_while_the_database_is_behind(site, tmp_path):
    first = site.bench.submit(10)
    copy = site.backup()
    results = Results(str(tmp_path))
    run(site, first, tmp_path)
    name = draft_name(first, uuid.uuid4(), "texts")
    with results.create(name) as file:
        file.write(b"sealed")
    site.restore(copy)
    assert staging.tidy(site.engine, results) == 0
    recovered(site, results.facts)
    assert staging.tidy(site.engine, results) == 1
