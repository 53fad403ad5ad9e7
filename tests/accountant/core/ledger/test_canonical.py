"""The canonical encoding is that of the reference implementation, to the byte."""

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from accountant.core.ledger.hash_chain import canonical

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
documents = st.dictionaries(
    st.text(),
    st.recursive(
        scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
    ),
    max_size=5,
)


@pytest.mark.slow
@given(documents)
def test_every_document_is_encoded_as_by_the_reference(document):
    assert canonical(document) == rfc8785.dumps(document)


@pytest.mark.parametrize(
    "value", [2**53, float("nan"), float("inf"), "\ud800", {1: 2}, {"\ud800": 1}, object(), b"x"]
)
def test_what_has_no_canonical_form_is_an_error(value):
    with pytest.raises(ValueError):  # noqa: PT011
        canonical({"x": value})
