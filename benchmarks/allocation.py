"""What a secret coin buys: `python -m benchmarks.allocation`.

The shape is AG News': 120,000 units in 4 labels, 64 to a batch (k = 468), clip 9, temperature 1.5,
one unit added or removed. Alone: tokens of one batch at an epsilon and delta 2.9e-6, on one coin
and with a coin drawn anew every 50 tokens; and epsilon at equal tokens. On an account: jobs of a
size until the first refusal. Last: the time of a price on all four filters, no two alike. Exits
with 1 where a figure is below what was promised.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

from accountant.core.privacy.composition import epsilon_alone, renyi_epsilon
from accountant.core.privacy.events import (
    Allocated,
    AllocatedReplaced,
    Event,
    Exponential,
    SelfComposed,
)
from accountant.core.privacy.filters import Filter, granted, portfolio, price_on
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS

BATCHES, DRAW, DELTA = 468, Exponential(9 / (64 * 1.5)), 2.9e-6
ROUND = 50
renyi = partial(renyi_epsilon, delta=DELTA)
EPSILONS = (1.0, 3.0, 10.0)
ONE_COIN = (210, 350, 830)
ROUNDS = (2_200, 17_000, 137_000)

#: Tokens at which epsilon has to fall tenfold at least.
EQUAL = (50, 500, 2_500, 15_000)

ACCOUNTS = ((1, "0.0000029"), (3, "0.000001"), (10, "0.0000029"))
SIZES = (10, 25, 50, 100, 200)
#: Jobs of these sizes that each account has to reach, with default shares and order.
JOBS = ((256, 95, 42, 0, 0), (1_787, 668, 297, 115, 0), (15_682, 5_864, 2_611, 1_022, 293))


def coin(tokens: int) -> Event:
    """One coin, so many tokens."""
    return Allocated(BATCHES, BATCHES, tokens, DRAW)


def rounds(count: int) -> Event:
    """So many coins of ROUND tokens each."""
    return SelfComposed(coin(ROUND), count)


def plain(tokens: int) -> Event:
    """The same tokens if everybody knew the coin."""
    return SelfComposed(DRAW, tokens)


def most(
    event: Callable[[int], Event], epsilon: float, price: Callable[[Event], float | None]
) -> int:
    """The largest count whose event costs at most `epsilon`."""

    def fits(count: int) -> bool:
        cost = price(event(count))
        return cost is not None and cost <= epsilon

    good, step = 0, 1
    while fits(good + step):
        good, step = good + step, 2 * step
    while step > 1:
        step //= 2
        good += step * fits(good + step)
    return good


def alone(event: Event) -> float:
    """The quote."""
    return epsilon_alone(event, DELTA)[0]


def jobs(filters: tuple[Filter, ...], limits: tuple[int, int], event: Event) -> int:
    """The number of such jobs until no filter holds."""
    costs = price_on(filters, event)
    counts = [0]
    for each in filters:
        cost, limit = costs[each.kind], each.limit(*limits)
        if cost is not None and cost.main:
            counts.append(
                limit.main // cost.main
                if not cost.delta
                else min(limit.main // cost.main, limit.delta // cost.delta)
            )
    return max(counts)


def main() -> int:
    """Print the tables; 1 where a promise is broken."""
    short = False
    print(
        f"k = {BATCHES}, shift {DRAW.shift:g}, delta {DELTA:g}; tokens of one batch, one job alone"
    )
    print(
        f"{'epsilon':>8} {'coin known':>11} {'Rényi':>7} {'exact':>7} {'rounds':>14} "
        f"{'by Rényi':>9}"
    )
    for epsilon, least, least_rounds in zip(EPSILONS, ONE_COIN, ROUNDS, strict=True):
        figures = (
            most(plain, epsilon, renyi),
            most(coin, epsilon, renyi),
            most(coin, epsilon, alone),
            ROUND * most(rounds, epsilon, alone),
            ROUND * most(rounds, epsilon, renyi),
        )
        print("{:8g} {:11,} {:7,} {:7,} {:14,} {:9,}".format(epsilon, *figures))
        short |= figures[2] < least or figures[3] < least_rounds
    print("\nepsilon at equal tokens, coin known -> a coin drawn anew every 50")
    for tokens in EQUAL:
        known, hidden = alone(plain(tokens)), alone(rounds(tokens // ROUND))
        print(f"{tokens:8,} {known:8.3g} -> {hidden:.3g}, {known / hidden:.0f} times less")
        short |= known < 10 * hidden
    print("\njobs on an account, coin known -> secret coin")
    print(f"{'account':>18} {'order':>7}  " + "".join(f"{size:>16}" for size in SIZES))
    for (epsilon, delta), promised in zip(ACCOUNTS, JOBS, strict=True):
        limits = granted(epsilon, delta)
        filters = portfolio(*limits)
        row = [
            (jobs(filters, limits, plain(size)), jobs(filters, limits, coin(size)))
            for size in SIZES
        ]
        shown = "".join(f"{f'{old:,} -> {new:,}':>16}" for old, new in row)
        print(f"{f'({epsilon}, {delta})':>18} {float(filters[0].order or 0):7.3f}  {shown}")
        short |= any(new < each for (_, new), each in zip(row, promised, strict=True))
    print(f"\nslowest of 40 prices on four filters: {slowest():.0f} ms of processor time")
    print("promises " + ("broken" if short else "kept"))
    return int(short)


def slowest() -> float:
    """Milliseconds of processor time of the slowest of 40 prices on four filters, each for the
    first time.
    """
    taken = []
    for i in range(40):
        filters = portfolio(EPSILON_UNITS * (1, 3, 10)[i % 3], DELTA_UNITS // 10**6)
        kind = (Allocated, AllocatedReplaced)[i % 2]
        batches = (2, 17, 468, 10**5, 10**9)[i % 5]
        event = kind(
            batches, max(1, batches - i), (1, 20, 300, 10**5)[i % 4], Exponential(0.5 / (1 + i))
        )
        start = time.process_time()
        price_on(filters, event)
        taken.append(1e3 * (time.process_time() - start))
    return max(taken)


if __name__ == "__main__":
    sys.exit(main())
