"""The arithmetic of one admission after 10 to 10,000 jobs, beside recomposing all of them afresh.

    RUST_BACKTRACE=0 python -m benchmarks.admission_arithmetic [--most 10000]

Every job is a Gaussian of its own multiplier, so nothing can be merged. Printed as ratios to our
time at the same length, all in one run on one machine; `dp-accounting` and `opendp` must be
installed. What an admission does beside arithmetic (the transaction, the price of the event) is not
in here: each event's costs are computed once, when it is asked for, and that time stands in the
first column. The whole run takes minutes: OpenDP's filter must answer 10,000 queries first.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("RUST_BACKTRACE", "0")  # before opendp: else each refused call costs 64 ms

import dp_accounting
import opendp.prelude as odp
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from accountant.core.ledger.admission import Account, FilterAccount
from accountant.core.ledger.reservations import move
from accountant.core.privacy.events import Gaussian
from accountant.core.privacy.filters import granted, portfolio

EPSILON, DELTA = "3", "1e-6"


def multipliers(count: int) -> list[float]:
    """Distinct, and large enough for 10,000 of them to fit (3, 1e-6)."""
    return [200.0 + 0.001 * place for place in range(count)]


def median(action: Callable[[], object], least: int) -> float:
    """Seconds that `action` takes: the median of `least` runs."""
    times = []
    for _ in range(least):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def account_after(jobs: list[float]) -> Account:
    epsilon, delta = granted(EPSILON, DELTA)
    filters = tuple(
        FilterAccount(each, each.limit(epsilon, delta)) for each in portfolio(epsilon, delta)
    )
    account = Account(epsilon, delta, filters)
    for multiplier in jobs:
        account = move(account, account.costs(Gaussian(multiplier)), spent=1)
    return account


def ours(jobs: list[float]) -> tuple[float, float]:
    """(pricing one event on every filter, deciding and reserving it)."""
    account = account_after(jobs)
    event = Gaussian(199.0)
    pricing = median(lambda: account.costs(event), 200)
    costs = account.costs(event)

    def admit() -> None:
        if not account.admitting(costs):
            raise SystemExit("the jobs of this benchmark should fit")
        move(account, costs, reserved=1)

    return pricing, median(admit, 2_000)


def recomposed(
    accountant: Callable[[], dp_accounting.PrivacyAccountant], jobs: list[float]
) -> float:
    """A fresh accountant over all jobs and the new one, up to its epsilon."""

    def compose() -> None:
        fresh = accountant()
        for multiplier in [*jobs, 199.0]:
            fresh.compose(dp_accounting.GaussianDpEvent(multiplier))
        fresh.get_epsilon(float(DELTA))

    return median(compose, 3 if len(jobs) <= 100 else 1)


def opendp_filter(jobs: list[float]) -> float:
    """One more query to OpenDP's fully adaptive filter (zCDP) that has answered all jobs."""
    odp.enable_features("contrib")
    space = (odp.atom_domain(T=int), odp.absolute_distance(T=int))
    measure = odp.zero_concentrated_divergence()
    odometer = odp.c.make_fully_adaptive_composition(*space, output_measure=measure)
    queryable = odp.c.make_privacy_filter(odometer, d_in=1, d_out=1.0)(0)
    for multiplier in jobs:
        queryable(odp.m.make_gaussian(*space, scale=multiplier))
    one_more = odp.m.make_gaussian(*space, scale=199.0)
    return median(lambda: queryable(one_more), 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--most", type=int, default=10_000)
    most = parser.parse_args().most
    print(
        f"{'jobs':>7} {'price, µs':>10} {'admit, µs':>10} {'/ RDP':>10} {'/ PLD':>10} "
        f"{'/ OpenDP filter':>16}"
    )
    first = None
    for count in (10, 100, 1_000, 10_000):
        if count > most:
            break
        jobs = multipliers(count)
        pricing, admitting = ours(jobs)
        first = first or admitting
        others = (
            recomposed(RdpAccountant, jobs),
            recomposed(PLDAccountant, jobs),
            opendp_filter(jobs),
        )
        ratios = " ".join(
            f"{other / admitting:>{width},.0f}"
            for other, width in zip(others, (10, 10, 16), strict=True)
        )
        print(f"{count:>7,} {pricing * 1e6:>10.1f} {admitting * 1e6:>10.1f} {ratios}")
    print(f"admit at the last length / at the first: {admitting / first:.2f}")


if __name__ == "__main__":
    main()
