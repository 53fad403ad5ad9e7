"""Clusters and pairs: what one unit moves, computed with and without it, against what is
charged.
"""

import hashlib
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core import mechanisms
from accountant.core.mechanisms.private_prediction import count_sensitivity, shift, slots
from accountant.core.privacy.price import Neighbours, Terms
from workers.data.records import Record, Records
from workers.embedding.clustering import (
    TEXTS_PER_CENTRE,
    Reservoir,
    count,
    embedded,
    keep,
    public_centres,
    within,
)
from workers.embedding.neighbours import unit
from workers.embedding.phrase_vectors import WordVectors
from workers.engine.aggregation import GRID

pytestmark = pytest.mark.slow

PRICE = mechanisms.get("private-prediction")
LABELS = ("a", "b")
WORDS = [f"w{number}" for number in range(20)]
EMBEDDER = WordVectors(WORDS, unit(np.random.default_rng(0).standard_normal((20, 6))))
CENTRES = unit(np.random.default_rng(1).standard_normal((7, 6)))

TEXTS = st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=4).map(" ".join)
UNITS = st.lists(st.tuples(st.sampled_from(LABELS), TEXTS), min_size=1, max_size=3)
KEYS = st.binary(min_size=32, max_size=32)


def dataset(units: list[list[tuple[str, str]]], bound: int, key: bytes) -> Records:
    held = [Record(f"u{i}", *each) for i, unit_ in enumerate(units) for each in unit_[:bound]]
    return Records(LABELS, tuple(held), key)


def counts_of(data: Records) -> np.ndarray:
    return count(embedded(data, EMBEDDER, 16, lambda: None), CENTRES)


@settings(deadline=None)
@given(st.lists(UNITS, max_size=5), UNITS, UNITS, st.integers(1, 3), KEYS)
def test_one_unit_moves_the_cluster_counts_by_no_more_than_is_charged(others, old, new, bound, key):
    without, before, after = ([*others, *more] for more in ([], [old], [new]))
    for neighbours, one, two in (
        (Neighbours.ADD_REMOVE, without, before),
        (Neighbours.REPLACE_ONE, before, after),
    ):
        terms = Terms(neighbours, max_records_per_unit=bound, labels=LABELS)
        moved = np.abs(counts_of(dataset(one, bound, key)) - counts_of(dataset(two, bound, key)))
        assert moved.shape == (2, 7)
        assert moved.sum() <= count_sensitivity(terms)


def test_the_worst_units_reach_what_is_charged():
    """Three records that lie in three counts, and three others in their stead."""
    first, second = ([("a", WORDS[i]), ("b", WORDS[i]), ("a", WORDS[i + 1])] for i in (0, 5))
    ends = [counts_of(dataset(units, 3, b"k")) for units in ([], [first], [second])]
    assert np.abs(ends[1] - ends[0]).sum() == count_sensitivity(Terms(max_records_per_unit=3))
    assert np.abs(ends[2] - ends[1]).sum() == count_sensitivity(
        Terms(Neighbours.REPLACE_ONE, max_records_per_unit=3)
    )


# --- batches ------------------------------------------------------------------------------------


def vector(context: tuple[str, ...]) -> np.ndarray:
    """Return a stand-in for a context's clipped logits: any function of it, within the grid's
    ends.
    """
    seed = int.from_bytes(hashlib.sha256("\0".join(context).encode()).digest()[:8], "big")
    return np.random.default_rng(seed).choice([-GRID, GRID, 0, 17], 12)


def sums(contexts: dict) -> dict:
    return {
        place: sum(map(vector, held), np.zeros(12, np.int64)) for place, held in contexts.items()
    }


def grouped(
    data: Records, partner: str | None, noisy: np.ndarray, parameters
) -> tuple[dict, list[Counter]]:
    """(sums, contexts) of each batch, given the released counts."""
    places = None
    if parameters.batching == "clusters":
        made = keep(CENTRES, noisy, 3, [parameters.batches_per_label] * 2)
        places = within(embedded(data, EMBEDDER, 16, lambda: None), data, made)
    if partner in ("exact-slot", "lowest-hash"):
        found = data.pairs(
            parameters.batches_per_label, slots(parameters), partner == "lowest-hash", places
        )
    else:
        batches = data.batches(parameters.batches_per_label, places)
        found = {place: [(text,) for text in texts] for place, texts in batches.items()}
    return sums(found), found


