"""How units are told apart and which files the data is stand in the ledger, where a verifier sees
them.
"""

import json
import uuid

import pytest

from accountant.catalogue import datasets
from accountant.core.errors import InvalidRequest
from accountant.core.ledger.export_formats import verify_lines
from accountant.queries import datasets as dataset_queries
from accountant.queries import entries, integrity
from tests.support import NO_FILES, Bench, found_right

DATA = {
    "files": 1,
    "bytes": 48121,
    "sha256": "ab" * 32,
    "list": [["letters.csv", 48121, "ab" * 32]],
}


@pytest.fixture
def stated(engine) -> Bench:
    bench = Bench(engine, unit_column="patient", unit_spelling="keep", missing_units="separate")
    version = datasets.add_version(engine, bench.dataset, {"uri": "/more.csv"}, bench.steward)
    found_right(engine, version, DATA)
    return bench


def test_the_ledger_states_the_choice_and_the_files_and_verifies(stated):
    bodies = [
        each["body"]
        for each in entries.entries(stated.engine, stated.dataset, stated.auditor)
        if each["kind"] == "REGISTER"
    ]
    assert all(body["terms"]["unit_spelling"] == "keep" for body in bodies)
    assert all(body["terms"]["missing_units"] == "separate" for body in bodies)
    assert [body.get("data") for body in bodies] == [DATA, NO_FILES, None]
    assert not integrity.check(stated.engine, stated.dataset)
    for public in (False, True):
        pieces = entries.export(
            stated.engine, stated.dataset, stated.auditor, "jsonl", public=public
        )
        text = "".join(each if isinstance(each, str) else each.decode() for each in pieces)
        found = verify_lines(text.splitlines())
        assert found.terms["unit_spelling"] == "keep"
        assert ("letters.csv" in text) is not public
        assert ("48121" in text) is not public
    shown = dataset_queries.dataset(stated.engine, stated.dataset, stated.steward)
    assert (shown.unit_spelling, shown.versions[-1].data) == ("keep", DATA)
    assert dataset_queries.dataset(stated.engine, stated.dataset, stated.analyst).versions is None


def test_a_ledger_that_states_another_choice_than_the_row_is_noticed(stated):
    with stated.engine.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE datasets SET unit_spelling = 'merge' WHERE name = '{stated.dataset}'"
        )
    assert integrity.check(stated.engine, stated.dataset) == [
        "datasets.unit_spelling is not what its newest REGISTER states"
    ]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"unit_spelling": "keep"}, "unit_spelling"),
        ({"missing_units": "separate"}, "missing_units"),
        ({"unit_column": "p", "unit_spelling": "maybe"}, "unit_spelling"),
        ({"label_column": "l", "labels": ["1", "1.0"]}, "labels"),
        ({"label_column": "l", "labels": ["true", "True"]}, "labels"),
        ({"label_column": "l", "labels": ["yes", "nan"]}, "labels"),
    ],
)
def test_a_declaration_that_decides_nothing_is_refused_by_its_field(fields, problem):
    raw = {
        "name": f"data-{uuid.uuid4().hex[:6]}",
        "uri": "/x.csv",
        **json.loads(json.dumps(fields)),
    }
    with pytest.raises(InvalidRequest) as caught:
        datasets.read_dataset(raw)
    assert [each.field for each in caught.value.problems] == [problem]
