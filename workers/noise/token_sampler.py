"""Exact sampling of a token: P(i) is proportional to exp(score_i * scale), for integer scores.

Floating point nearly always decides. If a random number falls so near a boundary that rounding
could decide wrongly (once in 80,000 draws at 128,256 tokens), the boundaries beside it are computed
again as integers of 120 bits and, if that is not enough, with as many digits as necessary. The
result has exactly this distribution, given uniform random bits, which come from the operating
system.
"""

import os
from collections.abc import Callable
from decimal import Context, Decimal, Overflow, Underflow
from fractions import Fraction
from operator import mul

import numpy as np
from numpy.typing import NDArray

Entropy = Callable[[int], bytes]

#: Weights are added up in blocks: only the block in which a draw falls is then looked at one by
#: one.
_BLOCK = 256
#: Binary places of the integers that stand for weights.
_PLACES = 120
#: Bits of a part of them that floating point adds up exactly.
_LIMB = 24
#: Weights below e^-84 < 2^-120 are no more than the last place.
_LEAST_EXPONENT = 84


def draw(scores: NDArray[np.int64], scale: Fraction, entropy: Entropy = os.urandom) -> int:
    """Return an index drawn exactly from softmax(scores * scale); `scores`: int64."""
    if scores.ndim != 1 or scores.dtype != np.int64 or not len(scores):
        raise ValueError("scores must be a non-empty vector of int64")
    bits = int.from_bytes(entropy(8), "big")
    first, last = _candidates(scores, float(scale), bits / 2**64)
    if first == last:
        return first
    below = scores - scores.max()
    place = _locate_among(below, scale, bits, first, last)
    return _draw_exactly(below, scale, bits, entropy) if place is None else place


