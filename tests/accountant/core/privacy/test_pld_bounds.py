"""dp-accounting's loss distributions: as quotes from above, and what they leave as it is."""

import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.mechanisms import get
from accountant.core.mechanisms.base import quote
from accountant.core.privacy import pld_bounds
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import (
    Composed,
    EpsilonDelta,
    Exponential,
    Gaussian,
    Laplace,
    PoissonReplaced,
    PoissonSampled,
    SelfComposed,
    WorstOf,
)
from accountant.core.privacy.pld_bounds import least_deltas, quoted
from accountant.core.privacy.price import Terms

SAMPLES = SelfComposed(PoissonSampled(0.01, Gaussian(1.0)), 100)


@pytest.fixture(autouse=True)
def fresh():
    quoted.cache_clear()
    yield
    quoted.cache_clear()


@pytest.mark.parametrize(
    ("event", "part"),
    [
        (SAMPLES, 0.64),
        (SelfComposed(Laplace(50.0), 50), 0.94),
        (Composed((Gaussian(10.0), SelfComposed(PoissonSampled(0.05, Gaussian(4.0)), 20))), 0.93),
    ],
)
def test_the_quote_is_dp_accountings_where_that_is_better(event, part):
    ours, _ = epsilon_alone(event, 1e-6)
    found, name = quoted(event, 1e-6)
    assert name == "loss distribution"
    assert found < part * ours
    assert least_deltas(event, [found])[0] <= 1e-6 < least_deltas(event, [0.6 * found])[0]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.one_of(
        st.builds(SelfComposed, st.floats(0.5, 100).map(Laplace), st.integers(2, 40)),
        st.builds(
            lambda q, s, n: SelfComposed(PoissonSampled(q, Gaussian(s)), n),
            st.floats(1e-3, 0.5),
            st.floats(0.6, 5),
            st.integers(2, 40),
        ),
        st.builds(
            lambda s, b, n: Composed((Gaussian(s), SelfComposed(Laplace(b), n))),
            st.floats(1, 10),
            st.floats(2, 50),
            st.integers(2, 20),
        ),
    ),
    st.floats(-7.5, -3),
)
def test_a_quote_is_never_less_than_what_is_lost(event, power):
    found, _ = quoted(event, 10**power)
    assert found <= epsilon_alone(event, 10**power)[0]
    assert least_deltas(event, [found])[0] <= 10**power


@pytest.mark.parametrize(
    "event",
    [
        Composed(()),
        Gaussian(1.0),
        PoissonSampled(0.1, Gaussian(1.0)),  # exact already
        SelfComposed(Exponential(0.1), 100),  # no event of the same meaning there
        SelfComposed(PoissonReplaced(0.01, Gaussian(1.0)), 100),
        SelfComposed(EpsilonDelta(0.1, 0.0), 10),
        WorstOf((SAMPLES, Laplace(1.0))),
        SelfComposed(Laplace(0.001), 5),
        SelfComposed(PoissonSampled(0.5, Gaussian(1e300)), 5),
        SelfComposed(Laplace(9000.0), 10**6),  # too much work
    ],
)
def test_what_it_has_no_better_figure_for_stays(event):
    assert quoted(event, 1e-6) == epsilon_alone(event, 1e-6)


@pytest.mark.parametrize("broken", [ValueError, ArithmeticError, OverflowError])
def test_where_the_library_fails_ours_stands(monkeypatch, broken):
    def fails(*_args, **_named):
        raise broken

    monkeypatch.setattr(pld_bounds, "_library", fails)
    assert quoted(SAMPLES, 1e-6) == epsilon_alone(SAMPLES, 1e-6)


def test_without_the_library_ours_stands(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    assert quoted(SAMPLES, 1e-6) == epsilon_alone(SAMPLES, 1e-6)


def test_a_quote_states_which_accountant_gave_it():
    mechanism, terms = get("dp-kps"), Terms()
    parameters = mechanism.parse({}, terms)
    stated = quote(
        mechanism, parameters, terms, alone=lambda event, delta: (1.5, "loss distribution")
    )
    assert (stated["dp"]["epsilon"], stated["dp"]["accountant"]) == (1.5, "loss distribution")
    assert math.isclose(quote(mechanism, parameters, terms)["dp"]["epsilon"], 6, rel_tol=1e-3)
