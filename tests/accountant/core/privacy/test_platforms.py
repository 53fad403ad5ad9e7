"""A price is the same figure on another processor, whose logarithms differ in the last digits.

A verifier computes every price of a ledger again and demands equality. NumPy picks its vector code
by the processor; told to use none of it, it computes as on an old one.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from accountant.core.privacy.events import (
    Allocated,
    AllocatedReplaced,
    Composed,
    Event,
    Exponential,
    Gaussian,
    Laplace,
    PoissonReplaced,
    PoissonSampled,
    PoissonSwapped,
    SelfComposed,
    ZCDp,
)
from accountant.core.privacy.filters import portfolio
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS

ROOT = Path(__file__).resolve().parents[4]
EVENTS = 40


def drawn(draw: random.Random) -> Event:
    """An event of any kind whose price rests on floats."""

    def around(low: float, high: float) -> float:
        return float(f"{10 ** draw.uniform(low, high):.6g}")

    token = Exponential(around(-2, 0))
    places = draw.randint(2, 500), draw.randint(1, 2), draw.randint(1, 100)
    leaf: Event = draw.choice(
        [
            Gaussian(around(-0.3, 2)),
            Laplace(around(-0.3, 2)),
            Exponential(around(-2, 0.3)),
            ZCDp(around(-3, 0.5)),
            PoissonSampled(around(-3, -0.3), Gaussian(around(-0.2, 1))),
            PoissonReplaced(around(-3, -0.3), Gaussian(around(-0.2, 1))),
            PoissonSwapped(around(-3, -0.3), Gaussian(around(-0.2, 1))),
            Allocated(*places, token),
            AllocatedReplaced(*places, token),
        ]
    )
    if draw.random() < 0.5:
        leaf = SelfComposed(leaf, draw.choice([2, 10, 100, 1000]))
    return Composed((leaf, Gaussian(around(0, 1)))) if draw.random() < 0.2 else leaf


def prices(count: int, seed: int) -> list[list[str]]:
    """What `count` events cost on every filter of accounts of several sizes."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        event = drawn(draw)
        size = draw.choice([1, 3, 10]) * EPSILON_UNITS
        filters = portfolio(size, DELTA_UNITS // 10**6)
        found.append([repr(event), *(str(each.cost(event)) for each in filters)])
    return found


def vector_code() -> list[str]:
    """The vector instructions beyond its baseline that NumPy uses here."""
    return list(np.show_config("dicts")["SIMD Extensions"].get("found", []))


@pytest.mark.slow
def test_prices_do_not_depend_on_the_processors_vector_instructions():
    seed = random.randrange(2**32)
    if not vector_code():
        pytest.skip("NumPy uses no vector code of this processor")
    switched_off = {
        "NPY_DISABLE_CPU_FEATURES": " ".join(vector_code()),
        "OPENBLAS_CORETYPE": "Nehalem",
    }
    program = (
        f"import json; from {__name__} import *; print(json.dumps([vector_code(), "
        f"prices({EVENTS}, {seed})]))"
    )
    asked = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(
        asked, cwd=ROOT, env=os.environ | switched_off, capture_output=True, text=True, check=True
    )
    left, elsewhere = json.loads(done.stdout)
    assert not left, "the vector code was not switched off"
    assert elsewhere == prices(EVENTS, seed), seed
