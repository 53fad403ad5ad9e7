"""Exact noise: round(v + scale * X) for X exactly normal or exactly Laplace, and v on a grid of
integers.

Rounding a *continuous* sample is post-processing, so the result has every guarantee of the
continuous mechanism: mu-GDP for the Gaussian (a discrete Gaussian is not), pure epsilon and the
Laplace's own Rényi divergence for the Laplace (a two-sided geometric has a larger one). See
docs/decisions/0002-noise.md.

As v is an integer, round(v + scale * X) = v + sign * k with k = round(scale * |X|), and k is the
number with

    tail((k + 1/2) / scale) <= T < tail((k - 1/2) / scale)        (for k = 0 only the left half)

where tail(x) = P(|X| > x) and T is uniform on (0, 1): small T are the far tails, where they are
compared in relative precision. Floating point nearly always decides. If T falls so near a boundary
that rounding could decide wrongly, the same T is compared again, in integers and with as many
further random bits as necessary (as in workers/noise/token_sampler.py). The case in which floating
point alone decides is bounded at `_SLACK`. The random bits come from the operating system. The
duration of a draw depends on T and never on v.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, ndtri_exp

Entropy = Callable[[int], bytes]
Floats = NDArray[np.float64]
Grid = NDArray[np.int64]
Bounds = tuple[Fraction, Fraction]

#: Bits of T in the first word; its lowest bit is the sign.
KNOWN = 63

#: Scales above this many grid steps would leave floating point nothing to decide.
MOST_SCALE = 2**40

#: Values are cut here, which moves no two of them apart; noise then can't leave int64 unseen.
MOST_VALUE = 2**62

#: Fewer leading bits than this leave T too coarse for floating point.
_LEAST_BITS = 2**46

#: More than the error of the floating-point quantile q(T), relative to 1 + q. T lies within 2^-47
#: of its middle and its float within another 2^-53, relatively; q moves by at most sqrt(pi / 2) of
#: that (normal: Q(q) / phi(q) <= sqrt(pi / 2)) or 1 of it (Laplace). numpy's log and scipy's ndtri
#: (Cephes) are off by less than 2^-51 (1 + q), measured against 50 digits (tests/workers/noise); we
#: allow 2^-46 for them. 1.26 * 2^-47 + 1.26 * 2^-53 + 2^-46 + the product's 2^-51 < 2^-44.
_SLACK = 2.0**-44


@dataclass(frozen=True)
class _Law:
    """The distribution of |X|: two floating-point approximations, and proven bounds of its tail."""

    #: |X| from T, elementwise, within 2^-46 (1 + |X|) for T >= 2^-17.
    quantile: Callable[[Floats], Floats]
    #: |X| from log T, for any T; a guess where the exact search starts.
    from_log: Callable[[float], float]
    #: low <= P(|X| > x) <= high for x > 0, that are nearer than 2^-precision.
    tail: Callable[[Fraction, int], Bounds]


def gaussian_on_grid(values: Grid, sigma: Fraction | float, entropy: Entropy = os.urandom) -> Grid:
    """round(values + sigma * Z), Z standard normal and independent for each value: exactly.

    `values`: int64 of any shape, in steps of a public grid. `sigma`: standard deviation in grid
    steps; a float stands for its exact binary value. Returns int64 of the same shape, saturated at
    the ends of int64. Raises ValueError for another type of values or a sigma outside (0, 2^40].
    """
    return _add(_NORMAL, values, sigma, entropy)


def laplace_on_grid(values: Grid, scale: Fraction | float, entropy: Entropy = os.urandom) -> Grid:
    """round(values + scale * L), L standard Laplace (density e^-|x| / 2), independent for each:
    exactly.

    Arguments, result and errors as in `gaussian_on_grid`; the standard deviation is sqrt(2) *
    scale.
    """
    return _add(_LAPLACE, values, scale, entropy)


def _add(law: _Law, values: Grid, scale: Fraction | float, entropy: Entropy) -> Grid:
    if values.dtype != np.int64:
        raise ValueError("values must be int64, in steps of a grid")
    if not 0 < scale <= MOST_SCALE:  # also refuses NaN
        raise ValueError("the scale must be above 0 and at most 2^40 grid steps")
    scale = Fraction(scale)
    flat = np.clip(values, -MOST_VALUE, MOST_VALUE).ravel()
    words = np.frombuffer(entropy(8 * flat.size), dtype="<u8")
    bits, sign = words >> np.uint64(1), 1 - 2 * (words & np.uint64(1)).astype(np.int64)
    quantile = law.quantile((bits.astype(np.float64) + 0.5) * 2.0**-KNOWN)
    distance = quantile * float(scale)
    near = _SLACK * (1 + (1 + quantile) * float(scale))
    doubtful = (bits < _LEAST_BITS) | (np.abs(distance - np.floor(distance) - 0.5) <= near)
    # Where it counts quantile < 10, so the step is below 2^44 and the sum below 2^63.
    noisy = flat + sign * np.floor(np.where(doubtful, 0, distance) + 0.5).astype(np.int64)
    for place in np.flatnonzero(doubtful).tolist():
        step = _exactly(law, scale, int(bits[place]), entropy)
        noisy[place] = min(max(int(flat[place]) + int(sign[place]) * step, -(2**63)), 2**63 - 1)
    return noisy.reshape(values.shape)


def _exactly(law: _Law, scale: Fraction, bits: int, entropy: Entropy) -> int:
    """Return the k of the module docstring for the T whose first KNOWN bits are `bits`."""
    precision = KNOWN
    step = _guess(law, scale, bits, precision)
    while True:
        inner = -1 if step == 0 else _side(law, (step - Fraction(1, 2)) / scale, bits, precision)
        outer = _side(law, (step + Fraction(1, 2)) / scale, bits, precision)
        if inner < 0 < outer:
            return step
        if inner > 0:
            step -= 1
        elif outer < 0:
            step += 1
        else:
            bits = (bits << 64) | int.from_bytes(entropy(8), "big")
            precision += 64
            # in the far tail the new bits move it by many steps
            step = _guess(law, scale, bits, precision)


def _guess(law: _Law, scale: Fraction, bits: int, known: int) -> int:
    """Return about k of the middle of [bits, bits + 1) / 2^known, off by a step at most."""
    log_t = math.log(2 * bits + 1) - (known + 1) * math.log(2)
    return math.floor(law.from_log(log_t) * float(scale) + 0.5)


def _side(law: _Law, x: Fraction, bits: int, known: int) -> int:
    """Return 1 if certainly T >= tail(x) (|X| <= x), -1 if certainly T < tail(x), else 0."""
    low, high = law.tail(x, known + 16)
    if Fraction(bits, 2**known) >= high:
        return 1
    return -1 if Fraction(bits + 1, 2**known) <= low else 0


# --- proven bounds of the tails ------------------------------------------------------------------


def _laplace_tail(x: Fraction, precision: int) -> Bounds:
    """e^-x. Python's Decimal rounds divisions and exponentials correctly, to `digits` digits."""
    if x > precision:  # e^-x < 2^-precision
        return Fraction(0), Fraction(1, 2**precision)
    digits = precision * 302 // 1000 + 20
    # The sign goes in before: minus on a Decimal would round to the 28 digits of the default
    # context.
    exponent = Decimal(-x.numerator), Decimal(x.denominator)
    down = Context(prec=digits, rounding=ROUND_FLOOR).divide(*exponent)
    up = Context(prec=digits, rounding=ROUND_CEILING).divide(*exponent)
    unit = Fraction(1, 10 ** (digits - 1))
    nearest = Context(prec=digits)
    return Fraction(nearest.exp(down)) * (1 - unit), Fraction(nearest.exp(up)) * (1 + unit)


