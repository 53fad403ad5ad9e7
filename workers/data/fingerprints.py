"""Fingerprints of a dataset's privacy units, by which two registrations of the same people are recognised.

A unit named by a column has a keyed hash of its value; a record has a keyed hash of the columns that its text
is made of. Both are normalised first, so that spelling alone does not make a second person:

- a value of the unit column: its folded form (accountant.core.files.cells), whatever `unit_spelling` says, so
  that the same people in another spelling are recognised;
- a record: each column of the template by its name, NFKC, case folded, letters and digits only (or, if
  there are none, all of it with white space collapsed). The template's own words and order don't matter.

Keys come from the secret `identity`. Only 16 bytes of HMAC-SHA-256 are kept.
"""

import hmac
import re
from collections.abc import Iterator

from accountant.core.errors import DataError, ExchequerError
from accountant.core.files import cells
from accountant.core.template import slots
from accountant.transactions.unit_fingerprints import Fingerprint
from workers.data import records
from workers.data.records import Broken, Layout, folded
from workers.data.rows import Row
from workers.data.spellings import Spellings

_NOT_WORDS = re.compile(r"[\W_]+")


def fingerprints(address: str, layout: Layout, key: bytes) -> Iterator[Fingerprint]:
    """Read everything through and yield the fingerprints of each record in turn.

    If the unit is a column, the record's own fingerprints are yielded too (`is_unit` false), so that
    registering the same file by record is detected. Raises DataError at the first unreadable record, if there
    is none at all, and for errors of a file system or codec (with their kind only).
    """
    try:
        yield from _fingerprints(address, layout, key)
    except (ExchequerError, GeneratorExit):  # of the data, or that the work must stop
        raise
    except Exception as error:
        raise DataError(f"the data can't be read: {type(error).__name__}") from None


def _fingerprints(address: str, layout: Layout, key: bytes) -> Iterator[Fingerprint]:
    columns = sorted(set(slots(layout.text_template)))
    group_of: dict[bytes, str | None] = {}
    spellings = Spellings(layout)
    row: Row | Broken | None = None
    for row in records.rows(address, layout.columns()):
        found = row if isinstance(row, Broken) else records.record(row, layout)
        if isinstance(row, Broken) or isinstance(found, Broken):
            raise DataError(str(found))
        name = spellings.check(row)
        if name is not None:
            unit = _keyed(key, b"unit\0", name)
            if layout.group_column is not None and group_of.setdefault(unit, found.group) != found.group:
                told = f"{row.place}: its {layout.unit_column} is in another group too"
                raise DataError(f"group_column: {told}; a unit is in one group only")
            yield Fingerprint(unit, True)
        content = "\0".join(normalised(cells.text(row[name])) for name in columns)
        yield Fingerprint(_keyed(key, b"record\0", content), name is None)
    if row is None:
        raise DataError("there is no record in it")


def proof(key: bytes) -> bytes:
    """A value that shows whether two workers have the same key, without revealing it."""
    return _keyed(key, b"proof\0", "")


def _keyed(key: bytes, domain: bytes, value: str) -> bytes:
    return hmac.digest(key, domain + value.encode("utf-8", "surrogatepass"), "sha256")[:16]


def normalised(value: str) -> str:
    """Letters and digits only; if there are none, the text with its white space collapsed."""
    plain = folded(value)
    return _NOT_WORDS.sub("", plain) or " ".join(plain.split())
