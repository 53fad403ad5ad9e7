"""Rows of CSV, JSON Lines and Parquet files, compressed or not, from any fsspec address.

Only the columns that are needed are read. Their cells are what the format holds:
accountant.core.files.cells gives them one form.
"""

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter
from typing import IO, Any

import fsspec

from accountant.core.errors import DataError
from accountant.core.files import filetypes
from accountant.core.files.cells import (
    Half,
    NamedTwice,
    Single,
    column_key,
    has_two_alike,
    json_value,
)
from workers import interruption
from workers.data.addresses import files, format_of, names

MAX_FIELD_BYTES = 16 * 2**20
_BATCH = 1024
_LOOK_EVERY = 64  # rows: a row may have megabytes


class Row(dict[str, Any]):
    """A row's needed cells by column, and its place: `number` in `file` ("" for the only file)."""

    __slots__ = ("file", "number")

    file: str
    number: int

    @property
    def place(self) -> str:
        """The row in words."""
        return _place(self.number, self.file)


def _place(number: int, file: str) -> str:
    return f"row {number} of {file}" if file else f"row {number}"


@dataclass(frozen=True)
class Broken:
    """A place where no record could be read, and the reason. Quotes no content."""

    position: int
    why: str
    file: str = ""

    def __str__(self) -> str:
        return f"{_place(self.position, self.file)}: {self.why}"


@dataclass(frozen=True)
class Held:
    """A file of data whose bytes were read already.

    Args:
        file: its address, whose ending names format and compression.
        shown: its path in the folder; "" for a single file.
        again: its rows may be read several times; False: the bytes go with the first reading.
        sha256: of its bytes.
    """

    file: str
    shown: str
    content: IO[bytes]
    again: bool = False
    sha256: bytes = b""


def rows(data: str | Sequence[Held], columns: Sequence[str]) -> Iterator[Row | Broken]:
    """Yield every row of every file, at an address or held. Raises DataError for bad files."""
    if isinstance(data, str):
        paths = files(data)
        each_file: Iterable[tuple[str | Held, str]] = zip(paths, names(data, paths), strict=True)
    else:
        each_file = ((held, held.shown) for held in data)
    for file, shown in each_file:
        with _told_by_file(shown):
            for number, cells in _rows(file, columns):
                if not number % _LOOK_EVERY:
                    interruption.check()
                if isinstance(cells, str):
                    yield Broken(number, cells, shown)
                else:
                    row = Row(zip(columns, cells, strict=True))
                    row.number, row.file = number, shown
                    yield row


#: The number of a row in its file, and the cells of the columns in their order, or why it has none.
_Numbered = tuple[int, Sequence[Any] | str]


def _rows(file: str | Held, columns: Sequence[str]) -> Iterator[_Numbered]:
    form = format_of(file if isinstance(file, str) else file.file)
    if form is None:
        raise DataError("the file's name does not end in .csv, .jsonl or .parquet (.gz may follow)")
    try:
        if form == "parquet":
            yield from _parquet_rows(file, columns)
        else:
            with _lines(file, form) as lines:
                yield from (_csv_rows if form == "csv" else _json_rows)(lines, columns)
    except (OSError, EOFError, ValueError) as error:
        raise DataError(f"the file can't be read as {form}: {type(error).__name__}") from None


@contextmanager
def _told_by_file(shown: str) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise DataError(f"{shown}: {error}" if shown else str(error)) from None


def columns_of(file: str) -> list[str] | None:
    """Return a file's column names (JSON Lines: the first row's), or None without any."""
    form = format_of(file)
    if form == "parquet":
        with _parquet(file) as table:
            return list(table.schema_arrow.names)
    if form is None:
        return None
    try:
        with _lines(file, form) as lines:
            if form == "csv":
                return next(csv.reader(lines, strict=True), None)
            row = json_value(next((line for line in lines if line.strip()), "null"))
            return list(row) if isinstance(row, dict) else None
    except (OSError, EOFError, ValueError, RecursionError, csv.Error):
        return None  # told when it is read through


