"""The meter's own cost of a draw, by the number of batches: it looks at one batch, however many
there are.

    python -m benchmarks.meter [--rounds 3]

Batches draw in turn, as they do side by side in a step; the sampler is left out. Known batches,
secret ones and the draws of the median, in microseconds of one thread.
"""

import argparse
import time
from collections.abc import Callable
from fractions import Fraction
from unittest.mock import patch

import numpy as np

from accountant.core.privacy.events import FREE, Allocated, Exponential, SelfComposed
from workers.noise.meter import Branch, Meter, Turn

BATCHES = (25, 250, 2_500, 30_000)
DRAWS = 60_000
SCORES = np.array([0, 0], dtype=np.int64)
COSTS = np.array([0.5, 0.5])
TOKEN = Exponential(0.1)


def known(batches: int, draws: int) -> tuple[list[Branch], Callable[[Branch], int]]:
    meter = Meter(SelfComposed(TOKEN, draws))
    branches = [meter.parallel(("label", number)) for number in range(batches)]
    return branches, lambda branch: branch.sample_token(SCORES, Fraction(1), TOKEN)


def secret(batches: int, draws: int) -> tuple[list[Branch], Callable[[Branch], int]]:
    event = Allocated(batches, batches, draws, TOKEN)
    meter = Meter(event)
    branches = [meter.parallel(Turn(0, "label", number)) for number in range(batches)]
    return branches, lambda branch: branch.sample_token(SCORES, Fraction(1), event)


def median(batches: int, draws: int) -> tuple[list[Branch], Callable[[Branch], int]]:
    meter = Meter(FREE, ex_post_draws=draws)
    branches = [meter.parallel(("label", number)) for number in range(batches)]
    return branches, lambda branch: branch.ex_post_token(SCORES, Fraction(1), COSTS)


def microseconds(
    kind: Callable[..., tuple[list[Branch], Callable[[Branch], int]]], batches: int
) -> float:
    """A draw's time, of the second half of the draws: all batches have drawn by then."""
    each = -(-DRAWS // batches) + 1
    branches, once = kind(batches, 2 * each)
    for _ in range(each):
        for branch in branches:
            once(branch)
    before = time.perf_counter()
    for _ in range(each):
        for branch in branches:
            once(branch)
    return (time.perf_counter() - before) / (each * batches) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print("microseconds a draw, the least of", rounds, "rounds")
    print("batches    known   secret   median")
    # the sampler's time is not the meter's
    with patch("workers.noise.meter.draw", new=lambda *_: 0):
        for batches in BATCHES:
            kinds = (known, secret, median)
            found = [min(microseconds(kind, batches) for _ in range(rounds)) for kind in kinds]
            print(f"{batches:7,}" + "".join(f"{each:9.2f}" for each in found), flush=True)


if __name__ == "__main__":
    main()
