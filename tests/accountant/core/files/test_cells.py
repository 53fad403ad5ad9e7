"""Cells: one form for one value, spellings that may be one person, what is missing, and what names
nobody.
"""

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountant.core.files import cells
from accountant.core.files.cells import Half, Single, Unreadable, fold, identifier, spelling, text

#: Cells of one person each, whatever wrote them.
ONE = {
    "17": [
        17,
        17.0,
        Single(17),
        Half(17),
        Decimal("17"),
        Decimal("17.00"),
        "17",
        "17.0",
        "17.000",
        b"17",
    ],
    "0": [0, 0.0, -0.0, Decimal("-0.0"), "0", "-0", "0.0", "-0.00"],
    "-5": [-5, -5.0, "-5", "-5.0"],
    "9007199254740993": [2**53 + 1, "9007199254740993", Decimal(2**53 + 1)],
    str(2**70): [2**70, str(2**70), Decimal(2**70)],
    "true": [True],
    "2024-01-02": [
        *(
            date(2024, 1, 2),
            datetime.fromisoformat("2024-01-02"),
            "2024-01-02",
            "2024-01-02 00:00:00",
            "2024-01-02T00:00:00.000",
        ),
        "2024-01-02 00:00:00.000000000",
    ],
    "2024-01-02T03:04:05.5": [
        datetime.fromisoformat("2024-01-02T03:04:05.5"),
        "2024-01-02 03:04:05.500000",
    ],
    "2024-01-02T03:04:05Z": [
        *(
            datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
            "2024-01-02T03:04:05Z",
            "2024-01-02 05:04:05+02:00",
        ),
        *("2024-01-02T03:04:05.000000+0000", "2024-01-01 22:04:05-05"),
    ],
    "03:04:05": [time(3, 4, 5), "03:04:05", "03:04:05.000000"],
    "550e8400-e29b-41d4-a716-446655440000": [
        uuid.UUID("550e8400-e29b-41d4-a716-446655440000"),
        "550E8400-E29B-41D4-A716-446655440000",
    ],
    "José": ["José", "Jose\u0301", "José".encode()],
    "name": ["name", b"name", bytearray(b"name")],
}


@pytest.mark.parametrize(
    ("exact", "value"), [(name, each) for name, values in ONE.items() for each in values]
)
def test_one_value_has_one_form_whatever_wrote_it(exact, value):
    found = identifier(value)
    assert found is not None
    assert found.exact == exact
    assert found.folded == fold(exact)


def test_words_for_truth_values_are_one():
    assert {identifier(word).exact for word in ("True", "TRUE", "true")} == {identifier(True).exact}


#: Pairs that may or may not be one person, and how the second is spelled.
MAYBE = [
    ("17", "017", "with leading zeros"),
    ("17", " 17", "with blanks around it"),
    ("17", "17\u00a0", "with blanks around it"),
    ("17", "+17", "with a sign"),
    ("1000", "1e3", "with an exponent"),
    ("1000", "1,000", "with commas in a number"),
    ("17", "１７", "in compatibility characters such as full width"),
    ("17", "١٧", "as plain digits"),
    ("17.5", "17.50", "as plain text"),
    ("ann", "Ann", "with capitals"),
    ("ann", "ANN", "in capitals"),
    ("ann lee", "ann  lee", "as plain text"),
    ("ann", "a\u200bnn", "with invisible characters"),
    ("ann", "\ufeffann", "with invisible characters"),
    ("strasse", "straße", "as plain text"),
    ("izmir", "İzmir", "with capitals"),
    ("o'brien", "o’brien", "as plain text"),
    ("ann-lee", "ann‑lee", "in compatibility characters such as full width"),
    ("2024-01-02T03:04:05", "2024-01-02T03:04:05Z", "as a time with a zone"),
    ("550e8400-e29b-41d4-a716-446655440000", "550e8400e29b41d4a716446655440000", "as plain text"),
    (
        "550e8400-e29b-41d4-a716-446655440000",
        "{550e8400-e29b-41d4-a716-446655440000}",
        "as plain text",
    ),
]


