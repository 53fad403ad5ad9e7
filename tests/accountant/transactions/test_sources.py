"""What a request reads beside its records: public jobs of any dataset, of its model, that fit
it.
"""

import json
import uuid
from dataclasses import replace

import pytest
from sqlalchemy import null, update

from accountant import tables
from accountant.catalogue import corpora, models, registration
from accountant.core.errors import InvalidRequest, VerificationFailed
from accountant.core.ledger.export_formats import verify_lines
from accountant.core.ledger.hash_chain import Entry, EntryKind
from accountant.core.ledger.lineage import Lineage
from accountant.core.privacy.events import FREE, from_json
from accountant.queries import entries, integrity, jobs, plans
from accountant.queries import models as model_queries
from accountant.transactions import approval, leases, settlement, submission
from accountant.transactions.artifacts import Stored
from accountant.transactions.job_requests import JobRequest
from accountant.transactions.settlement import Output
from tests import matches, tallies
from tests.support import Bench

ADAPTER = Stored(
    "adapter", "soft-prompt-adapter", "application/x-safetensors", "ab" * 32, 12, "/nowhere/a"
)


def corpus(bench: Bench) -> str:
    name = f"corpus-{uuid.uuid4().hex[:8]}"
    made = corpora.add(
        bench.engine,
        corpora.CorpusSpec(name=name, uri="/nowhere.csv", statement="made up"),
        bench.steward,
    )
    facts = {"sha256": uuid.uuid4().hex * 2, "texts": 100, "labels": []}
    registration.checked(bench.engine, "corpus", made, facts, None)
    return name


def asked(
    bench: Bench, mechanism: str, model: str | None = None, **parameters: object
) -> uuid.UUID:
    """A job that is queued: its model was looked at."""
    request = JobRequest(bench.dataset, mechanism, model or bench.model, parameters, "test")
    job_id = submission.submit(bench.engine, request, bench.analyst)
    approval.probed(bench.engine, job_id, {"template_tokens": 5}, None)
    return job_id


def ran(bench: Bench, job_id: uuid.UUID, *left: Stored) -> None:
    claim = leases.claim(bench.engine, job_id, 1, "a worker", 60)
    assert claim is not None
    settlement.publish(bench.engine, claim, FREE, Output("/nowhere", "0" * 64, left), "a worker")


@pytest.fixture
def trained(open_bench) -> tuple[Bench, uuid.UUID, str]:
    """(a dataset, an adapter's job on it, the corpus)."""
    name = corpus(open_bench)
    job_id = asked(open_bench, "summary-adapter", corpus=name)
    assert jobs.job(open_bench.engine, job_id, open_bench.steward)["state"] == "queued"
    ran(open_bench, job_id, ADAPTER)
    return open_bench, job_id, name


def oneshot(bench: Bench, adapter: uuid.UUID, name: str, **changes: object) -> uuid.UUID:
    raw = {"epsilon": 1.0, "public_size": 500, "adapter": str(adapter), "public_corpus": name}
    return asked(bench, "summary-oneshot", **{**raw, **changes})


def body(bench: Bench, job_id: uuid.UUID) -> dict:
    lines = list(entries.export(bench.engine, bench.dataset, bench.steward, "jsonl"))
    verify_lines(lines)
    found = (json.loads(line) for line in lines)
    return next(e["body"] for e in found if e.get("job") == str(job_id) and e["kind"] == "RESERVE")


def test_a_model_with_two_prompts_in_any_order_is_looked_at_once(open_bench):
    """The row of a job holds its parameters in another order than the request."""
    model = open_bench.model
    job_id = asked(open_bench, "invisible-ink", model, batch_size=8, batches_per_label=1)
    assert jobs.job(open_bench.engine, job_id, open_bench.steward)["state"] != "submitted"


def test_an_adapter_is_read_beside_the_records(trained):
    bench, adapter, name = trained
    job_id = oneshot(bench, adapter, name)
    stated = body(bench, job_id)["source"]
    assert stated["version"] == 1
    assert stated["sources"]["adapter"] == {
        "job": str(adapter),
        "artifacts": {"adapter": ADAPTER.sha256},
    }