@settings(deadline=None, max_examples=200)
@given(
    st.lists(UNITS, max_size=14),
    UNITS,
    UNITS,
    st.integers(1, 3),
    KEYS,
    st.sampled_from(["uniform", "clusters"]),
    st.sampled_from([None, "exact-slot", "lowest-hash"]),
    st.lists(st.integers(-20, 20), min_size=14, max_size=14),
)
def test_one_unit_moves_each_batch_by_no_more_than_is_charged(
    others, old, new, bound, key, batching, partner, noise
):
    """The sums with and without it, in exact integers, over random data, keys and released
    counts.
    """
    noisy = np.array(noise).reshape(2, 7)
    raw = {
        "batch_size": 2,
        "batches_per_label": 4,
        "batching": batching,
        "clusters": 6,
        "public_centres": 7,
    }
    raw |= {"examples_per_context": 2, "context_partner": partner} if partner else {}
    for neighbours, more in (
        (Neighbours.ADD_REMOVE, ([], [old])),
        (Neighbours.REPLACE_ONE, ([old], [new])),
    ):
        terms = Terms(neighbours, max_records_per_unit=bound, labels=LABELS)
        parameters = PRICE.parse(raw, terms)
        (one, _), (two, _) = (
            grouped(dataset([*others, *each], bound, key), partner, noisy, parameters)
            for each in more
        )
        scale = Fraction(parameters.clip) / (
            GRID * parameters.batch_size * Fraction(parameters.temperature)
        )
        moves = [int(np.abs(one[place] - two[place]).max()) * scale for place in one]
        allowed = shift(parameters, terms)
        twice = neighbours is Neighbours.REPLACE_ONE
        assert len(one) == 8
        assert max(moves) <= allowed * (2 if twice else 1)
        # Units of one record: one batch, or two by the shift each, which is what the event covers.
        assert sum(moves) <= allowed * (2 if twice else 1)
        if bound == 1:
            assert sum(move > 0 for move in moves) <= (2 if twice else 1)


@given(st.lists(UNITS, min_size=1, max_size=12), KEYS)
def test_a_record_changes_pairs_as_its_rule_says(units, key):
    """exact-slot: one pair comes or goes. lowest-hash: one comes or goes, or is another."""
    terms = Terms(labels=LABELS)
    for partner in ("exact-slot", "lowest-hash"):
        raw = {
            "batch_size": 1,
            "batches_per_label": 1,
            "examples_per_context": 2,
            "context_partner": partner,
        }
        parameters = PRICE.parse(raw, terms)
        noisy = np.zeros((2, 7), np.int64)
        found = [
            grouped(dataset(each, 1, key), partner, noisy, parameters)[1]
            for each in (units, units[:-1])
        ]
        with_it, without = (
            Counter(pair for held in each.values() for pair in held) for each in found
        )
        gone, come = (without - with_it).total(), (with_it - without).total()
        assert gone + come <= (1 if partner == "exact-slot" else 2)
        assert max(gone, come) <= 1


def test_slots_give_about_as_many_contexts_as_the_mean_divides_by():
    """At two records a slot; 400 slots' shares are within 5 standard errors of the batch size."""
    for partner in ("exact-slot", "lowest-hash"):
        raw = {
            "examples_per_context": 2,
            "context_partner": partner,
            "batch_size": 100,
            "batches_per_label": 4,
        }
        parameters = PRICE.parse(raw, Terms())
        number = slots(parameters)
        data = Records(
            (None,), tuple(Record(f"u{i}", None, f"t{i}") for i in range(8 * number)), b"k" * 32
        )
        pairs = data.pairs(4, number, partner == "lowest-hash")
        held = sum(map(len, pairs.values()))
        assert abs(held - 400) < 5 * 400**0.5
        assert (
            PRICE.parse(
                raw | {"batches_per_label": None}, Terms(public_size=80 * number)
            ).batches_per_label
            == 40
        )


