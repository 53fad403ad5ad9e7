"""Reader of private records from the rows of files: their texts, labels, groups, secrets and
privacy units.

An unreadable record is a `Broken` marker. When a dataset is registered, the first one is an error
to its steward that names the position; in a job it contributes nothing and stops nothing.
"""

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as hidden
from functools import cached_property

from accountant.core.errors import DataError
from accountant.core.files import cells
from accountant.core.files.cells import column_key
from accountant.core.secret_patterns import Secrets
from accountant.core.template import fill, slots
from workers import interruption
from workers.data.addresses import check_address as check_address  # noqa: PLC0414
from workers.data.addresses import files as files  # noqa: PLC0414
from workers.data.addresses import only as only  # noqa: PLC0414
from workers.data.keyed_hashes import keyed_hash, pick
from workers.data.rows import Broken as Broken  # noqa: PLC0414
from workers.data.rows import Held, Row, columns_of, no_column
from workers.data.rows import rows as rows  # noqa: PLC0414

NO_SECRETS = Secrets()


@dataclass(frozen=True)
class Record:
    """One record: the privacy unit it belongs to, its label if any, and its text.

    `group`: the one that its unit is in, if there are any. `secret`: the value of its secret
    column, if any.
    """

    unit: str
    label: str | None
    text: str
    group: str | None = None
    secret: str = ""


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
    #: refuse, merge or keep: spellings of one unit or several (DatasetSpec).
    unit_spelling: str = "refuse"
    #: refuse or separate: records whose unit is missing (DatasetSpec).
    missing_units: str = "refuse"

    def columns(self) -> list[str]:
        """Return every column that is needed."""
        return list(self.fields())

    @cached_property
    def label_names(self) -> dict[str, str]:
        """The declared labels by their canonical form."""
        return {cells.text(name): name for name in self.labels}

    @cached_property
    def group_names(self) -> dict[str, str]:
        """The declared groups by their canonical form."""
        return {cells.text(name): name for name in self.groups}

    def fields(self) -> dict[str, str]:
        """Return, for each needed column, the field of the declaration that names it first."""
        named = [(slot, "text_template") for slot in slots(self.text_template)]
        named += [
            (value, field)
            for field in ("unit_column", "label_column", "group_column", "secret_column")
            if (value := getattr(self, field)) is not None
        ]
        columns: dict[str, str] = {}
        for name, field in named:
            columns.setdefault(name, field)
        return columns


#: A label and the number of a batch among its batches.
Place = tuple[str | None, int]
#: The number of batches of every label, or of each.
Counts = int | Mapping[str | None, int]

