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
    tokens = utility_runs.fitted("private-prediction", RAW, TERMS, epsilon, "tokens_per_batch")
    assert costs(tokens) <= epsilon < costs(tokens + 1)


def _corpus(each: int):
    from benchmarks.utility_data import Corpus

    pairs = [(label, f"text {number} of {label}") for number in range(each) for label in ("a", "b")]
    part = balanced(pairs, ("a", "b"), None)
    return Corpus("made up", ("a", "b"), part, part)


def test_parts_are_balanced_over_labels():
    pairs = [("a", f"a{n}") for n in range(30)] + [("b", f"b{n}") for n in range(7)]
    assert Counter(balanced(pairs, ("a", "b"), None).labels) == {"a": 7, "b": 7}
    assert Counter(balanced(pairs, ("a", "b"), 9).labels) == {"a": 4, "b": 4}


@given(arrays(np.float32, (6, 5), elements=st.floats(-1, 1, width=32)), st.integers(0, 5))
def test_one_point_moves_the_sums_of_dp_kmeans_by_no_more_than_its_price(points, without):
    centres = unit(np.eye(3, 5, dtype=np.float32))
    change = sums(points, centres) - sums(np.delete(points, without, axis=0), centres)
    assert int((change.astype(object) ** 2).sum()) <= SENSITIVITY**2


# --- the whole ----------------------------------------------------------------------------------


@pytest.mark.slow
@needs_shared
def test_tables_are_filled_in_pieces_on_the_bundled_model(tmp_path):
    sizes = Sizes(seeds=1, records=24, texts=12, tokens=6, batch=4, clip=1.0, epsilon=3.0)
    never = Store(tmp_path, seconds=0)
    empty = utility_tables.examples(Bench(SAMPLE, "ag_news", sizes, never))
    whole = utility_tables.examples(Bench(SAMPLE, "ag_news", sizes, Store(tmp_path)))
    again = utility_tables.examples(Bench(SAMPLE, "ag_news", sizes, never))
    assert [row[0] for row in empty.rows] == [row[0] for row in again.rows]
    assert "–" in empty.rows[-1]
    assert whole.rows == again.rows
    assert all("–" not in row for row in again.rows), again.markdown()
