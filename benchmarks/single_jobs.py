"""How much of an allowance a first job may be: `python -m benchmarks.single_jobs`.

For each shape the dearest job that a new account admits, as the epsilon quoted for it alone at the account's
delta over the account's epsilon; by the prices of accounts made before decision 0025, by those of new ones, and
by new ones whose basic filter has half of delta. Prices are timed where no cache helps.
"""

import time
from collections.abc import Callable
from fractions import Fraction

from accountant.core.privacy.composition import epsilon_alone
from accountant.core.privacy.events import (
    Allocated,
    Event,
    Exponential,
    Gaussian,
    Laplace,
    PoissonSampled,
    SampledWithoutReplacement,
    SelfComposed,
)
from accountant.core.privacy.filters import Filter, Kind, granted, portfolio, price_on

DELTA = "1e-6"
HALF = dict(zip(Kind, map(Fraction, ("3/10", "3/20", "1/20", "1/2")), strict=True))

#: A job by its size: the larger, the dearer.
SHAPES: dict[str, Callable[[float], Event]] = {
    "Gaussian": lambda size: Gaussian(1 / size),
    "Poisson, q 0.01": lambda size: PoissonSampled(0.01, Gaussian(1 / size)),
    "Poisson, q 0.1": lambda size: PoissonSampled(0.1, Gaussian(1 / size)),
    "10 of 1,000, replaced": lambda size: SampledWithoutReplacement(10, 1000, Gaussian(1 / size)),
    "100 Poisson draws, q 0.01": lambda size: SelfComposed(PoissonSampled(0.01, Gaussian(1 / size)), 100),
    "Laplace": lambda size: Laplace(1 / size),
    "50 Laplace": lambda size: SelfComposed(Laplace(50 / size), 50),
    "tokens, shift 0.09375": lambda size: SelfComposed(Exponential(0.09375), max(1, round(100 * size))),
    "20 tokens": lambda size: SelfComposed(Exponential(size / 20), 20),
    "rounds of 50 tokens, k 468": lambda size: SelfComposed(
        Allocated(468, 468, 50, Exponential(0.09375)), max(1, round(200 * size))
    ),
    "one coin, k 468": lambda size: Allocated(468, 468, max(1, round(200 * size)), Exponential(0.09375)),
}


def admitted(filters: tuple[Filter, ...], event: Event, allowance: tuple[int, int]) -> bool:
    """True if a new account with these filters admits the job."""
    costs = price_on(filters, event)
    return any(
        (cost := costs[each.kind]) is not None and cost.fits(each.limit(*allowance)) for each in filters
    )


def share(filters: tuple[Filter, ...], shape: Callable[[float], Event], epsilon: str) -> float:
    """The quoted epsilon of the dearest job admitted, over the allowance."""
    allowance = granted(epsilon, DELTA)
    low, high = 1e-3, 50.0
    for _ in range(30):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if admitted(filters, shape(middle), allowance) else (low, middle)
    return epsilon_alone(shape(low), float(DELTA))[0] / float(epsilon) if low > 1e-3 else 0.0


def main() -> None:
    """Print the tables."""
    accounts = {
        "first edition": lambda eps: portfolio(*granted(eps, DELTA), edition=1),
        "new": lambda eps: portfolio(*granted(eps, DELTA)),
        "basic 1/2": lambda eps: portfolio(*granted(eps, DELTA), HALF),
    }
    print(f"delta {DELTA}; share of the quoted epsilon of the dearest first job")
    columns = [(name, epsilon) for epsilon in ("1", "3", "10") for name in accounts]
    print(" " * 28 + "".join(f"{name + ', ε ' + epsilon:>18}" for name, epsilon in columns))
    for title, shape in SHAPES.items():
        row = [share(accounts[name](epsilon), shape, epsilon) for name, epsilon in columns]
        print(f"{title:28}" + "".join(f"{each:18.3f}" for each in row), flush=True)
    slowest = 0.0
    filters = portfolio(*granted("3", DELTA))
    for number, (title, shape) in enumerate(SHAPES.items()):
        start = time.process_time()
        price_on(filters, shape(0.7 + number / 1000))
        taken = 1e3 * (time.process_time() - start)
        slowest = max(slowest, taken)
        print(f"{title:28}{taken:8.1f} ms on all four filters")
    print(f"slowest: {slowest:.1f} ms of processor time")


if __name__ == "__main__":
    main()
