"""Exact amounts. Balances are integers, so the order of addition doesn't matter.

Units: 10^-9 for epsilon, Rényi divergence and mu^2 (`EPSILON_UNITS` in one); 10^-21 for delta
(`DELTA_UNITS` in one). Prices round up and allowances round down, always against the spender.
"""

import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, InvalidOperation
from fractions import Fraction

from accountant.core.errors import invalid

EPSILON_UNITS = 10**9
DELTA_UNITS = 10**21

#: Float arithmetic behind a price (logarithms, quantiles) is trusted to this relative error. Such
#: figures are moved outward by it before they are rounded; sums and ratios are exact and are not.
FLOAT_SLACK = Fraction(1, 10**12)

Number = int | float | str | Decimal | Fraction


#: A number as people type it, in ASCII digits: Python reads "1_0" as 10, "\u0663" as 3 and "inf" as
#: well.
_PLAIN = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
#: Powers of ten that a typed amount has at most; balances have 38 digits.
_LARGEST_POWER = 28


def is_plain(text: str) -> bool:
    """Return whether a text is a number in plain digits, with a point and an exponent at most."""
    return len(text) <= 100 and _PLAIN.fullmatch(text) is not None and math.isfinite(float(text))


def exact(value: Number, field: str = "amount") -> Fraction:
    """Return the exact rational that `value` denotes. A float is read as its shortest decimal.

    Raises InvalidRequest for NaN, infinities, negatives and anything that is not a number in plain
    digits.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal | Fraction):
        raise invalid(field, f"{value!r} is not a number", "a number of at least 0")
    if (isinstance(value, str) and len(value) > 100) or (
        isinstance(value, int) and value >= 10**100
    ):
        raise invalid(field, "too many digits", "at most 100 characters")
    if isinstance(value, str) and not is_plain(value):
        raise invalid(
            field, f"{value!r} is not a number in plain digits", "a number such as 2.5 or 1e-6"
        )
    try:
        # repr of a float is the decimal that a person wrote; "0.3" must mean 3/10 in an allowance.
        decimal = Decimal(0) if isinstance(value, Fraction) else Decimal(str(value))
        if isinstance(value, str) and decimal and decimal.adjusted() > _LARGEST_POWER:
            raise invalid(field, f"{value!r} is too large", f"less than 1e{_LARGEST_POWER + 1}")
        if abs(decimal.adjusted()) > 400:  # 1e999999999 as a fraction would fill the memory
            raise OverflowError
        number = value if isinstance(value, Fraction) else Fraction(decimal)
    except (InvalidOperation, ValueError, OverflowError):
        raise invalid(field, f"{value!r} is not a finite number", "a finite number >= 0") from None
    if number < 0:
        raise invalid(field, f"{value!r} is negative", "a finite number >= 0")
    return number


_FRACTION = re.compile(r"-?[0-9]{1,40}(/([0-9]{1,40})|\.[0-9]{1,40})?")


def read_fraction(value: object, field: str) -> Fraction:
    """Return a stored share or order, such as "3/10". Raises InvalidRequest."""
    written = _FRACTION.fullmatch(value) if isinstance(value, str) else None
    if written is None or (written[2] and not int(written[2])):
        raise invalid(field, f"{value!r:.60} is no fraction", "two whole numbers such as 3/10")
    return Fraction(written[0])


_AMOUNT = re.compile(r"0|[1-9][0-9]{0,37}")


def read_amount(value: object, field: str = "amount") -> int:
    """Return a stored amount: plain digits as text. Raises InvalidRequest for "007" or 3."""
    if not isinstance(value, str) or _AMOUNT.fullmatch(value) is None:
        raise invalid(field, f"{value!r:.60} is no amount", "whole digits, as text")
    return int(value)


def round_price(value: Fraction, units: int) -> int:
    """Return the units charged for `value`, rounded up, so that a positive price is never 0."""
    if value < 0:
        raise ValueError("a price can't be negative")
    return math.ceil(value * units)


def round_allowance(value: Number, units: int, field: str = "allowance") -> int:
    """Return units granted for `value`, rounded down. Raises if it would become 0."""
    number = exact(value, field)
    granted = math.floor(number * units)
    if number > 0 and granted == 0:
        raise invalid(field, f"{value!r} is less than one unit", f"0 or at least {1 / units:g}")
    return granted


def sqrt_up(value: Fraction) -> float:
    """Return a float that is not below the square root of `value`."""
    return math.nextafter(math.sqrt(float_up(value)), math.inf) if value else 0.0


def measured_up(value: float) -> Fraction:
    """Return an inexact float as a rational certainly not below the true value."""
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"a measured cost must be finite and not negative, not {value!r}")
    return Fraction(value) * (1 + FLOAT_SLACK)


def measured_down(value: float) -> Fraction:
    """Return a rational certainly not above the true value, at least 0. For limits."""
    if not math.isfinite(value):
        raise ValueError(f"a limit must be finite, not {value!r}")
    return max(Fraction(value) * (1 - FLOAT_SLACK), Fraction(0))


def coarse_up(value: float) -> Fraction:
    """Return a positive float rounded up to 20 binary digits, which costs at most 2e-6 of it.

    So that a verifier whose logarithms differ in the last digits gets the same figure.
    """
    mantissa, exponent = math.frexp(value)
    return Fraction(math.ceil(mantissa * 2**20), 2**20) * Fraction(2) ** exponent


def float_up(value: Fraction) -> float:
    """Return the smallest float not below `value`; event parameters are stored as floats."""
    nearest = value.numerator / value.denominator
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def to_decimal(amount: int, units: int) -> str:
    """Return units as exact decimal text without trailing zeros, such as '0.0000029053'."""
    digits = len(str(units)) - 1
    whole, part = divmod(abs(amount), units)
    text = f"{whole}.{part:0{digits}d}".rstrip("0").rstrip(".")
    return f"-{text}" if amount < 0 else text


# --- as people read them ------------------------------------------------------------------------


def up(value: Number, digits: int) -> float:
    """`value` rounded up to so many significant digits: for prices and amounts spent.

    The last digits of a float (1e-12 of it) are ignored: 0.1 + 0.2 is 0.3.
    """
    return _shortened(value, digits, ROUND_CEILING)


def down(value: Number, digits: int) -> float:
    """`value` rounded down to so many significant digits: for amounts left."""
    return _shortened(value, digits, ROUND_FLOOR)


def _shortened(value: Number, digits: int, rounding: str) -> float:
    number = Decimal(str(value))
    if not number or not number.is_finite():
        return float(number)
    if isinstance(value, float):
        number = _at(number, 12, ROUND_HALF_EVEN)
    return float(_at(number, digits, rounding))


def _at(number: Decimal, digits: int, rounding: str) -> Decimal:
    return number.quantize(Decimal(1).scaleb(number.adjusted() - digits + 1), rounding=rounding)


def percent_up(share: float) -> str:
    """Return a used share as a percentage, rounded up: any use shows as at least "0.1%"."""
    value = 100 * Decimal(str(share))
    value = _at(value, 12, ROUND_HALF_EVEN) if value else value
    return f"{value.quantize(Decimal('0.1'), rounding=ROUND_CEILING):,}%"
