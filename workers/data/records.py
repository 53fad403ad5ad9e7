"""Reader of private records: CSV, JSON Lines and Parquet, compressed or not, from any fsspec address.

An unreadable record is a `Broken` marker. When a dataset is registered, the first one is an error to its
steward that names the position; in a job it contributes nothing and stops nothing.
"""

import csv
import io
import json
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as hidden
from typing import Any

import fsspec

from accountant.core.errors import DataError
from accountant.core.secret_patterns import Secrets
from accountant.core.template import fill, slots
from workers import interruption
from workers.data.addresses import check_address as check_address  # noqa: PLC0414
from workers.data.addresses import files as files  # noqa: PLC0414
from workers.data.addresses import format_of
from workers.data.addresses import only as only  # noqa: PLC0414
from workers.data.keyed_hashes import keyed_hash, pick

NO_SECRETS = Secrets()
MAX_FIELD_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Record:
    """One record: the privacy unit it belongs to, its label if any, and its text.

    `group`: the one that its unit is in, if there are any. `secret`: the value of its secret column, if any.
    """

    unit: str
    label: str | None
    text: str
    group: str | None = None
    secret: str = ""


@dataclass(frozen=True)
class Broken:
    """A position at which no record could be read, and the reason, which quotes no content."""

    position: int
    why: str


@dataclass(frozen=True)
class Layout:
    """The columns of a dataset and their meaning."""

    text_template: str
    unit_column: str | None = None
    label_column: str | None = None
    labels: tuple[str, ...] = ()
    max_records_per_unit: int = 1
    group_column: str | None = None
    groups: tuple[str, ...] = ()
    secret_column: str | None = None
    secrets: Secrets = NO_SECRETS

    def columns(self) -> list[str]:
        """Every column that is needed."""
        return list(self.fields())

    def fields(self) -> dict[str, str]:
        """Return, for each needed column, the field of the declaration that names it first."""
        named = [(slot, "text_template") for slot in slots(self.text_template)]
        named += [
            (value, field)
            for field in ("unit_column", "label_column", "group_column", "secret_column")
            if (value := getattr(self, field)) is not None
        ]
        found: dict[str, str] = {}
        for name, field in named:
            found.setdefault(name, field)
        return found


#: A label and the number of a batch among its batches.
Place = tuple[str | None, int]
#: The number of batches of every label, or of each.
Counts = int | Mapping[str | None, int]

#: For each record: the first batch that its cluster has, and how many it has.
Within = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Records:
    """A dataset as a mechanism sees it: records by label, at most a fixed number of each unit.

    `groups` are the declared ones. `secrets` tells what counts as a secret; a mechanism says where it
    looks for them. `share` is (i, n) if n workers share the batches of a job: only the i-th of n runs of
    batches is seen.
    """

    labels: tuple[str | None, ...]
    records: tuple[Record, ...]
    key: bytes = hidden(repr=False)
    share: tuple[int, int] = (0, 1)
    groups: tuple[str, ...] = ()
    secrets: Secrets = NO_SECRETS

    def of(self, labels: Collection[str]) -> "Records":
        """The records of some labels, in their order; of all, where there are none named."""
        if not labels:
            return self
        kept = tuple(each for each in self.records if each.label in labels)
        return replace(self, labels=tuple(labels), records=kept)

    def in_round(self, number: int) -> "Records":
        """The same records under the fresh and independent coins of a round."""
        return replace(self, key=keyed_hash(self.key, "round", str(number)))

    def batches(
        self, count: Counts, within: Within | None = None, run: int | None = None
    ) -> dict[Place, list[str]]:
        """Texts by (label, batch): `count` batches per label, each unit in the batch its keyed hash picks.

        Only the first `run` batches of each label are returned; None: all.
        A record's batch depends on that record alone, so adding or removing a unit changes one batch; nothing
        is dropped or moved to even them out, and a batch may be empty. `within` gives for each record the
        first batch of its cluster and the cluster's number of batches.
        """
        found = self._placed(count, within, run)
        return {place: [each.text for _, each in sorted(held, key=_rank)] for place, held in found.items()}

    def pairs(
        self, count: Counts, slots: int, lowest: bool, within: Within | None = None, run: int | None = None
    ) -> dict[Place, list[tuple[str, str]]]:
        """Pairs of texts by (label, batch), as `batches`: each record in the slot that its keyed hash picks.

        A slot gives a pair if exactly two records fall in it, so that a record adds or removes one pair; or,
        if `lowest`, its two lowest hashes if two or more do, so that a record may also change a pair.
        """
        made: dict[Place, list[tuple[str, str]]] = {}
        for place, held in self._placed(count, within, run).items():
            filled: dict[int, list[str]] = {}
            for _, each in sorted(held, key=_rank):
                slot = pick(keyed_hash(self.key, "slot", each.unit, each.text), slots)
                filled.setdefault(slot, []).append(each.text)
            serve = (filled[slot] for slot in sorted(filled))
            made[place] = [
                (texts[0], texts[1]) for texts in serve if len(texts) == 2 or (lowest and len(texts) > 2)
            ]
        return made

    def _placed(
        self, count: Counts, within: Within | None, run: int | None
    ) -> dict[Place, list[tuple[bytes, Record]]]:
        """Records with the hash that orders them, by (label, batch)."""
        counts = dict.fromkeys(self.labels, count) if isinstance(count, int) else count
        places = [(label, index) for label in self.labels for index in range(run or counts[label])]
        found: dict[Place, list[tuple[bytes, Record]]] = {
            place: [] for place in places[share_of(len(places), self.share)]
        }
        for number, record in enumerate(self.records):
            interruption.check()
            first, many = (0, counts[record.label]) if within is None else within[number]
            index = first + pick(keyed_hash(self.key, "batch", record.unit), many)
            if (record.label, index) in found:
                order = keyed_hash(self.key, "order", record.unit, record.text)
                found[record.label, index].append((order, record))
        return found