def has_rows(file: str) -> bool:
    """Return whether there is any row in a file. Raises DataError if it can't be read."""
    return next(_rows(file, (columns_of(file) or [])[:1]), None) is not None


class _Reading(io.RawIOBase):
    """A reading of its own of an open file: others may be under way, and its end closes nothing."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._place = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = os.pread(self._file.fileno(), len(buffer), self._place)
        buffer[: len(block)] = block
        self._place += len(block)
        return len(block)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        size = os.fstat(self._file.fileno()).st_size
        self._place = (0, self._place, size)[whence] + offset
        return self._place


@contextmanager
def _opened(file: str | Held, compression: str | None = None) -> Iterator[Any]:
    """Return the bytes of a file, decompressed if `compression` is "infer"."""
    if isinstance(file, str):
        with fsspec.open(file, "rb", compression=compression) as binary:
            yield binary
        return
    codec = None if compression is None else fsspec.utils.infer_compression(file.file)
    with io.BufferedReader(_Reading(file.content)) if file.again else file.content as content:
        content.seek(0)
        yield content if codec is None else fsspec.compression.compr[codec](content, mode="rb")


@contextmanager
def _lines(file: str | Held, form: str) -> Iterator[io.TextIOWrapper]:
    """Return a file's text, bad UTF-8 as surrogates. Raises DataError for another format."""
    with _opened(file, "infer") as binary:
        other = filetypes.other_format(binary.read(filetypes.MAGIC_BYTES))
        if other is not None:
            raise DataError(f"the file can't be read as {form}: it is {other}")
        binary.seek(0)
        yield io.TextIOWrapper(binary, "utf-8-sig", errors="surrogateescape", newline="")


# --- columns ------------------------------------------------------------------------------------


def places(columns: Sequence[str], present: Sequence[str]) -> list[int]:
    """Return each column's place among those present. Raises DataError unless it is there once."""
    if has_two_alike(present):
        raise DataError(
            "two columns have the same name, or names that only look different: give each its own"
        )
    keys = {column_key(name): place for place, name in enumerate(present)}
    missing = [name for name in columns if column_key(name) not in keys]
    if missing:
        raise DataError(no_column(missing, present))
    return [keys[column_key(name)] for name in columns]


def no_column(missing: Iterable[str], present: Sequence[str]) -> str:
    """Say which columns lack. Names that are there may be a record: none is quoted."""
    words = f"there is no column {', '.join(missing)} among the {len(present)}"
    plain = {column_key(name).casefold() for name in present}
    if any(column_key(name).casefold() in plain for name in missing):
        return f"{words}; one differs in capitals alone"
    return f"{words}: look at how the file begins"


# --- formats ------------------------------------------------------------------------------------


def _csv_rows(lines: io.TextIOWrapper, columns: Sequence[str]) -> Iterator[_Numbered]:
    csv.field_size_limit(MAX_FIELD_BYTES)
    reader = csv.reader(lines, strict=True)
    header = next(reader, [])
    wanted = places(columns, header)
    take = itemgetter(*wanted) if len(wanted) > 1 else lambda row: [row[place] for place in wanted]
    width, number = len(header), 0
    while True:
        number += 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield number, "its quoting is broken"
            continue
        if row == header and width > 1:
            yield number, "it repeats the header: files were joined with theirs"
        elif len(row) == width:
            yield number, take(row)
        elif row:
            yield number, f"it has {len(row)} fields, the header has {width}"
        else:
            number -= 1  # a blank line is no row


def _json_rows(lines: io.TextIOWrapper, columns: Sequence[str]) -> Iterator[_Numbered]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json_value(line)
        except NamedTwice:
            yield number, "it names one field twice"
            continue
        except (ValueError, RecursionError):
            yield number, "it is no JSON"
            continue
        if not isinstance(value, dict):
            yield number, "it is no JSON object"
            continue
        try:
            present = tuple(value)
            wanted = _json_places(tuple(columns), present)
        except DataError as error:
            yield number, str(error)
            continue
        yield number, [value[present[place]] for place in wanted]


