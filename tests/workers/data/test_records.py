"""Reading: formats, templates, bounds, and what happens to rows that can't be read."""

import gzip
import json
from dataclasses import replace

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from accountant.core.errors import DataError
from workers import models, sample
from workers.data.fingerprints import _keyed as fingerprint
from workers.data.fingerprints import fingerprints
from workers.data.records import (
    Broken,
    Layout,
    Record,
    Records,
    check_address,
    files,
    read,
    records,
)

ROWS = [
    {"title": 'Good, "fine"\nfood', "body": "I ate {well}.", "who": "ann", "label": "up"},
    {"title": "Bad", "body": "Never again – no.", "who": "bob", "label": "down"},
]
LAYOUT = Layout("{title}. {body}", "who", "label", ("up", "down"), 1)


def write(folder, form: str):
    path = folder / f"data.{form}"
    if form.startswith("parquet"):
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
        return path
    if form.startswith("csv"):
        text = "title,body,who,label\n"
        text += "".join(
            ",".join(
                '"' + row[c].replace('"', '""') + '"' for c in ("title", "body", "who", "label")
            )
            + "\n"
            for row in ROWS
        )
    else:
        text = "".join(json.dumps(row) + "\n" for row in ROWS)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if form.endswith("gz") else data)
    return path


@pytest.mark.parametrize("form", ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet"])
def test_every_format_gives_the_same_records(tmp_path, form):
    path = write(tmp_path, form)
    assert len(list(fingerprints(str(path), LAYOUT, b"k"))) == 4  # a unit and a record, twice
    assert list(records(str(path), LAYOUT)) == [
        Record("ann", "up", 'Good, "fine"\nfood. I ate {well}.'),
        Record("bob", "down", "Bad. Never again – no."),
    ]


BROKEN = {
    "too few fields": ("csv", b"title,body,who,label\na,b,c\n", "row 1: it has 3 fields"),
    "broken quoting": ("csv", b'title,body,who,label\n"a"x,b,c,up\n', "row 1: its quoting"),
    "not UTF-8": ("csv", b"title,body,who,label\n\xff,b,c,up\n", "row 1: it is not UTF-8"),
    "unknown label": ("csv", b"title,body,who,label\na,b,c,sideways\n", "row 1: its label"),
    "empty unit": ("csv", b"title,body,who,label\na,b,,up\n", "row 1: its who is missing"),
    "no JSON": ("jsonl", b"{}{\n", "row 1: it is no JSON"),
    "half a character": (
        "jsonl",
        b'{"title": "a\\ud800", "body": "b", "who": "c", "label": "up"}\n',
        "row 1: it is not UTF-8",
    ),
    "missing key": ("jsonl", b'{"title": 1}\n', "row 1: it has no body"),
    "missing column": ("csv", b"title,body,who\n", "there is no column label"),
    "empty": ("csv", b"title,body,who,label\n", "there is no record"),
    "no bytes": ("csv", b"", "there is no column"),
    "not gzip": ("csv.gz", b"title", "can't be read as csv"),
    "not parquet": ("parquet", b"title", "can't be read as parquet"),
    "cut off": (
        "csv.gz",
        gzip.compress(b"title,body,who,label\n" * 1000)[:40],
        "can't be read as csv",
    ),
    "other ending": ("txt", b"x", "does not end in"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_bad_data_is_refused_with_its_place_and_without_its_content(tmp_path, name):
    form, data, message = BROKEN[name]
    path = tmp_path / f"data.{form}"
    path.write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        list(fingerprints(str(path), LAYOUT, b"k"))
    assert "sideways" not in str(caught.value)


def test_in_a_job_a_broken_row_contributes_nothing_and_stops_nothing(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(
        b'title,body,who,label\na,b,c\nd,e,f,up\n"g"x,h,i,up\n\xff,k,l,up\nm,n,o,down\n'
    )
    found = read(str(path), LAYOUT, b"k" * 32)
    assert [record.unit for record in found.records] == ["f", "o"]
    assert sum(isinstance(each, Broken) for each in records(str(path), LAYOUT)) == 3


def test_what_no_tokenizer_takes_is_a_broken_row_in_a_job(tmp_path):
    """JSON can hold half a character, which tokenizers refuse: one such record would fail the whole
    job.
    """
    path = tmp_path / "data.jsonl"
    rows = [{**ROWS[0], "body": body} for body in ("a\ud800b", "c", "\udfff", "\U0001f600")]
    path.write_text("".join(json.dumps({**row, "who": n}) + "\n" for n, row in enumerate(rows)))
    found = read(str(path), LAYOUT, b"k" * 32)
    assert [record.unit for record in found.records] == ["1", "3"]
    prompt = models.Prompt(models.tokenizer(sample.MODEL_DIR), "{record}", None)
    assert all(prompt.tokens(record.text, 8) for record in found.records)


def test_spelling_makes_nobody_a_second_unit(tmp_path):
    """A unit is one where its account is kept (fingerprints), so its records are bounded
    together.
    """
    path = tmp_path / "data.jsonl"
    names = ["P1", "p1 ", "\uff301", " \t", "p2"]  # the third in full width, the fourth nobody's
    path.write_text(
        "".join(
            json.dumps({**ROWS[0], "body": f"b{n}", "who": w}) + "\n" for n, w in enumerate(names)
        )
    )
    assert [record.unit for record in read(str(path), LAYOUT, b"k" * 32).records] == ["p1", "p2"]
    merged = replace(LAYOUT, unit_spelling="merge")
    with pytest.raises(DataError, match="row 4: its who is missing"):
        list(fingerprints(str(path), merged, b"k"))
    path.write_text("".join(json.dumps({**ROWS[0], "who": who}) + "\n" for who in names[:3]))
    with pytest.raises(
        DataError, match="row 2 spells a unit of who with blanks around it, a row before it in"
    ):
        list(fingerprints(str(path), LAYOUT, b"k"))
    found = {each.value for each in fingerprints(str(path), merged, b"k") if each.is_unit}
    assert found == {fingerprint(b"k", b"unit\0", "p1")}


def placed(found: Records, count: int) -> dict[str, int]:
    return {
        each.unit: index
        for each in found.records
        for index in range(count)
        if holds(found, each, index, count)
    }


def holds(found: Records, record: Record, index: int, count: int) -> bool:
    alone = Records(found.labels, (record,), found.key)
    return bool(alone.batches(count)[record.label, index])


def test_copies_of_a_record_have_coins_of_their_own(tmp_path):
    """Copies in one batch would show where the last of them lies: it would have no
    amplification.
    """
    path, layout = tmp_path / "data.jsonl", Layout("{body}", None, "label", ("up", "down"))
    rows = [{"body": "the same", "label": "up"}] * 64
    path.write_text(
        "".join(json.dumps(row) + "\n" for row in [*rows, {"body": "x", "label": "up"}])
    )
    found = read(str(path), layout, b"k" * 32)
    assert len({each.unit for each in found.records}) == 65
    copies = [
        place for (_, place), texts in found.batches(8).items() for text in texts if text != "x"
    ]
    assert len(copies) == 64
    assert set(copies) == set(range(8)), "64 independent coins leave a batch empty once in 600 runs"
    # Adding a copy, wherever it stands in the file, is adding the last one: nobody else moves.
    path.write_text(
        "".join(json.dumps(row) + "\n" for row in [rows[0], {"body": "x", "label": "up"}, *rows])
    )
    more = read(str(path), layout, b"k" * 32)
    before, after = placed(found, 8), placed(more, 8)
    assert {unit: place for unit, place in after.items() if unit in before} == before
    assert len(after) == len(before) + 1


def test_records_that_differ_in_what_the_text_does_not_show_are_no_copies(tmp_path):
    path = tmp_path / "data.jsonl"
    layout = Layout("{body}", group_column="g", groups=("a", "b"), secret_column="s")
    rows = [{"body": "x", "g": g, "s": s} for g in "ab" for s in ("1", "2") for _ in range(2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len({each.unit for each in read(str(path), layout, b"k" * 32).records}) == 8


def test_every_round_has_coins_of_its_own():
    everybody = Records(
        (None,), tuple(Record(f"u{n}", None, f"t{n}") for n in range(4000)), b"k" * 32
    )
    found = [everybody.in_round(number).batches(4) for number in (0, 1)]
    assert everybody.in_round(1).batches(4) == found[1], "the same on every worker and attempt"
    place = [
        {text: index for (_, index), texts in each.items() for text in texts} for each in found
    ]
    table = [[0] * 4 for _ in range(4)]
    for text, index in place[0].items():
        table[index][place[1][text]] += 1
    # 16 cells of 250 expected: five standard deviations of a cell are 77.
    assert all(abs(cell - 250) < 77 for row in table for cell in row)


def test_a_key_is_not_shown():
    assert "kkk" not in repr(Records((None,), (), b"k" * 32))


def test_only_addresses_under_a_root_are_read(tmp_path):
    (tmp_path / "in").mkdir()
    inside = tmp_path / "in" / "data.csv"
    inside.write_text("x")
    (tmp_path / "in" / "link.csv").symlink_to("/etc/passwd")
    roots = [str(tmp_path / "in"), "s3://bucket/data"]
    assert check_address(str(inside), roots) == str(inside.resolve())
    assert check_address("s3://bucket/data/x.csv", roots)
    for bad in ("/etc/passwd", f"{tmp_path}/in/../other", f"{tmp_path}/in/link.csv", "s3://bucket/database/x",
                "s3://bucket/data/../x", "http://host/x.csv", "memory://x",
                # fsspec reads "::" as a chain and opens what stands before it; some stores decode
                # %2e
                f"{tmp_path}/in/link.csv::x.csv", f"file://{tmp_path}/in/link.csv::x.csv",
                "s3://bucket/data/x.csv::http://host/x.csv", "s3://bucket/data/%2e%2e/x",
                "s3://bucket/data/.%2E/x"):  # fmt: skip
        with pytest.raises(DataError):
            check_address(bad, roots)


units = st.dictionaries(
    st.text(min_size=1, max_size=4), st.lists(st.text(max_size=5), min_size=1, max_size=6)
)


def collection(content: dict[str, list[str]], bound: int, key: bytes) -> Records:
    from workers.data.records import _bounded

    everything = [Record(unit, None, text) for unit, texts in content.items() for text in texts]
    return Records((None,), tuple(_bounded(everything, bound, key)), key)


@settings(max_examples=200, deadline=None)
@given(
    units,
    st.text(min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 8),
    st.binary(min_size=8, max_size=8),
)
def test_adding_a_unit_changes_one_batch_by_at_most_its_bound(content, unit, bound, count, key):
    extra = {**content, unit: ["new", "newer", "newest", "last"]}
    rest = {name: texts for name, texts in extra.items() if name != unit}
    with_it = collection(extra, bound, key).batches(count)
    without = collection(rest, bound, key).batches(count)
    changed = [part for part in with_it if with_it[part] != without[part]]
    assert len(changed) == 1
    more = list(with_it[changed[0]])
    for text in without[changed[0]]:
        more.remove(text)  # nothing that was there is displaced
    assert 1 <= len(more) <= bound


def test_no_link_leaves_a_data_root(tmp_path):
    """A file, a folder, a link in a folder and a folder behind a link: what is read lies under the
    root.
    """
    root, outside = tmp_path / "root", tmp_path / "outside"
    inner = root / "folder"
    for folder in (inner, outside):
        folder.mkdir(parents=True)
        (folder / "data.csv").write_text("text\nx\n")
    (root / "file.csv").symlink_to(outside / "data.csv")
    (root / "away").symlink_to(outside)
    for name in ("file.csv", "away", "away/data.csv", "folder/../../outside/data.csv"):
        with pytest.raises(DataError, match="data root"):
            check_address(str(root / name), [str(root)])
    address = check_address(str(inner), [str(root)])
    assert len(files(address)) == 1
    (inner / "link.csv").symlink_to(outside / "data.csv")
    with pytest.raises(DataError, match="leads out of it"):
        files(address)
