"""Two hundred charges of every kind, in any order, by dp-accounting's own composition."""

import math
import random
from collections import Counter
from fractions import Fraction

import dp_accounting
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.rdp import RdpAccountant

from accountant.core.ledger.reservations import move, settled
from accountant.core.privacy.events import (
    EpsilonDelta,
    Event,
    Gaussian,
    Laplace,
    PoissonSampled,
    SelfComposed,
    ZCDp,
)
from accountant.core.privacy.filters import Kind
from accountant.core.privacy.units import EPSILON_UNITS
from tests.accountant.core.privacy.test_filters import account

GRID = 2.0**-11
EPSILON, DELTA = 3.0, 1e-6
CHARGES = 200


def losses(event: Event, count: int):
    """The losses of a release of each kind, rounded up; what is stated by a bound, as the worst."""
    grid = {"value_discretization_interval": GRID}
    match event:
        case Gaussian(multiplier):
            return pld.from_gaussian_mechanism(multiplier / count**0.5, **grid)
        case ZCDp(rho):
            return pld.from_gaussian_mechanism((2 * rho * count) ** -0.5, **grid)
        case Laplace(multiplier):
            return pld.from_laplace_mechanism(multiplier, **grid).self_compose(count)
        case PoissonSampled(rate, Gaussian(multiplier)):
            one = pld.from_gaussian_mechanism(multiplier, sampling_prob=rate, **grid)
            return one.self_compose(count)
        case EpsilonDelta(epsilon, delta):
            stated = DifferentialPrivacyParameters(epsilon, delta)
            return pld.from_privacy_parameters(stated, **grid).self_compose(count)
    raise AssertionError(event)


def divergence(event: Event) -> float:
    """Return the Rényi divergence of a release at order 8, by dp-accounting."""
    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    match event:
        case EpsilonDelta(epsilon, _):  # pure on all outcomes but δ
            theirs = dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.exp(epsilon)), 2)
            relation = dp_accounting.NeighboringRelation.REPLACE_ONE
        case Gaussian(multiplier):
            theirs = dp_accounting.GaussianDpEvent(multiplier)
        case ZCDp(rho):
            theirs = dp_accounting.ZCDpEvent(rho)
        case Laplace(multiplier):
            theirs = dp_accounting.LaplaceDpEvent(multiplier)
        case PoissonSampled(rate, Gaussian(multiplier)):
            inner = dp_accounting.GaussianDpEvent(multiplier)
            theirs = dp_accounting.PoissonSampledDpEvent(rate, inner)
    return float(RdpAccountant([8], relation).compose(theirs).rdp[0])


def charge_of(chance: random.Random) -> tuple[Event, int]:
    """Return a release and how often a charge makes it. The sizes are few, so that they add up."""
    size = chance.choice((1, 2, 4))
    event = chance.choice(
        [
            Gaussian(64.0 / size),
            Laplace(64.0 / size),
            PoissonSampled(0.02, Gaussian(2.0 / size**0.5)),
            EpsilonDelta(8 * size * GRID * 4, 1e-10 * size),
            EpsilonDelta(8 * size * GRID * 4, 0.0),
            ZCDp(1e-4 * size),
        ]
    )
    return event, chance.choice((1, 3))


ORDERS = {
    "any": lambda charges: charges,
    "stated first": lambda charges: sorted(charges, key=lambda c: not _stated(c)),
    "stated last": lambda charges: sorted(charges, key=_stated),
}


def _stated(charge: tuple[Event, int]) -> bool:
    return isinstance(charge[0], EpsilonDelta) and charge[0].delta > 0


@pytest.mark.parametrize("order", ORDERS)
def test_no_order_of_charges_passes_delta_and_little_of_the_allowance_is_lost(order):
    chance = random.Random(f"charges {order}")
    of, released = account(str(EPSILON), str(DELTA), order=Fraction(8)), Counter()
    closed, refused = set(), 0
    for event, count in ORDERS[order]([charge_of(chance) for _ in range(CHARGES)]):
        whole = SelfComposed(event, count) if count > 1 else event
        costs, _ = of.charge(whole)
        if not of.admitting(costs):
            refused += 1
            continue
        taken = chance.randint(1, count)  # some end early and get the rest back
        part = SelfComposed(event, taken) if taken > 1 else event
        of = move(of, costs, reserved=1)
        of = move(of, costs, reserved=-1, keep_closed=True)
        of = move(of, settled(costs, of.costs(part)), spent=1)
        released[event] += taken
        closed |= {kind for kind, cost in costs.items() if cost is None}
    total = None
    for event, count in released.items():
        one = losses(event, count)
        total = one if total is None else total.compose(one)
    assert total.get_delta_for_epsilon(EPSILON) <= DELTA
    assert refused  # the allowance is used up
    assert total.get_epsilon_for_delta(DELTA) >= EPSILON / 2
    by_renyi = sum(count * divergence(event) for event, count in released.items())
    assert of.filters[0].used.main / EPSILON_UNITS == pytest.approx(by_renyi, rel=1e-6)
    assert closed <= {Kind.GAUSSIAN, Kind.BASIC}  # zCDP has no mu, and half of basic's δ is kept
