"""Groups and secrets in a dataset's layout: what is refused, and what a mechanism sees."""

import csv
from dataclasses import replace

import pytest

from accountant.core.errors import DataError
from accountant.core.secret_patterns import Secrets
from workers.data import fingerprints, records
from workers.data.records import Layout, check_columns

LAYOUT = Layout(
    "{text}",
    unit_column="who",
    max_records_per_unit=5,
    group_column="product",
    groups=("lamp", "chair"),
    secret_column="pin",
    secrets=Secrets((r"\b\d{4}\b",), ()),
)
ROWS = [
    ("ann", "lamp", "my pin is 1234", ""),
    ("ann", "lamp", "bright", ""),
    ("bob", "chair", "hi Bob!", "Bob"),
]


@pytest.fixture
def write(tmp_path):
    def write(rows, header=("who", "product", "text", "pin")) -> str:
        path = tmp_path / "data.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
        return str(path)

    return write


def looked_at(address: str, layout: Layout = LAYOUT) -> int:
    check_columns(address, layout)
    return len(list(fingerprints.fingerprints(address, layout, b"k" * 32)))


def test_a_record_brings_its_group_and_its_secret(write):
    address = write(ROWS)
    assert looked_at(address) == 6
    found = records.read(address, LAYOUT, b"k" * 32)
    assert {(each.unit, each.group, each.secret) for each in found.records} == {
        ("ann", "lamp", ""),
        ("bob", "chair", "Bob"),
    }
    assert found.groups == ("lamp", "chair")
    carrying = {
        each.text.split()[0]: found.secrets.is_in(each.text, each.secret) for each in found.records
    }
    assert carrying == {"my": True, "bright": False, "hi": True}


def test_a_unit_in_two_groups_is_refused_when_it_is_declared(write):
    address = write([*ROWS, ("ANN", "chair", "dark", "")])
    merged = replace(LAYOUT, unit_spelling="merge")  # spelling makes nobody a second person
    with pytest.raises(
        DataError, match=r"group_column: row 4: its who is in another group"
    ) as caught:
        looked_at(address, merged)
    assert "dark" not in str(caught.value)
    assert "ann" not in str(caught.value).lower()


def test_should_data_change_later_a_unit_still_counts_in_one_group_only(write):
    rows = [(f"u{n % 40}", ("lamp", "chair")[n % 3 % 2], f"text {n}", "") for n in range(120)]
    found = records.read(write(rows), LAYOUT, b"k" * 32)
    groups: dict[str, set] = {}
    for each in found.records:
        groups.setdefault(each.unit, set()).add(each.group)
    assert all(len(each) == 1 for each in groups.values())
    # Whether one unit comes or goes moves no other.
    fewer = records.read(write([row for row in rows if row[0] != "u7"]), LAYOUT, b"k" * 32)
    assert set(fewer.records) == {each for each in found.records if each.unit != "u7"}


@pytest.mark.parametrize("column", ["group_column", "secret_column", "unit_column"])
def test_a_column_that_is_missing_is_refused_by_field_before_reading(write, column, monkeypatch):
    address = write(
        ROWS, header=tuple("no" if c == getattr(LAYOUT, column) else c for c in ROWS_HEADER)
    )
    with pytest.raises(DataError, match=rf"^{column}: there is no column"):
        check_columns(address, LAYOUT)


ROWS_HEADER = ("who", "product", "text", "pin")


def test_a_group_that_is_not_declared_is_refused_by_row(write):
    with pytest.raises(DataError, match=r"row 1: its group is not among the declared groups"):
        looked_at(write([("cid", "sofa", "soft", "")]))


def test_a_missing_column_of_parquet_and_json_lines_is_named(tmp_path):
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "data.parquet"
    parquet.write_table(pyarrow.table({"who": ["ann"], "text": ["x"], "pin": [""]}), path)
    lines = tmp_path / "data.jsonl"
    lines.write_text('{"who": "ann", "text": "x", "pin": ""}\n')
    for address in (path, lines):
        with pytest.raises(DataError, match=r"^group_column: there is no column product"):
            check_columns(str(address), LAYOUT)
