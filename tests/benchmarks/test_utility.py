"""The harness of benchmarks.utility: cells are made once, the price matches tokens, tables hide
nothing.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import workers
from accountant.core import mechanisms
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.price import Terms
from benchmarks import utility_runs, utility_tables
from benchmarks.utility_bench import Bench, Sizes
from benchmarks.utility_cells import Repeats, Store, Table
from benchmarks.utility_clusters import SENSITIVITY, sums
from benchmarks.utility_data import balanced
from tests.support import needs_shared
from workers.data.records import Record
from workers.embedding.neighbours import unit

SAMPLE = Path(workers.__file__).parent / "sample" / "model"
SETTINGS = {"model": "a", "repeat": 0}


# --- cells --------------------------------------------------------------------------------------


def test_a_finished_cell_is_not_made_again_and_other_settings_are_another_cell(tmp_path):
    runs = Counter()

    def make():
        runs["made"] += 1
        return {"texts": ["ä"], "epsilon": None}

    first = Store(tmp_path).once("texts", SETTINGS, make)
    assert Store(tmp_path).once("texts", {"repeat": 0, "model": "a"}, make) == first
    assert runs["made"] == 1
    Store(tmp_path).once("texts", {**SETTINGS, "repeat": 1}, make)
    Store(tmp_path).once("figures", SETTINGS, make)
    assert runs["made"] == 3


def test_a_cell_that_broke_off_is_made_again(tmp_path):
    def broken():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).once("texts", SETTINGS, broken)
    assert Store(tmp_path).once("texts", SETTINGS, lambda: {"value": 1}) == {"value": 1}


def test_when_the_time_is_over_only_finished_cells_are_shown(tmp_path):
    Store(tmp_path).once("texts", SETTINGS, lambda: {"value": 1})
    late = Store(tmp_path, seconds=0)
    assert late.once("texts", SETTINGS, lambda: {"value": 2}) == {"value": 1}
    assert late.once("texts", {**SETTINGS, "repeat": 1}, lambda: {"value": 2}) is None
    assert late.left_out == 1


def test_a_missing_repeat_is_counted_and_never_filled_in():
    repeats = Repeats(3)
    assert repeats.shown() == "–"
    for value in (0.5, None, 0.7):
        repeats.add(value)
    assert repeats.shown(1) == "0.6 ± 0.1 (2 of 3)"


def test_a_table_has_its_settings_beside_it():
    text = Table(
        "t", "Title", ["a", "b"], [["1", "2"]], {"ε": 10.0, "seeds": [1, 2]}, ["a note"]
    ).markdown()
    assert text.splitlines() == [
        "### Title", "", "ε 10; seeds 1, 2.", "", "| a | b |", "|---|---|", "| 1 | 2 |", "",
        "- a note"
    ]  # fmt: skip


# --- what is compared ---------------------------------------------------------------------------

TERMS = Terms(delta=1e-3, labels=("a", "b"), public_size=100)
RAW = {
    "batch_size": 16,
    "clip": 6.0,
    "temperature": 1.0,
    "batches_per_label": 3,
    "max_text_tokens": 4,
}


@pytest.mark.slow
@given(st.floats(1.0, 20.0))
def test_the_mean_gets_the_most_tokens_that_its_epsilon_allows(epsilon):
    mechanism = mechanisms.get("private-prediction")

    def costs(tokens: int) -> float:
        price = mechanism.price(mechanism.parse({**RAW, "tokens_per_batch": tokens}, TERMS), TERMS)
        return epsilon_alone(price.dp, TERMS.delta)[0]

    if costs(RAW["max_text_tokens"]) > epsilon:
        return  # texts of that length have no room
    tokens = utility_runs.most_tokens("private-prediction", RAW, TERMS, epsilon)
    assert costs(tokens) <= epsilon < costs(tokens + 1)


def test_the_median_writes_as_much_as_the_mean_from_as_many_contexts():
    mechanism = mechanisms.get("private-prediction")
    mean = {**RAW, "tokens_per_batch": 20}
    one, other = (
        mechanism.parse(raw, TERMS).model_dump() for raw in (mean, utility_tables.matched(mean))
    )
    assert {name for name in one if one[name] != other[name]} == {"aggregation", "ex_post_cap"}


def test_vectors_and_shots_together_stay_within_epsilon():
    raw = {"layers": "1", "samples_per_label": 20, "samples": 4, "candidates": 4}
    corpus = _corpus(40)
    terms = utility_runs.terms_of(corpus)
    epsilon = utility_runs.epsvec_epsilon(corpus, raw, 3.0)
    mechanism = mechanisms.get("epsvec")
    price = mechanism.price(mechanism.parse({**raw, "epsilon": epsilon}, terms), terms)
    assert 2.9 < epsilon_alone(price.dp, terms.delta)[0] <= 3.0


def _corpus(each: int):
    from benchmarks.utility_data import Corpus

    pairs = [(label, f"text {number} of {label}") for number in range(each) for label in ("a", "b")]
    part = balanced(pairs, ("a", "b"), None)
    return Corpus("made up", ("a", "b"), part, part)


def test_parts_are_balanced_over_labels():
    pairs = [("a", f"a{n}") for n in range(30)] + [("b", f"b{n}") for n in range(7)]
    assert Counter(balanced(pairs, ("a", "b"), None).labels) == {"a": 7, "b": 7}
    assert Counter(balanced(pairs, ("a", "b"), 9).labels) == {"a": 4, "b": 4}


@needs_shared
def test_sorted_batches_hold_every_record_once_in_equal_batches():
    records = tuple(
        Record(f"u{n}", "ab"[n % 2], f"the {n % 5} ball and goal {n}") for n in range(50)
    )
    for clusters in (1, 4):
        found = utility_runs.Sorted(("a", "b"), records, b"k", clusters=clusters).batches(5)
        assert {place: len(texts) for place, texts in found.items()} == {
            (x, i): 5 for x in "ab" for i in range(5)
        }
        assert Counter(text for texts in found.values() for text in texts) == Counter(
            r.text for r in records
        )


@given(arrays(np.float32, (6, 5), elements=st.floats(-1, 1, width=32)), st.integers(0, 5))
def test_one_point_moves_the_sums_of_dp_kmeans_by_no_more_than_its_price(points, without):
    centres = unit(np.eye(3, 5, dtype=np.float32))
    change = sums(points, centres) - sums(np.delete(points, without, axis=0), centres)
    assert int((change.astype(object) ** 2).sum()) <= SENSITIVITY**2


# --- the whole ----------------------------------------------------------------------------------


@pytest.mark.slow
@needs_shared
@pytest.mark.parametrize("also", [(), pytest.param(("epsvec",), marks=pytest.mark.release)])
def test_tables_are_filled_in_pieces_on_the_bundled_model(tmp_path, also):
    sizes = Sizes(
        seeds=1,
        records=24,
        texts=12,
        tokens=6,
        batch=4,
        clip=1.0,
        epsilon=3.0,
        clusters=1,
        public_centres=4,
        layers="0",
    )
    empty = utility_tables.prediction(Bench(SAMPLE, "ag_news", sizes, Store(tmp_path, seconds=0)))
    store = Store(tmp_path)
    for name in ("prediction", *also):
        table = getattr(utility_tables, name)(Bench(SAMPLE, "ag_news", sizes, store))
        assert all("–" not in row[1:] for row in table.rows), table.markdown()
    again = utility_tables.prediction(Bench(SAMPLE, "ag_news", sizes, Store(tmp_path, seconds=0)))
    assert [row[0] for row in empty.rows] == [row[0] for row in again.rows]
    assert "–" in empty.rows[-1]
    assert "–" not in again.rows[-1]
    median = next(row for row in again.rows if row[0] == "median, clusters")
    assert "ex post + 0." in median[1]  # what it cost, and the noisy counts
