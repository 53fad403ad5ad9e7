"""Artifacts on a real PostgreSQL: released once, paid once, then free; and who may use them."""

import json
import uuid
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest, NotFound, NotPermitted, VerificationFailed
from accountant.core.ledger.allowances import Allowance
from accountant.core.ledger.export_formats import json_header, verify_lines
from accountant.core.ledger.hash_chain import canonical
from accountant.core.ledger.policy import Policy
from accountant.core.privacy.events import from_json
from accountant.queries import datasets, integrity, jobs
from accountant.queries import entries as entry_queries
from accountant.transactions import (
    allowances,
    artifacts,
    leases,
    policies,
    rows,
    settlement,
    submission,
)
from accountant.transactions.artifacts import Stored
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.settlement import Output
from tests import tallies
from tests.support import Bench, kinds, person, yes

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _tallies():
    tallies.register()
    yield
    tallies.forget()


def stored(name: str = "counts") -> Stored:
    return Stored(
        name, "noisy-counts", "application/json", uuid.uuid4().hex * 2, 12, f"/nowhere/{name}.json"
    )


def ask(
    bench: Bench, analyst=None, model: str | None = None, mechanism: str = "tally", **parameters
) -> uuid.UUID:
    request = JobRequest(bench.dataset, mechanism, model, parameters, "test")
    return submission.submit(bench.engine, request, analyst or bench.analyst)


def job(bench: Bench, job_id) -> dict:
    return jobs.job(bench.engine, job_id, bench.steward)


def claimed(bench: Bench, job_id) -> rows.Claim:
    claim = leases.claim(bench.engine, job_id, 1, "a worker", 60)
    assert claim is not None, job(bench, job_id)
    return claim


def run(bench: Bench, job_id, *left: Stored, reads: bool = True) -> None:
    claim = claimed(bench, job_id)
    if reads:
        leases.begin_reading(bench.engine, claim)
    event = from_json(job(bench, job_id)["event"])
    settlement.publish(bench.engine, claim, event, Output("/nowhere", "0" * 64, left), "a worker")


def entries(bench: Bench, job_id) -> dict[str, dict]:
    query = text("SELECT kind, document FROM entries WHERE job_id = :job ORDER BY seq")
    with bench.engine.connect() as connection:
        found = connection.execute(query, {"job": job_id}).all()
    return {row.kind: json.loads(row.document)["body"] for row in found}


def balances(bench: Bench) -> dict:
    return datasets.dataset(bench.engine, bench.dataset, bench.steward)["account"]


@pytest.fixture
def made(open_bench) -> tuple[Bench, uuid.UUID, Stored]:
    """A dataset with one job that left an artifact."""
    file, job_id = stored(), ask(open_bench, epsilon=1.0)
    run(open_bench, job_id, file)
    return open_bench, job_id, file


def test_the_commit_names_every_artifact_and_the_row_names_the_commit(made):
    bench, job_id, file = made
    commit = entries(bench, job_id)["COMMIT"]
    assert commit["artifacts"] == [
        {"name": "counts", "kind": "noisy-counts", "sha256": file.sha256}
    ]
    (found,) = artifacts.listing(bench.engine, bench.analyst, job=job_id)
    assert found["sha256"] == file.sha256
    assert found["entry"] == job(bench, job_id)["entries"][1]["seq"]
    assert "uri" not in found


def test_a_job_over_artifacts_is_free_and_shows_its_lineage(made):
    bench, source, file = made
    before = balances(bench)
    free = ask(bench, from_job=str(source))
    assert job(bench, free)["state"] == "queued"  # no approval: there is nothing to approve
    assert job(bench, free)["epsilon_alone"] == 0
    run(bench, free, stored("best"), reads=False)
    found = entries(bench, free)
    assert found["RESERVE"]["source"] == {"job": str(source), "artifacts": {"counts": file.sha256}}
    assert [set(each["costs"]["renyi"].values()) for each in found.values()] == [{"0"}, {"0"}]
    assert balances(bench) == before
    assert integrity.check(bench.engine, bench.dataset) == []
    verify_lines(entry_queries.export(bench.engine, bench.dataset, bench.auditor, "jsonl"))
    again = ask(bench, from_job=str(free))  # and what it released serves the next
    assert job(bench, again)["state"] == "queued"


def test_an_exhausted_dataset_admits_it(made):
    bench, source, _ = made
    largest = job(bench, bench.submit(1_000))["refusal"]["largest"]
    assert job(bench, bench.submit(largest))["state"] == "queued"
    assert job(bench, ask(bench, epsilon=1.0))["state"] == "refused"
    assert job(bench, ask(bench, from_job=str(source)))["state"] == "queued"
    assert integrity.check(bench.engine, bench.dataset) == []


