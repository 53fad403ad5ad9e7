"""Canonical JSON is that of the rfc8785 package, whatever is in it."""

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from accountant.core.encoding import canonical

SAFE = st.integers(-(2**53) + 1, 2**53 - 1)
LEAVES = st.none() | st.booleans() | SAFE | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(LEAVES, lambda each: st.lists(each) | st.dictionaries(st.text(), each), max_leaves=20)


@given(st.dictionaries(st.text(), VALUES))
def test_the_bytes_are_those_of_rfc_8785(document):
    assert canonical(document) == rfc8785.dumps(document)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, "\ud800", object(), {1: 2}])
def test_what_json_can_not_say(value):
    with pytest.raises((ValueError, TypeError)):
        canonical({"a": value})