@lru_cache(maxsize=256)
def _json_places(columns: tuple[str, ...], present: tuple[str, ...]) -> list[int]:
    keys = set(map(column_key, present))
    missing = [name for name in columns if column_key(name) not in keys]
    if missing:
        raise DataError(f"it has no {', '.join(missing)}")
    return places(columns, present)


@contextmanager
def _parquet(file: str | Held) -> Iterator[Any]:
    import pyarrow
    from pyarrow import parquet

    try:
        with _opened(file) as binary:
            yield parquet.ParquetFile(binary, arrow_extensions_enabled=True)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"the file can't be read as parquet: {type(error).__name__}") from None


def _parquet_rows(file: str | Held, columns: Sequence[str]) -> Iterator[_Numbered]:
    with _parquet(file) as table:
        present = table.schema_arrow.names
        wanted = [present[place] for place in places(columns, present)]
        for name in wanted:
            _check_extension(table.schema_arrow.field(name))
        number = 0
        for batch in table.iter_batches(batch_size=_BATCH, columns=wanted):
            for cells in zip(*(_cells(batch.column(name), name) for name in wanted), strict=True):
                number += 1
                yield number, cells


#: Types of other libraries whose cells are what they are in every format.
_EXTENSIONS = ("arrow.uuid", "arrow.json", "arrow.bool8")


def _check_extension(field: Any) -> None:
    """Raise DataError for a type that only its library knows, such as pandas periods."""
    stored = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode(errors="replace")
    name = getattr(field.type, "extension_name", stored)
    if name and name not in _EXTENSIONS:
        raise DataError(
            f"the column {field.name} has the type {name}, which is not read: write it as text"
        )


def _cells(array: Any, name: str) -> list[Any]:
    """Return the cells of a Parquet column as Python values that lose nothing."""
    import pyarrow
    from pyarrow import types

    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if types.is_string(kind) or types.is_large_string(kind):
        try:
            return array.to_pylist()
        except UnicodeDecodeError:  # one cell is no UTF-8: its row is refused, not the file
            return array.cast(pyarrow.large_binary()).to_pylist()
    if types.is_float32(kind) or types.is_float16(kind):  # the shortest decimal that is this float
        narrow = Single if types.is_float32(kind) else Half
        printed = array.cast(pyarrow.float32()).cast(pyarrow.string()).to_pylist()
        return [None if each is None else narrow(each) for each in printed]
    if types.is_temporal(kind) or types.is_nested(kind):
        array = array.cast(_changed(kind, _in_utc)).cast(_changed(kind, partial(_as_text, name)))
    cells = (
        array.to_pylist(maps_as_pydicts="strict") if types.is_nested(kind) else array.to_pylist()
    )
    if types.is_temporal(kind) and any(cell is not None and cell.startswith("<") for cell in cells):
        raise DataError(f"the column {name} has moments out of every calendar: write it as text")
    return cells


def _changed(kind: Any, change: Callable[[Any], Any]) -> Any:
    """Return a type with `change` applied to the types of single values in it."""
    import pyarrow
    from pyarrow import types

    if types.is_map(kind):
        return pyarrow.map_(_changed(kind.key_type, change), _changed(kind.item_type, change))
    if types.is_struct(kind):
        return pyarrow.struct([(each.name, _changed(each.type, change)) for each in kind])
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pyarrow.list_(_changed(kind.value_type, change))
    return change(kind)


def _in_utc(kind: Any) -> Any:
    import pyarrow

    zoned = pyarrow.types.is_timestamp(kind) and kind.tz is not None
    return pyarrow.timestamp(kind.unit, "UTC") if zoned else kind


def _as_text(name: str, kind: Any) -> Any:
    """Return moments as text, to the nanosecond. Raises DataError for types without such a text."""
    import pyarrow
    from pyarrow import types

    if types.is_duration(kind) or types.is_interval(kind) or types.is_union(kind):
        raise DataError(
            f"the column {name} has the type {kind}, which is not read: write it as text"
        )
    return pyarrow.string() if types.is_temporal(kind) else kind