def test_summaries_are_proposed_by_an_adapter_and_first_the_adapter(engine):
    policy = {"auto_approve_epsilon": "10"}
    bench = Bench(engine, group_column="kind", groups=["inn", "gym"], policy=policy)
    bench.allow()
    corpus(bench)
    asks = (engine, bench.dataset, "summaries", bench.analyst)
    first = plans.proposal_on(*asks, model=bench.model)
    assert first.mechanism == "summary-adapter"
    assert (first.share, first.output) == (0.0, None)
    job_id = asked(bench, first.mechanism, **first.parameters)
    unfinished = plans.proposal_on(*asks, model=bench.model)
    assert unfinished.mechanism == "summary-adapter"
    ran(bench, job_id, ADAPTER)
    then = plans.proposal_on(*asks, model=bench.model)
    assert then.mechanism == "summary-oneshot"
    assert then.parameters["adapter"] == str(job_id)
    assert then.output is not None
    assert (then.output.what, then.output.number) == ("summaries", 8)
    paid = asked(bench, then.mechanism, **then.parameters)
    assert jobs.job(engine, paid, bench.steward)["state"] == "queued"
    with engine.begin() as connection:
        connection.execute(
            update(tables.corpora)
            .where(tables.corpora.c.name == first.parameters["corpus"])
            .values(state="invalid", facts=null())
        )
    withdrawn = plans.proposal_on(*asks, model=bench.model)
    assert withdrawn.parameters.get("corpus") != first.parameters["corpus"]
    assert withdrawn.mechanism != "summary-oneshot", "its corpus is no longer ready"
    corpus(bench)
    # an adapter serves its own model; a stranger who may not use it trains their own
    other = Bench(engine)
    assert plans.proposal_on(*asks, model=other.model).mechanism == "summary-adapter"
    stranger = (*asks[:3], other.analyst)
    assert plans.proposal_on(*stranger, model=bench.model).mechanism == "summary-adapter"


def test_the_largest_model_is_proposed_that_the_policy_admits(engine):
    small, large = Bench(engine), Bench(engine)
    for bench, weights in ((small, 10**9), (large, 10**10)):
        with engine.begin() as connection:
            mine = tables.models.c.name == bench.model
            facts = {"sha256": uuid.uuid4().hex * 2, "context_tokens": 8192, "parameters": weights}
            connection.execute(update(tables.models).where(mine).values(facts=facts))
    admitted = [small.model, large.model]
    for names, best in ((admitted, large), (admitted[:1], small)):
        found = model_queries.serving(engine, small.analyst, names, ("language",))
        assert found[0].name == best.model
        assert len(found) == len(names)


def test_another_dataset_reads_a_public_job_and_says_where_it_ran(trained, engine):
    bench, adapter, name = trained
    other = Bench(engine, policy={"auto_approve_epsilon": "10"})
    other.allow()
    other.analyst, other.model = bench.analyst, bench.model
    job_id = oneshot(other, adapter, name)
    stated = body(other, job_id)["source"]["sources"]["adapter"]
    assert stated == {
        "job": str(adapter),
        "dataset": bench.dataset,
        "mechanism": "summary-adapter",
        "artifacts": {"adapter": ADAPTER.sha256},
    }
    assert integrity.check(engine, other.dataset) == []


def test_no_ledger_may_name_another_dataset_s_private_job():
    source = {"job": "j", "dataset": "other", "artifacts": {"means": "00"}}
    for mechanism, allowed in (
        ("summary-adapter", True),
        ("summary-oneshot", False),
        ("nothing", False),
    ):
        reserve = {
            "mechanism": "summary-oneshot",
            "parameters": {"adapter": "j"},
            "event": {"type": "gaussian", "noise_multiplier": 1.0},
            "source": {"version": 1, "sources": {"adapter": {**source, "mechanism": mechanism}}},
        }
        fields = dict.fromkeys(Entry.__dataclass_fields__)
        entry = Entry(**{**fields, "kind": EntryKind.RESERVE, "job": "k", "body": reserve})
        if allowed:
            Lineage().add(entry)
            empty = {**source, "mechanism": mechanism, "artifacts": {}}
            reserve["source"]["sources"]["adapter"] = empty
            with pytest.raises(VerificationFailed, match="not public"):
                Lineage().add(replace(entry, body=reserve))
        else:
            with pytest.raises(VerificationFailed, match="not public"):
                Lineage().add(entry)


