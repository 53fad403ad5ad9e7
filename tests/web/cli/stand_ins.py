"""Stand-ins that the tests of the command line share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from typer.testing import Result

from accountant.core.ledger.books import Books
from accountant.core.ledger.export_formats import (
    CSV_HEADER,
    csv_row,
    csv_totals,
    header,
    json_header,
    json_row,
)
from accountant.core.ledger.hash_chain import GENESIS, Entry, EntryKind, canonical, digest
from accountant.core.ledger.replay import Replay

Run = Callable[..., Result]


@dataclass
class Ledger:
    """Entries appended as the writer does: body first, applied to the books, then chained."""

    dataset: str = "reviews"
    replay: Replay = field(default_factory=Replay)
    documents: list[dict[str, Any]] = field(default_factory=list)
    head: str = GENESIS

    @property
    def books(self) -> Books:
        return self.replay.books

    def header(self) -> dict[str, Any]:
        return header(
            self.dataset, len(self.documents), self.head, self.books, self.replay.live_count
        )

    def append(self, kind: EntryKind, job: str | None, body: dict[str, Any]) -> None:
        self.replay.apply(kind, job, body)
        seq = len(self.documents) + 1
        at = datetime(2026, 11, 20, 12, 0, seq, tzinfo=UTC)
        document = Entry(self.dataset, seq, kind, at, "ada", job, body, self.head).document()
        self.documents.append(document)
        self.head = digest(document)

    def json_lines(self) -> str:
        rows = [json_row(digest(each), canonical(each).decode()) for each in self.documents]
        return json_header(self.header()) + "".join(rows)

    def csv(self) -> str:
        rows = [csv_row(each, digest(each), canonical(each).decode()) for each in self.documents]
        return CSV_HEADER + "".join(rows) + csv_totals(self.header())


#: What a server says first of a request that closes nothing.
QUOTED = (200, {"dataset": {"closes": None}})


@dataclass
class StandIn:
    """A real socket; each request takes the next answer: (status, document or bytes[, headers]) or
    "drop".
    """

    url: str
    answers: list[Any] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
