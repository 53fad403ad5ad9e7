"""Time to compute a price: `python benchmarks/pricing.py` prints the median per mechanism.

Exits 1 if one exceeds its bound. A price is what `exchequer price` computes after start-up: check the
parameters, calibrate the noise, build the event, find epsilon alone and the Rényi curve. No two requests are
alike, so caches don't help.
"""

import statistics
import sys
import time
from typing import Any

from accountant.core.mechanisms import MECHANISMS
from accountant.core.mechanisms.base import quote
from accountant.core.privacy.price import Neighbours, Terms

BOUND_MS = 50.0
REPETITIONS = 15

#: Requests that show a mechanism at its slowest; {} where the defaults are.
REQUESTS: dict[str, tuple[dict[str, Any], ...]] = {
    "private-prediction": ({}, {"batching": "clusters"}),
    "epsvec": ({"epsilon": 3.0}, {"epsilon": 0.2, "samples_per_label": 10}),
    "dp-kps": ({}, {"noise": "gaussian", "method": "logarithmic"}, {"method": "linear"}),
    "aug-pe": ({"epsilon": 3.0},),
    "summary-token": ({"epsilon": 3.0},),
    "summary-oneshot": ({"epsilon": 3.0, "releases": 4},),
}


def median_ms(name: str, raw: dict[str, Any], neighbours: Neighbours) -> float:
    """Milliseconds of one price, the median of REPETITIONS with deltas that all differ."""
    mechanism = MECHANISMS[name]
    taken = []
    for repetition in range(REPETITIONS):
        terms = Terms(neighbours, 1e-6 / (repetition + 1), 1, 20_000, ("a", "b"))
        start = time.perf_counter()
        quote(mechanism, mechanism.parse(raw, terms), terms)
        taken.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken)


def main() -> int:
    """Print a table; 1 where a bound is passed."""
    slow = False
    print(f"{'mechanism':20} {'neighbours':12} {'median ms':>10}  request")
    for name in MECHANISMS:
        if name == "secpe" or MECHANISMS[name].public or MECHANISMS[name].reads_output:
            continue  # priced against declared secrets, a benchmark of its own; or reads no records
        for raw in REQUESTS.get(name, ({},)):
            for neighbours in Neighbours:
                taken = median_ms(name, raw, neighbours)
                slow |= taken > BOUND_MS
                print(f"{name:20} {neighbours:12} {taken:10.1f}  {raw}")
    print(f"bound: {BOUND_MS:g} ms each: {'passed over' if slow else 'kept'}")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