def test_an_adapter_of_another_model_is_refused(trained):
    bench, adapter, name = trained
    model = f"model-{uuid.uuid4().hex[:8]}"
    made = models.add_model(bench.engine, model, "/nowhere", "public text", bench.steward)
    facts = {
        "sha256": uuid.uuid4().hex * 2,
        "context_tokens": 100_000,
        "end_tokens": [2],
        "layers": 12,
    }
    registration.checked(bench.engine, "model", made, facts, None)
    with pytest.raises(InvalidRequest, match="another model") as refused:
        oneshot(bench, adapter, name, model=model)
    assert refused.value.problems[0].field == "parameters.adapter"


def test_an_adapter_of_other_states_is_refused_by_field(trained):
    bench, adapter, name = trained
    for changes, field in (
        ({"clip": 3.0}, "clip"),
        ({"soft_tokens": 4}, "soft_tokens"),
        ({"public_corpus": corpus(bench)}, "public_corpus"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            oneshot(bench, adapter, name, **changes)
        assert refused.value.problems[0].field == f"parameters.{field}"


def test_counts_of_another_dataset_are_read_nowhere_else(trained, engine):
    """A term list, which is public, serves every dataset; noisy counts, of the right kind too,
    their own.
    """
    bench, _, name = trained
    for module in (None, matches):
        tallies.register(module)
    try:
        other = Bench(engine, policy={"auto_approve_epsilon": "10"})
        other.allow()
        other.analyst = bench.analyst

        def ask(of: Bench, mechanism: str, **parameters: object) -> uuid.UUID:
            request = JobRequest(of.dataset, mechanism, None, parameters, "test")
            return submission.submit(engine, request, of.analyst)

        terms = ask(bench, "vocabulary", corpus=name)
        ran(
            bench,
            terms,
            Stored("terms", "term-list", "application/json", "ef" * 32, 12, "/nowhere/t"),
        )
        tally = ask(bench, "tally", epsilon=1.0)
        claim = leases.claim(engine, tally, 1, "a worker", 60)
        leases.begin_reading(engine, claim)
        event = from_json(jobs.job(engine, tally, bench.steward)["event"])
        left = Stored("counts", "noisy-counts", "application/json", "01" * 32, 12, "/nowhere/c")
        settlement.publish(engine, claim, event, Output("/nowhere", "0" * 64, (left,)), "a worker")
        ask(bench, "match", vocabulary=str(terms), tally=str(tally))
        with pytest.raises(InvalidRequest) as refused:
            ask(other, "match", vocabulary=str(terms), tally=str(tally))
        assert [problem.field for problem in refused.value.problems] == ["parameters.tally"]
    finally:
        for module in (None, matches):
            tallies.forget(module)


def test_means_of_another_dataset_are_nobody_s_artifact(trained, engine):
    """Only what public jobs made serves every dataset."""
    bench, adapter, name = trained
    means = oneshot(bench, adapter, name)
    claim = leases.claim(engine, means, 1, "a worker", 60)
    leases.begin_reading(engine, claim)
    event = from_json(jobs.job(engine, means, bench.steward)["event"])
    left = Stored("means", "noisy-means", "application/x-safetensors", "cd" * 32, 12, "/nowhere/m")
    settlement.publish(engine, claim, event, Output("/nowhere", "0" * 64, (left,)), "a worker")
    other = Bench(engine, policy={"auto_approve_epsilon": "10"})
    other.allow()
    other.analyst, other.model = bench.analyst, bench.model
    with pytest.raises(InvalidRequest, match=r"parameters\.from_job"):
        asked(other, "summary-oneshot", from_job=str(means), adapter=str(adapter))
    free = asked(bench, "summary-oneshot", from_job=str(means), adapter=str(adapter))
    assert jobs.job(engine, free, bench.steward)["state"] == "queued"
    assert jobs.job(engine, free, bench.steward)["epsilon_alone"] == 0
