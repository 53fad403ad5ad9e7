"""The same people and texts are read from every library, format, type and split into parts, or a
refusal.

The test has arithmetic of its own: people are numbered before any file is written, so who is who is
known without reading a file.
"""

import importlib
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from accountant.core.errors import DataError
from accountant.core.mechanisms.noisy_count import NoisyCount, sensitivity
from accountant.core.privacy.price import Terms
from tests.workers.data.written_tables import TYPES, typed, writers
from workers.data import fingerprints, records
from workers.data.records import Layout
from workers.mechanisms.noisy_count import true_counts

KEY = b"k" * 32
WRITERS = writers()

#: Values that each name another person, by the kind of their column.
PEOPLE = {
    "number": st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=8, unique=True),
    "text": st.lists(
        st.text(
            st.characters(codec="utf-8", exclude_characters="\0\r\n/", exclude_categories=["C"]),
            min_size=1,
            max_size=6,
        )
        .map(lambda text: f"p{text}")
        .filter(lambda text: text == text.strip()),
        min_size=1,
        max_size=8,
        unique_by=fingerprints.cells.fold,
    ),
    "date": st.lists(
        st.dates().filter(lambda day: day.year > 1700).map(str), min_size=1, max_size=8, unique=True
    ),
    "truth value": st.lists(st.booleans(), min_size=1, max_size=2, unique=True),
}
#: A person's cell as every text shows it.
SHOWN = {"number": str, "text": str, "date": str, "truth value": lambda value: str(value).lower()}
TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=20
)


def registered(folder: Path, layout: Layout) -> list[records.Record]:
    """The records of a job on data that registration lets in. Raises DataError where it does
    not.
    """
    records.check_columns(str(folder), layout)
    for _ in fingerprints.fingerprints(str(folder), layout, KEY):
        pass
    return list(records.read(str(folder), layout, KEY).records)


@st.composite
def tables(draw):
    """(kind, the number of each row's person, texts, and for each part its rows, writer and
    type).
    """
    kind = draw(st.sampled_from(sorted(PEOPLE)))
    people = draw(PEOPLE[kind])
    some = st.integers(0, len(people) - 1)
    rows = draw(
        st.lists(some | st.none() if draw(st.booleans()) else some, min_size=1, max_size=16)
    )
    texts = [f"text {number}: {draw(TEXTS)}." for number in range(len(rows))]
    parts = draw(
        st.lists(
            st.tuples(st.sampled_from(WRITERS), st.sampled_from(sorted(TYPES[kind]))),
            min_size=1,
            max_size=3,
        )
    )
    return kind, people, rows, texts, parts


@settings(max_examples=60, deadline=None)
@given(tables(), st.integers(1, 3))
@pytest.mark.slow
def test_every_library_format_and_type_gives_the_same_people(table, bound):
    the_same_people(table, bound)


@settings(max_examples=250, deadline=None)
@given(tables(), st.integers(1, 3))
@pytest.mark.release
def test_many_tables_of_every_library_give_the_same_people(table, bound):
    the_same_people(table, bound)


