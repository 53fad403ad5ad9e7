"""Public corpora: read through when registered, and opened by their hash when a job names one.

Files are read once: the bytes that are hashed are those that are parsed.

These texts are public or consented, so counts and hashes of them are public facts. Nothing here may
be applied to a dataset's private data.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any

from accountant.core.errors import DataError
from accountant.core.files import cells
from accountant.core.ledger.canonical_json import canonical
from workers.data import manifest, records
from workers.data.addresses import files, names
from workers.data.public_text import PublicText, vouch
from workers.data.records import Broken, Layout
from workers.data.rows import Held


@dataclass(frozen=True)
class Corpus:
    """A corpus for a job. `texts` streams (text, label or None) in the order of its files.

    Args:
        data: an address, or files that were read and hashed already.
    """

    name: str
    data: str | Sequence[Held]
    text_template: str
    label_column: str | None = None

    def texts(self) -> Iterator[tuple[PublicText, str | None]]:
        """Yield every text with its label."""
        for row in _rows(self.data, self.text_template, self.label_column):
            if not isinstance(row, Broken):
                yield vouch(row[0]), row[1]


def hold(address: str) -> tuple[list[Held], str]:
    """Read the files of a corpus once; returns them, and the SHA-256 of all. Raises DataError.

    Their bytes lie in temporary files without a name, so nobody can change them afterwards.
    """
    paths = files(address)
    return manifest.hold(paths, names(address, paths), TemporaryFile, again=True)


def inspect(
    data: Sequence[Held], files_sha256: str, text_template: str, label_column: str | None
) -> dict[str, Any]:
    """Return public facts: files' hash, number of texts, labels. Raises DataError."""
    count = 0
    labels: set[str] = set()
    for row in _rows(data, text_template, label_column):
        if isinstance(row, Broken):
            raise DataError(str(row))
        count += 1
        if row[1] is not None:
            labels.add(row[1])
            if len(labels) > MAX_LABELS:
                raise DataError(f"its label column has more than {MAX_LABELS:,} values")
    if not count:
        raise DataError("there is no text in it")
    return {
        "sha256": digest(files_sha256, text_template, label_column),
        "texts": count,
        "labels": sorted(labels),
    }


def digest(files_sha256: str, text_template: str, label_column: str | None) -> str:
    """Return the SHA-256 (hex) of a corpus: its files, and how they are read."""
    read = {"text_template": text_template, "label_column": label_column}
    return hashlib.sha256(canonical({"files": files_sha256, **read})).hexdigest()


MAX_LABELS = 1_000


def open_corpus(row: Any, roots: list[str], sha256: str) -> Corpus:
    """Return a registered corpus. Raises DataError if its bytes do not hash to `sha256`."""
    held, files_sha256 = hold(records.check_address(row.uri, roots))
    if digest(files_sha256, row.text_template, row.label_column) != sha256:
        raise DataError(
            f"the files of the corpus {row.name!r}, or its columns, are not those registered"
        )
    return Corpus(row.name, held, row.text_template, row.label_column)


def _rows(
    data: str | Sequence[Held], text_template: str, label_column: str | None
) -> Iterator[tuple[str, str | None] | Broken]:
    layout = Layout(text_template)
    columns = list(dict.fromkeys([*layout.columns(), *([label_column] if label_column else [])]))
    for row in records.rows(data, columns):
        record = row if isinstance(row, Broken) else records.record(row, layout)
        if isinstance(row, Broken) or isinstance(record, Broken):
            assert isinstance(record, Broken)
            yield record
        else:
            yield record.text, None if label_column is None else cells.text(row[label_column])
