"""Ledger exports as Parquet, in row groups: the writer holds no more than one."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from accountant.core.files.parquet import available, groups
from accountant.core.files.rows import Pieces
from accountant.core.ledger.export_formats import COLUMNS

_TOTALS = b"exchequer"


def write(claimed: Mapping[str, Any], rows: Iterable[tuple[str, ...]]) -> Iterator[bytes]:
    """Yield the bytes of a Parquet file with these rows (from export_formats.columns), piece by
    piece.
    """
    parquet = available()
    import pyarrow

    fields = [(name, pyarrow.int64() if name == "seq" else pyarrow.string()) for name in COLUMNS]
    schema = pyarrow.schema(
        fields, metadata={_TOTALS: json.dumps(claimed, ensure_ascii=False).encode()}
    )
    sink = Pieces()
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for group in groups(rows):
            arrays = [
                pyarrow.array(map(int, values) if name == "seq" else values, kind)
                for (name, kind), values in zip(fields, zip(*group, strict=True), strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            yield sink.take()
    yield sink.take()
