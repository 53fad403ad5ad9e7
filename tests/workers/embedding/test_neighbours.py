"""Votes depend on each record alone, ties go to the lower number, and memory does not grow with
records.
"""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.embedding.neighbours import (
    GRID,
    _to_grid,
    kmeans,
    nearest,
    shared_votes,
    unit,
    votes,
    weighted_votes,
)


def points(seed: int, count: int, width: int = 24) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def reference(own: np.ndarray, candidates: np.ndarray, k: int) -> np.ndarray:
    """Integers of any size, sorted by (similarity descending, number)."""
    left, right = (_to_grid(each)[0].astype(int) for each in (own, candidates))
    return np.argsort(-(left @ right.T), axis=1, kind="stable")[:, :k]


@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 600),
    k=st.integers(1, 5),
    width=st.integers(1, 80),
)
def test_the_nearest_are_those_of_integer_arithmetic(seed, rows, k, width):
    own, candidates = points(seed, rows, width), points(seed + 1, 40, width)
    candidates[7] = candidates[3]  # equals: the lower number first
    assert np.array_equal(nearest(own, candidates, k), reference(own, candidates, k))


def test_products_and_sums_on_the_grid_are_exact():
    """Also for the worst of rows: all weight in one component, or spread evenly over thousands."""
    for width in (1, 3, 384, 4096):
        rows = np.vstack([np.eye(1, width), np.ones((1, width)), points(5, 30, width)]).astype(
            np.float32
        )
        grid, _ = _to_grid(np.vstack([rows, rows * 1e-30, rows * 1e30]))
        assert np.array_equal(grid, np.rint(grid))
        assert (np.linalg.norm(grid.astype(float), axis=1) <= GRID).all()
        exact = grid.astype(np.int64) @ grid.astype(np.int64).T
        assert np.abs(exact).max() <= 2**24
        assert np.array_equal(grid @ grid.T, exact)


def test_cosines_move_by_about_the_grid_only():
    own, candidates = unit(points(1, 500, 384)), unit(points(2, 300, 384))
    found = nearest(own, candidates)[:, 0]
    cosines = own @ candidates.T
    assert (cosines.max(axis=1) - cosines[np.arange(500), found]).max() < 1e-3


@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 700),
    k=st.integers(1, 4),
    place=st.integers(0, 700),
)
def test_one_record_changes_its_own_votes_and_nothing_else(seed, rows, k, place):
    """With and without it, wherever it stands among the others: at most k counts, each by one."""
    candidates, others, one = points(seed, 30), points(seed + 1, rows), points(seed + 2, 1)
    place = min(place, rows)
    with_it = np.concatenate([others[:place], one, others[place:]])
    own = np.bincount(nearest(one, candidates, k)[0], minlength=30)
    assert np.array_equal(votes(with_it, candidates, k) - votes(others, candidates, k), own)
    assert own.sum() == k
    assert own.max() == 1


@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 400), max_size=6))
def test_pieces_of_a_stream_count_like_one_array(seed, cuts):
    own, candidates = points(seed, 400), points(seed + 1, 30)
    pieces = np.split(own, sorted(cuts))
    assert np.array_equal(votes(iter(pieces), candidates, 2), votes(own, candidates, 2))
    assert np.array_equal(nearest(iter(pieces), candidates, 2), nearest(own, candidates, 2))
    assert votes(own, candidates, 2).dtype == np.int64


@pytest.mark.parametrize("broken", [0.0, np.nan, np.inf, -np.inf])
def test_a_record_that_was_not_embedded_votes_for_nobody(broken):
    own, candidates = points(1, 300), points(2, 30)
    own[10] = 0
    own[20, 5] = broken
    if broken == 0:
        own[20] = 0
    found = nearest(own, candidates, 2)
    assert (found[[10, 20]] == -1).all()
    kept = np.delete(own, [10, 20], axis=0)
    assert np.array_equal(votes(own, candidates, 2), votes(kept, candidates, 2))


