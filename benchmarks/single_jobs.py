"""How much of an allowance a first job may be: `python -m benchmarks.single_jobs`.

For each shape the dearest job that a new account admits, as the epsilon quoted for it alone at the
account's delta over the account's epsilon: on its filters, and as an account's first job. Prices
are timed where no cache helps.
"""

import time
from collections.abc import Callable
from functools import partial

from accountant.core.ledger.admission import Account, FilterAccount
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
from accountant.core.privacy.filters import granted, portfolio

DELTA = "1e-6"

#: A job by its size: the larger, the dearer.
SHAPES: dict[str, Callable[[float], Event]] = {
    "Gaussian": lambda size: Gaussian(1 / size),
    "Poisson, q 0.01": lambda size: PoissonSampled(0.01, Gaussian(1 / size)),
    "Poisson, q 0.1": lambda size: PoissonSampled(0.1, Gaussian(1 / size)),
    "10 of 1,000, replaced": lambda size: SampledWithoutReplacement(10, 1000, Gaussian(1 / size)),
    "100 Poisson draws, q 0.01": lambda size: SelfComposed(
        PoissonSampled(0.01, Gaussian(1 / size)), 100
    ),
    "Laplace": lambda size: Laplace(1 / size),
    "50 Laplace": lambda size: SelfComposed(Laplace(50 / size), 50),
    "tokens, shift 0.09375": lambda size: SelfComposed(
        Exponential(0.09375), max(1, round(100 * size))
    ),
    "20 tokens": lambda size: SelfComposed(Exponential(size / 20), 20),
    "rounds of 50 tokens, k 468": lambda size: SelfComposed(
        Allocated(468, 468, 50, Exponential(0.09375)), max(1, round(200 * size))
    ),
    "one coin, k 468": lambda size: Allocated(
        468, 468, max(1, round(200 * size)), Exponential(0.09375)
    ),
}


def account(epsilon: str) -> Account:
    """A new account."""
    allowance = granted(epsilon, DELTA)
    filters = portfolio(*allowance)
    return Account(
        *allowance, tuple(FilterAccount(each, each.limit(*allowance)) for each in filters)
    )


def on_filters(of: Account, event: Event) -> bool:
    """True if one of the account's filters admits the job."""
    return bool(of.admitting(of.costs(event)))


def share(admits: Callable[[Event], bool], shape: Callable[[float], Event], epsilon: str) -> float:
    """The quoted epsilon of the dearest job admitted, over the allowance."""
    low, high = 1e-3, 50.0
    for _ in range(30):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if admits(shape(middle)) else (low, middle)
    return epsilon_alone(shape(low), float(DELTA))[0] / float(epsilon) if low > 1e-3 else 0.0


def main() -> None:
    """Print the tables."""
    print(f"delta {DELTA}; quoted epsilon of the dearest job over the account's epsilon")
    for epsilon in ("1", "3", "10"):
        now = account(epsilon)
        print(f"{'ε ' + epsilon:28}{'its filters':>14}{'first job':>12}")
        for title, shape in SHAPES.items():
            row = [share(admits, shape, epsilon) for admits in (partial(on_filters, now), now.fits)]
            print(f"{title:28}{row[0]:14.3f}{row[1]:12.3f}", flush=True)
    slowest, of = 0.0, account("3")
    for number, (title, shape) in enumerate(SHAPES.items()):
        start = time.process_time()
        of.charge(shape(1.7 + number / 1000))
        taken = 1e3 * (time.process_time() - start)
        slowest = max(slowest, taken)
        print(f"{title:28}{taken:8.1f} ms on four filters and as a first job")
    print(f"slowest: {slowest:.1f} ms of processor time")


if __name__ == "__main__":
    main()
