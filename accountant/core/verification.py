"""Offline verification of an exported ledger: needs no server and no database.

Checks the hash chain, that every reservation is resolved at most once and in order, that each recorded
cost is that of its event and each event that of its parameters, and the balances at the end.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from accountant.core import mechanisms
from accountant.core.books import SHAPES, Books, as_text
from accountant.core.chain import FIELDS, GENESIS, Entry, EntryKind, digest, read_entry
from accountant.core.currencies import NO_EX_POST, Demand, demand, read_demand
from accountant.core.errors import ExchequerError, VerificationFailed
from accountant.core.events import to_json
from accountant.core.pricing import Mechanism, Terms
from accountant.core.replay import Replay

FORMAT = "exchequer-ledger"


@dataclass(frozen=True)
class Verified:
    """A ledger that holds: how many entries, the last hash, and the books that they make."""

    dataset: str
    entries: int
    head: str
    books: Books
    live: int


def summary(books: Books, live: int) -> dict[str, Any]:
    """Balances as the header of an export states them; `live` reservations are not settled yet."""
    account = books.account
    others: dict[str, Any] = {}
    if books.ex_post != NO_EX_POST:
        own = books.ex_post
        others["ex_post"] = [str(own.limit), str(own.spent), str(own.reserved)]
    if books.secret is not None:
        held = books.secret
        others["secret"] = [str(held.limit), str(held.spent), str(held.reserved), str(held.jobs)]
    return {
        **others,
        "live_reservations": live,
        "filters": None
        if account is None
        else [
            {
                "kind": str(each.filter.kind),
                "limit": [str(each.limit.main), str(each.limit.delta)],
                "spent": [str(each.spent.main), str(each.spent.delta)],
                "reserved": [str(each.reserved.main), str(each.reserved.delta)],
                "closed": each.closed,
            }
            for each in account.filters
        ],
    }


class Verifier:
    """Feed entries in order, then ask for the result. Holds the books, not the entries."""

    def __init__(self, dataset: str | None = None) -> None:
        self.dataset = dataset
        self.replay = Replay()
        self.head = GENESIS
        self.count = 0

    def add(self, document: Mapping[str, Any], recorded_hash: str) -> Entry:
        """Check one entry against everything before it. Raises VerificationFailed naming it."""
        seq = self.count + 1
        entry = read_entry(document, seq)
        if self.dataset is None:
            self.dataset = entry.dataset
        if entry.dataset != self.dataset:
            raise VerificationFailed(f"it belongs to {entry.dataset!r}", seq)
        if entry.previous != self.head:
            raise VerificationFailed("it does not follow the entry before it", seq)
        if digest(document) != recorded_hash:
            raise VerificationFailed("its content does not match its hash", seq)
        try:
            if entry.kind is EntryKind.RESERVE:
                _check_price(entry.body)
            self.replay.apply(entry.kind, entry.job, entry.body)
        except VerificationFailed as error:
            raise VerificationFailed(str(error), seq) from None
        self.head, self.count = recorded_hash, seq
        return entry

    def result(self) -> Verified:
        """What has been verified so far."""
        replay = self.replay
        return Verified(self.dataset or "", self.count, self.head, replay.books, replay.live_count)


def _check_price(body: Mapping[str, Any]) -> None:
    """The event must be what the mechanism charges for these parameters under these terms."""
    try:
        mechanism = mechanisms.get(body["mechanism"])
        event, asked = _recomputed(mechanism, as_text([body["parameters"], body["terms"]]))
        stated = asked == read_demand(asked.dp, body) and event == body["event"]
    except (KeyError, TypeError, ValueError, ExchequerError) as error:
        raise VerificationFailed(f"its price can't be recomputed: {error}") from None
    if not stated:
        raise VerificationFailed("its event is not the price of its parameters")


@lru_cache(maxsize=SHAPES)
def _recomputed(mechanism: Mechanism[Any], shape: str) -> tuple[dict[str, Any], Demand]:
    """The event, as JSON, and all that a job of these parameters and terms asks."""
    parameters, stated = json.loads(shape)
    terms = Terms.from_json(stated)
    asked = demand(mechanism.price(mechanism.parse(parameters, terms), terms))
    return to_json(asked.dp), asked


# --- files --------------------------------------------------------------------------------------

#: Kind of the last row of a CSV export, which states what JSON Lines states in its first line.
TOTALS = "TOTALS"

CSV_COLUMNS = ("seq", "kind", "at", "actor", "job", "hash", "entry")


def header(dataset: str, entries: int, head: str, books: Books, live: int) -> dict[str, Any]:
    """First line of a JSON Lines export: what the rest must add up to."""
    return {
        "format": FORMAT,
        "version": 1,
        "dataset": dataset,
        "entries": entries,
        "head": head,
        "balances": summary(books, live),
    }


def verify_lines(lines: Iterable[str]) -> Verified:
    """Verify an export, JSON Lines or CSV, told apart by the first line.

    Raises VerificationFailed with what is wrong, naming the entry where one is at fault.
    """
    rows = iter(lines)
    first = next(rows, "")
    if not first.strip():
        raise VerificationFailed("the file is empty")
    if first.lstrip("\ufeff").startswith(",".join(CSV_COLUMNS)):
        return _verify_csv(rows)
    return _verify_json_lines(first, rows)


def _verify_json_lines(first: str, rows: Iterator[str]) -> Verified:
    claimed = _object(first, None)
    if claimed.get("format") != FORMAT or claimed.get("version") != 1:
        raise VerificationFailed("this is no ledger export: the first line is no header")
    verifier = Verifier(claimed.get("dataset"))
    for line in rows:
        document = _object(line, verifier.count + 1)
        recorded = document.pop("hash", None)
        verifier.add(document, str(recorded))
    return _checked_totals(claimed, verifier.result())


def _verify_csv(rows: Iterator[str]) -> Verified:
    """Columns are checked against the canonical entry; the last row states the totals."""
    csv.field_size_limit(1 << 24)
    verifier = Verifier()
    claimed: dict[str, Any] | None = None
    for row in csv.reader(rows):
        seq = verifier.count + 1
        if claimed is not None:
            raise VerificationFailed("it stands after the totals", seq)
        if len(row) != len(CSV_COLUMNS):
            raise VerificationFailed(f"it has {len(row)} columns", seq)
        values = dict(zip(CSV_COLUMNS, row, strict=True))
        document = _object(values["entry"], seq)
        if values["kind"] == TOTALS:
            claimed = document
            continue
        verifier.add(document, values["hash"])
        for name in ("seq", "kind", "at", "actor", "job"):
            if values[name] != ("" if document[name] is None else str(document[name])):
                raise VerificationFailed(f"its column {name} does not match its entry", seq)
    if claimed is None:
        raise VerificationFailed("the export is cut off: its last row does not state the totals")
    return _checked_totals(claimed, verifier.result())


def _checked_totals(claimed: Mapping[str, Any], found: Verified) -> Verified:
    """What an export claims of itself must be what its entries add up to."""
    expected = header(found.dataset, found.entries, found.head, found.books, found.live)
    for name in ("dataset", "entries", "head", "balances"):
        if claimed.get(name) != expected[name]:
            raise VerificationFailed(
                f"the export states {name} {claimed.get(name)!r}, the entries give {expected[name]!r}"
            )
    return found


def read_document(text: str) -> dict[str, Any]:
    """An entry's document from its canonical text."""
    return _object(text, None)


def _object(line: str, seq: int | None) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        raise VerificationFailed("it is no JSON", seq) from None
    if not isinstance(value, dict):
        raise VerificationFailed("it is no JSON object", seq)
    return value


def csv_totals(claimed: Mapping[str, Any]) -> str:
    """The last line of a CSV export."""
    out = io.StringIO()
    row = ["", TOTALS, "", "", "", claimed["head"], json.dumps(claimed, ensure_ascii=False)]
    csv.writer(out, lineterminator="\n").writerow(row)
    return out.getvalue()


def csv_row(document: Mapping[str, Any], recorded_hash: str, canonical_text: str) -> str:
    """One line of the CSV export, newline included."""
    out = io.StringIO()
    values = ["" if document[name] is None else str(document[name]) for name in CSV_COLUMNS[:5]]
    csv.writer(out, lineterminator="\n").writerow([*values, recorded_hash, canonical_text])
    return out.getvalue()


assert set(CSV_COLUMNS[:5]) <= set(FIELDS)
