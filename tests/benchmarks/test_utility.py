"""The corpora of benchmarks, and how many tokens an epsilon allows."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core import mechanisms
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.price import Terms
from benchmarks import utility_runs
from benchmarks.utility_data import balanced

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


def test_parts_are_balanced_over_labels():
    pairs = [("a", f"a{n}") for n in range(30)] + [("b", f"b{n}") for n in range(7)]
    assert Counter(balanced(pairs, ("a", "b"), None).labels) == {"a": 7, "b": 7}
    assert Counter(balanced(pairs, ("a", "b"), 9).labels) == {"a": 4, "b": 4}
