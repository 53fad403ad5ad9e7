"""A job that writes some of a dataset's labels: what it costs, and what it refuses."""

import pytest

from accountant.core import mechanisms
from accountant.core.errors import InvalidRequest
from accountant.core.privacy.price import Neighbours, Terms

TERMS = Terms(public_size=9_000, labels=("a", "b", "c"))
BOTH = [mechanisms.get("private-prediction"), mechanisms.get("invisible-ink")]


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("mechanism", BOTH, ids=lambda each: each.id)
def test_it_costs_as_much_and_runs_less(mechanism, neighbours):
    """A unit is in one batch whatever the labels are, so fewer labels cost no less."""
    terms = Terms(neighbours, public_size=9_000, labels=TERMS.labels)
    everything, some = (mechanism.parse(raw, terms) for raw in ({}, {"labels": ["c", "a"]}))
    assert mechanism.price(some, terms).dp == mechanism.price(everything, terms).dp
    assert some.batches_per_label == everything.batches_per_label
    assert 3 * some.batches_run(terms) == 2 * everything.batches_run(terms)


@pytest.mark.parametrize(
    ("labels", "problem"), [(["d"], "'d' is no label"), (["a", "b", "a"], "a label is named twice")]
)
@pytest.mark.parametrize("mechanism", BOTH, ids=lambda each: each.id)
def test_labels_that_can_not_be_are_named(mechanism, labels, problem):
    with pytest.raises(InvalidRequest) as found:
        mechanism.parse({"labels": labels}, TERMS)
    (only,) = found.value.problems
    assert only.field.endswith("labels")
    assert problem in only.problem
    assert only.allowed


def test_clusters_are_counted_over_all_labels():
    raw = {"labels": ["a"], "batching": "clusters", "public_corpus": "c", "embedding": "e"}
    with pytest.raises(InvalidRequest, match="over all labels"):
        BOTH[0].parse(raw, TERMS)
