"""Selection by released counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.evolution.population import survivors

COUNTS = st.lists(st.integers(-50, 50), max_size=12)


@given(COUNTS, st.integers(1, 15), st.integers(0, 99))
def test_rank_keeps_the_largest_each_once(counts, samples, seed):
    found = survivors(np.array(counts, np.int64), samples, "rank", np.random.default_rng(seed))
    assert len(found) == len(set(found)) == min(samples, len(counts))
    kept = [counts[place] for place in found]
    assert kept == sorted(kept, reverse=True)
    assert sorted(kept) == sorted(counts)[len(counts) - len(kept) :]


def test_rank_breaks_ties_at_random_so_that_none_survives_for_its_place():
    kept = [survivors(np.zeros(10), 3, "rank", np.random.default_rng(seed)) for seed in range(200)]
    assert {place for each in kept for place in each} == set(range(10))


@given(COUNTS, st.integers(1, 15), st.integers(0, 99))
def test_draws_are_of_positive_counts_where_there_are_any(counts, samples, seed):
    found = survivors(np.array(counts, np.int64), samples, "draw", np.random.default_rng(seed))
    assert len(found) == (samples if counts else 0)
    if any(each > 0 for each in counts):
        assert all(counts[place] > 0 for place in found)


def test_draws_are_in_proportion_to_the_counts():
    found = survivors(np.array([30, -5, 10, 0]), 20_000, "draw", np.random.default_rng(0))
    shares = np.bincount(found, minlength=4) / len(found)
    assert shares == pytest.approx([0.75, 0, 0.25, 0], abs=0.02)
