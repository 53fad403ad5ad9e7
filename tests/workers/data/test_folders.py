"""What of a folder is data, what is not, what is refused; and the list of its files that is
registered.
"""

import gzip
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from accountant.core.errors import DataError
from tests.object_stores import CEPH, ceph, s3
from workers.data import fingerprints, manifest, records
from workers.data.addresses import files
from workers.data.records import Layout

__all__ = ["ceph", "s3"]

LAYOUT, KEY = Layout("{text}", "id"), b"k" * 32
ROWS = "id,text\n" + "".join(f"p{number},note {number}\n" for number in range(20))


@pytest.fixture
def folder(tmp_path):
    top = tmp_path / "data"
    top.mkdir()
    (top / "notes.csv").write_text(ROWS)
    return top


def put(folder: Path, name: str, content: str = ROWS.replace("note", "copied")) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


NO_DATA = [
    *(
        ".notes.csv",
        "._notes.csv",
        "_notes.csv",
        "_SUCCESS",
        "_committed_1.csv",
        ".~lock.notes.csv#",
        ".#notes.csv",
    ),
    *(
        "#notes.csv#",
        "~$notes.csv",
        "notes.csv~",
        "notes.csv.bak",
        "notes.bak.csv",
        "notes.csv.tmp",
        "notes.tmp.csv",
    ),
    *(
        "notes.csv.swp",
        "notes.old.csv",
        "notes.orig.csv",
        "notes.csv.part",
        "notes.csv.crdownload",
        "notes.csv.crc",
    ),
    *(
        "notes.csv.md5",
        "notes.csv.sha256",
        "notes.csv.lock",
        "notes.csv.asc",
        "notes.backup.csv",
        "README.md",
    ),
    *(
        "notes.sync-conflict-20240101-aaa.csv",
        ".ipynb_checkpoints/notes-checkpoint.csv",
        "__MACOSX/notes.csv",
    ),
    *(
        "__MACOSX/._notes.csv",
        ".Trash-1000/files/notes.csv",
        "_temporary/0/part-0.csv",
        ".git/notes.csv",
    ),
    *(
        "__pycache__/notes.csv",
        "lost+found/notes.csv",
        "@eaDir/notes.csv",
        "a/.hidden/b/notes.csv",
        "tmp/notes.csv",
    ),
    *(".DS_Store", "Thumbs.db.lock", "notes.inprogress.csv", "LICENSE", ".snapshot/notes.csv"),
]


@pytest.mark.parametrize("name", NO_DATA)
def test_what_is_no_data_is_not_read(folder, name):
    put(folder, name)
    assert [Path(each).name for each in files(str(folder))] == ["notes.csv"]
    assert len(records.read(str(folder), LAYOUT, KEY).records) == 20


REFUSED = {
    "_delta_log/00000.json": "Delta Lake",
    "sub/_delta_log/00000.json": "Delta Lake",
    "metadata/v1.metadata.json": "Iceberg",
    ".hoodie/hoodie.properties": "Hudi",
    "_versions/1.manifest": "Lance",
    "year=2024/part-0.csv": "partitioned",
    "country=DE/city=Ulm/part-0.csv": "partitioned",
    "year=__HIVE_DEFAULT_PARTITION__/a.csv": "partitioned",
    "more.tsv": "not read",
    "more.xlsx": "not read",
    "more.orc": "not read",
    "more.avro": "not read",
    "more.feather": "not read",
    "more.tsv.gz": "not read",
    "all.zip": "not read",
    "notes copy.csv": "copy of another",
    "notes (1).csv": "copy of another",
    "Copy of notes.csv": "copy of another",
    "notes - Copy.csv": "copy of another",
    "notes - Copy (2).csv": "copy of another",
    "Kopie von notes.csv": "copy of another",
    "notes copy.jsonl": "copy of another",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_hold_people_that_nobody_counts_is_refused(folder, name):
    put(folder, name)
    with pytest.raises(DataError, match=REFUSED[name]):
        files(str(folder))


def test_two_files_of_the_same_bytes_are_refused_and_empty_parts_are_not(folder):
    put(folder, "a.csv", "id,text\n")
    put(folder, "b.csv", "id,text\n")
    nobody = pyarrow.table({name: pyarrow.array([], "string") for name in ("id", "text")})
    for number in range(2):
        parquet.write_table(nobody, folder / f"empty-{number}.parquet")
    assert manifest.of(str(folder))["files"] == 5
    put(folder, "sub/other.csv", ROWS)
    with pytest.raises(DataError, match=r"'sub/other.csv' and 'notes.csv' have the same bytes"):
        manifest.of(str(folder))


def test_links_are_followed_to_files_of_the_folder_alone(folder, tmp_path):
    (folder / "latest.csv").symlink_to(folder / "notes.csv")
    with pytest.raises(DataError, match="same bytes"):
        manifest.of(str(folder))
    (folder / "latest.csv").unlink()
    (folder / "more").mkdir()
    put(folder, "more/b.csv")
    (folder / "again").symlink_to(folder / "more")
    with pytest.raises(DataError, match="leads to a folder"):
        files(str(folder))
    (folder / "again").unlink()
    (tmp_path / "outside").mkdir()
    (folder / "away").symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match="leads out of it"):
        files(str(folder))


