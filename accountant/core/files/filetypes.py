"""The type of an uploaded file, determined from its bytes as they arrive. File names are ignored.

Accepted are CSV and JSON Lines in UTF-8, plain or gzipped, and Parquet. A refusal says what the
file is and which limit it breaks; it never quotes the file's contents.
"""

import codecs
import csv
import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from accountant.core.errors import InvalidRequest, invalid
from accountant.core.files.cells import NamedTwice, has_two_alike, json_value

TAKEN = "CSV or JSON Lines in UTF-8 (.gz or not), or Parquet"

#: So much of a text is looked at to find its columns: the first rows have to lie in it.
HEAD_BYTES = 2**20
HEAD_ROWS = 200
COLUMN_NAME = 200

#: Nothing is called a bomb that unpacks to less.
_HARMLESS_BYTES = 2**20
_BLOCK = 2**16

_GZIP, PARQUET = b"\x1f\x8b", b"PAR1"
_OTHERS = {
    b"PK\x03\x04": "a zip archive (or an office document)",
    b"BZh": "packed with bzip2",
    b"\xfd7zXZ\0": "packed with xz",
    b"\x28\xb5\x2f\xfd": "packed with zstd",
    b"%PDF": "a PDF document",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"GIF8": "a picture",
    PARQUET: "a Parquet file",
    _GZIP: "packed with gzip",
    b"SQLite format 3\0": "an SQLite database",
    b"\x7fELF": "a program",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}
#: So many bytes at the start of a file tell another format.
MAGIC_BYTES = max(map(len, _OTHERS))


@dataclass(frozen=True)
class Limits:
    """Limits on a file: unpacked bytes, unpacked bytes per byte sent, bytes per line, columns."""

    uncompressed_bytes: int
    ratio: int
    line_bytes: int
    columns: int


@dataclass(frozen=True)
class Found:
    """The type of a file. `columns` are empty for a Parquet file: parquet_check reads those."""

    format: str
    compression: str | None
    columns: tuple[str, ...]
    uncompressed_bytes: int

    @property
    def suffix(self) -> str:
        """The file name suffix by which readers recognise the format."""
        return f".{self.format}" + (".gz" if self.compression else "")


def other_format(start: bytes) -> str | None:
    """Return what a file is that begins so, if it is no text in UTF-8."""
    return next((name for magic, name in _OTHERS.items() if start.startswith(magic)), None)


def refused(problem: str, allowed: str = TAKEN) -> InvalidRequest:
    """Return the error that refuses a file."""
    return invalid("file", problem, allowed)


class Scanner:
    """Scans a file block by block; `finish` returns its type. Both raise InvalidRequest."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._start = bytearray()
        self._reader: _Text | _Gzip | _Parquet | None = None

    def feed(self, block: bytes) -> None:
        """Scan the next bytes of the file."""
        if self._reader is not None:
            self._reader.feed(block)
            return
        self._start += block
        if len(self._start) >= MAGIC_BYTES:
            self._begin()

    def finish(self) -> Found:
        """Return the type of the whole file."""
        if self._reader is None:
            if not self._start:
                raise refused("is empty")
            self._begin()
        assert self._reader is not None
        return self._reader.finish()

    def _begin(self) -> None:
        start = bytes(self._start)
        if start.startswith(_GZIP):
            self._reader = _Gzip(self._limits)
        elif start.startswith(PARQUET):
            self._reader = _Parquet()
        else:
            self._reader = _Text(self._limits)
        self._start.clear()
        self._reader.feed(start)


class _Parquet:
    """Checks the two ends only; a separate process reads what lies between (parquet_check)."""

    def __init__(self) -> None:
        self._end = b""
        self._bytes = 0

    def feed(self, block: bytes) -> None:
        self._bytes += len(block)
        self._end = (self._end + block[-4:])[-4:]

    def finish(self) -> Found:
        if self._end != PARQUET or self._bytes < 12:
            raise refused("begins as Parquet and does not end so: is it whole?")
        return Found("parquet", None, (), self._bytes)


class _Gzip:
    """Unpacks member after member, at most a block at a time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._text = _Text(limits, inside=True)
        self._member = zlib.decompressobj(wbits=31)
        self._packed = 0
        self._members = 1

    def feed(self, block: bytes) -> None:
        self._packed += len(block)
        while block:
            if self._member.eof:
                block = block.lstrip(b"\0")  # padding between and after members
                if not block:
                    return
                self._member, self._members = zlib.decompressobj(wbits=31), self._members + 1
                if self._members > 1000 + self._packed // 1024:
                    raise refused("is packed in far too many pieces", "one gzip stream")
            self._unpack(block)
            if self._text.bytes > max(_HARMLESS_BYTES, self._limits.ratio * self._packed):
                raise refused(
                    "unpacks to far more than a text would", f"{self._limits.ratio} times at most"
                )
            block = self._member.unused_data if self._member.eof else self._member.unconsumed_tail

    def finish(self) -> Found:
        while not self._member.eof:  # what the last block still holds
            if not self._unpack(b""):
                raise refused("its gzip stream ends in the middle: was it cut short?")
        contents = self._text.finish()
        return Found(contents.format, "gzip", contents.columns, contents.uncompressed_bytes)

    def _unpack(self, block: bytes) -> int:
        try:
            unpacked = self._member.decompress(block, _BLOCK)
        except zlib.error:
            raise refused("its gzip stream is broken") from None
        self._text.feed(unpacked)
        return len(unpacked)


