"""Figures as people read them: a price is never shown below what it is, and what is left never
above.
"""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core.mechanisms.noise_fields import amount
from accountant.core.privacy.units import DELTA_UNITS, EPSILON_UNITS, down, to_decimal, up

AMOUNTS = st.integers(0, 10**15)


@given(AMOUNTS, st.sampled_from((EPSILON_UNITS, DELTA_UNITS)), st.integers(1, 9))
def test_exact_amounts_are_shown_from_their_own_side_and_near(units, unit, digits):
    text, true = to_decimal(units, unit), Fraction(units, unit)
    above, below = (Fraction(repr(each(text, digits))) for each in (up, down))
    assert below <= true <= above
    assert above - below <= true * Fraction(10) ** (1 - digits)


@pytest.mark.parametrize(("value", "digits", "high", "low"), [
    ("2.00004", 4, 2.001, 2.0),
    ("0.99999", 4, 1.0, 0.9999),
    (0.1 + 0.2, 4, 0.3, 0.3),
    (2.9053e-6, 4, 2.906e-6, 2.905e-6),
    ("123456.7", 2, 130000.0, 120000.0),
    (0, 3, 0.0, 0.0),
])  # fmt: skip
def test_digits_beyond_those_shown_decide_and_noise_of_floats_does_not(value, digits, high, low):
    assert up(value, digits) == high
    assert down(value, digits) == low


@given(st.floats(1e-9, 1e6))
def test_a_breakdown_never_understates_a_part(value):
    assert Fraction(amount(value).replace(",", "")) >= Fraction(value) * (1 - Fraction(1, 10**11))