CHANGES = {
    "appears": lambda top: put(top, "z.csv", ROWS.replace("p", "z")),
    "vanishes": lambda top: (top / "b.csv").unlink(),
    "changes": lambda top: (top / "b.csv").write_text(
        ROWS.replace("note 3", "note 4").replace("p", "q")
    ),
    "grows": lambda top: (top / "b.csv").write_text((top / "b.csv").read_text() + "q99,x\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_data_that_is_not_what_was_registered_is_refused(folder, change):
    put(folder, "b.csv")
    registered = manifest.of(str(folder))
    assert registered["files"] == 2
    assert [name for name, _, _ in registered["list"]] == ["b.csv", "notes.csv"]
    assert registered["bytes"] == sum(each.stat().st_size for each in folder.iterdir())
    manifest.check(str(folder), registered)
    CHANGES[change](folder)
    with pytest.raises(DataError, match="than when it was registered"):
        manifest.check(str(folder), registered)


def test_data_that_changes_while_it_is_read_is_refused(folder):
    registered = manifest.of(str(folder))
    units = manifest.unchanged(
        str(folder), registered, fingerprints.fingerprints(str(folder), LAYOUT, KEY)
    )
    next(units)
    put(folder, "z.csv", ROWS.replace("p", "z"))
    with pytest.raises(DataError, match="another number of files"):
        list(units)


def test_many_files_are_listed_up_to_a_hundred(folder):
    for number in range(150):
        put(folder, f"part-{number:03}.csv", f"id,text\nx{number},y\n")
    registered = manifest.of(str(folder))
    assert (registered["files"], len(registered["list"])) == (151, manifest.LISTED)
    (folder / "part-149.csv").write_text("id,text\nx,z\n")
    with pytest.raises(DataError, match="other bytes"):
        manifest.check(str(folder), registered)


@pytest.mark.parametrize("store", ["memory", "s3", CEPH])
def test_object_stores_follow_the_same_rules(store, request):
    import fsspec

    root = "memory://" if store == "memory" else request.getfixturevalue(store) + "/"
    system, cells = fsspec.core.url_to_fs(f"{root}cells")
    for name in (
        "notes.csv",
        ".ipynb_checkpoints/notes-checkpoint.csv",
        "_SUCCESS",
        "sub/b.csv.gz",
    ):
        data = ROWS.replace("p", "q") if name.endswith(".gz") else ROWS
        content = gzip.compress(data.encode()) if name.endswith(".gz") else data.encode()
        system.pipe(f"{cells}/{name}", content)
    try:
        assert len(records.read(f"{root}cells", LAYOUT, KEY).records) == 40
        assert [name for name, _, _ in manifest.of(f"{root}cells")["list"]] == [
            "notes.csv",
            "sub/b.csv.gz",
        ]
        system.pipe(f"{cells}/_delta_log/0.json", b"{}")
        with pytest.raises(DataError, match="Delta"):
            files(f"{root}cells")
    finally:
        system.rm(cells, recursive=True)


def test_a_reason_names_the_file_and_its_row(folder):
    put(folder, "sub/b.csv", "id,text\np50,fine\np51\n")
    with pytest.raises(DataError, match=r"^row 2 of sub/b.csv: it has 1 fields, the header has 2$"):
        list(fingerprints.fingerprints(str(folder), LAYOUT, KEY))
    put(folder, "sub/b.csv", "who,text\np50,fine\n")
    with pytest.raises(DataError, match=r"^sub/b.csv: there is no column id among the 2"):
        list(fingerprints.fingerprints(str(folder), LAYOUT, KEY))
