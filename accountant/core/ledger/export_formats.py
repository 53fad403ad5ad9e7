"""Exports as files: JSON Lines and CSV, written row by row; JSON Lines are verified.

JSON Lines: a header with the totals, then each entry with its hash. CSV: a header of columns, the
entries, and the totals as the last row. The totals include the checkpoint that was signed when the
export was made. JSON Lines are the evidence; CSV is for spreadsheets.
"""

import codecs
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from accountant.core.errors import VerificationFailed, invalid
from accountant.core.files.spreadsheets import MARK, harmless
from accountant.core.ledger.books import Books
from accountant.core.ledger.canonical_json import value_text
from accountant.core.ledger.checkpoints import Checkpoint, read_checkpoint
from accountant.core.ledger.commitments import hidden, is_hidden, opened
from accountant.core.ledger.hash_chain import FIELDS, canonical
from accountant.core.ledger.verifier import (
    Verified,
    Verifier,
    agree,
    read_document,
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

#: Fields of a header that all exports state, and that some do.
_STATED = ("format", "version", "dataset", "entries", "head", "balances")
_MAY_STATE = ("public", "checkpoint", "log_proof")

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
    """Return the totals that an export claims; its entries must add up to them.

    `log_proof`: {"seq", "proof"} of the newest of its entries that a public log holds
    (core/transparency).
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
    """Return a stored entry as an export shows it: its document and its canonical text."""
    document = read_document(text)
    if not public:
        return document, text
    published = hidden(document)
    return published, canonical(published).decode()


def json_header(claimed: Mapping[str, Any]) -> str:
    """Return the first line of a JSON Lines export."""
    return canonical(claimed).decode() + "\n"


def json_row(recorded_hash: str, canonical_text: str) -> str:
    """Return one line of a JSON Lines export: the canonical text, with the hash added."""
    return f'{canonical_text[:-1]},"hash":"{recorded_hash}"}}\n'


def csv_row(document: Mapping[str, Any], recorded_hash: str, canonical_text: str) -> str:
    """Return one line of the CSV export, newline included; null and hidden values are empty."""
    plain = opened(document)
    values = [plain[name] for name in COLUMNS[:5]]
    shown = ["" if value is None or is_hidden(value) else str(value) for value in values]
    return _csv((*map(harmless, shown), recorded_hash, _uncut(canonical_text)))


def csv_totals(claimed: Mapping[str, Any]) -> str:
    """Return the last line of a CSV export."""
    return _csv(
        ("", TOTALS, "", "", "", claimed["head"], _uncut(json.dumps(claimed, ensure_ascii=False)))
    )


def _uncut(text: str) -> str:
    """Return a JSON text without semicolons, at which some countries' spreadsheets cut it."""
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

    `checkpoints` are of the same ledger, at or before its end. `pinned` is the public key that the
    export's own checkpoint must be signed by or follow from. Raises VerificationFailed with the
    problem and, if one entry is at fault, its number. Raises InvalidRequest for a CSV export.
    """
    rows = iter(lines)
    first = next(rows, "")
    if not first.strip():
        raise VerificationFailed("the file is empty")
    if first.lstrip(MARK).startswith(CSV_HEADER.strip().lstrip(MARK)):
        raise invalid(
            "FILE",
            "this is a CSV export, which can't be verified",
            "a JSON Lines export of the same dataset: "
            "exchequer ledger export DATASET --format jsonl",
        )
    claimed = _read_header(first)
    public, proof = claimed.get("public", False), claimed.get("log_proof", {"seq": 0})
    verifier = Verifier(claimed["dataset"], checkpoints, public=public, logged=proof["seq"])
    for line in rows:
        seq = verifier.count + 1
        document = _read_line(line, seq)
        recorded = document.pop("hash", None)
        if not isinstance(recorded, str):
            raise VerificationFailed("it has no hash", seq)
        text = _check_text(line, document, partial(json_row, recorded), seq)
        verifier.add(document, recorded, text)
    return _checked_totals(claimed, verifier.result(), pinned)


def _read_line(line: str, seq: int | None) -> dict[str, Any]:
    """Return the JSON object in one line. Raises VerificationFailed."""
    try:
        return read_document(line)
    except VerificationFailed as error:
        raise VerificationFailed(str(error), seq) from None


def _check_text(
    line: str, value: Mapping[str, Any], written: Callable[[str], str], seq: int | None
) -> str:
    """Return the canonical text of a value, of which a line is what `written` makes.

    So it holds no name twice, no blank and no number in another form. The last line may lack its
    end. Raises VerificationFailed.
    """
    try:
        text = value_text(value)
        row = written(text)
    except (ValueError, RecursionError):
        row = text = ""
    if row != (line if line.endswith("\n") else line + "\n"):
        raise VerificationFailed(
            "its text is not in canonical form (RFC 8785): each name once, in order, without "
            "blanks",
            seq,
        )
    return text


def _read_header(first: str) -> dict[str, Any]:
    """Return the totals that the first line of a JSON Lines export states."""
    claimed = _read_line(first, None)
    if (
        claimed.get("format") != FORMAT
        or type(claimed.get("version")) is not int
        or claimed["version"] != 1
    ):
        raise VerificationFailed("this is no ledger export: the first line is no header")
    _check_text(first, claimed, lambda text: text + "\n", None)
    if not set(_STATED) <= set(claimed) <= {*_STATED, *_MAY_STATE}:
        fields = f"{', '.join(_STATED)}, and perhaps {', '.join(_MAY_STATE)}"
        raise VerificationFailed(f"the header's fields are not {fields}")
    if not isinstance(claimed["dataset"], str):
        raise VerificationFailed("the header's dataset is no text")
    if claimed.get("public", True) is not True:
        raise VerificationFailed("the header's public is not true")
    proof = claimed.get("log_proof")
    if "log_proof" in claimed and not (
        isinstance(proof, dict)
        and set(proof) == {"seq", "proof"}
        and type(proof["seq"]) is int
        and isinstance(proof["proof"], str)
    ):
        raise VerificationFailed("the header's log_proof is not a number and a proof")
    return claimed


def _checked_totals(claimed: Mapping[str, Any], found: Verified, pinned: bytes | None) -> Verified:
    """Return the verified ledger, once the export's claims equal what its entries add up to."""
    public = "public" in claimed
    if not found.entries:
        raise VerificationFailed(
            "it has no entries, and a ledger begins with the terms of its data"
        )
    expected = header(
        found.dataset, found.entries, found.head, found.books, found.live, public=public
    )
    for name in ("dataset", "entries", "head", "balances"):
        if value_text(claimed[name]) != value_text(expected[name]):
            raise VerificationFailed(
                f"the export states {name} {claimed[name]!r}, the entries give {expected[name]!r}"
            )
    found = replace(found, log_proof=claimed.get("log_proof"))
    if "log_proof" in claimed and not 0 < claimed["log_proof"]["seq"] <= found.entries:
        raise VerificationFailed("the header's log_proof is of no entry of it")
    if "checkpoint" in claimed:
        stated = read_checkpoint(claimed["checkpoint"], pinned)
        agree(stated, found)
        found = replace(found, checkpoints=(*found.checkpoints, stated))
    if pinned is not None and all(signed.seq < found.entries for signed in found.checkpoints):
        raise VerificationFailed(
            "no checkpoint signed with the key that you know covers all of its entries"
        )
    return found


assert set(COLUMNS[:5]) <= set(FIELDS)


# --- files that another program saved -----------------------------------------------------------

# A byte-order mark, UTF-16, Windows line ends and blank lines at the end change no entry: they are
# left out, and told. Nothing else is left out.

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_HEAD = 4
BYTE_ORDER_MARK = "a byte-order mark"
WINDOWS = "Windows line ends"
UTF16 = "UTF-16"


class Start(NamedTuple):
    """The beginning of a text: its encoding, and the bytes before the text itself."""

    encoding: str
    skip: int
    added: tuple[str, ...]


def read_start(head: bytes) -> Start:
    """Read the first bytes of a file.

    Raises VerificationFailed for an encoding that is not read.
    """
    if head.startswith(codecs.BOM_UTF8):
        return Start("utf-8", len(codecs.BOM_UTF8), (BYTE_ORDER_MARK,))
    if head.startswith(_UTF32) or (b"\0" in head and not head.startswith(_UTF16)):
        raise VerificationFailed("the file is not UTF-8 text: save it as UTF-8, or export it again")
    if head.startswith(_UTF16):
        return Start("utf-16", 0, (UTF16,))
    return Start("utf-8", 0, ())


def blank_lines(count: int) -> str:
    """Return how blank lines at the end are told."""
    return f"{count:,} blank {'line' if count == 1 else 'lines'} at the end"


def text_lines(file: io.BufferedReader, added: list[str]) -> Iterator[str]:
    """Yield the lines of a text as exported; `added` gets what another program put around."""
    start = read_start(file.peek(_HEAD)[:_HEAD])
    file.read(start.skip)
    added.extend(start.added)
    # newline: a return within a line ends it, so that it is no space between two names.
    text = io.TextIOWrapper(file, start.encoding, newline="")
    blank: list[str] = []
    end = "\n"
    for number, line in enumerate(text):
        if not line.strip("\r\n"):
            blank.append(line)
            continue
        if number == 0 and line.startswith("\ufeff"):
            raise VerificationFailed("the file begins with two byte-order marks: export it again")
        if number == 0 and line.endswith("\r\n"):
            added.append(WINDOWS)
            end = "\r\n"
        yield from blank  # between lines they are somebody's change
        blank.clear()
        yield line.removesuffix(end) + "\n" if line.endswith(end) else line
    if blank:
        added.append(blank_lines(len(blank)))
