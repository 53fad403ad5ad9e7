"""What of a folder is data: hidden, temporary, backup, checksum and marker files are not.

Layouts whose plain files are not the whole truth are refused: tables with a log of their own, and
folders that hold columns in their names.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from accountant.core.errors import DataError

FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
#: Endings of tables in formats that are not read. In a folder they might be people whom nobody
#: counts.
OTHER_TABLES = frozenset(
    (
        ".tsv",
        ".tab",
        ".psv",
        ".xls",
        ".xlsx",
        ".xlsm",
        ".xlsb",
        ".ods",
        ".orc",
        ".avro",
        ".arrow",
        ".feather",
        ".ipc",
        ".h5",
        ".hdf5",
        ".sqlite",
        ".sqlite3",
        ".db",
        ".duckdb",
        ".pkl",
        ".pickle",
        ".rds",
        ".rdata",
        ".dta",
        ".sav",
        ".sas7bdat",
        ".zip",
        ".tar",
        ".tgz",
        ".7z",
        ".rar",
        ".npz",
        ".tfrecord",
        ".xml",
    )
)

_LAYOUTS = (
    (re.compile(r"(^|/)_delta_log/"), "a Delta Lake table, whose log says which files count"),
    (
        re.compile(r"(^|/)metadata/[^/]+\.metadata\.json"),
        "an Iceberg table, whose metadata say which files count",
    ),
    (re.compile(r"(^|/)\.hoodie(_|/)"), "a Hudi table, whose timeline says which files count"),
    (re.compile(r"(^|/)(_versions|_transactions)/.*\.(manifest|txn)$"), "a Lance dataset"),
    (
        re.compile(r"(^|/)[^/=]+=[^/]*/"),
        "partitioned: names such as year=2024 hold columns that its files lack",
    ),
)

_JUNK_FOLDERS = frozenset({"__macosx", "lost+found", "$recycle.bin", "@eadir", "temp", "tmp"})
_TEMPORARY = (
    r"tmp|temp|bak|backup|old|orig|swp|swo|part|partial|crdownload|download|filepart|inprogress"
)
#: A temporary or backup, by the last part of a name, before or after the ending of its format.
_NO_DATA = re.compile(
    rf"(?i)^[._~#]|[~#]$|\.({_TEMPORARY}|lock|crc|md5|sha1|sha256|sha512|sig|asc)$|\.sync-conflict-"
)
_COPY = re.compile(
    r"(?i)^(?:copy of |kopie von |copie de )(?P<before>.+)$"
    r"|^(?P<after>.+?)(?:[ _-]*(?:- )?(?:copy|kopie|copie)(?: ?\(?\d+\)?)?| ?\(\d+\))$"
)


def format_of(name: str) -> str | None:
    """Return the format that a file's name tells, compressed or not, or None if unknown."""
    return FORMATS.get(_stem_and_ending(name)[1])


def data_files(names: Iterable[str]) -> list[str]:
    """Return the data files of a folder by their paths in it, in order.

    Raises DataError for a layout that is not read, for tables in another format, and for a copy of
    a file.
    """
    every = sorted(names)
    for path in every:
        for pattern, what in _LAYOUTS:
            if pattern.search(path):
                raise DataError(
                    f"the folder is {what}: export the table as plain files of one folder"
                )
    seen = [path for path in every if not _is_no_data(path)]
    others = sorted(
        {ending for path in seen if (ending := _stem_and_ending(path)[1]) in OTHER_TABLES}
    )
    if others:
        raise DataError(
            f"the folder holds files in formats that are not read ({', '.join(others)}): take them "
            "out, or write them as CSV, JSON Lines or Parquet"
        )
    paths = [path for path in seen if format_of(path) is not None]
    for copy in _copies(paths):
        raise DataError(
            f"the folder holds {copy!r}, which looks like a copy of another file: take it out"
        )
    if not paths:
        raise DataError("the folder has no CSV, JSON Lines or Parquet file that is data")
    return paths


def _stem_and_ending(name: str) -> tuple[str, str]:
    """Return the name without folder, compression and ending; and the ending."""
    path = PurePosixPath(name)
    while path.suffix.lower() in COMPRESSIONS:
        path = path.with_suffix("")
    return path.stem, path.suffix.lower()


def _is_no_data(path: str) -> bool:
    *folders, name = path.split("/")
    if any(folder[:1] in "._" or folder.lower() in _JUNK_FOLDERS for folder in folders):
        return True
    return any(_NO_DATA.search(part) for part in (name, _stem_and_ending(name)[0]))


def _copies(paths: list[str]) -> Iterator[str]:
    """Yield the files that are called as copies of others beside them."""
    stems = {(str(PurePosixPath(path).parent), _stem_and_ending(path)[0].lower()) for path in paths}
    for path in paths:
        named = _COPY.match(_stem_and_ending(path)[0])
        if named is not None:
            original = (named["before"] or named["after"]).lower()
            if (str(PurePosixPath(path).parent), original) in stems:
                yield path
