"""Ledger exports and outputs as Parquet, in row groups: neither writing nor reading holds more than one.

The one place that imports pyarrow, and only when it is used: it is large, and the client, the web at start
and every other format do without it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from accountant.core.errors import VerificationFailed, invalid
from accountant.core.files.pieces import Pieces
from accountant.core.files.rows import Column, document, values
from accountant.core.ledger.checkpoints import Checkpoint
from accountant.core.ledger.export_formats import (
    COLUMNS,
    FORMAT,
    Verified,
    Verifier,
    add_columns,
    checked_totals,
)

MAGIC = b"PAR1"
ROW_GROUP = 2_000
_TOTALS = b"exchequer"

R = TypeVar("R")


def available() -> Any:
    """The pyarrow.parquet module. Raises InvalidRequest where it is not installed."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise invalid(
            "format", "pyarrow is not installed here", "jsonl, csv; or install exchequer[export]"
        ) from None
    return parquet


def write(claimed: Mapping[str, Any], rows: Iterable[tuple[str, ...]]) -> Iterator[bytes]:
    """The bytes of a Parquet file with these rows (as files.columns gives them), piece by piece."""
    parquet = available()
    import pyarrow

    fields = [(name, pyarrow.int64() if name == "seq" else pyarrow.string()) for name in COLUMNS]
    schema = pyarrow.schema(fields, metadata={_TOTALS: json.dumps(claimed, ensure_ascii=False).encode()})
    sink = Pieces()
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for group in _groups(rows):
            arrays = [
                pyarrow.array(map(int, values) if name == "seq" else values, kind)
                for (name, kind), values in zip(fields, zip(*group, strict=True), strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            yield sink.take()
    yield sink.take()


def write_output(
    lines: Iterable[bytes], table: tuple[Column, ...], metadata: Mapping[str, str]
) -> Iterator[bytes]:
    """The bytes of a Parquet file with the lines of an output, piece by piece. `metadata`: of the file."""
    parquet = available()
    import pyarrow

    kinds = {"boolean": pyarrow.bool_(), "integer": pyarrow.int64(), "number": pyarrow.float64()}
    fields = [(each.name, kinds.get(each.kind, pyarrow.string())) for each in table]
    schema = pyarrow.schema(fields, metadata=dict(metadata))
    sink = Pieces()
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for group in _groups(tuple(values(document(line), table)) for line in lines):
            arrays = [
                pyarrow.array(column, kind)
                for column, (_, kind) in zip(zip(*group, strict=True), fields, strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            yield sink.take()
    yield sink.take()


def _groups(rows: Iterable[R]) -> Iterator[list[R]]:
    group: list[R] = []
    for row in rows:
        group.append(row)
        if len(group) == ROW_GROUP:
            yield group
            group = []
    if group:
        yield group


def verify(path: str, checkpoints: Iterable[Checkpoint] = (), pinned: bytes | None = None) -> Verified:
    """Verify a Parquet export, as files.verify_lines does the others."""
    parquet = available()
    import pyarrow

    verifier = Verifier(None, checkpoints)
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:  # else whole row groups are held
            claimed = _claimed(file.schema_arrow)
            for batch in file.iter_batches(batch_size=500, use_threads=False):
                values = [column.to_pylist() for column in batch.columns]
                for row in zip(*values, strict=True):
                    add_columns(verifier, ["" if value is None else str(value) for value in row])
    except (pyarrow.ArrowException, OSError) as error:
        raise VerificationFailed(f"the file can't be read as Parquet: {error}") from None
    return checked_totals(claimed, verifier.result(), pinned)


def _claimed(schema: Any) -> dict[str, Any]:
    """The totals in the file's metadata."""
    if tuple(schema.names) != COLUMNS:
        raise VerificationFailed(f"this is no ledger export: its columns are not {', '.join(COLUMNS)}")
    try:
        claimed = json.loads((schema.metadata or {}).get(_TOTALS, b""))
    except ValueError:
        claimed = None
    if not isinstance(claimed, dict) or claimed.get("format") != FORMAT or claimed.get("version") != 1:
        raise VerificationFailed("this is no ledger export: its metadata states no totals")
    return claimed
