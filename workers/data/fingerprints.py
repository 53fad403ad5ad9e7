"""Fingerprints of a dataset's privacy units, by which two registrations of the same people are
recognised.

- A unit named by a column: a keyed hash of its folded form (accountant.core.files.cells), whatever
  `unit_spelling` says, so that the same people in another spelling are recognised.
- A record: a keyed hash of each column of the template by its name, NFKC, case folded, with nothing
  but letters, their marks, and digits; without any of these, all of it with white space collapsed.
  The template's own words and order don't matter. Its weight says how much an equal record
  elsewhere proves (text_evidence).
- All records together, where SOME of them differ: the same data is recognised whatever its texts.

Keys come from the secret `identity`. Only 16 bytes of HMAC-SHA-256 are kept.
"""

import hmac
import re
import unicodedata
from collections.abc import Iterator, Sequence

from accountant.core.errors import DataError, ExchequerError
from accountant.core.files import cells
from accountant.core.template import slots
from accountant.core.text_evidence import weight
from accountant.transactions.unit_fingerprints import Fingerprint
from workers.data import records
from workers.data.records import Broken, Layout
from workers.data.rows import Held, Row

_NOT_WORDS = re.compile(r"[\W_]+")
_WORD = re.compile(r"[^\W_]")
#: Scripts of which one sign says as much as three letters: ideographs and Hangul syllables.
_DENSE = re.compile("[\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
#: Characters of a record that are weighed.
_WEIGHED = 128
#: So many records must differ before all of them together are a fingerprint.
SOME = 5


def fingerprints(data: str | Sequence[Held], layout: Layout, key: bytes) -> Iterator[Fingerprint]:
    """Read everything through and yield the fingerprints of each record in turn.

    `is_unit` is false for those of records. They are yielded for units by column too, so that
    registering the same file by record is detected. Raises DataError at the first unreadable
    record, if there is none at all, and for errors of a file system or codec (with their kind
    only).
    """
    try:
        yield from _fingerprints(data, layout, key)
    except (ExchequerError, GeneratorExit):  # of the data, or that the work must stop
        raise
    except Exception as error:
        raise DataError(f"the data can't be read: {type(error).__name__}") from None


def _fingerprints(data: str | Sequence[Held], layout: Layout, key: bytes) -> Iterator[Fingerprint]:
    columns = sorted(set(slots(layout.text_template)))
    group_of: dict[bytes, str | None] = {}
    distinct: set[bytes] = set()
    together = 0
    spellings = Spellings(layout)
    row: Row | Broken | None = None
    for row in records.rows(data, layout.columns()):
        found = row if isinstance(row, Broken) else records.record(row, layout)
        if isinstance(row, Broken) or isinstance(found, Broken):
            raise DataError(str(found))
        name = spellings.check(row)
        if name is not None:
            unit = _keyed(key, b"unit\0", name)
            if (
                layout.group_column is not None
                and group_of.setdefault(unit, found.group) != found.group
            ):
                told = f"{row.place}: its {layout.unit_column} is in another group too"
                raise DataError(f"group_column: {told}; a unit is in one group only")
            yield Fingerprint(unit, True)
        content = "\0".join(normalised(cells.text(row[name])) for name in columns)
        value = _keyed(key, b"record\0", content)
        yield Fingerprint(value, False, weight(distinct_letters(content)))
        together = (together + int.from_bytes(value, "big")) % 2**128  # in any order
        if len(distinct) < SOME:
            distinct.add(value)
    if row is None:
        raise DataError("there is no record in it")
    if len(distinct) == SOME:
        yield Fingerprint(_keyed(key, b"all records\0", f"{together:x}"), False)


def proof(key: bytes) -> bytes:
    """Return a value that shows whether two workers have the same key, without revealing it."""
    return _keyed(key, b"proof\0", "")


def _keyed(key: bytes, domain: bytes, value: str) -> bytes:
    return hmac.digest(key, domain + value.encode("utf-8", "surrogatepass"), "sha256")[:16]


class _Kept(dict[int, int | None]):
    """Letters, their marks and digits; nothing for other characters and variation selectors."""

    def __missing__(self, number: int) -> int | None:
        kept = unicodedata.category(chr(number))[0] in "LMN" and not (
            0xFE00 <= number <= 0xFE0F or 0xE0100 <= number <= 0xE01EF
        )
        self[number] = number if kept else None
        return self[number]


_kept = _Kept()


def normalised(value: str) -> str:
    """Return letters, marks and digits only, or else the text with blanks collapsed."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", value).casefold())
    words = _NOT_WORDS.sub("", plain) if plain.isascii() else plain.translate(_kept)
    return words if _WORD.search(words) else " ".join(plain.split())


def distinct_letters(content: str) -> int:
    """Count a record's letters without repeats, roughly; an ideograph counts for three."""
    start = content[:_WEIGHED]
    if not _WORD.search(start):
        return 0
    dense = 0 if start.isascii() else len(set(_DENSE.findall(start)))
    return len(set(zip(start, start[1:], start[2:], strict=False))) + 2 * dense


class Spellings:
    """The spellings of all units so far: two hashes of 64 bits for each unit.

    Two spellings that may or may not be one person ("017" and "17") are refused unless the
    dataset's `unit_spelling` decides. Neither choice is safe by itself: one person as two units
    pays half, and two people as one unit change the records of each other.
    """

    def __init__(self, layout: Layout) -> None:
        self._column = layout.unit_column
        self._decided = layout.unit_spelling
        self._exact: dict[int, int] = {}
        self._kinds: dict[int, str] = {}
        self._families: set[str] = set()

    def check(self, row: Row) -> str | None:
        """Return the folded name of a readable row's unit, or None if the row is a unit by itself.

        Raises DataError for a spelling that the dataset's declaration does not decide.
        """
        identifier = None if self._column is None else cells.identifier(row[self._column])
        if identifier is None:
            return None
        if self._decided != "keep":
            self._check_family(row, identifier.family)
        if self._decided == "refuse":
            self._check_spelling(row, identifier)
        return identifier.folded

    def _check_family(self, row: Row, family: str) -> None:
        if family in self._families:
            return
        self._families.add(family)
        if not any(self._families <= together for together in cells.TOGETHER):
            earlier = ", ".join(sorted(self._families - {family}))
            raise DataError(
                f"unit_column: {row.place} has {family} in {self._column}, and rows before it "
                f"{earlier}. The same people may be written in two ways: write them in one, or set "
                "unit_spelling to 'keep' if these are different people"
            )

    def _check_spelling(self, row: Row, identifier: cells.Identifier) -> None:
        exact, key = hash(identifier.exact), hash(identifier.folded)
        if self._exact.setdefault(key, exact) == exact:
            if identifier.exact != identifier.folded and key not in self._kinds:
                self._kinds[key] = cells.spelling(identifier.exact)
            return
        earlier = self._kinds.get(key, "plainly")
        kind = (
            "plainly" if identifier.exact == identifier.folded else cells.spelling(identifier.exact)
        )
        raise DataError(
            f"unit_column: {row.place} spells a unit of {self._column} {kind}, a row before it "
            f"{earlier}, and nothing else differs. Correct the data, or set unit_spelling: 'merge' "
            "if these are one person, 'keep' if they are different people"
        )
