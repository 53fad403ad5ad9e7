"""Outputs as tables: what goes in comes out of CSV and Parquet again, and memory does not grow."""

import csv
import io
import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.errors import InvalidRequest
from accountant.core.files import parquet, rows
from accountant.core.files.spreadsheets import harmless

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
VALUES = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(st.text("ab"), SCALARS, max_size=2)
)
DOCUMENTS = st.lists(st.dictionaries(st.sampled_from("pqrs"), VALUES, max_size=4), max_size=12)


def lines_of(documents):
    return [json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in documents]


def told(value, kind):
    """A value as its column holds it."""
    if value is None or kind in ("boolean", "integer", "text"):
        return value
    return float(value) if kind == "number" else json.loads(value)


@settings(deadline=None)
@given(DOCUMENTS)
def test_parquet_holds_what_was_published(documents):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet as reader

    lines = lines_of(documents)
    table = rows.columns(lines)
    data = b"".join(parquet.write_output(lines, table, {"exchequer.job": "j"}))
    found = reader.read_table(pyarrow.BufferReader(data)).to_pylist()
    kinds = {each.name: each.kind for each in table}
    assert len(found) == (len(documents) if kinds else 0)
    for row, document in zip(found, documents, strict=False):
        for name, kind in kinds.items():
            value = row[name]
            assert (None if value is None else told(value, kind)) == document.get(name)


@settings(deadline=None)
@given(DOCUMENTS)
def test_csv_holds_what_was_published(documents):
    lines = lines_of(documents)
    table = rows.columns(lines)
    if not table:
        return  # nothing but empty objects
    text = "".join(rows.csv_lines(lines, table))
    found = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
    assert len(found) == 1 + len(documents)
    assert found[0] == [harmless(each.name) for each in table]
    for row, document in zip(found[1:], documents, strict=False):
        for cell, each in zip(row, table, strict=True):
            value = document.get(each.name)
            if value is None:
                assert cell == ""
            elif each.kind == "text":
                assert cell == harmless(value)
            else:
                assert json.loads(cell) == value


@pytest.mark.parametrize("line", [b"[1]\n", b'"text"\n', b"no json\n", b"\xff\n"])
def test_what_is_no_table_is_refused(line):
    with pytest.raises(InvalidRequest, match="no table"):
        rows.columns([b'{"a": 1}\n', line])


def test_too_many_columns_are_refused():
    with pytest.raises(InvalidRequest, match="columns"):
        rows.columns(lines_of([{f"c{n}-{m}": n for n in range(300)} for m in range(4)]))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_memory_does_not_grow_with_the_output(form):
    pytest.importorskip("pyarrow")

    def lines(count):
        return (json.dumps({"text": "w" * 500, "label": n}).encode() + b"\n" for n in range(count))

    def peak(count):
        table = rows.columns(lines(1))
        write = (
            rows.csv_lines
            if form == "csv"
            else lambda lines, table: parquet.write_output(lines, table, {})
        )
        tracemalloc.start()
        size = sum(len(piece) for piece in write(lines(count), table))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most, size

    peak(100)
    small, large = peak(4_000)[0], peak(8_000)[0]
    assert large < 1.5 * small
