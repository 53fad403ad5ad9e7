"""Forty adaptive steps against the ledger's own admission: plain, sampled and allocated releases
mixed.

The best strategy's delta is bounded from above, over all strategies at once: the value of what may
still be done, V(r) = sup E_Q (r P/Q - e^epsilon)+, is convex in r, so a chord between grid points
lies above it. Reservations only add up: what may still be done depends on how often each release
was made, not on the order.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array

from accountant.core.ledger.admission import Account
from accountant.core.ledger.reservations import move
from accountant.core.privacy.composition import gaussian_mu
from accountant.core.privacy.events import Allocated, Event, Exponential, Gaussian, PoissonSampled
from accountant.core.privacy.filters import Amount, Kind
from tests.accountant.core.privacy.test_filters import account, quantised_gaussian, softmax_of_two

STEPS = 40
NODES = np.linspace(-8.0, 8.0, 641)  # ln r
RATIOS = np.exp(NODES)

#: A release and the masses of its outcomes with the unit and without it.
Release = tuple[Event, tuple[float, ...], tuple[float, ...]]


def allocated(batches: int, run: int, tokens: int, shift: float, place: float) -> Release:
    """A round: in every batch the same draws of two tokens, the extreme pair of the shift."""
    one = softmax_of_two(shift, 1, place)
    with_unit, without = {}, {}
    for outcome in product((0, 1), repeat=run * tokens):
        each = [outcome[first : first + tokens] for first in range(0, len(outcome), tokens)]
        q = math.prod(one.q[token] for token in outcome)
        ratios = [math.prod(one.p[token] / one.q[token] for token in own) for own in each]
        ratio = (sum(ratios) + batches - run) / batches
        key = tuple(sorted(sum(own) for own in each))
        with_unit[key] = with_unit.get(key, 0.0) + q * ratio
        without[key] = without.get(key, 0.0) + q
    event = Allocated(batches, run, tokens, Exponential(shift))
    return event, tuple(with_unit.values()), tuple(without[key] for key in with_unit)


def of_job(job) -> Release:
    return job.event, job.p, job.q


MENUS = {
    "mixed": [
        allocated(4, 4, 2, 0.2, 0.5),
        of_job(quantised_gaussian(1.6, 1, (0.3, 1.4), 0.15)),
        of_job(softmax_of_two(0.11, 1, 0.5)),
    ],
    "few batches run": [
        allocated(3, 1, 4, 0.2, 0.3),
        allocated(2, 2, 1, 0.18, 0.8),
        of_job(quantised_gaussian(9.0, 1, (0.0,))),
    ],
}


def worst_delta(of: Account, epsilon: float, menu: list[Release], swapped: bool) -> float:
    """An upper bound on the delta of every strategy of at most STEPS releases that `of` admits."""
    costs = [of.costs(event) for event, _, _ in menu]
    firsts = [of.charge(event) for event, _, _ in menu]
    ends = np.maximum(RATIOS - math.exp(epsilon), 0.0)
    steps = [
        step(without, with_) if swapped else step(with_, without) for _, with_, without in menu
    ]
    levels: list[dict[tuple[int, ...], Account]] = [{(0,) * len(menu): of}]
    for _ in range(STEPS):
        found = {}
        for made, now in levels[-1].items():
            for number, cost in enumerate(costs):
                after = tuple(count + (place == number) for place, count in enumerate(made))
                first, whole = firsts[number] if now.untouched else (cost, False)
                if after not in found and (whole or now.admitting(first)):
                    found[after] = move(now.with_whole(True) if whole else now, first, reserved=1)
        levels.append(found)
    later: dict[tuple[int, ...], np.ndarray] = {}
    for level in reversed(levels):
        values = {}
        for made in level:
            best = ends
            for number, expected in enumerate(steps):
                after = tuple(count + (place == number) for place, count in enumerate(made))
                if after in later:
                    best = np.maximum(best, expected(later[after]))
            values[made] = best
        later = values
    return float(np.interp(1.0, RATIOS, later[(0,) * len(menu)]))


def step(p: tuple[float, ...], q: tuple[float, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """Return what gives E_Q of a value after one release, at every node.

    Below the grid lies a chord to 0, above it r itself.
    """
    every, weights, beyond = np.arange(len(RATIOS)), np.zeros((len(RATIOS), len(RATIOS))), 0.0
    for a, b in zip(p, q, strict=True):
        ratios = RATIOS * (a / b)
        below, above = ratios < RATIOS[0], ratios > RATIOS[-1]
        right = np.clip(np.searchsorted(RATIOS, ratios), 1, len(RATIOS) - 1)
        share = (ratios - RATIOS[right - 1]) / (RATIOS[right] - RATIOS[right - 1])
        weights[every, right - 1] += b * np.where(
            above, 0.0, np.where(below, ratios / RATIOS[0], 1 - share)
        )
        weights[every, right] += b * np.where(above | below, 0.0, share)
        beyond = beyond + b * np.where(above, ratios, 0.0)
    sparse = csr_array(weights)
    return lambda value: sparse @ value + beyond


def loosened(of: Account, times: int) -> Account:
    """An account whose filters admit so many times what they should."""
    return replace(
        of,
        filters=tuple(
            e._replace(limit=Amount(times * e.limit.main, times * e.limit.delta))
            for e in of.filters
        ),
    )


@pytest.mark.parametrize("name", MENUS)
@pytest.mark.parametrize(("epsilon", "delta"), [("1", "0.02"), ("2", "0.001")])
def test_no_strategy_of_forty_steps_passes_the_allowance(name, epsilon, delta):
    of = account(epsilon, delta)
    for swapped in (False, True):
        assert worst_delta(of, float(epsilon), MENUS[name], swapped) <= float(delta)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta", "rate"), [("1", "0.02", 1.0), ("2", "0.001", 0.1)])
def test_no_strategy_that_begins_with_a_whole_job_passes_the_allowance(epsilon, delta, rate):
    """A first job that no filter admits takes all of delta; tokens and samples may follow."""
    of = account(epsilon, delta)
    least = 1 / gaussian_mu(float(epsilon), float(delta)) if rate == 1 else 0.3

    def fits(power: int) -> bool:
        first, whole = of.charge(sampled(least * 1.002**power, rate))
        return whole or bool(of.admitting(first))

    multiplier = least * 1.002 ** bisect_left(range(2_000), True, key=fits)
    large = sampled(multiplier, rate)
    whole = of.charge(large)[1]
    edges = tuple(float(edge) for edge in np.linspace(-1, 1 / multiplier + 3, 40))
    menu = [
        of_job(quantised_gaussian(multiplier, 1, edges, rate)),
        of_job(softmax_of_two(0.004, 1, 0.5)),
        of_job(quantised_gaussian(4.0, 1, (0.3, 1.4), 0.05)),
    ]
    assert whole
    assert menu[0][0] == large
    for swapped in (False, True):
        found = worst_delta(of, float(epsilon), menu, swapped)
        assert found <= float(delta)
    assert worst_delta(of, float(epsilon), menu, False) >= 0.85 * float(delta)


def sampled(multiplier: float, rate: float) -> Event:
    return Gaussian(multiplier) if rate == 1 else PoissonSampled(rate, Gaussian(multiplier))


def test_the_bound_has_teeth():
    """It passes delta where twice the allowance is admitted, by rounds of secret batches alone
    too.
    """
    shares = {Kind.RENYI: Fraction(1), Kind.GAUSSIAN: Fraction(0), Kind.RENYI_LOW: Fraction(0)}
    of = account("1", "0.02", {**shares, Kind.BASIC: Fraction(0)})
    for menu in (MENUS["mixed"][:2], MENUS["mixed"][:1]):
        assert (
            worst_delta(of, 1.0, menu, False)
            <= 0.02
            < worst_delta(loosened(of, 3), 1.0, menu, False)
        )


def test_the_masses_are_those_of_a_round():
    event, p, q = allocated(4, 4, 2, 0.5, 0.5)
    assert isinstance(event, Allocated)
    assert sum(p) == pytest.approx(1) == sum(q)
    assert isinstance(MENUS["mixed"][1][0], PoissonSampled)
    assert isinstance(MENUS["few batches run"][2][0], Gaussian)