def test_without_clusters_nothing_changes_and_shares_of_a_job_are_its_batches():
    units = [[("a", "w1 w2"), ("b", "w3")], [("a", "w4")], [("b", "")]]
    data = dataset(units, 2, b"k" * 32)
    whole = data.batches(3, [(0, 3)] * len(data.records))
    assert whole == data.batches(3)
    assert sum(map(len, whole.values())) == len(data.records)


# --- what is released ---------------------------------------------------------------------------


@given(
    st.lists(st.integers(-50, 500), min_size=14, max_size=14),
    st.integers(1, 7),
    st.integers(0, 40),
    st.data(),
)
def test_kept_are_the_largest_noisy_counts_and_every_batch_is_given_out(
    noise, clusters, more, data
):
    noisy = np.array(noise).reshape(2, 7)
    made = keep(CENTRES, noisy, clusters, [clusters + more] * 2)
    for row, kept, many in zip(noisy, made.kept, made.batches, strict=True):
        assert len(set(kept)) == clusters
        assert sorted(row[kept]) == sorted(row)[-clusters:]
        assert many.min() >= 1
        assert many.sum() == clusters + more


def test_a_label_of_fewer_batches_keeps_as_many_clusters_and_each_record_is_in_one():
    """A rare label's records are not spread over batches that they can't fill."""
    noisy = np.array([[9, 8, 7, 6, 5, 4, 3], [1, 2, 9, 3, 8, 4, 5]])
    made = keep(CENTRES, noisy, 4, [2, 6])
    assert (made.batches > 0).sum(axis=1).tolist() == [2, 4]
    assert made.kept[0][made.batches[0] > 0].tolist() == [0, 1]
    assert made.batches.sum(axis=1).tolist() == [2, 6]
    data = dataset([[("a", word)] for word in WORDS[:20]], 1, b"k" * 32)
    places = within(embedded(data, EMBEDDER, 16, lambda: None), data, made)
    assert {first for first, _ in places} == {0, 1}
    assert {many for _, many in places} == {1}


def test_larger_clusters_have_more_batches_in_proportion():
    noisy = np.array([[600, 300, 100, -5, 0, 0, 0]])
    far = unit(np.eye(7, dtype=np.float32))
    made = keep(far, noisy, 3, [10])
    assert made.kept.tolist() == [[0, 1, 2]]
    assert made.batches.tolist() == [[6, 3, 1]]


def test_a_record_without_an_embedding_is_in_a_fixed_cluster():
    made = keep(CENTRES, np.arange(14).reshape(2, 7), 3, [9, 9])
    data = dataset([[("a", "unknown")], [("b", "")], [("a", "w1")]], 1, b"k" * 32)
    assert counts_of(data).sum() == 1
    places = within(embedded(data, EMBEDDER, 16, lambda: None), data, made)
    assert places[0] == (0, made.batches[0][0])
    assert places[1] == (0, made.batches[1][0])


def test_centres_are_made_of_public_texts_and_of_no_more_than_can_be_embedded():
    texts = [f"{WORDS[i % 20]} {WORDS[i % 7]}" for i in range(300)]
    centres = public_centres(iter(texts), EMBEDDER, 12, 16)
    assert centres.shape == (12, 6)
    assert np.array_equal(centres, public_centres(iter(texts), EMBEDDER, 12, 16))
    assert public_centres(iter(["unknown", "", "w1", "w2"]), EMBEDDER, 4, 16).shape == (2, 6)
    with pytest.raises(ValueError, match="usable"):
        public_centres(iter(["unknown", ""]), EMBEDDER, 2, 16)


def test_the_reservoir_keeps_so_many_and_always_the_same():
    pools = [Reservoir(50) for _ in range(2)]
    for pool in pools:
        for number in range(TEXTS_PER_CENTRE * 10):
            pool.add(str(number))
    assert pools[0].kept == pools[1].kept
    assert len(set(pools[0].kept)) == 50
    assert np.mean([int(text) for text in pools[0].kept]) == pytest.approx(
        500, abs=5 * 289 / 50**0.5
    )


def test_cancelling_is_noticed_between_pieces():
    data = dataset([[("a", "w1")]] * 3, 1, b"k" * 32)

    def cancelled() -> None:
        raise RuntimeError("cancelled")

    with pytest.raises(RuntimeError, match="cancelled"):
        count(embedded(data, EMBEDDER, 16, cancelled), CENTRES)
