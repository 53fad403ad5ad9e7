"""Saved requests: who sees, uses and deletes them."""

import pytest

from accountant.catalogue import saved_requests
from accountant.core.errors import InvalidRequest, NotFound
from accountant.core.ledger.policy import Policy
from accountant.transactions import proposals
from tests.support import Bench, person


@pytest.fixture(scope="module")
def bench(engine) -> Bench:
    return Bench(engine)


def save(bench: Bench, actor=None, name="weekly", shared=False, **parameters):
    asked = ("private-prediction", bench.model, {"tokens_per_batch": 5, **parameters}, shared)
    return saved_requests.save(bench.engine, bench.dataset, actor or bench.analyst, name, *asked)


def names(bench: Bench, viewer) -> list[tuple[str, bool]]:
    found = saved_requests.listing(bench.engine, bench.dataset, viewer)
    return [(each.name, each.mine) for each in found]


def test_ones_own_are_ones_own_and_shared_ones_are_the_datasets_peoples(bench):
    other = person(bench.engine, "analyst")
    own, both = save(bench, name="own"), save(bench, name="both", shared=True)
    assert names(bench, bench.analyst) == [("both", True), ("own", True)]
    assert names(bench, other) == [("both", False)]
    assert saved_requests.show(bench.engine, bench.dataset, both, other).parameters == {"tokens_per_batch": 5}
    with pytest.raises(NotFound):
        saved_requests.show(bench.engine, bench.dataset, own, other)
    with pytest.raises(NotFound):
        saved_requests.show(bench.engine, Bench(bench.engine).dataset, both, bench.analyst)
    proposals.set_policy(bench.engine, bench.dataset, Policy(analysts=(bench.analyst.name,)), bench.steward)
    assert names(bench, other) == [], "who may not ask on the dataset is none of its people"
    assert names(bench, bench.steward) == [("both", False)]
    proposals.set_policy(bench.engine, bench.dataset, Policy(), bench.steward)
    with pytest.raises(NotFound):
        saved_requests.remove(bench.engine, bench.dataset, both, other)
    with pytest.raises(NotFound):
        saved_requests.remove(bench.engine, bench.dataset, own, bench.steward)
    saved_requests.remove(bench.engine, bench.dataset, both, bench.steward)
    saved_requests.remove(bench.engine, bench.dataset, own, bench.analyst)
    assert names(bench, bench.analyst) == []


def test_a_name_stands_for_one_request_and_limits_are_named(bench, monkeypatch):
    actor = person(bench.engine, "analyst")
    first = save(bench, actor)
    assert save(bench, actor, tokens_per_batch=6) == first
    (found,) = saved_requests.listing(bench.engine, bench.dataset, actor)
    assert found.parameters == {"tokens_per_batch": 6}
    for name in ("", " ", "x" * 81, "two\nlines"):
        with pytest.raises(InvalidRequest, match="1 to 80 characters"):
            save(bench, actor, name)
    with pytest.raises(InvalidRequest, match="bytes in all"):
        save(bench, actor, template="x" * 40_001)
    monkeypatch.setattr(saved_requests, "MOST", 2)
    save(bench, actor, "second")
    with pytest.raises(InvalidRequest, match="you have 2 on this dataset"):
        save(bench, actor, "third")
    assert save(bench, actor, "second")
