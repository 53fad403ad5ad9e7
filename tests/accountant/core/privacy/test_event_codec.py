"""Stored events decode through a fixed dictionary of types with checked numbers (trap 2)."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core.errors import InvalidRequest
from accountant.core.privacy.events import (
    Allocated,
    AllocatedReplaced,
    Composed,
    EpsilonDelta,
    Exponential,
    Gaussian,
    Laplace,
    PoissonReplaced,
    PoissonSampled,
    PoissonSwapped,
    SampledWithoutReplacement,
    SelfComposed,
    WorstOf,
    ZCDp,
    from_json,
    from_releases,
    releases,
    to_json,
)

POSITIVE = st.floats(1e-6, 1e6)
COUNTS = st.integers(1, 30)  # nested, they multiply, and 10^12 releases are the most there may be
RATES = st.floats(1e-9, 1.0)
GAUSSIANS = st.recursive(
    POSITIVE.map(Gaussian),
    lambda inner: st.one_of(
        st.builds(SelfComposed, inner, COUNTS),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Composed(tuple(parts))),
    ),
    max_leaves=3,
)
LEAVES = st.one_of(
    POSITIVE.map(Gaussian),
    POSITIVE.map(Laplace),
    POSITIVE.map(Exponential),
    POSITIVE.map(ZCDp),
    st.builds(EpsilonDelta, POSITIVE, st.one_of(st.just(0.0), st.floats(1e-300, 0.5))),
    st.builds(PoissonSampled, RATES, GAUSSIANS),
    st.builds(PoissonReplaced, RATES, GAUSSIANS),
    st.builds(PoissonSwapped, RATES, GAUSSIANS),
    st.builds(
        lambda size, more, event: SampledWithoutReplacement(size, size + more, event),
        COUNTS,
        COUNTS,
        GAUSSIANS,
    ),
    *(
        st.builds(
            lambda run, idle, tokens, draw, kind=kind: kind(run + idle, run, tokens, draw),
            COUNTS,
            COUNTS,
            COUNTS,
            st.one_of(POSITIVE.map(Gaussian), POSITIVE.map(Exponential)),
        )
        for kind in (Allocated, AllocatedReplaced)
    ),
)
EVENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(SelfComposed, inner, COUNTS),
        st.lists(inner, max_size=3).map(lambda parts: Composed(tuple(parts))),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: WorstOf(tuple(parts))),
    ),
    max_leaves=4,
)


@given(EVENTS)
def test_every_event_survives_its_json(event):
    assert from_json(to_json(event)) == event
    assert releases(from_releases(releases(event))) == releases(event)


GAUSSIAN = {"type": "gaussian", "noise_multiplier": 2.0}
COIN = {"type": "allocated", "batches": 8, "run": 4, "tokens": 3, "draw": GAUSSIAN}


@pytest.mark.parametrize(
    "stored",
    [
        {"type": "os.system", "command": "true"},
        {"type": "dp_accounting.dp_event.GaussianDpEvent", "noise_multiplier": 2.0},
        {"module_name": "antigravity", "class_name": "fly"},
        {"type": "__class__"},
        {"type": ["gaussian"]},
        "gaussian",
        None,
        {**GAUSSIAN, "note": "more"},
        {"type": "gaussian"},
        {"type": "gaussian", "noise_multiplier": "2"},
        {"type": "gaussian", "noise_multiplier": True},
        {"type": "gaussian", "noise_multiplier": 0},
        {"type": "gaussian", "noise_multiplier": -2.0},
        {"type": "gaussian", "noise_multiplier": float("nan")},
        {"type": "gaussian", "noise_multiplier": float("inf")},
        {"type": "epsilon_delta", "epsilon": 1.0, "delta": 1.0},
        {"type": "epsilon_delta", "epsilon": 1.0, "delta": -0.0},
        {"type": "epsilon_delta", "epsilon": 1.0, "delta": 5e-324},
        {"type": "gaussian", "noise_multiplier": 2**53 + 1},
        {"type": "gaussian", "noise_multiplier": 10**400},
        {"type": "laplace", "noise_multiplier": 5e-324},
        {"type": "zcdp", "rho": 1e308},
        {"type": "self_composed", "event": GAUSSIAN, "count": 0},
        {"type": "self_composed", "event": GAUSSIAN, "count": 2.0},
        {"type": "composed", "events": GAUSSIAN},
        {"type": "worst_of", "events": []},
        {"type": "poisson_sampled", "probability": 1.5, "event": GAUSSIAN},
        {"type": "poisson_sampled", "probability": "0.5", "event": GAUSSIAN},
        {
            "type": "poisson_sampled",
            "probability": 0.5,
            "event": {"type": "laplace", "noise_multiplier": 1.0},
        },
        {
            "type": "sampled_without_replacement",
            "sample_size": 3,
            "population": 2,
            "event": GAUSSIAN,
        },
        {**COIN, "run": 9},
        {**COIN, "run": 0},
        {**COIN, "tokens": 0},
        {**COIN, "batches": 8.0},
        {**COIN, "batches": True},
        {**COIN, "batches": 10**13},
        {**COIN, "draw": {"type": "laplace", "noise_multiplier": 1.0}},
        {**COIN, "draw": {"type": "self_composed", "event": GAUSSIAN, "count": 2}},
        {**COIN, "draw": None},
        {**COIN, "event": GAUSSIAN},
        {**COIN, "type": "allocated_replaced", "draw": {"type": "exponential", "shift": 1e308}},
    ],
)
def test_what_is_no_event_is_refused_and_nothing_is_imported(stored):
    before = set(sys.modules)
    with pytest.raises(InvalidRequest):
        from_json(stored)
    assert set(sys.modules) == before


def test_nesting_is_bounded():
    stored = dict(GAUSSIAN)
    for _ in range(9):
        stored = {"type": "self_composed", "event": stored, "count": 1}
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        from_json(stored)