def _candidates(scores: NDArray[np.int64], scale: float, point: float) -> tuple[int, int]:
    """Return first and last index that may hold `point`, a fraction of the sum of all weights."""
    size, blocks = len(scores), -(-len(scores) // _BLOCK)
    weights = np.empty((blocks, _BLOCK))
    flat = weights.reshape(-1)
    flat[size:] = 0
    flat = flat[:size]
    np.subtract(scores, scores.max(), out=flat, casting="same_kind")
    np.exp(np.multiply(flat, scale, out=flat), out=flat)
    ends = weights.sum(axis=1).cumsum()
    slack = _tolerance(size) * ends[-1]

    def index(target: float) -> int:
        block = min(int(np.searchsorted(ends, target, side="right")), blocks - 1)
        before = ends[block - 1] if block else 0.0
        inside = int(np.searchsorted(before + weights[block].cumsum(), target, side="right"))
        return min(block * _BLOCK + min(inside, _BLOCK - 1), size - 1)

    target = point * ends[-1]
    return index(target - slack), index(target + slack)


def _tolerance(size: int) -> float:
    """Return an upper bound on the error of a boundary and of the point, as a fraction of the sum
    of all weights.

    exp(x) for x = k * scale <= 0: the product is off by |x| * 2^-52 and exp by less than 4 units in
    the last place, so n weights are off by at most n * 2^-52 / e (|x| e^x <= 1/e) and 2^-50 of
    their sum, which is at least 1. Adding them up errs by at most (block + blocks) * 2^-53 of the
    sum. A boundary and the sum that the point is multiplied with err alike; the point by 2^-53, its
    product by as much.
    """
    return (size + _BLOCK + size / _BLOCK + 32) * 2.0**-52


def _locate_among(
    below: NDArray[np.int64], scale: Fraction, bits: int, first: int, last: int
) -> int | None:
    """Return the index from `first` to `last` that certainly holds the random number, in integers;
    else None.

    exp(-step * scale) is the product of two table entries, for the low and the high bits of `step`.
    Tables are made by multiplication, two units in the last place a step, so a weight is off by
    less than 2^(range + 3) units, where 2^range is more than the largest step.
    """
    least = min(int(_LEAST_EXPONENT / scale) + 1, 2**62)
    steps = np.minimum(-below, least)
    range_bits = int(steps.max()).bit_length()
    if range_bits > 32:  # the tables would be too large
        return None
    low_bits = range_bits // 2 + 1
    base = _fixed_exp(-scale)
    fine = _powers(base, 1 << low_bits)
    coarse = _powers(fine[-1] * base >> _PLACES, int(steps.max() >> low_bits) + 1)
    low, high = steps & ((1 << low_bits) - 1), steps >> low_bits
    limbs = _limbs(fine)

    def weigh(part: slice) -> int:
        """Return the sum of weights, exactly: the low parts of each high part come first."""
        total = 0
        for place, limb in enumerate(limbs):
            sums = np.bincount(high[part], weights=limb[low[part]]).astype(np.int64).tolist()
            total += sum(map(mul, coarse, sums)) << (_LIMB * place)
        return total

    ends = [weigh(slice(first))]
    for index in range(first, last + 1):
        ends.append(ends[-1] + fine[low[index]] * coarse[high[index]])
    total = ends[-1] + weigh(slice(last + 1, None))
    slack = len(below) << (range_bits + 4 + _PLACES + 64)
    # The random number is somewhere in [bits, bits + 1) / 2^64.
    start, end = bits * total, (bits + 1) * total
    for index in range(first, last + 1):
        lower, upper = (bound_pair << 64 for bound_pair in ends[index - first : index - first + 2])
        after = index == 0 or lower + slack <= start
        if after and (index == len(below) - 1 or end <= upper - slack):
            return index
    return None


def _limbs(powers: list[int]) -> list[NDArray[np.float64]]:
    """Return numbers of at most `_PLACES` bits in limbs, lowest first, whose sums are exact."""
    size = _PLACES // 8
    joined = b"".join(power.to_bytes(size, "little") for power in powers)
    parts = np.frombuffer(joined, dtype=np.uint8).reshape(len(powers), size).astype(np.float64)
    return [
        parts[:, at] + 256 * parts[:, at + 1] + 65536 * parts[:, at + 2] for at in range(0, size, 3)
    ]


def _fixed_exp(exponent: Fraction) -> int:
    """e^exponent, for an exponent <= 0, in units of 2^-120, off by less than one."""
    context = Context(prec=60)
    power = context.exp(context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator)))
    return int(Fraction(power) * 2**_PLACES)


def _powers(base: int, count: int) -> list[int]:
    """Return the powers 0 to `count` - 1 of a number in units of 2^-120."""
    powers, power = [], (1 << _PLACES) - 1
    for _ in range(count):
        powers.append(power)
        power = power * base >> _PLACES
    return powers


def _draw_exactly(below: NDArray[np.int64], scale: Fraction, bits: int, entropy: Entropy) -> int:
    """Return the same draw with precision that grows until one bound holds the interval."""
    precision_bits = 64
    digits = 40
    while True:
        context = Context(prec=digits, Emin=-(10**9), Emax=10**9, traps=[Overflow])
        context.clear_traps()
        context.traps[Underflow] = False
        weights = _weights(below, scale, context)
        total = sum(weights, Fraction(0))
        # Each weight is off by at most one unit in its last digit; the sum is at least 1.
        slack = Fraction(2 * len(weights) + 2, 10 ** (digits - 2))
        low = Fraction(bits, 2**precision_bits) * total
        high = Fraction(bits + 1, 2**precision_bits) * total
        place = _locate(weights, low, high, slack)
        if place is not None:
            return place
        bits = (bits << 64) | int.from_bytes(entropy(8), "big")
        precision_bits += 64
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
    """Return the index whose interval certainly holds [low, high), or None."""
    upper = Fraction(0)
    for index, weight in enumerate(weights):
        lower, upper = upper, upper + weight
        last = index == len(weights) - 1
        if (index == 0 or lower + slack <= low) and (last or high <= upper - slack):
            return index
    return None
