"""Figures on pages: what is used is never shown below what it is, and what is left never above."""

import pytest

from web.views import template_filters


@pytest.mark.parametrize(("value", "spent", "left"), [
    ("2.00004", "2.001", "2"),
    ("0.99999", "1", "0.9999"),
    ("12345.2", "12,346", "12,345"),
    ("0.000000012344", "1.235e-8", "1.234e-8"),
    (0.1 + 0.2, "0.3", "0.3"),
    ("0", "0", "0"),
    ("not shown", "not shown", "not shown"),
])  # fmt: skip
def test_amounts(value, spent, left):
    assert template_filters.spent(value) == spent
    assert template_filters.left(value) == left


@pytest.mark.parametrize(("share", "used", "left"), [
    (0.9996, "100.0 %", "99.9 %"),
    (1.00001, "100.1 %", "100.0 %"),
    (0.07, "7.0 %", "7.0 %"),
    (1 / 3, "34 %", "33 %"),
    (0.0001, "< 0.1 %", "0.0 %"),
    (0.0, "0.0 %", "0.0 %"),
    (5e21, "over 1,000 %", "500,000,000,000,000,000,000,000 %"),
])  # fmt: skip
def test_shares(share, used, left):
    assert template_filters.percent(share) == used
    assert template_filters.percent_left(share) == left
