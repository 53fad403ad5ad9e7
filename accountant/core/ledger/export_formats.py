"""Exports as files: JSON Lines, CSV and Parquet, written row by row; JSON Lines are verified.

JSON Lines: a header with the totals, then each entry with its hash. CSV: a header of columns, the entries,
and the totals as the last row. Parquet: the same columns, with the totals in the file's metadata
(parquet_exports.py). The totals include the checkpoint that was signed when the export was made. JSON Lines
are the evidence; CSV and Parquet are for spreadsheets and analyses.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from accountant.core.errors import VerificationFailed
from accountant.core.files.spreadsheets import MARK, harmless
from accountant.core.ledger.books import Books
from accountant.core.ledger.checkpoints import Checkpoint, read_checkpoint
from accountant.core.ledger.commitments import hidden, is_hidden, opened
from accountant.core.ledger.hash_chain import FIELDS, canonical
from accountant.core.ledger.saved_exports import unverifiable
from accountant.core.ledger.verifier import (
    Verified,
    Verifier,
    agree,
    known_balances,
    read_document,
    read_object,
    summary,
)

__all__ = [
    "COLUMNS",
    "CSV_HEADER",
    "Verified",
    "Verifier",
    "csv_row",
    "csv_totals",
    "header",
    "read_document",
    "summary",
    "verify_lines",
]

FORMAT = "exchequer-ledger"

#: Kind of the last row of a CSV export, which states what JSON Lines states in its first line.
TOTALS = "TOTALS"

COLUMNS = ("seq", "kind", "at", "actor", "job", "hash", "entry")
CSV_HEADER = MARK + ",".join(COLUMNS) + "\n"


def header(
    dataset: str,
    entries: int,
    head: str,
    books: Books,
    live: int,
    *,
    public: bool = False,
    checkpoint: Mapping[str, Any] | None = None,
    log_proof: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The totals that an export claims; its entries must add up to them.

    `log_proof`: {"seq", "proof"} of the newest of its entries that a public log holds (core/transparency).
    """
    return {
        "format": FORMAT,
        "version": 1,
        "dataset": dataset,
        "entries": entries,
        "head": head,
        "balances": summary(books, live, public=public),
        **({"public": True} if public else {}),
        **({} if checkpoint is None else {"checkpoint": dict(checkpoint)}),
        **({} if log_proof is None else {"log_proof": dict(log_proof)}),
    }


# --- writing ------------------------------------------------------------------------------------


def shown(text: str, public: bool) -> tuple[dict[str, Any], str]:
    """A stored entry as an export shows it: its document and its canonical text."""
    document = read_document(text)
    if not public:
        return document, text
    published = hidden(document)
    return published, canonical(published).decode()


def json_header(claimed: Mapping[str, Any]) -> str:
    """The first line of a JSON Lines export."""
    return json.dumps(claimed, ensure_ascii=False) + "\n"


def json_row(recorded_hash: str, canonical_text: str) -> str:
    """One line of a JSON Lines export: the canonical text with the hash as an additional field."""
    return f'{canonical_text[:-1]},"hash":"{recorded_hash}"}}\n'


def columns(document: Mapping[str, Any], recorded_hash: str, canonical_text: str) -> tuple[str, ...]:
    """The values of one entry as texts, in the order of COLUMNS; null and hidden values are empty."""
    return (*_plain_columns(document), recorded_hash, canonical_text)


def _plain_columns(document: Mapping[str, Any]) -> list[str]:
    plain = opened(document)
    values = [plain[name] for name in COLUMNS[:5]]
    return ["" if value is None or is_hidden(value) else str(value) for value in values]


def csv_row(document: Mapping[str, Any], recorded_hash: str, canonical_text: str) -> str:
    """One line of the CSV export, newline included."""
    *plain, text = columns(document, recorded_hash, canonical_text)
    return _csv((*map(harmless, plain), _uncut(text)))


def csv_totals(claimed: Mapping[str, Any]) -> str:
    """The last line of a CSV export."""
    return _csv(("", TOTALS, "", "", "", claimed["head"], _uncut(json.dumps(claimed, ensure_ascii=False))))


def _uncut(text: str) -> str:
    """Return a JSON text without semicolons, at which spreadsheets of many countries would cut it."""
    return text.replace(";", "\\u003b")


def _csv(row: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(row)
    return out.getvalue()


# --- verifying ----------------------------------------------------------------------------------


def verify_lines(
    lines: Iterable[str], checkpoints: Iterable[Checkpoint] = (), pinned: bytes | None = None
) -> Verified:
    """Verify a JSON Lines export.

    `checkpoints` are of the same ledger, at or before its end. `pinned` is the public key that the export's
    own checkpoint must be signed by or follow from. Raises VerificationFailed with the problem and, if one
    entry is at fault, its number. Raises InvalidRequest for a CSV export.
    """
    rows = iter(lines)
    first = next(rows, "")
    if not first.strip():
        raise VerificationFailed("the file is empty")
    if first.lstrip(MARK).startswith(CSV_HEADER.strip().lstrip(MARK)):
        raise unverifiable("CSV")
    claimed = _read_header(first)
    verifier = Verifier(claimed.get("dataset"), checkpoints)
    for line in rows:
        document = read_object(line, verifier.count + 1)
        recorded = document.pop("hash", None)
        verifier.add(document, str(recorded))
    return _checked_totals(claimed, verifier.result(), pinned)


def _read_header(first: str) -> dict[str, Any]:
    """The totals that the first line of a JSON Lines export states."""
    claimed = read_object(first, None)
    if claimed.get("format") != FORMAT or claimed.get("version") != 1:
        raise VerificationFailed("this is no ledger export: the first line is no header")
    return claimed


def _checked_totals(claimed: Mapping[str, Any], found: Verified, pinned: bytes | None) -> Verified:
    """The verified ledger, once the export's claims equal what its entries add up to."""
    public = claimed.get("public") is True
    expected = header(found.dataset, found.entries, found.head, found.books, found.live, public=public)
    stated = claimed.get("balances")
    if isinstance(stated, dict):
        expected["balances"] = known_balances(stated, found, public=public)
    for name in ("dataset", "entries", "head", "balances"):
        if claimed.get(name) != expected[name]:
            raise VerificationFailed(
                f"the export states {name} {claimed.get(name)!r}, the entries give {expected[name]!r}"
            )
    found = replace(found, log_proof=claimed.get("log_proof"))
    if "checkpoint" not in claimed:
        return found
    own = read_checkpoint(claimed["checkpoint"], pinned)
    agree(own, found)
    return replace(found, checkpoints=(*found.checkpoints, own))


assert set(COLUMNS[:5]) <= set(FIELDS)
