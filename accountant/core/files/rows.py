"""Published outputs as tables: JSON Lines in, CSV or columns out, one line in memory at a time.

JSON Lines and Parquet hold every text as it was published. CSV is for people with a spreadsheet, so
a text that one would run as a formula gets an apostrophe (spreadsheets.py).
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from accountant.core.errors import invalid
from accountant.core.files import spreadsheets

MOST_COLUMNS = 1_000
_EXACT = 2**53  # whole numbers up to it are doubles too, so a column may hold both


@dataclass(frozen=True)
class Column:
    """A column. `kind`: boolean, integer, number, text, or json (mixed values, lists, objects)."""

    name: str
    kind: str


def columns(lines: Iterable[bytes]) -> tuple[Column, ...]:
    """Return the columns of an output, in the order in which they first occur.

    Raises InvalidRequest if a line is not a JSON object: such an output is not a table.
    """
    kinds: dict[str, str | None] = {}
    for line in lines:
        for name, value in document(line).items():
            kinds[name] = _joined(kinds.get(name), _kind(value))
        if len(kinds) > MOST_COLUMNS:
            raise _no_table(f"it has more than {MOST_COLUMNS:,} columns")
    return tuple(Column(name, kind or "text") for name, kind in kinds.items())


def document(line: bytes) -> dict[str, Any]:
    """Return one line as an object."""
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise _no_table("a line of it is no JSON object")
    return fields


def _no_table(problem: str) -> Exception:
    return invalid("format", f"the output is no table: {problem}", "jsonl")


def _kind(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "boolean"
        case int():
            return "integer" if abs(value) <= _EXACT else "json"
        case float():
            return "number"
        case str():
            return "text"
        case _:
            return "json"


def _joined(one: str | None, other: str | None) -> str | None:
    if one is None or other is None or one == other:
        return one or other
    return "number" if {one, other} == {"integer", "number"} else "json"


def values(found: Mapping[str, Any], table: Iterable[Column]) -> Iterator[Any]:
    """Yield the values of one line, in the order of the columns; None for those it lacks."""
    for column in table:
        value = found.get(column.name)
        if value is None or column.kind in ("boolean", "integer"):
            yield value
        elif column.kind == "number":
            yield float(value)
        else:
            yield value if column.kind == "text" else json.dumps(value, ensure_ascii=False)


def csv_lines(lines: Iterable[bytes], table: tuple[Column, ...]) -> Iterator[str]:
    """Yield the output as CSV (RFC 4180) with a byte-order mark; only texts are quoted."""
    yield spreadsheets.MARK + _line(column.name for column in table)
    for line in lines:
        yield _line(values(document(line), table))


def _line(cells: Iterable[Any]) -> str:
    line = ",".join(_cell(cell) for cell in cells)
    return (line or '""') + "\r\n"  # readers skip an empty line, and the row would be lost


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    doubled = spreadsheets.harmless(str(value)).replace('"', '""')
    return f'"{doubled}"'


# --- A file whose bytes can be sent on while it grows, for libraries that write to files --------


class Pieces(io.RawIOBase):
    """A file that hands out what was written to it. It can't be read or sought."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        return len(piece)

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        taken, self._pieces = b"".join(self._pieces), []
        return taken
