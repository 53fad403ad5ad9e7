"""Requests for private prediction that can't run are refused before anything is reserved or
read.
"""

import pytest

from accountant.core.errors import InvalidRequest
from accountant.core.ledger.allowances import Allowance
from accountant.queries import entries, jobs
from accountant.transactions import allowances
from tests.support import Bench, public_things, yes

CLUSTERS = {"batching": "clusters", "clusters": 4, "public_centres": 50}
PUBLIC = {"examples_per_context": 2, "context_partner": "public"}
MEDIAN = {"aggregation": "median", "ex_post_cap": 1.0}


@pytest.fixture
def bench(engine) -> Bench:
    made = Bench(engine, label_column="label", labels=["good", "bad"])
    allowances.allow(
        engine, made.dataset, Allowance("10", "0.0000029053", "a test", ex_post="5"), made.steward
    )
    return made


@pytest.mark.parametrize(
    ("raw", "named", "field", "problem"),
    [
        (CLUSTERS, (), "public_corpus", "not given"),
        (CLUSTERS, ("public_corpus",), "embedding", "not given"),
        (PUBLIC, (), "public_corpus", "not given"),
        ({**PUBLIC, "context_partner": "shot"}, (), "shots", "not given"),
        (
            {**CLUSTERS, "public_centres": 101},
            ("public_corpus", "embedding"),
            "public_centres",
            "100 texts",
        ),
        (PUBLIC, ("public_corpus",), "public_corpus", "no text of the dataset's label 'bad'"),
        (MEDIAN, ("public_corpus",), "public_corpus", "no text of the dataset's label 'bad'"),
        (CLUSTERS | {"public_corpus": "elsewhere"}, ("embedding",), "public_corpus", "no corpus"),
        (CLUSTERS | {"embedding": "elsewhere"}, ("public_corpus",), "embedding", "no embedding"),
    ],
)
def test_what_lacks_public_things_is_refused_by_name(bench, raw, named, field, problem):
    things = public_things(bench.engine, bench.steward, 100, ["good", "other"])
    before = len(entries.entries(bench.engine, bench.dataset, bench.auditor))
    with pytest.raises(InvalidRequest) as refused:
        bench.submit(5, **raw, **{name: things[name] for name in named})
    (found,) = refused.value.problems
    assert found.field == f"parameters.{field}"
    assert problem in found.problem
    assert len(entries.entries(bench.engine, bench.dataset, bench.auditor)) == before


@pytest.mark.parametrize("labels", [[], ["good", "bad", "other"]])
def test_what_fits_is_reserved_with_the_hashes_of_what_it_names(bench, labels):
    things = public_things(bench.engine, bench.steward, 100, labels)
    bench.probe(bench.submit(1, **PUBLIC, public_corpus=things["public_corpus"]))
    job_id = bench.submit(5, **CLUSTERS, **PUBLIC, **things)
    yes(bench.engine, job_id, bench.steward, "fine")
    assert jobs.job(bench.engine, job_id, bench.analyst)["state"] == "queued"
    reserve = entries.entries(bench.engine, bench.dataset, bench.auditor)[0]
    assert set(reserve["body"]["source"]["public"]) == {"public_corpus", "embedding"}


def test_labels_of_a_corpus_do_not_matter_where_only_centres_come_from_it(bench):
    things = public_things(bench.engine, bench.steward, 100, ["other"])
    job_id = bench.submit(5, **CLUSTERS, **things)
    assert jobs.job(bench.engine, job_id, bench.analyst)["state"] == "submitted"
