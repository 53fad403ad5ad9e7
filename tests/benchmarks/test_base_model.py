"""The base model's training script: an interrupted run goes on with the batch that comes next."""

from itertools import islice

import numpy as np
import pytest
import torch

from benchmarks.base_model import CONTEXT, EOS, batches, pack, rate


@pytest.fixture
def documents() -> list[np.ndarray]:
    made = np.random.default_rng(0)
    return [np.append(made.integers(4, 99, made.integers(20, 900)), EOS).astype(np.int32) for _ in range(40)]


def test_documents_follow_one_another(documents):
    rows = pack(documents)
    assert rows.shape[1] == CONTEXT
    assert np.array_equal(rows.flatten(), np.concatenate(documents)[: rows.numel()])
    assert sum(map(len, documents)) - rows.numel() < CONTEXT


@pytest.mark.parametrize("done", [0, 1, 8, 9, 10, 11, 12, 25])
def test_passed_over_batches_are_those_that_were_trained_on(documents, done):
    every = list(islice(batches(documents, 4, 0), 30))
    assert len(pack(documents)) // 4 in range(8, 12)  # `done` reaches over several epochs
    assert torch.equal(next(batches(documents, 4, done)), every[done])


def test_the_rate_rises_and_ends_at_zero():
    assert rate(0) < rate(0.01) < rate(0.02)
    assert rate(0.02) > rate(0.5) > rate(1.0) == rate(2.0) == 0