def test_what_only_rows_say_was_released_is_not_read(engine):
    """The rows of a job are another dataset's now: no entry of this ledger says that it released
    anything.
    """
    bench = Bench(engine)
    bench.allow("1000", "0.000001")
    source = ask(bench, epsilon=1.0)
    yes(engine, source, bench.steward, "fine")
    run(bench, source, stored())
    other = Bench(engine)
    with engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE jobs SET dataset_id = d.id, version_id = v.id FROM datasets d "
                "JOIN dataset_versions v ON v.dataset_id = d.id WHERE d.name = :name AND jobs.id = "
                ":job"
            ),
            {"name": other.dataset, "job": source},
        )
    with pytest.raises(
        VerificationFailed, match="it reads artifacts that no job before it released"
    ):
        ask(other, other.steward, from_job=str(source))
    assert kinds(other) == []


@pytest.mark.parametrize(
    "how", ["nothing", "not an id", "unknown", "without artifacts", "still running"]
)
def test_from_job_must_name_a_job_with_artifacts(made, how):
    bench, _, _ = made
    running = ask(bench, epsilon=0.1)
    without = ask(bench, epsilon=0.1)
    run(bench, without)
    named = {"nothing": "x", "not an id": "job-7", "unknown": str(uuid.uuid4())}
    named |= {"without artifacts": str(without), "still running": str(running)}
    with pytest.raises(
        InvalidRequest, match="is no job of this dataset with artifacts that you may use"
    ) as caught:
        ask(bench, from_job=named[how])
    assert caught.value.problems[0].field == "parameters.from_job"


def test_artifacts_stay_on_their_dataset_and_mechanism(made):
    bench, source, _ = made
    other = Bench(bench.engine)
    with pytest.raises(InvalidRequest, match="no job of this dataset"):
        ask(other, other.steward, from_job=str(source))
    with pytest.raises(InvalidRequest, match="its mechanism is tally"):
        ask(bench, mechanism="epsvec", model=bench.model, from_job=str(source))
    with pytest.raises(InvalidRequest, match="its mechanism is tally"):
        ask(bench, mechanism="dp-kps", output="phrases", from_job=str(source))


def test_only_artifacts_are_free_and_they_always_are(made, monkeypatch):
    """Records cost something and artifacts nothing, for every price that a mechanism states."""
    from accountant.core.privacy.events import FREE, Gaussian
    from accountant.core.privacy.price import Price

    bench, source, _ = made
    free = replace(tallies.MECHANISM, price=lambda *_: Price(FREE))
    monkeypatch.setitem(mechanisms.MECHANISMS, "tally", free)
    with pytest.raises(InvalidRequest, match="reads records and would cost nothing"):
        ask(bench, epsilon=1.0)
    priced = replace(tallies.MECHANISM, price=lambda *_: Price(Gaussian(9.0)))
    monkeypatch.setitem(mechanisms.MECHANISMS, "tally", priced)
    with pytest.raises(InvalidRequest, match="has no price"):
        ask(bench, from_job=str(source))


def test_another_model_can_not_use_them_where_that_matters(open_bench, monkeypatch):
    bench, second = open_bench, Bench(open_bench.engine)
    with_model = replace(tallies.MECHANISM, uses_model=True)
    monkeypatch.setitem(mechanisms.MECHANISMS, "tally", with_model)
    source = ask(bench, model=bench.model, epsilon=1.0)
    run(bench, source, stored())
    with pytest.raises(InvalidRequest, match="belong to another model"):
        ask(bench, model=second.model, from_job=str(source))
    monkeypatch.setitem(
        mechanisms.MECHANISMS, "tally", replace(with_model, artifacts_need_model=False)
    )
    assert job(bench, ask(bench, model=second.model, from_job=str(source)))["state"] == "queued"


def test_others_see_artifacts_only_where_the_policy_shares_them(made):
    bench, source, file = made
    other, stranger = person(bench.engine, "analyst"), person(bench.engine, "analyst")
    listed = lambda who: artifacts.listing(bench.engine, who, dataset=bench.dataset)  # noqa: E731

    assert listed(other) == []
    with pytest.raises(NotFound):
        artifacts.find(bench.engine, file.sha256, other)
    with pytest.raises(InvalidRequest) as hidden:
        ask(bench, other, from_job=str(source))
    with pytest.raises(InvalidRequest) as absent:
        ask(bench, other, from_job="0" * len(str(source)))
    # the two answer alike
    assert str(hidden.value).replace(str(source), "0" * 36) == str(absent.value)
    assert len(listed(bench.steward)) == len(listed(bench.auditor)) == 1

    shared = Policy(auto_approve_epsilon="10", share_artifacts=True, analysts=(other.name,))
    policies.set_policy(bench.engine, bench.dataset, shared, bench.steward)
    assert len(listed(other)) == 1
    assert job(bench, ask(bench, other, from_job=str(source)))["state"] == "queued"
    with pytest.raises(NotFound):
        jobs.job(bench.engine, source, other)  # the job itself stays its owner's
    assert listed(stranger) == []  # who may not ask may not look either
    policies.set_policy(bench.engine, bench.dataset, replace_analysts(shared, ()), bench.steward)
    assert len(listed(stranger)) == 1


