"""Exact sampling of a token: P(i) is proportional to exp(score_i * scale), for integer scores.

Floating point nearly always decides. If a random number falls so near a boundary that rounding could decide
wrongly, the same number is compared again with as many digits as necessary. The result has exactly this
distribution, given uniform random bits, which come from the operating system.
"""

import os
from collections.abc import Callable
from decimal import Context, Decimal, Overflow, Underflow
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Entropy = Callable[[int], bytes]


def draw(scores: NDArray[np.int64], scale: Fraction, entropy: Entropy = os.urandom) -> int:
    """An index drawn from softmax(scores * scale), exactly. `scores` is (vocabulary,), int64."""
    if scores.ndim != 1 or scores.dtype != np.int64 or not len(scores):
        raise ValueError("scores must be a non-empty vector of int64")
    below = scores - scores.max()
    cumulative = np.cumsum(np.exp(below * float(scale)))
    bounds = cumulative / cumulative[-1]
    bits = int.from_bytes(entropy(8), "big")
    point = bits / 2**64
    chosen = int(np.searchsorted(bounds, point, side="right"))
    tolerance = _tolerance(len(scores))
    low = bounds[chosen - 1] if chosen else -1.0
    high = bounds[chosen] if chosen < len(bounds) - 1 else 2.0
    if chosen < len(bounds) and low + tolerance < point < high - tolerance:
        return chosen
    return _draw_exactly(below, scale, bits, entropy)


def _tolerance(size: int) -> float:
    """An upper bound on the error of a boundary and of the point.

    exp(x) for x = k * scale <= 0: the product is off by |x| * 2^-52 and exp by less than 4 units in the
    last place, so a weight is off by at most |x| e^x 2^-52 + 2^-50 e^x < 2^-49; n of them by n * 2^-49;
    adding up n numbers in order errs by at most n * 2^-52 of the sum; the sum is at least 1. A quotient
    of two such sums is off by at most twice that; the point by 2^-53.
    """
    return (size + 1) * 2.0**-47


def _draw_exactly(below: NDArray[np.int64], scale: Fraction, bits: int, entropy: Entropy) -> int:
    """The same draw with growing precision until the interval of the random number lies within one bound."""
    known = 64
    digits = 40
    while True:
        context = Context(prec=digits, Emin=-(10**9), Emax=10**9, traps=[Overflow])
        context.clear_traps()
        context.traps[Underflow] = False
        weights = _weights(below, scale, context)
        total = sum(weights, Fraction(0))
        # Each weight is off by at most one unit in its last digit; the sum is at least 1.
        slack = Fraction(2 * len(weights) + 2, 10 ** (digits - 2))
        low = Fraction(bits, 2**known) * total
        high = Fraction(bits + 1, 2**known) * total
        found = _locate(weights, low, high, slack)
        if found is not None:
            return found
        bits = (bits << 64) | int.from_bytes(entropy(8), "big")
        known += 64
        digits += 20


def _weights(below: NDArray[np.int64], scale: Fraction, context: Context) -> list[Fraction]:
    denominator = Decimal(scale.denominator)
    seen: dict[int, Fraction] = {}
    weights = []
    for step in below.tolist():
        if step not in seen:
            exponent = context.divide(Decimal(step * scale.numerator), denominator)
            # Below 10^-digits a weight can't move any bound by more than the slack.
            tiny = exponent < -3 * context.prec
            seen[step] = Fraction(0) if tiny else Fraction(context.exp(exponent))
        weights.append(seen[step])
    return weights


def _locate(weights: list[Fraction], low: Fraction, high: Fraction, slack: Fraction) -> int | None:
    """The index whose interval certainly holds [low, high), or None if that is not certain."""
    upper = Fraction(0)
    for index, weight in enumerate(weights):
        lower, upper = upper, upper + weight
        last = index == len(weights) - 1
        if (index == 0 or lower + slack <= low) and (last or high <= upper - slack):
            return index
    return None