def the_same_people(table, bound):
    kind, people, rows, texts, parts = table
    layout = Layout(
        "{person}/{text}", "person", max_records_per_unit=bound, missing_units="separate"
    )
    shown = ["" if row is None else SHOWN[kind](people[row]) for row in rows]
    texts = [f"{person}/{text}" for person, text in zip(shown, texts, strict=True)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, ((_, suffix, write), type_name) in enumerate(parts):
            own = range(number, len(rows), len(parts))
            if not own:
                continue
            cells = [None if rows[index] is None else people[rows[index]] for index in own]
            named = typed(cells, kind, type_name)
            try:
                write(
                    {"person": named, "text": [texts[index].partition("/")[2] for index in own]},
                    folder / f"part-{number}{suffix}",
                )
            except Exception:  # a library that can't write such a type
                return
        try:
            found = registered(folder, layout)
        except DataError:
            return
    wanted = Counter(rows)
    kept = Counter(rows[texts.index(each.text)] for each in found)
    assert set(kept) == set(wanted), "somebody was lost, or a text is not what was written"
    missing = wanted[None]
    assert kept == {
        person: min(count, bound if person is not None else count)
        for person, count in wanted.items()
    }
    assert len({each.unit for each in found}) == len(wanted) - bool(missing) + missing


@pytest.mark.parametrize("kind", sorted(PEOPLE))
@pytest.mark.parametrize("writer", WRITERS, ids=lambda each: f"{each[0]}{each[1]}")
def test_a_part_by_each_library_beside_one_by_the_csv_module_is_read_and_not_refused(
    tmp_path, writer, kind
):
    """A reader that refuses everything would be right in the property above: these have to be
    read.
    """
    people = {
        "number": [3, 14, 159, 2653589],
        "text": ["p-3", "ünal", "Ольга", "张伟"],
        "date": ["2024-01-02", "1999-12-31", "2000-02-29", "1970-01-01"],
        "truth value": [True, False],
    }[kind]
    _, suffix, write = writer
    for name in TYPES[kind]:
        if kind == "text" and name == "bytes" and suffix not in (".parquet",):
            continue
        folder = tmp_path / name.replace("'", "")
        folder.mkdir()
        plain = typed(people, kind, {"number": "digits", "truth value": "word"}.get(kind, "text"))
        texts = [f"text {number}" for number in range(2 * len(people))]
        WRITERS[0][2]({"person": plain, "text": texts[: len(people)]}, folder / "a.csv")
        write(
            {"person": typed(people, kind, name), "text": texts[len(people) :]},
            folder / f"b{suffix}",
        )
        found = registered(folder, Layout("{text}", "person", max_records_per_unit=2))
        assert sorted(each.text for each in found) == sorted(texts), name
        assert len({each.unit for each in found}) == len(people), name
        assert len(registered(folder, Layout("{text}", "person"))) == len(people), name


#: Two part files, by suffix and rows of (person, text), in which a person may be written in two
#: ways.
REFUSED = {
    "leading zeros": ("a.csv", [("017", "x")], "b.csv", [("17", "y")], "with leading zeros"),
    "integers beside padded digits": (
        "a.jsonl",
        [(17, "x")],
        "b.csv",
        [(" 17", "y")],
        "with blanks around it",
    ),
    "capitals": ("a.csv", [("Ann", "x")], "b.jsonl", [("ann", "y")], "with capitals"),
    "full width": ("a.csv", [("１７", "x")], "b.jsonl", [(17, "y")], "compatibility characters"),
    "an exponent": ("a.csv", [("1e3", "x")], "b.jsonl", [(1000, "y")], "with an exponent"),
    "an epoch": (
        "a.csv",
        [("2024-01-02", "x")],
        "b.jsonl",
        [(1704153600000, "y")],
        "has numbers in person",
    ),
    "a compact date": (
        "a.csv",
        [("2024-01-02", "x")],
        "b.csv",
        [("20240102", "y")],
        "has numbers in person",
    ),
    "another calendar": (
        "a.csv",
        [("2024-01-02", "x")],
        "b.csv",
        [("01/02/2024", "y")],
        "has texts in person",
    ),
    "zone and none": (
        "a.csv",
        [("2024-01-02 03:04:05Z", "x")],
        "b.csv",
        [("2024-01-02 03:04:05", "y")],
        "has dates",
    ),
    "truth values and numbers": (
        "a.jsonl",
        [(True, "x")],
        "b.csv",
        [("1", "y")],
        "has numbers in person",
    ),
    "words and numbers": ("a.csv", [("true", "x")], "b.csv", [("1", "y")], "has numbers in person"),
    "a missing person": (
        "a.csv",
        [("p", "x"), ("nan", "y")],
        "b.csv",
        [("q", "z")],
        "row 2 of a.csv: its person is",
    ),
    "a missing person in JSON": (
        "a.jsonl",
        [(None, "x")],
        "b.csv",
        [("q", "z")],
        "its person is missing",
    ),
    "a long float": (
        "a.jsonl",
        [(1e17, "x")],
        "b.csv",
        [("q", "z")],
        "may stand for several numbers",
    ),
    "a spreadsheet's number": (
        "a.csv",
        [("1.23457E+11", "x")],
        "b.csv",
        [("q", "z")],
        "digits are gone",
    ),
    "a fraction": ("a.jsonl", [(17.5, "x")], "b.csv", [("q", "z")], "float with a fraction"),
    "files joined": (
        "a.csv",
        [("p", "x"), ("person", "text"), ("q", "y")],
        "b.csv",
        [("r", "z")],
        "repeats the header",
    ),
}


def part(folder: Path, name: str, rows: list[tuple[object, str]]) -> None:
    frame = {"person": [row[0] for row in rows], "text": [row[1] for row in rows]}
    next(write for _, suffix, write in WRITERS if name.endswith(suffix))(frame, folder / name)


@pytest.mark.parametrize("case", REFUSED)
def test_what_may_be_two_spellings_of_one_person_is_refused_without_a_value(tmp_path, case):
    first, rows, second, others, reason = REFUSED[case]
    part(tmp_path, first, rows)
    part(tmp_path, second, others)
    with pytest.raises(DataError, match=reason) as caught:
        registered(tmp_path, Layout("{text}", "person"))
    told = str(caught.value).replace("unit_spelling", "").replace("a.csv", "").replace("b.csv", "")
    values = [
        str(person)
        for person, _ in [*rows, *others]
        if person and str(person) not in ("p", "q", "r", "person")
    ]
    assert not any(
        value in told for value in values if len(value) > 1 and value not in ("nan", "true", "True")
    )


def test_a_declared_choice_makes_them_one_unit_or_several(tmp_path):
    part(tmp_path, "a.csv", [("017", "a"), ("Ann", "b"), ("ann ", "c")])
    part(tmp_path, "b.jsonl", [(17, "d"), ("ann", "e"), (17.0, "f")])
    count = {}
    for spelling in ("merge", "keep"):
        layout = Layout("{text}", "person", unit_spelling=spelling)
        count[spelling] = len(registered(tmp_path, layout))
    assert count == {"merge": 2, "keep": 5}

    def units(spelling):
        layout = Layout("{text}", "person", unit_spelling=spelling)
        found = fingerprints.fingerprints(str(tmp_path), layout, KEY)
        return {each.value for each in found if each.is_unit}

    merged, kept = units("merge"), units("keep")
    assert merged == kept, "in another dataset they are recognised in every spelling"


def test_a_missing_person_may_be_a_unit_by_itself(tmp_path):
    part(tmp_path, "a.csv", [("", "a"), ("nan", "a"), ("NA", "b"), ("p", "c"), ("p", "d")])
    part(tmp_path, "b.jsonl", [(None, "a"), (float("nan"), "e"), ("p", "f")])
    layout = Layout("{text}", "person", missing_units="separate")
    found = registered(tmp_path, layout)
    assert Counter(each.text for each in found if each.unit != "p") == {"a": 3, "b": 1, "e": 1}
    assert len({each.unit for each in found}) == 6
    assert len(found) == 6
    yielded = list(fingerprints.fingerprints(str(tmp_path), layout, KEY))
    assert len({each.value for each in yielded if each.is_unit}) == 1, "p"
    assert len({each.value for each in yielded if not each.is_unit}) == 7, (
        "the records a to f, and all together"
    )


LABELS = {
    "JSON's true": ("a.jsonl", True, ("True", "False"), "True"),
    "a word": ("a.csv", "TRUE", ("true", "false"), "true"),
    "a float": ("a.jsonl", 1.0, ("0", "1"), "1"),
    "a float's print": ("a.csv", "1.0", ("0", "1"), "1"),
    "an integer for a float": ("a.csv", "1", ("0.0", "1.0"), "1.0"),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_are_read_in_the_same_form(tmp_path, case):
    name, cell, labels, label = LABELS[case]
    part(tmp_path, name, [(cell, "x")])
    found = registered(tmp_path, Layout("{text}", None, "person", labels))
    assert [each.label for each in found] == [label]


@pytest.mark.parametrize(
    ("name", "cell", "how"),
    [
        ("a.jsonl", True, "a truth value, such as JSON's true, is read as `true` or `false`"),
        ("a.jsonl", 2.0, "a number without a fraction is read as an integer"),
        ("a.csv", "Pos", "a declared one differs in capitals, blanks or zeros alone"),
        ("a.csv", " pos", "a declared one differs in capitals, blanks or zeros alone"),
        ("a.jsonl", None, "the cell is missing"),
        ("a.csv", "secretly", "letter by letter"),
    ],
)
def test_a_refused_label_says_how_it_was_read_and_not_what_it_is(tmp_path, name, cell, how):
    part(tmp_path, name, [(cell, "x")])
    with pytest.raises(DataError, match="its label is not among the declared labels") as caught:
        registered(tmp_path, Layout("{text}", None, "person", ("pos", "neg")))
    assert how in str(caught.value)
    assert "secretly" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("per", ["dataset", "label"])
@pytest.mark.parametrize("bound", [1, 2])
def test_whoever_leaves_moves_a_noisy_count_by_what_it_is_charged_for(tmp_path, per, bound):
    """Ten people in every library, format and type; the count without each of them, from files of
    its own.
    """
    people, labels = list(range(10)), ("pos", "neg")
    parameters = NoisyCount(per=per, epsilon=1)
    terms = Terms(max_records_per_unit=bound, labels=labels)
    layout = Layout("{text}", "person", "label", labels, bound)

    def counted(without: int | None, folder: Path) -> dict[str | None, int]:
        folder.mkdir()
        names = [(writer, name) for writer in WRITERS for name in sorted(TYPES["number"])]
        for number, ((_, suffix, write), name) in enumerate(names):
            own = [person for person in people if person != without]
            frame = {
                "person": typed(own, "number", name),
                "text": [f"text {number} of {person}" for person in own],
                "label": [labels[(number + person) % 2] for person in own],
            }
            write(frame, folder / f"part-{number:03}{suffix}")
        registered(folder, layout)
        return true_counts(parameters, terms, records.read(str(folder), layout, KEY))

    whole = counted(None, tmp_path / "whole")
    if per == "dataset":
        assert whole == {None: len(people)}
    for person in people[:4]:
        fewer = counted(person, tmp_path / f"without-{person}")
        moved = sum(abs(whole[label] - fewer[label]) for label in whole)
        assert 1 <= moved <= sensitivity(parameters, terms)


OTHER_TYPES = {
    "a duration": lambda: pyarrow.array([1, 2], pyarrow.duration("s")),
    "a period of pandas": lambda: pyarrow.array(
        importlib.import_module("pandas").period_range("2024-01", periods=2, freq="M")
    ),
    "a tensor": lambda: pyarrow.ExtensionArray.from_storage(
        pyarrow.fixed_shape_tensor(pyarrow.int8(), [1]),
        pyarrow.array([[1], [2]], pyarrow.list_(pyarrow.int8(), 1)),
    ),
    "years beyond the calendar": lambda: pyarrow.array([10**15, 1], pyarrow.timestamp("s")),
}


@pytest.mark.parametrize("case", OTHER_TYPES)
def test_a_type_with_a_meaning_of_its_own_is_refused_by_its_column(tmp_path, case):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"person": OTHER_TYPES[case](), "text": ["x", "y"]})
    parquet.write_table(table, path)
    for layout in (Layout("{text}", "person"), Layout("{person} {text}")):
        with pytest.raises(DataError, match=r"the column person has .*: write it as text"):
            registered(path, layout)
    assert len(registered(path, Layout("{text}"))) == 2, (
        "columns that nobody needs are not looked at"
    )
