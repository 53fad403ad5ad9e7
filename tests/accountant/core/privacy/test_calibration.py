"""Noise from epsilon is exact: paper 004's equations, and never the classical formula (trap 3)."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from accountant.core.errors import InvalidRequest
from accountant.core.mechanisms import get, group_means
from accountant.core.privacy.calibration import gaussian_multiplier, laplace_multiplier
from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import Gaussian, SelfComposed
from accountant.core.privacy.price import Neighbours, Terms

EPSILONS = st.floats(0.01, 60)
LOG_DELTAS = st.floats(-12, -1.5)


def mu_by_bisection(epsilon: float, delta: float) -> float:
    """Equation 3 of paper 004 solved in 40 digits by halving, with nothing of ours in it."""
    with mp.workdps(40):

        def excess(mu):
            first = mp.ncdf(-mpf(epsilon) / mu + mu / 2)
            return first - mp.exp(epsilon) * mp.ncdf(-mpf(epsilon) / mu - mu / 2) - mpf(delta)

        low, high = mpf(10) ** -6, mpf(100)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) < 0 else (low, middle)
        return float(low)


@settings(max_examples=25, deadline=None)
@given(
    EPSILONS,
    LOG_DELTAS,
    st.floats(0.1, 100),
    st.integers(2, 10**6),
    st.integers(1, 500),
    st.booleans(),
)
def test_the_noise_of_a_summary_is_equation_4_with_the_root_of_equation_3(
    epsilon, log_delta, clip, size, tokens, replace
):
    """sigma = Delta sqrt(T) / mu; the paper states Delta = 2C/n (replace-one); C/n under
    add-remove.
    """
    delta = 10**log_delta
    terms = Terms(
        Neighbours.REPLACE_ONE if replace else Neighbours.ADD_REMOVE, delta, public_size=size
    )
    mu = mu_by_bisection(epsilon, delta)
    delta_2 = (2 if replace else 1) * clip / size
    raw = {"epsilon": epsilon, "clip": clip, "max_tokens": tokens}
    parameters = get("summary-token").parse(raw, terms)
    expected = delta_2 * math.sqrt(tokens) / mu
    assert group_means.sigma(parameters, terms) == pytest.approx(expected, rel=1e-9)
    raw = {"epsilon": epsilon, "clip": clip, "releases": tokens}
    parameters = get("summary-oneshot").parse(raw, terms)
    assert group_means.sigma(parameters, terms) == pytest.approx(expected, rel=1e-9)


@given(st.floats(1e-4, 500), st.floats(-20, -1), st.integers(1, 10_000))
def test_calibrated_gaussians_never_pass_epsilon_and_waste_nothing(epsilon, log_delta, count):
    delta = 10**log_delta
    multiplier = gaussian_multiplier(epsilon, delta, count)
    spent, how = epsilon_alone(SelfComposed(Gaussian(multiplier), count), delta)
    assert how == "exact Gaussian"
    assert spent <= epsilon + 1e-12
    assert spent == pytest.approx(epsilon, rel=1e-6)


def test_the_classical_formula_is_not_what_calibrates():
    """Trap 3: at epsilon 10 sqrt(2 ln(1.25/delta))/epsilon is too little noise, at 0.5 too much."""
    delta = 1e-5
    for epsilon, enough in ((10.0, False), (0.5, True)):
        classical = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        assert (epsilon_alone(Gaussian(classical), delta)[0] <= epsilon) is enough
        assert gaussian_multiplier(epsilon, delta) != pytest.approx(classical, rel=0.01)


@given(st.floats(1e-6, 1000), st.integers(1, 1000))
def test_laplace_releases_share_a_pure_epsilon(epsilon, count):
    multiplier = laplace_multiplier(epsilon, count)
    assert count / multiplier <= epsilon * (1 + 1e-15)
    assert count / multiplier == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("delta", [0.0, 1.0, 1.5, -1e-9, math.nan])
def test_there_is_no_noise_for_a_delta_outside_0_to_1(delta):
    with pytest.raises(InvalidRequest, match=r"delta.*0 < delta < 1"):
        gaussian_multiplier(1.0, delta)


NOISY = [
    ("epsvec", "noise_multiplier", "epsilon"),
    ("epsvec", "shots_noise_multiplier", "shots_epsilon"),
    ("dp-kps", "kde_noise_multiplier", "kde_epsilon"),
    ("dp-kps", "vocabulary_noise_multiplier", "vocabulary_epsilon"),
    ("aug-pe", "noise_multiplier", "epsilon"),
    ("summary-token", "noise_multiplier", "epsilon"),
    ("summary-oneshot", "noise_multiplier", "epsilon"),
]


@pytest.mark.parametrize(("mechanism", "multiplier", "epsilon"), NOISY)
def test_noise_is_given_as_a_multiplier_or_as_epsilon_and_never_as_both(
    mechanism, multiplier, epsilon
):
    terms = Terms(public_size=10_000)
    other = {"epsilon": 1.0} if mechanism == "epsvec" and epsilon != "epsilon" else {}
    with pytest.raises(InvalidRequest, match=f"{multiplier}: given together with {epsilon}"):
        get(mechanism).parse({multiplier: 2.0, epsilon: 1.0, **other}, terms)
    with pytest.raises(InvalidRequest, match=f"{multiplier}: neither this nor {epsilon}"):
        get(mechanism).parse({multiplier: None, epsilon: None, **other}, terms)
    assert getattr(get(mechanism).parse({multiplier: 2.0, **other}, terms), multiplier) == 2.0
    calibrated = get(mechanism).parse({epsilon: 1.0, **other}, terms)
    assert getattr(calibrated, epsilon) is None
    assert getattr(calibrated, multiplier) > 0
