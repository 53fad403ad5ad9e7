"""An entry written by filling in a form is the entry, letter for letter."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.ledger.entry_forms import EntryForm
from accountant.core.ledger.hash_chain import Entry, EntryKind, canonical, digest

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
#: With private values in their places, and texts that look like parts of an entry.
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "reason": VALUES,
        "approval": VALUES,
        "parameters": st.dictionaries(
            st.sampled_from(["prompt", "template", "stop", "clip"]), VALUES
        ),
        "event": VALUES,
        "seq": st.sampled_from(['"seq"', "at", "previous", '","seq":1,"']),
    },
)
KINDS = [EntryKind.RESERVE, EntryKind.COMMIT, EntryKind.VOID, EntryKind.ALLOW]


@settings(max_examples=60, deadline=None)
@given(
    body=BODIES,
    kind=st.sampled_from(KINDS),
    actor=st.text(min_size=1, max_size=6),
    dataset=st.text(min_size=1, max_size=6),
    places=st.lists(
        st.tuples(
            st.integers(1, 2**50),
            st.none() | st.uuids().map(str),
            st.binary(min_size=32, max_size=32),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_a_form_writes_what_the_entry_is(body, kind, actor, dataset, places):
    form = EntryForm(dataset, kind, actor, body)
    for seq, job, salt in places:
        at = datetime.fromtimestamp(seq % 2**31, UTC)
        entry = Entry(dataset, seq, kind, at, actor, job, body, "f" * 64, salt=salt)
        document = entry.document()
        text, recorded = form.write(seq, at, job, "f" * 64, salt)
        assert text == canonical(document).decode()
        assert recorded == digest(document)


def test_each_entry_has_salts_of_its_own():
    form = EntryForm(
        "data", EntryKind.RESERVE, "analyst", {"parameters": {"prompt": "a", "stop": "a"}}
    )
    at = datetime(2026, 1, 1, tzinfo=UTC)
    texts = [
        json.loads(form.write(1, at, None, "0" * 64, bytes(31) + bytes([n]))[0]) for n in (1, 2)
    ]
    openings = [text["actor"] for text in texts]
    openings += [text["body"]["parameters"][name] for text in texts for name in ("prompt", "stop")]
    assert len({each["salt"] for each in openings}) == 6


def test_a_correction_has_no_form():
    with pytest.raises(ValueError, match="REVERSAL"):
        EntryForm("data", EntryKind.REVERSAL, "steward", {})
