"""Ledger exports as Parquet, in row groups: neither the writer nor the reader holds more than one."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from accountant.core.errors import VerificationFailed
from accountant.core.files.parquet import available, groups
from accountant.core.files.pieces import Pieces
from accountant.core.ledger.checkpoints import Checkpoint
from accountant.core.ledger.export_formats import (
    COLUMNS,
    FORMAT,
    Verified,
    Verifier,
    add_columns,
    checked_totals,
    going_on,
)

_TOTALS = b"exchequer"


def write(claimed: Mapping[str, Any], rows: Iterable[tuple[str, ...]]) -> Iterator[bytes]:
    """The bytes of a Parquet file with these rows (from export_formats.columns), piece by piece."""
    parquet = available()
    import pyarrow

    fields = [(name, pyarrow.int64() if name == "seq" else pyarrow.string()) for name in COLUMNS]
    schema = pyarrow.schema(fields, metadata={_TOTALS: json.dumps(claimed, ensure_ascii=False).encode()})
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


def verify(
    path: str,
    checkpoints: Iterable[Checkpoint] = (),
    pinned: bytes | None = None,
    verifier: Verifier | None = None,
) -> Verified:
    """Verify a Parquet export, as export_formats.verify_lines does the other formats."""
    parquet = available()
    import pyarrow

    verifier = going_on(verifier, checkpoints)
    known = verifier.count  # rows that are passed over
    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:  # else whole row groups are held
            claimed = _claimed(file.schema_arrow)
            for batch in file.iter_batches(batch_size=500, use_threads=False):
                passed = min(known, batch.num_rows)
                known -= passed
                values = [column.to_pylist() for column in batch.slice(passed).columns]
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
