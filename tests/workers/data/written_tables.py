"""Tables written by pandas, polars, pyarrow, DuckDB and the csv module, in every format and type,
in parts.

    writers()                     (name, function) of those that are installed
    write(frame, path)            a frame is {column: [cells]} of Python values; None is missing

Each writer gets the same people in a type of its own choice: whole numbers as integers of any
width, floats, decimals or digits; dates as dates, times or text; and so on.
"""

import csv
import gzip
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

Frame = Mapping[str, Sequence[Any]]
Writer = Callable[[Frame, Path], None]

#: How one kind of identifier may be typed: name -> the value as this type has it. None stays None.
TYPES: dict[str, dict[str, Callable[[Any], Any]]] = {
    "number": {
        "integer": int,
        "float": float,
        "decimal": lambda value: Decimal(value).quantize(Decimal("1.00")),
        "digits": str,
        "float's print": lambda value: f"{float(value)}",
    },
    "text": {"text": str, "bytes": lambda value: value.encode(), "category": str},
    "date": {
        "date": date.fromisoformat,
        "time": datetime.fromisoformat,
        "text": str,
        "time's print": lambda value: f"{value} 00:00:00",
    },
    "truth value": {
        "boolean": bool,
        "word": lambda value: str(bool(value)),
        "lower": lambda v: str(bool(v)).lower(),
    },
}


def typed(values: Sequence[Any], kind: str, name: str) -> list[Any]:
    """The values of a kind as one type has them; for the csv module, text is all there is."""
    change = TYPES[kind][name]
    return [None if value is None else change(value) for value in values]


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _opened(path: Path) -> Any:
    open_ = gzip.open if path.suffix == ".gz" else open
    return open_(path, "wt", newline="")


def _with_csv(frame: Frame, path: Path) -> None:
    with _opened(path) as file:
        writer = csv.writer(file)
        writer.writerow(frame)
        writer.writerows(
            ["" if each is None else _plain(each) for each in row]
            for row in zip(*frame.values(), strict=True)
        )


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _with_json(frame: Frame, path: Path) -> None:
    def shown(value: Any) -> Any:
        if isinstance(value, date | Decimal):
            return str(value)
        return _plain(value)

    with _opened(path) as file:
        for row in zip(*frame.values(), strict=True):
            file.write(
                json.dumps({name: shown(each) for name, each in zip(frame, row, strict=True)})
                + "\n"
            )


def _arrow(frame: Frame, dictionary: bool = False) -> pyarrow.Table:
    table = pyarrow.table({name: pyarrow.array(values) for name, values in frame.items()})
    if dictionary:
        columns = [
            each.dictionary_encode() if pyarrow.types.is_string(each.type) else each
            for each in table.columns
        ]
        table = pyarrow.table(columns, names=table.column_names)
    return table


def _with_pyarrow(frame: Frame, path: Path) -> None:
    parquet.write_table(_arrow(frame), path)


def _with_dictionaries(frame: Frame, path: Path) -> None:
    parquet.write_table(_arrow(frame, dictionary=True), path)


def _with_other_widths(frame: Frame, path: Path) -> None:
    """Short floats and integers, long texts, moments in seconds or nanoseconds."""
    kinds = pyarrow.types
    columns = []
    for values in frame.values():
        array = pyarrow.array(values)
        if kinds.is_floating(array.type):
            small = all(value is None or abs(value) < 2**11 for value in values)
            array = array.cast(pyarrow.float16() if small else pyarrow.float32(), safe=False)
        elif kinds.is_integer(array.type):
            small = all(value is None or 0 <= value < 2**8 for value in values)
            array = array.cast(pyarrow.uint8()) if small else array
        elif kinds.is_timestamp(array.type):
            array = array.cast(pyarrow.timestamp("ns"), safe=False)
        elif kinds.is_date(array.type):
            array = array.cast(pyarrow.date64())
        elif kinds.is_string(array.type):
            array = array.cast(pyarrow.large_string())
        elif kinds.is_decimal(array.type):
            array = array.cast(pyarrow.decimal256(40, 5))
        columns.append(array)
    parquet.write_table(pyarrow.table(columns, names=list(frame)), path)


def _with_pyarrow_csv(frame: Frame, path: Path) -> None:
    from pyarrow import csv as arrow_csv

    arrow_csv.write_csv(
        _arrow({name: list(map(_plain, values)) for name, values in frame.items()}), path
    )


def _pandas(frame: Frame, path: Path) -> None:
    import pandas

    table = pandas.DataFrame({name: list(map(_plain, values)) for name, values in frame.items()})
    match path.suffix:
        case ".parquet":
            table.to_parquet(path)
        case ".jsonl":
            table.to_json(path, orient="records", lines=True, date_format="iso")
        case _:
            table.to_csv(path, index=False)


def _polars(frame: Frame, path: Path) -> None:
    import polars

    table = polars.DataFrame({name: list(values) for name, values in frame.items()}, strict=False)
    match path.suffix:
        case ".parquet":
            table.write_parquet(path)
        case ".jsonl":
            table.with_columns(polars.selectors.binary().cast(polars.String)).write_ndjson(path)
        case _:
            table.with_columns(polars.selectors.binary().cast(polars.String)).write_csv(path)


def _duckdb(frame: Frame, path: Path) -> None:
    import duckdb

    table = _arrow({name: list(map(_plain, values)) for name, values in frame.items()})
    form = {".parquet": "parquet", ".jsonl": "json"}.get(path.suffix, "csv, header")
    with duckdb.connect() as connection:
        connection.register("frame", table)
        connection.execute(f"COPY frame TO '{path}' (FORMAT {form})")


def writers() -> list[tuple[str, str, Writer]]:
    """(name, suffix, writer) of every library that is installed, in every format that it writes."""
    found: list[tuple[str, str, Writer]] = [
        ("csv", ".csv", _with_csv),
        ("csv in gzip", ".csv.gz", _with_csv),
        ("json", ".jsonl", _with_json),
        ("json in gzip", ".jsonl.gz", _with_json),
        ("pyarrow", ".parquet", _with_pyarrow),
        ("pyarrow's dictionaries", ".parquet", _with_dictionaries),
        ("pyarrow's other widths", ".parquet", _with_other_widths),
        ("pyarrow's csv", ".csv", _with_pyarrow_csv),
    ]
    for name, writer in (("pandas", _pandas), ("polars", _polars), ("duckdb", _duckdb)):
        if _is_installed(name):
            found += [(name, suffix, writer) for suffix in (".csv", ".jsonl", ".parquet")]
    return found