#: For each record: the first batch that its cluster has, and how many it has.
Within = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Records:
    """A dataset as a mechanism sees it: records by label, at most a fixed number of each unit.

    `groups` are the declared ones. `secrets` tells what counts as a secret; a mechanism says where
    it looks for them. `share` is (i, n) if n workers share the batches of a job: only the i-th of n
    runs of batches is seen.
    """

    labels: tuple[str | None, ...]
    records: tuple[Record, ...]
    key: bytes = hidden(repr=False)
    share: tuple[int, int] = (0, 1)
    groups: tuple[str, ...] = ()
    secrets: Secrets = NO_SECRETS

    def of(self, labels: Collection[str]) -> "Records":
        """Return the records of some labels, in their order; of all, where there are none named."""
        if not labels:
            return self
        labelled = tuple(record for record in self.records if record.label in labels)
        return replace(self, labels=tuple(labels), records=labelled)

    def in_round(self, number: int) -> "Records":
        """Return the same records under the fresh and independent coins of a round."""
        return replace(self, key=keyed_hash(self.key, "round", str(number)))

    def batches(
        self, count: Counts, within: Within | None = None, run: int | None = None
    ) -> dict[Place, list[str]]:
        """Return texts by (label, batch): `count` batches per label, each unit in the batch its
        keyed hash picks.

        Only the first `run` batches of each label are returned; None: all. A record's batch depends
        on that record alone, so adding or removing a unit changes one batch; nothing is dropped or
        moved to even them out, and a batch may be empty. `within` gives for each record the first
        batch of its cluster and the cluster's number of batches.
        """
        placed = self._placed(count, within, run)
        return {
            place: [each.text for _, each in sorted(held, key=_rank)]
            for place, held in placed.items()
        }

    def pairs(
        self,
        count: Counts,
        slots: int,
        lowest: bool,
        within: Within | None = None,
        run: int | None = None,
    ) -> dict[Place, list[tuple[str, str]]]:
        """Return pairs of texts by (label, batch), as `batches`: each record in the slot that its
        keyed hash picks.

        A slot gives a pair if exactly two records fall in it, so that a record adds or removes one
        pair; or, if `lowest`, its two lowest hashes if two or more do, so that a record may also
        change a pair.
        """
        made: dict[Place, list[tuple[str, str]]] = {}
        for place, held in self._placed(count, within, run).items():
            filled: dict[int, list[str]] = {}
            for _, record in sorted(held, key=_rank):
                slot = pick(keyed_hash(self.key, "slot", record.unit, record.text), slots)
                filled.setdefault(slot, []).append(record.text)
            serve = (filled[slot] for slot in sorted(filled))
            made[place] = [
                (texts[0], texts[1])
                for texts in serve
                if len(texts) == 2 or (lowest and len(texts) > 2)
            ]
        return made

    def _placed(
        self, count: Counts, within: Within | None, run: int | None
    ) -> dict[Place, list[tuple[bytes, Record]]]:
        """Return records with the hash that orders them, by (label, batch)."""
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
    """Return the run of batches that the i-th of n workers has."""
    mine, of = share
    return slice(batches * mine // of, batches * (mine + 1) // of)


def _rank(held: tuple[bytes, Record]) -> tuple[bytes, str]:
    return held[0], held[1].text


# --- columns ------------------------------------------------------------------------------------


def check_columns(address: str, layout: Layout) -> None:
    """Raises DataError naming the field of the declaration whose column the first file does not
    have.

    Only the names of columns are looked at; of JSON Lines, those of the first row.
    """
    present = columns_of(files(address)[0])
    if present is None:
        return  # whatever is wrong is told when it is read through
    keys = {column_key(name) for name in present}
    for column, field in layout.fields().items():
        if column_key(column) not in keys:
            raise DataError(f"{field}: {no_column([column], present)}")


# --- records ------------------------------------------------------------------------------------


def records(data: str | Sequence[Held], layout: Layout) -> Iterator[Record | Broken]:
    """Yield every record in order, or a marker for each that can't be read."""
    for row in rows(data, layout.columns()):
        yield row if isinstance(row, Broken) else record(row, layout)


def record(row: Row, layout: Layout) -> Record | Broken:
    """Return the record in a row, or a marker with the reason why it can't be read.

    Its unit is "" if the row names none and is a unit by itself.
    """
    try:
        values = {name: cells.text(value) for name, value in row.items()}
        joined = "".join(values.values())
        if not joined.isascii():
            joined.encode()
        label = group = None
        if layout.label_column is not None:
            label = layout.label_names.get(values[layout.label_column])
            if label is None:
                raise _undeclared(row[layout.label_column], layout.label_names, "label")
        if layout.group_column is not None:
            group = layout.group_names.get(values[layout.group_column])
            if group is None:
                raise _undeclared(row[layout.group_column], layout.group_names, "group")
        text = fill(layout.text_template, values)
        unit = f"{label}\0{text}" if layout.unit_column is None else _unit(row, layout)
    except cells.Unreadable as problem:
        return Broken(row.number, str(problem), row.file)
    except UnicodeEncodeError:
        # Bytes that are none, or half a character as JSON can write it: no tokenizer takes either.
        return Broken(row.number, "it is not UTF-8", row.file)
    secret = "" if layout.secret_column is None else values[layout.secret_column]
    return Record(unit, label, text, group, secret)


def _undeclared(value: object, declared: Mapping[str, str], what: str) -> cells.Unreadable:
    """Return the reason why a cell holds none of the declared names."""
    text = cells.text(value)
    near = text and cells.fold(text) in map(cells.fold, declared)
    how = (
        "a declared one differs in capitals, blanks or zeros alone"
        if near
        else cells.how_read(value)
    )
    return cells.Unreadable(f"its {what} is not among the declared {what}s ({how})")


def _unit(row: Row, layout: Layout) -> str:
    column = layout.unit_column
    assert column is not None
    try:
        identifier = cells.identifier(row[column])
    except cells.Unreadable as problem:
        raise cells.Unreadable(f"its {column} can't name anybody: {problem}") from None
    if identifier is not None:
        return identifier.exact if layout.unit_spelling == "keep" else identifier.folded
    if layout.missing_units == "refuse":
        how = "null, NaN, empty, or a word such as NA"
        raise cells.Unreadable(
            f"its {column} is missing ({how}): correct it, or set missing_units to 'separate' if "
            "each such record is a unit by itself"
        )
    return ""


def folded(value: str) -> str:
    """Return the value in NFKC, case folded."""
    return unicodedata.normalize("NFKC", value).casefold()


def read(data: str | Sequence[Held], layout: Layout, key: bytes) -> Records:
    """Return the records of a job: unreadable ones left out, at most the declared number of each
    unit.

    A keyed hash of each record decides which of a unit's records are kept, so this depends on no
    other unit.
    """
    found: list[Record] = [each for each in records(data, layout) if isinstance(each, Record)]
    if layout.unit_column is None:
        found = list(_told_apart(found))
    else:
        alone = _told_apart(each for each in found if not each.unit)
        found = [each for each in found if each.unit]
        if layout.group_column is not None:
            found = list(_in_one_group(found, key))
        found = [*_bounded(found, layout.max_records_per_unit, key), *alone]
    labels: tuple[str | None, ...] = layout.labels if layout.label_column is not None else (None,)
    return Records(labels, tuple(found), key, groups=layout.groups, secrets=layout.secrets)


def _told_apart(found: Iterable[Record]) -> Iterator[Record]:
    """Yield records that are units themselves: each copy gets a name and a coin of its own, by its
    number.

    Under one name all copies would lie in one batch, and the texts of c - 1 of them would show
    where the c-th lies. Which of equal records is the i-th makes no difference, so adding a copy is
    adding the last one.
    """
    copies: Counter[Record] = Counter()
    for each in found:
        copies[each] += 1
        # Each part is quoted, so no two lists of parts make one name. No identifier holds a NUL.
        parts = (each.label, each.text, each.group, each.secret, copies[each])
        yield replace(each, unit=f"\0{parts!r}")


def _in_one_group(found: Sequence[Record], key: bytes) -> Iterator[Record]:
    """Return the records of each unit in the one of its groups that a keyed hash picks.

    Data whose units are in several was refused when it was declared; should it have changed since,
    no unit moves two groups all the same, and none moves another's.
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