def share_of(batches: int, share: tuple[int, int]) -> slice:
    """The run of batches that the i-th of n workers has."""
    mine, of = share
    return slice(batches * mine // of, batches * (mine + 1) // of)


def _rank(held: tuple[bytes, Record]) -> tuple[bytes, str]:
    return held[0], held[1].text


# --- opening ------------------------------------------------------------------------------------


def rows(address: str, columns: list[str]) -> Iterator[Mapping[str, Any] | Broken]:
    """Every row of every file as a mapping of its columns. Raises DataError if a file can't be read."""
    for file in files(address):
        form = format_of(file)
        if form is None:
            raise DataError("the file's name does not end in .csv, .jsonl or .parquet (.gz may follow)")
        try:
            if form == "parquet":
                yield from _watched(_parquet_rows(file, columns))
            else:
                opened = fsspec.open(file, "rb", compression="infer")
                with opened as binary:
                    lines = io.TextIOWrapper(binary, "utf-8-sig", errors="surrogateescape", newline="")
                    yield from _watched((_csv_rows if form == "csv" else _json_rows)(lines, columns))
        except (OSError, EOFError, ValueError) as error:
            raise DataError(f"the file can't be read as {form}: {type(error).__name__}") from None


def _watched(found: Iterator[Mapping[str, Any] | Broken]) -> Iterator[Mapping[str, Any] | Broken]:
    for each in found:
        interruption.check()
        yield each


def _csv_rows(lines: io.TextIOWrapper, columns: list[str]) -> Iterator[Mapping[str, Any] | Broken]:
    csv.field_size_limit(MAX_FIELD_BYTES)
    reader = csv.reader(lines, strict=True)
    header = next(reader, [])
    _require(columns, header)
    position = 0
    while True:
        position += 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield Broken(position, "its quoting is broken")
            continue
        if not row:
            position -= 1
            continue  # a blank line is no row
        if len(row) != len(header):
            yield Broken(position, f"it has {len(row)} fields, the header has {len(header)}")
        else:
            yield dict(zip(header, row, strict=True))


def _json_rows(lines: io.TextIOWrapper, columns: list[str]) -> Iterator[Mapping[str, Any] | Broken]:
    for position, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            yield Broken(position, "it is no JSON")
            continue
        if not isinstance(value, dict):
            yield Broken(position, "it is no JSON object")
        elif missing := [name for name in columns if name not in value]:
            yield Broken(position, f"it has no {', '.join(missing)}")
        else:
            yield value


def _parquet_rows(file: str, columns: list[str]) -> Iterator[Mapping[str, Any] | Broken]:
    import pyarrow
    from pyarrow import parquet

    with fsspec.open(file, "rb") as binary:
        try:
            table = parquet.ParquetFile(binary)
            _require(columns, table.schema_arrow.names)
            for batch in table.iter_batches(batch_size=1024, columns=columns):
                yield from batch.to_pylist()
        except pyarrow.ArrowException as error:
            raise DataError(f"the file can't be read as parquet: {type(error).__name__}") from None


def check_columns(address: str, layout: Layout) -> None:
    """Raises DataError naming the field of the declaration whose column the first file does not have.

    Only the names of columns are looked at; of JSON Lines, those of the first row.
    """
    first = files(address)[0]
    if format_of(first) == "parquet":
        from pyarrow import parquet

        with fsspec.open(first, "rb") as binary:
            present = list(parquet.ParquetFile(binary).schema_arrow.names)
    else:
        row = next(iter(rows(first, [])), None)
        if row is None or isinstance(row, Broken):
            return  # whatever is wrong is told when it is read through
        present = list(row)
    for column, field in layout.fields().items():
        if column not in present:
            raise DataError(f"{field}: {_no_column([column], present)}")


def _require(columns: list[str], present: list[str]) -> None:
    missing = [name for name in columns if name not in present]
    if missing:
        raise DataError(_no_column(missing, present))


def _no_column(missing: list[str], present: list[str]) -> str:
    """What is told of columns that are not there; names that are there may be a record: none is quoted."""
    found = f"there is no column {', '.join(missing)} among the {len(present)}"
    plain = {name.strip().casefold() for name in present}
    if any(name.strip().casefold() in plain for name in missing):
        return f"{found}; one differs in capitals or spaces alone"
    return f"{found}: look at how the file begins"


# --- records ------------------------------------------------------------------------------------


def records(address: str, layout: Layout) -> Iterator[Record | Broken]:
    """Every record in order, or a marker for each that can't be read."""
    for position, row in enumerate(rows(address, layout.columns()), 1):
        yield row if isinstance(row, Broken) else record(row, layout, position)


def record(row: Mapping[str, Any], layout: Layout, position: int) -> Record | Broken:
    """The record in a row, or a marker with the reason why it can't be read."""
    values = {name: text_of(row.get(name)) for name in layout.columns()}
    try:
        "".join(values.values()).encode()
    except UnicodeEncodeError:
        # Bytes that are none, or half a character as JSON can write it: no tokenizer takes either.
        return Broken(position, "it is not UTF-8")
    label = None if layout.label_column is None else values[layout.label_column]
    if label is not None and label not in layout.labels:
        return Broken(position, "its label is not among the declared labels")
    group = None if layout.group_column is None else values[layout.group_column]
    if group is not None and group not in layout.groups:
        return Broken(position, "its group is not among the declared groups")
    secret = "" if layout.secret_column is None else values[layout.secret_column]
    text = fill(layout.text_template, values)
    if layout.unit_column is None:
        return Record(f"{label}\0{text}", label, text, group, secret)
    # As its account knows it (fingerprints): otherwise spelling would make two units of one person.
    unit = folded(values[layout.unit_column]).strip()
    if not unit:
        return Broken(position, f"its {layout.unit_column} is empty")
    return Record(unit, label, text, group, secret)


def folded(value: str) -> str:
    """The value in NFKC, case folded."""
    return unicodedata.normalize("NFKC", value).casefold()


def text_of(value: Any) -> str:
    """A column's value as text."""
    if value is None:
        return ""
    return (
        value
        if isinstance(value, str)
        else json.dumps(value)
        if isinstance(value, dict | list)
        else str(value)
    )


def read(address: str, layout: Layout, key: bytes) -> Records:
    """The records of a job: unreadable ones left out, at most the declared number of each unit.

    A keyed hash of each record decides which of a unit's records are kept, so this depends on no other unit.
    """
    found: list[Record] = [each for each in records(address, layout) if isinstance(each, Record)]
    if layout.unit_column is None:
        found = list(_told_apart(found))
    else:
        if layout.group_column is not None:
            found = list(_in_one_group(found, key))
        found = list(_bounded(found, layout.max_records_per_unit, key))
    labels: tuple[str | None, ...] = layout.labels if layout.label_column is not None else (None,)
    return Records(labels, tuple(found), key, groups=layout.groups, secrets=layout.secrets)


def _told_apart(found: Iterable[Record]) -> Iterator[Record]:
    """Records that are units themselves: each copy gets a name and a coin of its own, by its number.

    Under one name all copies would lie in one batch, and the texts of c - 1 of them would show where the c-th
    lies. Which of equal records is the i-th makes no difference, so adding a copy is adding the last one.
    """
    copies: Counter[Record] = Counter()
    for each in found:
        copies[each] += 1
        # Each part is quoted, so no two lists of parts make one name.
        yield replace(each, unit=repr((each.label, each.text, each.group, each.secret, copies[each])))


def _in_one_group(found: Sequence[Record], key: bytes) -> Iterator[Record]:
    """The records of each unit in the one of its groups that a keyed hash picks.

    Data whose units are in several was refused when it was declared; should it have changed since, no unit
    moves two groups all the same, and none moves another's.
    """
    groups: dict[str, tuple[bytes, str | None]] = {}
    for record in found:
        ranked = (keyed_hash(key, "group", record.unit, record.group or ""), record.group)
        groups[record.unit] = min(ranked, groups.get(record.unit, ranked))
    return (record for record in found if record.group == groups[record.unit][1])


def _bounded(found: Iterable[Record], most: int, key: bytes) -> Iterator[Record]:
    by_unit: dict[str, list[tuple[bytes, Record]]] = {}
    for record in found:
        rank = keyed_hash(key, "keep", record.unit, record.label or "", record.text)
        by_unit.setdefault(record.unit, []).append((rank, record))
    for candidates in by_unit.values():
        candidates.sort(key=lambda pair: pair[0])
        yield from (record for _, record in candidates[:most])