@pytest.mark.parametrize(("one", "other", "kind"), MAYBE)
def test_spellings_that_may_be_one_person_share_a_folded_form_alone(one, other, kind):
    first, second = identifier(one), identifier(other)
    assert first.folded == second.folded
    assert first.exact != second.exact
    assert spelling(second.exact) == kind


DIFFERENT = [
    *(
        "17",
        "170",
        "1.7",
        "-17",
        "17a",
        "a17",
        "1.10",
        "1.1a",
        "",
        "2024-01-03",
        "ann",
        "anne",
        "1e3f",
    ),
    *("0e4", "0e6", "12e1"),
]


@pytest.mark.slow
@given(st.lists(st.text(max_size=8), min_size=2, max_size=2, unique=True))
def test_folding_again_changes_nothing(pair):
    assert all(fold(fold(each)) == fold(each) for each in pair)


def test_different_people_stay_different():
    assert len({fold(each) for each in DIFFERENT}) == len(DIFFERENT)


MISSING = [
    *(
        None,
        float("nan"),
        Decimal("NaN"),
        Single("nan"),
        "",
        " ",
        "\u00a0",
        "nan",
        "NaN",
        "-nan",
        "NaT",
        "None",
    ),
    *("null", "NULL", "<NA>", "NA", "N/A", "n/a", "#N/A", "\\N", b"", b"nan", " NA "),
]


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_missing_is_one_thing(value):
    assert identifier(value) is None


@pytest.mark.parametrize(
    "value", [None, float("nan"), Decimal("nan"), "nan", "NaN", "NaT", "", b""], ids=repr
)
def test_a_missing_text_is_empty(value):
    assert text(value) == ""


NOBODY = [
    *(
        1.5,
        2.0**53,
        -(2.0**60),
        1e300,
        float("inf"),
        Single(2**24),
        Half(2048),
        Decimal("Infinity"),
        [1],
    ),
    *(
        {"a": 1},
        "1.23457E+11",
        "1.2345678901234568e+18",
        "1.2345678901234568e18",
        "9007199254740993.0",
    ),
    *(b"\xff\xfe", "a\0", pytest.param(object(), id="object")),
]


@pytest.mark.parametrize("value", NOBODY, ids=repr)
def test_what_can_not_name_one_person_surely_is_refused_without_its_value(value):
    with pytest.raises(Unreadable) as caught:
        identifier(value)
    assert str(value).removesuffix("inf") == "" or str(value) not in str(caught.value)


TEXTS = [
    (" 017 ", " 017 "),  # texts keep their letters
    ("1e3", "1e3"),
    ("True", "true"),
    (True, "true"),
    (1.0, "1"),
    (0.1, "0.1"),
    (Decimal("17.50"), "17.50"),
    ("17.50", "17.50"),
    (b"na\xc3\xafve", "naïve"),
    ([1.0, float("nan"), None, "ü"], '[1, null, null, "ü"]'),
    (
        {"role": "user", "content": "열이 나요", "name": None},
        '{"role": "user", "content": "열이 나요"}',
    ),
    (
        {"at": date(2024, 1, 2), "raw": "ж".encode(), "n": Decimal("1.0")},
        '{"at": "2024-01-02", "raw": "ж", "n": "1"}',
    ),
    ("a long text that begins like none and ends after more than forty-eight characters", None),
]


@pytest.mark.parametrize(("value", "shown"), TEXTS)
def test_texts(value, shown):
    assert text(value) == (value if shown is None else shown)


def test_bytes_that_are_no_text_are_refused():
    for value in (b"\xff", [b"\xff"], {"a": {"b": b"\xff"}}):
        with pytest.raises(Unreadable, match="it is not UTF-8"):
            text(value)


@pytest.mark.parametrize(
    "names",
    [
        ("id", "id"),
        ("id", "id "),
        ("id", "ｉｄ"),
        ("é", "e\u0301"),
        ("id", "\ufeffid"),
        ("a b", "a\u00a0b"),
    ],
)
def test_columns_that_only_look_different_are_alike(names):
    assert cells.has_two_alike(names)


@pytest.mark.parametrize("names", [("id", "ID"), ("", ""), ("a", "b"), ("a b", "ab")])
def test_other_columns_are_not(names):
    assert not cells.has_two_alike(names)
