"""Outputs as Parquet, in row groups: the writer never holds more than one.

Only this module imports pyarrow, and only when it is used: the package is large, and neither the
client, the web server's start nor any other format needs it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from accountant.core.errors import invalid
from accountant.core.files.rows import Column, Pieces, document, values

ROW_GROUP = 2_000

R = TypeVar("R")


def available() -> Any:
    """Return the pyarrow.parquet module. Raises InvalidRequest if it is not installed."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise invalid(
            "format", "pyarrow is not installed here", "jsonl, csv; or install pyarrow"
        ) from None
    return parquet


def write_output(
    lines: Iterable[bytes], table: tuple[Column, ...], metadata: Mapping[str, str]
) -> Iterator[bytes]:
    """Yield a Parquet file with the lines of an output, in pieces. `metadata` is the file's."""
    parquet = available()
    import pyarrow

    kinds = {"boolean": pyarrow.bool_(), "integer": pyarrow.int64(), "number": pyarrow.float64()}
    fields = [(column.name, kinds.get(column.kind, pyarrow.string())) for column in table]
    schema = pyarrow.schema(fields, metadata=dict(metadata))
    sink = Pieces()
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for group in groups(tuple(values(document(line), table)) for line in lines):
            arrays = [
                pyarrow.array(column, kind)
                for column, (_, kind) in zip(zip(*group, strict=True), fields, strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            yield sink.take()
    yield sink.take()


def groups(rows: Iterable[R]) -> Iterator[list[R]]:
    group: list[R] = []
    for row in rows:
        group.append(row)
        if len(group) == ROW_GROUP:
            yield group
            group = []
    if group:
        yield group
