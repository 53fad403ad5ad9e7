"""A job that writes some labels, or labels of unlike sizes: what it costs, and what it refuses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


CLUSTERS = {"batching": "clusters", "public_corpus": "c", "embedding": "e"}


def test_clusters_are_counted_over_all_labels():
    raw = {"labels": ["a"], **CLUSTERS}
    with pytest.raises(InvalidRequest, match="over all labels"):
        BOTH[0].parse(raw, TERMS)


# --- labels of unlike sizes ---------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", BOTH, ids=lambda each: each.id)
def test_each_label_gets_the_batches_that_its_records_fill(mechanism):
    raw = {"label_counts": [8_100, 720, 180], "batch_size": 64}
    parsed = mechanism.parse(raw, TERMS)
    assert parsed.batches_by_label(TERMS) == {"a": 127, "b": 11, "c": 3}
    assert parsed.batches_run(TERMS) == 141
    assert mechanism.missing(parsed) is None
    assert (
        mechanism.price(parsed, TERMS).dp
        == mechanism.price(mechanism.parse({"batch_size": 64}, TERMS), TERMS).dp
    )
    some = mechanism.parse({**raw, "labels": ["c", "a"]}, TERMS)
    assert some.batches_by_label(TERMS) == {"c": 3, "a": 127}
    assert mechanism.parse(parsed.model_dump(mode="json"), TERMS) == parsed


@pytest.mark.parametrize(
    ("raw", "field", "problem"),
    [
        ({"label_counts": [1, 2]}, "label_counts", "2 for a dataset with 3 labels"),
        ({"label_counts": [1, -2, 3]}, "label_counts", ""),
        (
            {"label_counts": [1, 10**12, 3], "batch_size": 64},
            "label_counts",
            "over 1,000,000 batches of 64",
        ),
        ({"label_counts": [1, 2, 3], "batches_per_label": 5}, "batches_per_label", "given beside"),
        (
            {"label_counts": [1, 2, 3], "amplification": "allocation", "batches_to_run": 1},
            "batches_to_run",
            "given beside",
        ),
    ],
)
@pytest.mark.parametrize("mechanism", BOTH, ids=lambda each: each.id)
def test_counts_that_can_not_be_are_named(mechanism, raw, field, problem):
    with pytest.raises(InvalidRequest) as found:
        mechanism.parse(raw, TERMS)
    (only,) = found.value.problems
    assert only.field.startswith(field)
    assert problem in only.problem


def test_counts_change_no_price_of_clusters():
    raw = {**CLUSTERS, "clusters": 60, "batch_size": 64}
    parsed = BOTH[0].parse({**raw, "label_counts": [8_100, 720, 180]}, TERMS)
    assert parsed.batches_by_label(TERMS) == {"a": 127, "b": 11, "c": 3}
    assert BOTH[0].price(parsed, TERMS).dp == BOTH[0].price(BOTH[0].parse(raw, TERMS), TERMS).dp


SECRET = {"label_counts": [8_100, 720, 180], "batch_size": 64, "amplification": "allocation"}


@pytest.mark.parametrize("neighbours", list(Neighbours))
@pytest.mark.parametrize("mechanism", BOTH, ids=lambda each: each.id)
def test_a_coin_is_worth_what_the_label_with_the_fewest_batches_makes_it(mechanism, neighbours):
    terms = Terms(neighbours, public_size=9_000, labels=TERMS.labels)
    three = {**SECRET, "label_counts": (), "batches_per_label": 3}
    price = mechanism.price(mechanism.parse(SECRET, terms), terms)
    assert price.dp == mechanism.price(mechanism.parse(three, terms), terms).dp
    assert any("of the label with the fewest" in line for line in price.breakdown)
    without = mechanism.parse({**SECRET, "labels": ["a", "b"]}, terms)
    eleven = mechanism.parse({**three, "batches_per_label": 11}, terms)
    assert mechanism.price(without, terms).dp == mechanism.price(eleven, terms).dp


@pytest.mark.parametrize("mechanism", BOTH, ids=lambda each: each.id)
def test_records_of_a_unit_in_two_labels_want_as_many_batches_in_each(mechanism):
    terms = Terms(public_size=9_000, labels=TERMS.labels, max_records_per_unit=2)
    with pytest.raises(InvalidRequest, match="share a coin"):
        mechanism.parse(SECRET, terms)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=3, max_size=3), st.integers(1, 300))
def test_a_batch_holds_about_as_many_records_as_are_divided_by(counts, size):
    """Within a tenth from five batches on, and never more than half as many again."""
    parsed = BOTH[0].parse({"label_counts": counts, "batch_size": size}, TERMS)
    for count, batches in zip(counts, parsed.batches_by_label(TERMS).values(), strict=True):
        held = count / batches
        assert held <= 1.5 * size
        if count >= 5 * size:
            assert abs(held / size - 1) <= 0.1 + 1e-9


def test_the_quote_says_the_effective_temperature():
    unlike = "90/8/2 %: 45,000, 4,000 and 1,000 records"
    terms = Terms(public_size=50_000, labels=TERMS.labels)
    uneven = BOTH[0].parse({"batch_size": 64, "batches_per_label": 78}, terms)
    assert any(
        "a batch holds 213.7 records" in line for line in BOTH[0].price(uneven, terms).breakdown
    ), unlike
    fitting = BOTH[0].parse({"batch_size": 64, "label_counts": [45_000, 4_000, 1_000]}, terms)
    (line,) = (each for each in BOTH[0].price(fitting, terms).breakdown if "effective" in each)
    assert "temperature of 1.488 to 1.536" in line