class _Text:
    """Counts bytes and line lengths, checks encoding, keeps the head until columns are known."""

    def __init__(self, limits: Limits, inside: bool = False) -> None:
        self.bytes = 0
        self._limits = limits
        self._inside = inside
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._line = 0  # bytes since the last line ended
        self._head = bytearray()
        self._found: tuple[str, tuple[str, ...]] | None = None

    def feed(self, block: bytes) -> None:
        for start in range(0, len(block), _BLOCK):
            self._take(block[start : start + _BLOCK])

    def finish(self) -> Found:
        self._decode(b"", final=True)
        if self._found is None:
            self._look(whole=True)
        assert self._found is not None
        form, columns = self._found
        return Found(form, None, columns, self.bytes)

    def _take(self, block: bytes) -> None:
        if self._found is None:
            self._head += block[: HEAD_BYTES - len(self._head)]
            start = bytes(self._head[:MAGIC_BYTES])
            if self._inside and start.startswith((_GZIP, PARQUET)):
                raise refused("is packed twice", "gzip once; Parquet as it is")
            if (other := other_format(start)) is not None:
                raise refused(f"is {other}")
        self.bytes += len(block)
        most = self._limits.uncompressed_bytes
        if self.bytes > most:
            raise refused("holds more than this service takes", f"{most:,} bytes unpacked")
        self._decode(block)
        self._measure(block)
        if self._found is None and len(self._head) >= HEAD_BYTES:
            self._look(whole=False)

    def _decode(self, block: bytes, final: bool = False) -> None:
        if b"\0" in block:
            raise refused("is no text: it holds NUL bytes")
        try:
            self._decoder.decode(block, final)
        except UnicodeDecodeError:
            raise refused("is not UTF-8 text") from None

    def _measure(self, block: bytes) -> None:
        first, last = block.find(b"\n"), block.rfind(b"\n")
        if first < 0:
            self._line += len(block)
            longest = self._line
        else:
            longest = self._line + first
            self._line = len(block) - last - 1
            if len(block) > self._limits.line_bytes:
                longest = max(longest, *map(len, block[first + 1 :].split(b"\n")))
        if max(longest, self._line) > self._limits.line_bytes:
            raise refused(
                "has a line that is too long", f"{self._limits.line_bytes:,} bytes in a line"
            )

    def _look(self, whole: bool) -> None:
        """Determine format and columns from the head. `whole`: the head is the whole file."""
        text = self._head.decode("utf-8-sig", "ignore")
        if not whole:  # the last line may be cut
            text = text[: text.rfind("\n") + 1]
            if not text.strip():
                raise refused("has no line end in its first MiB: its first record is too long")
        start = text.lstrip()
        if not start:
            raise refused("is empty")
        if start[0] == "<":
            raise refused("is HTML or XML")
        if start[0] == "[":
            raise refused("is a JSON array", "JSON Lines: one object in each line")
        form, columns = (
            ("jsonl", _json_columns(text))
            if start[0] == "{"
            else ("csv", _csv_columns(text, whole))
        )
        check_columns(columns, self._limits.columns)
        self._found = form, tuple(name for name in columns if name)
        self._head.clear()


def _json_columns(text: str) -> Sequence[str]:
    names: dict[str, None] = {}
    rows = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, line in rows[:HEAD_ROWS]:
        try:
            value = json_value(line)
        except NamedTwice:
            problem = f"line {number} gives two fields the same name"
            raise refused(problem, "each name once") from None
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise refused(
                f"line {number} is no JSON object", "JSON Lines: one whole object in each line"
            )
        names.update(dict.fromkeys(value))
    return list(names)


def _csv_columns(text: str, whole: bool) -> Sequence[str]:
    csv.field_size_limit(2 * HEAD_BYTES)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    number = 0
    try:
        for row in reader:
            if not row:
                continue
            if not header:
                header = row
            elif len(row) != len(header):
                problem = f"row {number} has {len(row)} fields, the header {len(header)}"
                raise refused(problem, "CSV with commas, and as many fields in each row")
            number += 1
            if number > HEAD_ROWS:
                break
    except csv.Error:
        # A record that the head cuts in two breaks off inside its quotes, and that is no fault of
        # it.
        if whole or number < 2 or reader.line_num < text.count("\n"):
            raise refused(f"the quoting of row {number} is broken", "CSV") from None
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise refused("its columns are not separated by commas", "CSV with commas")
    if number < 2:
        raise refused("has a header and no record", "a header and at least one record")
    return header


def check_columns(names: Sequence[str], most: int) -> None:
    """Raise InvalidRequest for column names that no declaration could use."""
    if len(names) > most:
        raise refused(f"has {len(names):,} columns", f"{most:,} columns")
    named = [name for name in names if name]
    if not named:
        raise refused("names no column", "columns with names")
    if has_two_alike(named):
        raise refused(
            "gives two columns the same name, or names that only look different", "each name once"
        )
    if any(len(name) > COLUMN_NAME or not name.isprintable() for name in named):
        allowed = f"printable names of at most {COLUMN_NAME} characters; is the header missing?"
        raise refused("has a column whose name is too long or not printable", allowed)