def test_a_candidate_that_was_not_embedded_gets_no_vote():
    own, candidates = points(1, 300), -np.abs(points(2, 30))
    own = np.abs(own)  # every usable candidate is on the far side
    candidates[4] = 0
    assert votes(own, candidates, 29)[4] == 0
    with pytest.raises(ValueError, match="29 usable candidates"):
        votes(own, candidates, 30)


def test_weighted_votes_stand_for_the_records_of_a_centre():
    centres, candidates = points(1, 20), points(2, 30)
    counts = np.arange(20)
    records = np.repeat(centres, counts, axis=0)
    assert np.array_equal(
        weighted_votes(centres, counts.astype(float), candidates, 3), votes(records, candidates, 3)
    )
    noisy = weighted_votes(centres, counts - 2.5, candidates)
    assert noisy.sum() == pytest.approx((counts - 2.5).sum())


def test_kmeans_is_the_same_for_a_seed_and_finds_what_is_there():
    truth = np.repeat(np.arange(8), 100)
    clouds = unit(points(1, 8, 32))[truth] + 0.05 * points(2, 800, 32)
    clouds[13] = np.nan  # left out
    centres = [kmeans(clouds, 24, seed) for seed in (3, 3, 4)]
    assert np.array_equal(centres[0], centres[1])
    assert not np.array_equal(centres[0], centres[2])
    assert np.allclose(np.linalg.norm(centres[0], axis=1), 1, atol=1e-5)
    own = nearest(clouds, centres[0])[:, 0]
    assert own[13] == -1
    for cluster in range(24):
        assert len(set(truth[own == cluster])) <= 1


def test_kmeans_gives_every_centre_a_point_even_among_equals():
    few = np.repeat(unit(points(1, 5)), 20, axis=0)
    centres = kmeans(few, 9, 0)
    assert np.isfinite(centres).all()
    assert len(set(nearest(few, centres)[:, 0])) == 5
    with pytest.raises(ValueError, match="100 usable points"):
        kmeans(few, 101, 0)


@pytest.mark.slow
def test_votes_of_many_records_hold_none_of_them():
    """100,000 records of 384 dimensions would be 154 MB, and their distances to 500 candidates 200
    MB.

    They come in pieces, as embeddings do.
    """
    script = """
import resource, numpy as np
from workers.embedding.neighbours import votes
made = np.random.default_rng(0)
candidates = made.standard_normal((500, 384), np.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pieces = (made.standard_normal((4000, 384), np.float32) for _ in range(25))
assert votes(pieces, candidates, 1).sum() == 100_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 100


@pytest.mark.parametrize("seats", [1, 3, 10])
def test_shared_votes_give_points_far_apart_their_proportion_of_the_places(seats):
    """Sainte-Laguë's method, place by place, each point's nearest candidates first."""
    weights = np.array([50.0, 0.0, 30.0, 11.0])
    points = np.eye(4, 8, dtype=np.float32)
    angles = np.linspace(0.01, 0.3, 12)
    candidates = unit(
        np.concatenate([points * np.cos(a) + np.eye(4, 8, 4) * np.sin(a) for a in angles]).astype(
            np.float32
        )
    )  # the j-th nearest of point p is candidate 4 j + p
    found = shared_votes(points, weights, candidates, seats)
    taken = np.zeros(4, int)
    for _ in range(seats):
        taken[int(np.argmax(weights / (2 * taken + 1)))] += 1
    chosen = np.argsort(-found, kind="stable")[:seats]
    assert sorted(chosen) == sorted(4 * j + p for p in range(4) for j in range(taken[p]))


def test_points_at_one_place_vote_for_as_many_candidates_as_there_are_places():
    random = np.random.default_rng(0)
    candidates = unit(random.standard_normal((200, 8)).astype(np.float32))
    points = np.repeat(candidates[:1], 50, axis=0)
    assert (shared_votes(points, np.ones(50), candidates, 40) > 0).sum() >= 40
    assert not shared_votes(points, np.zeros(50), candidates, 40).any()