def replace_analysts(policy: Policy, analysts: tuple[str, ...]) -> Policy:
    return policy.model_copy(update={"analysts": analysts})


def test_the_policy_still_says_who_may_ask(made):
    bench, source, _ = made
    policies.set_policy(bench.engine, bench.dataset, Policy(mechanisms=("epsvec",)), bench.steward)
    with pytest.raises(NotPermitted, match="mechanism"):
        ask(bench, from_job=str(source))


def test_a_free_job_never_begins_to_read_records(made):
    bench, source, _ = made
    free = ask(bench, from_job=str(source))
    with pytest.raises(IntegrityError, match="reads_no_records"):
        leases.begin_reading(bench.engine, claimed(bench, free))


def test_a_free_job_that_fails_is_void(made):
    bench, source, _ = made
    free = ask(bench, from_job=str(source))
    settlement.fail(bench.engine, claimed(bench, free), "failed", "an artifact is gone", "a worker")
    assert set(entries(bench, free)) == {"RESERVE", "VOID"}
    assert integrity.check(bench.engine, bench.dataset) == []


def test_a_lost_attempt_publishes_no_artifact(made):
    bench, _, _ = made
    job_id = ask(bench, epsilon=0.5)
    claim = claimed(bench, job_id)
    late = replace(claim, token=uuid.uuid4())
    event = from_json(job(bench, job_id)["event"])
    from accountant.core.errors import LeaseLost

    with pytest.raises(LeaseLost):
        settlement.publish(bench.engine, late, event, Output("x", "0" * 64, (stored(),)), "late")
    assert artifacts.listing(bench.engine, bench.steward, job=job_id) == []


def test_an_ex_post_output_leaves_no_artifact(engine):
    bench = Bench(engine)
    allowances.allow(
        engine, bench.dataset, Allowance("1", "0.000001", "x", ex_post="5"), bench.steward
    )
    bench.probe(bench.submit(1))
    job_id = bench.submit(1, aggregation="median", ex_post_cap=1.0)
    yes(engine, job_id, bench.steward, "fine")
    claim = claimed(bench, job_id)
    leases.begin_reading(engine, claim)
    from accountant.core.privacy.events import FREE

    with pytest.raises(
        VerificationFailed, match="it releases artifacts of a job that may leave none"
    ):
        settlement.publish(engine, claim, FREE, Output("x", "0" * 64, (stored(),)), "a worker")
    assert job(bench, job_id)["state"] == "running"
    settlement.publish(engine, claim, FREE, Output("x", "0" * 64), "a worker")


# --- the verifier -------------------------------------------------------------------------------


def forged(lines: list[str], change) -> list[str]:
    """The export with changed bodies and a chain that fits them again."""
    from accountant.core.ledger.hash_chain import GENESIS, digest

    first, *rest = [json.loads(line) for line in lines]
    head, made = GENESIS, []
    for document in rest:
        document.pop("hash")
        change(document)
        document["previous"] = head
        head = digest(document)
        made.append(canonical(document).decode()[:-1] + f',"hash":"{head}"}}')
    return [json_header({**first, "head": head}), *made]


FORGERIES = {
    "another hash": lambda body: body["source"]["artifacts"].update(counts="0" * 64),
    "another job": lambda body: body["source"].update(job=str(uuid.uuid4())),
    "no artifact": lambda body: body["source"].update(artifacts={}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_verify_finds_a_job_that_read_what_nobody_released(made, name):
    bench, source, _ = made
    run(bench, ask(bench, from_job=str(source)), reads=False)
    lines = list(entry_queries.export(bench.engine, bench.dataset, bench.auditor, "jsonl"))
    verify_lines(forged(lines, lambda document: None))

    def change(document: dict) -> None:
        if document["kind"] == "RESERVE" and "job" in document["body"].get("source", {}):
            FORGERIES[name](document["body"])

    with pytest.raises(VerificationFailed, match="no job before it released"):
        verify_lines(forged(lines, change))
