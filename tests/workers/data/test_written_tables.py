"""The same people and texts are read from every library, format, type and split into parts, or a refusal.

The test has arithmetic of its own: people are numbered before any file is written, so who is who is known
without reading a file.
"""

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountant.core.errors import DataError
from tests.workers.data.written_tables import TYPES, typed, writers
from workers.data import fingerprints, records
from workers.data.records import Layout

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
    """The records of a job on data that registration lets in. Raises DataError where it does not."""
    records.check_columns(str(folder), layout)
    for _ in fingerprints.fingerprints(str(folder), layout, KEY):
        pass
    return list(records.read(str(folder), layout, KEY).records)


@st.composite
def tables(draw):
    """(kind, the number of each row's person, texts, and for each part its rows, writer and type)."""
    kind = draw(st.sampled_from(sorted(PEOPLE)))
    people = draw(PEOPLE[kind])
    rows = draw(st.lists(st.integers(0, len(people) - 1), min_size=1, max_size=16))
    texts = [f"text {number}: {draw(TEXTS)}." for number in range(len(rows))]
    parts = draw(
        st.lists(
            st.tuples(st.sampled_from(WRITERS), st.sampled_from(sorted(TYPES[kind]))), min_size=1, max_size=3
        )
    )
    return kind, people, rows, texts, parts


@settings(max_examples=250, deadline=None)
@given(tables(), st.integers(1, 3))
@pytest.mark.slow
def test_every_library_format_and_type_gives_the_same_people(table, bound):
    kind, people, rows, texts, parts = table
    layout = Layout("{person}/{text}", "person", max_records_per_unit=bound)
    texts = [f"{SHOWN[kind](people[row])}/{text}" for row, text in zip(rows, texts, strict=True)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, ((_, suffix, write), type_name) in enumerate(parts):
            own = range(number, len(rows), len(parts))
            if not own:
                continue
            named = typed([people[rows[index]] for index in own], kind, type_name)
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
    assert kept == {person: min(count, bound) for person, count in wanted.items()}
    assert len({each.unit for each in found}) == len(wanted)


@pytest.mark.parametrize("kind", sorted(PEOPLE))
@pytest.mark.parametrize("writer", WRITERS, ids=lambda each: f"{each[0]}{each[1]}")
def test_a_part_by_each_library_beside_one_by_the_csv_module_is_read_and_not_refused(tmp_path, writer, kind):
    """A reader that refuses everything would be right in the property above: these have to be read."""
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
        write({"person": typed(people, kind, name), "text": texts[len(people) :]}, folder / f"b{suffix}")
        found = registered(folder, Layout("{text}", "person", max_records_per_unit=2))
        assert sorted(each.text for each in found) == sorted(texts), name
        assert len({each.unit for each in found}) == len(people), name
        assert len(registered(folder, Layout("{text}", "person"))) == len(people), name
