"""Reads an uploaded Parquet file through in a process of its own, and reports its columns.

    python parquet_check.py LIMITS < FILE

A Parquet file is a small program for its reader: its metadata say how much to allocate, and a page
of a hundred bytes may unpack to gigabytes. So no process that serves requests reads one. This
process has bounded memory and time, writes no file and prints one line of JSON: `columns` and
`bytes`, or `problem`. It imports nothing of the project, so that it can run isolated, and nothing
imports it.
"""

import contextlib
import json
import resource
import sys
from typing import Any

ROWS_AT_ONCE = 128


def bound(limits: dict[str, int]) -> None:
    """Have the kernel hold this process to its limits."""
    for kind, most in (
        (resource.RLIMIT_AS, limits["memory"]),
        (resource.RLIMIT_CPU, limits["seconds"]),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))


def read_through(file: Any, limits: dict[str, int]) -> dict[str, Any]:
    """Read every page of every column, and compare the metadata's claims with what is found."""
    from pyarrow import parquet

    # A buffer: else a whole column of a row group is read at once.
    opened = parquet.ParquetFile(
        file, pre_buffer=False, buffer_size=2**20, thrift_string_size_limit=16 * 2**20
    )
    stated, names = opened.metadata, opened.schema_arrow.names
    if stated.num_columns > limits["columns"]:
        return {"problem": f"has {stated.num_columns:,} columns"}
    promised = sum(
        stated.row_group(number).total_byte_size for number in range(stated.num_row_groups)
    )
    held, rows = 0, 0
    too_much = {"problem": f"holds more than {limits['bytes']:,} bytes unpacked"}
    if promised > limits["bytes"]:
        return too_much
    for batch in opened.iter_batches(batch_size=ROWS_AT_ONCE, use_threads=False):
        rows += batch.num_rows
        held += sum(plain(column).nbytes for column in batch.columns)
        if held > limits["bytes"]:
            return too_much
    if rows != stated.num_rows:
        return {"problem": "its metadata state another number of records than it holds"}
    if not rows:
        return {"problem": "has no record"}
    return {"columns": names, "bytes": held}


def plain(column: Any) -> Any:
    """Return a column with its dictionary encoding undone, as a reader of records gets it."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if "dictionary<" in str(column.type):
        raise TypeError("a dictionary inside another type")
    return column


def main() -> None:
    """Print one line of JSON, whatever the file is."""
    limits = json.loads(sys.argv[1])
    bound(limits)
    answer: dict[str, Any] = {"problem": "can't be read as Parquet"}
    with contextlib.suppress(Exception):  # its text may quote the file
        answer = read_through(sys.stdin.buffer, limits)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