def _normal_tail(x: Fraction, precision: int) -> Bounds:
    """Return P(|Z| > x) = 1 - sqrt(2 / pi) * sum over n of (-1)^n x^(2n+1) / (2^n n! (2n+1)).

    (The power series of the error function, Abramowitz and Stegun 7.1.5, at x / sqrt 2.) In
    integers of 2^-work, every operation rounded outward.
    """
    if x * x > 2 * precision:  # P(|Z| > x) <= e^(-x^2 / 2) < 2^-precision
        return Fraction(0), Fraction(1, 2**precision)
    # Rounding errors grow with the terms, to at most e^(x^2 / 2) < 2^(3 x^2 / 4); the sum is below
    # 2.
    work = precision + math.ceil(x * x * 3 / 2) + 64
    low, high = _alternating_sum(x, work)
    pi_low, pi_high = _pi(work)
    factor_low = math.isqrt((2 << 3 * work) // pi_high)
    factor_high = math.isqrt((2 << 3 * work) // pi_low) + 1
    unit = 1 << 2 * work
    return Fraction(unit - high * factor_high, unit), Fraction(unit - low * factor_low, unit)


def _alternating_sum(x: Fraction, work: int) -> tuple[int, int]:
    """Return bounds on the sum in `_normal_tail`, in units of 2^-work."""
    square = x * x
    top, bottom = square.numerator, 2 * square.denominator
    low = (x.numerator << work) // x.denominator
    high = low + 1
    total_low, total_high, n = low, high, 0
    # Once they shrink, the terms that are left add up to less than the first of them.
    while high > 1 or 2 * n < square:
        n += 1
        low = low * top // (bottom * n)
        high = -(-high * top // (bottom * n))
        if n % 2:
            total_low, total_high = (
                total_low + -high // (2 * n + 1),
                total_high - low // (2 * n + 1),
            )
        else:
            total_low, total_high = (
                total_low + low // (2 * n + 1),
                total_high - -high // (2 * n + 1),
            )
    return max(total_low - 1, 0), total_high + 1


@lru_cache(maxsize=64)
def _pi(work: int) -> tuple[int, int]:
    """Return bounds of pi in units of 2^-work, by Machin's formula with 16 spare bits."""
    unit = 1 << (work + 16)
    total, terms = 0, 0
    for factor, base in ((16, 5), (-4, 239)):
        power, n = unit // base, 0
        while power:
            total += (-1) ** n * factor * (power // (2 * n + 1))
            power //= base * base
            n += 1
        terms += abs(factor) * (n + 1)
    # Each term is off by less than 3: floor of a power off by less than 2, and a floor; so is the
    # rest.
    slack = 3 * terms
    return (total - slack) >> 16, ((total + slack) >> 16) + 1


def _normal_quantile(tail: Floats) -> Floats:
    return np.asarray(-ndtri(tail / 2), dtype=np.float64)


def _laplace_quantile(tail: Floats) -> Floats:
    return np.asarray(-np.log(tail), dtype=np.float64)


_NORMAL = _Law(
    _normal_quantile, lambda log_t: max(0.0, -float(ndtri_exp(log_t - math.log(2)))), _normal_tail
)
_LAPLACE = _Law(_laplace_quantile, lambda log_t: max(0.0, -log_t), _laplace_tail)
